"""The pool of threads as LLVM IR; see `parallel`."""

POOL = """
; state, barriers passed (of a team), pthread, loops in a row to which it did not come, padding
%slot = type { i32, i32, i64, i32, [44 x i8] }
; a thread's share of the loop: its first iteration not yet taken, its end, padding
%part = type { i64, i64, [48 x i8] }
; lock, workers started, padding, then the loop: body, context, threads, chunk, and how floats are
; computed. A chunk of 0 is a team.
%pool = type { i32, i32, [56 x i8], ptr, ptr, i64, i64, i32, [28 x i8] }

@slots = internal global [@MAX@ x %slot] zeroinitializer, align 64
@parts = internal global [@MAX@ x %part] zeroinitializer, align 64
@pool = internal global %pool zeroinitializer, align 64
@autosched_parallel_spin_ns = global i64 @SPIN@, align 8

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i64 @pthread_self()
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare void @@PAUSE@(@PAUSE_TYPE@)

define internal ptr @slot_of(i32 %thread) alwaysinline {
  %n = zext i32 %thread to i64
  %p = getelementptr %slot, ptr @slots, i64 %n
  ret ptr %p
}

define internal i64 @now(ptr %ts) {
  %rc = call i32 @clock_gettime(i32 1, ptr %ts)
  %s = load i64, ptr %ts
  %q = getelementptr i64, ptr %ts, i64 1
  %ns = load i64, ptr %q
  %a = mul i64 %s, 1000000000
  %b = add i64 %a, %ns
  ret i64 %b
}

; The number under which the calling thread may use scratch memory.
define internal i32 @own_number() {
entry:
  %busy = load atomic i32, ptr @pool monotonic, align 4
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %zero, label %search
search:
  %self = call i64 @pthread_self()
  %started = load atomic i32, ptr getelementptr (%pool, ptr @pool, i32 0, i32 1) monotonic, align 4
  br label %next
next:
  %w = phi i32 [ 1, %search ], [ %w1, %other ]
  %in = icmp ule i32 %w, %started
  br i1 %in, label %look, label %zero
look:
  %slot = call ptr @slot_of(i32 %w)
  %p = getelementptr %slot, ptr %slot, i32 0, i32 2
  %t = load atomic i64, ptr %p monotonic, align 8
  %is = icmp eq i64 %t, %self
  br i1 %is, label %found, label %other
other:
  %w1 = add i32 %w, 1
  br label %next
found:
  ret i32 %w
zero:
  ret i32 0
}

; The pieces of a thread's own share of the current loop, then what is left of the others'; or its
; part in a team. The same thread gets the same share of each loop, so what it wrote in one loop it
; finds in its cache in the next. Bodies find the stack at the end of a page: see `call_ir`.
define internal void @work(i32 %thread) noinline {
entry:
  %page = alloca i64, align 4096
  store volatile i64 0, ptr %page
  %body = load ptr, ptr getelementptr (%pool, ptr @pool, i32 0, i32 3)
  %context = load ptr, ptr getelementptr (%pool, ptr @pool, i32 0, i32 4)
  %threads = load i64, ptr getelementptr (%pool, ptr @pool, i32 0, i32 5)
  %chunk = load i64, ptr getelementptr (%pool, ptr @pool, i32 0, i32 6)
  %rank = zext i32 %thread to i64
  %team = icmp eq i64 %chunk, 0
  br i1 %team, label %whole, label %share
whole:
  notail call void %body(ptr %context, i64 %rank, i64 %threads, i32 %thread)
  ret void
share:
  %n = phi i64 [ 0, %entry ], [ %n1, %other ]
  %far = add i64 %rank, %n
  %over = icmp uge i64 %far, %threads
  %wrapped = sub i64 %far, %threads
  %owner = select i1 %over, i64 %wrapped, i64 %far
  %next = getelementptr %part, ptr @parts, i64 %owner
  %last = getelementptr %part, ptr @parts, i64 %owner, i32 1
  %end = load i64, ptr %last
  br label %look
look:
  %seen = load atomic i64, ptr %next monotonic, align 8
  %open = icmp slt i64 %seen, %end
  br i1 %open, label %try, label %other
try:
  %begin = atomicrmw add ptr %next, i64 %chunk monotonic
  %left = sub i64 %end, %begin
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %run, label %other
run:
  %short = icmp slt i64 %left, %chunk
  %step = select i1 %short, i64 %left, i64 %chunk
  %to = add i64 %begin, %step
  call void %body(ptr %context, i64 %begin, i64 %to, i32 %thread)
  br label %look
other:
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %threads
  br i1 %more, label %share, label %done
done:
  ret void
}

; Divide a loop among threads: a range of pieces each, as many pieces as the others' but for one.
define internal void @divide(i64 %extent, i64 %chunk, i64 %threads) {
entry:
  %e1 = sub i64 %extent, 1
  %full = udiv i64 %e1, %chunk
  %pieces = add i64 %full, 1
  %each = udiv i64 %pieces, %threads
  %over = urem i64 %pieces, %threads
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %begin = phi i64 [ 0, %entry ], [ %end, %next ]
  %long = icmp ult i64 %n, %over
  %one = zext i1 %long to i64
  %count = add i64 %each, %one
  %size = mul i64 %count, %chunk
  %left = sub i64 %extent, %begin
  %short = icmp slt i64 %left, %size
  %range = select i1 %short, i64 %left, i64 %size
  %end = add i64 %begin, %range
  %first = getelementptr %part, ptr @parts, i64 %n
  %last = getelementptr %part, ptr @parts, i64 %n, i32 1
  store atomic i64 %begin, ptr %first monotonic, align 8
  store i64 %end, ptr %last
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %threads
  br i1 %more, label %next, label %done
done:
  ret void
}

; A loop, or a team, of the caller alone.
define internal void @alone(ptr %body, ptr %context, i64 %extent) noinline {
  %page = alloca i64, align 4096
  store volatile i64 0, ptr %page
  %number = call i32 @own_number()
  notail call void %body(ptr %context, i64 0, i64 %extent, i32 %number)
  ret void
}

define internal ptr @worker(ptr %number) {
entry:
  %ts = alloca { i64, i64 }
  %wide = ptrtoint ptr %number to i64
  %w = trunc i64 %wide to i32
  %slot = call ptr @slot_of(i32 %w)
  %self = call i64 @pthread_self()
  %own = getelementptr %slot, ptr %slot, i32 0, i32 2
  store atomic i64 %self, ptr %own monotonic, align 8
  br label %wait
wait:
  %start = call i64 @now(ptr %ts)
  %spin_ns = load atomic i64, ptr @autosched_parallel_spin_ns monotonic, align 8
  %deadline = add i64 %start, %spin_ns
  br label %spin
spin:
  %n = phi i32 [ 0, %wait ], [ %n1, %idle ], [ %n1, %check ]
  %state = load atomic i32, ptr %slot acquire, align 4
  %posted = icmp eq i32 %state, 1
  br i1 %posted, label %take, label %idle
idle:
  call void @@PAUSE@(@PAUSE_ARGS@)
  %n1 = add i32 %n, 1
  %low = and i32 %n1, 127
  %tick = icmp eq i32 %low, 0
  br i1 %tick, label %check, label %spin
check:
  %yielded = call i32 @sched_yield()
  %t = call i64 @now(ptr %ts)
  %late = icmp sgt i64 %t, %deadline
  br i1 %late, label %sleep, label %spin
sleep:
  %s = cmpxchg ptr %slot, i32 0, i32 3 acq_rel acquire
  %slept = extractvalue { i32, i1 } %s, 1
  br i1 %slept, label %doze, label %wait
doze:
  %rc = call i64 (i64, ...) @syscall(
    i64 @FUTEX@, ptr %slot, i32 128, i32 3, ptr null, ptr null, i32 0)
  %woken = load atomic i32, ptr %slot acquire, align 4
  %still = icmp eq i32 %woken, 3
  br i1 %still, label %doze, label %wait
take:
  %c = cmpxchg ptr %slot, i32 1, i32 2 acq_rel acquire
  %got = extractvalue { i32, i1 } %c, 1
  br i1 %got, label %go, label %wait
go:
  ; A worker rounds as the caller does, and has denormals if the caller has them.
  %mode = load i32, ptr getelementptr (%pool, ptr @pool, i32 0, i32 7)
  %mine = call i32 @float_mode()
  %alike = icmp eq i32 %mode, %mine
  br i1 %alike, label %run, label %adopt
adopt:
  call void @set_float_mode(i32 %mode)
  br label %run
run:
  call void @work(i32 %w)
  store atomic i32 0, ptr %slot release, align 4
  br label %wait
}

; Start workers until there are `want`, as far as the system allows. Returns how many there are.
define internal i32 @grow(i32 %want) noinline {
entry:
  %all = alloca [128 x i8], align 8
  %old = alloca [128 x i8], align 8
  %thread = alloca i64
  call void @note_processors()
  %r0 = call i32 @sigfillset(ptr %all)
  ; Signals are for the threads that the program knows.
  %r1 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  %have0 = load atomic i32, ptr getelementptr (%pool, ptr @pool, i32 0, i32 1) monotonic, align 4
  br label %loop
loop:
  %have = phi i32 [ %have0, %entry ], [ %w, %ok ]
  %enough = icmp uge i32 %have, %want
  br i1 %enough, label %done, label %start
start:
  %w = add i32 %have, 1
  %slot = call ptr @slot_of(i32 %w)
  store atomic i32 0, ptr %slot monotonic, align 4
  %wide = zext i32 %w to i64
  %arg = inttoptr i64 %wide to ptr
  %rc = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %arg)
  %failed = icmp ne i32 %rc, 0
  br i1 %failed, label %done, label %ok
ok:
  %id = load i64, ptr %thread
  %own = getelementptr %slot, ptr %slot, i32 0, i32 2
  store atomic i64 %id, ptr %own monotonic, align 8
  %r2 = call i32 @pthread_detach(i64 %id)
  store atomic i32 %w, ptr getelementptr (%pool, ptr @pool, i32 0, i32 1) monotonic, align 4
  br label %loop
done:
  %r3 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret i32 %have
}

; Run a loop, or a team, with `want` workers besides the caller. False if the pool is taken.
define internal i1 @share(ptr %body, ptr %context, i64 %extent, i64 %chunk, i32 %want) {
entry:
  br label %lock
lock:
  %l = cmpxchg ptr @pool, i32 0, i32 1 acq_rel monotonic
  %locked = extractvalue { i32, i1 } %l, 1
  br i1 %locked, label %ready, label %taken
ready:
  %started = load atomic i32, ptr getelementptr (%pool, ptr @pool, i32 0, i32 1) monotonic, align 4
  %lacks = icmp ult i32 %started, %want
  br i1 %lacks, label %spawn, label %go
spawn:
  %grown = call i32 @grow(i32 %want)
  br label %go
go:
  %have = phi i32 [ %started, %ready ], [ %grown, %spawn ]
  %less = icmp ult i32 %have, %want
  %workers = select i1 %less, i32 %have, i32 %want
  store ptr %body, ptr getelementptr (%pool, ptr @pool, i32 0, i32 3)
  store ptr %context, ptr getelementptr (%pool, ptr @pool, i32 0, i32 4)
  %mode = call i32 @float_mode()
  store i32 %mode, ptr getelementptr (%pool, ptr @pool, i32 0, i32 7)
  %whole = add i32 %workers, 1
  %count = zext i32 %whole to i64
  %team = icmp eq i64 %chunk, 0
  br i1 %team, label %gather, label %divide
gather:
  call void @gather(i32 %whole)
  br label %describe
divide:
  call void @divide(i64 %extent, i64 %chunk, i64 %count)
  br label %describe
describe:
  store i64 %count, ptr getelementptr (%pool, ptr @pool, i32 0, i32 5)
  store i64 %chunk, ptr getelementptr (%pool, ptr @pool, i32 0, i32 6)
  br label %post
post:
  %w = phi i32 [ 1, %describe ], [ %w1, %posted ]
  %more = icmp ule i32 %w, %workers
  br i1 %more, label %put, label %own
put:
  %slot = call ptr @slot_of(i32 %w)
  %was = atomicrmw xchg ptr %slot, i32 1 acq_rel
  %asleep = icmp eq i32 %was, 3
  br i1 %asleep, label %wake, label %posted
wake:
  ; Who sleeps comes late to a short loop, wherever it is.
  %late = getelementptr %slot, ptr %slot, i32 0, i32 3
  store i32 0, ptr %late
  %rc = call i64 (i64, ...) @syscall(
    i64 @FUTEX@, ptr %slot, i32 129, i32 1, ptr null, ptr null, i32 0)
  br label %posted
posted:
  %w1 = add i32 %w, 1
  br label %post
own:
  call void @work(i32 0)
  br label %join
join:
  %j = phi i32 [ 1, %own ], [ %j1, %joined ]
  %left = icmp ule i32 %j, %workers
  br i1 %left, label %recall, label %unlock
recall:
  %js = call ptr @slot_of(i32 %j)
  br i1 %team, label %busy, label %back
back:
  %c = cmpxchg ptr %js, i32 1, i32 0 acq_rel acquire
  %absent = extractvalue { i32, i1 } %c, 1
  %m = getelementptr %slot, ptr %js, i32 0, i32 3
  br i1 %absent, label %missed, label %came
came:
  store i32 0, ptr %m
  br label %busy
missed:
  %m0 = load i32, ptr %m
  %m1 = add i32 %m0, 1
  %enough = icmp eq i32 %m1, @MISSES@
  %m2 = select i1 %enough, i32 @AGAIN@, i32 %m1
  store i32 %m2, ptr %m
  br i1 %enough, label %away, label %joined
away:
  call void @part(ptr %js)
  br label %joined
busy:
  %n = phi i32 [ 0, %recall ], [ 0, %came ], [ %n1, %pause ], [ %n1, %yield ]
  %s = load atomic i32, ptr %js acquire, align 4
  %s1 = sub i32 %s, 1
  %running = icmp ult i32 %s1, 2
  br i1 %running, label %pause, label %joined
pause:
  call void @@PAUSE@(@PAUSE_ARGS@)
  %n1 = add i32 %n, 1
  %low = and i32 %n1, 1023
  %tick = icmp eq i32 %low, 0
  br i1 %tick, label %yield, label %busy
yield:
  %yielded = call i32 @sched_yield()
  br label %busy
joined:
  %j1 = add i32 %j, 1
  br label %join
unlock:
  store atomic i32 0, ptr @pool release, align 4
  ret i1 true
taken:
  ret i1 false
}

define void @autosched_parallel_for(ptr %body, ptr %context, i64 %extent, i64 %chunk0,
                                    i32 %threads) {
entry:
  %empty = icmp sle i64 %extent, 0
  br i1 %empty, label %return, label %sizes
sizes:
  %one = icmp sle i32 %threads, 1
  br i1 %one, label %serial, label %divide
divide:
  %many = icmp sgt i32 %threads, @MAX@
  %t0 = select i1 %many, i32 @MAX@, i32 %threads
  %t = zext i32 %t0 to i64
  %pieces = shl i64 %t, 5
  %auto0 = sdiv i64 %extent, %pieces
  %tiny = icmp slt i64 %auto0, 1
  %auto = select i1 %tiny, i64 1, i64 %auto0
  %given = icmp sgt i64 %chunk0, 0
  %chunk1 = select i1 %given, i64 %chunk0, i64 %auto
  %whole = icmp sgt i64 %chunk1, %extent
  %chunk = select i1 %whole, i64 %extent, i64 %chunk1
  %e1 = sub i64 %extent, 1
  %q = sdiv i64 %e1, %chunk
  %few = icmp slt i64 %q, %t
  %helpers64 = sub i64 %t, 1
  %want64 = select i1 %few, i64 %q, i64 %helpers64
  %want = trunc i64 %want64 to i32
  %none = icmp eq i32 %want, 0
  br i1 %none, label %serial, label %share
share:
  %shared = call i1 @share(ptr %body, ptr %context, i64 %extent, i64 %chunk, i32 %want)
  br i1 %shared, label %return, label %serial
serial:
  call void @alone(ptr %body, ptr %context, i64 %extent)
  ret void
return:
  ret void
}

; After a fork: the child has no workers, and whoever held the pool is not in it.
define void @autosched_parallel_reset() {
entry:
  call void @llvm.memset.p0.i64(ptr @slots, i8 0, i64 @SLOT_BYTES@, i1 false)
  store atomic i32 0, ptr getelementptr (%pool, ptr @pool, i32 0, i32 1) monotonic, align 4
  store atomic i32 0, ptr @pool release, align 4
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

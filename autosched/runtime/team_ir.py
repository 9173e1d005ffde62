"""Teams and their barrier as LLVM IR; see `parallel`.

The barrier is a dissemination barrier: in round r thread i tells thread i + 2^r that it has come,
and waits to be told; after log2(count) rounds each knows of all. Two threads exchange one cache
line each way, at the same time. A flag holds twice the number of the barrier; its lowest bit says
that its owner sleeps on it. Flags only grow, so a thread that is one barrier ahead does no harm.
"""

TEAM = """
@flags = internal global [@MAX@ x [16 x i32]] zeroinitializer, align 64

; Before a team starts: no barrier passed, by anyone.
define internal void @gather(i32 %count) {
entry:
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %wide = zext i32 %i to i64
  %line = getelementptr [16 x i32], ptr @flags, i64 %wide
  call void @llvm.memset.p0.i64(ptr %line, i8 0, i64 64, i1 false)
  %slot = call ptr @slot_of(i32 %i)
  %passed = getelementptr %slot, ptr %slot, i32 0, i32 1
  store i32 0, ptr %passed
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %count
  br i1 %more, label %next, label %done
done:
  ret void
}

define void @autosched_parallel_team(ptr %body, ptr %context, i32 %threads) {
entry:
  %many = icmp sgt i32 %threads, @MAX@
  %t = select i1 %many, i32 @MAX@, i32 %threads
  %want = sub i32 %t, 1
  %one = icmp slt i32 %want, 1
  br i1 %one, label %alone, label %try
try:
  %shared = call i1 @share(ptr %body, ptr %context, i64 0, i64 0, i32 %want)
  br i1 %shared, label %done, label %alone
alone:
  call void @alone(ptr %body, ptr %context, i64 1)
  ret void
done:
  ret void
}

define void @autosched_parallel_barrier(i64 %rank, i64 %count) {
entry:
  %one = icmp ule i64 %count, 1
  br i1 %one, label %done, label %start
start:
  %narrow = trunc i64 %rank to i32
  %slot = call ptr @slot_of(i32 %narrow)
  %passed = getelementptr %slot, ptr %slot, i32 0, i32 1
  %before = load i32, ptr %passed
  %now = add i32 %before, 2
  store i32 %now, ptr %passed
  br label %round
round:
  %r = phi i64 [ 0, %start ], [ %r1, %told ]
  %far = phi i64 [ 1, %start ], [ %far1, %told ]
  %to = add i64 %rank, %far
  %over = icmp uge i64 %to, %count
  %wrapped = sub i64 %to, %count
  %other = select i1 %over, i64 %wrapped, i64 %to
  %theirs = getelementptr [16 x i32], ptr @flags, i64 %other, i64 %r
  %was = atomicrmw xchg ptr %theirs, i32 %now acq_rel
  %bit = and i32 %was, 1
  %asleep = icmp ne i32 %bit, 0
  br i1 %asleep, label %wake, label %listen
wake:
  %woken = call i64 (i64, ...) @syscall(
    i64 @FUTEX@, ptr %theirs, i32 129, i32 1, ptr null, ptr null, i32 0)
  br label %listen
listen:
  %mine = getelementptr [16 x i32], ptr @flags, i64 %rank, i64 %r
  br label %spin
spin:
  %n = phi i32 [ 0, %listen ], [ %n1, %pause ]
  %v = load atomic i32, ptr %mine acquire, align 4
  %ahead = sub i32 %v, %now
  %come = icmp sge i32 %ahead, 0
  br i1 %come, label %told, label %wait
wait:
  %n1 = add i32 %n, 1
  %patient = icmp ult i32 %n1, @PAUSES@
  br i1 %patient, label %pause, label %give
pause:
  call void @@PAUSE@(@PAUSE_ARGS@)
  br label %spin
give:
  %m = phi i32 [ 0, %wait ], [ %m1, %yield ]
  %gv = load atomic i32, ptr %mine acquire, align 4
  %gahead = sub i32 %gv, %now
  %gcome = icmp sge i32 %gahead, 0
  br i1 %gcome, label %told, label %busy
busy:
  %m1 = add i32 %m, 1
  %awake = icmp ult i32 %m1, @YIELDS@
  br i1 %awake, label %yield, label %tire
yield:
  %yielded = call i32 @sched_yield()
  br label %give
tire:
  %sv = load atomic i32, ptr %mine acquire, align 4
  %sahead = sub i32 %sv, %now
  %scome = icmp sge i32 %sahead, 0
  br i1 %scome, label %told, label %mark
mark:
  %marked = or i32 %sv, 1
  %c = cmpxchg ptr %mine, i32 %sv, i32 %marked acq_rel acquire
  %ok = extractvalue { i32, i1 } %c, 1
  br i1 %ok, label %doze, label %tire
doze:
  %rc = call i64 (i64, ...) @syscall(
    i64 @FUTEX@, ptr %mine, i32 128, i32 %marked, ptr null, ptr null, i32 0)
  br label %tire
told:
  %r1 = add i64 %r, 1
  %far1 = shl i64 %far, 1
  %again = icmp ult i64 %far1, %count
  br i1 %again, label %round, label %done
done:
  ret void
}
"""

"""Which processors the workers of the pool may use, as LLVM IR; see `parallel`."""

AFFINITY = """
; the processors that workers may use, how many, and whose they are: of the process that asked
@allowed = internal global [128 x i8] zeroinitializer, align 8
@processors = internal global i32 0, align 4
@process = internal global i32 0, align 4

declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getcpu()
declare i32 @getpid()
declare i64 @llvm.ctpop.i64(i64)

; Keep a worker off the processor that the caller is on: a system with other work may leave it
; queued there for as long as the caller never rests. Nothing is done where there are more threads
; than processors, and in a child that the C library forked, which has none of these workers.
define internal void @part(ptr %slot) noinline cold {
entry:
  %mask = alloca [128 x i8], align 8
  %pid = call i32 @getpid()
  %owner = load i32, ptr @process
  %here = icmp eq i32 %pid, %owner
  br i1 %here, label %count, label %done
count:
  %started = load atomic i32, ptr getelementptr (%pool, ptr @pool, i32 0, i32 1) monotonic, align 4
  %processors = load i32, ptr @processors
  %enough = icmp ugt i32 %processors, %started
  br i1 %enough, label %ask, label %done
ask:
  %cpu = call i32 @sched_getcpu()
  %fits = icmp ult i32 %cpu, 1024
  br i1 %fits, label %clear, label %done
clear:
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr @allowed, i64 128, i1 false)
  %byte = lshr i32 %cpu, 3
  %bit = and i32 %cpu, 7
  %narrow = trunc i32 %bit to i8
  %one = shl i8 1, %narrow
  %others = xor i8 %one, -1
  %wide = zext i32 %byte to i64
  %place = getelementptr i8, ptr %mask, i64 %wide
  %old = load i8, ptr %place
  %new = and i8 %old, %others
  store i8 %new, ptr %place
  %p = getelementptr %slot, ptr %slot, i32 0, i32 2
  %thread = load atomic i64, ptr %p monotonic, align 8
  %set = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  br label %done
done:
  ret void
}

; Note the processors that the first workers of this process inherit.
define internal void @note_processors() noinline cold {
entry:
  %pid = call i32 @getpid()
  %owner = load i32, ptr @process
  %known = icmp eq i32 %pid, %owner
  br i1 %known, label %done, label %ask
ask:
  store i32 0, ptr @processors
  store i32 %pid, ptr @process
  %self = call i64 @pthread_self()
  %rc = call i32 @pthread_getaffinity_np(i64 %self, i64 128, ptr @allowed)
  %right = icmp eq i32 %rc, 0
  br i1 %right, label %next, label %done
next:
  %n = phi i64 [ 0, %ask ], [ %n1, %next ]
  %sum = phi i64 [ 0, %ask ], [ %more, %next ]
  %word = getelementptr i64, ptr @allowed, i64 %n
  %bits = load i64, ptr %word
  %some = call i64 @llvm.ctpop.i64(i64 %bits)
  %more = add i64 %sum, %some
  %n1 = add i64 %n, 1
  %left = icmp ult i64 %n1, 16
  br i1 %left, label %next, label %counted
counted:
  %all = trunc i64 %more to i32
  store i32 %all, ptr @processors
  br label %done
done:
  ret void
}
"""

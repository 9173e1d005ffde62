"""The LLVM IR of `autosched.runtime.call`: the wrapper that CPython calls, and the timing loop.

Kernels are entered with the stack at the end of a page. Where the system puts a stack changes from
process to process, and code whose frame lies across two pages may take 1.4 to 1.7 times as long
(Zen 4, spilled loop counters): so a frame of up to a page lies in one, in every process.
"""

from __future__ import annotations

from autosched.checks import MASKED

CALL = "autosched_call"
TIME = "autosched_time"

_IR = """
%view = type { ptr, ptr, i64, i64, i32, i32, ptr, ptr, ptr, ptr, ptr }
%head = type { ptr, i64, ptr, i64, i64, i64, i64, i64 }
%row = type { i64, i64, i64, i64, i64, i64, i64, i64 }

@_Py_NoneStruct = external global i8
@_Py_NotImplementedStruct = external global i8
@of.masked = private constant [12 x i8] c"@MASKED@\\00"
declare ptr @PyObject_Type(ptr)
declare i32 @PyObject_HasAttrString(ptr, ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyByteArray_AsString(ptr)
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare void @PyBuffer_Release(ptr)
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)

; Whether a view is the array that a row asks for.
define internal i1 @fits(ptr %view, ptr %row, ptr %descriptor) {
entry:
  %p.itemsize = getelementptr %view, ptr %view, i32 0, i32 3
  %itemsize = load i64, ptr %p.itemsize
  %r.itemsize = getelementptr %row, ptr %row, i32 0, i32 2
  %itemsize.want = load i64, ptr %r.itemsize
  %ok.itemsize = icmp eq i64 %itemsize, %itemsize.want
  %p.ndim = getelementptr %view, ptr %view, i32 0, i32 5
  %ndim32 = load i32, ptr %p.ndim
  %ndim = sext i32 %ndim32 to i64
  %r.ndim = getelementptr %row, ptr %row, i32 0, i32 1
  %ndim.want = load i64, ptr %r.ndim
  %ok.ndim = icmp eq i64 %ndim, %ndim.want
  %ok.size = and i1 %ok.itemsize, %ok.ndim
  %data = load ptr, ptr %view
  %address = ptrtoint ptr %data to i64
  %mask = sub i64 %itemsize.want, 1
  %low = and i64 %address, %mask
  %ok.aligned = icmp eq i64 %low, 0
  %ok.base = and i1 %ok.size, %ok.aligned
  %p.format = getelementptr %view, ptr %view, i32 0, i32 6
  %format = load ptr, ptr %p.format
  %named = icmp ne ptr %format, null
  %ok.named = and i1 %ok.base, %named
  br i1 %ok.named, label %type, label %no
type:
  %c0 = load i8, ptr %format
  %p.c1 = getelementptr i8, ptr %format, i64 1
  %known = icmp ne i8 %c0, 0
  br i1 %known, label %letter, label %no
letter:
  %c1 = load i8, ptr %p.c1
  %one = icmp eq i8 %c1, 0
  %c = zext i8 %c0 to i64
  %r.f0 = getelementptr %row, ptr %row, i32 0, i32 3
  %f0 = load i64, ptr %r.f0
  %r.f1 = getelementptr %row, ptr %row, i32 0, i32 4
  %f1 = load i64, ptr %r.f1
  %is.f0 = icmp eq i64 %c, %f0
  %is.f1 = icmp eq i64 %c, %f1
  %is = or i1 %is.f0, %is.f1
  %ok.type = and i1 %one, %is
  br i1 %ok.type, label %sizes, label %no
sizes:
  %p.shape = getelementptr %view, ptr %view, i32 0, i32 7
  %shape = load ptr, ptr %p.shape
  %r.shape = getelementptr %row, ptr %row, i32 0, i32 6
  %offset = load i64, ptr %r.shape
  %want = getelementptr i8, ptr %descriptor, i64 %offset
  br label %dim
dim:
  %d = phi i64 [ 0, %sizes ], [ %d1, %same ]
  %more = icmp slt i64 %d, %ndim
  br i1 %more, label %compare, label %yes
compare:
  %p.n = getelementptr i64, ptr %shape, i64 %d
  %n = load i64, ptr %p.n
  %p.m = getelementptr i64, ptr %want, i64 %d
  %m = load i64, ptr %p.m
  %equal = icmp eq i64 %n, %m
  br i1 %equal, label %same, label %no
same:
  %d1 = add i64 %d, 1
  br label %dim
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether argument i shares a byte with another one.
define internal i1 @overlaps(ptr %args, ptr %rows, i64 %count, i64 %i) {
entry:
  %p.a = getelementptr i64, ptr %args, i64 %i
  %a = load i64, ptr %p.a
  %r.a = getelementptr %row, ptr %rows, i64 %i, i32 5
  %a.bytes = load i64, ptr %r.a
  %a.end = add i64 %a, %a.bytes
  br label %next
next:
  %j = phi i64 [ 0, %entry ], [ %j1, %apart ]
  %more = icmp slt i64 %j, %count
  br i1 %more, label %check, label %no
check:
  %other = icmp ne i64 %i, %j
  %p.b = getelementptr i64, ptr %args, i64 %j
  %b = load i64, ptr %p.b
  %r.b = getelementptr %row, ptr %rows, i64 %j, i32 5
  %b.bytes = load i64, ptr %r.b
  %b.end = add i64 %b, %b.bytes
  %lo = icmp ult i64 %a, %b.end
  %hi = icmp ult i64 %b, %a.end
  %some = icmp ne i64 %b.bytes, 0
  %x0 = and i1 %lo, %hi
  %x1 = and i1 %x0, %some
  %x = and i1 %x1, %other
  br i1 %x, label %yes, label %apart
apart:
  %j1 = add i64 %j, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @enter(ptr %kernel, ptr %args, ptr %workspace, i32 %threads) noinline {
  %page = alloca i64, align 4096
  store volatile i64 0, ptr %page
  notail call void %kernel(ptr %args, ptr %workspace, i32 %threads)
  ret void
}

define ptr @autosched_call(ptr %self, ptr %objects, i64 %given) {
entry:
  %holder = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %descriptor = call ptr @PyByteArray_AsString(ptr %holder)
  %h.count = getelementptr %head, ptr %descriptor, i32 0, i32 1
  %count = load i64, ptr %h.count
  %rows = getelementptr %head, ptr %descriptor, i64 1
  %complete = icmp eq i64 %given, %count
  br i1 %complete, label %room, label %refuse
room:
  %views = alloca %view, i64 %count, align 16
  %h.extra = getelementptr %head, ptr %descriptor, i32 0, i32 6
  %extra = load i64, ptr %h.extra
  %cells = add i64 %count, %extra
  %args = alloca ptr, i64 %cells, align 16
  %sized = icmp ne i64 %extra, 0
  br i1 %sized, label %sizes, label %next
sizes:
  %h.values = getelementptr %head, ptr %descriptor, i32 0, i32 7
  %values.at = load i64, ptr %h.values
  %values = getelementptr i8, ptr %descriptor, i64 %values.at
  br label %size
size:
  %s = phi i64 [ 0, %sizes ], [ %s1, %size ]
  %p.value = getelementptr i64, ptr %values, i64 %s
  %value = load i64, ptr %p.value
  %s.cell = add i64 %count, %s
  %p.cell = getelementptr i64, ptr %args, i64 %s.cell
  store i64 %value, ptr %p.cell
  %s1 = add i64 %s, 1
  %s.more = icmp slt i64 %s1, %extra
  br i1 %s.more, label %size, label %next
next:
  %i = phi i64 [ 0, %room ], [ 0, %size ], [ %i1, %good ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %take, label %apart.next
take:
  %p.object = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %p.object
  %view = getelementptr %view, ptr %views, i64 %i
  %row = getelementptr %row, ptr %rows, i64 %i
  %flags64 = load i64, ptr %row
  %flags = trunc i64 %flags64 to i32
  %type = call ptr @PyObject_Type(ptr %object)
  call void @Py_DecRef(ptr %type)
  %usual = icmp eq ptr %type, inttoptr (i64 @NDARRAY@ to ptr)
  br i1 %usual, label %buffer, label %unusual
unusual:
  %has = call i32 @PyObject_HasAttrString(ptr %type, ptr @of.masked)
  %masked = icmp ne i32 %has, 0
  br i1 %masked, label %clear, label %buffer
buffer:
  %rc = call i32 @PyObject_GetBuffer(ptr %object, ptr %view, i32 %flags)
  %got = icmp eq i32 %rc, 0
  br i1 %got, label %check, label %clear
clear:
  call void @PyErr_Clear()
  br label %release
check:
  %fits = call i1 @fits(ptr %view, ptr %row, ptr %descriptor)
  br i1 %fits, label %good, label %bad
bad:
  %i.bad = add i64 %i, 1
  br label %release
good:
  %data = load ptr, ptr %view
  %p.arg = getelementptr ptr, ptr %args, i64 %i
  store ptr %data, ptr %p.arg
  %i1 = add i64 %i, 1
  br label %next

apart.next:
  %o = phi i64 [ 0, %next ], [ %o1, %apart.ok ]
  %o.more = icmp slt i64 %o, %count
  br i1 %o.more, label %apart, label %workspace
apart:
  %p.written = getelementptr %row, ptr %rows, i64 %o, i32 7
  %written = load i64, ptr %p.written
  %output = icmp ne i64 %written, 0
  br i1 %output, label %apart.check, label %apart.ok
apart.check:
  %overlaps = call i1 @overlaps(ptr %args, ptr %rows, i64 %count, i64 %o)
  br i1 %overlaps, label %release, label %apart.ok
apart.ok:
  %o1 = add i64 %o, 1
  br label %apart.next

workspace:
  %h.threads = getelementptr %head, ptr %descriptor, i32 0, i32 4
  %threads64 = load i64, ptr %h.threads
  %threads = trunc i64 %threads64 to i32
  %kernel = load ptr, ptr %descriptor
  %h.bytes = getelementptr %head, ptr %descriptor, i32 0, i32 3
  %bytes = load i64, ptr %h.bytes
  %state = call ptr @PyEval_SaveThread()
  %needs = icmp ne i64 %bytes, 0
  br i1 %needs, label %lock, label %run.bare
lock:
  %h.lock = getelementptr %head, ptr %descriptor, i32 0, i32 5
  %l = cmpxchg ptr %h.lock, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %l, 1
  br i1 %mine, label %run.own, label %borrow
run.own:
  %h.workspace = getelementptr %head, ptr %descriptor, i32 0, i32 2
  %own = load ptr, ptr %h.workspace
  call void @enter(ptr %kernel, ptr %args, ptr %own, i32 %threads)
  store atomic i64 0, ptr %h.lock release, align 8
  br label %finish
borrow:
  %temporary = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %none = icmp eq ptr %temporary, null
  br i1 %none, label %starved, label %run.borrowed
starved:
  call void @PyEval_RestoreThread(ptr %state)
  br label %release
run.borrowed:
  call void @enter(ptr %kernel, ptr %args, ptr %temporary, i32 %threads)
  call void @free(ptr %temporary)
  br label %finish
run.bare:
  call void @enter(ptr %kernel, ptr %args, ptr null, i32 %threads)
  br label %finish
finish:
  call void @PyEval_RestoreThread(ptr %state)
  br label %release

release:
  %held = phi i64 [ %i, %clear ], [ %i.bad, %bad ],
    [ %count, %apart.check ], [ %count, %starved ], [ %count, %finish ]
  %result = phi ptr [ @_Py_NotImplementedStruct, %clear ], [ @_Py_NotImplementedStruct, %bad ],
    [ @_Py_NotImplementedStruct, %apart.check ], [ @_Py_NotImplementedStruct, %starved ],
    [ @_Py_NoneStruct, %finish ]
  br label %release.next
release.next:
  %k = phi i64 [ 0, %release ], [ %k1, %drop ]
  %k.more = icmp slt i64 %k, %held
  br i1 %k.more, label %drop, label %return
drop:
  %k.view = getelementptr %view, ptr %views, i64 %k
  call void @PyBuffer_Release(ptr %k.view)
  %k1 = add i64 %k, 1
  br label %release.next
return:
  call void @Py_IncRef(ptr %result)
  ret ptr %result
refuse:
  call void @Py_IncRef(ptr @_Py_NotImplementedStruct)
  ret ptr @_Py_NotImplementedStruct
}

define internal i64 @now() {
  %ts = alloca { i64, i64 }
  %rc = call i32 @clock_gettime(i32 1, ptr %ts)
  %s = load i64, ptr %ts
  %q = getelementptr i64, ptr %ts, i64 1
  %ns = load i64, ptr %q
  %a = mul i64 %s, 1000000000
  %b = add i64 %a, %ns
  ret i64 %b
}

; Nanoseconds of `number` calls of a kernel. With `flush`, (start, end) pairs of addresses, ended
; by zeros, each call finds these lines out of all caches, and the flushing is not counted.
define i64 @autosched_time(ptr %kernel, ptr %args, ptr %workspace, i32 %threads, i64 %number,
                           ptr %flush) {
entry:
  %cold = icmp ne ptr %flush, null
  br i1 %cold, label %cold.next, label %warm
warm:
  %w0 = call i64 @now()
  br label %warm.next
warm.next:
  %i = phi i64 [ 0, %warm ], [ %i1, %warm.next ]
  call void @enter(ptr %kernel, ptr %args, ptr %workspace, i32 %threads)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %number
  br i1 %more, label %warm.next, label %warm.done
warm.done:
  %w1 = call i64 @now()
  %w = sub i64 %w1, %w0
  ret i64 %w
cold.next:
  %j = phi i64 [ 0, %entry ], [ %j1, %cold.run ]
  %sum = phi i64 [ 0, %entry ], [ %sum1, %cold.run ]
  br label %range
range:
  %p = phi ptr [ %flush, %cold.next ], [ %p2, %line.done ]
  %start = load i64, ptr %p
  %p.end = getelementptr i64, ptr %p, i64 1
  %end = load i64, ptr %p.end
  %p2 = getelementptr i64, ptr %p, i64 2
  %last = icmp eq i64 %start, 0
  br i1 %last, label %cold.run, label %line
line:
  %a = phi i64 [ %start, %range ], [ %a1, %line.more ]
  %a.more = icmp ult i64 %a, %end
  br i1 %a.more, label %line.more, label %line.done
line.more:
  %a.ptr = inttoptr i64 %a to ptr
  @FLUSH@
  %a1 = add i64 %a, 64
  br label %line
line.done:
  br label %range
cold.run:
  fence seq_cst
  %c0 = call i64 @now()
  call void @enter(ptr %kernel, ptr %args, ptr %workspace, i32 %threads)
  %c1 = call i64 @now()
  %c = sub i64 %c1, %c0
  %sum1 = add i64 %sum, %c
  %j1 = add i64 %j, 1
  %j.more = icmp slt i64 %j1, %number
  br i1 %j.more, label %cold.next, label %cold.done
cold.done:
  ret i64 %sum1
}
@DECLARE@
"""

_FLUSH = {
    "x86_64": (
        "call void @llvm.x86.sse2.clflush(ptr %a.ptr)",
        "declare void @llvm.x86.sse2.clflush(ptr)",
    ),
    "aarch64": ('call void asm sideeffect "dc civac, $0", "r,~{memory}"(ptr %a.ptr)', ""),
}


def wrapper_ir(arch: str, ndarray: int) -> str:
    """Module with `autosched_call` and `autosched_time`, for "x86_64" or "aarch64". `ndarray`: the
    address of NumPy's type of this process."""
    flush, declare = _FLUSH[arch]
    found = _IR.replace("@FLUSH@", flush).replace("@DECLARE@", declare)
    return found.replace("@MASKED@", MASKED).replace("@NDARRAY@", str(ndarray))

"""How a thread rounds and whether it has denormals, as LLVM IR: the control register of floats.

Where denormals are flushed, a number below the least normal one (1.2e-38 of float32) is read as 0
and becomes 0: some processors take a hundred times as long for an operation of such numbers.
"""

from __future__ import annotations

# The control register as an i32 without what it notes of past operations, and how to set it; the
# bits that flush denormals, of results and, where they are apart, of operands.
_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal i32 @float_mode() {
  %p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %all = load i32, ptr %p
  %mode = and i32 %all, -64
  ret i32 %mode
}

define internal void @set_float_mode(i32 %mode) {
  %p = alloca i32
  store i32 %mode, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}
"""
_ARM = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal i32 @float_mode() {
  %all = call i64 @llvm.aarch64.get.fpcr()
  %mode = trunc i64 %all to i32
  ret i32 %mode
}

define internal void @set_float_mode(i32 %mode) {
  %all = zext i32 %mode to i64
  call void @llvm.aarch64.set.fpcr(i64 %all)
  ret void
}
"""
_FLUSHED = {"x86_64": (_X86, 0x8040), "aarch64": (_ARM, 1 << 24)}


def float_mode_ir(arch: str) -> str:
    """`i32 float_mode()` and `void set_float_mode(i32)`, of the calling thread."""
    return _FLUSHED[arch][0]


def flushed_ir(arch: str, name: str, inner: str, params: str) -> str:
    """A function `void name(params)` that calls `inner` with the same arguments, denormals flushed;
    the functions of `float_mode_ir` must be in the module. Threads of the pool that `inner` shares
    its loops with do as their caller does."""
    arguments = ", ".join(p.strip() for p in params.split(","))
    return f"""
define void @{name}({arguments}) {{
  %mode = call i32 @float_mode()
  %flushed = or i32 %mode, {_FLUSHED[arch][1]}
  call void @set_float_mode(i32 %flushed)
  call void @{inner}({arguments})
  call void @set_float_mode(i32 %mode)
  ret void
}}
"""

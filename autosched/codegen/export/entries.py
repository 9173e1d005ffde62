"""The functions that C programs call: their names, and the LLVM IR between them and the kernels.

    int NAME(const float *A, ..., float *C, int64_t n, ..., void *workspace, int threads)

with the symbolic sizes after the arrays, checks what C cannot (null and misaligned pointers, sizes
and the number of threads out of range), allocates scratch memory if none is given, and calls the
kernel. It returns 0, EINVAL, ENOMEM, or EDOM where the kernel stopped.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.c_names import HELPERS, MACRO
from autosched.codegen.formula import Extent, fold
from autosched.errors import ArgumentError
from autosched.tir import dtypes
from autosched.tir.size import MAX_SIZE

ALIGNMENT = 64
EINVAL, ENOMEM, EDOM = 22, 12, 33

_WORDS = """
    alignas alignof and auto bool break case catch char class const constexpr continue default
    delete do double else enum explicit export extern false float for friend goto if inline int
    long main mutable namespace new not nullptr operator or private protected public register
    restrict return short signed sizeof static static_assert struct switch template this
    thread_local throw true try typedef typeid typename typeof union unsigned using virtual void
    volatile wchar_t while xor NULL aligned_alloc free memcpy memmove memset
    and_eq asm bitand bitor compl not_eq or_eq xor_eq char8_t char16_t char32_t concept
    const_cast consteval constinit co_await co_return co_yield decltype dynamic_cast noexcept
    reinterpret_cast requires static_cast typeid typeof_unqual
    linux unix i386 I EOF BUFSIZ CHAR_BIT NAN INFINITY HUGE_VAL RAND_MAX EXIT_SUCCESS EXIT_FAILURE
    assert errno complex imaginary offsetof setjmp stdin stdout stderr va_arg va_end va_list
    va_start size_t ssize_t ptrdiff_t max_align_t nullptr_t intptr_t uintptr_t intmax_t uintmax_t
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    FILE fpos_t time_t clock_t off_t div_t ldiv_t lldiv_t float_t double_t
    fpclassify iscanonical iseqsig isfinite isgreater isgreaterequal isinf isless islessequal
    islessgreater isnan isnormal issignaling issubnormal isunordered iszero signbit
"""
_RESERVED = HELPERS | frozenset(_WORDS.split())
"""Words of C and C++, macros and types of the headers that programs include, and the functions of
the C library that the object itself calls."""
_MACRO = re.compile(r"_[A-Z_]\w*|E[A-Z0-9]+|SIG[A-Z0-9]+|U?INT\w*_(MIN|MAX|C)")
"""Names of the C implementation, and forms of macros: error and signal numbers, limits."""


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    return tuple(ctypes.CDLL(name) for name in ("libc.so.6", "libm.so.6"))


def _in_c(name: str) -> bool:
    """Whether `name` means something to C already, or the C library defines it: a second function
    of that name would be called in its stead."""
    return (
        name in _RESERVED
        or _MACRO.fullmatch(name) is not None
        or MACRO.fullmatch(name) is not None
        or any(hasattr(library, name) for library in _libraries())
    )


@dataclass(frozen=True)
class Source:
    """A built function to export: its LLVM IR, which defines `info.entry`, and its name in C."""

    symbol: str
    ir: str
    info: KernelInfo


def size_names(info: KernelInfo) -> dict[str, str]:
    """The names of the symbolic sizes in C, which no array of the function takes."""
    taken = {"workspace", "threads", *_RESERVED}
    return {s.name: _c_name(s.name, taken) for s in info.sizes}


@dataclass(frozen=True)
class Argument:
    """A parameter and its name in C, unique in its function."""

    name: str
    param: Param


def symbol(name: str, stem: str, prefix: str) -> str:
    """The name in C of the function `name`: as it is, but `main` is called by the file's stem.

    Raises ArgumentError for what C cannot call.
    """
    found = prefix + (stem if name == "main" else name)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", found) or _in_c(found):
        raise ArgumentError(
            f"function {name} would be {found!r} in C, which cannot be a function's name there "
            "(it is no identifier, a word or type of C, or a name of the C library); "
            "give a prefix: export(path, prefix='my_'), or rename the function"
        )
    if found.startswith(("autosched_", "pthread_")):
        raise ArgumentError(f"{found!r} is a name of the runtime; rename function {name}")
    return found


def arguments(info: KernelInfo) -> tuple[Argument, ...]:
    """The parameters with names that C can have."""
    taken = {"workspace", "threads", *_RESERVED, *size_names(info).values()}
    return tuple(Argument(_c_name(param.name, taken), param) for param in info.params)


def _c_name(name: str, taken: set[str]) -> str:
    """`name` as C can have it, not yet among `taken`, to which it is added."""
    base = re.sub(r"[^A-Za-z0-9_]", "_", name)
    base = base if re.match(r"[A-Za-z]", base) else f"p{base}"
    found, n = base, 0
    while found in taken or _MACRO.fullmatch(found):
        n += 1
        found = f"{base}_{n}"
    taken.add(found)
    return found


_STOPPED = [
    "  %status = load i64, ptr %space, align 8",
    "  %stopped = icmp ne i64 %status, 0",
    f"  %code = select i1 %stopped, i32 {EDOM}, i32 0",
]


def entry_ir(source: Source, default_threads: int, max_threads: int) -> str:
    """LLVM IR of the function, for the end of the kernel's own module."""
    info = source.info
    count, cells = len(info.params), len(info.params) + len(info.sizes)
    params = "".join(f"ptr %p{n}, " for n in range(count))
    params += "".join(f"i64 %n{n}, " for n in range(len(info.sizes)))
    lines = [
        f"define i32 @{source.symbol}({params}ptr %workspace, i32 %given) {{",
        "entry:",
        f"  %args = alloca [{max(cells, 1)} x ptr], align 8",
        f"  %bad0 = icmp ugt i32 %given, {max_threads}",
    ]
    bad = _Chain(lines, "bad")
    for n, param in enumerate(info.params):
        lines.append(f"  %null{n} = icmp eq ptr %p{n}, null")
        bad.add(f"%null{n}")
        bad.add(_misaligned(lines, f"p{n}", dtypes.itemsize(param.dtype)))
        lines.append(f"  %at{n} = getelementptr ptr, ptr %args, i64 {n}")
        lines.append(f"  store ptr %p{n}, ptr %at{n}, align 8")
    for n in range(len(info.sizes)):
        lines += [
            f"  %less{n} = sub i64 %n{n}, 1",
            f"  %range{n} = icmp uge i64 %less{n}, {MAX_SIZE}",
            f"  %cell{n} = getelementptr i64, ptr %args, i64 {count + n}",
            f"  store i64 %n{n}, ptr %cell{n}, align 8",
        ]
        bad.add(f"%range{n}")
    needs_space = info.needs_workspace
    if needs_space:
        bad.add(_misaligned(lines, "workspace", ALIGNMENT))
    lines += [f"  br i1 {bad.last}, label %refuse, label %start", "start:"]
    if info.parallel:
        lines.append("  %unset = icmp eq i32 %given, 0")
        lines.append(f"  %threads = select i1 %unset, i32 {default_threads}, i32 %given")
    else:
        lines.append("  %threads = add i32 0, 1")
    call = f"  call void @{info.entry}(ptr %args, ptr {{}}, i32 %threads)"
    if needs_space:
        lines += [
            "  %none = icmp eq ptr %workspace, null",
            "  br i1 %none, label %allocate, label %run",
            "allocate:",
            "  %wide = zext i32 %threads to i64",
            f"  %each = mul i64 %wide, {_computed(lines, info, info.thread_bytes)}",
            f"  %shared = add i64 {_computed(lines, info, info.workspace_bytes)}, {ALIGNMENT - 1}",
            "  %all = add i64 %each, %shared",
            f"  %size = and i64 %all, -{ALIGNMENT}",
            f"  %new = call ptr @aligned_alloc(i64 {ALIGNMENT}, i64 %size)",
            "  %failed = icmp eq ptr %new, null",
            "  br i1 %failed, label %full, label %run",
            "run:",
            "  %space = phi ptr [ %workspace, %start ], [ %new, %allocate ]",
            "  %mine = phi ptr [ null, %start ], [ %new, %allocate ]",
            call.format("%space"),
            *(_STOPPED if info.messages else ["  %code = add i32 0, 0"]),
            "  call void @free(ptr %mine)",
            "  ret i32 %code",
            "full:",
            f"  ret i32 {ENOMEM}",
        ]
    else:
        lines += [call.format("null"), "  ret i32 0"]
    lines += ["refuse:", f"  ret i32 {EINVAL}", "}"]
    if needs_space:
        lines += ["declare ptr @aligned_alloc(i64, i64)", "declare void @free(ptr)"]
    return "\n".join(lines) + "\n"


def _computed(lines: list[str], info: KernelInfo, formula: Extent) -> str:
    """A formula's value: a number, or the name that the added lines give it."""
    places = {s.name: f"%n{n}" for n, s in enumerate(info.sizes)}
    words = {"+": "add", "-": "sub", "*": "mul", "//": "sdiv"}

    def combine(op: str, a: str, b: str) -> str:
        name = f"%f{len(lines)}"
        lines.append(f"  {name} = {words[op]} i64 {a}, {b}")
        return name

    return fold(formula, places.__getitem__, str, combine)


class _Chain:
    """Conditions joined by `or`, each in a line of its own; `last` is the value of all so far."""

    def __init__(self, lines: list[str], name: str) -> None:
        self.lines, self.name, self.count = lines, name, 0

    @property
    def last(self) -> str:
        return f"%{self.name}{self.count}"

    def add(self, value: str | None) -> None:
        if value is not None:
            before = self.last
            self.count += 1
            self.lines.append(f"  {self.last} = or i1 {before}, {value}")


def _misaligned(lines: list[str], pointer: str, size: int) -> str | None:
    """Whether a pointer is no multiple of `size` bytes; None for bytes, which always are."""
    if size == 1:
        return None
    lines += [
        f"  %{pointer}.int = ptrtoint ptr %{pointer} to i64",
        f"  %{pointer}.low = and i64 %{pointer}.int, {size - 1}",
        f"  %{pointer}.off = icmp ne i64 %{pointer}.low, 0",
    ]
    return f"%{pointer}.off"


def unique(symbols: Iterable[str]) -> None:
    """Raises ArgumentError if two functions would have one name in C."""
    seen: set[str] = set()
    for name in symbols:
        if name in seen:
            raise ArgumentError(f"two functions would be {name!r} in C; rename one of them")
        seen.add(name)

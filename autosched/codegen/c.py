"""Plain C: functions of the loop IR as portable source, and object code from it by `cc`.

The text is that of `c_source` with one thread: loops are loops, intermediates lie in a workspace
that the caller gives. It stands on the C library alone.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autosched.codegen.c_source import c_source
from autosched.codegen.gpu.dialect import Dialect
from autosched.codegen.gpu.kernel import Kernel, allocated_in, buffer_bytes, without_allocs
from autosched.codegen.gpu.reduce import decompose
from autosched.errors import BuildError, CodegenError
from autosched.lowering.lower import lower
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import refuse_opaque

ALIGNMENT = 64
COMPILER = "cc"
FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off",
    "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-Wall", "-Werror=implicit",
)  # fmt: skip
"""Of every compilation: the object links into processes, libraries and programs."""
SECONDS = 120
"""That a compilation may take."""

_PROLOGUE = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
"""
_HELPERS = """\
static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static inline float multiply_addf(float a, float b, float c) { return a * b + c; }
static inline double multiply_add(double a, double b, double c) { return a * b + c; }
static inline float inverse_sqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double inverse_sqrt(double x) { return 1.0 / sqrt(x); }
"""
_HALF = """\
static inline float f16_load(uint16_t bits) {
  int e = bits >> 10 & 31, m = bits & 1023;
  float size = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(m + 1024, e - 25) : ldexpf(m, -24);
  return bits >> 15 ? -size : size;
}
static inline uint16_t f16_store(float value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  float size = fabsf(value);
  if (value != value) return sign | 0x7e00;
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size == 0) return sign;
  int e = 0;
  frexpf(size, &e);
  if (e < -13) e = -13;
  int m = (int)nearbyintf(ldexpf(size, 11 - e));
  return sign | (uint16_t)((e + 13) * 1024 + m);
}
static inline float f16_round(float value) { return f16_load(f16_store(value)); }
"""


_NAMES = {"abs": "fabs", "fma": "multiply_add", "round": "rint", "rsqrt": "inverse_sqrt"}
"""Functions that C calls otherwise. Its fma is a call where the processor may have none."""


def _math(op: str, dtype: str) -> str:
    name = _NAMES.get(op, op)
    return name if dtype == "float64" else f"{name}f"


def _refused(op: str) -> str:
    raise CodegenError(f"plain C has no {op}: it is for one thread")


_MATH = """
acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf exp exp2 exp10 expm1 fabs floor
fmod hypot log log10 log1p log2 nextafter pow rint sin sinh sqrt tan tanh trunc
"""
_TYPES = (
    "bool size_t nullptr constexpr thread_local static_assert alignas alignof typeof typeof_unqual"
)
_RESERVED = frozenset(
    [
        *_TYPES.split(),
        *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *(f"{name}{suffix}" for name in _MATH.split() for suffix in ("", "f")),
        *re.findall(r"\b([a-z]\w*)\(", _HELPERS + _HALF),
    ]
)
"""What the text calls, and words of C from C11 to C23."""


C = Dialect(
    name="C",
    prologue="",
    helper="static inline",
    values={
        "float16": "float",
        "float32": "float",
        "float64": "double",
        "bfloat16": "uint16_t",
        "int8": "int8_t",
        "int16": "int16_t",
        "int32": "int32_t",
        "int64": "int64_t",
        "uint8": "uint8_t",
        "uint16": "uint16_t",
        "uint32": "uint32_t",
        "uint64": "uint64_t",
        "bool": "bool",
    },
    stored={"float16": "uint16_t", "bool": "uint8_t"},
    indices={},
    shared="static",
    align="",
    head=lambda name, threads, block: f"void {name}",
    pointer=lambda kind, name, memory, constant: (
        f"{'const ' if constant else ''}{kind} *restrict {name}"
    ),
    vector_pointer=lambda kind, memory: f"{kind} *",
    barrier=lambda memories: _refused("barrier"),
    math=_math,
    unsigned={"int32": "uint32_t", "int64": "uint64_t"},
    infinity=lambda dtype: "INFINITY" if dtype != "float64" else "((double)INFINITY)",
    nan=lambda dtype: "NAN" if dtype != "float64" else "((double)NAN)",
    half=_HALF,
    bits=("bits_of", "float_of"),
    lanes=lambda kind: (),
    vector_name=lambda kind: kind,
    ticket="",
    fence="",
    reserved=_RESERVED,
)
"""Vectors are left to the compiler."""


@dataclass(frozen=True)
class Source:
    """A function in C, `void name(parameters…, void *workspace)`; `helpers` are definitions that
    stand before it, once in a file, `workspace` how many bytes it needs, on a multiple of 64."""

    name: str
    helpers: tuple[str, ...]
    text: str
    workspace: int


def source_of(func: PrimFunc) -> Source:
    """A function of the loop IR as C, its loops in the order in which they stand.

    Raises CodegenError for symbolic sizes and what has no form in C.
    """
    if func.sizes:
        raise CodegenError(f"{func.name} has symbolic sizes; C source is made for fixed ones")
    refuse_opaque(func, "C source")
    low = lower(func)
    inner = [*low.allocs, *(b for node in low.body for b in allocated_in(node))]
    offsets, size = [], 0
    for b in inner:
        offsets.append(size)
        size += -(-buffer_bytes(b) // ALIGNMENT) * ALIGNMENT
    params = (*low.params, *inner)
    body = tuple(map(without_allocs, low.body))
    name = f"{func.name}_body"
    text = c_source([decompose(Kernel(name, body, {}, params))], C, 1)
    at = text.index(f"void {name}(")
    helpers = tuple(h for h in re.split(r"(?m)^(?=static inline )", text[:at].strip()) if h)
    kinds = [C.stored_type(b.dtype) for b in params]
    heads = [f"{k} *p{n}" for n, k in enumerate(kinds[: len(low.params)])]
    given = [f"p{n}" for n in range(len(low.params))]
    given += [
        f"({kinds[n]} *)((char *)workspace + {at})" for n, at in enumerate(offsets, len(low.params))
    ]
    outer = (
        f"void {func.name}({', '.join([*heads, 'void *workspace'])}) {{\n"
        f"  (void)workspace;\n  {name}({', '.join(given)});\n}}\n"
    )
    return Source(func.name, helpers, f"static {text[at:]}{outer}", size)


def prologue() -> str:
    """What stands first in a file of sources."""
    return f"{_PROLOGUE}{_HELPERS}"


def compile_c(text: str, output: Path, flags: Sequence[str] = ()) -> None:
    """Compile C source into the object file `output`. Raises BuildError with the compiler's
    messages, or that there is no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "source.c"
        file.write_text(text, encoding="utf-8")
        _run([COMPILER, *FLAGS, *flags, "-c", str(file), "-o", str(output)], folder)


def link_shared(objects: Sequence[Path], output: Path) -> None:
    """Link object files into a shared library. Raises BuildError."""
    _run([COMPILER, "-shared", *map(str, objects), "-o", str(output), "-lm"], str(output.parent))


def merge_objects(objects: Sequence[Path], output: Path) -> None:
    """Put object files together into one. Raises BuildError."""
    _run([COMPILER, "-nostdlib", "-r", *map(str, objects), "-o", str(output)], str(output.parent))


def _run(command: Sequence[str], folder: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except FileNotFoundError as e:
        raise BuildError(
            f"there is no C compiler: {command[0]} is not installed; install gcc or clang"
        ) from e
    except subprocess.TimeoutExpired as e:
        raise BuildError(f"{command[0]} did not end within {SECONDS} seconds") from e
    if done.returncode:
        log = done.stderr.replace(f"{folder}/", "").strip()
        raise BuildError(f"{command[0]} refuses the source: {log[:2000]}")

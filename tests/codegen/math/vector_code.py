"""Vector functions of the math library as compiled code, and errors in units of the last place."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.llvm.assemble import compile_ir
from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.math.core import emit
from autosched.codegen.llvm.types import literal, splat
from autosched.runtime.link import link
from autosched.target import Target

Array = npt.NDArray[Any]
HOST = Target("llvm")
LLVM = {"float16": "half", "float32": "float", "float64": "double", "int8": "i8", "int32": "i32"}
BITS = {"float16": 10, "float32": 23, "float64": 52}
SMALLEST = {"float16": -24, "float32": -149, "float64": -1074}


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.ravel()]).reshape(x.shape)


def _sigmoid(x: Array) -> Array:
    s = np.exp(-np.abs(x))
    return np.where(x < 0, s, 1) / (1 + s)


REFERENCE: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "pow": np.power,
}
EXACT: dict[str, Callable[..., Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "abs": np.abs,
}
POLYNOMIAL = ("exp", "log", "tanh", "erf", "sigmoid", "sin", "cos")
POLYNOMIAL_64 = ("exp", "log", "tanh", "sigmoid", "sin", "cos")

# Vectors of the host, of AVX2, of twice the register, odd ones and scalars.
FORMS = [("llvm", 16), ("llvm", 32), ("llvm", 8), ("llvm", 5), ("llvm", 1)]
if HOST.arch == "x86_64" and HOST.vector_bytes >= 32:
    FORMS += [("llvm -mcpu=x86-64-v3", 8), ("llvm -mcpu=x86-64-v3", 1)]


def source(
    op: str, dtype: str, lanes: int, target: Target, arity: int, last: float | None = None
) -> str:
    """A module with f(inputs..., output, n), n a multiple of lanes; `last`, a constant, goes after
    the inputs."""
    declarations: dict[str, str] = {}
    b = Builder(declarations)
    scalar = LLVM[dtype]
    vector = f"<{lanes} x {scalar}>" if lanes > 1 else scalar
    names = [b.name(f"%x{k}", 0) for k in range(arity)]
    if last is not None:
        names.append(splat(literal(last, dtype), dtype, lanes))
    result = emit(b, op, names, dtype, lanes, target)
    loads = "\n".join(
        f"  %p{k} = getelementptr {scalar}, ptr %a{k}, i64 %i\n"
        f"  %x{k} = load {vector}, ptr %p{k}, align 1"
        for k in range(arity)
    )
    return (
        "\n".join(declarations.values())
        + f"""
define void @f({", ".join(f"ptr %a{k}" for k in range(arity))}, ptr %o, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}
{b.text()}
  %q = getelementptr {scalar}, ptr %o, i64 %i
  store {vector} {result}, ptr %q, align 1
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    )


@cache
def compiled(
    op: str, dtype: str, lanes: int, target: str, arity: int = 1, last: float | None = None
) -> Callable[..., Array]:
    """`op` on arrays of any length."""
    text = source(op, dtype, lanes, Target(target), arity, last)
    library = link(compile_ir(text, Target(target)), ("f",))
    types = [ctypes.c_void_p] * (arity + 1)
    native = ctypes.CFUNCTYPE(None, *types, ctypes.c_int64)(library["f"])

    def run(*arrays: Array) -> Array:
        size = arrays[0].size
        padding = -size % lanes
        padded = [np.append(a, np.ones(padding, a.dtype)).astype(dtype) for a in arrays]
        out = np.empty_like(padded[0])
        native(*(a.ctypes.data for a in padded), out.ctypes.data, out.size)
        assert library["f"]  # keeps the code alive
        return out[:size]

    return run


def ulps(found: Array, exact: Array, dtype: str) -> Array:
    """|found - exact| in units in the last place of `exact`; 0 where both are the same non-number.

    A result beyond the largest finite number may be infinite.
    """
    exact = exact.astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.where(exact == 0, 1, np.abs(exact))))
        ulp = 2.0 ** np.maximum(exponent - BITS[dtype], SMALLEST[dtype])
        error = np.abs(found.astype(np.float64) - exact) / ulp
        limit = float(np.finfo(dtype).max) * (1 + 2.0 ** -(BITS[dtype] + 2))
        over = (np.abs(exact) >= limit) & np.isinf(found) & (np.sign(found) == np.sign(exact))
    same = (np.isnan(found) & np.isnan(exact)) | over
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error))


def sample(count: int, seed: int) -> Array:
    """Random float32 bit patterns (every exponent, both signs), and as many of ordinary size."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 1 << 32, count // 2, np.uint32).view(np.float32)
    ordinary = (rng.standard_normal(count - count // 2) * 20).astype(np.float32)
    return np.concatenate([patterns, ordinary])

"""Conversions between types of numbers."""

from __future__ import annotations

import numpy as np

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.types import Value, literal, splat, suffix, type_of
from autosched.tir import dtypes


def cast(b: Builder, a: Value, dtype: str, within: bool = False) -> Value:
    """`a` as another type: floats to integers saturate, NaN becomes 0. `within`: a float is none
    that an integer of the type does not hold, but for NaN."""
    source, lanes = a.dtype, a.lanes
    if source == dtype:
        return a
    if source == "bfloat16":
        return _from_bfloat16(b, a)
    if dtype == "bfloat16":
        return _to_bfloat16(b, a)
    to = type_of(dtype, lanes)
    if not a.ref.startswith(("%", "<")) and lanes == 1:
        folded = _cast_literal(a, dtype)
        if folded is not None:
            return folded

    def done(word: str) -> Value:
        return Value(b.op(f"{word} {a.type} {a.ref} to {to}"), dtype, lanes)

    from_float, to_float = dtypes.is_float(source), dtypes.is_float(dtype)
    unsigned = source in ("bool", *dtypes.UNSIGNED)
    if dtype == "bool":
        if from_float:
            return Value(b.op(f"fcmp une {a.type} {a.ref}, zeroinitializer"), dtype, lanes)
        return Value(b.op(f"icmp ne {a.type} {a.ref}, zeroinitializer"), dtype, lanes)
    if source == "float64" and dtype == "float16":
        return cast(b, _odd_float32(b, a), dtype)
    if from_float and to_float:
        return done("fpext" if dtypes.itemsize(dtype) > dtypes.itemsize(source) else "fptrunc")
    if to_float:
        return done("uitofp" if unsigned else "sitofp")
    if from_float:
        return _to_integer(b, a, dtype, within)
    bits_from = 1 if source == "bool" else 8 * dtypes.itemsize(source)
    bits_to = 8 * dtypes.itemsize(dtype)
    if bits_from == bits_to:
        return Value(a.ref, dtype, lanes)
    if bits_to < bits_from:
        return done("trunc")
    return done("zext" if unsigned else "sext")


def _from_bfloat16(b: Builder, a: Value) -> Value:
    """bfloat16 to float32: the upper half."""
    single, bits = type_of("float32", a.lanes), type_of("int32", a.lanes)
    wide = b.op(f"zext {a.type} {a.ref} to {bits}")
    wide = b.op(f"shl {bits} {wide}, {splat('16', 'int32', a.lanes)}")
    return Value(b.op(f"bitcast {bits} {wide} to {single}"), "float32", a.lanes)


def _to_bfloat16(b: Builder, a: Value) -> Value:
    """float32 to bfloat16: rounded to nearest, ties to even; NaN made quiet."""
    bits, o = type_of("int32", a.lanes), b.op

    def k(n: int) -> str:
        return splat(str(n), "int32", a.lanes)

    pattern = o(f"bitcast {a.type} {a.ref} to {bits}")
    high = o(f"lshr {bits} {pattern}, {k(16)}")
    bias = o(f"add {bits} {o(f'and {bits} {high}, {k(1)}')}, {k(0x7FFF)}")
    rounded = o(f"lshr {bits} {o(f'add {bits} {pattern}, {bias}')}, {k(16)}")
    quiet = o(f"or {bits} {high}, {k(0x40)}")
    nan = o(f"fcmp uno {a.type} {a.ref}, {a.ref}")
    c = "i1" if a.lanes == 1 else f"<{a.lanes} x i1>"
    chosen = o(f"select {c} {nan}, {bits} {quiet}, {bits} {rounded}")
    narrow = o(f"trunc {bits} {chosen} to {type_of('bfloat16', a.lanes)}")
    return Value(narrow, "bfloat16", a.lanes)


def _odd_float32(b: Builder, a: Value) -> Value:
    """float64 to float32, rounded to the neighbour with an odd significand where inexact, so
    that rounding the result again to float16 gives what rounding once would. (Few processors
    convert in one step, and the function that does is not in every C runtime.)"""
    t, single, bits = a.type, type_of("float32", a.lanes), type_of("int32", a.lanes)
    c = "i1" if a.lanes == 1 else f"<{a.lanes} x i1>"
    o = b.op

    def k(n: int) -> str:
        return splat(str(n), "int32", a.lanes)

    near = o(f"fptrunc {t} {a.ref} to {single}")
    back = o(f"fpext {single} {near} to {t}")
    name = f"llvm.fabs.{suffix('float64', a.lanes)}"
    b.declare(name, f"{t} @{name}({t})")
    sizes = [o(f"call {t} @{name}({t} {x})") for x in (back, a.ref)]
    away = o(f"fcmp ogt {t} {sizes[0]}, {sizes[1]}")
    inexact = o(f"fcmp one {t} {back}, {a.ref}")
    pattern = o(f"bitcast {single} {near} to {bits}")
    cut = o(f"select {c} {away}, {bits} {o(f'sub {bits} {pattern}, {k(1)}')}, {bits} {pattern}")
    odd = o(f"select {c} {inexact}, {bits} {o(f'or {bits} {cut}, {k(1)}')}, {bits} {cut}")
    return Value(o(f"bitcast {bits} {odd} to {single}"), "float32", a.lanes)


def _to_integer(b: Builder, a: Value, dtype: str, within: bool) -> Value:
    """A float to an integer. Of vectors in steps that processors have for all lanes at once: LLVM
    takes its own operation, `fptosi.sat`, lane by lane."""
    if a.dtype == "float16":  # also of one: with AVX512-FP16 LLVM's operation makes NaN the least
        return _to_integer(b, cast(b, a, "float32"), dtype, within)
    source, lanes, to = a.dtype, a.lanes, type_of(dtype, a.lanes)
    word = "fptoui" if dtype in dtypes.UNSIGNED else "fptosi"
    if lanes == 1:
        name = f"llvm.{word}.sat.{suffix(dtype, lanes)}.{suffix(source, lanes)}"
        b.declare(name, f"{to} @{name}({a.type})")
        return Value(b.op(f"call {to} @{name}({a.type} {a.ref})"), dtype, lanes)
    o, t, c = b.op, a.type, f"<{lanes} x i1>"
    nan = o(f"fcmp uno {t} {a.ref}, {a.ref}")
    if within:
        made = o(f"{word} {t} {a.ref} to {to}")
        return Value(o(f"select {c} {nan}, {to} zeroinitializer, {to} {made}"), dtype, lanes)
    least, most = int(dtypes.minimum(dtype)), int(dtypes.maximum(dtype))
    highest = _largest_below(most, source)
    low, high = (splat(literal(x, source), source, lanes) for x in (float(least), highest))
    x = o(f"select {c} {o(f'fcmp ogt {t} {a.ref}, {low}')}, {t} {a.ref}, {t} {low}")
    x = o(f"select {c} {o(f'fcmp olt {t} {x}, {high}')}, {t} {x}, {t} {high}")
    made = o(f"{word} {t} {x} to {to}")
    if highest < most:
        top = splat(str(most), dtype, lanes)
        made = o(f"select {c} {o(f'fcmp ogt {t} {a.ref}, {high}')}, {to} {top}, {to} {made}")
    return Value(o(f"select {c} {nan}, {to} zeroinitializer, {to} {made}"), dtype, lanes)


def _largest_below(most: int, dtype: str) -> float:
    """The largest number of a type of floats that is no more than `most`."""
    kind = np.dtype(dtype).type
    near = kind(most)
    return float(near if int(near) <= most else np.nextafter(near, kind(0)))


def _cast_literal(a: Value, dtype: str) -> Value | None:
    if dtypes.is_int(a.dtype) and dtypes.is_float(dtype):
        return Value(literal(float(int(a.ref)), dtype), dtype)
    return None

"""Sine and cosine on vectors: a function of its own, polynomials behind one branch.

The polynomials hold up to a `Format.trigonometric_limit`. A vector with a lane beyond it, which no
ordinary program has, calls libm, and so the code is a function with two paths; what a lane gives
does not depend on its neighbours.
"""

from __future__ import annotations

import math

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.math.values import Values


def emit(v: Values, op: str, x: str) -> str:
    """`op`, sin or cos, of `x`."""
    name = f"autosched.{op}.{v.lanes}x{v.scalar}"
    if name not in v.b.declarations:
        # LLVM's inliner runs in "full" only; in "search" the call costs a few cycles a vector.
        v.b.declarations[name] = "\n".join([_far(v, op, name), _near(v, op, name)])
    return v.b.op(f"call {v.type} @{name}({v.type} {x})")


def _near(outer: Values, op: str, name: str) -> str:
    """The function: polynomials, and a branch to `_far`."""
    v = _inside(outer, "%x")
    value = _polynomials(v, op, "%x")
    beyond = any_far = _beyond(v, "%x")
    if v.lanes > 1:
        reduce = f"llvm.vector.reduce.or.v{v.lanes}i1"
        v.b.declare(reduce, f"i1 @{reduce}({v.bools})")
        any_far = v.b.op(f"call i1 @{reduce}({v.bools} {beyond})")
    return f"""\
define internal {v.type} @{name}({v.type} %x) nounwind alwaysinline {{
{v.b.text()}
  br i1 {any_far}, label %far, label %near
far:
  %slow = call {v.type} @{name}.far({v.type} %x, {v.type} {value})
  ret {v.type} %slow
near:
  ret {v.type} {value}
}}"""


def _far(outer: Values, op: str, name: str) -> str:
    """The function that takes libm's value for the lanes beyond the limit."""
    v = _inside(outer, "%x", "%near")
    value = v.choose(_beyond(v, "%x"), v.libm(op, ["%x"]), "%near")
    return f"""\
define internal {v.type} @{name}.far({v.type} %x, {v.type} %near) nounwind noinline cold {{
{v.b.text()}
  ret {v.type} {value}
}}"""


def _inside(outer: Values, *arguments: str) -> Values:
    """What writes a function of these arguments."""
    b = Builder(outer.b.declarations)
    for name in arguments:
        b.name(name)
    return Values(b, outer.scalar, outer.lanes, outer.target)


def _beyond(v: Values, x: str) -> str:
    size = v.intrinsic("fabs", x)
    return v.b.op(f"fcmp ogt {v.type} {size}, {v.const(v.format.trigonometric_limit)}")


def _polynomials(v: Values, op: str, x: str) -> str:
    """By |x| = n pi/2 + r, |r| just over pi/4 at most (Cody and Waite, with fused multiply-adds).

    pi/2 is the sum of three numbers. The product of n and the first is subtracted without error,
    both sides being multiples of one small power of two. What roundings lose after that is kept,
    and added to the sine, which may be as small as r, below its leading term. To be known exactly
    it needs the second product rounded before the sum: fused, r - part may have too many bits.
    """
    size = v.intrinsic("fabs", x)
    magic = v.const(v.format.magic)
    shifted = v.fma(size, v.const(2 / math.pi), magic)
    n = v.b.op(f"fneg {v.type} {v.sub(shifted, magic)}")
    first, second, third = (v.const(part) for part in v.format.half_pi)
    part = v.fma(n, first, size)
    r = v.add(part, v.mul(n, second))
    lost = v.fma(n, third, v.fma(n, second, v.sub(part, r)))
    z = v.mul(r, r)
    sine = v.add(r, v.fma(v.mul(z, r), v.horner(z, v.format.sin), lost))
    cosine = v.horner(z, v.format.cos)
    quadrant = v.bits(shifted)
    if op == "cos":
        quadrant = v.int_op("add", quadrant, v.int_const(1))
    bits = v.format.bits
    last = v.int_op("shl", quadrant, v.int_const(bits - 1))
    odd = v.b.op(f"icmp slt {v.ints} {last}, {v.int_const(0)}")
    sign = v.int_op("shl", quadrant, v.int_const(bits - 2))
    if op == "sin":
        sign = v.int_op("xor", sign, v.bits(x))
    sign = v.int_op("and", sign, v.int_const(-(1 << (bits - 1))))
    return v.float_of(v.int_op("xor", v.bits(v.choose(odd, cosine, sine)), sign))

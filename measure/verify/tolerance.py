"""How far a result may be from the reference, read off the untransformed program.

For floats of unit roundoff `eps` and reduction length K (the sum over blocks of the number of terms
that one element combines; maxima and minima do not round), element i may differ by

    rtol * (|reference_i| + rms(reference)),   rtol = min(1/4, eps * (32 + 8 sqrt(K)) * m)

with m = 8 if the program has transcendental functions, which amplify what came before, else 1. Two
orders of summation of K terms of size s differ by about eps * s * K / 4 at worst among a million
elements, where the sum itself has size s * sqrt(K): hence sqrt(K), and hence the mean square of the
whole output, since an element in which the terms cancel keeps their error. One term left out shows
as s, and that is 1 / (8 eps K) times the tolerance: 1,000 for a float32 sum of 1,000 terms.

What is computed in a narrower float type than the output's is no nearer than that type allows: the
same, of each type with its own K and m, and where a value is only rounded to a type on the way,
CAST * eps. Bools must be equal, and so must integers, unless their values are cut from floats that
different orders round differently: those may be a step apart beside the tolerance of the floats.
(An integer that is read at a place which was cut from floats is one of the array's, or it is not.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from autosched.dag import calls
from autosched.tir import dtypes
from autosched.tir.expr import Call, Expr, Slot, walk
from autosched.tir.nodes import Block, Buffer, PrimFunc, sites
from autosched.tir.operations import OPS

CAST = 8
"""Units of a type by which values that were rounded to it may differ where those before did."""
MOST = 0.25
_EXACT_OPS = frozenset(
    {"min", "max", "select", "if_then_else", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"}
    | {"floor", "ceil", "round", "trunc", "abs", "neg", "copysign"}
)
"""Operations whose results are no rounded ones."""


@dataclass(frozen=True)
class Tolerance:
    """What the tolerance of a program depends on; see this module.

    `least`: of outputs of float types, from what is computed in narrower ones. `cut`: names of
    outputs of integers that are cut from floats, which have the tolerance `least` and a step.
    """

    terms: int
    transcendental: bool
    least: float = 0.0
    cut: frozenset[str] = frozenset()

    def relative(self, dtype: str, name: str = "") -> float:
        """`rtol` for the output `name` of a type; 0 where it must be equal."""
        if not dtypes.is_float(dtype):
            return self.least if name in self.cut and dtype != "bool" else 0.0
        return max(self.least, _rtol(dtype, self.terms, self.transcendental))


def tolerance_of(func: PrimFunc) -> Tolerance:
    """Read off the untransformed program."""
    all_terms, transcendental = 1, False
    terms: dict[str, int] = {}
    maths: set[str] = set()
    cut: set[Buffer] = set()
    least = 0.0
    for site in sites(func):
        block, more = site.block, _terms(site.block)
        all_terms += more
        for e in calls(block):
            is_math = OPS[e.op].cost == "math"
            transcendental |= is_math
            source = e.args[0].dtype if e.args else e.dtype
            if not dtypes.is_float(e.dtype):
                continue
            if e.op == "cast":
                if dtypes.is_float(source) and _eps(source) < _eps(e.dtype):
                    least = max(least, CAST * _eps(e.dtype))
            elif e.op not in _EXACT_OPS:
                terms.setdefault(e.dtype, 1)
                maths |= {e.dtype} if is_math else set()
        if _cuts(block, cut):
            cut.update(a.buffer for a in block.writes)
        for dtype in {b.buffer.dtype for b in block.writes} if more else ():
            if dtypes.is_float(dtype):
                terms[dtype] = terms.get(dtype, 1) + more
    least = max([least, *(_rtol(d, k, d in maths) for d, k in terms.items())])
    rounds = bool(maths) or max(terms.values(), default=1) > 1
    names = frozenset(b.name for b in func.params if b in cut) if rounds else frozenset()
    return Tolerance(all_terms, transcendental, least, names)


def _cuts(block: Block, cut: Collection[Buffer]) -> bool:
    """Whether integers that the block writes have values cut from floats: in its body, or in that
    of a block whose result its body reads."""
    nodes = [e for root in block.body for e in walk(root)]
    return any(
        e.op == "cast" and dtypes.is_float(e.args[0].dtype) and not dtypes.is_float(e.dtype)
        if isinstance(e, Call)
        else isinstance(e, Slot) and block.reads[e.index].buffer in cut
        for e in nodes
    )


def _terms(block: Block) -> int:
    """How many terms one element of a block combines, each of which rounds; 0 without a sum."""
    carried = [int(i.extent) for i in block.iters if i.kind == "sequential"]
    if block.reducer is not None and not _is_exact(block.reducer.combine):
        carried += [int(i.extent) for i in block.iters if i.kind == "reduce"]
    return prod(carried) if carried else 0


def _is_exact(combine: Sequence[Expr]) -> bool:
    """Whether a reducer only picks among values, as a maximum does."""
    return all(e.op in _EXACT_OPS for x in combine for e in walk(x) if isinstance(e, Call))


def _eps(dtype: str) -> float:
    return 2.0**-7 if dtype == "bfloat16" else float(np.finfo(dtype).eps)


def _rtol(dtype: str, terms: int, transcendental: bool) -> float:
    return min(MOST, _eps(dtype) * (32 + 8 * sqrt(terms)) * (8 if transcendental else 1))

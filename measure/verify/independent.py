"""The reference, recomputed by something that is no code generator.

Candidates are compared with what the untransformed program computes, as the code generator builds
it: a fault that it makes in every schedule would pass. So the interpreter recomputes, from the same
inputs:

- all elements of a program of unusual structure (elements at computed places, reductions whose
  element moves, several writers of one buffer), by whole arrays, up to WHOLE_WORK. These values are
  then the reference.
- of any other program, and beyond that, a sample of each output's elements (`tir/sample.py`), as
  many as ALLOWED pays for, up to MOST. Where one element takes more than that, as in a chain of
  large products, none is recomputed, and the baseline's `error` says of which output.

Values agree within the tolerance of `measure.verify.tolerance`. Where a value jumps, as in a
comparison of floats or a cast to an integer, rounding may take an element to the other side: there
a few may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from autosched.codegen.artifact import Param
from autosched.dag import calls
from autosched.errors import VerifyError
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, walk
from autosched.tir.nodes import Block, Buffer, PrimFunc, outputs_of, sites
from autosched.tir.sample import Beyond, Sample
from autosched.tir.scatter import scatters
from autosched.tir.whole import reference
from measure.verify.tolerance import Tolerance
from measure.verify.verification import Array, Expected, root_mean_square

ALLOWED = 5_000_000
"""Work for the sample of a job, in operations on one point: below 0.1 s."""
MOST = 64
"""Elements of one output."""
WHOLE_WORK = 1 << 26
"""Operations on points that are done by whole arrays: about a second."""
RMS_OF = 1 << 16
"""Elements from which an output's size is taken."""
_JUMPS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "floor", "ceil", "round", "floordiv"})


@dataclass(frozen=True)
class Examined:
    """What became of a reference: `fault` is empty if the interpreter agrees; `missing` says what
    it could not recompute; `elements` counts those that it did."""

    fault: str = ""
    missing: str = ""
    elements: int = 0


def check(func: PrimFunc, arrays: Sequence[Array], tolerance: Tolerance) -> Examined:
    """Recompute outputs in `arrays`, one a parameter. Those of an unusual program become the
    interpreter's, if that agrees."""
    try:
        if is_unusual(func) and _work(func) <= WHOLE_WORK:
            return _whole(func, arrays, tolerance)
        return _sampled(func, arrays, tolerance)
    except VerifyError as e:
        return Examined(f"the interpreter refuses {func.name}: {e}")


def is_unusual(func: PrimFunc) -> bool:
    """Whether blocks write at computed places, move the element that they reduce into, or write one
    buffer after another one has."""
    written: set[Buffer] = set()
    for site in sites(func):
        block = site.block
        if any(i.kind == "sequential" for i in block.iters):
            continue
        mine = {a.buffer for a in block.writes}
        if mine & written or scatters(block) or not _is_plain(block):
            return True
        written |= mine
    return False


def _is_plain(block: Block) -> bool:
    """Whether every write is indexed by different axes, each by itself."""
    for access in block.writes:
        axes = [i.single_var() if isinstance(i, Affine) else None for i in access.indices]
        if any(v is None for v in axes) or len(set(axes)) != len(axes):
            return False
    return True


def _work(func: PrimFunc) -> int:
    """Operations on points of the whole program."""
    return sum(
        prod(int(it.extent) for it in s.block.iters)
        * (1 + sum(1 for e in s.block.body for _ in walk(e)))
        for s in sites(func)
    )


def _jumps(func: PrimFunc) -> bool:
    """Whether rounding may take a value somewhere else altogether."""

    def jumps(e: Call) -> bool:
        source = e.args[0].dtype if e.args else e.dtype
        return dtypes.is_float(source) and (
            e.op in _JUMPS or (e.op == "cast" and not dtypes.is_float(e.dtype))
        )

    return any(jumps(e) for s in sites(func) for e in calls(s.block))


def _whole(func: PrimFunc, arrays: Sequence[Array], tolerance: Tolerance) -> Examined:
    outputs = {id(b) for b in outputs_of(func)}
    mine = [a.copy() if id(b) in outputs else a for b, a in zip(func.params, arrays, strict=True)]
    try:
        reference(func, mine)
    except VerifyError:  # scheduled by hand, or with an order of its own: element by element
        return _sampled(func, arrays, tolerance)
    count = 0
    for b, theirs, own in zip(func.params, arrays, mine, strict=True):
        if id(b) in outputs:
            fault = _fault(func, b, None, theirs, own.reshape(-1), tolerance)
            if fault:
                return Examined(fault, elements=count + own.size)
            theirs[...] = own
            count += own.size
    return Examined(elements=count)


def _sampled(func: PrimFunc, arrays: Sequence[Array], tolerance: Tolerance) -> Examined:
    outputs = outputs_of(func)
    missing, count = [], 0
    for b, array in zip(func.params, arrays, strict=True):
        if not any(b is o for o in outputs):
            continue
        found = _elements(func, arrays, b, array.shape, ALLOWED // len(outputs))
        if found is None:
            missing.append(b.name)
            continue
        places, values = found
        fault = _fault(func, b, places, array, values, tolerance)
        count += len(values)
        if fault:
            return Examined(fault, elements=count)
    text = ""
    if missing:
        text = (
            f"the interpreter has recomputed no element of {', '.join(missing)}: one takes more "
            f"than the {ALLOWED // len(outputs):,} operations that are spent on it"
        )
    return Examined(missing=text, elements=count)


def _elements(
    func: PrimFunc, arrays: Sequence[Array], b: Buffer, shape: tuple[int, ...], allowed: int
) -> tuple[Array, Array] | None:
    """(numbers, values) of elements of an output, as many as the work that is allowed pays for;
    None where it pays for none."""
    rng = np.random.default_rng(0)
    size = prod(shape)
    drawn = rng.integers(0, size, MOST)
    places = np.array(list(dict.fromkeys([int(drawn[0]), 0, size - 1, *map(int, drawn)]))[:MOST])

    def at(some: Array) -> tuple[Array, ...]:
        return tuple(np.unravel_index(some, shape)) if shape else ()

    def recomputed(some: Array, work: int) -> tuple[Array, int] | None:
        sample = Sample(func, arrays, work)
        try:
            values = sample.values(b, at(some))
        except Beyond:
            return None
        return None if sample.unwritten else (values, work - sample.left)

    # Of a recurrence the first element is the cheapest; anywhere else all cost alike.
    for one in (places[:1], np.zeros(1, np.int64)):
        found = recomputed(one, allowed // 2)
        if found is None:
            continue
        count, work = min(MOST, allowed // (2 * max(found[1], 1))), allowed // 2
        while count > 1:
            more = recomputed(places[:count], work)
            if more is not None:
                return places[:count], more[0]
            count, work = count // 4, work // 4
        return one, found[0]
    return None


def _fault(
    func: PrimFunc,
    b: Buffer,
    places: Array | None,
    theirs: Array,
    own: Array,
    tolerance: Tolerance,
) -> str:
    """How the reference's elements of these numbers (None: all) differ from `own`; empty if they
    do not."""
    flat = theirs.reshape(-1)
    expected = Expected(Param(b.name, own.shape, b.dtype, True), own, tolerance)
    if expected.rtol:
        near = flat[:: max(1, flat.size // RMS_OF)]
        expected.rms = root_mean_square(expected.numbers(near))
    found = expected.numbers(flat if places is None else flat[places])
    with np.errstate(all="ignore"):
        bad = np.flatnonzero(~expected.good(found))
    if len(bad) <= (1 + len(own) // 16 if _jumps(func) else 0):
        return ""
    n = int(bad[0])
    at = np.unravel_index(n if places is None else int(places[n]), theirs.shape)
    element = f"{b.name}[{', '.join(str(int(i)) for i in at)}]"
    return (
        f"the code generator and the interpreter disagree on element {element} of {func.name}: "
        f"built code gives {found[n]}, the interpreter {expected.reference[n]}; {len(bad)} of "
        f"{len(own)} elements that were recomputed differ"
    )

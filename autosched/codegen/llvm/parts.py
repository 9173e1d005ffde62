"""Loops cut where comparisons of lanes change, so that most iterations ask nothing.

    for x_0 in range(n): vectorized for x_1: if x_0 * 32 + x_1 - 3 >= 0: …

Whether a lane is inside an image, or in the first of two tensors that are joined, is decided for
nearly all iterations of the loop around a vector: for all lanes or for none. Those in between stand
apart, and each part knows what holds in it. (Halide and TVM call it loop partitioning.)

So is a loop of a few iterations, such as the phases of a strided convolution's gradient, where it
and the unrolled loops inside decide a comparison: which taps a phase has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from autosched.codegen.llvm.runs import moved_by, write_run
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Call, Expr, Var, walk
from autosched.tir.nodes import Block, For, Predicate, sites
from autosched.tir.size import Size

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter

MOST = 1024
"""Operations in all parts of a loop together. A loop that would have more stays whole."""
MANY = 6
"""Vectors of a row, at most, that are written one below the other (`FunctionWriter.vectorized`)."""
FEW = 4
"""Iterations of a loop that is cut for what copies ask, not lanes."""


@dataclass(frozen=True)
class Part:
    """Iterations of a loop; by id, the comparisons that hold for all lanes of all of them, or for
    none, and the predicates that hold."""

    low: int
    high: int
    held: frozenset[int]
    failed: frozenset[int]
    done: frozenset[int]


@dataclass(frozen=True)
class _Change:
    """`step * iteration + rest < bound`, with the rest from `least` to `most`."""

    of: int
    step: int
    least: int
    most: int
    bound: int
    negated: bool
    is_predicate: bool

    def cuts(self) -> Iterator[int]:
        """The iterations at which it begins, or ends, to be the same for all lanes."""
        for rest in (self.least, self.most):
            room = self.bound - rest
            yield -(-room // self.step) if self.step > 0 else -room // -self.step + 1

    def value(self, low: int, high: int) -> bool | None:
        """Whether it holds at all of [low, high); None where it differs."""
        ends = self.step * low, self.step * (high - 1)
        if max(ends) + self.most < self.bound:
            return True
        return False if min(ends) + self.least >= self.bound else None


def write_parts(
    f: FunctionWriter,
    loop: For,
    low: int | str,
    high: int | str,
    body: Callable[[], None] | None = None,
) -> None:
    """Iterations `low` to `high` of a loop, cut where what blocks ask changes. Bounds that are
    known when it runs cut the parts of the whole loop. `body`: what stands inside, if it is not the
    loop's."""
    is_known = isinstance(low, int) and isinstance(high, int)
    parts = []
    if f.index.lanes is None and (is_known or moved_by(loop) is not None):
        parts = parts_of(f, loop, *((low, high) if is_known else (0, loop.extent)))
    index = f.index
    for part in parts:
        before = index.held, index.failed, f.done
        index.held, index.failed = index.held | part.held, index.failed | part.failed
        f.done = f.done | part.done
        first = part.low if is_known else f.b.larger(low, part.low)
        last = part.high if is_known else f.b.smaller(high, part.high)
        _iterations(f, loop, first, last, body)
        index.held, index.failed, f.done = before
    if not parts:
        _iterations(f, loop, low, high, body)


def _iterations(
    f: FunctionWriter,
    loop: For,
    low: int | str,
    high: int | str,
    body: Callable[[], None] | None,
) -> None:
    if body is not None or not write_run(f, loop, low, high):
        f.loop(loop.var, low, high, body or (lambda: f.body(loop)))


def write_chain(f: FunctionWriter, chain: Sequence[For], begin: str, end: str) -> None:
    """Iterations `begin` to `end` of fused loops around a block that moves elements, as nested
    loops: what the last one moves lies side by side."""
    b, sizes = f.b, [f.index.number(x.extent) for x in chain]

    def level(k: int, first: int | str) -> None:
        """The loops from `k` inwards, whose first iteration has the number `first`."""
        low = b.larger(b.op(f"sub nsw i64 {begin}, {first}"), 0)
        high = b.op(f"sub nsw i64 {end}, {first}")
        rows: int | str = 1
        for n in sizes[k + 1 :]:
            rows = b.op(f"mul nsw i64 {rows}, {n}")
        if k + 1 == len(chain):
            write_parts(f, chain[k], low, b.smaller(high, sizes[k]))
            return
        low = b.op(f"udiv i64 {low}, {rows}")
        rest = b.op(f"sub nsw i64 {rows}, 1")
        high = b.op(f"udiv i64 {b.op(f'add nsw i64 {high}, {rest}')}, {rows}")

        def inside() -> None:
            here = b.op(f"mul nsw i64 {f.index.env[chain[k].var]}, {rows}")
            level(k + 1, b.op(f"add nsw i64 {first}, {here}"))

        write_parts(f, chain[k], low, b.smaller(high, sizes[k]), inside)

    level(0, 0)


def parts_of(f: FunctionWriter, loop: For, low: Int | str, high: Int | str) -> list[Part]:
    """The parts of iterations `low` to `high` of a serial loop; one that knows nothing where there
    is nothing to know, or too much code would stand in them."""
    if not isinstance(low, int) or not isinstance(high, int) or high <= low:
        return []
    changes = [t for s in sites(loop) for t in _changes(f, loop, s.block)]
    inner = {c for t in changes for c in t.cuts() if low < c < high}
    cuts = [low, *sorted(inner), high]
    moved = moved_by(loop)
    written = sum(map(f.written, loop.body)) if moved is None else _vectors(f, loop, moved)
    if not changes or (len(cuts) - 1) * written > MOST:
        return []
    parts = []
    for a, b in pairwise(cuts):
        found = [(t, v) for t in changes if (v := t.value(a, b)) is not None]
        held, failed = (
            frozenset(t.of for t, v in found if not t.is_predicate and (v != t.negated) == truth)
            for truth in (True, False)
        )
        parts.append(
            Part(a, b, held, failed, frozenset(t.of for t, v in found if t.is_predicate and v))
        )
    return parts


def _vectors(f: FunctionWriter, loop: For, moved: Block) -> int:
    """Vectors that stand below each other in a loop that moves elements: each part of it has one
    source. Many are a loop, with a few behind it."""
    total = 1
    for x in _inside(f, loop, moved):
        if x.kind == "unrolled":
            total *= int(x.extent)
        elif x.kind == "vectorized":
            total *= (
                MANY
                if isinstance(x.extent, Size)
                else min(MANY, -(-int(x.extent) // f.width(moved)))
            )
    return total


def _inside(f: FunctionWriter, loop: For, block: Block) -> tuple[For, ...]:
    loops = f.blocks[id(block)].loops
    return loops[loops.index(loop) + 1 :]


def _changes(f: FunctionWriter, loop: For, block: Block) -> Iterator[_Change]:
    """What of a block differs between the lanes of some iterations of the loop only."""
    inside = _inside(f, loop, block)
    lanes = [x.var for x in inside if x.kind == "vectorized"]
    moves = moved_by(loop) is block
    if not lanes and not moves:
        return
    copies = _copies(f, loop, block, inside)
    extents = {x.var: x.extent for x in inside}
    points = f.points(block)
    for test in _comparisons(block):
        form = points.scalars.difference(test)
        if form is None:
            continue
        of_copies = form.uses(copies - {loop.var}) and copies.issuperset(form.variables())
        if of_copies or moves or form.uses(lanes):
            bound = 1 if test.op in ("le", "gt") else 0
            negated = test.op in ("gt", "ge")
            yield from _change(f, loop, form, bound, extents, test, negated)
    if block.reducer is None or all(map(points.is_safe, block.reads)):
        return
    for p in f.pending(block):
        if p.form.uses(lanes) and isinstance(p.bound, int):
            yield from _change(f, loop, p.form, p.bound, extents, p)


def _copies(f: FunctionWriter, loop: For, block: Block, inside: Sequence[For]) -> set[Var]:
    """A short loop and the unrolled ones inside it; none that overhangs: its last iterations read
    other elements, for which a comparison of theirs says nothing."""
    if not isinstance(loop.extent, int) or loop.extent > FEW:
        return set()
    clamped = {v for p in f.pending(block) for v in p.form.variables()}
    found = {x.var for x in inside if x.kind == "unrolled"} - clamped
    return {loop.var, *found} if loop.var not in clamped else set()


def _comparisons(block: Block) -> Iterator[Call]:
    seen: set[int] = set()
    for e in (x for body in block.body for x in walk(body)):
        if isinstance(e, Call) and e.op in ("lt", "le", "gt", "ge") and id(e) not in seen:
            seen.add(id(e))
            if e.args[0].dtype == dtypes.INDEX:
                yield e


def _change(
    f: FunctionWriter,
    loop: For,
    form: Affine,
    bound: int,
    extents: Mapping[Var, Int],
    of: Expr | Predicate,
    negated: bool = False,
) -> Iterator[_Change]:
    """`form < bound` of a loop and loops inside; nothing where other loops that run count, or the
    loop does not."""
    least = most = form.const
    step = 0
    for atom, c in form.terms:
        if not isinstance(atom, Var) or not isinstance(c, int) or not isinstance(least, int):
            return
        if atom is loop.var:
            step = c
            continue
        value = f.index.env.get(atom)
        extent = extents.get(atom)
        if isinstance(value, int):
            least, most = least + c * value, most + c * value
        elif value is None and isinstance(extent, int):
            span = c * (extent - 1)
            least, most = least + min(span, 0), most + max(span, 0)
        else:
            return
    if step and isinstance(least, int) and isinstance(most, int):
        yield _Change(id(of), step, least, most, bound, negated, isinstance(of, Predicate))


def vector_tails(f: FunctionWriter, loop: For) -> list[Predicate]:
    """Predicates of a vector directly inside a loop that hold for all lanes until near its
    end."""
    vector = loop.body[0]
    if len(loop.body) != 1 or not isinstance(vector, For) or vector.kind != "vectorized":
        return []
    block = vector.body[0]
    if len(vector.body) != 1 or not isinstance(block, Block) or block.reducer is not None:
        return []
    if isinstance(vector.extent, Size) or f.index.lanes is not None:
        return []
    found = []
    for p in f.pending(block):
        steps = [p.form.coefficient(x.var) for x in (loop, vector)]
        plain = all(isinstance(c, int) and c > 0 for c in steps)
        variables = list(p.form.variables())
        outside = [v for v in variables if v is not loop.var and v is not vector.var]
        if plain and len(variables) == len(outside) + 2:
            found += [p] if all(v in f.index.env for v in outside) else []
    return found


def ends(f: FunctionWriter, p: Predicate, loop: For) -> bool:
    """Whether the predicate is known once `loop` is: its other variables stand outside."""
    c = p.form.coefficient(loop.var)
    if not isinstance(c, int) or c <= 0 or sum(v is loop.var for v in p.form.variables()) != 1:
        return False
    if f.index.lanes is not None and p.form.uses([f.index.lanes.var]):
        return False
    return all(v is loop.var or v in f.index.env for v in p.form.variables())


def operations(e: Expr) -> int:
    """Operations of an expression; a comparison of indices is one, since its forms are linear."""
    if not isinstance(e, Call):
        return 0
    if e.dtype == "bool" and all(x.dtype == dtypes.INDEX for x in e.args):
        return 1
    return 1 + sum(map(operations, e.args))

"""Rules on parallel and vectorised loops: iterations touch different elements. See `verify`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import gcd

from autosched.tir.affine import Affine, always, recombine, same_int
from autosched.tir.apart import injective, iterations_apart
from autosched.tir.counted import writes_once
from autosched.tir.expr import Var
from autosched.tir.faults import READS, WRITES, Fault
from autosched.tir.linear import (
    DigitKey,
    Key,
    Linear,
    Product,
    SymbolicDigit,
    as_key,
    plus,
    without,
)
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    PrimFunc,
    Site,
    buffers_of,
    sites,
)
from autosched.tir.prove import Facts
from autosched.tir.region import home, placements, users_of
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar
from autosched.tir.touch import MAX_POINTS, Touch, search

MOST_PAIRS = 16
"""Equal numbers that are looked at for digits to put together."""


def races(func: PrimFunc) -> Iterator[Fault]:
    """Iterations of a parallel or vectorised loop write different elements, and read none that
    another one writes. Reduction axes may be vectorised, since lanes are combined at the end."""
    every = list(sites(func))
    homes = homes_of(func)
    for writer in every:
        for depth, loop in enumerate(writer.loops):
            if loop.kind not in ("parallel", "vectorized") or same_int(loop.extent, 1):
                continue
            for access in writer.block.writes:
                if loop not in homes[access.buffer]:  # else each iteration has its own
                    yield from _loop_races(writer, access, depth, every)


def _loop_races(writer: Site, access: Access, depth: int, every: list[Site]) -> Iterator[Fault]:
    loop, block, name = writer.loops[depth], writer.block, access.buffer.name
    lanes = loop.kind == "vectorized" and _is_reduction(block, loop)
    own = lanes or always(iterations_apart(writer, loop))  # as the primitives prove it
    own = own or _are_apart(writer, access, writer, access, depth)
    if not (own or (_moves_points(writer, depth) and writes_once(block, block.iters, access))):
        yield Fault(
            block,
            f"iterations of the {loop.kind} loop {loop.var.name!r} may write the same element of "
            f"{name} in block {block.name!r}",
            WRITES,
        )
    for other in every:
        if loop not in other.loops:
            continue
        for verb, mark, accesses in (
            ("read", READS, other.block.reads),
            ("write", WRITES, () if other is writer else other.block.writes),
        ):
            for theirs in accesses:
                if theirs.buffer is not access.buffer:
                    continue
                if not _are_apart(writer, access, other, theirs, depth):
                    yield Fault(
                        other.block,
                        f"block {other.block.name!r} may {verb} elements of {name} that another "
                        f"iteration of the {loop.kind} loop {loop.var.name!r} writes",
                        mark,
                    )


def _moves_points(site: Site, depth: int) -> bool:
    """Whether another iteration of the loop at `depth` is another point of the block."""
    inside = [x.var for x in site.loops[depth:]]
    return always(injective(site.block.bindings, inside, site.extents()))


def _are_apart(left: Site, a: Access, right: Site, b: Access, depth: int) -> bool:
    """`never_meet` of iterations of the loop at `depth` around both, in one of those outside it."""
    still = [x.var for x in left.loops[:depth]]
    return never_meet(Touch(a, left, True), Touch(b, right, False), still, [left.loops[depth]])


def never_meet(a: Touch, b: Touch, still: Collection[Var], loops: Sequence[For]) -> bool:
    """Whether two accesses name one element only in the same iteration of `loops`, given that they
    are in the same one of the loops `still`: by proof, or found out by going through all points."""
    targets = [x.var for x in loops]
    if Iterations(a.facts, b.facts, still, targets).are_apart(a.access, b.access):
        return True
    if _told(a, b, still, loops):
        return True
    met = search(a, b, still, loops, MAX_POINTS)
    return met is not None and not met[0]


def _told(a: Touch, b: Touch, still: Collection[Var], loops: Sequence[For]) -> bool:
    """Whether both accesses are of the same element in each iteration, and it tells the iteration:
    what `Iterations` does not see where the sizes of loops are sums of symbolic ones."""
    sized = any(isinstance(x.extent, Size) for x in loops)
    if a.forms is None or b.forms is None or not sized:
        return False
    moved = {x.var for x in loops}
    used = {v for form in a.forms for v in form.variables() if not isinstance(v, SizeVar)}
    if not moved <= used or not used <= moved | set(still):
        return False
    extents = {**a.site.extents(), **b.site.extents()}
    alike = all(x.same(y) for x, y in zip(a.forms, b.forms, strict=True))
    return alike and always(injective(a.forms, moved, extents))


def homes_of(func: PrimFunc) -> dict[Buffer, tuple[For, ...]]:
    """The loops inside which each buffer lives: where it is allocated, or will be by lowering."""
    out: dict[Buffer, tuple[For, ...]] = {**dict.fromkeys(func.params, ()), **placements(func)}
    for b in buffers_of(func):
        if b not in out:
            out[b] = home(b, users_of(func, b))
    return out


def _is_reduction(block: Block, loop: For) -> bool:
    """Whether the loop moves reduction axes of the block, so that its lanes are combined."""
    kinds = {
        it.kind
        for it, binding in zip(block.iters, block.bindings, strict=True)
        if binding.uses((loop.var,))
    }
    return block.reducer is not None and "reduce" in kinds and "sequential" not in kinds


class Iterations:
    """Two accesses in different iterations of loops: do they touch different elements?

    The loops `still` stand still, all others move freely on both sides. If the elements are equal,
    so are their indices, and from these follow atoms on which both sides agree: of an index
    `c * atom + rest`, the atom, if the rests differ by less than c. A base is agreed on once its
    digits are. If it follows that both are in the same iteration of the loops `targets`, the
    accesses are apart.
    """

    def __init__(
        self, left: Facts, right: Facts, still: Iterable[Var], targets: Iterable[Var]
    ) -> None:
        self.left, self.right = left, right
        self.targets = {id(v) for v in targets}
        self.agreed: set[Key] = {id(v) for v in still}
        self.agreed |= {v for v in self.targets if self._is_zero(v)}

    def _is_zero(self, key: int) -> bool:
        """Whether predicates leave both sides only iteration 0."""
        return all(f.at_most(Linear(0, {key: 1}), 0) for f in (self.left, self.right))

    def are_apart(self, a: Access, b: Access) -> bool:
        """Whether `a` on the left and `b` on the right name different elements, or one in the same
        iteration."""
        pairs = [
            (self.left.linear(recombine(x)), self.right.linear(recombine(y)))
            for x, y in zip(a.indices, b.indices, strict=True)
            if isinstance(x, Affine) and isinstance(y, Affine)
        ]
        while not self.targets <= self.agreed:
            pairs += self._joined(pairs)
            if any(self._differ(x, y) for x, y in pairs):
                return True
            before = len(self.agreed), len(pairs)
            for x, y in pairs:
                self._agree(x, y)
            pairs += self._bases(pairs)
            if (len(self.agreed), len(pairs)) == before:
                return False
        return True

    def _differ(self, x: Linear, y: Linear) -> bool:
        """Whether `x` on the left and `y` on the right cannot be equal."""
        known = {k for k, c in x.terms.items() if y.terms.get(k) == c and self._is_agreed(k)}
        a, b = without(x, known), without(y, known)
        step = gcd(*a.terms.values(), *b.terms.values())
        if step and (a.const - b.const) % step:
            return True
        low_x, high_x = self.left.span(a)
        low_y, high_y = self.right.span(b)
        return (
            high_x < low_y
            or high_y < low_x
            or self._other_rows(a, b)
            # Predicates may keep them below what the loops reach.
            or self.left.at_most(a, low_y - 1)
            or self.right.at_most(b, low_x - 1)
        )

    def _other_rows(self, x: Linear, y: Linear) -> bool:
        """Whether both are rows of one ring, of steps on which the sides agree but for a constant
        that is no multiple of its size."""
        if x.const != y.const or len(x.terms) != 1 or len(y.terms) != 1:
            return False
        ((a, p),), ((b, q),) = x.terms.items(), y.terms.items()
        if not isinstance(a, DigitKey) or not isinstance(b, DigitKey) or p != q:
            return False
        same = (a.terms, a.div, a.mod) == (b.terms, b.div, b.mod) and a.div == 1
        agreed = all(self._is_agreed(k) for k, _ in a.terms)
        return same and agreed and a.mod is not None and (a.const - b.const) % a.mod != 0

    def _agree(self, x: Linear, y: Linear) -> None:
        """Find atoms on which both sides agree if `x` on the left equals `y` on the right."""
        shared = {k: c for k, c in x.terms.items() if y.terms.get(k) == c}
        moving = [k for k in shared if not self._is_agreed(k)]
        for product in [k for k in moving if isinstance(k, Product)]:
            self._agree_product(product, x, y, shared)
            moving.remove(product)
        for key in sorted(moving, key=lambda k: -abs(shared[k])):
            known = {k for k in shared if k == key or self._is_agreed(k)}
            if not self._closer(without(x, known), without(y, known), abs(shared[key])):
                return
            self.agreed.add(key)

    def _closer(self, x: Linear, y: Linear, distance: int) -> bool:
        """Whether `x` on the left and `y` on the right provably differ by less than `distance`."""
        low_x, high_x = self.left.span(x)
        low_y, high_y = self.right.span(y)
        if max(high_x - low_y, high_y - low_x) < distance:
            return True
        # Predicates may keep them below what the loops reach.
        return self.left.at_most(x, low_y + distance - 1) and self.right.at_most(
            y, low_x + distance - 1
        )

    def _agree_product(self, key: Product, x: Linear, y: Linear, shared: dict[Key, int]) -> None:
        """Of `c * atom * size + rest`, the atom, if both rests are from 0 to `c * size - 1`."""
        moving = [k for k in key.factors if not self._is_agreed(k)]
        if len(moving) != 1 or shared[key] < 1:
            return
        known = {k for k in shared if k == key or self._is_agreed(k)}
        for facts, form in ((self.left, x), (self.right, y)):
            rest = without(form, known)
            step = facts.product([k for k in key.factors if k != moving[0]], shared[key])
            if not (
                facts.at_most(plus(rest, step, -1), -1)
                and facts.at_most(plus(Linear(0, {}), rest, -1), 0)
            ):
                return
        self.agreed.add(moving[0])

    def _is_agreed(self, key: Key) -> bool:
        if key in self.left.sizes or key in self.right.sizes:
            return True
        if isinstance(key, Product):
            return all(self._is_agreed(k) for k in key.factors)
        if isinstance(key, (DigitKey, SymbolicDigit)):
            return key in self.agreed or all(self._is_agreed(k) for k, _ in key.terms)
        return key in self.agreed

    def _joined(self, pairs: list[tuple[Linear, Linear]]) -> list[tuple[Linear, Linear]]:
        """Digits of one number in several indices, put together on both sides: where `x // d` is an
        index and `x % d` another one, x is as good as one."""
        out: list[tuple[Linear, Linear]] = []
        if len(pairs) > MOST_PAIRS:
            return out
        found = [(k, c, p) for p in pairs for form in p for k, c in form.terms.items()]
        digits = [(k, c, p) for k, c, p in found if isinstance(k, DigitKey)]
        for low, c, mine in digits:
            for high, d, other in digits:
                if mine is other or low.mod is None or high.div != low.div * low.mod:
                    continue
                if (high.const, high.terms) == (low.const, low.terms) and c * low.mod % d == 0:
                    factor = c * low.mod // d
                    left = self.left.join(plus(mine[0], other[0], factor))
                    right = self.right.join(plus(mine[1], other[1], factor))
                    if (left, right) not in pairs and (left, right) not in out:
                        out.append((left, right))
        return out

    def _bases(self, pairs: list[tuple[Linear, Linear]]) -> list[tuple[Linear, Linear]]:
        """Bases all of whose digits, from the lowest to the highest there can be, are agreed on."""
        digits = [k for k in self.agreed if isinstance(k, DigitKey)]
        out: list[tuple[Linear, Linear]] = []
        for key in digits:
            reach: int | None = 1
            family = {k.div: k.mod for k in digits if (k.terms, k.const) == (key.terms, key.const)}
            while reach is not None and reach in family:
                mod = family[reach]
                reach = None if mod is None else reach * mod
            pair = (key.base, key.base)
            # Numbers that are closer than what their digits count up to: no other has these digits.
            whole = reach is None or self._closer(key.base, key.base, reach)
            if whole and pair not in pairs and pair not in out:
                out.append(pair)
        # Of symbolic digits: base // d and base % d.
        for symbolic in [k for k in self.agreed if isinstance(k, SymbolicDigit)]:
            low = SymbolicDigit(symbolic.base, as_key(Linear(1, {})), symbolic.div)
            base = Linear(symbolic.base[0], dict(symbolic.base[1]))
            known = (base, base) in pairs or (base, base) in out
            if symbolic.mod is None and low in self.agreed and not known:
                out.append((base, base))
        return out

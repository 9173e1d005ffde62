"""Proving that recurrences read what earlier steps have written.

Two iterations, one of each block, are two sets of loop variables; that they name one element ties
these by equations. Loop by loop from the outside it is then proved that the one comes no later than
the other; where it is proved to come earlier, that loop carries the dependence, and it must run
over sequential axes of both blocks.

A dimension of an intermediate may be a ring: rows are kept modulo its size. There the element is
the row before folding, and a row must have been read before the one that takes its place is
written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autosched.tir.affine import Affine, Digit, Int, always, is_zero, same_int
from autosched.tir.expr import Var
from autosched.tir.linear import DigitKey, plus, without
from autosched.tir.nodes import Access, Block, For, Predicate, Site, kind_vars
from autosched.tir.prove import Facts
from autosched.tir.region import common_loops
from autosched.tir.size import Size


def ring_base(access: Access, n: int) -> Affine | None:
    """The row `r` of an index `r % size` that folds dimension n into a ring; None for any other."""
    index = access.indices[n]
    if not isinstance(index, Affine) or len(index.terms) != 1 or not is_zero(index.const):
        return None
    atom, c = index.terms[0]
    if not isinstance(atom, Digit) or atom.mod is None or not always(c == 1):
        return None
    folds = always(atom.div == 1) and same_int(atom.mod, access.buffer.shape[n])
    return atom.base if folds else None


class Pair:
    """Any iteration of `writer` and any of `reader` that access one element through `write` and
    `read`.

    `writer_first`: whether the writer stands before the reader in one iteration of shared loops.
    `private`: loops each iteration of which has a buffer of its own. `folded`: whether an index
    that may be a ring's is taken as one; it may also be a digit of a layout, for itself.
    """

    def __init__(
        self,
        writer: Site,
        write: Access,
        reader: Site,
        read: Access,
        writer_first: bool,
        private: Sequence[For] = (),
        folded: bool = True,
    ) -> None:
        self.writer, self.reader, self.writer_first = writer, reader, writer_first
        self.write, self.read = write, read
        self.other = {loop.var: Var(loop.var.name) for loop in writer.loops}
        self.shared = [loop.var for loop in common_loops([writer, reader])]
        extents = {loop.var: loop.extent for loop in reader.loops}
        extents |= {self.other[loop.var]: loop.extent for loop in writer.loops}
        self.facts = Facts(extents)
        self.rings: list[tuple[Affine, Int]] = []
        equal: list[Predicate] = []
        for loop in private:
            equal += _equal(Affine.of(self.other[loop.var]) - Affine.of(loop.var))
        gaps: list[Affine] = []
        for n, (x, y) in enumerate(zip(write.indices, read.indices, strict=True)):
            if not isinstance(x, Affine) or not isinstance(y, Affine):
                continue
            base_x, base_y = ring_base(write, n), ring_base(read, n)
            if folded and base_x is not None and base_y is not None:
                ahead = self._written(base_x) - self._read(base_y)
                self.rings.append((ahead, write.buffer.shape[n]))
            else:
                gaps.append(self._written(x) - self._read(y))
        self.gaps = [*gaps, *self._joined(gaps)]
        equal += [p for gap in self.gaps for p in _equal(gap)]
        equal += [p for gap in self.gaps for p in _bases(gap)]
        predicates = [Predicate(self._renamed(p.form), p.bound) for p in writer.block.predicates]
        # Equations first: proofs are found by depth-first search, within a budget.
        self.facts = self.facts.where([*equal, *reader.block.predicates, *predicates])

    def _renamed(self, form: Affine) -> Affine:
        return form.substitute({v: Affine.of(w) for v, w in self.other.items()})

    def _written(self, form: Affine) -> Affine:
        return self._renamed(form.substitute(self.writer.block.values()))

    def _read(self, form: Affine) -> Affine:
        return form.substitute(self.reader.block.values())

    def _joined(self, gaps: Sequence[Affine]) -> list[Affine]:
        """Sums of the forms, all 0, in which digits come together to what they are digits of."""
        moduli = {
            atom.mod
            for gap in gaps
            for atom, _ in gap.terms
            if isinstance(atom, Digit) and isinstance(atom.mod, int)
        }
        out: list[Affine] = []
        for low in gaps:
            for m, high in ((m, high) for m in moduli for high in gaps if high is not low):
                both = low + high * m
                digits = sum(isinstance(key, DigitKey) for key in self.facts.linear(both).terms)
                if digits < sum(isinstance(atom, Digit) for atom, _ in both.terms):
                    out.append(both)
        return out

    def written_before(self) -> bool:
        """Whether the write provably comes before the read, by sequential loops if it is in
        another iteration, and no later row of a ring takes its place in between."""
        if any(self._never_zero(gap) for gap in self.gaps):
            return True  # no two iterations access one element
        carrying = kind_vars(self.writer.block, "sequential")
        carrying &= kind_vars(self.reader.block, "sequential")
        same = [*self.gaps, *(ahead for ahead, _ in self.rings)]
        rows = [p for ahead, _ in self.rings for p in (*_equal(ahead), *_bases(ahead))]
        facts = self.facts.where(rows)
        no = [Predicate(form, 0) for gap in same for form in (gap, -gap)]
        if not self._in_order(facts, 1, self.writer_first, carrying, no):
            return False
        for ahead, size in self.rings:
            later = self.facts.where([Predicate(-ahead, 1 - size)])
            if not self._in_order(
                later, -1, not self.writer_first, carrying, [Predicate(ahead, size)]
            ):
                return False
        return True

    def _never_zero(self, gap: Affine) -> bool:
        """Whether a form keeps clear of 0 modulo one of its coefficients: rows `10 * i` and
        `10 * j + k`, k being from 1 to 9."""
        form = self.facts.linear(gap)
        for step in {abs(c) for c in form.terms.values()} - {0, 1}:
            whole = {k for k, c in form.terms.items() if c % step == 0}
            low, high = self.facts.span(without(form, whole))
            if -(-low // step) * step > high:
                return True
        return False

    def _in_order(
        self,
        facts: Facts,
        sign: int,
        first: bool,
        carrying: Collection[Var],
        impossible: Sequence[Predicate],
    ) -> bool:
        """Whether the write (`sign` 1; -1: the read) comes first; `first`: it does in one
        iteration of all shared loops. `impossible`: contrary to `facts`, so that if one follows,
        there are no such iterations."""
        steps = set(carrying)
        last = max((n for n, v in enumerate(self.shared) if v in steps), default=-1)
        # With the equation that was proved of a loop outside, or without: searches have a budget.
        known = [facts, facts]
        for n, v in enumerate(self.shared):
            if first and n > last:
                # Loops inside one step may compute an element more than once.
                break
            gap = (Affine.of(self.other[v]) - Affine.of(v)) * sign
            if not _at_most(known, gap, 0):
                return False
            if sign > 0 and v in steps and not self._is_step_before(known, gap, v):
                return False
            if _at_most(known[:1], gap, -1):
                first = v in steps
                break
            known = [known[0].where([Predicate(-gap, 1)]), known[1].where(_equal(gap))]
        facts = known[0]
        return first or any(
            facts.at_most(plus(facts.linear(p.form), facts.size(p.bound), -1), -1)
            for p in impossible
        )

    def _is_step_before(self, known: Sequence[Facts], gap: Affine, loop: Var) -> bool:
        """Whether the write is of an earlier step wherever its iteration of a loop over steps is
        earlier (the gap is negative): a loop over other axes as well may stay in one step."""
        steps = shared_steps(self.writer.block, self.reader.block, loop)
        if steps is None or _at_most(known, -gap, 0):
            return True
        known = [facts.where([Predicate(gap, 0)]) for facts in known]
        return any(_at_most(known, self._renamed(x) - y, -1) for x, y in steps)


def shared_steps(writer: Block, reader: Block, loop: Var) -> list[tuple[Affine, Affine]] | None:
    """The bindings of the one sequential axis of each block that a loop runs over, if it runs over
    other axes, too; empty if there are several. None of a loop over sequential axes alone."""
    used = [
        [
            (it.kind, form)
            for it, form in zip(b.iters, b.bindings, strict=True)
            if form.uses((loop,))
        ]
        for b in (writer, reader)
    ]
    if all(kind == "sequential" for axes in used for kind, _ in axes):
        return None
    steps = [[form for kind, form in axes if kind == "sequential"] for axes in used]
    return list(zip(*steps, strict=True)) if len(steps[0]) == len(steps[1]) == 1 else []


def _bases(gap: Affine) -> list[Predicate]:
    """What follows for x and y, and for what they are quotients of, where the gap,
    `p * (x // d) - p * (y // d) + rest`, is 0: `|p * (x - y) + d * rest| < |p| * d`."""
    out: list[Predicate] = []
    terms = () if isinstance(gap.const, Size) else gap.terms
    for k, (x, p) in enumerate(terms):
        for n, (y, q) in enumerate(terms):
            if n == k or not isinstance(x, Digit) or not isinstance(y, Digit):
                continue
            if isinstance(p, Size) or isinstance(x.div, Size) or x.mod is not None:
                continue
            if y.mod is not None or not always(p > 0) or not always(p + q == 0):
                continue
            if not same_int(x.div, y.div):
                continue
            rest = Affine(gap.const, tuple(t for m, t in enumerate(terms) if m not in (k, n)))
            distance = (x.base - y.base) * p + rest * x.div
            most = int(p) * int(x.div)
            out += [Predicate(distance, most), Predicate(-distance, most)]
            if len(terms) == 2 and always(p == 1):
                out += _further(x.base, y.base, int(x.div), -int(gap.const))
    return out


def _further(x: Affine, y: Affine, d: int, quotient: int) -> list[Predicate]:
    """What follows where `x // d - y // d` is `quotient`, x and y being quotients themselves."""
    low, high = d * quotient - d + 1, d * quotient + d - 1
    out: list[Predicate] = []
    while len(x.terms) == len(y.terms) == 1:
        distance = x - y
        if isinstance(distance.const, Size):
            break
        ((a, p),), ((b, q),) = x.terms, y.terms
        if not always((p == 1) & (q == 1)):
            break
        # low <= a - b <= high
        low, high = low - int(distance.const), high - int(distance.const)
        if not isinstance(a, Digit) or not isinstance(b, Digit):
            break
        if a.mod is not None or b.mod is not None or not same_int(a.div, b.div):
            break
        if isinstance(a.div, Size):
            break
        low, high = int(a.div) * low - int(a.div) + 1, int(a.div) * high + int(a.div) - 1
        x, y = a.base, b.base
        out += [Predicate(x - y, high + 1), Predicate(y - x, 1 - low)]
    return out


def _at_most(known: Sequence[Facts], form: Affine, bound: int) -> bool:
    """Whether one of the collections of facts tells it."""
    return any(facts.at_most(facts.linear(form), bound) for facts in known)


def _equal(difference: Affine) -> list[Predicate]:
    return [Predicate(difference, 1), Predicate(-difference, 1)]

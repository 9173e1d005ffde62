"""Rules proved by inequalities: axes in their domains, accesses in their buffers. See `verify`."""

from __future__ import annotations

from collections.abc import Iterator

from autosched.tir import dtypes
from autosched.tir.affine import Affine, Extents, Int, always, divides, whole
from autosched.tir.cases import MOST_CASES
from autosched.tir.expr import Call, Expr, Slot, Var
from autosched.tir.faults import READS, WRITES, Fault, Ways
from autosched.tir.nodes import Access, PrimFunc, Site, sites
from autosched.tir.points import within
from autosched.tir.printer import Names, format_access, format_expr, format_index
from autosched.tir.prove import Facts
from autosched.tir.size import MAX_SIZE, Monomial, Size, exact_quotient

MAGNITUDE = 1 << 62
"""Of index arithmetic."""
Guards = tuple[tuple[Expr, bool], ...]
"""Conditions of the `if_then_else` around an expression, and whether they hold there."""


def domains(func: PrimFunc) -> Iterator[Fault]:
    """Every axis stays in [0, extent) at the points that the predicates let pass."""
    for site in sites(func):
        block = site.block
        facts: Facts | None = None
        for it, binding in zip(block.iters, block.bindings, strict=True):
            low, high = binding.span(site.extents())
            if always(low >= 0) and always(high < it.extent):
                continue
            facts = facts or loop_facts(site)
            proved = facts.inside(facts.linear(binding), it.extent)
            if not proved and not within(site, binding, it.extent):
                yield Fault(
                    block,
                    f"block {block.name!r}: axis {it.var.name} is bound to {_text(binding)}, which "
                    f"reaches {low}..{high} and is not provably in [0, {it.extent})",
                    it.var.name,
                )


def magnitudes(func: PrimFunc) -> Iterator[Fault]:
    """No binding, predicate or index leaves the 64-bit integers on the way to its value."""
    limits = _Limits(func)
    for site in sites(func):
        block = site.block
        extents = {**loop_extents(site), **{i.var: i.extent for i in block.iters}}
        forms = [*block.bindings, *(p.form + p.bound for p in block.predicates)]
        for access in (*block.reads, *block.writes):
            forms += [i for i in access.indices if isinstance(i, Affine)]
        for form in forms:
            if _reach(form, extents, limits) > MAGNITUDE:
                yield Fault(
                    block,
                    f"block {block.name!r}: {_text(form)} may reach beyond 2**62 on the way to its "
                    "value",
                )


def _reach(form: Affine, extents: Extents, limits: _Limits) -> int:
    """Largest magnitude of the form, of its parts, and of what its digits are taken from."""
    total, inside = limits.of(form.const), 0
    for atom, c in form.terms:
        if isinstance(atom, Var):
            size = extents[atom]
            # A row of a parameter times its rows: both are large, but their product is limited.
            total += min(limits.of(c) * limits.of(size), limits.of(c * size))
            continue
        base = _reach(atom.base, extents, limits)
        inside = max(inside, base)
        most = limits.of(c) * (base if atom.mod is None else min(base, limits.of(atom.mod)))
        if isinstance(atom.div, Size) and divides(atom.div, c):
            # base // div * div is no further from base than div is from zero.
            most = min(most, limits.of(whole(c, atom.div)) * (base + limits.of(atom.div)))
        elif isinstance(c, Size) and divides(c, atom.div):
            most = min(most, base + limits.of(c))  # nor is base // (c * k) * c
        if most > MAGNITUDE:
            low, high = Affine.of(atom).span(extents)
            most = min(most, max(limits.of(c * low), limits.of(c * high)))
        total += most
    return max(total, inside)


class _Limits:
    """The largest magnitudes of numbers. Sizes are limited by memory, and so are products of sizes
    that count elements of a parameter; any other product is as large as it can be."""

    def __init__(self, func: PrimFunc) -> None:
        self.counted: list[Size] = []
        for b in func.params:
            count: Int = 1
            for n in b.shape:
                count = count * n
            if isinstance(count, Size):
                self.counted += [Size(0, ((m, 1),)) for m, c in count.terms if c > 0]

    def of(self, n: Int) -> int:
        if not isinstance(n, Size):
            return abs(int(n))
        return abs(n.const) + sum(abs(c) * self._product(m) for m, c in n.terms)

    def _product(self, monomial: Monomial) -> int:
        size = Size(0, ((monomial, 1),))
        if len(monomial) == 1 or any(exact_quotient(x, size) is not None for x in self.counted):
            return MAX_SIZE
        return int(MAX_SIZE ** len(monomial))


def bounds(func: PrimFunc) -> Iterator[Fault]:
    """Every access stays in its buffer, by its axes' extents, or by guards, or by predicates."""
    for site in sites(func):
        yield from _Bounds(site).faults()


class _Bounds:
    """The accesses of one block. What axes and guards do not show, loops and predicates may."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.block = site.block
        self.extents = {**loop_extents(site), **{i.var: i.extent for i in self.block.iters}}
        self.known: dict[tuple[bool, tuple[tuple[int, bool], ...]], list[Facts]] = {}

    def axes(self) -> Facts:
        """What the axes alone tell."""
        return Facts(self.extents, reads=self.block.reads)

    def faults(self) -> Iterator[Fault]:
        block = self.block
        seen: set[tuple[int, int]] = set()
        for access in block.writes:
            for n in range(len(access.indices)):
                if not self.holds(access, n, ()):
                    yield self.fault(access, n, (), "writes", WRITES)
            for index in access.indices:
                if not isinstance(index, Affine):
                    yield from self.reads_in(index, (), seen)
        for e in block.body:
            yield from self.reads_in(e, (), seen)

    def reads_in(self, e: Expr, guards: Guards, seen: set[tuple[int, int]]) -> Iterator[Fault]:
        """Faults of the reads below `e`, each under the conditions around it."""
        if isinstance(e, Slot):
            access = self.block.reads[e.index]
            for n, index in enumerate(access.indices):
                if (e.index, n) not in seen and not self.holds(access, n, guards):
                    seen.add((e.index, n))
                    yield self.fault(access, n, guards, "reads", READS)
                if not isinstance(index, Affine):
                    yield from self.reads_in(index, guards, seen)
        elif isinstance(e, Call):
            if e.op == "if_then_else":
                condition, yes, no = e.args
                yield from self.reads_in(condition, guards, seen)
                yield from self.reads_in(yes, (*guards, (condition, True)), seen)
                yield from self.reads_in(no, (*guards, (condition, False)), seen)
            else:
                for a in e.args:
                    yield from self.reads_in(a, guards, seen)

    def holds(self, access: Access, n: int, guards: Guards) -> bool:
        index, size = access.indices[n], access.buffer.shape[n]
        if isinstance(index, Affine):
            low, high = index.span(self.extents)
            if always(low >= 0) and always(high < size):
                return True
        return any(
            all(
                facts.inside(facts.linear(index), size)
                if isinstance(index, Affine)
                else facts.inside_expr(index, size)
                for facts in self.facts(over_loops, guards)
            )
            for over_loops in (False, True)
        )

    def facts(self, over_loops: bool, guards: Guards) -> list[Facts]:
        """What is known under the conditions, in each of the ways in which they may hold."""
        key = (over_loops, tuple((id(e), truth) for e, truth in guards))
        found = self.known.get(key)
        if found is None:
            if guards:
                outside = self.facts(over_loops, guards[:-1])
                found = [x for facts in outside for x in facts.cases(*guards[-1])]
                if len(found) > MOST_CASES:
                    found = [facts.given(*guards[-1]) for facts in outside]
            else:
                found = [loop_facts(self.site) if over_loops else self.axes()]
            self.known[key] = found
        return found

    def fault(self, access: Access, n: int, guards: Guards, verb: str, mark: str) -> Fault:
        index = access.indices[n]
        names = Names()
        inside = format_index(index, names, self.block.reads)
        spans = []
        for facts in self.facts(False, guards):
            form = facts.linear(index) if isinstance(index, Affine) else facts.of_expr(index)
            spans.append(facts.span(form))
        low, high = min(s[0] for s in spans), max(s[1] for s in spans)
        guarded = " where its conditions hold" if guards else ""
        return Fault(
            self.block,
            f"block {self.block.name!r} {verb} {format_access(access, names, self.block.reads)}: "
            f"index {n}, {inside}, reaches {low}..{high}{guarded} and is not provably in "
            f"[0, {access.buffer.shape[n]})",
            mark,
            self.ways(access, n, verb == "reads"),
        )

    def ways(self, access: Access, n: int, reads: bool) -> Ways | None:
        """How to keep inside what is not affine: the text of what stands there may be long, or
        read elements, and needs a condition at run time."""
        index = access.indices[n]
        if isinstance(index, Affine):
            return None
        names, size = Names(), str(access.buffer.shape[n])
        inside = format_expr(index, names, self.block.reads)
        if not reads:
            return Ways(inside, size)
        other = {"bool": "False"}.get(access.buffer.dtype, "0.0")
        if dtypes.is_int(access.buffer.dtype):
            other = "0"
        return Ways(inside, size, format_access(access, names, self.block.reads), other)


def loop_facts(site: Site) -> Facts:
    """Facts over the loops around a block: its axes are bound, its predicates hold."""
    values = site.block.values()
    return Facts(loop_extents(site), values, site.block.reads).where(site.block.predicates)


def loop_extents(site: Site) -> dict[Var, Int]:
    return {loop.var: loop.extent for loop in site.loops}


def _text(form: Affine) -> str:
    return format_index(form, Names(), ())

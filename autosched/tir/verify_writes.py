"""Rules on what the points of a block write, whatever the order of its loops. See `verify`.

Primitives take it that points of spatial axes may be visited in any order, that a reduction visits
all points of its reduction axes for an element, and that the first of them sets the element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from autosched.tir.affine import Affine, always
from autosched.tir.apart import injective
from autosched.tir.counted import takes_all_points, writes_once
from autosched.tir.expr import Expr, Slot, Var, walk
from autosched.tir.faults import WRITES, Fault
from autosched.tir.linear import DigitKey, Key, Linear, Product, SymbolicDigit, plus
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Iter,
    PrimFunc,
    Site,
    kind_vars,
    sites,
)
from autosched.tir.printer import Names, format_access, format_index
from autosched.tir.prove import Facts
from autosched.tir.region import common_loops
from autosched.tir.size_atoms import SizeVar
from autosched.tir.touch import Touch
from autosched.tir.verify_bounds import loop_extents
from autosched.tir.verify_order import at_instance
from autosched.tir.verify_races import Iterations, homes_of, never_meet


def distinct(func: PrimFunc) -> Iterator[Fault]:
    """Points of a block write different elements, or one value: the axes that an element does not
    tell apart are reduction axes, which combine, or sequential ones, which stay in order."""
    homes: dict[Buffer, tuple[For, ...]] | None = None
    for site in sites(func):
        block = site.block
        free = [it for it in block.iters if it.kind != "sequential"]
        if block.reducer is not None:
            free = [it for it in free if it.kind == "spatial"] if block.init else []
        plain = [it.var for it in free]
        for access in block.writes:
            written = {id(i.single_var()) for i in access.indices if isinstance(i, Affine)}
            if all(id(v) in written for v in plain):
                continue
            homes = homes or homes_of(func)
            still = [x.var for x in homes[access.buffer]]
            apart = _Points(site, still, plain).write_apart(access) or _tells(site, access, plain)
            if not (apart or (not func.sizes and writes_once(block, free, access))):
                yield _met(block, access, free)
                break


def _tells(site: Site, access: Access, axes: list[Var]) -> bool:
    """Whether an element tells which point of `axes` it is of."""
    forms = [i for i in access.indices if isinstance(i, Affine)]
    used = list(dict.fromkeys(v for form in forms for v in form.variables()))
    if not set(axes) <= set(used):
        return False
    extents = {**loop_extents(site), **{it.var: it.extent for it in site.block.iters}}
    return always(injective(forms, used, extents))


def _met(block: Block, access: Access, free: list[Iter]) -> Fault:
    index = format_access(access, Names(), block.reads)
    axes = ", ".join(it.var.name for it in free)
    if block.reducer is not None:
        advice = (
            "each would set the element anew; declare the axis that does not tell elements apart "
            "as one that is reduced, T.axis.reduce, or initialise the elements in a block before"
        )
    else:
        advice = (
            "which of them stays would hang on the order of loops; combine the values, over an "
            "axis of kind T.axis.reduce, or keep the order, by one of kind T.axis.sequential"
        )
    return Fault(
        block,
        f"block {block.name!r} writes {index}, which is not provably another element at each point "
        f"of {axes}: {advice}",
        WRITES,
    )


class _Points(Iterations):
    """Any two points of a block."""

    def __init__(self, site: Site, still: Iterable[Var], free: Iterable[Var]) -> None:
        self.block = site.block
        extents = {**loop_extents(site), **{it.var: it.extent for it in self.block.iters}}
        left = Facts(extents, reads=self.block.reads)
        super().__init__(left, Facts(extents, reads=self.block.reads), still, free)

    def write_apart(self, access: Access) -> bool:
        """Whether points that differ on the free axes write different elements, or one value."""
        if self.are_apart(access, access):
            return True
        ordered = any(it.kind == "sequential" for it in self.block.iters)
        if self.block.reducer is not None or ordered:
            return False
        return all(self._is_agreed(key) for e in self.block.body for key in self._deciding(e))

    def _deciding(self, e: Expr) -> Iterator[Key]:
        """What decides the value of an expression."""
        for x in walk(e):
            if isinstance(x, Var) and not isinstance(x, SizeVar):
                yield from self.left.linear(Affine.of(x)).terms
            elif isinstance(x, Slot):
                for index in self.block.reads[x.index].indices:
                    if isinstance(index, Affine):
                        yield from self.left.linear(index).terms
                    else:
                        yield from self._deciding(index)


def overwritten(func: PrimFunc) -> Iterator[Fault]:
    """Of two blocks in one loop, iterations of it, which primitives may exchange, write different
    elements, so that it does not hang on their order which value stays."""
    writers: dict[Buffer, list[tuple[Site, Access]]] = {}
    for site in sites(func):
        for access in site.block.writes:
            writers.setdefault(access.buffer, []).append((site, access))
    homes: dict[Buffer, tuple[For, ...]] | None = None
    for buffer, found in writers.items():
        for n, (first, one) in enumerate(found):
            for second, other in found[n + 1 :]:
                shared = common_loops([first, second])
                if not shared or first.block is second.block:
                    continue
                homes = homes or homes_of(func)
                ordered = kind_vars(first.block, "sequential")
                ordered &= kind_vars(second.block, "sequential")
                still = [x.var for x in homes[buffer]]
                free = [x for x in shared if x.var not in ordered and x.var not in still]
                sides = Touch(one, first, True), Touch(other, second, True)
                if not never_meet(*sides, still, free):
                    yield Fault(
                        second.block,
                        f"blocks {first.block.name!r} and {second.block.name!r} may write one "
                        f"element of {buffer.name} in different iterations of "
                        f"{', '.join(x.var.name for x in free)}, so that it hangs on their order "
                        "which value stays; give each block loops of its own, one nest after the "
                        "other",
                        WRITES,
                    )


def covered(func: PrimFunc) -> Iterator[Fault]:
    """The loops take a reduction over all points of its reduction axes for each element, and where
    it sets the element, over the first point first."""
    yield from at_instance(func, _covered)


def _covered(func: PrimFunc) -> Iterator[Fault]:
    for site in sites(func):
        block = site.block
        if block.reducer is None or all(it.kind != "reduce" for it in block.iters):
            continue
        if not _is_usual(site):
            wrong = _Reduction(site).fault()
            if wrong and not takes_all_points(site):
                yield Fault(block, f"block {block.name!r}: {wrong}")


def _is_usual(site: Site) -> bool:
    """Whether every axis has a loop of its own, which visits all of it."""
    extents = site.extents()
    used: set[Var] = set()
    for it, binding in zip(site.block.iters, site.block.bindings, strict=True):
        v = binding.single_var()
        if v is None or v in used or int(extents[v]) != int(it.extent):
            return False
        used.add(v)
    return not site.block.predicates


class _Reduction:
    """The bindings of a reduction, as sums of atoms: loops, and digits of what loops count."""

    def __init__(self, site: Site) -> None:
        self.site, self.block = site, site.block
        self.facts = Facts(loop_extents(site))
        self.place = {id(x.var): n for n, x in enumerate(site.loops)}
        self.names = {id(x.var): x.var.name for x in site.loops}

    def fault(self) -> str | None:
        """What is wrong, or None."""
        pairs = list(zip(self.block.iters, self.block.bindings, strict=True))
        reduced: list[Key] = []
        others: list[Key] = []
        for it, binding in pairs:
            form = self._form(binding)
            if it.kind != "reduce":
                others += form.terms
                continue
            clash = self._shared([*reduced, *others], form.terms)
            wrong = clash or self._partial(it, form)
            if wrong:
                return f"axis {it.var.name} is bound to {_text(binding)}, {wrong}"
            reduced += form.terms
        for it, binding in pairs:
            if it.kind != "reduce":
                clash = self._shared(reduced, self._form(binding).terms)
                if clash:
                    return f"axis {it.var.name} is bound to {_text(binding)}, {clash}"
        for p in self.block.predicates:
            if self.block.init and not self._lets_first(self._form(p.form), reduced):
                return (
                    f"the condition on {_text(p.form)} may skip the first point of the reduction, "
                    "which sets the element; skip points by T.if_then_else around the value"
                )
        return None

    def _form(self, form: Affine) -> Linear:
        """A form over atoms that are loops, where digits can be taken apart into such."""
        return self._spread(self.facts.linear(form))

    def _spread(self, form: Linear) -> Linear:
        out = Linear(form.const, {})
        for key, c in form.terms.items():
            parts = self._digits(key) if isinstance(key, DigitKey) else None
            out = plus(out, Linear(0, {key: 1}) if parts is None else self._spread(parts), c)
        return out

    def _digits(self, key: DigitKey) -> Linear | None:
        """`(upper * step + lower) // div % mod`, `lower` being below `step`, by parts; None where
        the base has none."""
        if len(key.terms) < 2:
            return None
        upper: dict[Key, int] = {}
        lower = dict(key.terms)
        whole = key.div * (key.mod or 1)
        step = 0
        for k, c in sorted(key.terms, key=lambda term: -abs(term[1])):
            upper[k] = lower.pop(k)
            step = gcd(step, c)
            low, high = self.facts.span(Linear(key.const, lower))
            if not lower or low < 0 or high >= step:
                continue
            over = Linear(0, {a: n // step for a, n in upper.items()})
            if key.div % step == 0:
                return self.facts.digit(over, key.div // step, key.mod)
            if key.mod is not None and key.div == 1 and whole % step == 0:
                rest = self.facts.digit(over, 1, whole // step)
                return plus(Linear(key.const, lower), rest, step)
        return None

    def _partial(self, it: Iter, form: Linear) -> str | None:
        """Why a reduction axis does not take all its values, beginning with 0."""
        reach = 0
        for key, c in sorted(form.terms.items(), key=lambda term: abs(term[1])):
            if c < 0 or not self._counts(key):
                return self._begin("which does not provably count up from 0")
            if c > reach + 1:
                return f"which leaves out values; it must take all from 0 to {it.extent} - 1"
            reach += c * self.facts.range(key)[1]
        if form.const:
            return self._begin(f"which begins at {form.const}")
        if reach < int(it.extent) - 1:
            return (
                f"which takes {reach + 1} of its {it.extent} values; the extent of an axis is the "
                "number of its points, and all are combined"
            )
        return None

    def _begin(self, what: str) -> str:
        advice = "a reduction axis begins at 0, where the element is set"
        return f"{what}; {advice}, so put the rest into the indices"

    def _counts(self, key: Key) -> bool:
        """Whether an atom is 0 at first and takes all values from there, in this order."""
        if not isinstance(key, DigitKey):
            return key in self.place
        if key.const:
            return False
        reach, inner = 0, len(self.place)
        for part, c in sorted(key.terms, key=lambda term: term[1]):
            if c < 0 or c > reach + 1 or not self._counts(part):
                return False
            if len(key.terms) > 1:  # in the order of loops, too
                place = min(self.place[v] for v in _variables(part))
                if c != reach + 1 or place >= inner:
                    return False
                inner = place
            reach += c * self.facts.range(part)[1]
        return True

    def _shared(self, taken: Iterable[Key], keys: Iterable[Key]) -> str | None:
        """What two axes have in common of which one is reduced."""
        for mine in keys:
            for other in taken:
                common = _variables(mine) & _variables(other)
                if common and not _are_apart(mine, other):
                    names = ", ".join(sorted(self.names[v] for v in common))
                    return (
                        f"and another axis is bound to {names} too; the loops of a reduction axis "
                        "are its own, so that it takes all its values for each of the others'"
                    )
        return None

    def _lets_first(self, form: Linear, reduced: list[Key]) -> bool:
        """Whether a condition that holds at a point holds at the first of its reduction."""
        moved = {v for key in reduced for v in _variables(key)}
        for key, c in form.terms.items():
            mine = _variables(key)
            if not mine & moved:
                continue
            if all(_are_apart(key, r) for r in reduced if _variables(r) & mine):
                continue  # the same at all points of one element
            if c < 0:
                return False
            wraps = isinstance(key, DigitKey) and key.mod is not None and key not in reduced
            if wraps and not any(_is_part(key, r) for r in reduced):
                return False
        return True


def _variables(key: Key) -> set[int]:
    """Ids of the loop variables in an atom."""
    if isinstance(key, (DigitKey, SymbolicDigit)):
        return {v for k, _ in key.terms for v in _variables(k)}
    if isinstance(key, Product):
        return {v for k in key.factors for v in _variables(k)}
    return {key} if isinstance(key, int) else set()


def _are_apart(a: Key, b: Key) -> bool:
    """Whether these are different digits of one number."""
    if not isinstance(a, DigitKey) or not isinstance(b, DigitKey):
        return False
    if (a.const, a.terms) != (b.const, b.terms):
        return False
    low, high = (a, b) if a.div <= b.div else (b, a)
    return low.mod is not None and high.div % (low.div * low.mod) == 0


def _is_part(a: Key, b: Key) -> bool:
    """Whether `a` is a digit of the digit `b`: 0 wherever that is."""
    if not isinstance(a, DigitKey) or not isinstance(b, DigitKey) or a.mod is None:
        return False
    if (a.const, a.terms) != (b.const, b.terms) or a.div % b.div:
        return False
    return b.mod is None or (b.div * b.mod) % (a.div * a.mod) == 0


def _text(form: Affine) -> str:
    return format_index(form, Names(), ())

"""Proving integer inequalities: is an index in bounds, is a predicate always true?

`Facts` makes linear forms over atoms of what stands in a program, and knows inequalities between
the atoms (`inequalities.py`). Digits `(x // d) % m` count as atoms tied to their base
(`digit_atoms.py`). What is not affine (a value read from memory, a minimum) is an opaque atom with
a range. Populations are not proved, their members are. A symbolic size is
one more atom, from 1 to MAX_SIZE; a product of it with something else is an opaque atom between
products of bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from autosched.tir import dtypes
from autosched.tir.affine import Affine, Atom, Digit, Int, always
from autosched.tir.cases import MOST_CASES, ways_of
from autosched.tir.digit_atoms import Digits
from autosched.tir.expr import Call, Const, Expr, Slot, Var, as_arithmetic
from autosched.tir.inequalities import INFINITE, check_time
from autosched.tir.linear import DigitKey, Key, Linear, Product, SymbolicDigit, as_key, plus
from autosched.tir.nodes import Access, Predicate
from autosched.tir.size import MAX_SIZE, Quotient, Size
from autosched.tir.size_atoms import SizeVar, Undecided


class Facts(Digits):
    """What is known where an expression stands.

    `extents`: each variable runs over [0, extent). `values` binds further variables to forms of
    those. `reads` are the accesses of the block, which tell slots apart.
    """

    def __init__(
        self,
        extents: Mapping[Var, Int],
        values: Mapping[Var, Affine] | None = None,
        reads: tuple[Access, ...] = (),
    ) -> None:
        super().__init__()
        self._reads = reads
        self._told: dict[Key, tuple[int, int]] = {}
        self._values: dict[int, Linear] = {}
        self._tops: dict[Key, Size] = {}
        self.sizes: set[Key] = set()
        """Atoms that are symbolic sizes."""
        for v, n in extents.items():
            if isinstance(n, Size):
                extent = self.size(n)
                self._ranges[id(v)] = (0, self.span(extent)[1] - 1)
                self._tops[id(v)] = n - 1
                self._add(plus(Linear(1, {id(v): 1}), extent, -1), 0)
            else:
                self._ranges[id(v)] = (0, int(n) - 1)
                if n == 1:  # digits of one number are then seen to be so
                    self._values[id(v)] = Linear(0, {})
        for v, form in (values or {}).items():
            self._values[id(v)] = self.linear(form)

    def copy(self) -> Self:
        """Facts to which more can be added."""
        new = super().copy()
        new._reads, new._values = self._reads, self._values
        new._told = dict(self._told)
        new._tops, new.sizes = self._tops, self.sizes
        return new

    # -- adding facts

    def where(self, predicates: Iterable[Predicate]) -> Facts:
        """These facts and the predicates of a block."""
        new = self.copy()
        every = tuple(predicates)
        # Twice where one may tell the range in which a digit of another one has a simpler form.
        for p in every * min(len(every), 2):
            new._add(plus(new.linear(p.form), new.size(p.bound), -1), -1)
        return new

    def given(self, condition: Expr, truth: bool = True) -> Facts:
        """These facts and that `condition` is true (or false); what it tells beyond conjunctions of
        integer comparisons is not used."""
        new = self.copy()
        new._assume(condition, truth)
        return new

    def cases(self, condition: Expr, truth: bool = True) -> list[Facts]:
        """`given`, once for each way in which `condition` may be true (or false): what holds in all
        of them holds. At most MOST_CASES, the ways beyond being one."""
        ways = ways_of(condition, truth)
        if len(ways) == 1 or len(ways) > MOST_CASES:
            return [self.given(condition, truth)]
        found = []
        for way in ways:
            facts = self.copy()
            for e, holds in way:
                facts._assume(e, holds)
            if not facts.impossible:
                found.append(facts)
        return found

    def _assume(self, e: Expr, truth: bool) -> None:
        if isinstance(e, Const):
            self.impossible |= bool(e.value) != truth
            return
        if not isinstance(e, Call):
            return
        if e.op == "not":
            self._assume(e.args[0], not truth)
        elif e.op == ("and" if truth else "or"):
            for a in e.args:
                self._assume(a, truth)
        elif e.op in _NEGATED and dtypes.is_int(e.args[0].dtype):
            op = e.op if truth else _NEGATED[e.op]
            left, right = self.of_expr(e.args[0]), self.of_expr(e.args[1])
            if op in ("lt", "le", "eq"):
                self._add(plus(left, right, -1), -1 if op == "lt" else 0)
            if op in ("gt", "ge", "eq"):
                self._add(plus(right, left, -1), -1 if op == "gt" else 0)

    # -- forms

    def linear(self, form: Affine) -> Linear:
        """An affine form over the atoms known here, digits simplified."""
        out = self.size(form.const)
        for atom, c in form.terms:
            if isinstance(c, Size):
                out = plus(out, self._times(self._atom(atom), c))
            else:
                out = plus(out, self._atom(atom), int(c))
        return self.join(out)

    def _atom(self, atom: Atom) -> Linear:
        if isinstance(atom, Digit):
            if isinstance(atom.div, Size) or isinstance(atom.mod, Size):
                return self._symbolic_digit(atom)
            mod = None if atom.mod is None else int(atom.mod)
            return self._digit(self.linear(atom.base), int(atom.div), mod)
        if isinstance(atom, SizeVar):
            return self.size(Size.of(atom))
        bound = self._values.get(id(atom))
        return Linear(0, {id(atom): 1}) if bound is None else bound

    def size(self, n: Int) -> Linear:
        """A number as a linear form over the size variables."""
        if not isinstance(n, Size):
            return Linear(int(n), {})
        out = Linear(n.const, {})
        for monomial, c in n.terms:
            part = Linear(1, {})
            for k, atom in enumerate(monomial):
                if isinstance(atom, Quotient):
                    factor = self._digit(self.size(atom.base), atom.div, None)
                else:
                    self._ranges.setdefault(id(atom), (1, MAX_SIZE))
                    self.sizes.add(id(atom))
                    factor = Linear(0, {id(atom): 1})
                part = self._product(part, factor) if k else factor
            out = plus(out, part, c)
        return out

    def _times(self, form: Linear, n: Size) -> Linear:
        """`form * n`. What is known of a loop's variable, that it is below its extent, holds times
        `n` as well."""
        factor = self.size(n)
        out = self._product(form, factor)
        for key in form.terms if always(n >= 0) else ():
            top = self._tops[key] if key in self._tops else self.range(key)[1]
            product = self._product(Linear(0, {key: 1}), factor)
            self._add(plus(product, self.size(n * top), -1), 0)
        return out

    def _product(self, a: Linear, b: Linear) -> Linear:
        """`a * b`; products of atoms become atoms."""
        out = Linear(0, {})
        for x, c in (*a.terms.items(), (None, a.const)):
            for y, d in (*b.terms.items(), (None, b.const)):
                if not c * d:
                    continue
                keys = [k for k in (x, y) if k is not None]
                if len(keys) < 2:
                    part = Linear(0, {keys[0]: 1}) if keys else Linear(1, {})
                else:
                    part = Linear(0, {self._pair(keys[0], keys[1]): 1})
                out = plus(out, part, c * d)
        return out

    def product(self, factors: Iterable[Key], c: int) -> Linear:
        """`c` times the product of atoms."""
        out = Linear(c, {})
        for key in factors:
            out = self._product(out, Linear(0, {key: 1}))
        return out

    def _pair(self, x: Key, y: Key) -> Key:
        """The atom `x * y`."""
        factors = [f for k in (x, y) for f in (k.factors if isinstance(k, Product) else (k,))]
        key: Key = Product(tuple(sorted(factors, key=repr)))
        if key not in self._ranges:
            (a, b), (c, d) = self.range(x), self.range(y)
            ends = (a * c, a * d, b * c, b * d)
            self._ranges[key] = (min(ends), max(ends))
        return key

    def _symbolic_digit(self, atom: Digit) -> Linear:
        """A digit of symbolic divisor or modulus: from 0 to its modulus or what its base allows."""
        base = self.linear(atom.base)
        div, mod = self.size(atom.div), None if atom.mod is None else self.size(atom.mod)
        key: Key = SymbolicDigit(as_key(base), as_key(div), None if mod is None else as_key(mod))
        low, high = self.span(base)
        if low < 0:
            self._ranges.setdefault(key, (-INFINITE, INFINITE))
            return Linear(0, {key: 1})
        if key not in self._ranges:
            self._ranges[key] = (0, high)
            form = Linear(0, {key: 1})
            self._add(plus(form, base, -1), 0)
            if mod is not None:
                self._add(plus(form, mod, -1), -1)
            else:
                # key * div <= base, and base is below its variables' extents.
                top = self._top_of(atom)
                if top is not None:
                    self._add(plus(form, self.size(top), -1), 0)
        return Linear(0, {key: 1})

    def _top_of(self, atom: Digit) -> Int | None:
        """The highest value of `base // div` where that is a simple form."""
        extents = {v: self._tops[id(v)] + 1 for v in atom.variables() if id(v) in self._tops}
        if any(v not in extents for v in atom.variables()):
            return None
        try:
            return atom.base.span(extents)[1] // atom.div
        except Undecided:
            return None

    def of_expr(self, e: Expr) -> Linear:
        """An integer expression as a linear form; parts that are not linear become opaque atoms."""
        if isinstance(e, Var):
            return self._atom(e)
        if isinstance(e, Const):
            return Linear(int(e.value), {})
        if isinstance(e, Call) and dtypes.is_int(e.dtype):
            found = self._of_call(e)
            # What overflows when it is computed is not what arithmetic says.
            if found is not None and self._fits(found, e.dtype):
                return found
        return self._opaque(e)

    def _fits(self, form: Linear, dtype: str) -> bool:
        low, high = self.span(form)
        return dtypes.minimum(dtype) <= low and high <= dtypes.maximum(dtype)

    def _of_call(self, e: Call) -> Linear | None:
        if e.op == "cast":
            return self.of_expr(e.args[0]) if dtypes.is_int(e.args[0].dtype) else None
        if e.op in ("select", "if_then_else"):
            return self._choice(e)
        e = as_arithmetic(e)
        args = [self.of_expr(a) for a in e.args] if e.op in _INTEGER_OPS else []
        if e.op == "neg":
            return plus(Linear(0, {}), args[0], -1)
        if e.op in ("add", "sub"):
            return self.join(plus(args[0], args[1], 1 if e.op == "add" else -1))
        if e.op == "mul":
            return self._multiplied(*args)
        if e.op in ("floordiv", "floormod"):
            return self._divided(e, *args)
        if e.op in ("min", "max"):
            sign = 1 if e.op == "min" else -1
            spans = [self.span(a) for a in args]
            pick = min if e.op == "min" else max
            reach = pick(s[0] for s in spans), pick(s[1] for s in spans)
            # min <= a, or a <= max
            return self._between(e, reach, [(sign, plus(Linear(0, {}), a, -sign)) for a in args])
        if e.op == "abs":
            low, high = self.span(args[0])
            return args[0] if low >= 0 else self._between(e, (0, max(-low, high)))
        return None

    def _between(
        self, e: Expr, reach: tuple[int, int], below: Iterable[tuple[int, Linear]] = ()
    ) -> Linear | None:
        """`e` as an atom with a range; for each (c, rest) of `below`, `c * e + rest <= 0`. None
        where it may overflow: the magnitude of the least integer has no number in its dtype."""
        if reach[0] < dtypes.minimum(e.dtype) or reach[1] > dtypes.maximum(e.dtype):
            return None
        key = ("opaque", *self._signature(e))
        self._ranges[key] = reach
        if key not in self._told:
            self._told[key] = reach
            for c, rest in below:
                self._add(plus(rest, Linear(0, {key: c})), 0)
        return Linear(0, {key: 1})

    def _multiplied(self, a: Linear, b: Linear) -> Linear:
        """`a * b`, no further than the ends of `a` and `b` allow."""
        if not a.terms or not b.terms:
            return self._product(a, b)
        form = self._product(a, b)
        (p, q), (r, s) = self.span(a), self.span(b)
        ends = (p * r, p * s, q * r, q * s)
        low, high = min(ends), max(ends)
        if a == b:
            low = max(low, 0)
        key = ("product", as_key(form))
        if self._told.get(key) != (low, high):
            self._told[key] = (low, high)
            self._add(form, high)
            self._add(plus(Linear(0, {}), form, -1), -low)
        return form

    def _divided(self, e: Call, a: Linear, b: Linear) -> Linear | None:
        """`a // b` or `a % b`, where `b` is positive."""
        if not b.terms and b.const > 0:
            n = b.const
            return self._digit(a, n, None) if e.op == "floordiv" else self._digit(a, 1, n)
        if not self.at_most(plus(Linear(1, {}), b, -1), 0):
            return None
        if e.op == "floormod":  # a % b < b
            reach = 0, self.span(b)[1] - 1
            return self._between(e, reach, [(1, plus(Linear(1, {}), b, -1))])
        low, high = self.span(a)
        below = [(1, plus(Linear(0, {}), a, -1))] if low >= 0 else []
        return self._between(e, (min(low, 0), max(high, 0)), below)

    def _choice(self, e: Call) -> Linear:
        """A choice reaches what its two values reach, each where the condition says so."""
        check_time()
        condition, yes, no = e.args
        spans = [
            facts.span(facts.of_expr(value))
            for value, truth in ((yes, True), (no, False))
            for facts in self.cases(condition, truth)
            if not facts.impossible
        ]
        key = ("opaque", *self._signature(e))
        if spans:
            self._ranges[key] = (min(s[0] for s in spans), max(s[1] for s in spans))
        else:
            self._ranges.setdefault(key, (0, 0))  # this point is never reached
        return Linear(0, {key: 1})

    def _opaque(self, e: Expr) -> Linear:
        check_time()
        key = ("opaque", *self._signature(e))
        source = e.args[0].dtype if isinstance(e, Call) and e.op == "cast" else e.dtype
        dtype = "bool" if source == "bool" else e.dtype
        low, high = dtypes.minimum(dtype), dtypes.maximum(dtype)
        self._ranges.setdefault(key, (int(low), int(high)))
        return Linear(0, {key: 1})

    def _signature(self, e: Expr) -> tuple[Key, ...]:
        """Equal for expressions that have one value."""
        if isinstance(e, Var):
            return ("var", id(e))
        if isinstance(e, Const):
            return ("const", repr(e.value), e.dtype)
        if isinstance(e, Slot):
            if e.index >= len(self._reads):
                return ("slot", e.index)
            access = self._reads[e.index]
            parts = []
            for i in access.indices:
                form = self.linear(i) if isinstance(i, Affine) else self.of_expr(i)
                parts.append((form.const, frozenset(form.terms.items())))
            return ("read", id(access.buffer), *parts)
        if isinstance(e, Call):
            return (e.op, e.dtype, *(self._signature(a) for a in e.args))
        return ("expr", id(e))

    # -- answers

    def inside_expr(self, e: Expr, extent: Int) -> bool:
        """Whether `0 <= e < extent` is proved; of a choice, each value where it is the one."""
        if self.inside(self.of_expr(e), extent):
            return True
        if not isinstance(e, Call) or e.op not in ("select", "if_then_else", "min", "max"):
            return False
        top = plus(self.size(extent), Linear(1, {}), -1)
        return self._bounded(e, 1, top) and self._bounded(e, -1, Linear(0, {}))

    def _bounded(self, e: Expr, sign: int, bound: Linear) -> bool:
        """Whether `sign * e <= bound` is proved, `sign` being 1 or -1."""
        if self.at_most(plus(plus(Linear(0, {}), self.of_expr(e), sign), bound, -1), 0):
            return True
        if not isinstance(e, Call):
            return False
        if e.op in ("select", "if_then_else"):
            condition, yes, no = e.args
            return all(
                facts._bounded(value, sign, bound)
                for value, truth in ((yes, True), (no, False))
                for facts in self.cases(condition, truth)
            )
        if e.op in ("min", "max"):
            enough = any if (e.op == "min") == (sign == 1) else all
            return enough(self._bounded(a, sign, bound) for a in e.args)
        return False

    def inside(self, form: Linear, extent: Int) -> bool:
        """Whether `0 <= form < extent` is proved."""
        if len(form.terms) == 1 and not form.const:
            ((key, c),) = form.terms.items()
            if c == 1 and isinstance(key, SymbolicDigit) and key.mod is None:
                # 0 <= base // div < extent, where 0 <= base < div * extent.
                base, div = (Linear(x, dict(terms)) for x, terms in (key.base, key.div))
                beyond = plus(base, self._product(div, self.size(extent)), -1)
                return self.at_most(beyond, -1) and self.at_most(plus(Linear(0, {}), base, -1), 0)
        if not isinstance(extent, Size):
            return self.within(form, 0, int(extent) - 1)
        below = plus(form, self.size(extent), -1)
        if not self.at_most(plus(Linear(0, {}), form, -1), 0):
            return False
        return self.at_most(below, -1) or self._scaled(below).at_most(below, -1)

    def _scaled(self, form: Linear) -> Facts:
        """These facts, and each times a symbolic size where the form has all its terms so."""
        bases = [k.base for k in form.terms if isinstance(k, DigitKey)]
        products = [k for f in (form, *bases) for k in f.terms if isinstance(k, Product)]
        facts = self.copy()
        for n in {k for p in products for k in p.factors if k in self.sizes}:
            for fact in self._known:
                if all(self._pair(n, k) in products for k in fact.terms):
                    times = self._product(Linear(-fact.bound, fact.terms), Linear(0, {n: 1}))
                    facts._add(times, 0)
        return facts


_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_INTEGER_OPS = ("neg", "add", "sub", "mul", "floordiv", "floormod", "min", "max", "abs")

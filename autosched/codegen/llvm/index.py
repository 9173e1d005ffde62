"""Index arithmetic: affine forms of loop variables to i64 values, with unrolled loops as constants
and the vectorised loop as a step between lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.types import Value, splat, type_of
from autosched.tir.affine import Affine, Digit, Int
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, strides
from autosched.tir.size import Quotient, Size
from autosched.tir.size_atoms import SizeVar


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vectorised loop at this point: lane n stands for `var = base + n`, where `base` is
    `env[var]`. Only the first `active` lanes exist; where a symbolic extent ends that is an i64
    name."""

    var: Var
    width: int
    active: int | str

    @property
    def partial(self) -> bool:
        """Whether some lanes do not exist."""
        return isinstance(self.active, str) or self.active < self.width


def lanes_of(var: Var, width: int, active: int | str) -> Lanes | None:
    """Lanes of a vector; None for one of a single lane, which is a scalar and typed as such."""
    return Lanes(var, width, active) if width > 1 else None


def chunks(extent: int, width: int) -> list[tuple[int, int, int]]:
    """(offset, lanes, active lanes) that cover `extent`; the last may be narrower or partial."""
    out = [(n * width, width, width) for n in range(extent // width)]
    rest = extent % width
    if rest:
        out.append((extent - rest, 1 << (rest - 1).bit_length(), rest))
    return out


def flat_form(access: Access) -> Affine | None:
    """Offset in elements from the buffer's start as one form; None where an index is not affine or
    a row's length is symbolic."""
    total = Affine()
    for index, stride in zip(
        access.indices, strides(access.buffer.shape, access.buffer.align), strict=True
    ):
        if not isinstance(index, Affine) or isinstance(stride, Size):
            return None
        total = total + index * stride
    return total


@dataclass(slots=True)
class Linear:
    """`const + sum(coefficient * name) + step * lane + offsets[lane] (+ vector)`; names are i64 SSA
    values, `vector` a `<width x i64>` for what is neither linear in the lane nor known."""

    const: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    step: int = 0
    vector: str | None = None
    offsets: tuple[int, ...] = ()
    """One number a lane, the first 0, where lanes are not evenly spaced; `step` is 0 then."""

    def add(self, name: str, coefficient: int) -> None:
        """Add `coefficient * name`."""
        self.terms[name] = self.terms.get(name, 0) + coefficient

    @property
    def varies(self) -> bool:
        """Whether lanes differ."""
        return self.step != 0 or self.vector is not None or bool(self.offsets)

    def lane(self, n: int) -> int:
        """What is known of a lane: all but the terms and `vector`."""
        return self.const + self.step * n + (self.offsets[n] if self.offsets else 0)

    def move(self, offsets: Sequence[int]) -> None:
        """Add a number to each lane. Lanes that are evenly spaced then have a step again, as those
        of `x // 4 * 4 + x % 4` have."""
        lanes = [self.lane(n) + offset for n, offset in enumerate(offsets)]
        self.const, self.step = lanes[0], lanes[-1] - lanes[-2] if len(lanes) > 1 else 0
        if all(x == self.const + self.step * n for n, x in enumerate(lanes)):
            self.offsets = ()
        else:
            self.step, self.offsets = 0, tuple(x - self.const for x in lanes)


class Indexer:
    """Evaluates affine forms in the current environment of a function being written."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.env: dict[Var, int | str] = {}
        self.lanes: Lanes | None = None
        self.masks: set[str] = set()
        """Names of lane masks that `below` returned; its other names are single i1 values."""
        self.held: set[int] = set()
        """Comparisons (by id) that the loops guarantee here: as of `failed`, what holds in one
        block is told by id alone, so no comparison object may stand in two blocks."""
        self.failed: set[int] = set()
        """Comparisons (by id) that hold for none of the iterations here."""
        self.signed: set[str] = set()
        """Names of quotients that may be negative; other names never are."""
        self.sizes: dict[SizeVar, str] = {}
        """Values of the symbolic sizes, known from the head of the function on."""

    def number(self, n: Int) -> int | str:
        """A number as a Python int or, where it is symbolic, an i64 name."""
        if not isinstance(n, Size):
            return int(n)
        out = Linear()
        self._add_number(out, n)
        return self.scalar(out)

    def _add_number(self, out: Linear, n: Int) -> None:
        if not isinstance(n, Size):
            out.const += int(n)
            return
        out.const += n.const
        for monomial, c in n.terms:
            product: str | None = None
            for atom in monomial:
                if isinstance(atom, Quotient):
                    factor = self._floor(str(self.number(atom.base)), atom.div, None, 1)
                else:
                    factor = self.sizes[atom]
                product = self._times(product, factor)
            assert product is not None
            out.add(product, c)

    def _times(self, a: str | None, b: str) -> str:
        return b if a is None else self.b.op(f"mul nsw i64 {a}, {b}")

    def add_scaled(self, out: Linear, part: Linear, factor: Int) -> None:
        """Add `factor * part` to `out`."""
        if isinstance(factor, Size):
            self._add_number(out, factor * part.const)
            if not (any(part.terms.values()) or part.varies):
                return
            name = str(self.number(factor))
            for term, c in part.terms.items():
                if c:
                    out.add(self._times(term, name), c)
            if part.varies:
                assert self.lanes is not None
                lanes = self.vector(Linear(0, {}, part.step, part.vector, part.offsets))
                wide = self.splat(name, "i64", self.lanes.width)
                self._add_vector(out, self.b.op(f"mul <{self.lanes.width} x i64> {lanes}, {wide}"))
            return
        factor = int(factor)
        out.const += factor * part.const
        for term, c in part.terms.items():
            out.add(term, factor * c)
        if part.offsets or out.offsets:
            assert self.lanes is not None
            out.move([factor * (part.lane(n) - part.const) for n in range(self.lanes.width)])
        else:
            out.step += factor * part.step
        if part.vector is not None:
            scaled = part.vector
            if factor != 1:
                assert self.lanes is not None
                width = self.lanes.width
                scaled = self.b.op(f"mul <{width} x i64> {scaled}, splat (i64 {factor})")
            self._add_vector(out, scaled)

    def _add_vector(self, out: Linear, vector: str) -> None:
        if out.vector is not None:
            assert self.lanes is not None
            vector = self.b.op(f"add <{self.lanes.width} x i64> {out.vector}, {vector}")
        out.vector = vector

    def linear(self, form: Affine, values: Mapping[Var, str] | None = None) -> Linear:
        """The value of a form. `values` overrides variables (clamped axes)."""
        out = Linear()
        self._add_number(out, form.const)
        env, moving = self.env, None if self.lanes is None else self.lanes.var
        for atom, c in form.terms:
            if isinstance(c, Size):
                self.add_scaled(out, self.linear(Affine.of(atom), values), c)
                continue
            c = int(c)
            if not isinstance(atom, Var):
                self._digit(atom, c, out, values)
                continue
            if values and atom in values:
                out.add(values[atom], c)
                continue
            known = env[atom]
            if isinstance(known, int):
                out.const += c * known
            else:
                out.add(known, c)
            if atom is moving:
                self.add_scaled(out, Linear(step=1), c)
        return out

    def _digit(self, d: Digit, c: int, out: Linear, values: Mapping[Var, str] | None) -> None:
        base = self.linear(d.base, values)
        div, mod = self.number(d.div), None if d.mod is None else self.number(d.mod)
        if base.varies:
            assert self.lanes is not None
            width = self.lanes.width
            plain = base.vector is None and not any(base.terms.values())
            if plain and isinstance(div, int) and not isinstance(mod, str):
                quotients = [base.lane(n) // div for n in range(width)]
                part = Linear()
                part.move([q if mod is None else q % mod for q in quotients])
            else:
                carried = self._carried(base, div, mod, width)
                part = carried or Linear(vector=self._floor(self.vector(base), div, mod, width))
            self.add_scaled(out, part, c)
        elif not base.terms and isinstance(div, int) and not isinstance(mod, str):
            value = base.const // div
            out.const += c * (value if mod is None else value % mod)
        else:
            name = self._floor(self.scalar(base), div, mod, 1)
            if mod is None and self.may_fall(base):
                self.signed.add(name)
            out.add(name, c)

    def _carried(
        self, base: Linear, div: int | str, mod: int | str | None, width: int
    ) -> Linear | None:
        """A digit of lanes that pass at most one multiple: the first lane's, and a carry. Only
        that lane is divided, since processors divide vectors of i64 lane by lane. None where lanes
        reach further, or shifts and masks do."""
        if base.vector is not None or base.offsets or isinstance(div, str) or isinstance(mod, str):
            return None
        whole = div if div > 1 or mod is None else mod
        if abs(base.step) * (width - 1) > whole or all(n & (n - 1) == 0 for n in (div, mod or 1)):
            return None
        up, first, op = base.step > 0, self.scalar(base), self.b.op
        t, mask = f"<{width} x i64>", f"<{width} x i1>"
        rest = self._floor(first, 1, whole, 1)
        lanes = self.vector(Linear(0, {rest: 1}, base.step))
        past = op(f"icmp {'sge' if up else 'slt'} {t} {lanes}, splat (i64 {whole if up else 0})")
        if div == 1:
            turned = op(f"add {t} {lanes}, splat (i64 {-whole if up else whole})")
            return Linear(vector=op(f"select {mask} {past}, {t} {turned}, {t} {lanes}"))
        carry = op(f"{'zext' if up else 'sext'} {mask} {past} to {t}")
        quotient = self._floor(first, div, mod, 1)
        if mod is None:
            if self.may_fall(base):
                self.signed.add(quotient)
            return Linear(terms={quotient: 1}, vector=carry)
        sums = op(f"add {t} {self.splat(quotient, 'i64', width)}, {carry}")
        over = op(f"icmp eq {t} {sums}, splat (i64 {mod if up else -1})")
        turned = f"splat (i64 {0 if up else mod - 1})"
        return Linear(vector=op(f"select {mask} {over}, {t} {turned}, {t} {sums}"))

    def may_fall(self, value: Linear) -> bool:
        """Whether a part of a value that is known from 0 up may be negative."""
        return value.const < 0 or any(c < 0 or n in self.signed for n, c in value.terms.items())

    def _floor(self, value: str, div: int | str, mod: int | str | None, width: int) -> str:
        """`(value // div) % mod`, rounding to minus infinity."""
        t = "i64" if width == 1 else f"<{width} x i64>"

        def k(n: int | str) -> str:
            if width == 1:
                return str(n)
            return self.splat(str(n), "i64", width)

        if div != 1:
            if isinstance(div, int) and div & (div - 1) == 0:
                value = self.b.op(f"ashr {t} {value}, {k(div.bit_length() - 1)}")
            else:
                quotient = self.b.op(f"sdiv {t} {value}, {k(div)}")
                rest = self.b.op(f"srem {t} {value}, {k(div)}")
                value = self.b.op(f"add {t} {quotient}, {self.b.op(f'ashr {t} {rest}, {k(63)}')}")
        if mod is not None:
            if isinstance(mod, int) and mod & (mod - 1) == 0:
                value = self.b.op(f"and {t} {value}, {k(mod - 1)}")
            else:
                rest = self.b.op(f"srem {t} {value}, {k(mod)}")
                wrap = self.b.op(f"and {t} {self.b.op(f'ashr {t} {rest}, {k(63)}')}, {k(mod)}")
                value = self.b.op(f"add {t} {rest}, {wrap}")
        return value

    def sum(self, terms: Mapping[str, int]) -> str | None:
        """Sum of the terms as an i64, outermost values first so that partial sums leave the
        loops."""
        total: str | None = None
        depth = self.b.depth_of
        for name in sorted(terms, key=lambda n: (depth[n], n)) if len(terms) > 1 else terms:
            c = terms[name]
            if c == 0:
                continue
            term = name if c == 1 else self.b.op(f"mul nsw i64 {name}, {c}")
            total = term if total is None else self.b.op(f"add nsw i64 {total}, {term}")
        return total

    def scalar(self, value: Linear) -> str:
        """The value of lane 0 as an i64 name or literal."""
        total = self.sum(value.terms)
        if total is None:
            return str(value.const)
        return total if value.const == 0 else self.b.op(f"add nsw i64 {total}, {value.const}")

    def vector(self, value: Linear) -> str:
        """The value as a `<width x i64>`."""
        assert self.lanes is not None
        width = self.lanes.width
        base = self.splat(self.scalar(value), "i64", width)
        if value.step:
            ramp = ", ".join(f"i64 {value.step * n}" for n in range(width))
            base = self.b.op(f"add <{width} x i64> {base}, <{ramp}>")
        if value.offsets:
            ramp = ", ".join(f"i64 {n}" for n in value.offsets)
            base = self.b.op(f"add <{width} x i64> {base}, <{ramp}>")
        if value.vector is not None:
            base = self.b.op(f"add <{width} x i64> {base}, {value.vector}")
        return base

    def real_lanes(self) -> str | None:
        """The mask of the lanes that exist, None if all do."""
        if self.lanes is None or not self.lanes.partial:
            return None
        width, active = self.lanes.width, self.lanes.active
        if isinstance(active, str):
            ramp = ", ".join(f"i64 {n}" for n in range(width))
            count = self.splat(active, "i64", width)
            return self.b.op(f"icmp slt <{width} x i64> <{ramp}>, {count}")
        return f"<{', '.join('i1 ' + str(n < active).lower() for n in range(width))}>"

    def both(self, a: str, b: str, width: int) -> str:
        """The lanes of two masks; known where both are."""
        if a.startswith("<") and b.startswith("<"):
            pairs = zip(a.strip("<>").split(", "), b.strip("<>").split(", "), strict=True)
            return f"<{', '.join(x if x == y else 'i1 false' for x, y in pairs)}>"
        return self.b.op(f"and <{width} x i1> {a}, {b}")

    def widen(self, v: Value, lanes: int) -> Value:
        """`v` in `lanes` lanes."""
        if v.lanes == lanes:
            return v
        if v.ref.startswith("%"):
            return Value(self.splat(v.ref, type_of(v.dtype), lanes), v.dtype, lanes)
        return Value(splat(v.ref, v.dtype, lanes), v.dtype, lanes)

    def splat(self, ref: str, llvm_type: str, width: int) -> str:
        """A scalar in all lanes."""
        if width == 1:
            return ref
        if not ref.startswith("%"):
            return f"splat ({llvm_type} {ref})"
        t = f"<{width} x {llvm_type}>"
        made = self.b.made_by.get(ref, "")
        if made.startswith("fpext half ") and llvm_type == "float":
            # Of one lane, LLVM inserts the half into a register that the conversion before it
            # wrote, and so waits for that.
            halves = self.splat(made.split()[2], "half", width)
            return self.b.op(f"fpext <{width} x half> {halves} to {t}")
        one = self.b.op(f"insertelement {t} poison, {llvm_type} {ref}, i64 0")
        return self.b.op(f"shufflevector {t} {one}, {t} poison, <{width} x i32> zeroinitializer")

    def below(self, value: Linear, bound: Int) -> str | bool:
        """The condition `value < bound`: a Python bool, an i1 name, or a `<width x i1>` name."""
        if isinstance(bound, Size):
            value = replace(value, terms=dict(value.terms))
            self._add_number(value, -bound)
            bound = 0
        bound = int(bound)
        if not value.varies:
            if not value.terms:
                return value.const < bound
            total = self.sum(value.terms)
            if total is None:
                return value.const < bound
            return self.b.op(f"icmp slt i64 {total}, {bound - value.const}")
        assert self.lanes is not None
        width = self.lanes.width
        if value.vector is None and not any(value.terms.values()):
            flags = [value.lane(n) < bound for n in range(width)]
            known = self.lanes.width if isinstance(self.lanes.active, str) else self.lanes.active
            if all(flags[:known]):
                return True
            if not any(flags):
                return False
            return f"<{', '.join('i1 ' + str(f).lower() for f in flags)}>"
        if value.vector is None and abs(value.step) == 1:
            # Compare lane numbers in i32: one instruction a vector instead of several for i64.
            rest = Linear(value.const, value.terms)
            if value.step == 1:  # lane < bound - rest
                room = self.b.op(f"sub nsw i64 {bound}, {self.scalar(rest)}")
                predicate = "slt"
            else:  # lane > rest - bound
                room = self.b.op(f"sub nsw i64 {self.scalar(rest)}, {bound}")
                predicate = "sgt"
            room = self.b.smaller(room, width)
            room = self.b.larger(room, -1)
            narrow = self.splat(self.b.op(f"trunc i64 {room} to i32"), "i32", width)
            ramp = ", ".join(f"i32 {n}" for n in range(width))
            mask = self.b.op(f"icmp {predicate} <{width} x i32> <{ramp}>, {narrow}")
        else:
            mask = self.b.op(f"icmp slt <{width} x i64> {self.vector(value)}, splat (i64 {bound})")
        self.masks.add(mask)
        return mask

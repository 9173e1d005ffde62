"""Index arithmetic: affine forms of loop variables to i64 values, with unrolled loops as constants
and the vectorised loop as a step between lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autosched.codegen.llvm.builder import Builder
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Var


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vectorised loop at this point: lane n stands for `var = base + n`, where `base` is
    `env[var]`. Only the first `active` lanes exist."""

    var: Var
    width: int
    active: int

    @property
    def partial(self) -> bool:
        """Whether some lanes do not exist."""
        return self.active < self.width


def lanes_of(var: Var, width: int, active: int) -> Lanes | None:
    """Lanes of a vector; None for one of a single lane, which is a scalar and typed as such."""
    return Lanes(var, width, active) if width > 1 else None


@dataclass(slots=True)
class Linear:
    """`const + sum(coefficient * name) + step * lane (+ vector)`; names are i64 SSA values,
    `vector` a
    `<width x i64>` for what is not linear in the lane."""

    const: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    step: int = 0
    vector: str | None = None

    def add(self, name: str, coefficient: int) -> None:
        """Add `coefficient * name`."""
        self.terms[name] = self.terms.get(name, 0) + coefficient

    @property
    def varies(self) -> bool:
        """Whether lanes differ."""
        return self.step != 0 or self.vector is not None


class Indexer:
    """Evaluates affine forms in the current environment of a function being written."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.env: dict[Var, int | str] = {}
        self.lanes: Lanes | None = None
        self.masks: set[str] = set()
        """Names of lane masks that `below` returned; its other names are single i1 values."""

    def linear(self, form: Affine, values: Mapping[Var, str] | None = None) -> Linear:
        """The value of a form. `values` overrides variables (clamped axes)."""
        out = Linear(int(form.const))
        for atom, c in form.terms:
            c = int(c)
            if isinstance(atom, Var):
                if values is not None and atom in values:
                    out.add(values[atom], c)
                    continue
                known = self.env[atom]
                if isinstance(known, int):
                    out.const += c * known
                else:
                    out.add(known, c)
                if self.lanes is not None and atom is self.lanes.var:
                    out.step += c
            else:
                self._digit(atom, c, out, values)
        return out

    def _digit(self, d: Digit, c: int, out: Linear, values: Mapping[Var, str] | None) -> None:
        base = self.linear(d.base, values)
        div, mod = int(d.div), None if d.mod is None else int(d.mod)
        if base.varies:
            assert self.lanes is not None
            vector = self.vector(base)
            width = self.lanes.width
            vector = self._floor(vector, div, mod, width)
            scaled = (
                vector if c == 1 else self.b.op(f"mul <{width} x i64> {vector}, splat (i64 {c})")
            )
            out.vector = (
                scaled
                if out.vector is None
                else self.b.op(f"add <{width} x i64> {out.vector}, {scaled}")
            )
        elif not base.terms:
            value = base.const // div
            out.const += c * (value if mod is None else value % mod)
        else:
            out.add(self._floor(self.scalar(base), div, mod, 1), c)

    def _floor(self, value: str, div: int, mod: int | None, width: int) -> str:
        """`(value // div) % mod`, rounding to minus infinity."""
        t = "i64" if width == 1 else f"<{width} x i64>"

        def k(n: int) -> str:
            return str(n) if width == 1 else f"splat (i64 {n})"

        if div != 1:
            if div & (div - 1) == 0:
                value = self.b.op(f"ashr {t} {value}, {k(div.bit_length() - 1)}")
            else:
                quotient = self.b.op(f"sdiv {t} {value}, {k(div)}")
                rest = self.b.op(f"srem {t} {value}, {k(div)}")
                value = self.b.op(f"add {t} {quotient}, {self.b.op(f'ashr {t} {rest}, {k(63)}')}")
        if mod is not None:
            if mod & (mod - 1) == 0:
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
        for name in sorted(terms, key=lambda n: (self.b.depth_of[n], n)):
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
        if value.vector is not None:
            base = self.b.op(f"add <{width} x i64> {base}, {value.vector}")
        return base

    def splat(self, ref: str, llvm_type: str, width: int) -> str:
        """A scalar in all lanes."""
        if width == 1:
            return ref
        if not ref.startswith("%"):
            return f"splat ({llvm_type} {ref})"
        t = f"<{width} x {llvm_type}>"
        one = self.b.op(f"insertelement {t} poison, {llvm_type} {ref}, i64 0")
        return self.b.op(f"shufflevector {t} {one}, {t} poison, <{width} x i32> zeroinitializer")

    def below(self, value: Linear, bound: int) -> str | bool:
        """The condition `value < bound`: a Python bool, an i1 name, or a `<width x i1>` name."""
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
            flags = [value.const + value.step * n < bound for n in range(width)]
            if all(flags[: self.lanes.active]):
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
            self.b.declare("llvm.smin.i64", "i64 @llvm.smin.i64(i64, i64)")
            self.b.declare("llvm.smax.i64", "i64 @llvm.smax.i64(i64, i64)")
            room = self.b.op(f"call i64 @llvm.smin.i64(i64 {room}, i64 {width})")
            room = self.b.op(f"call i64 @llvm.smax.i64(i64 {room}, i64 -1)")
            narrow = self.splat(self.b.op(f"trunc i64 {room} to i32"), "i32", width)
            ramp = ", ".join(f"i32 {n}" for n in range(width))
            mask = self.b.op(f"icmp {predicate} <{width} x i32> <{ramp}>, {narrow}")
        else:
            mask = self.b.op(f"icmp slt <{width} x i64> {self.vector(value)}, splat (i64 {bound})")
        self.masks.add(mask)
        return mask

"""Expressions, indices and constants as C text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isinf, isnan

import numpy as np

from autosched.codegen.gpu.dialect import Dialect
from autosched.codegen.gpu.digits import simpler
from autosched.codegen.gpu.helpers import Helpers
from autosched.errors import CodegenError
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Digit, Int, always, recombine
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.fold import is_within
from autosched.tir.from_expr import from_expr
from autosched.tir.nodes import Access, Block, Predicate, strides
from autosched.tir.operations import OPS

ATOM, UNARY, MUL, ADD, CMP, EQ, AND, OR, CHOICE = 100, 90, 60, 50, 40, 35, 20, 10, 5
BIT_AND, BIT_XOR, BIT_OR = 33, 32, 31
"""How tightly C's operators bind."""
_INFIX = {
    "add": ("+", ADD),
    "sub": ("-", ADD),
    "mul": ("*", MUL),
    "div": ("/", MUL),
    "lt": ("<", CMP),
    "le": ("<=", CMP),
    "gt": (">", CMP),
    "ge": (">=", CMP),
    "eq": ("==", EQ),
    "ne": ("!=", EQ),
    "bitwise_and": ("&", BIT_AND),
    "bitwise_xor": ("^", BIT_XOR),
    "bitwise_or": ("|", BIT_OR),
    "and": ("&&", AND),
    "or": ("||", OR),
}
_MAX_INT = (1 << 31) - 1
Text = tuple[str, int]
"""A piece of C and how tightly its outermost operator binds."""
Load = Callable[[Access], str]


def wrap(text: Text, level: int) -> str:
    """The text, in parentheses where something that binds at `level` stands around it."""
    return text[0] if text[1] >= level else f"({text[0]})"


class Forms:
    """Affine forms over a kernel's variables as C."""

    def __init__(self, names: Mapping[Var, str], extents: Mapping[Var, Int], helpers: Helpers):
        self.names, self.extents, self.helpers = names, extents, helpers

    def text(self, form: Affine) -> Text:
        """A form: the positive terms first, then the others."""
        form = simpler(form, self.extents)
        parts: list[tuple[bool, Text]] = []
        for atom, c in sorted(form.terms, key=lambda t: t[1] < 0):
            base = (self.names[atom], ATOM) if isinstance(atom, Var) else self._digit(atom)
            size = abs(int(c))
            term = base if size == 1 else (f"{wrap(base, MUL)} * {size}", MUL)
            parts.append((always(c < 0), term))
        const = int(form.const)
        if const or not parts:
            parts.append((const < 0, (str(abs(const)), ATOM)))
        return _sum(parts)

    def _digit(self, d: Digit) -> Text:
        base, (low, _) = self.text(d.base), d.base.span(self.extents)
        if low >= 0:
            out = base if d.div == 1 else (f"{wrap(base, MUL)} / {d.div}", MUL)
            return out if d.mod is None else (f"{wrap(out, MUL)} % {d.mod}", MUL)
        out = base
        if d.div != 1:
            name = self.helpers.floor_division("floordiv", "int32")
            out = (f"{name}({base[0]}, {d.div})", ATOM)
        if d.mod is not None:
            name = self.helpers.floor_division("floormod", "int32")
            out = (f"{name}({out[0]}, {d.mod})", ATOM)
        return out

    def condition(self, p: Predicate) -> str:
        """`form < bound`, turned around where all terms are negative."""
        bound, const = int(p.bound), int(p.form.const)
        form = Affine(0, p.form.terms)
        if form.single_var() is not None and bound - const == 1:
            return f"{self.text(form)[0]} == 0"
        if form.terms and all(always(c < 0) for _, c in form.terms):
            return f"{self.text(-form)[0]} >= {1 - bound + const}"
        return f"{self.text(form)[0]} < {bound - const}"

    def conditions(self, predicates: Sequence[Predicate]) -> str:
        """All of them."""
        return " && ".join(self.condition(p) for p in predicates)


def _sum(parts: Sequence[tuple[bool, Text]]) -> Text:
    text = ""
    for negative, part in parts:
        piece = wrap(part, ADD + 1)
        if not text:
            text = f"-{wrap(part, UNARY)}" if negative else piece
        else:
            text += f" {'-' if negative else '+'} {piece}"
    if len(parts) == 1:
        return (text, UNARY) if parts[0][0] else parts[0][1]
    return text, ADD


class Exprs:
    """The values of one block as C. `load` gives the text of an element's value.

    Values of float16 are floats that are rounded after every operation.
    """

    def __init__(
        self,
        block: Block,
        dialect: Dialect,
        forms: Forms,
        load: Load,
        names: Mapping[Var, str] | None = None,
    ) -> None:
        self.block, self.dialect, self.forms, self.load = block, dialect, forms, load
        self.helpers = forms.helpers
        self.values = block.values()
        self.names = dict(names or {})
        self.axes = {it.var for it in block.iters}

    # Indices

    def offset(self, access: Access) -> str:
        """Where the element lies in its buffer, in elements."""
        steps = strides(access.buffer.shape, access.buffer.align)
        total = Affine(0)
        others: list[tuple[bool, Text]] = []
        for index, step in zip(access.indices, steps, strict=True):
            form = self.affine(index)
            if form is not None:
                total = total + form * step
            else:
                assert isinstance(index, Expr)
                text = self.text(index)
                others.append((False, text if step == 1 else (f"{wrap(text, MUL)} * {step}", MUL)))
        if not others:
            return self.forms.text(recombine(total))[0]
        if total.terms or total.const != 0:
            others.append((False, self.forms.text(total)))
        return _sum(others)[0]

    def affine(self, index: Affine | Expr) -> Affine | None:
        """An index over the kernel's variables, if it is affine."""
        form = index if isinstance(index, Affine) else self._form(index)
        return None if form is None else form.substitute(self.values, self.forms.extents)

    def _form(self, e: Expr) -> Affine | None:
        return from_expr(e, lambda v: v in self.axes or v in self.forms.names)

    # Values

    def text(self, e: Expr) -> Text:
        """An expression."""
        if isinstance(e, Var) and e in self.names:
            return self.names[e], ATOM
        if isinstance(e, Const):
            return self.constant(e)
        if isinstance(e, Slot):
            return self.load(self.block.reads[e.index]), ATOM
        small = self._index(e)
        if small is not None:
            return self.forms.text(small)
        if not isinstance(e, Call):
            raise CodegenError(f"{e!r} is no expression of the loop IR")
        return self._call(e)

    def _index(self, e: Expr) -> Affine | None:
        """An int64 expression that is affine and surely fits the int that variables are."""
        if e.dtype != dtypes.INDEX:
            return None
        form = self.affine(e)
        if form is None:
            return None
        low, high = form.span(self.forms.extents)
        return form if always(low >= -_MAX_INT) and always(high <= _MAX_INT) else None

    def constant(self, e: Const) -> Text:
        """A constant of its dtype."""
        value = e.value
        if e.dtype == "bool":
            return ("1" if value else "0"), ATOM
        if e.dtype == "bfloat16":
            return str(int(dtypes.from_float32(value)[()])), ATOM
        if not dtypes.is_float(e.dtype):
            number = int(value)
            if e.dtype in ("uint32", "uint64"):
                long = "" if number < 1 << 32 else "LL" if self.dialect.shuffle else "L"
                return f"{number}U{long}", ATOM
            suffix = "" if abs(number) <= _MAX_INT else "LL" if self.dialect.shuffle else "L"
            if number == -(1 << 63):
                return f"(-{(1 << 63) - 1}{suffix} - 1)", ATOM
            if number == -_MAX_INT - 1:
                return f"(-{_MAX_INT} - 1)", ATOM
            return f"{number}{suffix}", ATOM if number >= 0 else UNARY
        if isnan(value):
            return self.dialect.nan(e.dtype), ATOM
        rounded = np.dtype(e.dtype).type(value)
        if isinf(rounded):
            text = self.dialect.infinity(e.dtype)
            return (text, ATOM) if value > 0 else (f"-{text}", UNARY)
        kind = "float64" if e.dtype == "float64" else "float32"
        text = str(np.dtype(kind).type(rounded))
        text += "" if "." in text or "e" in text else ".0"
        text += "f" if kind == "float32" else ""
        return text, ATOM if not text.startswith("-") else UNARY

    def _call(self, e: Call) -> Text:
        op, dtype = e.op, e.args[-1].dtype
        if op in ("select", "if_then_else"):
            c, a, b = (self.text(x) for x in e.args)
            return f"{wrap(c, OR)} ? {wrap(a, OR)} : {wrap(b, CHOICE)}", CHOICE
        if op == "cast":
            return self._cast(e)
        if op == "reinterpret":
            return self._bits(e)
        if op == "not":
            return f"!{wrap(self.text(e.args[0]), UNARY)}", UNARY
        if dtype == "bool" and op in ("add", "max", "mul", "min"):
            op = "or" if op in ("add", "max") else "and"
        if op in _INFIX:
            return self._infix(op, e)
        args = [self.text(x) for x in e.args]
        if op == "neg":
            inner = (f"-{wrap(args[0], ATOM)}", UNARY)
            return self._narrow(inner, e, f"0 - {wrap(args[0], MUL)}")
        plain = ", ".join(a[0] for a in args)
        if op in ("min", "max"):
            return f"{self.helpers.extreme(op, dtype)}({plain})", ATOM
        if op == "bitwise_not":
            return f"({self.dialect.value_type(dtype)})~{wrap(args[0], UNARY)}", UNARY
        if op in ("shift_left", "shift_right"):
            return f"{self.helpers.shift(op, dtype)}({plain})", ATOM
        if op in ("floordiv", "floormod"):
            return self._rounded(f"{self.helpers.floor_division(op, dtype)}({plain})", dtype)
        if op == "abs" and not dtypes.is_float(dtype):
            if dtype in dtypes.UNSIGNED:
                return args[0]
            return f"{self.helpers.absolute(dtype)}({plain})", ATOM
        if op in ("popcount", "clz"):
            return f"{self.helpers.bit_count(op, dtype)}({plain})", ATOM
        if op == "nextafter" and dtype == "float16":
            raise CodegenError(f"nextafter of float16 has no code in {self.dialect.name}")
        if op == "sigmoid":
            return self._rounded(f"{self.helpers.sigmoid(dtype)}({plain})", dtype)
        if op not in OPS or not dtypes.is_float(dtype):
            raise CodegenError(f"{op} has no meaning on {dtype} in {self.dialect.name}")
        return self._rounded(f"{self.dialect.math(op, dtype)}({plain})", dtype)

    def _rounded(self, text: str, dtype: str) -> Text:
        if dtype == "float16":
            return f"{self.helpers.half('f16_round')}({text})", ATOM
        return text, ATOM

    def _infix(self, op: str, e: Call) -> Text:
        sign, level = _INFIX[op]
        dtype = e.args[0].dtype
        a, b = (self.text(x) for x in e.args)
        if e.dtype == dtypes.INDEX and all(self._is_int(x) for x in e.args):
            a = self._widened(a)  # the product of two ints may need more
        if op == "or":  # compilers ask for parentheses around an "and" in it
            a, b = ((text, OR - 1) if at == AND else (text, at) for text, at in (a, b))
        plain = (f"{wrap(a, level)} {sign} {wrap(b, level + 1)}", level)
        if op in ("add", "sub", "mul"):
            return self._narrow(plain, e, None)
        if op == "div" and dtype == "float16":
            return self._rounded(plain[0], dtype)
        return plain

    def _is_int(self, e: Expr) -> bool:
        """Whether the text of an int64 expression has C's type int."""
        return isinstance(e, Const) or self._index(e) is not None

    def _widened(self, text: Text) -> Text:
        return f"({self.dialect.value_type('int64')}){wrap(text, UNARY)}", UNARY

    def _narrow(self, text: Text, e: Call, negated: str | None) -> Text:
        """A sum, difference or product as a value of its dtype: integers wrap around, and float16
        is rounded."""
        dtype = e.dtype
        if dtype == "float16":
            return self._rounded(text[0], dtype)
        if dtypes.is_float(dtype) or dtype == "bool":
            return text
        if dtype in ("int8", "int16", "uint8", "uint16"):
            return f"({self.dialect.value_type(dtype)})({text[0]})", UNARY
        if dtype in dtypes.UNSIGNED:
            return text  # wraps around as it should
        if not any(isinstance(x, Slot) or x in self.names for x in _leaves(e)):
            return text
        # Signed overflow has no meaning in C.
        u = self.dialect.unsigned[dtype]
        if negated is not None:
            inner = f"({u}){negated}"
        else:
            sign, _ = _INFIX[e.op]
            a, b = (wrap(self.text(x), UNARY) for x in e.args)
            inner = f"({u}){a} {sign} ({u}){b}"
        return f"({self.dialect.value_type(dtype)})({inner})", UNARY

    def _cast(self, e: Call) -> Text:
        (arg,) = e.args
        source, dtype = arg.dtype, e.dtype
        text = self.text(arg)
        if source == "bfloat16":
            return f"{self.helpers.bfloat16('bf16_load')}({text[0]})", ATOM
        if dtype == "bfloat16":
            return f"{self.helpers.bfloat16('bf16_store')}({text[0]})", ATOM
        if dtype == "bool":
            zero = "0.0f" if source in ("float16", "float32") else "0"
            return f"{wrap(text, CMP)} != {zero}", EQ
        kind = self.dialect.value_type(dtype)
        if dtype == "float16":
            inner = text[0] if source == "float32" else f"(float){wrap(text, UNARY)}"
            return self._rounded(inner, dtype)
        if dtypes.is_float(source) and dtypes.is_int(dtype):
            if is_within(arg, dtype):
                return f"{self.helpers.to_integer(source, dtype, None)}({text[0]})", ATOM
            least, most = (
                self.constant(Const(int(x), dtype))[0]
                for x in (dtypes.minimum(dtype), dtypes.maximum(dtype))
            )
            return f"{self.helpers.to_integer(source, dtype, (least, most))}({text[0]})", ATOM
        return f"({kind}){wrap(text, UNARY)}", UNARY

    def _bits(self, e: Call) -> Text:
        """The bits of a value as another type."""
        source, dtype = e.args[0].dtype, e.dtype
        if "float16" in (source, dtype):  # values of float16 are floats here
            raise CodegenError(f"reinterpret of float16 has no code in {self.dialect.name}")
        text = self.text(e.args[0])
        if not any(d in dtypes.FLOATS for d in (source, dtype)):
            return f"({self.dialect.stored_type(dtype)}){wrap(text, UNARY)}", UNARY
        return f"{self.helpers.bits(source, dtype)}({text[0]})", ATOM


def _leaves(e: Expr) -> list[Expr]:
    if isinstance(e, Call):
        return [x for a in e.args for x in _leaves(a)]
    return [e]

"""Reading an affine form from an expression, simplified: what divides out is taken out of digits.

`forms.read_form` keeps the form as it is written.
"""

from __future__ import annotations

from collections.abc import Callable

from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit, Int, always, digit, is_zero, same_int
from autosched.tir.expr import Expr, Var, as_arithmetic
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar, Undecided


def from_expr(e: Expr, is_atom: Callable[[Var], bool] | None = None) -> Affine | None:
    """The affine form of an int64 expression, or None if it is not affine.

    `//` and `%` by a positive constant become digits. `is_atom` limits the variables allowed.
    """
    if isinstance(e, SizeVar):
        return Affine(Size.of(e))
    if isinstance(e, Var):
        return Affine.of(e) if is_atom is None or is_atom(e) else None
    if isinstance(e, ex.Const):
        return Affine(int(e.value))
    if not isinstance(e, ex.Call) or e.dtype != "int64":
        return None
    e = as_arithmetic(e)
    if e.op == "neg":
        only = from_expr(e.args[0], is_atom)
        return None if only is None else -only
    if e.op not in ARITHMETIC:
        return None
    a, b = (from_expr(x, is_atom) for x in e.args)
    return None if a is None or b is None else arithmetic(e.op, a, b, _quotient, _remainder)


ARITHMETIC = ("add", "sub", "mul", "floordiv", "floormod")
"""Operations on two forms that may give a form."""
Divided = Callable[[Affine, Int], Affine]


def arithmetic(
    op: str, a: Affine, b: Affine, quotient: Divided, remainder: Divided
) -> Affine | None:
    """One of ARITHMETIC on forms, or None if that is none; `quotient` and `remainder` say how what
    is divided is written."""
    if op == "add":
        return a + b
    if op == "sub":
        return a - b
    if op == "mul":
        if b.is_const():
            return a * b.const
        return b * a.const if a.is_const() else None
    if not b.is_const() or not always(b.const >= 1):
        return None
    if a.is_const() and isinstance(a.const, Size):
        return divided_size(a.const, b.const, op)
    return (quotient if op == "floordiv" else remainder)(a, b.const)


def _quotient(a: Affine, n: Int) -> Affine:
    inner = _only_digit(a)
    if inner is not None and inner.mod is None:
        return digit(inner.base, inner.div * n, None, {})
    return digit(a, n, None, {})


def _remainder(a: Affine, n: Int) -> Affine:
    inner = _only_digit(a)
    if inner is not None and inner.mod is None:
        return digit(inner.base, inner.div, n, {})
    return digit(a, 1, n, {})


def divided_size(a: Size, b: Int, op: str) -> Affine | None:
    """`a // b` (of op "floordiv") or `a % b`, or None if that is no size."""
    try:
        return Affine(a // b if op == "floordiv" else a % b)
    except Undecided:
        return None


def _only_digit(form: Affine) -> Digit | None:
    """The digit, if the form is exactly one digit."""
    if is_zero(form.const) and len(form.terms) == 1:
        atom, c = form.terms[0]
        if isinstance(atom, Digit) and same_int(c, 1):
            return atom
    return None

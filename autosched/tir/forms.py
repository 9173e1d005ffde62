"""Affine forms as they are written: reading one from an expression, and the shape it prints from.

`from_expr` simplifies what it reads; here the form keeps the digits as they stand, so that
printing a form and reading the text gives the form again.
"""

from __future__ import annotations

from autosched.tir.affine import Affine, Digit, Int, is_zero, same_int
from autosched.tir.expr import Call, Const, Expr, Var
from autosched.tir.from_expr import ARITHMETIC, arithmetic, divided_size
from autosched.tir.nodes import Index
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


def read_form(e: Expr) -> Affine | None:
    """The affine form that prints as `e`, or None if `e` is not affine."""
    if isinstance(e, SizeVar):
        return Affine(Size.of(e))
    if isinstance(e, Var):
        return Affine.of(e) if e.dtype == "int64" else None
    if isinstance(e, Const):
        return Affine(int(e.value)) if e.dtype == "int64" else None
    if not isinstance(e, Call) or e.dtype != "int64":
        return None
    if e.op == "neg":
        only = read_form(e.args[0])
        return None if only is None else -only
    if e.op not in ARITHMETIC:
        return None
    a, b = (read_form(x) for x in e.args)
    return None if a is None or b is None else arithmetic(e.op, a, b, _quotient, _remainder)


def tidy(form: Affine) -> Affine:
    """The form that reading the text of `form` gives: digits of constants, of divisor and modulus
    1 and of digits, which print alike, become one."""
    out = Affine(form.const)
    for atom, c in form.terms:
        if isinstance(atom, Var):
            out = out + Affine.of(atom, c)
            continue
        value = _quotient(tidy(atom.base), atom.div)
        out = out + (value if atom.mod is None else _remainder(value, atom.mod)) * c
    return out


def tidy_index(index: Index) -> Index:
    """The index that reading the text of `index` gives."""
    if isinstance(index, Affine):
        return tidy(index)
    form = read_form(index)
    return index if form is None else form


def _quotient(a: Affine, n: Int) -> Affine:
    if same_int(n, 1):
        return a
    if a.is_const():
        found = _of_const(a.const, n, "floordiv")
        if found is not None:
            return found
    return Affine.of(Digit(a, n, None))


def _remainder(a: Affine, n: Int) -> Affine:
    if same_int(n, 1):
        return Affine(0)
    if a.is_const():
        found = _of_const(a.const, n, "floormod")
        if found is not None:
            return found
    if len(a.terms) == 1 and is_zero(a.const):
        atom, c = a.terms[0]
        if isinstance(atom, Digit) and atom.mod is None and same_int(c, 1):
            return Affine.of(Digit(atom.base, atom.div, n))
    return Affine.of(Digit(a, 1, n))


def _of_const(a: Int, n: Int, op: str) -> Affine | None:
    if isinstance(a, Size):
        return divided_size(a, n, op)
    if is_zero(a):
        return Affine(0)
    if isinstance(n, Size):
        return None
    return Affine(a // n if op == "floordiv" else a % n)

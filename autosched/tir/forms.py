"""Affine forms as they are written: reading one from an expression, and the shape it prints from.

`affine.from_expr` simplifies what it reads; here the form keeps the digits as they stand, so that
printing a form and reading the text gives the form again.
"""

from __future__ import annotations

from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Call, Const, Expr, Var
from autosched.tir.nodes import Index


def read_form(e: Expr) -> Affine | None:
    """The affine form that prints as `e`, or None if `e` is not affine."""
    if isinstance(e, Var):
        return Affine.of(e) if e.dtype == "int64" else None
    if isinstance(e, Const):
        return Affine(int(e.value)) if e.dtype == "int64" else None
    if not isinstance(e, Call) or e.op not in _AFFINE or e.dtype != "int64":
        return None
    parts = [read_form(x) for x in e.args]
    a = parts[0]
    if a is None:
        return None
    if e.op == "neg":
        return -a
    b = parts[1]
    if b is None:
        return None
    if e.op == "add":
        return a + b
    if e.op == "sub":
        return a - b
    if e.op == "mul":
        if b.is_const():
            return a * b.const
        return b * a.const if a.is_const() else None
    if not b.is_const() or b.const < 1:
        return None
    return _quotient(a, int(b.const)) if e.op == "floordiv" else _remainder(a, int(b.const))


_AFFINE = ("neg", "add", "sub", "mul", "floordiv", "floormod")


def tidy(form: Affine) -> Affine:
    """The form that reading the text of `form` gives: digits of constants, of divisor and modulus
    1 and of digits, which print alike, become one."""
    out = Affine(form.const)
    for atom, c in form.terms:
        if isinstance(atom, Var):
            out = out + Affine.of(atom, c)
            continue
        value = _quotient(tidy(atom.base), int(atom.div))
        out = out + (value if atom.mod is None else _remainder(value, int(atom.mod))) * c
    return out


def tidy_index(index: Index) -> Index:
    """The index that reading the text of `index` gives."""
    if isinstance(index, Affine):
        return tidy(index)
    form = read_form(index)
    return index if form is None else form


def _quotient(a: Affine, n: int) -> Affine:
    if n == 1:
        return a
    return Affine(a.const // n) if a.is_const() else Affine.of(Digit(a, n, None))


def _remainder(a: Affine, n: int) -> Affine:
    if n == 1:
        return Affine(0)
    if a.is_const():
        return Affine(a.const % n)
    if len(a.terms) == 1 and a.const == 0:
        atom, c = a.terms[0]
        if isinstance(atom, Digit) and atom.mod is None and c == 1:
            return Affine.of(Digit(atom.base, atom.div, n))
    return Affine.of(Digit(a, 1, n))

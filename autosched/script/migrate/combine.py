"""Reductions of several elements at once, such as the place of a maximum: what was there, and what
is new, named as the script language wants them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from autosched.script.migrate.stores import Store, operands, same_text
from autosched.script.migrate.things import State, name, replaced

_CHOICES = ("select", "if_then_else")


def combination(state: State, made: Sequence[Store], init: Sequence[Store]) -> list[Store]:
    """The statements of a reduction with `init`, those that choose between what an element has and
    a new value with both named first. Statements of another form are left as they are."""
    lets = {x.target.id: x.value for x in made if x.is_name and isinstance(x.target, ast.Name)}
    stores = [x for x in made if not x.is_name]
    plain = [replace(x, value=_inlined(x.value, lets)) for x in stores]
    if all(operands(x.target, x.value) is not None for x in plain):
        return list(made)
    chosen = [_chosen(x) for x in plain]
    new = [x for x in chosen if x is not None]
    if len(new) != len(plain) or len(init) != len(plain):
        return list(made)
    old_names = [name(state.fresh(f"old{n}")) for n in range(len(plain))]
    new_names = [name(state.fresh(f"new{n}")) for n in range(len(plain))]
    swaps = [(x.target, old) for x, old in zip(plain, old_names, strict=True)]
    swaps += list(zip(new, new_names, strict=True))
    out = [Store(old, x.target, x.place, True) for x, old in zip(plain, old_names, strict=True)]
    out += [Store(y, e, x.place, True) for x, e, y in zip(plain, new, new_names, strict=True)]
    out += [replace(x, value=_swapped(x.value, swaps)) for x in plain]
    return out


def _inlined(e: ast.expr, lets: dict[str, ast.expr]) -> ast.expr:
    """`e` with names of the block replaced by their values."""
    for _ in range(len(lets)):
        e = replaced(e, lets)
    return e


def _chosen(x: Store) -> ast.expr | None:
    """The new value of `select(condition, element, new)`, in either order."""
    e = x.value
    is_choice = (
        isinstance(e, ast.Call)
        and isinstance(e.func, ast.Attribute)
        and e.func.attr in _CHOICES
        and len(e.args) == 3
    )
    if not is_choice or not isinstance(e, ast.Call):
        return None
    yes, no = e.args[1:]
    if same_text(yes, x.target):
        return no
    return yes if same_text(no, x.target) else None


def _swapped(e: ast.expr, swaps: Sequence[tuple[ast.expr, ast.Name]]) -> ast.expr:
    """`e` with whole subexpressions replaced by names."""
    for old, new in swaps:
        if same_text(e, old):
            return new
    out = type(e)(**dict(ast.iter_fields(e)))
    for key, value in ast.iter_fields(e):
        if isinstance(value, ast.expr):
            setattr(out, key, _swapped(value, swaps))
        elif isinstance(value, list):
            setattr(out, key, [_swapped(v, swaps) if isinstance(v, ast.expr) else v for v in value])
    return out

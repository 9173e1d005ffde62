"""Structural equality of programs, by TVM's names.

    ir.structural_equal(a, b)
    ir.assert_structural_equal(a, b)    # says where they differ
    ir.structural_hash(a)

Programs are equal if neither a schedule nor a code generator can tell them apart: names of
variables do not count, those of blocks and buffers do. `==` on programs is identity.
"""

from __future__ import annotations

import hashlib
from typing import Union

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.tir.canonical import program_hash
from autosched.tir.equal import first_difference
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc
from autosched.tir.routine import Routine, numbered_text

Program = Union[PrimFunc, Routine, IRModule]

__all__ = ["assert_structural_equal", "structural_equal", "structural_hash"]


def structural_equal(lhs: Program, rhs: Program) -> bool:
    """Whether two functions or modules are one program, as `lhs.same(rhs)` says.

    Raises ScheduleError for what is neither.
    """
    return _difference(_program(lhs), _program(rhs)) is None


def assert_structural_equal(lhs: Program, rhs: Program) -> None:
    """Raises ScheduleError, with the first difference, where two programs are not equal."""
    found = _difference(_program(lhs), _program(rhs))
    if found is not None:
        raise ScheduleError(f"the programs are not structurally equal: {found}")


def structural_hash(node: Program) -> int:
    """A number of 64 bits, the same for equal programs. Of others it may be the same, too: names of
    blocks and buffers do not change it."""
    return int.from_bytes(hashlib.sha256(_text(_program(node)).encode()).digest()[:8], "little")


def _program(value: object) -> Program:
    if not isinstance(value, (PrimFunc, Routine, IRModule)):
        raise ScheduleError(f"expected a PrimFunc, a Routine or an IRModule; found {shown(value)}")
    return value


def _difference(a: Program, b: Program) -> str | None:
    if isinstance(a, PrimFunc) and isinstance(b, PrimFunc):
        return first_difference(a, b)
    if isinstance(a, IRModule) and isinstance(b, IRModule):
        return _modules(a, b)
    if isinstance(a, Routine) and isinstance(b, Routine):
        return None if a.same(b) else f"the statements of {a.name} differ"
    return f"one is a {type(a).__name__}, the other a {type(b).__name__}"


def _modules(a: IRModule, b: IRModule) -> str | None:
    if set(a) != set(b):
        return f"one has the functions {', '.join(a)}, the other {', '.join(b)}"
    for name in a:
        graphs = a.graphs.get(name), b.graphs.get(name)
        if graphs[0] is not None and graphs[1] is not None:
            found = None if graphs[0].same(graphs[1]) else "the graph functions differ"
        else:
            found = _difference(a[name], b[name])
        if found is not None:
            return f"{name}: {found}"
    return None


def _text(node: Program) -> str:
    if isinstance(node, PrimFunc):
        return program_hash(node)
    if isinstance(node, Routine):
        return numbered_text(node)
    parts = (f"{n}: {n if n in node.graphs else _text(node[n])}" for n in sorted(node))
    return "\n".join(parts)

"""Terms of a reduction that a condition makes its identity: a convolution's padding.

A factor `if_then_else(c, x, 0)` of a sum of products, or a whole term `if_then_else(c, x, e)` with
e the reducer's identity, adds nothing where c does not hold. So a reduction loop need only run over
the iterations at which the comparisons in c can hold for some point of the register tile. (As
everywhere in convolutions, the other factors are taken to be finite: 0 times them is 0.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.codegen.llvm.scalar import Scalars
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Var
from autosched.tir.nodes import Block, For, Predicate


@dataclass(frozen=True)
class Gate:
    """`form < bound`, over loops, says the same as the comparison `test`: without it the block's
    term is the identity."""

    test: Call
    form: Affine
    bound: int

    def over(self, var: Var, inner: Sequence[For]) -> Predicate | None:
        """What the gate asks of `var`, with the loops inside it at the point where it asks least;
        None where it says nothing simple about `var`."""
        form = self.form
        if not _is_plain(form, var):
            return None
        for loop in inner:
            if not form.uses([loop.var]):
                continue
            if not _is_plain(form, loop.var):
                return None
            last = loop.extent - 1 if int(form.coefficient(loop.var)) < 0 else 0
            form = form.substitute({loop.var: Affine(last)})
        return Predicate(form, self.bound)


def _is_plain(form: Affine, var: Var) -> bool:
    """Whether `var` stands in the form once, times a number."""
    c = form.coefficient(var)
    return isinstance(c, int) and c != 0 and sum(v is var for v in form.variables()) == 1


def gates(block: Block, scalars: Scalars) -> list[Gate]:
    """The comparisons of axes without which the block's term adds nothing."""
    found = (_gate(test, scalars) for test in _tests(block))
    return [gate for gate in found if gate is not None]


def _tests(block: Block) -> Iterator[Call]:
    reducer = block.reducer
    if reducer is None or len(block.body) != 1:
        return
    term, identity = block.body[0], reducer.identity[0]
    if isinstance(identity, Const):
        yield from _conditions(term, identity.value)
    if reducer.name == "sum":
        for factor in _factors(term):
            yield from _conditions(factor, 0)


def _factors(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Call) and e.op == "mul":
        for part in e.args:
            yield from _factors(part)
    else:
        yield e


def _conditions(e: Expr, otherwise: float | int) -> Iterator[Call]:
    if not (isinstance(e, Call) and e.op == "if_then_else" and isinstance(e.args[2], Const)):
        return
    if e.args[2].value == otherwise:
        yield from _conjuncts(e.args[0])


def _conjuncts(e: Expr) -> Iterator[Call]:
    if isinstance(e, Call) and e.op == "and":
        for part in e.args:
            yield from _conjuncts(part)
    elif isinstance(e, Call) and e.args and e.args[0].dtype == dtypes.INDEX:
        yield e


def _gate(test: Call, scalars: Scalars) -> Gate | None:
    if test.op not in ("lt", "le", "gt", "ge"):
        return None
    form = scalars.difference(test)
    if form is None:
        return None
    if test.op in ("gt", "ge"):
        form = -form
    return Gate(test, form, 1 if test.op in ("le", "ge") else 0)

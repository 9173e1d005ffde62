"""bfloat16_attention: both products of attention in bfloat16, for targets with such intrinsics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from autosched.graph.builder import make_call
from autosched.graph.fold import constant
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Body, Call, Const, Var, reads, tensor_type, type_of
from autosched.graph.ops.quantised import SUMS
from autosched.graph.passes.bodies import Renaming, body_pass
from autosched.graph.types import TensorType
from autosched.tir.module import IRModule

WHOLE = 16
"""What all sizes of the products are multiples of, for whole vectors and tiles."""
LEAST = 1 << 16
"""Scores from which on it pays to round and pack operands; fewer take microseconds."""
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Where", "IsNaN")


@dataclass(frozen=True)
class _Attention:
    """`first` and `last` are the products; `between` what makes the one's argument of the other's
    result, by the number of its variable."""

    first: Binding
    between: Mapping[int, Binding]
    last: Binding
    rows: int
    columns: int


def bfloat16_attention(module: IRModule, whole_rows: bool = False) -> IRModule:
    """Of a product, a softmax along its columns and a product, both products round their operands
    to bfloat16 and sum in float32; the softmax stays in float32. Numbers of columns, and with
    `whole_rows` those of rows, that are no multiples of 16 are filled up to one: with zeros, and
    scores of minus infinity. Products whose depth is no multiple of 16 stay as they are.

    rewrite:
        s = op.matmul(q, k)           ->      s = op.autosched_matmul_sums(q16, k16)
        w = op.softmax(s)                     w = op.softmax(s)
        y = op.matmul(w, v)                   y = op.autosched_matmul_sums(op.cast(w, …), v16)
    """
    return (_in_whole_rows if whole_rows else _in_any_rows)(module)


@body_pass("bfloat16_attention")
def _in_any_rows(body: Body) -> Body:
    return _Writer(body, 1).body()


@body_pass("bfloat16_attention")
def _in_whole_rows(body: Body) -> Body:
    return _Writer(body, WHOLE).body()


class _Writer:
    """One body, written anew."""

    def __init__(self, body: Body, tall: int) -> None:
        self.given = body
        self.tall = tall
        finder = _Attentions(body)
        found: list[_Attention] = []
        for b in body.bindings:
            a = finder.ends_in(b)
            # A product that ends one attention does not begin another.
            if a is not None and all(a.first is not other.last for other in found):
                found.append(a)
        self.firsts = {id(a.first): a for a in found}
        self.lasts = {id(a.last): a for a in found}
        self.inside = {id(b): a for a in found for b in a.between.values()}
        self.now = Renaming()
        self.narrow: dict[tuple[int, int, int], Var] = {}
        self.filled: dict[int, Atom] = {}
        """What is inside an attention, by the variable's number, filled up."""

    def body(self) -> Body:
        """The body with attention in bfloat16."""
        for b in self.given.bindings:
            if id(b) in self.firsts:
                self._first(b, self.firsts[id(b)])
            elif id(b) in self.inside:
                self._between(b, self.inside[id(b)])
            elif id(b) in self.lasts:
                self._last(b, self.lasts[id(b)])
            else:
                self.now.out.append(Binding(b.vars, self.now.value(b.value)))
        return self.now.body(self.given.results)

    def _first(self, b: Binding, found: _Attention) -> None:
        queries, keys = _args(b)
        left = self._operand(queries, _over(found.rows, self.tall), 0)
        right = self._operand(keys, 0, _over(found.columns, WHOLE))
        self.filled[id(b.vars[0])] = self._bound("scores", SUMS["MatMul"], (left, right))

    def _between(self, b: Binding, found: _Attention) -> None:
        assert isinstance(b.value, Call)
        sides = _over(found.rows, self.tall), _over(found.columns, WHOLE)
        args = [None if a is None else self._beside(a, found, *sides) for a in b.value.args]
        if b.value.callee == "Softmax" and sides[1]:
            (scores,) = args
            exists = np.arange(found.columns + sides[1]) < found.columns
            none = constant(np.array(-np.inf, "float32"))
            args = [self._bound("scores", "Where", (constant(exists), scores, none))]
        made = self._bound(b.vars[0].name, str(b.value.callee), args, dict(b.value.attrs))
        self.filled[id(b.vars[0])] = made

    def _last(self, b: Binding, found: _Attention) -> None:
        weights, values = _args(b)
        more = _over(found.rows, self.tall)
        filled = self.filled[id(weights)]
        made = found.between[id(weights)].value
        if _over(found.columns, WHOLE) and isinstance(made, Call) and made.callee != "Softmax":
            # What is divided by a filled-up zero, say, is no number, nor is that times zero.
            exists = np.arange(found.columns + _over(found.columns, WHOLE)) < found.columns
            none = constant(np.array(0, "float32"))
            filled = self._bound("weights", "Where", (constant(exists), filled, none))
        left = self._bound("narrow", "Cast", (filled,), {"to": "bfloat16"})
        args = (left, self._operand(values, _over(found.columns, WHOLE), 0))
        if not more:
            self.now.out.append(Binding(b.vars, make_call(SUMS["MatMul"], args, {})[0]))
            return
        whole = self._bound("whole", SUMS["MatMul"], args)
        cut = {"starts": (0,), "ends": (found.rows,), "axes": (-2,)}
        self.now.out.append(Binding(b.vars, make_call("Slice", (whole,), cut)[0]))

    def _beside(self, a: Atom, found: _Attention, rows: int, columns: int) -> Atom:
        """What elements of scores are computed with: as large as they are now."""
        if id(a) in self.filled:
            return self.filled[id(a)]
        shape = _shape(a)
        assert shape is not None  # the finder has asked
        sizes = (1, 1, *shape)[-2:]
        more = [n if one > 1 else 0 for n, one in zip((rows, columns), sizes, strict=True)]
        return self._larger(a, *more)

    def _operand(self, a: Atom, rows: int, columns: int) -> Var:
        """In bfloat16, with so many rows and columns of zeros more."""
        key = id(a), rows, columns
        if key not in self.narrow:
            call = (self._larger(a, rows, columns),)
            self.narrow[key] = self._bound("narrow", "Cast", call, {"to": "bfloat16"})
        return self.narrow[key]

    def _larger(self, a: Atom, rows: int, columns: int) -> Atom:
        a = self.now.of(a) or a
        if not rows and not columns:
            return a
        if isinstance(a, Const) and a.array is not None:
            before = [(0, 0)] * (a.value.ndim - 2)
            return constant(np.pad(a.value, [*before, (0, rows), (0, columns)][-a.value.ndim :]))
        rank = len(_shape(a) or ())
        sides = [(axis, n) for axis, n in ((rank - 2, rows), (rank - 1, columns)) if n]
        pads = (*(0 for _ in sides), *(n for _, n in sides))
        return self._bound(
            "filled", "Pad", (a,), {"pads": pads, "axes": tuple(x for x, _ in sides)}
        )

    def _bound(
        self,
        label: str,
        name: str,
        args: tuple[Atom | None, ...] | list[Atom | None],
        attrs: Mapping[str, object] | None = None,
    ) -> Var:
        call, _ = make_call(name, args, attrs or {})
        v = Var(label, infer(call, 1)[0])
        self.now.out.append(Binding((v,), call))
        return v


class _Attentions:
    """Finds attention in one body."""

    def __init__(self, body: Body) -> None:
        self.maker = {id(v): b for b in body.bindings for v in b.vars}
        self.users: dict[int, list[int]] = {}
        for b in body.bindings:
            for a in reads(b.value):
                self.users.setdefault(id(a), []).append(id(b))
        for a in body.results:
            self.users.setdefault(id(a), []).append(0)

    def ends_in(self, last: Binding) -> _Attention | None:
        """The attention whose last product this is, if there is one."""
        if not self._is_product(last):
            return None
        weights, _ = _args(last)
        shape = _shape(weights)
        if shape is None or prod(shape) < LEAST:
            return None
        stack: list[Atom] = [weights]
        between: dict[int, Binding] = {}
        first: list[Binding] = []
        softmaxes = 0
        while stack:
            made = self.maker.get(id(stack.pop()))
            value = None if made is None else made.value
            if made is None or not isinstance(value, Call) or id(made.vars[0]) in between:
                continue
            if value.callee == "MatMul":
                first.append(made)
                continue
            softmax = value.callee == "Softmax" and value.attr("axis", -1) in (-1, len(shape) - 1)
            if not softmax and value.callee not in _ELEMENTWISE:
                continue
            softmaxes += softmax
            between[id(made.vars[0])] = made
            stack += [a for a in value.args if a is not None and _shape(a) == shape]
        if softmaxes != 1 or len(first) != 1 or not self._is_product(first[0]):
            return None
        depth, width = (_shape(_args(b)[n]) or (1,) for b, n in ((first[0], 0), (last, 1)))
        if depth[-1] % WHOLE or width[-1] % WHOLE:
            return None
        operands = [a for b in between.values() for a in _args(b)]
        inside = {id(last), *map(id, between.values())}
        makers = [first[0], *between.values()]
        alone = all(set(self.users[id(b.vars[0])]) <= inside for b in makers)
        alone = alone and all(b.vars[0] is not _args(last)[1] for b in makers)
        if not alone or any(_shape(a) is None for a in operands):
            return None
        return _Attention(first[0], between, last, *shape[-2:])

    def _is_product(self, b: Binding) -> bool:
        """Whether a binding multiplies matrices of float32, no constants, of known sizes."""
        if not isinstance(b.value, Call) or b.value.callee != "MatMul":
            return False
        if not all(isinstance(a, Var) and tensor_type(a).dtype == "float32" for a in b.value.args):
            return False
        left, right = map(_shape, b.value.args)
        return left is not None and right is not None and min(len(left), len(right)) >= 2


def _args(b: Binding) -> list[Atom]:
    assert isinstance(b.value, Call)
    return [a for a in b.value.args if a is not None]


def _shape(a: Atom | None) -> tuple[int, ...] | None:
    """The shape, if all of it is known."""
    t = None if a is None else type_of(a)
    if not isinstance(t, TensorType) or t.shape is None:
        return None
    sizes = tuple(n for n in t.shape if isinstance(n, int))
    return sizes if len(sizes) == len(t.shape) else None


def _over(extent: int, multiple: int) -> int:
    """How many are missing to the next multiple."""
    return -extent % multiple

"""bfloat16_attention: both products of attention in bfloat16, for targets with tile registers."""

from __future__ import annotations

from math import prod

from autosched.graph.builder import make_call
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Body, Call, Var, reads, tensor_type
from autosched.graph.ops.quantised import SUMS
from autosched.graph.passes.bodies import Renaming, body_pass

WHOLE = 16
"""What all sizes of the products are multiples of, for whole tiles."""
LEAST = 1 << 16
"""Scores from which on it pays to round and pack operands; fewer take microseconds."""
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Where", "IsNaN")


@body_pass("bfloat16_attention")
def bfloat16_attention(body: Body) -> Body:
    """Of a product, a softmax along its columns and a product, both products round their operands
    to bfloat16 and sum in float32; the softmax stays in float32. Products whose sizes are no whole
    tiles stay as they are.

    rewrite:
        s = op.matmul(q, k)           ->      s = op.autosched_matmul_sums(q16, k16)
        w = op.softmax(s)                     w = op.softmax(s)
        y = op.matmul(w, v)                   y = op.autosched_matmul_sums(op.cast(w, …), v16)
    """
    finder = _Attentions(body)
    chosen = {id(v) for b in body.bindings for v in finder.products(b)}
    now = Renaming()
    narrow: dict[int, Var] = {}
    for b in body.bindings:
        value = now.value(b.value)
        if id(b.vars[0]) in chosen and isinstance(value, Call):
            args = tuple(_narrowed(now, narrow, a) for a in value.args)
            value = make_call(SUMS["MatMul"], args, {})[0]
        now.out.append(Binding(b.vars, value))
    return now.body(body.results)


def _narrowed(now: Renaming, narrow: dict[int, Var], a: Atom | None) -> Var:
    assert a is not None  # of a product
    if id(a) not in narrow:
        call = make_call("Cast", (a,), {"to": "bfloat16"})[0]
        v = narrow[id(a)] = Var("narrow", infer(call, 1)[0])
        now.out.append(Binding((v,), call))
    return narrow[id(a)]


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

    def products(self, last: Binding) -> list[Var]:
        """The results of both products of the attention that ends here; none if none does."""
        call = last.value
        if not self._is_product(call) or not isinstance(call, Call):
            return []
        weights = call.args[0]
        assert isinstance(weights, Var)
        shape = tensor_type(weights).known
        if not all(isinstance(n, int) for n in shape) or prod(map(int, shape)) < LEAST:
            return []
        stack: list[Atom] = [weights]
        inside = {id(last): last}
        first: list[Binding] = []
        softmaxes = 0
        while stack:
            made = self.maker.get(id(stack.pop()))
            value = None if made is None else made.value
            if made is None or not isinstance(value, Call) or id(made) in inside:
                continue
            if value.callee == "MatMul":
                first.append(made)
                continue
            softmax = value.callee == "Softmax" and value.attr("axis", -1) in (-1, len(shape) - 1)
            if not softmax and value.callee not in _ELEMENTWISE:
                continue
            softmaxes += softmax
            inside[id(made)] = made
            stack += [a for a in value.args if isinstance(a, Var) and tensor_type(a).shape == shape]
        if softmaxes != 1 or len(first) != 1 or not self._is_product(first[0].value):
            return []
        others = [first[0], *(b for b in inside.values() if b is not last)]
        alone = all(set(self.users[id(b.vars[0])]) <= set(inside) for b in others)
        return [first[0].vars[0], last.vars[0]] if alone else []

    def _is_product(self, call: object) -> bool:
        """Whether a call multiplies matrices of float32, no constants, of whole tiles."""
        if not isinstance(call, Call) or call.callee != "MatMul":
            return False
        if not all(isinstance(a, Var) for a in call.args):
            return False
        left, right = (tensor_type(a) for a in call.args if isinstance(a, Var))
        sizes = [*(left.shape or ())[-2:], *(right.shape or ())[-2:]]
        if len(sizes) < 4 or not all(isinstance(n, int) for n in sizes):
            return False
        whole = all(int(n) % WHOLE == 0 for n in sizes)
        return whole and left.dtype == right.dtype == "float32"

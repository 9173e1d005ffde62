"""Reverse mode over bodies: a body forwards, then backwards over what was computed.

An operator passes back a call of `Adjoint` for each input that matters, a branch an `If` whose
bodies compute the branch again, a Loop a Loop over the states of each iteration, which the first
one collects. Calls of functions and matches are those of `reverse_calls`: each gives a function
value that passes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.graph.builder import const
from autosched.graph.errors import Unsupported
from autosched.graph.infer import infer, inference
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Function,
    Global,
    If,
    Item,
    TupleExpr,
    Var,
    bodies,
    reads,
    tensor_type,
    type_of,
)
from autosched.graph.reverse_host import RULES, from_host
from autosched.graph.reverse_types import Bindings
from autosched.graph.scopes import Copying, free_variables
from autosched.graph.types import TensorType
from autosched.tir import dtypes

if TYPE_CHECKING:
    from autosched.graph.reverse_calls import Functions

COUNT = TensorType((), "int64")


@dataclass(frozen=True)
class Looped:
    """A Loop that went forwards: its body, the arguments of its states, the states at the start of
    every iteration, how many iterations there were, and `turns`, their number where it is known."""

    body: Function
    states: tuple[Atom, ...]
    saved: tuple[Var, ...]
    total: Atom
    turns: int | None


@dataclass(frozen=True)
class Step:
    """A binding that went forwards. `back`, where there is one, is the function value that passes
    back to the variables `wanted`; `looped` is set for a Loop."""

    binding: Binding
    back: Var | None = None
    wanted: tuple[Var, ...] = ()
    looped: Looped | None = None


class Reverse(Bindings):
    """Goes through one body; what it computes is bound in `out`.

    `known` has what stands for variables by id, `active` the ids of the variables that are
    differentiated and of those that depend on them, `given` what has come back to a variable."""

    def __init__(
        self,
        functions: Functions,
        known: dict[int, Atom],
        active: set[int],
        closures: dict[int, Function],
    ) -> None:
        super().__init__()
        self.functions = functions
        self.known, self.active, self.closures = known, active, closures
        self.given: dict[int, Atom] = {}

    def inside(self) -> Reverse:
        """The same for a body inside this one."""
        return Reverse(self.functions, dict(self.known), set(self.active), dict(self.closures))

    # Forwards

    def forward(self, body: Body) -> tuple[list[Step], list[Atom]]:
        """A copy of the body: a step a binding, and the results."""
        steps = [self.forwards(b) for b in body.bindings]
        return steps, [self.known.get(id(a), a) for a in body.results]

    def forwards(self, original: Binding) -> Step:
        """One binding."""
        b = Copying(self.known).binding(original)
        value = b.value
        if isinstance(value, Function):
            self.closures[id(b.vars[0])] = value
        matters = any(id(a) in self.active for a in reads(value))
        if matters:
            carried = [v for v in b.vars if self.functions.carries(v.type)]
            self.active |= {id(v) for v in (b.vars if isinstance(value, Function) else carried)}
            matters = bool(carried)
        if matters and isinstance(value, Call) and value.callee == "Loop":
            return self.forwards_loop(b, value)
        if matters and isinstance(value, Call) and value.callee == "Scan":
            raise Unsupported(
                "Scan has no adjoint where how many steps it takes is not known; import the model "
                "with sizes that are numbers, or write op.loop with turns"
            )
        if matters and not self.plain(value):
            return self.functions.forwards(self, b)
        self.out.append(b)
        return Step(b)

    def plain(self, value: Any) -> bool:
        """Whether a value is made of operators, branches and tuples, which may be computed twice
        without harm."""
        if isinstance(value, (TupleExpr, Item)):
            return True
        if isinstance(value, Call):
            if isinstance(value.callee, Global):
                return value.callee.name in self.functions.constructors
            return isinstance(value.callee, str)
        inner = isinstance(value, (If, Function))
        return inner and all(self.plain(b.value) for x in bodies(value) for b in x.bindings)

    def forwards_loop(self, b: Binding, value: Call) -> Step:
        """A Loop that collects its states, and counts its iterations where their number is open."""
        f = value.args[2]
        body = self.closures.get(id(f))
        if body is None or not isinstance(f, Var):
            raise Unsupported("Loop has no adjoint where its function is the result of another")
        states = tuple(a for a in value.args[3:] if a is not None)
        params = body.params[2:]
        for p in params:
            t = p.type
            if not isinstance(t, TensorType) or not t.is_static:
                raise Unsupported(
                    f"Loop has no adjoint where its state {p.name} changes its shape: it is {t}; "
                    "keep what a turn gives in a result that is scanned"
                )
        turns = value.attr("turns")
        copy = Copying().binding(Binding((f,), body)).value
        assert isinstance(copy, Function)
        go, *results = copy.body.results
        after, scanned = results[: len(states)], results[len(states) :]
        kept = copy.params[2:]
        more, first = list(copy.body.bindings), list(states)
        total: Atom = const(np.int64(turns or 0))
        own = list(copy.params)
        if turns is None:
            counter, counted = Var("turns", COUNT), Var("turns", COUNT)
            more.append(Binding((counted,), Call("Add", (counter, const(np.int64(1))))))
            own.append(counter)
            after, first = [*after, counted], [*first, const(np.int64(0))]
        new = Function(
            copy.name, tuple(own), Body(tuple(more), (go, *after, *scanned, *kept)), copy.attrs
        )
        (g,) = self.bind(new, [new.type], f.name)
        parts = tuple(_part(a) for a in (*scanned, *kept))
        attrs = {**dict(value.attrs), "parts": parts}
        call = Call("Loop", (*value.args[:2], g, *first), tuple(sorted(attrs.items())))
        types = list(infer(call, len(after) + len(parts)))
        made = [Var(f.name, t) for t in types]
        if turns is None:
            total = made[len(states)]
        old = [*made[: len(states)], *made[len(after) :]]
        for n, v in enumerate(b.vars):  # under the names that are read
            place = next(k for k, x in enumerate(made) if x is old[n])
            made[place] = v
        self.out.append(Binding(tuple(made), call))
        saved = tuple(made[len(made) - len(kept) :])
        return Step(b, looped=Looped(body, states, saved, total, turns))

    # Backwards

    def add(self, a: Atom, part: Atom | None) -> None:
        """What comes back to an atom, added to what has come."""
        if part is None or id(a) not in self.active:
            return
        before = self.given.get(id(a))
        self.given[id(a)] = (
            part if before is None else self.functions.plus(self, before, part, type_of(a))
        )

    def back(self, a: Atom) -> Atom:
        """What has come back to an atom: zeros where nothing has."""
        found = self.given.get(id(a))
        return self.nothing(a) if found is None else found

    def nothing(self, a: Atom) -> Atom:
        """Zeros for an atom."""
        name = a.name if isinstance(a, (Var, Global)) else "a constant"
        return self.functions.zero(self, type_of(a), name)

    def backward(self, steps: Sequence[Step]) -> None:
        """All steps, the last one first."""
        for step in reversed(steps):
            if any(id(v) in self.given for v in step.binding.vars):
                self.backwards(step)

    def backwards(self, step: Step) -> None:
        """One step."""
        b = step.binding
        value = b.value
        if step.back is not None:
            carried = [v for v in b.vars if self.functions.carries(v.type)]
            call = Call(step.back, tuple(map(self.back, carried)))
            types = [v.type for v in step.wanted]
            (made,) = self.bind(call, [self.functions.packed(types)], "d")
            for v, d in zip(step.wanted, self.functions.unpack(self, made, types), strict=True):
                self.add(v, d)
        elif step.looped is not None:
            self.backwards_loop(b, step.looped)
        elif isinstance(value, If):
            self.backwards_if(b, value)
        elif isinstance(value, (TupleExpr, Item)) or (
            isinstance(value, Call) and isinstance(value.callee, Global)
        ):
            self.functions.backwards_data(self, b)
        elif isinstance(value, Call):
            self.backwards_operator(b, value)
        else:
            raise Unsupported(f"{b.vars[0].name} is a {type(value).__name__}, without an adjoint")

    def backwards_if(self, b: Binding, value: If) -> None:
        """Each body again, then backwards over it."""
        for v in b.vars:
            if id(v) in self.given:
                _known_shape(v, "If")
        wanted = self.wanted(value)
        made = []
        for body in (value.then, value.other):
            inner = self.inside()
            steps, results = inner.forward(body)
            for v, a in zip(b.vars, results, strict=True):
                inner.add(a, self.given.get(id(v)))
            inner.backward(steps)
            found = tuple(map(inner.back, wanted))
            made.append(Body(tuple(inner.out), found))
        types = [self.functions.type(v.type) for v in wanted]
        parts = self.bind(If(value.condition, *made), types, "d_if")
        for v, d in zip(wanted, parts, strict=True):
            self.add(v, d)

    def wanted(self, value: Any) -> list[Var]:
        """The variables around the bodies in a value to which something comes back."""
        found = [v for body in bodies(value) for v in free_variables(body, ())]
        return [
            v
            for v in {id(v): v for v in found}.values()
            if id(v) in self.active and self.functions.carries(v.type)
        ]

    def backwards_loop(self, b: Binding, loop: Looped) -> None:
        """A Loop over the iterations, the last one first: what comes back to the states goes from
        one to the next, what comes back to variables around the body is added up."""
        body, states = loop.body, loop.states
        free = [
            v
            for v in free_variables(body.body, body.params)
            if id(v) in self.active and self.functions.carries(v.type)
        ]
        floats = [n for n, a in enumerate(body.params[2:]) if is_float(a)]
        last = self.operator("Sub", [loop.total, const(np.int64(1))])
        number, go = Var("n", COUNT), Var("go", TensorType((), "bool"))
        come = {n: Var(f"d_{body.params[2 + n].name}", body.params[2 + n].type) for n in floats}
        sums = [Var(f"d_{v.name}", self.functions.type(v.type)) for v in free]
        inner = self.inside()
        at = inner.operator("Sub", [last, number])
        given: list[Atom] = [at, const(np.asarray(True))]
        for p, s in zip(body.params[2:], loop.saved, strict=True):
            part = inner.operator("Gather", [s, at], axis=0)
            if part.type != p.type:  # how many there are is open
                shape = tuple(int(n) for n in tensor_type(p).known)
                part = inner.operator("Reshape", [part], shape=shape)
            given.append(part)
        inner.known.update({id(p): a for p, a in zip(body.params, given, strict=True)})
        inner.active |= {id(given[2 + n]) for n in floats}
        steps, results = inner.forward(body.body)
        for n in floats:
            inner.add(results[1 + n], come[n])
        for v, a in zip(b.vars[len(states) :], results[1 + len(states) :], strict=False):
            d = self.given.get(id(v))
            if d is not None:
                inner.add(a, inner.operator("Gather", [d, at], axis=0))
        inner.backward(steps)
        ends = [inner.back(given[2 + n]) for n in floats]
        for v, s in zip(free, sums, strict=True):
            d = inner.given.get(id(v))
            ends.append(s if d is None else inner.functions.plus(inner, s, d, v.type))
        params = (number, go, *come.values(), *sums)
        made = Function(f"d_{body.name}", params, Body(tuple(inner.out), (go, *ends)))
        (f,) = self.bind(made, [made.type], made.name)
        first = [self.back(b.vars[n] if n < len(b.vars) else states[n]) for n in floats]
        first += map(self.nothing, free)
        call = Call("Loop", (loop.total, None, f, *first))
        found = self.bind(call, [type_of(a) for a in ends], made.name)
        for a, d in zip([*(states[n] for n in floats), *free], found, strict=True):
            self.add(a, d)

    def backwards_operator(self, b: Binding, value: Call) -> None:
        """What an operator passes back to each of its inputs that matter."""
        assert isinstance(value.callee, str)
        for v in b.vars:
            _known_shape(v, value.callee)
        kind = inference(value, len(b.vars)).kind
        by_rule = value.callee in RULES or kind in ("host", "routine")
        given = [self.given.get(id(v)) for v in b.vars]
        for n, a in enumerate(value.args):
            if a is not None and id(a) in self.active and is_float(a):
                found = (
                    from_host(self, b, n, given[0])
                    if by_rule
                    else self.passed_back(value, n, a, given)
                )
                self.add(a, found)

    def passed_back(
        self, value: Call, n: int, a: Atom, given: Sequence[Atom | None]
    ) -> Atom | None:
        """What input n of a call gets back."""
        t, first = tensor_type(a), given[0]
        same = first is not None and first.type == t
        if same and value.callee in ("Add", "Identity", "Sum"):
            return first
        if same and value.callee == "Sub":
            return first if n == 0 else self.operator("Neg", [first])
        if value.callee in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") and t.is_static:
            return self.operator("Reshape", [first], shape=tuple(int(m) for m in t.known))
        if value.callee == "Transpose":
            perm = value.attr("perm") or tuple(range(len(t.known)))[::-1]
            order = [p % len(perm) for p in perm]
            back = tuple(order.index(d) for d in range(len(order)))
            return self.operator("Transpose", [first], perm=back)
        if value.callee == "Conv" and n == 0 and first is not None:
            made = self.transposed(value, t, first)
            if made is not None:
                return made
        return self.operator(
            "Adjoint",
            [*value.args, *given],
            of=value.callee,
            wrt=n,
            inputs=len(value.args),
            results=len(given),
            attrs=value.attrs,
        )

    def transposed(self, value: Call, t: TensorType, given: Atom) -> Atom | None:
        """What the data of a convolution gets back, by ConvTranspose, whose schedules are known to
        be good; None where the padding is not written out."""
        weight = value.args[1]
        if value.attr("auto_pad", "NOTSET") != "NOTSET" or not t.is_static or weight is None:
            return None
        rank = len(t.known) - 2
        ones = (1,) * rank
        strides, dilations = (value.attr(k) or ones for k in ("strides", "dilations"))
        pads = value.attr("pads") or (0,) * (2 * rank)
        out, window = tensor_type(given).known[2:], tensor_type(weight).known[2:]
        extra = tuple(
            int(n) - ((int(o) - 1) * s + (int(k) - 1) * d + 1 - before - after)
            for n, o, s, k, d, before, after in zip(
                t.known[2:], out, strides, window, dilations, pads[:rank], pads[rank:], strict=True
            )
        )
        return self.operator(
            "ConvTranspose",
            [given, weight],
            strides=tuple(strides),
            dilations=tuple(dilations),
            pads=tuple(pads),
            group=value.attr("group", 1),
            output_padding=extra,
        )


def is_float(a: Atom) -> bool:
    """Whether an atom is a tensor of floats."""
    t = None if isinstance(a, Global) else a.type
    return isinstance(t, TensorType) and dtypes.is_float(t.dtype)


def _known_shape(v: Var, name: str) -> None:
    if isinstance(v.type, TensorType) and v.type.shape is None:
        raise Unsupported(
            f"{name} has no adjoint where its shape depends on data; leave parameters that it "
            "depends on out of wrt"
        )


def _part(a: Atom) -> tuple[tuple[int, ...] | None, str]:
    """Shape and dtype of what one iteration of a Loop gives."""
    t = tensor_type(a)
    return (tuple(int(n) for n in t.known) if t.is_static else None), t.dtype

"""Dataflow patterns: shapes of computation, found in functions and rewritten.

    from autosched.graph.pattern import any, const, op

    layer = op("conv2d")(any.named("x"), const).optional(op("Relu"))
    for found in matches(layer, function):
        found["x"]                       # the value that stands there

A pattern is about one value and what it is computed from. `a | b` is either of two, a first;
`p.optional(op("Relu"))` is `op("Relu")(p) | p`; `p.where(f)`, `p.typed(shape=, dtype=)` and
`op(...)(..., group=1)` are conditions. A pattern used twice in another one stands for one value in
both places, `any` and `const` alone excepted; so does a name given twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

from autosched.checks import instance, shown, text
from autosched.errors import WorkloadError
from autosched.graph import ops
from autosched.graph.builder import Value
from autosched.graph.ir import Atom, Binding, Body, Call, Const, Function, Var
from autosched.graph.ops.registry import named as by_python_name
from autosched.graph.types import TensorType
from autosched.tir import dtypes

DEEPEST = 128
"""Patterns inside one another."""
COMMUTATIVE = frozenset({"Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"})
"""Operators of two arguments that match in either order."""
NAMES = {
    "bias_add": "Add",
    "batch_norm": "BatchNormalization",
    "conv2d": "Conv",
    "conv2d_transpose": "ConvTranspose",
    "dense": "Gemm",
}
"""Operators by the names that TVM has for them, where ONNX's are others."""
Argument = Union["Pattern", None, "type(...)"]  # type: ignore[valid-type]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Base of all patterns: what a value may be. Compared by identity."""

    @property
    def parts(self) -> tuple[Pattern, ...]:
        """The patterns directly inside it."""
        return ()

    def __or__(self, other: Pattern) -> Pattern:
        instance("the other pattern of |", other, Pattern, "a pattern", WorkloadError)
        return _checked(Either((self, other)))

    def optional(self, around: Callable[[Pattern], Pattern]) -> Pattern:
        """`around(self)` or, without that, self: `conv.optional(op("Relu"))`."""
        if not callable(around):
            raise WorkloadError(
                f"optional takes {shown(around)}; expected op(...) or a function of a pattern"
            )
        made = around(self)
        instance("what optional makes of a pattern", made, Pattern, "a pattern", WorkloadError)
        return made | self

    def named(self, name: str) -> Pattern:
        """The same, whose value a match has under a name; of a name given twice both values are
        one, constants by their elements."""
        return _checked(Named(self, text("the name of a pattern", name, WorkloadError)))

    def where(self, condition: Callable[[Value], object]) -> Pattern:
        """The same with a condition on the value: its `shape`, its `dtype`, its `atom`."""
        if not callable(condition):
            raise WorkloadError(f"where takes {shown(condition)}; expected a function of a value")
        return _checked(Where(self, condition))

    def typed(self, shape: Sequence[Any] | None = None, dtype: str | None = None) -> Pattern:
        """The same with a condition on the type. In a shape, None stands for any extent, and `...`
        as the last one for any others."""
        if dtype is not None and not (isinstance(dtype, str) and dtype in dtypes.DTYPES):
            raise WorkloadError(f"dtype of a pattern is {shown(dtype)}; there is no such dtype")
        if shape is not None and not isinstance(shape, (list, tuple)):
            raise WorkloadError(f"shape of a pattern is {shown(shape)}; expected extents")
        wanted = None if shape is None else tuple(shape)
        return self.where(lambda v: _fits(v.atom, wanted, dtype))


@dataclass(frozen=True, eq=False)
class Any_(Pattern):
    """Any value."""


@dataclass(frozen=True, eq=False)
class Constant(Pattern):
    """A constant; `value`: of these elements."""

    value: Any = None

    def __call__(self, value: Any) -> Constant:
        """A constant all of whose elements are equal to `value`, which is broadcast."""
        return Constant(value)


@dataclass(frozen=True, eq=False)
class Operation(Pattern):
    """A call of an operator. Without arguments: of any, and it can be called with patterns."""

    operator: str | None
    args: tuple[Argument, ...] | None = None
    attrs: tuple[tuple[str, Any], ...] = ()
    result: int = 0
    condition: Callable[[Call], object] | None = None

    @property
    def parts(self) -> tuple[Pattern, ...]:
        return tuple(a for a in self.args or () if isinstance(a, Pattern))

    def __call__(self, *args: Argument, **attrs: Any) -> Operation:
        """A call with these arguments: patterns, None for an input that is left out, and last
        `...` for any others. An attribute is a value, or a function that says whether it fits."""
        for n, a in enumerate(args):
            last = a is ... and n == len(args) - 1
            if not (a is None or last or isinstance(a, Pattern)):
                raise WorkloadError(
                    f"argument {n} of the pattern {self.operator or 'op()'} is {shown(a)}; "
                    "expected a pattern, None, or ... as the last"
                )
        if self.operator is not None:
            known = ops.find(self.operator).attributes
            unknown = [k for k in attrs if k not in known]
            if unknown:
                raise WorkloadError(f"{self.operator} has no attribute {shown(unknown[0])}")
        given = tuple((k, _plain(v)) for k, v in attrs.items())
        made = replace(self, args=tuple(args) if args else self.args, attrs=self.attrs + given)
        _checked(made)
        return made

    def __getitem__(self, result: int) -> Operation:
        """The same, whose value is another result than the first."""
        if not isinstance(result, int) or result < 0:
            raise WorkloadError(f"result {shown(result)} of a pattern; expected a number from 0")
        return replace(self, result=result)


@dataclass(frozen=True, eq=False)
class Either(Pattern):
    """The first of these that fits."""

    choices: tuple[Pattern, ...]

    @property
    def parts(self) -> tuple[Pattern, ...]:
        return self.choices


@dataclass(frozen=True, eq=False)
class Named(Pattern):
    """A pattern with a name."""

    inner: Pattern
    name: str

    @property
    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)


@dataclass(frozen=True, eq=False)
class Where(Pattern):
    """A pattern with a condition."""

    inner: Pattern
    condition: Callable[[Value], object]

    @property
    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)


any = Any_()
"""Any value."""
const = Constant()
"""Any constant; `const(1.0)`: one all of whose elements are that."""


def op(name: str | Callable[[Call], object] | None = None) -> Operation:
    """A call of the operator `name`, by ONNX's name, the one that Python code uses, or TVM's; of
    any operator without a name, or of those for whose `ir.Call` a function holds. Raises
    WorkloadError for an operator that there is not."""
    if name is None or callable(name):
        return Operation(None, condition=name)
    name = text("the operator of a pattern", name, WorkloadError)
    row = by_python_name(name) or ops.find(NAMES.get(name, name))
    return Operation(row.name)


def _plain(value: Any, depth: int = 0) -> Any:
    """An attribute with tuples for lists."""
    if not isinstance(value, (list, tuple)):
        return value
    if depth == DEEPEST:
        raise WorkloadError(f"an attribute of a pattern nests more than {DEEPEST} deep")
    return tuple(_plain(x, depth + 1) for x in value)


def _checked(pattern: Pattern) -> Pattern:
    """Raises WorkloadError for patterns too deep to be matched by recursion."""
    depth, row = 0, [pattern]
    while row:
        depth += 1
        if depth > DEEPEST:
            raise WorkloadError(f"a pattern is more than {DEEPEST} patterns deep")
        row = list({id(q): q for p in row for q in p.parts}.values())
    return pattern


def _fits(a: Atom, shape: tuple[Any, ...] | None, dtype: str | None) -> bool:
    t = a.type if isinstance(a, (Var, Const)) else None
    if not isinstance(t, TensorType) or (dtype is not None and t.dtype != dtype):
        return False
    if shape is None:
        return True
    if t.shape is None:
        return False
    open_ = bool(shape) and shape[-1] is ...
    wanted = shape[:-1] if open_ else shape
    if len(t.shape) < len(wanted) or (not open_ and len(t.shape) != len(wanted)):
        return False
    return all(n is None or m == n for n, m in zip(wanted, t.shape, strict=False))


@dataclass(frozen=True, eq=False)
class Match:
    """Where a pattern fits: `root`, the binding of its value; `bindings`, all that the pattern
    names, in order; `names`, the values with a name."""

    root: Binding
    bindings: tuple[Binding, ...]
    names: Mapping[str, Atom]

    def __getitem__(self, name: str) -> Value:
        """The value with a name. Raises WorkloadError where none has it, as of a part that is
        optional and absent; `name in match` asks."""
        if name not in self.names:
            have = ", ".join(self.names) or "none"
            raise WorkloadError(f"the match has no value named {shown(name)}; named are: {have}")
        return Value(self.names[name])

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def value(self) -> Value:
        """The value that matches: the first result of the root."""
        return Value(self.root.vars[0])

    def attributes(self, name: str | None = None) -> dict[str, Any]:
        """Attributes of the call that made the value with a name, of the root without; those left
        out as the operator's definition has them."""
        binding = self.root
        if name is not None:
            atom = self[name].atom
            binding = next((b for b in self.bindings if atom in b.vars), self.root)
            if atom not in binding.vars:
                raise WorkloadError(f"{name} is a value that the pattern takes, made by no call")
        assert isinstance(binding.value, Call)
        callee = binding.value.callee
        defaults = ops.find(callee).attributes if isinstance(callee, str) else {}
        return {**defaults, **dict(binding.value.attrs)}


@dataclass(frozen=True)
class _State:
    """What a part of a pattern has matched."""

    atoms: Mapping[int, Atom]
    names: Mapping[str, Atom]
    used: Mapping[int, Binding]


_EMPTY = _State({}, {}, {})


class Matcher:
    """Matches patterns in a body: `maker[id(variable)]` is the binding of a variable."""

    def __init__(self, maker: Mapping[int, Binding]) -> None:
        self.maker = maker
        self.order = {id(b): n for n, b in enumerate(maker.values())}
        self.alone: dict[tuple[int, int], bool] = {}

    def at(self, pattern: Pattern, binding: Binding) -> Match | None:
        """The match whose value is a result of a binding."""
        for v in binding.vars:
            for state in self._match(pattern, v, _EMPTY):
                if id(binding) not in state.used:
                    continue  # a pattern that names no operator
                used = sorted(state.used.values(), key=lambda b: self.order[id(b)])
                return Match(binding, tuple(used), state.names)
        return None

    def _match(self, p: Pattern, a: Atom, state: _State) -> Iterator[_State]:
        if isinstance(p, Any_):
            yield state
            return
        if isinstance(p, Constant):
            if isinstance(a, Const) and (p.value is None or _equals(a, p.value)):
                yield state
            return
        before = state.atoms.get(id(p))
        if before is not None:
            if _one(before, a):
                yield state
            return
        for found in self._inside(p, a, state):
            yield replace(found, atoms={**found.atoms, id(p): a})

    def _inside(self, p: Pattern, a: Atom, state: _State) -> Iterator[_State]:
        if isinstance(p, Either):
            for choice in p.choices:
                yield from self._match(choice, a, state)
        elif isinstance(p, Named):
            for found in self._match(p.inner, a, state):
                taken = found.names.get(p.name)
                if taken is None or _one(taken, a):
                    yield replace(found, names={**found.names, p.name: a})
        elif isinstance(p, Where):
            for found in self._match(p.inner, a, state):
                if p.condition(Value(a)):
                    yield found
        elif isinstance(p, Operation):
            yield from self._operation(p, a, state)

    def _operation(self, p: Operation, a: Atom, state: _State) -> Iterator[_State]:
        b = self.maker.get(id(a))
        if b is None or not isinstance(b.value, Call) or not isinstance(b.value.callee, str):
            return
        call, callee = b.value, b.value.callee
        if p.operator is not None and callee != p.operator:
            return
        if p.condition is not None and not p.condition(call):
            return
        if p.result >= len(b.vars) or b.vars[p.result] is not a:
            return
        given = {**ops.find(callee).attributes, **dict(call.attrs)}
        if not all(k in given and _attribute(given[k], v) for k, v in p.attrs):
            return
        state = replace(state, used={**state.used, id(b): b})
        if p.args is None:
            yield state
            return
        orders = [call.args]
        if callee in COMMUTATIVE and len(p.args) == len(call.args) == 2 and ... not in p.args:
            orders += [call.args[::-1]] if call.args[0] is not call.args[1] else []
        for args in orders:
            if self._each_alone(p.args, args):
                yield from self._arguments(p.args, args, state)

    def _each_alone(self, patterns: Sequence[Argument], args: Sequence[Atom | None]) -> bool:
        """Whether each pattern fits its argument when nothing else is asked. Found out once: the
        two orders of arguments would make it twice as often at each depth."""
        for p, a in zip(patterns, args, strict=False):
            if not isinstance(p, Pattern) or a is None:
                continue
            key = id(p), id(a)
            if key not in self.alone:
                self.alone[key] = next(self._match(p, a, _EMPTY), None) is not None
            if not self.alone[key]:
                return False
        return True

    def _arguments(
        self, patterns: Sequence[Argument], args: Sequence[Atom | None], state: _State
    ) -> Iterator[_State]:
        if not patterns:
            if all(a is None for a in args):
                yield state
            return
        first, *rest = patterns
        if first is ...:
            yield state
        elif first is None or not args or args[0] is None:
            if first is None and (not args or args[0] is None):
                yield from self._arguments(rest, args[1:], state)
        else:
            for found in self._match(first, args[0], state):
                yield from self._arguments(rest, args[1:], found)


def _one(a: Atom, b: Atom) -> bool:
    """Whether two atoms are one value."""
    return a is b or (isinstance(a, Const) and isinstance(b, Const) and a.digest == b.digest)


def _equals(c: Const, value: Any) -> bool:
    import numpy as np

    return c.array is not None and c.array.size > 0 and bool(np.all(c.array == np.asarray(value)))


def _attribute(found: Any, wanted: Any) -> bool:
    if callable(wanted):
        return bool(wanted(found))
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


def makers(body: Body) -> dict[int, Binding]:
    """The binding of each variable of a body, by the variable's id, in order."""
    return {id(v): b for b in body.bindings for v in b.vars}


def matches(pattern: Pattern, function: Function) -> list[Match]:
    """All matches of a pattern in a function's body, by the order of their roots; they may overlap.
    Bodies inside it (of If, of closures) are left out."""
    instance("the pattern", pattern, Pattern, "a pattern of graph.pattern", WorkloadError)
    instance("the function", function, Function, "a graph function", WorkloadError)
    matcher = Matcher(makers(function.body))
    found = (matcher.at(pattern, b) for b in function.body.bindings)
    return [m for m in found if m is not None]


def chosen(patterns: Sequence[Pattern], body: Body) -> dict[int, Match]:
    """Matches that do not overlap, by the id of their root: later roots first, so that of an
    optional part the larger match is taken; of several patterns that fit the first."""
    matcher = Matcher(makers(body))
    taken: set[int] = set()
    out: dict[int, Match] = {}
    for b in reversed(body.bindings):
        if id(b) in taken:
            continue
        for p in patterns:
            found = matcher.at(p, b)
            if found is not None and not any_taken(found, taken):
                taken |= {id(x) for x in found.bindings}
                out[id(b)] = found
                break
    return out


def any_taken(found: Match, taken: set[int]) -> bool:
    """Whether another match has one of its bindings."""
    return not taken.isdisjoint(id(b) for b in found.bindings)

"""lambda_lift: closures become functions of the module, and functions that take functions first
order; functions over types get one copy for each of the types that they are called with."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autosched.errors import WorkloadError
from autosched.graph.inference import completed
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Function,
    Global,
    Var,
    bodies,
    type_of,
)
from autosched.graph.notes import Notes
from autosched.graph.passes.calling import reachable
from autosched.graph.scopes import Copying, free_variables
from autosched.graph.types import FuncType, Hole, OpenTensor, TensorType, Type, TypeVar, leaves
from autosched.passes.base import Pass
from autosched.te.prim_func import free_name
from autosched.tir.module import GraphFunction, IRModule

MOST_COPIES = 1000
"""Copies of functions for the functions, or the types, that they are called with."""
DEEPEST_COPIES = 50
"""Copies for functions that are made in copies: a continuation grows from call to call."""
LARGEST = 1 << 40
"""Elements of a tensor that a copy is made for: larger ones come of sizes that grow."""


@dataclass(frozen=True)
class Known:
    """A function value that is a function of the module: `captured` are its last arguments."""

    name: str
    captured: tuple[Atom, ...] = ()


@dataclass
class Template:
    """A function as it stood, with what is known of the function values among its variables."""

    function: Function
    known: dict[int, Known] = field(default_factory=dict)


def _lifted(module: IRModule) -> IRModule:
    lifting = _Lifting(module.graphs)
    plain = {n: f for n, f in module.graphs.items() if _is_plain(f)}
    lifting.start("main" if "main" in plain else None)
    graphs = {n: g for n, g in module.graphs.items() if n not in plain} | lifting.made
    return IRModule(module.functions, _with_types(completed(graphs, Notes(), frozenset())))


lambda_lift = Pass("lambda_lift", _lifted)
"""Functions inside others become functions of the module, which take what they use from around
them as arguments. A function that is called with functions gets a copy in which these are known.
A function over types gets a copy for each of the types it is called with. What is stored, or given
back, stays a function value, which calls the new function; so do the bodies of Loop and Scan.

rewrite:
    def main(x, n):
        def add(total, k):                          def main(x, n):
            if k <= 0:                                  y = add(0.0, n, x)
                return total                 ->         return y
            return add(total + x, k - 1)            def add(total, k, x):
        y = add(0.0, n)                                 …
        return y                                        return add(total + x, k - 1, x)
"""


def _is_plain(f: GraphFunction | None) -> bool:
    return isinstance(f, Function) and not (f.is_primitive or f.is_external)


class _Lifting:
    def __init__(self, graphs: Mapping[str, GraphFunction]) -> None:
        self.taken = set(graphs)
        self.templates = {
            n: Template(f) for n, f in graphs.items() if isinstance(f, Function) and _is_plain(f)
        }
        self.made: dict[str, Function] = {}
        self.names: dict[object, str] = {}
        self.depth: dict[str, int] = {}
        """Of copies, and of functions made in them: the copies in which they are made."""
        self.waiting: deque[tuple[str, Template, list[Known | None]]] = deque()

    def start(self, main: str | None) -> None:
        """Write the function `main` anew with all that it calls, or else every function."""
        for name in self.templates if main is None else [main]:
            self.copy(name, [None] * len(self.templates[name].function.params))
        while self.waiting:
            name, template, given = self.waiting.popleft()
            self.made[name] = _Body(self, template).whole(name, given)

    def copy(self, name: str, given: Sequence[Known | None]) -> str | None:
        """The name of a function whose parameters are known functions where `given` says so; None
        where there are too many."""
        key = (name, tuple(None if k is None else k.name for k in given))
        if key not in self.names:
            depths = [1 + self.depth.get(k.name, 0) for k in given if k is not None]
            special, depth = bool(depths), max(depths, default=self.depth.get(name, 0))
            if special and (len(self.names) >= MOST_COPIES or depth > DEEPEST_COPIES):
                return None
            self.names[key] = free_name(name, self.taken) if special else name
            self.depth[self.names[key]] = depth
            self.waiting.append((self.names[key], self.templates[name], list(given)))
        return self.names[key]


class _Body(Copying):
    """Writes one function anew."""

    def __init__(self, lifting: _Lifting, template: Template) -> None:
        super().__init__()
        self.lifting, self.template = lifting, template
        self.functions: dict[int, Known] = {}
        self.special = False
        self.depth = 0
        self.stays: set[int] = set()
        self.out: list[Binding] = []

    def whole(self, name: str, given: Sequence[Known | None]) -> Function:
        """The function with known functions in the place of some parameters."""
        f, self.depth = self.template.function, self.lifting.depth.get(name, 0)
        # What a closure is about hangs on the function that it stood in.
        self.special = bool(self.template.known) or any(k is not None for k in given)
        params: list[Var] = []
        for p, k in zip(f.params, given, strict=True):
            if k is None:
                params.append(self.var(p))
            else:
                caught = [Var(getattr(a, "name", "c"), _open(type_of(a))) for a in k.captured]
                params += caught
                self.functions[id(p)] = Known(k.name, tuple(caught))
        for v, k in self.template.known.items():
            self.functions[v] = Known(k.name, tuple(map(super().atom, k.captured)))
        self.stays = _of_operators(f.body)
        body = self.body(f.body)
        return Function(name, tuple(params), body, _without_types(f) if self.special else f.attrs)

    def var(self, v: Var) -> Var:
        """A variable in the place of another."""
        made = Var(v.name, _open(v.type) if self.special else v.type)
        self.known[id(v)] = made
        return made

    def body(self, body: Body) -> Body:
        """A body, with function values that are made on the way."""
        outer, self.out = self.out, []
        for b in body.bindings:
            if isinstance(b.value, Function) and id(b.vars[0]) not in self.stays:
                self.lift(b.vars[0], b.value)
            else:
                self.out.append(self.binding(b))
        results = tuple(map(self.atom, body.results))
        made, self.out = Body(tuple(self.out), results), outer
        return made

    def function_of(self, a: Atom | None) -> Known | None:
        """The function of the module that an atom is known to be."""
        if isinstance(a, Global) and a.name in self.lifting.templates:
            return Known(a.name)
        return self.functions.get(id(a))

    def atom(self, a: Atom) -> Atom:
        """An atom as a value; a known function with arguments becomes a function value."""
        k = self.functions.get(id(a))
        if k is None:
            found = super().atom(a)
            if isinstance(found, Global) and found.name in self.lifting.templates:
                self.lifting.copy(found.name, [None] * len(self.of(found.name).params))
            return found
        f = self.of(k.name)
        own = f.params[: len(f.params) - len(k.captured)]
        params = tuple(Var(p.name, _open(p.type)) for p in own)
        name = self.lifting.copy(k.name, [None] * len(f.params))
        assert name is not None
        if not k.captured:
            return Global(name)
        results = tuple(Var("y", Hole()) for _ in f.body.results)
        call = Binding(results, Call(Global(name), (*params, *k.captured)))
        made = Var(f.name, Hole())
        self.out.append(Binding((made,), Function(f.name, params, Body((call,), results))))
        return made

    def of(self, name: str) -> Function:
        return self.lifting.templates[name].function

    def lift(self, own: Var, f: Function) -> None:
        """A closure becomes a function of the module."""
        name = free_name(own.name, self.lifting.taken)
        self.lifting.depth[name] = self.depth
        known: dict[int, Known] = {}
        inside: list[Var] = []
        outside: list[Atom] = []
        for v in free_variables(f.body, f.params):
            k = self.functions.get(id(v))
            if v is own:
                continue
            if k is None:
                inside.append(v)
                outside.append(super().atom(v))
                continue
            caught = [Var(getattr(a, "name", "c"), _open(type_of(a))) for a in k.captured]
            known[id(v)] = Known(k.name, tuple(caught))
            inside += caught
            outside += k.captured
        known[id(own)] = Known(name, tuple(inside))
        whole = Function(name, (*f.params, *inside), f.body, _without_types(f))
        self.lifting.templates[name] = Template(whole, known)
        self.functions[id(own)] = Known(name, tuple(outside))

    def call(self, v: Call) -> Call:
        """A call, of a function of the module where that is known."""
        if not isinstance(v.callee, str):
            k = self.function_of(v.callee)
            if k is not None:
                return self.call_known(v, k)
        return super().call(v)

    def call_known(self, v: Call, k: Known) -> Call:
        """A call of a function of the module, of a copy where arguments are functions."""
        given = [self.function_of(a) for a in v.args]
        rest: list[Known | None] = [None] * len(k.captured)
        name = self.lifting.copy(k.name, [*given, *rest])
        if name is None:
            given = [None] * len(given)
            name = self.lifting.copy(k.name, [*given, *rest])
        args: list[Atom] = []
        for a, g in zip(v.args, given, strict=True):
            assert a is not None
            args += [self.atom(a)] if g is None else g.captured
        special = any(g is not None for g in given)
        assert name is not None
        return Call(Global(name), (*args, *k.captured), () if special else v.attrs)


def _without_types(f: Function) -> tuple[tuple[str, object], ...]:
    return tuple((k, v) for k, v in f.attrs if k != "types")


def _of_operators(body: Body) -> set[int]:
    """Function values that operators call: those of Loop and Scan."""
    found: set[int] = set()
    work = [body]
    while work:
        for b in work.pop().bindings:
            if isinstance(b.value, Call) and isinstance(b.value.callee, str):
                found |= {id(a) for a in b.value.args if isinstance(a, Var)}
            work += bodies(b.value)
    return found


def _open(t: Type) -> Type:
    """A type that inference finds again where it hangs on type parameters or on a function."""
    return Hole() if isinstance(t, FuncType) or not _closed(t) else t


def _closed(t: Type) -> bool:
    """Whether nothing in a type is to be found, or a parameter."""
    return t != TensorType(None, "") and not any(
        isinstance(x, (TypeVar, Hole, OpenTensor)) for x in leaves(t)
    )


# Copies for types


def _with_types(graphs: dict[str, GraphFunction]) -> dict[str, GraphFunction]:
    """The functions that are over no types, with copies of those that are for the types that they
    call them with. `main` stays whatever it is over, and where there is none, so does each."""
    general = {n: f for n, f in graphs.items() if isinstance(f, Function) and _is_general(f)}
    if not general:
        return graphs
    names: dict[tuple[str, tuple[Type, ...]], str] = {}
    """Names of copies; of what stays over types, that of the function itself."""
    whole = "main" not in graphs
    out = {n: g for n, g in graphs.items() if whole or n == "main" or n not in general}
    waiting = [n for n, g in out.items() if _is_plain(g)]
    while waiting:
        name = waiting.pop()
        f = out[name]
        assert isinstance(f, Function)
        keys: dict[int, tuple[str, tuple[Type, ...]]] = {}
        fresh: dict[str, GraphFunction] = {}
        for call in _general_calls(f.body, general):
            assert isinstance(call.callee, Global)
            called = call.callee.name
            types = tuple(type_of(a) for a in call.args if a is not None)
            key = keys[id(call)] = (called, types)
            if key in names:
                continue
            if not all(map(_closed, types)):
                names[key] = called
                continue
            if len(names) >= MOST_COPIES or any(map(_is_huge, types)):
                count = sum(n == called for n, _ in names)
                raise WorkloadError(
                    f"{called} is called with more than {count} types; its types grow from "
                    "call to call: write it with one"
                )
            taken = {*graphs, *out, *fresh, *names.values()}
            n = 1
            while f"{called}_{n}" in taken:
                n += 1
            names[key] = f"{called}_{n}"
            fresh[names[key]] = _Typed().of(general[called], names[key], types)
        if fresh:
            every = {**graphs, **fresh}
            done = completed(every, Notes(), frozenset(set(graphs) - set(general)))
            made = {n: f for n in fresh for f in [done[n]] if isinstance(f, Function)}
            open_ = {n for n, f in made.items() if f.attr("types")}
            names.update({key: key[0] for key in keys.values() if names[key] in open_})
            out.update({n: made[n] for n in made if n not in open_})
            waiting += [n for n in made if n not in open_]
        if keys:
            out[name] = _Named({n: names[key] for n, key in keys.items()}).function(f)
    return dict(reachable(IRModule({}, {**general, **out}), list(out)).graphs)


def _is_huge(t: Type) -> bool:
    """Whether there is a tensor inside that no memory holds."""
    tensors = (x for x in leaves(t) if isinstance(x, TensorType) and x.is_static)
    return any(x.elements > LARGEST for x in tensors)


def _is_general(f: Function) -> bool:
    sized = any(isinstance(x, TensorType) and x.shape is not None and not x.is_static
                for p in f.params for x in leaves(p.type))  # fmt: skip
    return bool(f.attr("types")) or (sized and f.name != "main")


class _Typed(Copying):
    """A copy of a function for the types of its arguments: what follows from them is open."""

    def of(self, f: Function, name: str, types: Sequence[Type]) -> Function:
        """The copy."""
        params = tuple(Var(p.name, t) for p, t in zip(f.params, types, strict=True))
        self.known.update({id(p): q for p, q in zip(f.params, params, strict=True)})
        return Function(name, params, self.body(f.body), _without_types(f))

    def var(self, v: Var) -> Var:
        """A variable, open where its type hangs on the types or sizes of the arguments."""
        sized = isinstance(v.type, TensorType) and v.type.is_static
        made = Var(v.name, v.type if sized else Hole())
        self.known[id(v)] = made
        return made

    def atom(self, a: Atom) -> Atom:
        """What stands for an atom; functions have other types."""
        return Global(a.name) if isinstance(a, Global) else super().atom(a)

    def call(self, v: Call) -> Call:
        """A call without stated types."""
        made = super().call(v)
        if isinstance(made.callee, str):
            return made
        return Call(made.callee, made.args, tuple(x for x in made.attrs if x[0] != "types"))


class _Named(Copying):
    """Calls of copies in the place of calls of functions over types."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self.names = names

    def var(self, v: Var) -> Var:
        """The same variable."""
        return v

    def call(self, v: Call) -> Call:
        """A call of the copy."""
        return Call(Global(self.names[id(v)]), v.args) if id(v) in self.names else v


def _general_calls(body: Body, general: Mapping[str, Function]) -> list[Call]:
    """Calls of functions over types, in bodies inside it, too."""
    found: list[Call] = []
    work = [body]
    while work:
        for b in work.pop().bindings:
            v = b.value
            if isinstance(v, Call) and isinstance(v.callee, Global) and v.callee.name in general:
                found.append(v)
            work += bodies(v)
    return found

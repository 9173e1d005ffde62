"""partial_eval: functions, closures, lists and recursion that are known become dataflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autosched.checks import instance, mapping, shown
from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.arguments import Arguments, plain
from autosched.graph.builder import Value as Built
from autosched.graph.builder import const
from autosched.graph.data import constructors
from autosched.graph.errors import Unsupported
from autosched.graph.fold import folded
from autosched.graph.inference import completed, recursive
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Item,
    Match,
    Pattern,
    TupleExpr,
    Value,
    Var,
    bodies,
    reads,
)
from autosched.graph.notes import Notes
from autosched.graph.passes.calling import reachable
from autosched.graph.passes.clean import dead_code
from autosched.graph.passes.static_values import Env, Fn, Made, Static, is_data, matched
from autosched.graph.types import ANY, Hole, Type, TypeVar, leaves
from autosched.graph.values import Tagged
from autosched.passes.base import Pass
from autosched.tir.module import GraphFunction, IRModule

UNFOLDED = 20_000
"""Calls that are replaced by the bodies of their functions."""
NESTED = 150
"""Calls inside arguments of calls: folds from the right over longer lists stay calls."""
ELEMENTS = 64
"""Elements of constants that are computed: counters and flags; weights are for `fold`."""


def specialise(
    module: IRModule, name: str = "main", known: Mapping[str, Any] | None = None
) -> IRModule:
    """The module with a function evaluated as far as it goes when some parameters are known.

    `known` has arrays, tuples and values of data types by the names of parameters; a `graph.var`
    inside is a new parameter: `{"xs": to_list([var("x0", (1, 8)), var("x1", (1, 8))])}` makes a
    function of two arrays of one of a list. Raises ArgumentError for other names and values.
    """
    instance("the module to specialise", module, IRModule, "an IRModule", ArgumentError)
    f = module.graphs.get(name) if isinstance(name, str) else None
    if not isinstance(f, Function):
        have = ", ".join(module)
        raise WorkloadError(f"no graph function is named {shown(name)}; there are {have}")
    given = mapping("known", known, "values by names of parameters", ArgumentError)
    names = [p.name for p in f.params]
    for wrong in given:
        if wrong not in names:
            raise ArgumentError(f"{name} has no parameter {wrong!r}; it has {', '.join(names)}")
    params: list[Var] = []
    arguments = Arguments(constructors(module.graphs), _leaf)
    env = Env()
    for p in f.params:
        if p.name in given:
            checked = arguments.value(p.name, p.type, given[p.name])
            env.known[id(p)] = _known(p.name, checked, params)
        else:
            params.append(p)
    made = _Evaluator(module).top(f, env, params)
    left = reachable(IRModule(module.functions, {**module.graphs, name: made}), [name])
    return IRModule(left.functions, completed(left.graphs, Notes(), frozenset()))


def _partially_evaluated(module: IRModule) -> IRModule:
    main = module.graphs.get("main")
    if isinstance(main, Function) and not main.attr("types"):
        return specialise(module)
    made: dict[str, GraphFunction] = {}
    loops = recursive(module.graphs)
    for name, f in module.graphs.items():
        plain = isinstance(f, Function) and not (f.is_primitive or f.is_external)
        if plain and isinstance(f, Function) and not f.attr("types"):
            f = _Evaluator(module, loops).top(f, Env(), f.params)
        made[name] = f
    return IRModule(module.functions, completed(made, Notes(), frozenset()))


partial_eval = Pass("partial_eval", _partially_evaluated)
"""Calls of known functions are replaced by what they compute; folds over lists of known length are
unrolled, branches and matches on what is known are decided, closures go.

No work is done twice: what is bound once stays bound once. What hangs on data stays as it is.

rewrite:
    xs = Cons(x, Cons(y, Nil()))
    add = lambda a, b: a + b                   ->      a = op.add(z, x)
    total = foldl(add, z, xs)                          total = op.add(a, y)
"""


def _known(name: str, value: Any, params: list[Var]) -> Static:
    """A value of Python as one of the program; new parameters go into `params`."""
    chain = []  # a list nests in its last field, deeper than Python's stack
    while isinstance(value, Tagged) and value.fields:
        chain.append((value.constructor, [_known(name, x, params) for x in value.fields[:-1]]))
        value = value.fields[-1]
    made = _plain(name, value, params)
    for constructor, parts in reversed(chain):
        made = Made(constructor, (*parts, made))
    return made


def _leaf(name: str, t: Type, value: Any) -> Any:
    """What is inside no tuple and no list: a new parameter, or a constant."""
    return value if isinstance(value, Built) else plain(name, t, value)


def _plain(name: str, value: Any, params: list[Var]) -> Static:
    if isinstance(value, Tagged):
        return Made(value.constructor, ())
    if isinstance(value, tuple):
        return Made("", tuple(_known(name, x, params) for x in value))
    if isinstance(value, Built):
        if isinstance(value.atom, Var) and value.binding is None:
            params.append(value.atom)
            return value.atom
        raise ArgumentError(f"{name} has a value that was computed; expected graph.var(…)")
    return const(value)


class _Evaluator:
    """Evaluates one function; what is left is bound in `out`."""

    def __init__(self, module: IRModule, loops: frozenset[str] | None = None) -> None:
        self.module = module
        self.constructors = constructors(module.graphs)
        self.out: list[Binding] = []
        self.active: dict[int, list[int]] = {}
        """Functions whose bodies are being evaluated, with the undecided branches around each."""
        self.recursive = recursive(module.graphs) if loops is None else loops
        self.branches = self.nested = 0
        self.left = UNFOLDED
        self.atoms: list[dict[int, tuple[Static, Atom]]] = [{}]
        """Static values that have a variable, for each block around."""

    def top(self, f: Function, env: Env, params: Sequence[Var]) -> Function:
        """The function over `params`."""
        results = self.body(f.body, env)
        if len(results) == 1 and isinstance(results[0], Made) and not results[0].constructor:
            results = list(results[0].parts)  # a tuple: as many results
        found = tuple(map(self.atom, results))
        attrs = tuple(
            (k, v)
            for k, v in f.attrs
            if not (k == "inputs" and len(params) != len(f.params))
            and not (k == "outputs" and len(found) != len(f.body.results))
        )
        made = Function(f.name, tuple(params), Body(tuple(self.out), found), attrs)
        (done,) = dead_code(IRModule({}, {f.name: made})).graphs.values()
        assert isinstance(done, Function)
        return done

    # Values that need a variable

    def emit(self, value: Value, names: Sequence[Var]) -> tuple[Var, ...]:
        """Bind what is left to be computed."""
        made = tuple(Var(v.name, _open(v.type)) for v in names)
        self.out.append(Binding(made, value))
        return made

    def atom(self, s: Static) -> Atom:
        """A value as an atom: made here where it is not yet."""
        if isinstance(s, (Var, Const, Global)):
            return s
        found = self.known(s)
        if found is None:
            found = self.built(s) if isinstance(s, Made) else self.closure(s)
            self.atoms[-1][id(s)] = (s, found)
        return found

    def known(self, s: Static) -> Atom | None:
        """The variable that a static value has here already."""
        return next((scope[id(s)][1] for scope in self.atoms if id(s) in scope), None)

    def built(self, s: Made) -> Atom:
        """A tuple or a tagged tuple. A list is made from its end, without recursion."""
        chain = [s]
        while chain[-1].parts and self.known(chain[-1].parts[-1]) is None:
            end = chain[-1].parts[-1]
            if not isinstance(end, Made):
                break
            chain.append(end)
        last: Atom | None = None
        for one in reversed(chain):
            parts = one.parts if last is None else one.parts[:-1]
            atoms = [*map(self.atom, parts), *([] if last is None else [last])]
            if one.constructor:
                name = Var(one.constructor.lower(), Hole())
                (last,) = self.emit(Call(Global(one.constructor), tuple(atoms)), [name])
            else:
                (last,) = self.emit(TupleExpr(tuple(atoms)), [Var("tuple", Hole())])
            self.atoms[-1][id(one)] = (one, last)
        assert last is not None
        return last

    def closure(self, s: Fn) -> Atom:
        """A function value that stays one: its body is evaluated with unknown arguments."""
        own = Var(s.own.name, Hole())
        env = Env(s.env)
        env.known[id(s.own)] = own
        params = tuple(Var(p.name, _open(p.type)) for p in s.function.params)
        env.known.update({id(p): q for p, q in zip(s.function.params, params, strict=True)})
        body = self.block(s.function.body, env)
        self.out.append(Binding((own,), Function(own.name, params, body, s.function.attrs)))
        return own

    def block(self, body: Body, env: Env) -> Body:
        """A body that is evaluated later, or not at all."""
        outer, self.out = self.out, []
        self.atoms.append({})
        self.branches += 1
        results = tuple(map(self.atom, self.body(body, env)))
        self.branches -= 1
        self.atoms.pop()
        made, self.out = Body(tuple(self.out), results), outer
        return made

    # Evaluation

    def read(self, a: Atom, env: Env) -> Static:
        return env.find(a) if isinstance(a, Var) else a

    def body(self, body: Body, env: Env) -> list[Static]:
        """The results. A decided branch or an unfolded call at the end takes no stack."""
        entered: list[int] = []
        try:
            while True:
                following: tuple[Body, Env] | None = None
                for n, b in enumerate(body.bindings):
                    last = n + 1 == len(body.bindings) and b.vars == body.results
                    following = self.decided(b, env, entered) if last else None
                    if following is None:
                        found = self.value(b, env)
                        env.known.update({id(v): s for v, s in zip(b.vars, found, strict=True)})
                if following is None:
                    return [self.read(a, env) for a in body.results]
                body, env = following
        finally:
            for key in entered:
                self.active[key].pop()

    def decided(self, b: Binding, env: Env, entered: list[int]) -> tuple[Body, Env] | None:
        """The body that a binding comes to, with its environment; None where it is not known."""
        v = b.value
        if isinstance(v, If):
            condition = self.read(v.condition, env)
            if isinstance(condition, Const) and condition.array is not None:
                return (v.then if condition.value.any() else v.other), env
        if isinstance(v, Match):
            value = self.read(v.value, env)
            for pattern, body in v.clauses:
                found: list[tuple[Var, Static]] = []
                fits = matched(pattern, value, found)
                if fits:
                    env.known.update({id(x): s for x, s in found})
                    return body, env
                if fits is None:
                    return None
        if isinstance(v, Call) and not isinstance(v.callee, str):
            return self.unfolded(self.read(v.callee, env), v, env, entered)
        return None

    def unfolded(
        self, callee: Static, v: Call, env: Env, entered: list[int]
    ) -> tuple[Body, Env] | None:
        """The body of a called function with its arguments; None for a call that stays."""
        inner = Env(callee.env if isinstance(callee, Fn) else None)
        if isinstance(callee, Fn):
            f, key = callee.function, id(callee.function.body)
            inner.known[id(callee.own)] = callee
            loops = any(a is callee.own for x in f.body.bindings for a in reads(x.value))
        elif isinstance(callee, Global) and callee.name not in self.constructors:
            found = self.module.graphs.get(callee.name)
            if not isinstance(found, Function) or found.is_primitive or found.is_external:
                return None
            f, key = found, id(found.body)
            loops = callee.name in self.recursive
        else:
            return None
        args = [self.read(a, env) for a in v.args if a is not None]
        around = self.active.setdefault(key, [])
        if loops and not any(map(is_data, args)):
            return None
        if around and (self.branches > around[-1] or not any(map(is_data, args))):
            return None  # whether it is called again hangs on data
        if self.left == 0 or self.nested >= NESTED:
            return None
        self.left -= 1
        around.append(self.branches)
        entered.append(key)
        inner.known.update({id(p): s for p, s in zip(f.params, args, strict=True)})
        return f.body, inner

    def value(self, b: Binding, env: Env) -> Sequence[Static]:
        """What the variables of a binding stand for."""
        v = b.value
        entered: list[int] = []
        following = self.decided(b, env, entered)
        if following is not None:
            self.nested += 1
            found = self.body(*following)
            self.nested -= 1
            for key in entered:
                self.active[key].pop()
            return found
        if isinstance(v, Call):
            return self.call(b, v, env)
        if isinstance(v, TupleExpr):
            return [Made("", tuple(self.read(a, env) for a in v.items))]
        if isinstance(v, Item):
            whole = self.read(v.value, env)
            if isinstance(whole, Made):
                return [whole.parts[v.index]]
            return self.emit(Item(self.atom(whole), v.index), b.vars)
        if isinstance(v, Function):
            return [Fn(v, env, b.vars[0])]
        if isinstance(v, If):
            condition = self.atom(self.read(v.condition, env))
            then, other = (self.block(body, Env(env)) for body in bodies(v))
            return self.emit(If(condition, then, other), b.vars)
        return self.match(b, v, env)

    def match(self, b: Binding, v: Match, env: Env) -> Sequence[Static]:
        value = self.atom(self.read(v.value, env))
        clauses = []
        for pattern, body in v.clauses:
            inner = Env(env)
            clauses.append((self.pattern(pattern, inner), self.block(body, inner)))
        return self.emit(replace(v, value=value, clauses=tuple(clauses)), b.vars)

    def pattern(self, p: Pattern | Var | None, env: Env) -> Pattern | Var | None:
        if isinstance(p, Pattern):
            return Pattern(p.constructor, tuple(self.pattern(x, env) for x in p.parts))
        if p is None:
            return None
        made = Var(p.name, Hole())
        env.known[id(p)] = made
        return made

    def call(self, b: Binding, v: Call, env: Env) -> Sequence[Static]:
        args = [None if a is None else self.read(a, env) for a in v.args]
        if isinstance(v.callee, str):
            call = Call(v.callee, tuple(None if a is None else self.atom(a) for a in args), v.attrs)
            return self.computed(call, len(b.vars)) or self.emit(call, b.vars)
        callee = self.read(v.callee, env)
        if isinstance(callee, Global) and callee.name in self.constructors:
            return [Made(callee.name, tuple(a for a in args if a is not None))]
        to = self.atom(callee)
        assert not isinstance(to, Const)
        given = tuple(self.atom(a) for a in args if a is not None)
        return self.emit(Call(to, given), b.vars)

    def computed(self, call: Call, outputs: int) -> tuple[Const, ...] | None:
        """The results of an operator on small constants."""
        small = [a for a in call.args if a is not None]
        if not small or not all(
            isinstance(a, Const) and a.array is not None and a.array.size <= ELEMENTS for a in small
        ):
            return None
        try:
            return folded(call, outputs, ELEMENTS)
        except Unsupported:
            return None  # an error when it runs, if it does


def _open(t: Type) -> Type:
    """A type that inference finds again where it hangs on type parameters."""
    open_ = t == ANY or any(isinstance(x, (TypeVar, Hole)) for x in leaves(t))
    return Hole() if open_ else t

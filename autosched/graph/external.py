"""External code generators: functions of a module that somebody else compiles.

    @graph.external_codegen("blas", patterns=[op("MatMul")(any, any)])
    def blas(function, target):
        return lambda a, b, out: np.matmul(a, b, out=out)

    model = graph.build(graph.partition(module, "blas"))

A generator gets a graph function and the target, and returns a Python function of arrays, inputs
and then outputs, or a `CSource`. All the C source that one generator gives for a module is one
compilation. When a model is built, what each generator made is run on random inputs and compared
with the evaluator; whatever does not agree is an `ExternalError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from autosched.checks import instance, listed, shown, text
from autosched.errors import WorkloadError
from autosched.graph.errors import ExternalError
from autosched.graph.external_c import CSource, compiled, failed
from autosched.graph.external_check import agree, expected, first_call, random_inputs
from autosched.graph.external_child import unlike
from autosched.graph.ir import Array, Body, Call, Const, Function, Global, bodies, tensor_type
from autosched.graph.kernels import Kernel
from autosched.graph.pattern import Pattern
from autosched.target import Target
from autosched.tir.module import IRModule

Made = Union[Callable[..., Any], CSource]
Generate = Callable[[Function, Target], Made]


@dataclass(frozen=True)
class Generator:
    """A row of the registry: what it takes, and whether neighbouring matches are one function
    (`merge`) and results are compared with the evaluator's (`check`)."""

    name: str
    patterns: tuple[Pattern, ...]
    generate: Generate
    merge: bool = True
    check: bool = True


_GENERATORS: dict[str, Generator] = {}


def external_codegen(
    name: str, patterns: Sequence[Pattern], merge: bool = True, check: bool = True
) -> Callable[[Generate], Generate]:
    """A decorator: the code generator `name`, in the place of one of that name.

    `patterns`: what `graph.partition(module, name)` gives it. With `merge`, matches that feed each
    other are one function. `check=False` leaves out the comparison with the evaluator when a model
    is built. Raises WorkloadError on a name that is none and on what is no pattern.
    """
    name = text("the name of a code generator", name, WorkloadError)
    if not name.isidentifier():
        raise WorkloadError(f"a code generator is named {shown(name)}; expected an identifier")
    listed(f"the patterns of {name}", patterns, Pattern, "patterns", WorkloadError)
    for what, value in (("merge", merge), ("check", check)):
        instance(f"{what} of {name}", value, bool, "True or False", WorkloadError)
    rows = tuple(patterns)

    def register(generate: Generate) -> Generate:
        if not callable(generate):
            raise WorkloadError(f"the code generator {name} is {shown(generate)}; it is called")
        _GENERATORS[name] = Generator(name, rows, generate, merge, check)
        return generate

    return register


def generator(name: str) -> Generator:
    """The generator of a name. Raises WorkloadError, naming those that there are."""
    from autosched.graph import generators  # noqa: F401 - registers the built-in ones

    if not isinstance(name, str) or name not in _GENERATORS:
        have = ", ".join(sorted(_GENERATORS))
        raise WorkloadError(f"no code generator is named {shown(name)}; there are {have}")
    return _GENERATORS[name]


@dataclass(frozen=True)
class External:
    """What one generator made of a module: its functions by name; `source`, the C file that they
    are in, empty for functions in Python."""

    generator: str
    functions: tuple[str, ...]
    source: str = ""


class ExternalCall:
    """A function in Python that a generator made, with what it gives looked at in each call."""

    def __init__(self, generator: str, function: Function, made: Callable[..., Any]) -> None:
        self.generator, self.name, self.made = generator, function.name, made
        types = [tensor_type(a) for a in function.body.results]
        self.results = [(tuple(int(n) for n in t.known), np.dtype(t.dtype)) for t in types]

    def __call__(self, *inputs: Array) -> list[Array]:
        """The results, in new arrays. Raises ExternalError, naming the generator, where it raises
        or gives other results than its function has."""
        return self.into(inputs, [np.empty(shape, dtype) for shape, dtype in self.results])

    def into(self, inputs: Sequence[Array], outs: list[Array]) -> list[Array]:
        """The same, in the arrays `outs`."""
        given = []
        for x in inputs:
            view = x.view()
            view.flags.writeable = False
            given.append(view)
        try:
            made = self.made(*given, *outs)
        except (Exception, SystemExit) as e:
            raise self._error(f"raised {type(e).__name__}: {e}") from e
        several = list(made) if isinstance(made, (tuple, list)) else [made]
        several = outs if made is None else several
        if len(several) != len(outs):
            raise self._error(f"gave {len(several)} results; expected {len(outs)}")
        for n, (x, out, wanted) in enumerate(zip(several, outs, self.results, strict=True)):
            found = (x.shape, x.dtype) if isinstance(x, np.ndarray) else type(x).__name__
            if found != wanted:
                raise self._error(f"gave result {n} as {_told(found)}; expected {_told(wanted)}")
            if x is not out:
                out[...] = x
        return outs

    def _error(self, what: str) -> ExternalError:
        return failed(self.generator, self.name, what)


def _told(found: object) -> str:
    return f"shape {found[0]} and dtype {found[1]}" if isinstance(found, tuple) else f"a {found}"


@dataclass(frozen=True)
class Externals:
    """What generators made of a module: `kernels` of C source, `calls` of Python, and `made`, by
    generator."""

    kernels: Mapping[str, Kernel]
    calls: Mapping[str, ExternalCall]
    made: Mapping[str, External]


def external_functions(module: IRModule) -> list[Function]:
    """The functions of a module that code generators compile."""
    return [f for f in module.graphs.values() if isinstance(f, Function) and f.is_external]


def compile_external(module: IRModule, target: Target) -> Externals:
    """Run each generator on its functions. Raises ExternalError, naming the generator and the
    function, where one fails, or what it made does not agree with the evaluator."""
    by_name: dict[str, list[Function]] = {}
    for f in external_functions(module):
        by_name.setdefault(f.attr("compiler"), []).append(f)
    kernels: dict[str, Kernel] = {}
    calls: dict[str, ExternalCall] = {}
    made: dict[str, External] = {}
    weights = _weights(module) if by_name else {}
    for name, functions in by_name.items():
        row = generator(name)
        sources: list[tuple[Function, CSource]] = []
        for f in functions:
            one = _generated(row, f, target)
            if isinstance(one, CSource):
                sources.append((f, one))
            else:
                calls[f.name] = ExternalCall(name, f, one)
                _compare(row, calls[f.name], f, weights.get(f.name, {}))
        source = ""
        if sources:
            tests = (
                {f.name: _tests(name, f, weights.get(f.name, {})) for f, _ in sources}
                if row.check
                else {}
            )
            source, more = compiled(name, sources, target, tests)
            kernels.update(more)
        made[name] = External(name, tuple(f.name for f in functions), source)
    return Externals(kernels, calls, made)


def _generated(row: Generator, f: Function, target: Target) -> Made:
    try:
        one = row.generate(f, target)
    except (Exception, SystemExit) as e:
        raise failed(row.name, f.name, f"the generator raised {type(e).__name__}: {e}") from e
    if not isinstance(one, CSource) and not callable(one):
        raise failed(
            row.name,
            f.name,
            f"the generator returned {shown(one)}; expected a function of arrays, or graph.CSource",
        )
    return one


def _tests(
    generator: str, f: Function, weights: Mapping[int, Array]
) -> tuple[list[Array], list[Array]]:
    """Inputs and the results that they have."""
    inputs = random_inputs(f, weights)
    try:
        return inputs, expected(f, inputs)
    except Exception as e:
        raise failed(
            generator, f.name, f"cannot be compared with the evaluator, which says: {e}; "
            "external_codegen(..., check=False) leaves that out"
        ) from e  # fmt: skip


def _compare(row: Generator, call: ExternalCall, f: Function, weights: Mapping[int, Array]) -> None:
    if not row.check:
        return
    inputs, wanted = _tests(row.name, f, weights)
    outs = [unlike(x) for x in wanted]
    fault = first_call(call, inputs)
    if fault:
        raise failed(row.name, f.name, fault)
    before = [x.copy() for x in inputs]
    found = call.into(inputs, outs)
    for n, (x, old) in enumerate(zip(inputs, before, strict=True)):
        if x.tobytes() != old.tobytes():
            raise failed(row.name, f.name, f"writes to its input {n}")
    for n, (x, y) in enumerate(zip(found, wanted, strict=True)):
        fault = agree(x, y)
        if fault:
            raise failed(row.name, f.name, f"result {n} is wrong: {fault}")


def _weights(module: IRModule) -> dict[str, dict[int, Array]]:
    """Constants that functions are called with, by the number of the parameter."""
    found: dict[str, dict[int, Array]] = {}
    for f in module.graphs.values():
        if isinstance(f, Function):
            for call in _calls(f.body):
                assert isinstance(call.callee, Global)
                row = found.setdefault(call.callee.name, {})
                for n, a in enumerate(call.args):
                    if isinstance(a, Const) and a.array is not None:
                        row.setdefault(n, a.array)
    return found


def _calls(body: Body) -> Iterator[Call]:
    stack = [body]
    while stack:
        for b in stack.pop().bindings:
            if isinstance(b.value, Call) and isinstance(b.value.callee, Global):
                yield b.value
            stack += bodies(b.value)

"""From a module to a compiled model: passes, kernels, plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autosched.checks import choice, instance, mapping, shown
from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.cache import KernelCache
from autosched.graph.errors import Unsupported
from autosched.graph.executor import checked
from autosched.graph.external import compile_external
from autosched.graph.fold import constant
from autosched.graph.ir import Atom, Binding, Body, Function, mapped, type_of
from autosched.graph.kernels import Artifacts, Choose, Progress, compile_functions
from autosched.graph.model import Argument, CompiledModel, thread_count
from autosched.graph.passes import lambda_lift, optimise, partial_eval
from autosched.graph.passes.calling import control, reachable
from autosched.graph.passes.precision import PRECISIONS
from autosched.graph.planner import Constants, Shared, plan_function
from autosched.graph.types import TensorType, Type
from autosched.target import Target
from autosched.tir.module import IRModule


def compile_module(
    module: IRModule,
    target: Target | str = "llvm",
    params: Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    cache: KernelCache | None = None,
    choose: Choose | None = None,
    consume: bool = False,
    flush_denormals: bool = False,
    precision: str = "float32",
) -> CompiledModel:
    """The function `main` compiled for `target`. With `consume` the module's constants are stripped
    as they are packed. `precision` as `prepared` takes it.

    Schedules are those that `choose` or `ApplyHistoryBest` has, else default ones. Raises
    Unsupported and BuildError.
    """
    where = target if isinstance(target, Target) else Target(target)
    if where.is_gpu:
        raise Unsupported(
            f"a whole model runs on a CPU, the target is {where}; expected an llvm target "
            "(graph.extract_tasks gives the kernels of a model one by one, for GPUs too)"
        )
    thread_count(threads, where.num_cores)
    ready = prepared(module, params, precision, where)
    return compile_ready(
        ready, where, threads, progress, cache, choose,
        consume=consume, flush_denormals=flush_denormals,
    )  # fmt: skip


def prepared(
    module: IRModule,
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
    target: Target | None = None,
) -> IRModule:
    """The module as its kernels are compiled and tuned: inputs bound, passes run. `precision`:
    "float32", "bfloat16" for products of float32 with constant weights (on a `target` with AMX
    or AVX-512 BF16 those of attention, too), or "int8" for products of
    float32 with weights that are stored in 8 bits: their other operands are rounded to 8 bits too.

    A functional program is evaluated as far as it goes; functions on tensors that are left are
    called. Raises Unsupported where function values or matches are left, and where a size of an
    input is symbolic; ArgumentError for another precision.
    """
    choice("precision", precision, PRECISIONS, ArgumentError)
    named = mapping("params", params, "arrays by the names of inputs", ArgumentError)
    given = bound(module, named)
    check_sizes(main_of(given))
    if control(given, main_of(given)):
        given = partial_eval(given)
        if control(given, main_of(given)):
            given = lambda_lift(given)
        left = control(given, main_of(given), calls=True)
        if left:
            raise Unsupported(
                f"main has {left}, which partial evaluation leaves and no build compiles; "
                "graph.build_program compiles what is computed around it, graph.evaluate runs it, "
                "and graph.specialise(module, known={...}) makes dataflow of lists whose length is "
                "given"
            )
    needed = reachable(given, ["main"]).graphs
    functions = {n: f for n, f in needed.items() if isinstance(f, Function)}
    return optimise(IRModule(given.functions, functions), precision, target)


def primitives(ready: IRModule) -> list[Function]:
    """The primitive functions of a prepared module, each one kernel."""
    return [f for f in ready.graphs.values() if isinstance(f, Function) and f.is_primitive]


def compile_ready(
    ready: IRModule,
    where: Target,
    threads: int | None = None,
    progress: Progress | None = None,
    cache: KernelCache | None = None,
    choose: Choose | None = None,
    artifacts: Artifacts | None = None,
    consume: bool = False,
    flush_denormals: bool = False,
    shared: Shared | None = None,
) -> CompiledModel:
    """A prepared module compiled; `artifacts` as `compile_functions` takes them, `consume` as
    `compile_module` does, `shared` as `Constants` has it."""
    if progress is not None and not callable(progress):
        raise ArgumentError(f"progress is {shown(progress)}; expected a function")
    main = main_of(ready)
    externals = compile_external(ready, where)
    kernels = compile_functions(primitives(ready), where, progress, cache, choose, artifacts)
    kernels |= externals.kernels
    constants = Constants(shared=shared)
    if consume:
        for f in ready.graphs.values():
            if isinstance(f, Function) and not (f.is_primitive or f.is_external):
                constants.consume(f.body)
    others = {
        n: f
        for n, f in ready.graphs.items()
        if isinstance(f, Function) and f is not main and not (f.is_primitive or f.is_external)
    }
    spec = plan_function(main, kernels, constants, externals.calls, others)
    called = {
        n: plan_function(f, kernels, constants, externals.calls, others) for n, f in others.items()
    }
    spec = replace(spec, functions=tuple(called.items()))
    named = main.attr("outputs") or tuple(
        getattr(a, "name", f"output{n}") for n, a in enumerate(main.body.results)
    )
    return CompiledModel(
        spec,
        kernels,
        constants.arrays,
        [_argument(n, p.type) for n, p in zip(_inputs(main), main.params, strict=True)],
        [_argument(n, type_of(a)) for n, a in zip(named, main.body.results, strict=True)],
        where,
        thread_count(threads, where.num_cores),
        ready,
        flush_denormals,
        externals,
    )


def check_sizes(main: Function) -> None:
    """Raises Unsupported, naming the input and its sizes, where a size of an input is symbolic:
    the places of values in the workspace are fixed when a model is compiled."""
    if main.attr("types"):
        raise Unsupported(
            f"main is general in {', '.join(main.attr('types'))}; a model is compiled for fixed "
            "types: write the types of its parameters"
        )
    for name, p in zip(_inputs(main), main.params, strict=True):
        if isinstance(p.type, TensorType) and p.type.shape is not None and not p.type.is_static:
            sizes = ", ".join(str(n) for n in p.type.shape if not isinstance(n, int))
            raise Unsupported(
                f"the input {name!r} has the shape ({', '.join(map(str, p.type.shape))}), whose "
                f"size {sizes} is symbolic; a model is compiled for fixed sizes: give graph.var "
                "numbers (graph.evaluate takes any size, and at.build(graph.lower(f)) makes a "
                "kernel for all sizes of one group)"
            )


def bound(module: IRModule, params: Mapping[str, Any]) -> IRModule:
    """The module with some inputs of main made constants. Raises ArgumentError for others."""
    main = main_of(module)
    names = _inputs(main)
    wrong = [n for n in params if n not in names]
    if wrong:
        raise ArgumentError(f"params has {wrong[0]!r}; the inputs are {', '.join(names)}")
    if not params:
        return module
    known: dict[int, Atom] = {}
    for n, p in zip(names, main.params, strict=True):
        if n in params:
            t = _argument(n, p.type)
            known[id(p)] = constant(checked(n, params[n], t.shape, t.dtype).copy())
    left = [n for n, name in enumerate(names) if name not in params]
    bindings = tuple(Binding(b.vars, mapped(b.value, known)) for b in main.body.bindings)
    results = tuple(known.get(id(a), a) for a in main.body.results)
    attrs = {**dict(main.attrs), "inputs": tuple(names[n] for n in left)}
    kept = tuple(main.params[n] for n in left)
    made = Function("main", kept, Body(bindings, results), tuple(sorted(attrs.items())))
    return module.with_function("main", made)


def main_of(module: IRModule) -> Function:
    """The graph function main. Raises WorkloadError where there is none."""
    instance("the model", module, IRModule, "a module of graph.module or from_onnx", WorkloadError)
    main = module.graphs.get("main")
    if not isinstance(main, Function):
        have = ", ".join(module) or "none"
        raise WorkloadError(
            f"the module has no graph function main (its functions: {have}); "
            "graph.module(main=graph.function(...)) makes one"
        )
    return main


def _inputs(main: Function) -> tuple[str, ...]:
    names: tuple[str, ...] = main.attr("inputs") or tuple(p.name for p in main.params)
    return names


def _argument(name: str, t: Type) -> Argument:
    if not isinstance(t, TensorType):
        raise WorkloadError(f"{name} has the type {t}; a compiled model takes and gives tensors")
    shape = None if t.shape is None else tuple(int(n) for n in t.shape)
    return Argument(name, shape, t.dtype)

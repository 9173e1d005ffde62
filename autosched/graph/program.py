"""Programs whose recursion, data types and function values stay: the evaluator runs these, and
calls compiled regions for what is computed between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

from autosched.graph.compile import main_of
from autosched.graph.evaluator import run
from autosched.graph.ir import Call, Function, type_of
from autosched.graph.machine import Machine
from autosched.graph.model import CompiledModel
from autosched.graph.passes import lambda_lift, partial_eval
from autosched.graph.pattern import op
from autosched.graph.regions import cut
from autosched.graph.types import TensorType
from autosched.tir.module import IRModule

NAME = "region"
"""What regions are called: region_0, region_1, …"""


class CompiledProgram:
    """A program for one target: call it as `graph.evaluate` calls `main`, with arrays, tuples,
    values of data types (`graph.to_list`) and functions.

    `module` is what is run: `main` and what it calls, with the regions as functions; `regions` are
    these, compiled, by name. Only what has fixed sizes, and reads more than single numbers, is in a
    region: NumPy computes these as fast.
    """

    def __init__(self, module: IRModule, compiled: Callable[[IRModule], CompiledModel]) -> None:
        main_of(module)
        ready = lambda_lift(partial_eval(module))
        self.module = cut(ready, NAME, [op(_pays)], whole=True)
        regions = {
            n: f
            for n, f in self.module.graphs.items()
            if isinstance(f, Function) and n not in ready.graphs
        }
        self.regions = MappingProxyType({n: compiled(_alone(f)) for n, f in regions.items()})
        calls = {n: _called(model) for n, model in self.regions.items()}
        self._main = main_of(self.module)
        self._machine = Machine(self.module, calls)

    def __call__(self, *args: Any) -> Any:
        """The results of `main`: one, or a tuple of several. Raises as `graph.evaluate` does."""
        return run(self._machine, self._main, args)


def _pays(call: Call) -> bool:
    """Whether an operator reads more than single numbers."""
    types = [type_of(a) for a in call.args if a is not None]
    return any(isinstance(t, TensorType) and t.is_static and t.elements > 1 for t in types)


def _alone(region: Function) -> IRModule:
    """A module whose main is a region."""
    return IRModule({}, {"main": Function("main", region.params, region.body)})


def _called(model: CompiledModel) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def call(args: Sequence[Any]) -> Sequence[Any]:
        return model(*args)

    return call

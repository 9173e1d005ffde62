"""The evaluator: any program of the graph level, by NumPy. It is slow, and the reference.

Values are arrays, tuples, tagged tuples (`Tagged`) and function values, which can be called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.checks import instance, shown
from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.arguments import several
from autosched.graph.ir import Function
from autosched.graph.machine import Machine
from autosched.tir.module import IRModule


def evaluate(module: IRModule, name: str = "main", *args: Any) -> Any:
    """The results of a graph function on values: one, or a tuple of several.

    Arguments are arrays (numbers where the shape is ()), tuples, values of data types and
    functions; of bfloat16 its bit patterns as uint16, which is how it comes back, or arrays of
    ml_dtypes. A call in tail position takes no memory; other recursion up to 200,000 calls deep.

    Raises ArgumentError on a wrong number or kind of arguments, Unsupported, naming the operator,
    for what cannot be computed, and WorkloadError where recursion is too deep."""
    instance("the module to evaluate", module, IRModule, "an IRModule", ArgumentError)
    function = module.graphs.get(name) if isinstance(name, str) else None
    if not isinstance(function, Function):
        have = ", ".join(n for n, f in module.graphs.items() if isinstance(f, Function)) or "none"
        raise WorkloadError(f"no graph function is named {shown(name)}; the module has {have}")
    return run(Machine(module), function, args)


def run(machine: Machine, function: Function, args: Sequence[Any]) -> Any:
    """The results of a function of a machine's module on values."""
    params, name = function.params, function.name
    if len(args) != len(params):
        raise ArgumentError(f"{name} takes {len(params)} arguments, found {len(args)}")
    given = several(machine.constructors, [p.name for p in params], [p.type for p in params], args)
    with np.errstate(all="ignore"):
        results = machine.run(machine.value(name), given)
    results = [np.asarray(r) if isinstance(r, np.ndarray) else r for r in results]
    return results[0] if len(results) == 1 else tuple(results)

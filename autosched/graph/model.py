"""A compiled model: what `graph.build` gives and `graph.load` reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never

import numpy.typing as npt

from autosched.checks import shown
from autosched.codegen.artifact import Param
from autosched.errors import ArgumentError
from autosched.graph.executor import Program, checked
from autosched.graph.kernels import Kernel
from autosched.graph.plan import Plan
from autosched.graph.spec import HostStep, Spec, to_json
from autosched.integers import as_int
from autosched.runtime.timing import Protocol, Timing
from autosched.target import Target

if TYPE_CHECKING:
    import os

    from autosched.graph.export import ExportedModel
    from autosched.graph.external import External, Externals
    from autosched.tir.module import IRModule

Array = npt.NDArray[Any]
SCHEMA = 1
"""Version of `CompiledModel.graph_json`, and of what it refers to in a saved model."""


@dataclass(frozen=True)
class Argument:
    """An input or an output of a model; the shape is None where it depends on data."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str


def thread_count(given: int | None, default: int) -> int:
    """Threads of a model: those that are asked for. Raises ArgumentError for no such number."""
    from autosched.runtime.parallel import MAX_THREADS

    if given is None:
        return default
    count = as_int(given)
    if count is None or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(f"threads is {shown(given)}; expected 1 to {MAX_THREADS}")
    return count


class CompiledModel:
    """A model for one target: call it with arrays, in the order of `inputs`.

    `kernels` are the kernels in the order in which they run; `module` is what was compiled, None
    for a model that was loaded. Calls from several threads wait for each other: there is one
    workspace. With `flush_denormals` numbers below the least normal one are 0 while kernels run.
    """

    def __init__(
        self,
        spec: Spec,
        kernels: Mapping[str, Kernel],
        constants: Sequence[Array],
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        target: Target,
        threads: int,
        module: IRModule | None = None,
        flush_denormals: bool = False,
        externals: Externals | None = None,
    ) -> None:
        self.spec, self.constants, self.target, self.module = spec, constants, target, module
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.by_name = dict(kernels)
        self.threads, self.flush_denormals = threads, flush_denormals
        self._external = {} if externals is None else dict(externals.made)
        calls = {} if externals is None else externals.calls
        self._program = Program(spec, kernels, constants, threads, flush_denormals, calls)
        self._results = self._program.results()
        fixed = [Param(i.name, i.shape, i.dtype, False) for i in self.inputs if i.shape is not None]
        self._entry = self._program.entry(fixed) if len(fixed) == len(self.inputs) else None
        if self._entry is not None:
            (self._native,) = self._program.native
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> tuple[Array, ...]:
        """The outputs for these inputs, in new arrays: over 64 KiB, in memory of earlier outputs
        that nothing refers to any more. Raises ArgumentError where they do not fit."""
        if self._entry is not None:
            made = tuple([r.take() for r in self._results])
            with self._lock:
                if self._entry(*inputs, *made) is None:
                    if self._native.stops:
                        self._native.check()
                    return made
            del made  # for the call below to take
        arrays = self.checked(inputs)
        with self._lock:
            return tuple(self._program.run(arrays))

    def checked(self, inputs: Sequence[Any]) -> list[Array]:
        """The inputs as C-contiguous arrays. Raises ArgumentError where they do not fit."""
        names = ", ".join(i.name for i in self.inputs)
        if any(isinstance(x, Mapping) for x in inputs):
            raise ArgumentError(
                f"a mapping is no array; expected the inputs {names} in this order, or by name as "
                "model.run(inputs)"
            )
        if len(inputs) != len(self.inputs):
            raise ArgumentError(
                f"the model takes {len(self.inputs)} inputs ({names}), found {len(inputs)}"
            )
        return [
            checked(i.name, x, i.shape, i.dtype) for i, x in zip(self.inputs, inputs, strict=True)
        ]

    def run(self, inputs: Mapping[str, Any]) -> tuple[Array, ...]:
        """The same, by names."""
        names = [i.name for i in self.inputs]
        if not isinstance(inputs, Mapping) or set(inputs) != set(names):
            given = map(str, inputs) if isinstance(inputs, Mapping) else [type(inputs).__name__]
            raise ArgumentError(
                f"the model takes the inputs {', '.join(names)}; found {', '.join(given) or 'none'}"
            )
        return self(*(inputs[n] for n in names))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels in the order in which they stand, as often as they are called."""
        return tuple(self.by_name[c.kernel] for c in self.spec.calls())

    @property
    def plan(self) -> Plan:
        """Where intermediate values lie."""
        return self.spec.plan

    @property
    def host_operators(self) -> tuple[str, ...]:
        """Operators that NumPy computes between kernels."""
        return tuple(s.operator for s in self.spec.steps if isinstance(s, HostStep))

    @property
    def params(self) -> dict[str, Array]:
        """Constants as the kernels take them."""
        return {f"p{n}": a for n, a in enumerate(self.constants)}

    @property
    def lowered(self) -> dict[str, IRModule]:
        """The scheduled programs of each target; none of a model that was loaded."""
        from autosched.tir.module import IRModule

        funcs = {n: k.func for n, k in self.by_name.items() if k.func is not None}
        return {str(self.target): IRModule(funcs)}

    @property
    def external(self) -> dict[str, External]:
        """What external code generators made, by their names; none of a model that was loaded."""
        return dict(self._external)

    @property
    def graph_json(self) -> str:
        """Inputs, outputs, steps with their arguments, and the memory plan, as JSON text."""
        data = {
            "schema": SCHEMA,
            "target": str(self.target),
            "threads": self.threads,
            "flush_denormals": self.flush_denormals,
            "inputs": [vars(i) for i in self.inputs],
            "outputs": [vars(o) for o in self.outputs],
            "kernels": {
                n: {"workload_key": k.workload_key, "implementation": k.implementation,
                    "seconds": k.seconds}
                for n, k in self.by_name.items()
            },
            "program": to_json(self.spec),
        }  # fmt: skip
        return json.dumps(data, indent=1)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model into a folder, which `graph.load` reads: it needs neither the ONNX file
        nor a compiler. Raises OSError, ArgumentError for what is no path, and Unsupported for a
        model with functions in Python of external code generators."""
        from autosched.graph.saved import save

        save(self, folder)

    def __reduce__(self) -> Never:
        raise TypeError(
            "a compiled model holds code in memory and is not pickled; write it by save(folder), "
            "and read it by graph.load(folder) in the other process"
        )

    def export(self, folder: str | os.PathLike[str], prefix: str = "") -> ExportedModel:
        """Write the model for C programs: STEM.o, STEM.h, STEM.weights and STEM.cmake, where STEM
        is the prefix without its last underscores, or "model".

        The object has one function, `prefix` + "run", of the weights (the file, mapped into
        memory), the inputs, the outputs, a workspace and the number of threads; the header says
        how to call it. Raises Unsupported for a model with branches, loops or operators in NumPy,
        ArgumentError for one that was loaded, and BuildError.
        """
        from autosched.graph.export import export_model

        return export_model(self, folder, prefix)

    def time_evaluator(self, **options: Any) -> Any:
        """A function of the inputs that times whole calls, Python's part included. Options:
        number, repeat, min_repeat_ms, cooldown_ms, as those of `BuiltFunction.time_evaluator`."""
        defaults: dict[str, Any] = {"number": 1, "repeat": 1, "min_repeat_ms": 0, "cooldown_ms": 0}
        wrong = [o for o in options if o not in defaults]
        if wrong:
            raise ArgumentError(
                f"time_evaluator has no option {wrong[0]!r}; there are {', '.join(defaults)}"
            )
        given = {**defaults, **options}
        protocol = Protocol(**given)

        def evaluate(*inputs: Any) -> Timing:
            def measure(number: int) -> float:
                start = time.perf_counter()
                for _ in range(number):
                    self(*inputs)
                return time.perf_counter() - start

            return protocol.take(measure)

        return evaluate

    def profile(self, *inputs: Any, repeat: int = 10) -> list[tuple[str, Kernel, float]]:
        """(result, kernel, least seconds of `repeat` runs) of each kernel of the main body, run one
        by one."""
        arrays = self.checked(inputs)
        best: dict[tuple[int, int], float] = {}
        native = self._program.native
        with self._lock:
            for _ in range(repeat):
                slots = self._program.start(arrays)
                for step in self._program.steps:
                    if step not in native:
                        step(slots)
                        continue
                    s = native.index(step)
                    native[s].patch(slots)
                    for n in range(len(native[s].calls)):
                        start = time.perf_counter()
                        native[s].run_one(n)
                        spent = time.perf_counter() - start
                        best[s, n] = min(spent, best.get((s, n), spent))
        return [
            (call.result, step.kernels[n], best[s, n])
            for s, step in enumerate(native)
            for n, call in enumerate(step.calls)
        ]

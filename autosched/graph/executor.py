"""Running a `Spec`: kernels over a planned workspace, host operators between them.

Consecutive kernels are one native call; their arguments are addresses in the workspace, written
once. The addresses of what changes from call to call (the caller's arrays, fresh results, results
of host operators) are written before the step that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.checks import unmasked
from autosched.codegen.artifact import Param
from autosched.errors import ArgumentError, BuildError
from autosched.graph.errors import Unsupported
from autosched.graph.higher import HIGHER
from autosched.graph.kernels import Kernel
from autosched.graph.recursion import Branch, Called, Callee, run_calls
from autosched.graph.repeat import Repeated
from autosched.graph.results import ResultArrays
from autosched.graph.spec import (
    CallStep,
    ClosureStep,
    ExternalStep,
    HostStep,
    IfStep,
    RunStep,
    Spec,
)
from autosched.runtime.arrays import empty
from autosched.runtime.call import workspace_bytes
from autosched.runtime.sequence import STOPS, WORDS, make_sequence, runner
from autosched.tir import dtypes

Array = npt.NDArray[Any]
Slots = list[Any]
"""The values of a call: arrays, and function values."""


class Program:
    """A body ready to run: `run` takes the values of its parameters and gives those of its results.

    Not for two calls at once: they would share the workspace.
    """

    def __init__(
        self,
        spec: Spec,
        kernels: Mapping[str, Kernel],
        constants: Sequence[Array],
        threads: int,
        flush_denormals: bool = False,
        external: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
        functions: Mapping[str, Callee] = MappingProxyType({}),
    ) -> None:
        self.spec, self.flush_denormals = spec, flush_denormals
        parts = kernels, constants, threads, flush_denormals
        if spec.functions:
            functions = {name: Callee(name) for name, _ in spec.functions}
        inner = *parts, external, functions
        for name, f in spec.functions:
            functions[name].make = partial(Program, f, *inner)
        self.template: Slots = [None] * spec.slots
        self.workspace = _workspace(spec.plan.bytes)
        for p in spec.places:
            kind = dtypes.array_dtype(p.dtype)
            count = int(np.prod(p.shape, dtype=np.int64)) * kind.itemsize
            raw = self.workspace[p.offset : p.offset + count]
            self.template[p.slot] = raw.view(kind).reshape(p.shape)
        for slot, n in spec.constants:
            self.template[slot] = constants[n]
        self.fresh = [(f.slot, ResultArrays(f)) for f in spec.fresh]
        self.steps: list[Callable[[Slots], None]] = []
        self.native: list[NativeStep] = []
        for step in spec.steps:
            if isinstance(step, RunStep):
                self.native.append(NativeStep(step, self.template, *parts))
                self.steps.append(self.native[-1])
            elif isinstance(step, HostStep):
                self.steps.append(_host(step))
            elif isinstance(step, IfStep):
                then = Program(step.then, *inner)
                other = Program(step.other, *inner)
                self.steps.append(Branch(step, then, other))
            elif isinstance(step, CallStep):
                self.steps.append(Called(step, functions[step.function]))
            elif isinstance(step, ExternalStep):
                self.steps.append(_external(step, external[step.function]))
            else:
                body = Program(step.body, *inner)
                self.steps.append(_closure(step, body))

        last = self.steps[-1] if self.steps else None
        self.tail = isinstance(last, (Branch, Called)) and (
            last.step.results == spec.results and not spec.copied
        )
        """Whether the results of the last step are those of the body, and may take its place."""
        self.calls: bool = any(
            isinstance(s, Called) or (isinstance(s, Branch) and s.calls) for s in self.steps
        )

    def entry(self, inputs: Sequence[Param]) -> Callable[..., Any] | None:
        """The whole program as one native function of its inputs and results, as `make_sequence`
        makes it; None where it is more than kernels in a row, or results are no fresh arrays."""
        spec = self.spec
        if len(self.native) != 1 or len(self.steps) != 1 or spec.copied:
            return None
        numbers = {n: n for n in range(len(inputs))}
        numbers |= {slot: len(inputs) + n for n, slot in enumerate(spec.results)}
        (step,) = self.native
        if any(slot not in numbers for _, slot in step.patches):
            return None
        results = [r.result for r in self.results()]
        params = [Param(f"result{n}", r.shape, r.dtype, True) for n, r in enumerate(results)]
        patches = [(step.cells.ctypes.data + 8 * c, numbers[slot]) for c, slot in step.patches]
        given = [*inputs, *params]
        stopped = step.stopped.ctypes.data
        return make_sequence(given, step.rows, patches, stopped, (self,), self.flush_denormals)

    def results(self) -> list[ResultArrays]:
        """The new arrays in the order of the results that they are."""
        by_slot = dict(self.fresh)
        return [by_slot[slot] for slot in self.spec.results if slot in by_slot]

    def start(self, inputs: Sequence[Any]) -> Slots:
        """The slots of a call, with new arrays for its results."""
        slots = self.template.copy()
        slots[: len(inputs)] = inputs
        for slot, made in self.fresh:
            slots[slot] = made.take()
        return slots

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results for these inputs: arrays, C-contiguous and of the parameters' types."""
        if self.calls:
            return run_calls(self, inputs)
        slots = self.start(inputs)
        for step in self.steps:
            step(slots)
        return self.finish(slots)

    def finish(self, slots: Slots) -> list[Any]:
        """The results, when all steps are done."""
        out = [slots[n] for n in self.spec.results]
        for n in self.spec.copied:
            out[n] = out[n].copy()
        return out


def _workspace(size: int) -> Array:
    """Memory for intermediate values. Raises BuildError where there is none."""
    try:
        return empty(max(size, 1), "uint8")
    except MemoryError as e:
        raise BuildError(
            f"the intermediate values of the model take {size} bytes, which this process cannot "
            "allocate; give it more memory, or fix smaller sizes"
        ) from e


class NativeStep:
    """Kernels in a row, and the (cell, slot) of the addresses that change."""

    def __init__(
        self,
        step: RunStep,
        template: Slots,
        kernels: Mapping[str, Kernel],
        constants: Sequence[Array],
        threads: int,
        flush_denormals: bool,
    ) -> None:
        self.calls = step.calls
        self.kernels = [kernels[c.kernel] for c in step.calls]
        self.constants = constants
        scratch = max(workspace_bytes(k.linked.info, threads) for k in self.kernels)
        self.scratch = empty(max(scratch, 1), "uint8")
        self.cells = np.zeros(sum(len(c.args) for c in step.calls), np.int64)
        self.rows = np.zeros((len(step.calls), WORDS), np.int64)
        self.patches: list[tuple[int, int]] = []
        cell = 0
        for n, (call, kernel) in enumerate(zip(step.calls, self.kernels, strict=True)):
            at = self.cells.ctypes.data + 8 * cell
            mark = STOPS if kernel.linked.info.messages else 0
            self.rows[n] = (kernel.linked.address, at, self.scratch.ctypes.data, threads + mark)
            for a in call.args:
                value = constants[-1 - a] if a < 0 else template[a]
                if value is None:
                    self.patches.append((cell, a))
                else:
                    self.cells[cell] = value.ctypes.data
                cell += 1
        self.stops = any(k.linked.info.messages for k in self.kernels)
        self.stopped = np.zeros(1, np.int64)
        """The row that stopped, from 1; 0 for none."""
        self.run_rows, self.address = runner(flush_denormals), self.rows.ctypes.data

    def __call__(self, slots: Slots) -> None:
        """One native call. Raises Unsupported where a kernel stops."""
        self.patch(slots)
        self.run(self.address, len(self.calls))

    def run(self, rows: int, count: int) -> None:
        """Rows of a table. Raises Unsupported where a kernel stops."""
        self.run_rows(rows, count, self.stopped.ctypes.data)
        if self.stops:
            self.check()

    def check(self, first: int = 0) -> None:
        """Raise Unsupported, with its message, if the last call was stopped by a kernel. Its row
        was counted from row `first` on."""
        row = int(self.stopped[0])
        if row:
            self.stopped[0] = 0
            number, value = (int(x) for x in self.scratch[:16].view("int64"))
            info = self.kernels[first + row - 1].linked.info
            raise Unsupported(info.messages[number - 1].format(value))

    def patch(self, slots: Slots) -> None:
        """Write the addresses that change."""
        cells = self.cells
        for cell, slot in self.patches:
            cells[cell] = slots[slot].ctypes.data

    def run_one(self, n: int) -> None:
        """Kernel n alone."""
        self.run_rows(self.address + n * 8 * WORDS, 1, self.stopped.ctypes.data)
        self.check(n)


def _host(step: HostStep) -> Callable[[Slots], None]:
    attrs, args, results = dict(step.attrs), step.args, step.results
    higher = HIGHER.get(step.operator)

    def run(slots: Slots) -> None:
        given = [None if a is None else slots[a] for a in args]
        if higher is not None:
            made: Sequence[Array] = higher(*given, **attrs)
        else:
            from autosched.graph.infer import evaluate_operator

            made = evaluate_operator(step.operator, given, attrs, len(results))
        for slot, array in zip(results, made, strict=False):
            slots[slot] = np.asarray(array, order="C")

    return run


def _external(step: ExternalStep, function: Callable[..., Any]) -> Callable[[Slots], None]:
    args, results = step.args, step.results

    def run(slots: Slots) -> None:
        for slot, array in zip(results, function(*(slots[a] for a in args)), strict=True):
            slots[slot] = array

    return run


def _closure(step: ClosureStep, body: Program) -> Callable[[Slots], None]:
    repeated: dict[int, Repeated | None] = {}

    def run(slots: Slots) -> None:
        slots[step.result] = Closure(body, [slots[n] for n in step.captured], repeated)

    return run


class Closure:
    """A function value: a body, and the values around it that it uses."""

    def __init__(
        self, body: Program, captured: Slots, repeated: dict[int, Repeated | None]
    ) -> None:
        self.body, self.captured, self.repeated = body, captured, repeated

    def __call__(self, *args: Array) -> list[Any]:
        return self.body.run([*self.captured, *(np.asarray(a, order="C") for a in args)])

    def loop(self, limit: int | None, states: Sequence[Array]) -> list[Array] | None:
        """The results of a Loop over it whose condition is true at first; None where it is not one
        of kernels in a row."""
        key, captured = len(states), len(self.captured)
        if key not in self.repeated:
            fits = Repeated.fits(self.body, captured, key)
            self.repeated[key] = Repeated(self.body, captured, key) if fits else None
        repeated = self.repeated[key]
        return None if repeated is None else repeated.run(self.captured, limit, states)


def checked(name: str, value: Any, shape: tuple[int, ...] | None, dtype: str) -> Array:
    """An input of a call as an array: C-contiguous, aligned and of this machine's byte order,
    copied where it is not. A model of bfloat16 takes it as well as float32. Raises ArgumentError
    saying what was expected."""
    array: Array = value
    unmasked(f"input {name}", value, ArgumentError)
    if not isinstance(value, np.ndarray):
        try:
            array = np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as e:
            raise ArgumentError(
                f"input {name} is a {type(value).__name__} that is no array: {e}; expected an "
                f"array of shape {shape} and dtype {dtype}"
            ) from e
    if array.dtype.name == "bfloat16" and dtype == "float32":
        array = array.astype("float32")  # exact
    if array.shape != shape or array.dtype.name != dtype:
        raise ArgumentError(
            f"input {name} has shape {array.shape} and dtype {array.dtype.name}; expected "
            f"{shape} and {dtype}"
        )
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    made: Array = np.array(array, array.dtype.newbyteorder("="), order="C")
    return made

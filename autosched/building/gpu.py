"""Functions built for GPUs, with the face of `driver.BuiltFunction`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from autosched.building.build import BuiltFunction
from autosched.checks import shown
from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.codegen.gpu.generate import GPUArtifact, generate
from autosched.errors import ArgumentError, BuildError
from autosched.integers import as_int
from autosched.target import Target
from autosched.tir.nodes import PrimFunc, outputs_of
from autosched.tir.shapes import told

if TYPE_CHECKING:
    from autosched.runtime.device import DeviceFunction

KEPT = 64
"""Combinations of symbolic sizes, those used last, whose kernels are kept."""


class OnGPU(BuiltFunction):
    """What all functions built for GPUs refuse."""

    @property
    def function(self) -> NoReturn:
        """Refused: GPU functions are launched."""
        self._refuse("has no function of this process; call it")

    def with_threads(self, threads: int) -> NoReturn:
        """Refused: threads of a GPU are those that loops are bound to."""
        self._refuse("has the threads that its loops are bound to")

    def assembly(self, level: Any = None) -> NoReturn:
        """Refused: the driver makes machine code."""
        self._refuse("has no assembly text; its source is .source")

    def export(self, path: Any, *, prefix: str = "") -> NoReturn:
        """Refused: objects for C programs are for CPUs."""
        self._refuse("cannot be exported as an object file; its source is .source")

    def _refuse(self, why: str) -> NoReturn:
        raise BuildError(f"{self.name}, built for {self.target}, {why}")


class BuiltGPUFunction(OnGPU):
    """Kernels compiled for a GPU: call it with one array a parameter, outputs included.

    `source` is the generated CUDA or OpenCL, `launches` says what is launched, `artifact.code` is
    machine code (of CUDA: a cubin) or, where the driver compiles, empty. With OpenCL, arrays are
    those of `pyopencl.array`, with CUDA those of CuPy, PyTorch or others with `__dlpack__` or
    `__cuda_array_interface__`. NumPy arrays are copied to the device and back.
    """

    def __init__(
        self, name: str, kernels: GPUArtifact, target: Target, layout_free: Sequence[str] = ()
    ) -> None:
        artifact = Artifact(kernels.code, kernels.info, kernels.target)
        super().__init__(name, artifact, kernels.source, target, layout_free=layout_free)
        self.kernels = kernels
        self._on_device: DeviceFunction | None = None

    @property
    def launches(self) -> tuple[Any, ...]:
        """One `codegen.gpu.generate.Launch` a kernel, in order."""
        return self.kernels.launches

    @property
    def on_device(self) -> DeviceFunction:
        """The function on this machine's device. Raises BuildError if it cannot run here."""
        if self._on_device is None:
            self._on_device = _loaded(self.kernels, self.target)
        return self._on_device

    def __call__(self, *arrays: Any) -> None:
        self.on_device(*arrays)

    def time_evaluator(self, entry_name: str | None = None, dev: Any = None, **options: Any) -> Any:
        """See `autosched.runtime.device.DeviceFunction.time_evaluator`."""
        self.require_entry(entry_name)
        return self.on_device.time_evaluator(**options)


class SizedGPUFunction(OnGPU):
    """A scheduled function with symbolic sizes: call it with one array a parameter, outputs
    included, of any sizes.

    The first call with new sizes compiles, which takes about 0.1 s; kernels of the last `KEPT`
    sizes are kept. They are made for constant sizes, so that bounds fold, tails are known and
    shared memory has its place. `at(n=…)` is the function for one size, with source and launches;
    `source` is the scheduled program. Sizes that the schedule does not admit (a block of too many
    threads, say) raise CodegenError at that call.
    """

    def __init__(self, func: PrimFunc, target: Target) -> None:
        written = {id(b) for b in outputs_of(func)}
        params = tuple(Param(b.name, b.shape, b.dtype, id(b) in written) for b in func.params)
        artifact = Artifact(b"", KernelInfo(func.name, params), str(target))
        free = func.attr("layout_free", ())
        super().__init__(func.name, artifact, func.script(), target, layout_free=free)
        self.func = func
        self._made = lru_cache(KEPT)(self._make)

    def __call__(self, *arrays: Any) -> None:
        self._for(arrays)(*arrays)

    def at(self, **sizes: int) -> BuiltGPUFunction:
        """The function for constant sizes, compiled: `f.at(n=1024)`.

        Raises ArgumentError unless there is one number from 1 for each size; CodegenError or
        BuildError if there are no kernels for these.
        """
        names = [v.name for v in self.func.sizes]
        if set(sizes) != set(names):
            raise ArgumentError(
                f"{self.name} has the sizes {', '.join(names)}; found {', '.join(sizes) or 'none'}"
            )
        found = {n: as_int(sizes[n]) for n in names}
        for n, size in found.items():
            if size is None:
                raise ArgumentError(f"size {n} is {shown(sizes[n])}; expected an int from 1")
        return self._made(tuple(found.values()))

    def time_evaluator(self, entry_name: str | None = None, dev: Any = None, **options: Any) -> Any:
        """A function of the arrays that times the kernels for their sizes; see
        `autosched.runtime.device.DeviceFunction.time_evaluator`."""
        self.require_entry(entry_name)
        return lambda *arrays: self._for(arrays).time_evaluator(**options)(*arrays)

    def _for(self, arrays: Sequence[Any]) -> BuiltGPUFunction:
        """The function for the sizes of arguments, one a parameter. Raises ArgumentError."""
        params = self.func.params
        if len(arrays) != len(params):
            raise ArgumentError(f"{self.name} takes {len(params)} arrays; found {len(arrays)}")
        shapes = []
        for b, array in zip(params, arrays, strict=True):
            shape = getattr(array, "shape", None)
            if not isinstance(shape, tuple):
                raise ArgumentError(
                    f"{b.name} of {self.name} is of type {type(array).__name__}, which has no "
                    "shape; expected an array"
                )
            shapes.append(tuple(map(int, shape)))
        values = told(self.func, shapes)
        return self._made(tuple(int(values[v]) for v in self.func.sizes))

    def _make(self, sizes: tuple[int, ...]) -> BuiltGPUFunction:
        names = [v.name for v in self.func.sizes]
        constant = self.func.specialize(dict(zip(names, sizes, strict=True)))
        return _of_constant_sizes(constant, self.target)


def _loaded(kernels: GPUArtifact, target: Target) -> DeviceFunction:
    if target.kind == "cuda":
        from autosched.runtime.cuda import CUDAFunction

        return CUDAFunction(kernels)
    from autosched.runtime.opencl import OpenCLFunction

    return OpenCLFunction(kernels)


def compile_kernels(func: PrimFunc, target: Target) -> GPUArtifact:
    """Source and launches of a scheduled function; of CUDA the machine code too. Raises
    CodegenError or BuildError."""
    kernels = generate(func, target)
    if target.kind == "cuda":
        from autosched.codegen.cuda import compile_cuda

        kernels = replace(kernels, code=compile_cuda(kernels.source, target.mcpu))
    return kernels


def build_gpu(func: PrimFunc, target: Target, compile_only: bool) -> OnGPU:
    """Kernels of a scheduled function; CUDA down to machine code. Raises CodegenError or
    BuildError."""
    if func.sizes:
        return SizedGPUFunction(func, target)
    built = _of_constant_sizes(func, target)
    if not compile_only:
        built.on_device  # noqa: B018 - compiles now, so that errors show here
    return built


def _of_constant_sizes(func: PrimFunc, target: Target) -> BuiltGPUFunction:
    kernels = compile_kernels(func, target)
    return BuiltGPUFunction(func.name, kernels, target, func.attr("layout_free", ()))

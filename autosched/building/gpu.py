"""Functions built for GPUs, with the face of `driver.BuiltFunction`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from autosched.building.build import BuiltFunction
from autosched.codegen.artifact import Artifact
from autosched.codegen.gpu.generate import GPUArtifact, generate
from autosched.errors import BuildError
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

if TYPE_CHECKING:
    from autosched.runtime.device import DeviceFunction


class BuiltGPUFunction(BuiltFunction):
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

    def time_evaluator(self, **options: Any) -> Any:
        """See `autosched.runtime.device.DeviceFunction.time_evaluator`."""
        return self.on_device.time_evaluator(**options)

    @property
    def function(self) -> NoReturn:
        """Refused: GPU functions are launched by `on_device`."""
        self._refuse("has no function of this process; on_device is what runs")

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


def build_gpu(func: PrimFunc, target: Target, compile_only: bool) -> BuiltGPUFunction:
    """Kernels of a scheduled function; CUDA down to machine code. Raises CodegenError or
    BuildError."""
    kernels = compile_kernels(func, target)
    built = BuiltGPUFunction(func.name, kernels, target, func.attr("layout_free", ()))
    if not compile_only:
        built.on_device  # noqa: B018 - compiles now, so that errors show here
    return built

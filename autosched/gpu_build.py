"""Functions built for GPUs, with the face of `driver.BuiltFunction`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from autosched.codegen.artifact import Artifact
from autosched.codegen.gpu.generate import GPUArtifact, generate
from autosched.driver import BuiltFunction
from autosched.errors import BuildError
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

if TYPE_CHECKING:
    from autosched.runtime.opencl import OpenCLFunction


class BuiltGPUFunction(BuiltFunction):
    """Kernels compiled for a GPU: call it with one array a parameter, outputs included.

    `source` is the generated CUDA or OpenCL, `launches` says what is launched, `artifact.code` is
    machine code (of CUDA: a cubin) or, where the driver compiles, empty. With OpenCL, arrays are
    those of `pyopencl.array`, or NumPy arrays, which are copied to the device and back. What is
    built for CUDA is source and machine code: nothing here launches it yet.
    """

    def __init__(
        self, name: str, kernels: GPUArtifact, target: Target, layout_free: Sequence[str] = ()
    ) -> None:
        artifact = Artifact(kernels.code, kernels.info, kernels.target)
        super().__init__(name, artifact, kernels.source, target, layout_free=layout_free)
        self.kernels = kernels
        self._opencl: OpenCLFunction | None = None

    @property
    def launches(self) -> tuple[Any, ...]:
        """One `codegen.gpu.generate.Launch` a kernel, in order."""
        return self.kernels.launches

    @property
    def on_device(self) -> OpenCLFunction:
        """The function on this machine's device. Raises BuildError if it cannot run here."""
        if self._opencl is None:
            if self.target.kind != "opencl":
                raise BuildError(
                    f"built for {self.target}; functions for CUDA are compiled and not yet run: "
                    "build for opencl to run, or pass compile_only=True"
                )
            from autosched.runtime.opencl import OpenCLFunction

            self._opencl = OpenCLFunction(self.kernels)
        return self._opencl

    def __call__(self, *arrays: Any) -> None:
        self.on_device(*arrays)

    def time_evaluator(self, **options: Any) -> Any:
        """See `autosched.runtime.opencl.OpenCLFunction.time_evaluator`."""
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


def build_gpu(func: PrimFunc, target: Target, compile_only: bool) -> BuiltGPUFunction:
    """Kernels of a scheduled function; CUDA down to machine code. Raises CodegenError or
    BuildError."""
    kernels = generate(func, target)
    if target.kind == "cuda":
        from autosched.codegen.cuda import compile_cuda

        kernels = replace(kernels, code=compile_cuda(kernels.source, target.mcpu))
    built = BuiltGPUFunction(func.name, kernels, target, func.attr("layout_free", ()))
    if not compile_only:
        built.on_device  # noqa: B018 - compiles now, so that errors show here
    return built

"""Source, machine code and launches of a scheduled function on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.c_source import c_source
from autosched.codegen.gpu.kernel import Kernel
from autosched.codegen.gpu.lower import Program, kernels_of
from autosched.gpu_target import limits_of
from autosched.lowering import lower
from autosched.target import Target
from autosched.tir.nodes import Buffer, PrimFunc, outputs_of


@dataclass(frozen=True)
class Launch:
    """One kernel of a source: `args` are numbers of the function's parameters, and after these of
    the workspaces. `grid` counts blocks, `block` threads of a block, along x, y, z."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[int, ...]


@dataclass(frozen=True)
class GPUArtifact:
    """What a build for a GPU produces. `workspaces` are (elements, dtype) of arrays in global
    memory that launches pass on; `code` is machine code, or empty where the driver compiles the
    source. Picklable."""

    source: str
    info: KernelInfo
    launches: tuple[Launch, ...]
    workspaces: tuple[tuple[int, str], ...]
    target: str
    code: bytes = b""

    @property
    def given(self) -> tuple[Param, ...]:
        """The parameters; no weight is prepared for a GPU."""
        return self.info.params


def generate(func: PrimFunc, target: Target) -> GPUArtifact:
    """Source and launches of a scheduled function. Raises CodegenError."""
    from autosched.codegen.cuda import CUDA
    from autosched.codegen.opencl import OPENCL

    limits = limits_of(target)
    program = kernels_of(lower(func), limits)
    dialect = CUDA if target.kind == "cuda" else OPENCL
    source = c_source(program.kernels, dialect, limits.warp)
    written = {id(b) for b in outputs_of(func)}
    params = tuple(
        Param(b.name, tuple(map(int, b.shape)), b.dtype, id(b) in written) for b in func.params
    )
    spaces = tuple((_count(b), b.dtype) for b in program.workspaces)
    launches = tuple(_launch(program, k) for k in program.kernels)
    return GPUArtifact(source, KernelInfo(func.name, params), launches, spaces, str(target))


def _count(b: Buffer) -> int:
    from autosched.tir.nodes import allocated

    return int(allocated(b.shape, b.align))


def _launch(program: Program, kernel: Kernel) -> Launch:
    order = [*program.func.params, *program.workspaces]
    numbers = {id(b): n for n, b in enumerate(order)}
    args = tuple(numbers[id(b)] for b in kernel.params)
    return Launch(kernel.name, kernel.grid, kernel.block, args)

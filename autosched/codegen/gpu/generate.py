"""Source, machine code and launches of a scheduled function on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autosched.codegen.artifact import KernelInfo, Param, params_of
from autosched.codegen.c_source import c_source
from autosched.codegen.gpu.kernel import Kernel, Limits
from autosched.codegen.gpu.lower import Program, kernels_of
from autosched.lowering.lower import lower
from autosched.target import Target
from autosched.target.gpu import WARP, limits_of
from autosched.tir.nodes import Buffer, PrimFunc
from autosched.tir.opaque import refuse_opaque


@dataclass(frozen=True)
class Launch:
    """One kernel of a source: `args` are numbers of the function's parameters, and after these of
    the workspaces. `grid` counts blocks, `block` threads of a block, along x, y, z. `shared_bytes`
    are what it asks for beside the arrays that the source declares."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[int, ...]
    shared_bytes: int = 0


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
    program, source = _printed(func, limits_of(target), target.kind)
    spaces = tuple((_count(b), b.dtype) for b in program.workspaces)
    launches = tuple(_launch(program, k) for k in program.kernels)
    info = KernelInfo(func.name, params_of(func))
    return GPUArtifact(source, info, launches, spaces, str(target))


def source_in(func: PrimFunc, target: Target, language: str) -> str:
    """The kernels of a function that is scheduled for the GPU `target`, in `language`: "cuda" or
    "opencl", whichever of them the target's is. Raises CodegenError."""
    limits = limits_of(target)
    if language != "cuda":
        limits = replace(limits, features=())
    return _printed(func, replace(limits, warp=WARP if language == "cuda" else 1), language)[1]


def _printed(func: PrimFunc, limits: Limits, language: str) -> tuple[Program, str]:
    from autosched.codegen.cuda import CUDA
    from autosched.codegen.opencl import OPENCL

    refuse_opaque(func, f"{language} code")
    program = kernels_of(lower(func), limits)
    dialect = CUDA if language == "cuda" else OPENCL
    return program, c_source(program.kernels, dialect, limits.warp)


def _count(b: Buffer) -> int:
    from autosched.tir.nodes import allocated

    return int(allocated(b.shape, b.align))


def _launch(program: Program, kernel: Kernel) -> Launch:
    order = [*program.func.params, *program.workspaces]
    numbers = {id(b): n for n, b in enumerate(order)}
    args = tuple(numbers[id(b)] for b in kernel.params)
    return Launch(kernel.name, kernel.grid, kernel.block, args, kernel.dynamic_bytes)

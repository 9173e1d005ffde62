"""Building: scheduled program -> lowered -> LLVM IR -> object file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from autosched.codegen.artifact import Artifact
from autosched.lowering.layout_rewrite import LayoutRewriteOption, option_of, split
from autosched.lowering.lower import lower
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import has_opaque
from autosched.version import __version__

if TYPE_CHECKING:
    from autosched.codegen.llvm.generate import Generated

Level = Literal["search", "full"]
Compile = Callable[[str, Target, Level], bytes]
"""Object code of LLVM IR."""


def generate_ir(func: PrimFunc, target: Target, entry: str = "autosched_kernel") -> Generated:
    """LLVM IR of a scheduled function. Raises CodegenError."""
    from autosched.codegen.llvm.generate import generate

    if has_opaque(func):
        from autosched.codegen.llvm.pieces import generate_pieces

        return generate_pieces(func, target, entry)
    return generate(lower(func), target, entry)


@dataclass(frozen=True)
class Sources:
    """LLVM IR of a function, and of the transform stages that are code of their own, each with the
    number of the parameter that it transforms."""

    generated: Generated
    prepare: tuple[tuple[int, Sources], ...] = ()


def generate_sources(func: PrimFunc, target: Target) -> Sources:
    """LLVM IR of a scheduled function; under the option REWRITE_FOR_PRE_TRANSFORMED the transform
    stages are code of their own. Raises CodegenError."""
    stages: Mapping[str, PrimFunc] = {}
    if option_of(func) is LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
        func, stages = split(func)
    prepare = tuple(
        (n, generate_sources(stages[b.name], target))
        for n, b in enumerate(func.params)
        if b.name in stages
    )
    return Sources(generate_ir(func, target), prepare)


def compile_sources(
    sources: Sources, target: Target, level: Level, compiler: Compile | None = None
) -> Artifact:
    """Object code of IR, by LLVM in this process or by `compiler`. Raises BuildError."""
    if compiler is None:
        from autosched.codegen.llvm.assemble import compile_ir

        compiler = compile_ir
    generated = sources.generated
    code = compiler(generated.ir, target, level)
    prepare = tuple((n, compile_sources(s, target, level, compiler)) for n, s in sources.prepare)
    return Artifact(code, generated.info, str(target), prepare)


def build_artifact(func: PrimFunc, target: Target, level: Level = "search") -> Artifact:
    """Object code of a scheduled function.

    `level` "search" compiles fast, "full" optimises harder. Raises CodegenError or BuildError.
    """
    return compile_sources(generate_sources(func, target), target, level)


@cache
def toolchain() -> str:
    """What builds here: versions of autosched, llvmlite and LLVM."""
    import llvmlite
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return f"autosched {__version__}, llvmlite {llvmlite.__version__}, LLVM {version}"

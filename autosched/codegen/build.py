"""Building: scheduled program -> lowered -> LLVM IR -> object file."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

from autosched.codegen.artifact import Artifact
from autosched.lowering import lower
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

if TYPE_CHECKING:
    from autosched.codegen.llvm.generate import Generated

Level = Literal["search", "full"]


def generate_ir(func: PrimFunc, target: Target) -> Generated:
    """LLVM IR of a scheduled function. Raises CodegenError."""
    from autosched.codegen.llvm.generate import generate

    return generate(lower(func), target)


def build_artifact(func: PrimFunc, target: Target, level: Level = "search") -> Artifact:
    """Object code of a scheduled function.

    `level` "search" compiles fast, "full" optimises harder. Raises CodegenError or BuildError.
    """
    from autosched.codegen.llvm.assemble import compile_ir

    generated = generate_ir(func, target)
    return Artifact(compile_ir(generated.ir, target, level), generated.info, str(target))


@cache
def toolchain() -> str:
    """What builds here: versions of autosched, llvmlite and LLVM."""
    import llvmlite
    import llvmlite.binding as llvm

    from autosched import __version__

    version = ".".join(map(str, llvm.llvm_version_info))
    return f"autosched {__version__}, llvmlite {llvmlite.__version__}, LLVM {version}"

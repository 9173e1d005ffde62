"""Building: scheduled program -> lowered -> LLVM IR -> object file."""

from __future__ import annotations

from collections.abc import Mapping
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


def generate_ir(func: PrimFunc, target: Target) -> Generated:
    """LLVM IR of a scheduled function. Raises CodegenError."""
    from autosched.codegen.llvm.generate import generate

    if has_opaque(func):
        from autosched.codegen.llvm.pieces import generate_pieces

        return generate_pieces(func, target)
    return generate(lower(func), target)


def build_artifact(func: PrimFunc, target: Target, level: Level = "search") -> Artifact:
    """Object code of a scheduled function.

    `level` "search" compiles fast, "full" optimises harder. Of a function under the option
    REWRITE_FOR_PRE_TRANSFORMED the transform stages are code of their own. Raises CodegenError or
    BuildError.
    """
    from autosched.codegen.llvm.assemble import compile_ir

    stages: Mapping[str, PrimFunc] = {}
    if option_of(func) is LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
        func, stages = split(func)
    generated = generate_ir(func, target)
    code = compile_ir(generated.ir, target, level)
    prepare = tuple(
        (n, build_artifact(stages[b.name], target, level))
        for n, b in enumerate(func.params)
        if b.name in stages
    )
    return Artifact(code, generated.info, str(target), prepare)


@cache
def toolchain() -> str:
    """What builds here: versions of autosched, llvmlite and LLVM."""
    import llvmlite
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return f"autosched {__version__}, llvmlite {llvmlite.__version__}, LLVM {version}"

"""From LLVM IR text to object code, in two qualities.

"search" is what a candidate is built with: the code generator has already made the loops and the
vectors, so promoting tiles to registers and removing redundant arithmetic is all that is left.
"full" is LLVM's O3 without its loop unroller and vectorisers, which would undo the register tiles.
Where it keeps more values than there are registers, it writes them to memory and reads them again:
code that grows so is up to 2.7 times as slow, and "full" then gives what "search" does. So it does
for tile registers (AMX): O3 makes one store of two in different branches, and LLVM (22.1) crashes
on the tile that comes from either; kernels with tiles are not faster by it.

Loops that say so (`loop_notes.py`) "full" makes vectors of, which is longer code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from autosched.codegen.llvm.loop_notes import VECTORS
from autosched.codegen.llvm.one_lane import has_narrow_masked_stores, one_lane_stores
from autosched.errors import BuildError
from autosched.target import Target, initialize_llvm
from autosched.tir.intrin_code import TILE

Level = Literal["search", "full"]
GROWTH = 1.2
"""How much larger the code of "full" may be; without spilling it is smaller, or larger by a few per
cent."""
_PLACE = re.compile(r"<string>:(\d+):\d+")


@dataclass(frozen=True)
class _Toolchain:
    """LLVM's objects for one target and level; kept for the life of the process."""

    machine: Any
    builder: Any
    layout: str


def compile_ir(ir_text: str, target: Target, level: Level = "search") -> bytes:
    """Object file bytes, position independent. Raises BuildError: LLVM's message, the line."""
    level = _level(ir_text, level)
    code = _object(ir_text, target, level)
    if level == "full" and VECTORS not in ir_text:
        plain = _object(ir_text, target, "search")
        return plain if len(code) > GROWTH * len(plain) else code
    return code


def assembly(ir_text: str, target: Target, level: Level = "search") -> str:
    """Assembly text of what `compile_ir` makes."""
    level = _level(ir_text, level)
    if level == "full" and compile_ir(ir_text, target, level) != _object(ir_text, target, level):
        level = "search"
    tools, module = _optimise(ir_text, target, level)
    return str(tools.machine.emit_assembly(module))


def _object(ir_text: str, target: Target, level: Level) -> bytes:
    """Object file bytes of one level's pipeline, whatever comes of it."""
    tools, module = _optimise(ir_text, target, level)
    return bytes(tools.machine.emit_object(module))


def optimised_ir(ir_text: str, target: Target, level: Level = "search") -> str:
    """The IR that is handed to instruction selection."""
    return str(_optimise(ir_text, target, _level(ir_text, level))[1])


def _level(ir_text: str, level: Level) -> Level:
    """What is asked for, or "search" for a module with tile registers anywhere in it: an exported
    model is one module."""
    return "search" if level == "full" and TILE in ir_text else level


def _optimise(ir_text: str, target: Target, level: Level) -> tuple[_Toolchain, Any]:
    """Parse, verify and run the passes; returns the tools and the module."""
    import llvmlite.binding as llvm

    tools = _toolchain(target.triple, target.mcpu, _features(target), level)
    try:
        module = llvm.parse_assembly(ir_text)
        module.triple = target.triple
        module.data_layout = tools.layout
        module.verify()
    except RuntimeError as e:
        raise BuildError(f"LLVM refuses the generated code: {_explain(str(e), ir_text)}") from e
    _passes(tools, level).run(module, tools.builder)
    if has_narrow_masked_stores(ir_text):
        text = str(module)
        mended = one_lane_stores(text)
        if mended != text:
            module = llvm.parse_assembly(mended)
    return tools, module


def _features(target: Target) -> str:
    """The feature string for LLVM. Wide vectors are our decision, not that of its tuning tables."""
    words = [target.mattr] if target.mattr else []
    if target.vector_bytes == 64:
        words.append("-prefer-256-bit")
    return ",".join(words)


@cache
def _toolchain(triple: str, cpu: str, features: str, level: Level) -> _Toolchain:
    import llvmlite.binding as llvm

    if level not in ("search", "full"):
        raise BuildError(f"unknown level {level!r} of optimisation; expected 'search' or 'full'")
    initialize_llvm()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu,
        features=features,
        opt=1 if level == "search" else 3,
        reloc="pic",
        codemodel="small",
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False
    options.loop_vectorization = False
    options.loop_interleaving = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    return _Toolchain(machine, builder, str(machine.target_data))


def _passes(tools: _Toolchain, level: Level) -> Any:
    """The pipeline of a level; running it uses it up.

    No value numbering in "search": the code generator shares values itself, and the one pass on
    offer, NewGVN, carries conditions of one iteration into the next (LLVM 22, phi-of-ops).
    """
    import llvmlite.binding as llvm

    if level == "full":
        return tools.builder.getModulePassManager()
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return passes


def _explain(message: str, ir_text: str) -> str:
    """LLVM's message, with the number and text of the line of IR that it is about."""
    lines = ir_text.splitlines()
    place = _PLACE.search(message)
    if place is not None:
        number = int(place.group(1))
    else:
        # The verifier quotes the instruction instead of naming the line.
        quoted = [text.strip() for text in message.splitlines()]
        found = [n for n, text in enumerate(lines, 1) if text.strip() and text.strip() in quoted]
        if not found:
            return message.strip()
        number = found[0]
    around = "\n".join(
        f"{'>' if n == number else ' '} {n:5} | {lines[n - 1]}"
        for n in range(max(1, number - 2), min(len(lines), number + 2) + 1)
    )
    return f"{message.strip()}\nline {number} of the IR:\n{around}"

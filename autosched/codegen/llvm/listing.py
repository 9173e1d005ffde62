"""Assembly beside the loop IR that it comes from.

The code generator knows the loop or block that it writes each instruction for, and LLVM carries
that through its passes as a debug location; the assembler's `.loc` lines tell what became of it.
Line tables alone change no code, which is checked: where the instructions are not those of the
program as it is built, there are no links.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from autosched.codegen.build import Level
from autosched.codegen.llvm.assemble import assembly
from autosched.codegen.llvm.generate import ModuleWriter, as_written
from autosched.lowering.lower import lower
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from autosched.tir.printer import numbered

_MARK = re.compile(r", !dbg !L(\d+)")
_FUNCTION = re.compile(r"^define .*@([\w.$]+)\(.*\{$")
_LOC = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_CALL = re.compile(r"^\s+(%\S+ = )?(tail )?call ")
_FIRST = 1000
"""The number of the first of our metadata; the code generator has those below."""


@dataclass(frozen=True)
class Line:
    """A line of assembly, and the line of the loop IR (from 1) that it comes from, None where LLVM
    has lost that, or it comes from several, or from none: what sets a function up."""

    text: str
    source: int | None


@dataclass(frozen=True)
class Listing:
    """A lowered program as script, and its assembly. `linked`: whether lines are linked at all."""

    script: str
    assembly: tuple[Line, ...]
    linked: bool


def listing(func: PrimFunc, target: Target, level: Level = "full") -> Listing:
    """The loop IR of a scheduled function for a processor, as code is made of it, and its assembly.

    Raises CodegenError or BuildError, and CodegenError for a GPU.
    """
    lowered = as_written(lower(func), target)
    script, lines = numbered(lowered)
    plain = ModuleWriter(lowered, target, "autosched_kernel").write().ir
    marked = ModuleWriter(lowered, target, "autosched_kernel", lines).write().ir
    built = _code(assembly(plain, target, level))
    traced = _code(assembly(_located(marked), target, level))
    linked = [_bare(text) for text, _ in built] == [_bare(text) for text, _ in traced]
    sources = [source for _, source in traced] if linked else [None] * len(built)
    found = tuple(Line(text, source) for (text, _), source in zip(built, sources, strict=True))
    return Listing(script, found, linked)


def _located(ir: str) -> str:
    """IR whose marks are debug locations."""
    made: list[str] = []
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        if text not in numbers:
            numbers[text] = _FIRST + len(numbers)
        return numbers[text]

    file = number('!DIFile(filename: "loop_ir.py", directory: "")')
    unit = number(
        f'distinct !DICompileUnit(language: DW_LANG_C99, file: !{file}, producer: "autosched", '
        "isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)"
    )
    kind = number("!DISubroutineType(types: !{null})")
    scope: int | None = None
    for line in ir.splitlines():
        if (start := _FUNCTION.match(line)) is not None:
            scope = number(
                f'distinct !DISubprogram(name: "{start[1]}", scope: !{file}, file: !{file}, '
                f"line: 1, type: !{kind}, unit: !{unit}, spFlags: DISPFlagDefinition | "
                "DISPFlagOptimized)"
            )
            made.append(f"{line[:-1]}!dbg !{scope} {{")
            continue
        found = _MARK.search(line)
        # Calls between functions with locations have to have one.
        at = found[1] if found else "0" if scope is not None and _CALL.match(line) else None
        text = _MARK.sub("", line)
        if at is not None:
            text += f", !dbg !{number(f'!DILocation(line: {at}, column: 0, scope: !{scope})')}"
        made.append(text)
        if line == "}":
            scope = None
    made += [f"!{n} = {text}" for text, n in numbers.items()]
    flags = _FIRST + len(numbers)
    made += [
        f'!{flags} = !{{i32 2, !"Debug Info Version", i32 3}}',
        f'!{flags + 1} = !{{i32 7, !"Dwarf Version", i32 4}}',
        f"!llvm.module.flags = !{{!{flags}, !{flags + 1}}}",
        f"!llvm.dbg.cu = !{{!{unit}}}",
    ]
    return "\n".join(made) + "\n"


def _code(text: str) -> list[tuple[str, int | None]]:
    """The labels and instructions of assembly text, each with its line by `.loc`; without what
    stands in sections of debug information, and labels that only that refers to."""
    found: list[tuple[str, int | None]] = []
    source: int | None = None
    debug = False
    for line in text.splitlines():
        bare = line.split("#", 1)[0].strip() if "\t.loc" not in line else line.strip()
        if bare.startswith((".section", ".text", ".data")):
            debug = ".debug_" in bare
        if debug or not bare:
            continue
        if (place := _LOC.match(line)) is not None:
            source = int(place[1]) or None
        elif bare.endswith(":"):
            if bare.startswith((".Ltmp", ".Lfunc", ".Lsec", ".Lline", ".Lcu", ".Ldebug")):
                continue
            if not bare.startswith("."):
                source = None  # a function begins
            found.append((bare, None))
        elif not bare.startswith("."):
            found.append((line.split("#", 1)[0].rstrip(), source))
    return found


def _bare(text: str) -> str:
    """An instruction without what is numbered by the assembler: its labels."""
    return re.sub(r"\.L\w+", ".L", " ".join(text.split()))

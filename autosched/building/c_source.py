"""`c_source`: a scheduled program as C source text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autosched.building.build import function_of
from autosched.codegen.c import prologue, source_of
from autosched.codegen.export.entries import symbol
from autosched.errors import ArgumentError, CodegenError
from autosched.tir.admit import derived
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc, loops_of, outputs_of

if TYPE_CHECKING:
    from autosched.building.build import Buildable

_UNROLL = re.compile(r"(?m)^ *#pragma unroll\n")
"""What compilers of C do not know."""


def c_source(
    program: Buildable, args: Sequence[Any] | None = None, *, name: str | None = None
) -> str:
    """The C source, C11, of a scheduled program: `void NAME(arrays…, void *workspace)`.

    The text stands on the C library alone (link it with -lm) and says in a comment which array is
    which. Loops stand in their scheduled order and run on one thread; vectors are left to the
    compiler, so that it is slower than what `build` makes. `NAME_WORKSPACE` is the number of bytes
    of `workspace`, which begins at a multiple of 64. `args` and `name` are those of `build`; a
    function `main` is called `kernel`.

    Raises CodegenError for symbolic sizes, GPU schedules and dtypes that C has no number for,
    ArgumentError for a name that C cannot have, or a module of several functions.
    """
    if isinstance(program, IRModule) and len(program) > 1:
        raise ArgumentError(
            f"the module has the functions {', '.join(program)}; c_source takes one of them"
        )
    func = function_of(program, args, name)
    for loop in loops_of(func):
        if loop.kind == "thread":
            raise CodegenError(
                f"loop {loop.var.name} is bound to {loop.thread}, which C does not have; schedule "
                "for a CPU"
            )
    called = symbol(func.name, "kernel", "")
    made = source_of(derived(replace(func, name=called), func))
    parts = [_comment(func, called), prologue(), *(f"{h}\n" for h in made.helpers)]
    parts.append(f"#define {called.upper()}_WORKSPACE {made.workspace}\n\n")
    return _UNROLL.sub("", "".join([*parts, made.text]))


def _comment(func: PrimFunc, called: str) -> str:
    """What the arguments are."""
    written = {id(b) for b in outputs_of(func)}
    lines = [f"{called}: the arguments are dense row-major arrays that do not overlap."]
    for n, b in enumerate(func.params):
        shape = ", ".join(map(str, b.shape))
        plain = re.sub(r"[^ -~]|\*/", "?", b.name)
        lines.append(f"p{n}: {plain}, {b.dtype}[{shape}], {_use(id(b) in written)}")
    return "/* " + "\n   ".join(lines) + " */\n"


def _use(written: bool) -> str:
    return "written" if written else "read"

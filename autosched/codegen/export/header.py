"""The C header of exported functions: prototypes, and what a caller has to know."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from autosched.codegen.artifact import KernelInfo
from autosched.codegen.export.entries import ALIGNMENT, Argument, Source, arguments, size_names
from autosched.codegen.formula import Extent, fold
from autosched.target import Target

_C_TYPES = {
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "bool",
}

_BITS = {"float16": " (IEEE 754 binary16)", "bfloat16": " (bfloat16)"}
"""What stands in an unsigned integer, for lack of a type in C."""

_HEAD = """\
/* {file}.h, made by {maker}. Link it with {file}.o:
 *
 *     cc main.c {file}.o -lpthread -lm
 *     cc -shared -Wl,-z,nodelete {file}.o -o lib{file}.so -lpthread -lm
 *
 * (A library whose functions have started threads must not be unloaded, hence nodelete.)
 *
 * Target: {target}
 * The processor must have:
{features}
 * A program on another one ends with an illegal instruction: nothing is checked at run time.
 *
 * Every function returns 0, or, having done nothing,
 *     EINVAL (22)  a pointer is null or not aligned to its element, the workspace not to
 *                  {alignment} bytes, a size is below 1, or threads is not in 0 ... {max_threads}
 *     ENOMEM (12)  there is no memory for a workspace
 * or EDOM (33): an index in the data is outside of its array, or another assertion of the program
 * does not hold for them; outputs hold nothing of use then.
 *
 * Arrays are dense and in row-major order. Outputs overlap no other array; inputs may overlap
 * one another. Arrays that start on a multiple of {alignment} bytes are fastest.
 *
 * workspace: scratch memory of at least NAME_workspace_bytes(threads) bytes, on a multiple of
 *     {alignment}; NULL: it is allocated and freed within the call.
 * threads: how many threads a function with parallel loops uses, the caller included;
 *     0: {threads}, as it was built for. Workers are started once, by the first call that needs
 *     them, and sleep when there is nothing to do. All functions of this file share them.
 *
 * All functions may be called by several threads at once, each with a workspace of its own; while
 * one has the workers, the others compute in their callers. They work in the child of a fork.
 */
#ifndef {guard}
#define {guard}

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define AUTOSCHED_RESTRICT __restrict
extern "C" {{
#else
#define AUTOSCHED_RESTRICT restrict
#endif
"""

_TAIL = """
#ifdef __cplusplus
}
#endif

#undef AUTOSCHED_RESTRICT
#endif
"""


def header(
    file: str,
    sources: Sequence[Source],
    target: Target,
    maker: str,
    max_threads: int,
    note: str = "",
) -> str:
    """Text of the header of `file` (a name without suffix) for the functions in `sources`; `note`
    is a comment that stands before these."""
    head = _HEAD.format(
        file=file,
        maker=maker,
        target=target,
        features=textwrap.fill(
            ", ".join(sorted(target.features)) or f"what {target.mcpu} has",
            width=96,
            initial_indent=" *     ",
            subsequent_indent=" *     ",
        ),
        alignment=ALIGNMENT,
        max_threads=max_threads,
        threads=target.num_cores,
        guard=f"AUTOSCHED_{re.sub(r'[^A-Za-z0-9]', '_', file).upper()}_H",
    )
    head += f"\n{note}" if note else ""
    return head + "".join(_function(s, target.num_cores) for s in sources) + _TAIL


def _function(source: Source, threads: int) -> str:
    args = arguments(source.info)
    width = max((len(a.name) for a in args), default=0)
    sizes = size_names(source.info)
    width = max([width, *map(len, sizes.values())])
    rows = "".join(f" *   {a.name:<{width}}  {_array(a, sizes)}\n" for a in args)
    rows += "".join(f" *   {n:<{width}}  a size of at least 1\n" for n in sizes.values())
    prototype = "".join(f"\n    {_declared(a)}," for a in args)
    declared = "".join(f"int64_t {n}, " for n in sizes.values())
    prototype += f"\n    {declared.rstrip()}" if sizes else ""
    return (
        f"\n/* {source.symbol}\n *\n{rows} *\n * {_space(source.info)}\n */\n"
        f"int {source.symbol}({prototype}\n    void *workspace, int threads);\n\n"
        f"static inline size_t {source.symbol}_workspace_bytes({declared}int threads) {{\n"
        f"{_bytes(source.info, threads)}}}\n"
    )


def _array(argument: Argument, sizes: Mapping[str, str]) -> str:
    param = argument.param
    shape = "".join(f"[{_c(n, sizes)}]" for n in param.shape)
    binary = _BITS.get(param.dtype, "")
    use = "output" if param.written else "input"
    return f"{_C_TYPES[param.dtype]} {shape or '[1]'}{binary}, {use}"


def _declared(argument: Argument) -> str:
    kind = _C_TYPES[argument.param.dtype]
    if argument.param.written:
        return f"{kind} *AUTOSCHED_RESTRICT {argument.name}"
    return f"const {kind} *{argument.name}"


def _space(info: KernelInfo) -> str:
    sizes = size_names(info)
    if not info.needs_workspace:
        space = "It needs no workspace"
    else:
        each = f" and {_c(info.thread_bytes, sizes)} a thread" if info.thread_bytes else ""
        space = f"Its workspace is of {_c(info.workspace_bytes, sizes)} bytes{each}"
    return f"{space}, and {'has' if info.parallel else 'has no'} parallel loops."


def _bytes(info: KernelInfo, threads: int) -> str:
    """Body of the function that says how large a workspace is."""
    sizes = size_names(info)
    unused = "".join(f"    (void){n};\n" for n in sizes.values())
    if info.parallel and info.thread_bytes:
        each = f"(size_t)(threads ? threads : {threads}) * {_factor(info.thread_bytes, sizes)}"
        shared = _c(info.workspace_bytes, sizes)
        total = f"({shared} + {each} + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT}"
        return f"{unused}    return {total};\n"
    if isinstance(info.workspace_bytes, int) and isinstance(info.thread_bytes, int):
        total = str(-(-(info.workspace_bytes + info.thread_bytes) // ALIGNMENT) * ALIGNMENT)
    else:
        both = f"{_factor(info.workspace_bytes, sizes)} + {_factor(info.thread_bytes, sizes)}"
        total = f"(size_t)({both} + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT}"
    return f"{unused}    (void)threads;\n    return {total};\n"


def _c(formula: Extent, sizes: Mapping[str, str]) -> str:
    """A formula in C. (What is divided is never negative.)"""
    text = fold(formula, sizes.__getitem__, str, lambda op, a, b: f"({a} {op[0]} {b})")
    return text[1:-1] if text.startswith("(") else text


def _factor(formula: Extent, sizes: Mapping[str, str]) -> str:
    """A formula in C, as an operand."""
    return str(formula) if isinstance(formula, int) else f"(size_t)({_c(formula, sizes)})"

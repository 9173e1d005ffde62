"""Known races, each refused with the two threads (or blocks) and the element; and their neighbours
that are none."""

from __future__ import annotations

import re

import pytest
from gpu_run import program

from autosched.errors import CodegenError
from autosched.script import parse_func

HEAD = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), I: T.Buffer((64,), "int64"), B: T.Buffer((64,), "float32")):
"""
X8 = 'for x in T.thread_binding(8, thread="threadIdx.x"):'
Y4 = 'for y in T.thread_binding(4, thread="threadIdx.y"):'
B4 = 'for b in T.thread_binding(4, thread="blockIdx.x"):'


def block(name: str, statement: str, axes: dict[str, tuple[int, str]], where: str = "") -> str:
    """A block; `axes` by the loop that each runs over: (extent, kind)."""
    lines = [f'with T.block("{name}"):']
    lines += [f"    T.where({where})"] if where else []
    lines += [f"    v{v} = T.axis.{kind}({n}, {v})" for v, (n, kind) in axes.items()]
    return "\n".join([*lines, f"    {statement}"])


def nest(*parts: str | tuple[str, ...]) -> str:
    """Loops, one inside the other, and last the blocks in the innermost."""
    *heads, last = parts
    lines: list[str] = []
    for depth, head in enumerate(heads):
        assert isinstance(head, str)
        lines.append("    " * (depth + 1) + head)
    for text in (last,) if isinstance(last, str) else last:
        lines += ["    " * (len(heads) + 1) + line for line in text.splitlines()]
    return HEAD + "\n".join(lines) + "\n"


def write(index: str, value: str = "T.float32(1.0)", where: str = "", **axes: int) -> str:
    kinds = {v: (n, "spatial") for v, n in axes.items()}
    return block("set", f"B[{index}] = {value}", kinds, where)


def read(index: str, value: str, **axes: int) -> str:
    return block("use", f"B[{index}] = {value}", {v: (n, "spatial") for v, n in axes.items()})


RACES: dict[str, tuple[str, str]] = {
    "all to one element": (
        nest(X8, write("0", "A[vx]", x=8)),
        "threads (threadIdx.x=0) and (threadIdx.x=7) both write B[0] in set",
    ),
    "modulo": (
        nest(X8, write("vx % 4", x=8)),
        "threads (threadIdx.x=0) and (threadIdx.x=4) both write B[0] in set",
    ),
    "quotient": (
        nest(X8, write("vx // 2", x=8)),
        "threads (threadIdx.x=0) and (threadIdx.x=1) both write B[0] in set",
    ),
    "two axes, a stride too small": (
        nest(Y4, X8, write("vx * 3 + vy", x=8, y=4)),
        "threads (threadIdx.x=0, threadIdx.y=3) and (threadIdx.x=1, threadIdx.y=0) both write B[3]",
    ),
    "folded back": (
        nest(X8, write("(vx * 3) % 6", x=8)),
        "both write B[0] in set",
    ),
    "one of two axes is forgotten": (
        nest(B4, X8, write("vx", x=8, b=4)),
        "blocks (blockIdx.x=0) and (blockIdx.x=3) both write B[0] in set",
    ),
    "tiles of blocks overlap": (
        nest(B4, X8, write("vb * 7 + vx", b=4, x=8)),
        "blocks (blockIdx.x=0) and (blockIdx.x=1) both write B[7] in set",
    ),
    "steps run into the next block's tile": (
        nest(B4, "for i in T.serial(2):", X8, write("vb * 8 + vi * 8 + vx", b=4, i=2, x=8)),
        "blocks (blockIdx.x=0) and (blockIdx.x=1) both write B[8] in set",
    ),
    "shifted in place": (
        nest(X8, write("vx", "B[(vx + 1) % 8]", x=8)),
        "of threads, (threadIdx.x=0) writes B[0] in set and (threadIdx.x=7) reads it in set",
    ),
    "reversed in place": (
        nest(X8, write("vx", "B[7 - vx]", x=8)),
        "of threads, (threadIdx.x=0) writes B[0] in set and (threadIdx.x=7) reads it in set",
    ),
    "a neighbouring block's element": (
        nest(B4, (write("vb", b=4), read("vb + 32", "B[(vb + 1) % 4]", b=4))),
        "of blocks, (blockIdx.x=0) writes B[0] in set and (blockIdx.x=3) reads it in use",
    ),
    "written again by another block": (
        nest(B4, (write("vb", b=4), read("3 - vb", "T.float32(2.0)", b=4))),
        "of blocks, (blockIdx.x=0) writes B[0] in set and (blockIdx.x=3) writes it in use",
    ),
    "beyond a condition that is too weak": (
        nest(X8, write("vx % 5", where="x < 6", x=8)),
        "threads (threadIdx.x=0) and (threadIdx.x=5) both write B[0] in set",
    ),
    "where the data say": (
        nest(X8, write("I[vx]", x=8)),
        "set may write elements of B that another of the threads writes in set",
    ),
}
APART: dict[str, str] = {
    "one thread does what is the same for all": nest(X8, write("0")),
    "modulo of its whole range": nest(X8, write("vx % 8", x=8)),
    "two axes, wide enough": nest(Y4, X8, write("vx * 4 + vy", x=8, y=4)),
    "folded, but one to one": nest(X8, write("(vx * 3) % 8", x=8)),
    "tiles of blocks side by side": nest(B4, X8, write("vb * 8 + vx", b=4, x=8)),
    "steps of one block": nest(
        B4, "for i in T.serial(2):", X8, write("vb * 16 + vi * 8 + vx", b=4, i=2, x=8)
    ),
    "in place": nest(X8, write("vx", "B[vx] + T.float32(1.0)", x=8)),
    "from another half": nest(X8, write("vx", "B[15 - vx]", x=8)),
    "its own block's element": nest(B4, (write("vb", b=4), read("vb + 32", "B[vb]", b=4))),
    "a condition that leaves one": nest(X8, write("vx % 4", where="x < 4", x=8)),
}


@pytest.mark.parametrize("name", RACES)
def test_race(name: str) -> None:
    text, message = RACES[name]
    func = parse_func(text, check=False)
    with pytest.raises(CodegenError, match=re.escape(message)):
        program(func)


@pytest.mark.parametrize("name", APART)
def test_no_race(name: str) -> None:
    assert len(program(parse_func(APART[name], check=False)).kernels) == 1

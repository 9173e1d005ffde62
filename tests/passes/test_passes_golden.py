"""Each pass on a small program: text before and after."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autosched import passes
from autosched.script import parse_module
from autosched.tir.verify import verify

HEAD = """
@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32")):
"""

SIMPLIFY = """
    for i, u, jo, ji in T.grid(4, 1, 3, 2):
        with T.block("C"):
            vi = T.axis.spatial(4, i + u)
            vj = T.axis.spatial(6, (jo * 2 + ji + u * 7) % 6)
            T.where(jo * 2 + ji < 6)
            C[vi, vj] = T.if_then_else(vi >= 0 and vj < 5, A[(vi * 6 + vj) // 6, vj], 0.0) * 1.0
    for i, j in T.grid(4, 6):
        with T.block("never"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(10 - i < 3)
            C[vi, vj] = T.float32(7)
"""
DEAD = """
    B = T.alloc_buffer((4, 6), "float32")
    D = T.alloc_buffer((4, 6), "float32")
    E = T.alloc_buffer((4, 6), "float32")
    for i, j in T.grid(4, 6):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj] + 1
    for i in T.serial(4):
        for j in T.serial(6):
            with T.block("E"):
                vi, vj = T.axis.remap("SS", [i, j])
                E[vi, vj] = D[vi, vj] * 2
        for j in T.serial(6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] - 1
    for i, j in T.grid(4, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * 2
"""
INLINE = """
    B = T.alloc_buffer((4, 6), "float32")
    S = T.alloc_buffer((4,), "float32")
    for i, j in T.grid(4, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1
    for i, k in T.grid(4, 6):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0.0
            S[vi] += B[vi, vk]
    for i, j in T.grid(4, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] / S[vi]
"""
CASES: dict[str, tuple[str, passes.Pass]] = {
    "simplify": (SIMPLIFY, passes.simplify),
    "dead_code": (DEAD, passes.dead_code),
    "inline": (INLINE, passes.inline),
}


@pytest.mark.parametrize("name", CASES)
def test_text_before_and_after(name: str, golden: Callable[[str, str], None]) -> None:
    body, change = CASES[name]
    before = parse_module(HEAD + body, check=name != "simplify")
    after = change(before)
    verify(after.main)
    golden(name, f"# before\n{before.script()}\n# after {change.name}\n{after.script()}")

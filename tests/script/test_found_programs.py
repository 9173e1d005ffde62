"""Programs that the script fuzz once found, made small: each stays right, or stays refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guarded import arguments, compiled, same
from roundtrip import check, executed

from autosched.errors import ScheduleError, VerifyError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.tir import interp, whole
from autosched.tir.nodes import PrimFunc, loops_of, sites

FILL = """
    for z in T.serial({n}):
        with T.block("fill"):
            w = T.axis.spatial({n}, z)
            B[w] = {value}
"""
SPATIAL_AXES_MEET = """
@T.prim_func
def main(B: T.Buffer((12,), "int8")):""" + FILL.format(n=12, value="T.int8(0)") + """
    for i, j, k in T.grid(3, 2, 4):
        with T.block("s"):
            a = T.axis.reduce(3, i)
            b = T.axis.spatial(2, j)
            c = T.axis.spatial(4, k)
            B[c] = B[c] + T.int8(1)
"""  # fmt: skip
ONE_ELEMENT = """
@T.prim_func
def main(A: T.Buffer((4,), "int64"), B: T.Buffer((7,), "int16")):""" + FILL.format(
    n=7, value="T.int16(0)"
) + """
    for i, j, k in T.grid(3, 6, 3):
        with T.block("s"):
            a = T.axis.reduce(3, i)
            b = T.axis.spatial(6, j)
            c = T.axis.reduce(3, k)
            B[T.max(T.min(A[0], 6), 0)] = B[T.max(T.min(A[0], 6), 0)] + T.int16(2)
"""  # fmt: skip
PRODUCT = """
@T.prim_func
def main(B: T.Buffer((4, 5), "float32")):
    for i, j, k in T.grid(4, 5, 4):
        with T.block("r"):
            a = T.axis.spatial(4, i)
            b = T.axis.spatial(5, j)
            c = T.axis.reduce(4, k)
            with T.init():
                B[3 - a, b] = T.float32(1)
            B[3 - a, b] = B[3 - a, b] * T.float32(2)
"""
TAIL = """
@T.prim_func
def main(A: T.Buffer((3,), "uint8"), B: T.Buffer((3, 6), "int16")):
    for i, j, k in T.grid(3, 6, 3):
        with T.block("r"):
            a = T.axis.spatial(3, i)
            b = T.axis.spatial(6, j)
            c = T.axis.reduce(3, k)
            with T.init():
                B[a, 5 - b] = T.int16(-32768)
            B[a, 5 - b] = T.max(B[a, 5 - b], T.cast(A[b % 3], "int16"))
"""
FUSED = """
@T.prim_func
def main(B: T.Buffer((4, 3), "int8")):
    for f, i in T.grid(12, 3):
        with T.block("r"):
            a = T.axis.spatial(4, f % 4)
            b = T.axis.spatial(3, f // 4)
            c = T.axis.reduce(3, i)
            with T.init():
                B[a, b] = T.int8(-128)
            B[a, b] = T.max(B[a, b], T.int8(1))
"""
OUTER = """
@T.prim_func
def main(A: T.Buffer((6,), "float32"), B: T.Buffer((6, 3), "float32")):
    for k, i, o, n in T.grid(4, 6, 1, 4):
        with T.block("r"):
            a = T.axis.spatial(6, i)
            b = T.axis.spatial(3, o * 4 + n)
            c = T.axis.reduce(4, k)
            T.where(o * 4 + n < 3)
            with T.init():
                B[a, b] = T.float32(0)
            B[a, b] = B[a, b] + A[a]
"""
ROTATED = """
@T.prim_func
def main(B: T.Buffer((12,), "int32")):
    for i in T.parallel(12):
        with T.block("r"):
            v = T.axis.spatial(12, i)
            B[(v + 3) % 12] = T.cast(v, "int32")
"""
SCATTER = """
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((4,), "int64")):""" + FILL.format(
    n=4, value="0"
) + """
    for i, j in T.grid(2, 8):
        with T.block("s"):
            a = T.axis.spatial(2, i)
            c = T.axis.reduce(8, j)
            B[(c + a) % 4] = B[(c + a) % 4] + A[c]
"""  # fmt: skip
THROUGH = """
@T.prim_func
def main(A: T.Buffer((7,), "int32"), B: T.Buffer((6,), "int32")):
    V = T.alloc_buffer((7,), "int32")
    for i in T.serial(7):
        with T.block("v"):
            v = T.axis.spatial(7, i)
            V[v] = A[6 - v]
    for j in T.serial(6):
        with T.block("b"):
            w = T.axis.spatial(6, j)
            B[(w + 2) % 6] = V[1] + V[w]
"""
ONE_LANE = """
@T.prim_func
def main(A: T.Buffer((1,), "int64"), B: T.Buffer((6, 5, 1), "uint8")):
    for i, j in T.grid(2, 5):
        with T.block("neighbour"):
            a = T.axis.spatial(2, i)
            b = T.axis.spatial(5, j)
            B[a * 3 + 1, b, 0] = T.uint8(1)
    for i, j, k in T.grid(2, 5, 1):
        with T.block("r"):
            a = T.axis.spatial(2, i)
            b = T.axis.spatial(5, j)
            c = T.axis.spatial(1, k)
            B[3 - a * 3, b, c] = T.cast(A[c], "uint8")
    for i, j in T.grid(2, 5):
        with T.block("rest"):
            a = T.axis.spatial(2, i)
            b = T.axis.spatial(5, j)
            B[a * 3 + 2, b, 0] = T.uint8(1)
"""
BAND = """
@T.prim_func
def main(A: T.Buffer((10, 3), "int64"), B: T.Buffer((10,), "int64")):""" + FILL.format(
    n=10, value="7"
) + """
    for i, j in T.grid(10, 3):
        with T.block("r"):
            a = T.axis.spatial(10, i)
            b = T.axis.reduce(3, j)
            T.where(i + j < 7)
            with T.init():
                B[a] = 0
            B[a] = B[a] + A[a, b]
"""  # fmt: skip
BEYOND = """
@T.prim_func
def main(A: T.Buffer((7, 3), "int32"), B: T.Buffer((7,), "int32")):
    for i, j in T.grid(10, 3):
        with T.block("r"):
            a = T.axis.spatial(7, i)
            b = T.axis.reduce(3, j)
            T.where(i + j < 7)
            with T.init():
                B[a] = T.int32(0)
            B[a] = B[a] + A[a, b]
"""
LATE = """
@T.prim_func
def main(A: T.Buffer((7, 3), "int32"), B: T.Buffer((7,), "int32")):""" + FILL.format(
    n=7, value="T.int32(1)"
) + """
    for i, j in T.grid(30, 3):
        with T.block("r"):
            a = T.axis.spatial(7, i)
            b = T.axis.reduce(3, j)
            T.where(i - j < 5)
            B[a] = B[a] + A[a, b]
"""  # fmt: skip
WINDOW = """
@T.prim_func
def main(A: T.Buffer((3, 1), "float32"), B: T.Buffer((3,), "float32")):
    for i, j in T.grid(3, 3):
        with T.block("r"):
            a = T.axis.spatial(3, i)
            b = T.axis.reduce(3, j)
            with T.init():
                B[2 - a] = T.float32(0)
            B[2 - a] = B[2 - a] + T.if_then_else(
                a - 1 >= 0 and a - 1 < 1, A[b, a - 1], T.float32(3)
            )
"""


def fused(block: str, factor: int, *kinds: str) -> str:
    """All loops made one, split by a factor, of kinds."""
    lines = [f'b = sch.get_block("{block}")', "loops = sch.get_loops(b)"]
    lines += ["one = sch.fuse(*loops) if len(loops) > 1 else loops[0]"]
    lines += [f"outer, inner = sch.split(one, [None, {factor}])"]
    lines += [f"sch.{kind}({x})" for kind, x in zip(kinds, ("inner", "outer"), strict=False)]
    return "\n".join(["def apply(sch):", *(f"    {x}" for x in lines)])


def decomposed(block: str) -> str:
    return (
        "def apply(sch):\n"
        f'    b = sch.get_block("{block}")\n'
        "    sch.decompose_reduction(b, sch.get_loops(b)[0])"
    )


NOTHING = "def apply(sch):\n    pass"
RIGHT: dict[str, tuple[str, str]] = {
    "spatial axes that meet in an element": (SPATIAL_AXES_MEET, NOTHING),
    "all points in one element that data choose": (ONE_ELEMENT, NOTHING),
    "digits that are written in two ways": (PRODUCT, fused("r", 10)),
    "rows and steps in one loop": (PRODUCT, fused("r", 8)),
    "all steps inside": (PRODUCT, fused("r", 4, "unroll")),
    "all steps in lanes": (PRODUCT, fused("r", 4, "vectorize")),
    "digits of digits": (FUSED, fused("r", 4, "vectorize")),
    "reduction outside, with a tail": (OUTER, fused("r", 3)),
    "a tail of a split that is fused again": (
        TAIL,
        "def apply(sch):\n"
        '    b = sch.get_block("r")\n'
        "    i, j, k = sch.get_loops(b)\n"
        "    o, n = sch.split(k, [None, 2])\n"
        "    sch.split(sch.fuse(sch.fuse(i, j), o, n), [None, 8])",
    ),
    "a rotation in parallel": (ROTATED, NOTHING),
    "a reduction that moves its element": (SCATTER, NOTHING),
    "the same, fused": (SCATTER, fused("s", 4)),
    "a rotation of what another block made": (THROUGH, NOTHING),
    "the same, inlined": (THROUGH, 'def apply(sch):\n    sch.compute_inline(sch.get_block("v"))'),
    "elements without a point": (BAND, NOTHING),
    "the same, set by a block of their own": (BAND, decomposed("r")),
    "loops that go on behind a buffer": (BEYOND, NOTHING),
    "the same, elements set by a block": (BEYOND, decomposed("r")),
    "loops that go on, of which the last step goes the furthest": (LATE, NOTHING),
    "the same, in vectors that hang over": (
        LATE,
        "def apply(sch):\n"
        '    i, j = sch.get_loops(sch.get_block("r"))\n'
        "    sch.vectorize(sch.split(j, [None, 40])[1])",
    ),
    "a condition on fused loops": (BAND, fused("r", 4, "vectorize")),
    "a condition on fused loops with a tail": (LATE, fused("r", 8)),
    "fused loops that go on behind a buffer": (BEYOND, fused("r", 8, "vectorize")),
    "blocks that begin before their buffer": (
        WINDOW,
        "def apply(sch):\n"
        '    b = sch.get_block("r")\n'
        "    i, j = sch.get_loops(b)\n"
        "    o, n = sch.split(i, [None, 16])\n"
        "    sch.reorder(o, j, n)\n"
        '    c = sch.cache_read(b, 0, scope="local", layout=[[1, 8], [0], [1, 1, 8]])\n'
        "    sch.compute_at(c, n)",
    ),
    "one lane of a vector, truncated": (
        ONE_LANE,
        "def apply(sch):\n"
        '    i, j, k = sch.get_loops(sch.get_block("r"))\n'
        "    sch.vectorize(sch.split(k, [None, 8])[1])",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_computes_what_its_points_say(name: str) -> None:
    text, trace = RIGHT[name]
    func = parse(text)
    sch = executed(trace, func)
    check(sch.func)
    parse(sch.func.script())
    arrays = arguments(func)
    wanted = interpreted(func, arrays)
    answers = [interpreted(sch.func, arrays), compiled(sch, arrays)]
    blocks = [s.block for s in sites(func)]
    conditional = any(b.predicates for b in blocks)
    if not conditional and all(f.single_var() is not None for b in blocks for f in b.bindings):
        direct = [a.copy() for a in arrays]
        whole.reference(func, direct)
        answers.append(direct)
    for found in answers:
        for a, b in zip(found, wanted, strict=True):
            same(a, b)


def interpreted(func: PrimFunc, arrays: list[Any]) -> list[Any]:
    out = [a.copy() for a in arrays]
    interp.run(func, out)
    return out


BOUND = """def apply(sch):
    (z,) = sch.get_loops(sch.get_block("fill"))
    a, b = sch.split(z, [None, 2])
    sch.bind(a, "blockIdx.x")
    sch.bind(b, "threadIdx.x")"""


@pytest.mark.parametrize("text", [SCATTER, ONE_ELEMENT, SPATIAL_AXES_MEET])
def test_a_scatter_beside_kernels(text: str) -> None:
    """A reduction that moves its element, in a program of which another block is bound."""
    from gpu_run import inputs_of, outputs_of, run, source

    func = parse(text)
    sch = executed(BOUND, func)
    assert any(x.kind == "thread" for x in loops_of(sch.func))
    assert "__global__" in source(sch.func, _cuda())
    arrays = arguments(func)
    given = {id(b): a for b, a in zip(func.params, arrays, strict=True)}
    wanted = dict(zip(map(id, func.params), interpreted(func, arrays), strict=True))
    found = run(sch.func, [given[id(b)] for b in inputs_of(func)])
    for a, b in zip(found, outputs_of(func), strict=True):
        assert np.array_equal(a, wanted[id(b)])


def _cuda() -> Any:
    from gpu_run import cuda

    return cuda()


WRONG = {
    "two points, one element": """
@T.prim_func
def main(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
    for z in T.serial(12):
        with T.block("fill"):
            w = T.axis.spatial(12, z)
            B[w] = T.float32(1)
    for i in T.serial(10):
        with T.block("o"):
            v = T.axis.spatial(10, i)
            B[v // 2] = A[v]
""",
    "an init of one element of many": """
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((4,), "int32")):
    for i in T.serial(8):
        with T.block("s"):
            k = T.axis.reduce(8, i)
            with T.init():
                B[k % 4] = T.int32(2147483647)
            B[k % 4] = T.min(B[k % 4], A[k])
""",
    "one of a pair at one element": """
@T.prim_func
def main(A: T.Buffer((12, 3)), P: T.Buffer((12,), "int64"), V: T.Buffer((12,), "float32")):
    for i, k in T.grid(12, 3):
        with T.block("a"):
            v = T.axis.spatial(12, i)
            c = T.axis.reduce(3, k)
            with T.init():
                P[(v + v) % 12] = T.int64(9223372036854775807)
                V[v] = T.float32("-inf")
            old_at = P[(v + v) % 12]
            old = V[v]
            new_at = c
            new = A[v, c]
            first = old > new or old == new and old_at < new_at
            P[(v + v) % 12] = T.select(first, old_at, new_at)
            V[v] = T.select(first, old, new)
""",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_is_refused(name: str) -> None:
    with pytest.raises(VerifyError):
        parse(WRONG[name])


def test_what_indexes_a_write_is_still_read_when_padding_becomes_a_stage() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3,), "int64"), I: T.Buffer((4,), "int32"), B: T.Buffer((6,), "int64")):
    for z in T.serial(6):
        with T.block("fill"):
            w = T.axis.spatial(6, z)
            B[w] = T.int64(1)
    for i in T.serial(4):
        with T.block("s"):
            v = T.axis.reduce(4, i)
            B[T.max(T.min(T.cast(I[v], "int64"), 5), 0)] = (
                B[T.max(T.min(T.cast(I[v], "int64"), 5), 0)]
                + T.if_then_else(v + 1 < 3, A[v + 1], T.int64(0))
            )
""")
    sch = Schedule(func)
    sch.pad_read("s", "A")
    assert parse(sch.func.script()).same(sch.func)
    a, i, b = np.array([5, 7, 9]), np.array([4, 4, 0, -1], "int32"), np.zeros(6, "int64")
    interp.run(sch.func, [a, i, b])
    assert b.tolist() == [1, 1, 1, 1, 17, 1]


@pytest.mark.parametrize("condition", ["1 <= v", "1 <= v and (v + 6) // 7 >= 1"])
def test_padding_keeps_what_else_its_condition_is_for(condition: str) -> None:
    """Where it does not hold, no index may be left outside in the block that reads the copy."""
    sch = Schedule(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((1, 7), "int32"), B: T.Buffer((8,), "int32")):
    for i in T.serial(8):
        with T.block("r"):
            v = T.axis.spatial(8, i)
            B[v] = T.if_then_else({condition}, A[(v + 6) // 7 - 1, v - 1], T.int32(0))
""")
    )
    if condition == "1 <= v":
        with pytest.raises(ScheduleError, match="index 0 of A reaches -1 to 0, kept inside by a"):
            sch.pad_read("r", "A")
    else:
        sch.pad_read("r", "A")
        assert parse(sch.func.script()).same(sch.func)

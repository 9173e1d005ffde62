"""tensorize: what intrinsics compute, what is refused, what is asked of the target."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import schedule_fuzz
from schedule_programs import matmul, matmul_add
from tensor_programs import dot_matmul, tile

from autosched.codegen.build import build_artifact
from autosched.codegen.intrinsics import BF16, VNNI
from autosched.errors import CodegenError, NotBatchable, ScheduleError
from autosched.lowering.lower import lower
from autosched.schedule import Decision, Schedule
from autosched.script import parse_func
from autosched.target import Target
from autosched.tir.intrin import TensorIntrin

MEANING = """
@T.prim_func
def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in T.serial(4):
        with T.block("twice"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] + A[vi]
"""
CODE = """define <4 x float> @twice(<4 x float> %A) {
  %b = fadd <4 x float> %A, %A
  ret <4 x float> %b
}"""


def ordered(s: Schedule) -> tuple[object, object]:
    """The loops (16, 4) of the product, B not packed."""
    c = s.get_block("C")
    _, j, k = s.get_loops(c)
    j0, j1 = s.split(j, [None, 16])
    k0, k1 = s.split(k, [None, 4])
    s.reorder(j0, k0, j1, k1)
    return j1, k1


def tensorized(s: Schedule) -> None:
    tile(s, VNNI)


REFUSED: dict[str, tuple[Callable[[Schedule], object], str]] = {
    "name": (
        lambda s: s.tensorize(s.get_block("C"), "dot"),
        "no tensor intrinsic 'dot'; known: dot_16x16x32_bf16bf16f32_amx, dot_16x16x64_s8s8s32_amx",
    ),
    "extents": (
        lambda s: s.tensorize(s.get_block("C"), VNNI),
        "expected loops of extents [16, 4], found [64, 32]; split and reorder first",
    ),
    "layout": (
        lambda s: s.tensorize(ordered(s)[0], VNNI),
        "the elements of B do not lie in memory as those of B: expected a dense (16, 4) of int8",
    ),
    "loop too far in": (
        lambda s: s.tensorize(ordered(s)[1], VNNI),
        "is a nest of 2 loops; found 1 from k_1 inwards",
    ),
    "dtypes": (
        lambda s: [tile(s, VNNI), s.tensorize(s.get_block("C"), BF16)],
        "loop j_2 is annotated already",
    ),
    "kinds": (
        lambda s: [s.unroll(ordered(s)[1]), s.tensorize(s.get_block("C"), VNNI)],
        "loop k_1 is not a plain serial loop with one child",
    ),
    "reorder after": (
        lambda s: [tile(s, VNNI), s.reorder(*reversed(s.get_loops(s.get_block("C"))[-2:]))],
        "expected loops of extents [16, 4], found [4, 16]",
    ),
    "kind after": (
        lambda s: [tile(s, VNNI), s.vectorize(s.get_loops(s.get_block("C"))[-1])],
        "loop k_1 is done by an intrinsic",
    ),
    "split after": (
        lambda s: [tile(s, VNNI), s.split(s.get_loops(s.get_block("C"))[-1], [None, 2])],
        "split takes serial loops without annotations",
    ),
    "layout after": (
        lambda s: [tile(s, VNNI), s.transform_layout(s.get_block("C"), "B_packed", [0, 1, 3, 2])],
        "the elements of B_packed do not lie in memory",
    ),
    "align after": (
        lambda s: [tile(s, VNNI), s.storage_align(s.get_block("B_packed"), 0, -2, 8, 1)],
        "the elements of B_packed do not lie in memory",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name: str) -> None:
    apply, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        apply(Schedule(dot_matmul(VNNI, 12, 64, 32)))


def test_a_tail_is_refused() -> None:
    """The last panel would be half real."""
    with pytest.raises(ScheduleError, match="a predicate of the block depends on the loops"):
        tile(Schedule(dot_matmul(VNNI, 12, 40, 32)), VNNI)


def test_another_computation() -> None:
    schedule = Schedule(matmul_add(2, 2, 4, "int64"))
    with pytest.raises(ScheduleError, match="loop j runs over spatial axes; expected reduce"):
        schedule.tensorize(schedule.get_block("out"), schedule_fuzz.INTRIN)


def test_operands_in_the_other_order() -> None:
    """B * A is A * B, and the loops may be those of a sum over other extents."""
    text = dot_matmul(VNNI, 4, 16, 4).script()
    a, b = 'T.cast(A[vi, vk], "int32")', 'T.cast(B[vk, vj], "int32")'
    assert f"{a} * {b}" in text
    schedule = Schedule(parse_func(text.replace(f"{a} * {b}", f"{b} * {a}")))
    c = schedule.get_block("C")
    schedule.cache_read(c, "B", "global", [1, 0])
    schedule.tensorize(c, VNNI)
    assert "tensorize" in schedule.func.script()


def test_populations() -> None:
    """Rows may differ by candidate; what the intrinsic works on may not."""
    func = dot_matmul(VNNI, 12, 64, 32)
    schedule = Schedule(func, {"rows": np.array([2, 4, 6])})
    tile(schedule, VNNI, rows=Decision("rows"))  # type: ignore[arg-type]
    trace = Schedule(func, {"rows": 2, "lanes": 16})
    j = trace.get_loops(trace.get_block("C"))[1]
    j1 = trace.split(j, [None, Decision("lanes")])[1]
    k0, k1 = trace.split(trace.get_loops(trace.get_block("C"))[-1], [None, 4])
    trace.reorder(k0, j1, k1)
    trace.cache_read(trace.get_block("C"), 1, "local", [[1, 16], [0, 4], [1, 1, 16], [0, 1, 4]])
    trace.tensorize(j1, VNNI)
    with pytest.raises(NotBatchable, match="expected loops of extents"):
        trace.trace.apply(func, {"rows": np.array([2, 3]), "lanes": np.array([16, 8])})


def test_a_target_without_the_instruction() -> None:
    schedule = Schedule(dot_matmul(VNNI, 12, 64, 32))
    tensorized(schedule)
    with pytest.raises(CodegenError, match=r"dot_16x4_u8s8s32_vnni, which needs avx512vnni; x86-6"):
        build_artifact(schedule.func, Target("llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu"))


def test_a_mark_that_lies() -> None:
    """Script may mark any loop; the code generator looks for itself."""
    text = lower(Schedule(matmul(4, 4, 4)).func).script()
    note = f"T.serial(4, annotations={{'tensorize': '{VNNI}'}})"
    marked = text.replace(
        "for i, j, k in T.grid(4, 4, 4):", f"for i, j in T.grid(4, 4):\n  for k in {note}:"
    )
    lines = marked.splitlines()
    start = next(n for n, line in enumerate(lines) if "annotations" in line)
    lines[start] = "        " + lines[start].strip()
    lines[start + 1 :] = ["    " + line for line in lines[start + 1 :]]
    func = parse_func("\n".join(lines) + "\n")
    with pytest.raises(CodegenError, match=r"loop k is marked as an intrinsic: .* expected loops"):
        build_artifact(func, Target("llvm"))


BAD: dict[str, tuple[str, str, str]] = {
    "taken": (VNNI, MEANING, "is registered already"),
    "two blocks": (
        "x",
        MEANING + MEANING.partition("):\n")[2],
        "one nest of loops around one block",
    ),
    "axis": ("x", MEANING.replace("+ A[vi]", "+ T.cast(vi, 'float32')"), "not with axes"),
    "extent": ("x", MEANING.replace("4", "1"), "of extent 2 or more"),
    "kind": ("x", MEANING.replace("T.serial", "T.unroll"), "are serial"),
}


@pytest.mark.parametrize("name", BAD)
def test_registration_of_a_meaning(name: str) -> None:
    key, meaning, message = BAD[name]
    TensorIntrin.get(VNNI)
    with pytest.raises(ScheduleError, match=message):
        TensorIntrin.register(key, meaning, CODE)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (CODE.replace("%A)", "%A, <4 x float> %B)"), "takes %A, %B; its meaning needs %A"),
        (CODE.replace("%b = ", "br label %x\n %b = "), "no straight-line function: br label"),
        ("declare void @f()", "one function that returns a value"),
    ],
)
def test_registration_of_an_implementation(code: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        TensorIntrin.register("x", MEANING, code)

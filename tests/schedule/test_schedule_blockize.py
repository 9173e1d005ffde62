"""blockize: nests that are units, what takes them, what would take them apart."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from schedule_programs import add_one, matmul, matmul_add
from tensor_programs import dot_matmul

from autosched.codegen.intrinsics import VNNI
from autosched.errors import ScheduleError, VerifyError
from autosched.schedule import BlockRV, LoopRV, Schedule
from autosched.script import parse, parse_func


def dot_unit(s: Schedule) -> tuple[BlockRV, dict[str, LoopRV]]:
    """The nest (16, 4) of a product as a unit."""
    c = s.get_block("C")
    i, j, k = s.get_loops(c)
    i0, i1 = s.split(i, [None, 4])
    j0, j1 = s.split(j, [None, 16])
    k0, k1 = s.split(k, [None, 4])
    s.reorder(j0, i0, k0, i1, j1, k1)
    s.cache_read(c, "B", "global", [[1, 16], [0, 4], [1, 1, 16], [0, 1, 4]])
    loops = {"j0": j0, "i0": i0, "k0": k0, "i1": i1, "j1": j1, "k1": k1}
    return s.blockize(j1), loops


def test_a_unit_stands_for_its_nest() -> None:
    s = Schedule(dot_matmul(VNNI, 12, 32, 8))
    unit, loops = dot_unit(s)
    around = [s.get(x).var for x in s.get_loops(unit)]
    assert around == [s.get(loops[x]).var for x in ("j0", "i0", "k0", "i1")]
    assert [s.get(b).name for b in s.get_child_blocks(unit)] == ["C"]
    unit_loop: object = s.get(unit)
    assert unit_loop is s.get(loops["j1"])
    assert s.get("C_o") is s.get(unit)
    s.annotate("C_o", "pragma", 1)
    assert dict(s.get(loops["j1"]).annotations) == {"blockize": "C_o", "pragma": 1}


def test_tensorize_takes_a_unit_by_handle_and_out_of_text() -> None:
    s = Schedule(dot_matmul(VNNI, 12, 32, 8))
    unit, loops = dot_unit(s)
    text = s.func.script()
    assert parse(text).script() == text
    again = Schedule(parse_func(text))
    again.tensorize("C_o", VNNI)
    s.tensorize(unit, VNNI)
    assert again.func.same(s.func)
    marked = [s.get(loops[x]).annotation("tensorize") for x in ("j1", "k1")]
    assert marked == [VNNI, VNNI]


def test_a_block_is_meant_where_primitives_take_one() -> None:
    s = Schedule(matmul(8, 8, 8))
    i, j, k = s.get_loops("C")
    k0, k1 = s.split(k, [None, 4])
    s.reorder(i, k0, j, k1)
    unit = s.blockize(j)
    s.decompose_reduction(unit, k0)
    s.cache_read(unit, "A")
    assert [s.get(b).name for b in s.get_blocks()] == ["A_local", "C_init", "C"]


def test_copies_keep_units() -> None:
    s = Schedule(matmul(8, 8, 8))
    unit = s.blockize(s.get_loops("C")[1])
    other = s.copy()
    i, j, _ = other.get_loops("C")
    with pytest.raises(ScheduleError, match="across its boundary"):
        other.reorder(j, i)
    assert [other.get(x).var.name for x in other.get_loops(unit)] == ["i"]


def ragged(s: Schedule) -> None:
    _, i1 = s.split(s.get_loops("B")[0], [None, 4])
    s.blockize(i1)


def mixed(s: Schedule) -> None:
    i, j = s.get_loops("out")
    _, i1 = s.split(s.fuse(i, j), [None, 4])
    s.blockize(i1)


def moved(s: Schedule) -> None:
    i, j, k = s.get_loops("C")
    s.blockize(j)
    s.reorder(k, i)


def taken_apart(s: Schedule) -> None:
    s.blockize(s.get_loops("B")[0])
    s.compute_at("B", s.get_loops("C")[0])


def twice(s: Schedule) -> None:
    loop = s.get_loops("B")[0]
    s.blockize(loop)
    s.blockize(loop)


def two_blocks(s: Schedule) -> None:
    loop = s.get_loops("C")[0]
    s.compute_at("B", loop)
    s.blockize(loop)


def by_annotation(s: Schedule) -> None:
    s.annotate(s.get_loops("B")[0], "blockize", "mine")


def fused(s: Schedule) -> None:
    i, j, _ = s.get_loops("C")
    s.blockize(j)
    s.fuse(i, j)


REFUSED: dict[str, tuple[Callable[[], object], Callable[[Schedule], object], str]] = {
    "tail": (
        lambda: add_one(18),
        ragged,
        "(i_1): a predicate of B is on loops inside and around, i_0, i_1",
    ),
    "digits": (lambda: matmul_add(5, 7, 3), mixed, "takes digits of loops inside and around"),
    "moved": (matmul, moved, "'C_o' is a blockized nest; this would move loop k, i across its"),
    "apart": (add_one, taken_apart, "'B_o' is a blockized nest; this would take its nest apart"),
    "twice": (add_one, twice, "blockize(i): the loop is annotated blockize already"),
    "two blocks": (add_one, two_blocks, "a unit holds one block; below the loop stand B, C"),
    "annotate": (add_one, by_annotation, "annotate: blockize names a nest, after a check of it"),
    "fused": (matmul, fused, "fuse takes serial loops without annotations; j is annotated"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, apply, message = REFUSED[name]
    s = Schedule(make())  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        apply(s)


def test_the_boundary_goes_with_the_annotation() -> None:
    s = Schedule(add_one())
    s.blockize(s.get_loops("B")[0])
    s.unannotate("B_o", "blockize")
    s.compute_at("B", s.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="no block named 'B_o'"):
        s.get_block("B_o")


def test_texts_with_units_of_one_name_or_none() -> None:
    s = Schedule(add_one(16))
    s.blockize(s.get_loops("B")[0])
    text = s.func.script()
    twice = text.replace(
        "for i_1 in T.serial(16)", "for i_1 in T.serial(16, annotations={'blockize': 'B_o'})"
    )
    with pytest.raises(ScheduleError, match="two nests are units of the name 'B_o'"):
        Schedule(parse_func(twice))
    with pytest.raises(VerifyError, match="blockize is the name of a nest; found 3"):
        parse(text.replace("'B_o'", "3"))

"""The root block, the random choices, and what else schedules have beside primitives."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from schedule_programs import matmul, matmul_add

from autosched import ir, te
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse, parse_module
from autosched.tir.nodes import PrimFunc


def test_the_root_block_is_the_function() -> None:
    sch = Schedule(matmul_add())
    root = sch.get_block("root")
    names = [sch.get(b).name for b in sch.get_child_blocks(root)]
    assert names == [sch.get(b).name for b in sch.get_blocks()]
    assert sch.get_loops(root) == ()
    sch.annotate(root, "meta_schedule.parallel", 64)
    sch.annotate("root", "note", "kept")
    assert sch.func.attr("meta_schedule.parallel") == 64
    sch.unannotate(root, "note")
    assert sch.func.attr("note") is None
    assert parse(sch.func.script()).same(sch.func)  # type: ignore[arg-type]
    assert sch.trace.apply(matmul_add()).func.same(sch.func)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda s, r: s.cache_write(r, 0, "local"), "which no primitive moves; expected a block"),
        (lambda s, r: s.get(r), "the root block is the whole function"),
        (lambda s, r: s.compute_inline("root"), "the root block is the whole function"),
        (lambda s, r: s.annotate(r, "layout_free", ("A",)), "means nothing on the root block"),
        (lambda s, r: s.annotate(r, "FLOP", 3), "means nothing on the root block"),
        (lambda s, r: s.annotate(r, "x", object()), "a step holds"),
        (lambda s, r: s.unannotate(r, "x"), "the root block has no annotation 'x'"),
    ],
)
def test_no_primitive_takes_the_root_block(act: Any, words: str) -> None:
    sch = Schedule(matmul())
    root = sch.get_block("root")
    before, steps = sch.func, len(sch.trace)
    with pytest.raises(ScheduleError, match=words):
        act(sch, root)
    assert sch.func is before
    assert len(sch.trace) == steps


def test_a_block_called_root_is_that_block() -> None:
    a = te.placeholder((4,), name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((4,), lambda i: a[i], name="root")]))
    assert len(sch.get_loops("root")) == 1
    assert sch.get(sch.get_block("root")).name == "root"


def test_the_root_block_of_a_function_with_an_opaque_one() -> None:
    func = parse("""
@T.prim_func
def main(x: T.Buffer((4,)), y: T.Buffer((4,))):
    with T.opaque("copy"):
        T.reads(x)
        T.writes(y)
        for i in range(4):
            y[i] = x[i]
""")
    assert isinstance(func, PrimFunc)
    sch = Schedule(func)
    assert [sch.get(b).name for b in sch.get_child_blocks("root")] == ["copy"]
    sch.annotate("root", "note", 1)
    assert sch.func.attr("note") == 1


def test_seeds_repeat_choices() -> None:
    def drawn(sch: Schedule) -> list[object]:
        loop = sch.get_loops("C")[0]
        sch.sample_perfect_tile(loop, 2)
        return [*sch.decisions.values(), sch.fork_seed()]

    first = drawn(Schedule(matmul(), seed=5))
    sch = Schedule(matmul())
    sch.seed(5)
    assert drawn(sch) == first
    with pytest.raises(ScheduleError, match="the seed is -1"):
        sch.seed(-1)


def test_work_on_names_the_function() -> None:
    sch = Schedule(matmul())
    sch.work_on("main")
    sch.work_on(sch.func.name)
    sch.enter_postproc()
    assert len(sch.trace) == 0
    with pytest.raises(ScheduleError, match=r"Schedule\(mod\[name\]\)"):
        sch.work_on("other")


def test_stage_schedules_are_normal() -> None:
    a = te.placeholder((4,), name="A")
    s = te.create_schedule(te.compute((4,), lambda i: a[i] + 1.0).op)
    assert s.normalize() is s


TWO = """
@T.ir_module
class Module:
    @T.prim_func
    def f(x: T.Buffer((4,)), y: T.Buffer((4,))):
        for {i} in T.serial(4):
            with T.block("y"):
                v = T.axis.spatial(4, {i})
                y[v] = x[v] + {n}
    @T.routine
    def g(x: T.Buffer((4,))):
        for {i} in range(4):
            x[{i}] = {n}
"""


def test_structural_equality() -> None:
    a, b = (parse_module(TWO.format(i=i, n="1.0")) for i in "ij")
    c = parse_module(TWO.format(i="i", n="2.0"))
    for x, y in ((a, b), (a["f"], b["f"]), (a["g"], b["g"])):
        assert ir.structural_equal(x, y)
        ir.assert_structural_equal(x, y)
        assert ir.structural_hash(x) == ir.structural_hash(y)
    for x, y in ((a, c), (a["f"], c["f"]), (a["g"], c["g"])):
        assert not ir.structural_equal(x, y)
        assert ir.structural_hash(x) != ir.structural_hash(y)
        with pytest.raises(ScheduleError, match="not structurally equal: "):
            ir.assert_structural_equal(x, y)
    assert not ir.structural_equal(a, a["f"])
    assert not ir.structural_equal(a, parse_module(matmul().script()))
    with pytest.raises(ScheduleError, match="expected a PrimFunc"):
        ir.structural_hash(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("terminal", [False, True])
def test_shown_text_is_coloured_on_a_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    func = matmul()
    sch = Schedule(func)
    sch.get_blocks()
    for thing, text in (
        (func, func.script()),
        (sch, func.script()),
        (sch.mod, sch.mod.script()),
        (sch.trace, str(sch.trace)),
        (parse_module(TWO.format(i="i", n=1.0))["g"], None),
    ):
        thing.show()
        out = capsys.readouterr().out
        if text is not None:
            assert (out == text) is not terminal
        assert ("\x1b[" in out) is terminal
    monkeypatch.setenv("NO_COLOR", "1")
    func.show()
    assert capsys.readouterr().out == func.script()

"""Traces: JSON, decisions, replay, printed text."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from schedule_programs import MATMUL_DECISIONS, add_one, matmul_add, tile_matmul

from autosched.errors import ScheduleError
from autosched.schedule import Decision, Ref, Schedule, Step, Trace
from autosched.tir.module import IRModule

VALUES = dict(zip(MATMUL_DECISIONS, (1, 2, 3, 2, 1, 4, 5), strict=True))


def sketch() -> Schedule:
    schedule = Schedule(matmul_add(11, 13, 7), VALUES)
    tile_matmul(schedule)
    return schedule


def executed(text: str, schedule: Schedule) -> Schedule:
    names: dict[str, object] = {}
    exec(text, names)
    names["apply"](schedule)  # type: ignore[operator]
    return schedule


def test_json_round_trip() -> None:
    trace = sketch().trace
    text = trace.to_json()
    assert "\n" not in text
    assert json.loads(text)["dialect"] == 1
    assert Trace.from_json(text) == trace
    assert Trace.from_json(trace.bind(VALUES).to_json()) == trace.bind(VALUES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a trace in JSON"),
        ("[]", "not a trace in JSON"),
        ('{"dialect":1}', "not a trace in JSON"),
        ('{"dialect":99,"steps":[]}', "has dialect 99; this version reads 1"),
        ('{"dialect":1,"steps":[["split",[{"x":1}],{},[]]]}', "handles, decisions and plain"),
    ],
)
def test_json_that_is_no_trace(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Trace.from_json(text)


def test_a_trace_calls_primitives_only() -> None:
    for op in ("replay", "_record", "__init__", "nothing"):
        with pytest.raises(ScheduleError, match=f"no primitive '{op}'"):
            Trace((Step(op),)).apply(add_one())


def test_decisions() -> None:
    trace = sketch().trace
    assert trace.decisions() == ("i1", "i2", "i3", "j1", "j2", "j3", "k1")
    some = trace.bind({"i1": 1, "k1": 5})
    assert some.decisions() == ("i2", "i3", "j1", "j2", "j3")
    with pytest.raises(ScheduleError, match="without a value: i2, i3, j1, j2, j3; pass them"):
        some.apply(matmul_add(11, 13, 7))


def test_replay_gives_the_program() -> None:
    schedule = sketch()
    func = matmul_add(11, 13, 7)
    assert schedule.trace.apply(func, VALUES).func.script() == schedule.func.script()
    assert schedule.trace.bind(VALUES).apply(func).func.script() == schedule.func.script()
    again = schedule.trace.apply(Schedule(func), VALUES)
    assert again.trace == schedule.trace


def test_replay_on_a_schedule_in_progress() -> None:
    """Handles are renamed where numbers are taken; the given schedule stays as it is."""
    (first,) = [x for x in [Schedule(add_one())] if x.get_blocks()]
    steps = Trace(
        (
            Step("get_block", ("B",), (), ("b0",)),
            Step("get_loops", (Ref("b0"),), (), ("l1",)),
            Step("split", (Ref("l1"),), (("factors", (None, 4)),), ("l2", "l3")),
        )
    )
    second = steps.apply(first)
    assert len(first.trace) == 1
    assert second.trace.steps[-1].outs == ("l4", "l5")


def test_replay_names_the_step() -> None:
    trace = Trace((Step("get_block", ("B",), (), ("b0",)), Step("get_block", ("D",), (), ("b1",))))
    with pytest.raises(ScheduleError, match=re.escape('step 2, b1 = sch.get_block("D"): no block')):
        trace.apply(add_one())
    with pytest.raises(ScheduleError, match="b9 is not the result of an earlier step"):
        Trace((Step("get_loops", (Ref("b9"),), (), ("l0",)),)).apply(add_one())
    with pytest.raises(ScheduleError, match="step 1"):
        Trace((Step("get_block", (), (), ("b0",)),)).apply(add_one())


def test_printed_text_rebuilds_the_program() -> None:
    schedule = sketch()
    bound = schedule.trace.bind(VALUES).as_python()
    assert "l6, l7, l8, l9" not in bound.splitlines()[0]
    fresh = executed(bound, Schedule(matmul_add(11, 13, 7)))
    assert fresh.func.script() == schedule.func.script()
    assert fresh.trace == schedule.trace.bind(VALUES)
    symbolic = schedule.trace.as_python()
    assert 'factors=[None, Decision("i1"), Decision("i2"), Decision("i3")]' in symbolic
    free = executed(symbolic, Schedule(matmul_add(11, 13, 7), VALUES))
    assert free.trace == schedule.trace


def test_printed_text_of_nothing() -> None:
    assert Trace().as_python("go") == "def go(sch):\n    pass\n"


def test_one_result_of_a_tuple_is_unpacked() -> None:
    schedule = Schedule(add_one())
    schedule.get_loops(schedule.get_block("B"))
    assert "(l1,) = sch.get_loops(b0)" in schedule.trace.as_python()


def test_copies_are_independent() -> None:
    schedule = Schedule(add_one())
    block = schedule.get_block("B")
    other = schedule.copy()
    (loop,) = other.get_loops(block)
    other.split(loop, [None, 4])
    assert len(schedule.trace) == 1
    assert schedule.func.script() == add_one().script()
    assert other.get(block).name == "B"


def test_steps_are_frozen_and_arrays_stay_out_of_json() -> None:
    schedule = Schedule(add_one())
    (loop,) = schedule.get_loops(schedule.get_block("B"))
    schedule.split(loop, [None, np.array([2, 4])])
    with pytest.raises(FrozenInstanceError):
        schedule.trace.steps[0].op = "x"  # type: ignore[misc]
    with pytest.raises(ScheduleError, match="a step holds an array"):
        schedule.trace.to_json()


def test_modules() -> None:
    func = add_one()
    module = IRModule({"main": func, "other": matmul_add()})
    schedule = Schedule(module)
    schedule.split(schedule.get_loops(schedule.get_block("B"))[0], [None, 4])
    assert schedule.mod["main"] is schedule.func
    assert schedule.mod["other"] is module["other"]
    assert module.main is func
    assert module.script().count("@T.prim_func") == 2
    with pytest.raises(ScheduleError, match="no function named 'x' in the module; it has main"):
        module["x"]
    with pytest.raises(ScheduleError, match="found int"):
        Schedule(3)  # type: ignore[arg-type]


def test_queries() -> None:
    schedule = Schedule(matmul_add())
    matmul, out = schedule.get_blocks()
    assert schedule.get_consumers(matmul) != (out,)  # handles are new each time
    (consumer,) = schedule.get_consumers(matmul)
    (producer,) = schedule.get_producers(out)
    assert (schedule.get(consumer).name, schedule.get(producer).name) == ("out", "matmul")
    i, _, k = schedule.get_loops(matmul)
    assert schedule.get(k).extent == 16
    assert [schedule.get(b).name for b in schedule.get_child_blocks(i)] == ["matmul"]
    assert schedule.get_producers(matmul) == ()


def test_decisions_of_the_wrong_kind() -> None:
    for value in (1.5, np.ones((2, 2), np.int64), "4"):
        schedule = Schedule(add_one(), {"x": value})  # type: ignore[dict-item]
        (loop,) = schedule.get_loops(schedule.get_block("B"))
        with pytest.raises(ScheduleError, match="expected an int or an int64 array"):
            schedule.split(loop, [None, Decision("x")])

"""Every door asks the verifier, and nothing is verified twice."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from verify_programs import Copy, of

import autosched as at
from autosched import te
from autosched.errors import TensorExprError, VerifyError
from autosched.passes import Sequential, simplify
from autosched.script import parse_func
from autosched.tir import admit
from autosched.tir.module import IRModule
from autosched.tir.nodes import Access, PrimFunc
from autosched.tir.verify import verify
from measure.local.build import build


def beyond() -> PrimFunc:
    """`B[i] = A[i + 1]`, made of nodes."""
    p = Copy()
    return p.with_block(reads=(Access(p.A, (of(p.vi, 1, 1),)),))


def unverified() -> PrimFunc:
    return parse_func(beyond().script(), check=False)


DOORS: dict[str, Callable[[PrimFunc], Any]] = {
    "Schedule": at.Schedule,
    "Schedule of a module": lambda f: at.Schedule(IRModule.of(f)),
    "build": lambda f: at.build(f, compile_only=True),
    "build of a module": lambda f: at.build(IRModule.of(f), compile_only=True),
    "build of functions": lambda f: at.build(IRModule({"f": f, "g": f}), compile_only=True),
    "build under another name": lambda f: at.build(f, name="g", compile_only=True),
    "lower": at.lower,
    "lower functions": lambda f: at.lower(IRModule({"f": f, "g": f})),
    "SearchTask": lambda f: at.SearchTask(prim_func=f),
    "trace": lambda f: at.Schedule(Copy().func()).trace.apply(f),
    "builder": lambda f: build(f, None, at.Target("llvm")),
    "after a pass": lambda f: at.build(simplify(IRModule.of(f)), compile_only=True),
    "after passes": lambda f: at.Schedule(Sequential([simplify])(IRModule.of(f))),
    "script": lambda f: parse_func(f.script()),
    "after pickling": lambda f: at.Schedule(pickle.loads(pickle.dumps(f))),
}


@pytest.mark.parametrize("make", [beyond, unverified])
@pytest.mark.parametrize("door", DOORS)
def test_no_door_lets_a_wrong_program_in(door: str, make: Callable[[], PrimFunc]) -> None:
    with pytest.raises(VerifyError, match=r"bounds: block 'copy' reads A\[\w+ \+ 1\]"):
        DOORS[door](make())


def gathered() -> list[te.Tensor]:
    a, b = te.placeholder((9,), name="A"), te.placeholder((9,), name="B", dtype="int64")
    return [a, b, te.compute((9,), lambda i: a[b[i]], name="C")]


TENSOR_DOORS: dict[str, Callable[[], Any]] = {
    "create_prim_func": lambda: te.create_prim_func(gathered()),
    "build": lambda: at.build(te.create_schedule((t := gathered())[-1].op), t),
    "lower": lambda: at.lower(te.create_schedule((t := gathered())[-1].op), t),
    "SearchTask": lambda: at.SearchTask(func=gathered),
}


@pytest.mark.parametrize("door", TENSOR_DOORS)
def test_no_door_for_tensors_lets_a_wrong_program_in(door: str) -> None:
    with pytest.raises(TensorExprError, match="is not provably in"):
        TENSOR_DOORS[door]()


def test_a_change_by_hand_is_verified_again() -> None:
    p = Copy()
    good = at.Schedule(p.func()).func
    assert good.admitted
    wrong = replace(good, body=beyond().body)
    assert not wrong.admitted
    with pytest.raises(VerifyError):
        at.Schedule(wrong)


def test_nothing_is_verified_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(func: PrimFunc) -> Any:
        asked.append(func.name)
        return real(func)

    real = admit.faults
    monkeypatch.setattr(admit, "faults", counted)
    a = te.placeholder((64,), name="A")
    n = te.var("n")
    b = te.placeholder((n,), name="B")
    func = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="C")])
    assert asked == ["main"]
    at.SearchTask(prim_func=func)
    schedule = at.Schedule(func)
    schedule.split(schedule.get_loops(schedule.get_block("C"))[0], [None, 8])
    for program in (schedule, schedule.func, schedule.mod, schedule.copy()):
        at.build(program, compile_only=True)
    at.build(at.lower(schedule), compile_only=True)
    at.build(schedule.func, name="other", compile_only=True)
    schedule.trace.apply(func)
    at.Schedule(pickle.loads(pickle.dumps(schedule.func)))
    at.Schedule(copy.copy(schedule.func))
    IRModule({"f": func, "g": schedule.func})
    assert asked == ["main"]
    sized = te.create_prim_func([b, te.compute((n,), lambda i: b[i] + 1.0, name="C")])
    at.Schedule(sized.specialize(n=64))
    assert asked == ["main", "main"]


def test_what_schedules_make_is_right_and_admitted() -> None:
    schedule = at.Schedule(Copy().func())
    schedule.parallel(schedule.get_loops(schedule.get_block("copy"))[0])
    assert schedule.func.admitted
    verify(schedule.func)


def test_a_printed_program_needs_no_exception() -> None:
    """Whatever a tensor expression makes, `parse` takes, and so does the module of a record."""
    a, b = te.placeholder((9,), name="A"), te.placeholder((9,), name="B", dtype="int64")
    out = te.compute((9,), lambda i: a[te.wrap_index(b[i], 9)], name="C")
    func = te.create_prim_func([a, b, out])
    assert parse_func(func.script()).same(func)

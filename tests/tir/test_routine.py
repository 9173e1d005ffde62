"""Routines: printed, read, interpreted and compiled; what stops them; what refuses them."""

from __future__ import annotations

import copy
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched.errors import (
    ArgumentError,
    BuildError,
    ScheduleError,
    ScriptError,
    VerifyError,
)
from autosched.runtime.function import Function
from autosched.script import parse, parse_func, parse_module, prim_func, routine
from autosched.script import tir as T
from autosched.tir import routine as routines
from autosched.tir import run_routine as interpreter
from autosched.tir.extern import register
from autosched.tir.routine import Routine
from autosched.tir.run_routine import run_routine
from autosched.tir.verify_routine import unproved

COLLATZ = """
@T.routine
def collatz(start: T.Buffer((8,), "int64"), steps: T.Buffer((8,), "int64")):
    T.func_attr({"note": "no bound is known"})
    for i in T.serial(8):
        at = T.alloc_buffer((), "int64")
        at[()] = start[i]
        steps[i] = 0
        while at[()] > 1:
            if at[()] % 2 == 0:
                at[()] = at[()] // 2
            else:
                at[()] = at[()] * 3 + 1
            steps[i] += 1
"""
BY_INDEX = """
@T.routine
def main(at: T.Buffer((4,), "int64"), x: T.Buffer((8, 4), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        y[i] = x[at[i], i] if i > 0 else T.float32(0)
        if at[i] >= 0 and at[i] < 8 and x[at[i], 3] > 2.0:
            x[at[i], 3] = y[i]
"""


def read(text: str) -> Routine:
    func = parse(text)
    assert isinstance(func, Routine)
    return func


def collatz(n: int) -> int:
    count = 0
    while n > 1:
        n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
    return count


def both(func: Routine, *arrays: np.ndarray) -> list[np.ndarray]:
    """What the interpreter makes of arrays, once the compiled routine made the same."""
    ours, built = ([a.copy() for a in arrays] for _ in range(2))
    run_routine(func, ours)
    at.build(func, target="llvm")(*built)
    for a, b in zip(ours, built, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return ours


def test_a_while_loop_runs_until_its_condition_fails() -> None:
    func = read(COLLATZ)
    start = np.array([1, 2, 3, 7, 27, 97, 871, 6171])
    assert both(func, start, np.full(8, -1))[1].tolist() == [collatz(int(n)) for n in start]
    assert func.attr("note") == "no bound is known"
    assert func.attr("other") is None


def test_text_round_trips_whatever_things_are_called() -> None:
    for text in (COLLATZ, BY_INDEX):
        func = read(text)
        assert read(func.script()).same(func)
        renamed = read(text.replace("at[", "place[").replace("at =", "place =").replace(
            "(at:", "(place:"))  # fmt: skip
        assert renamed.same(func)
        assert str(func) == func.script()
    assert not read(COLLATZ).same(read(COLLATZ.replace("* 3", "* 5")))
    assert not read(COLLATZ).same(read(BY_INDEX))
    assert copy.deepcopy(read(COLLATZ)).same(read(COLLATZ))
    assert pickle.loads(pickle.dumps(read(COLLATZ))).same(read(COLLATZ))


def test_an_index_outside_stops_the_call_and_says_which() -> None:
    func = read(BY_INDEX)
    x, y = np.ones((8, 4), np.float32), np.zeros(4, np.float32)
    good = np.array([-5, 7, 0, 3])  # the first is not read: only the side taken is evaluated
    both(func, good, x, y)
    built = at.build(func, target="llvm")
    for wrong, index in (([0, 1, 8, 0], 8), ([0, -1, 0, 0], -1)):
        arrays = (np.array(wrong), x.copy(), y.copy())
        message = f"x.at.i., i. is out of bounds: index 0 is {index}, extent 8"
        with pytest.raises(VerifyError, match=message):
            run_routine(func, arrays)
        with pytest.raises(ArgumentError, match=f"main stopped: {message}"):
            built(*arrays)
        with pytest.raises(ArgumentError, match="stopped"):
            built.time_evaluator()(*arrays)
    built(good, x, y)  # a call that was stopped leaves nothing behind


def test_what_ranges_and_conditions_prove_is_not_tested() -> None:
    proved = """
@T.routine
def main(a: T.Buffer((8,), "float32"), k: T.Buffer((4,), "int64")):
    for i in range(2, 8):
        a[i - 2] = a[i]
        if i < 4:
            a[i * 2 + 1] = 0.0
        a[T.max(T.min(k[0], 7), 0)] = a[k[1] % 8]
        for j in range(i, 8):
            a[j] = T.if_then_else(j >= 4, a[j - 4], 0.0)
"""
    assert not unproved(read(proved))
    assert at.build(read(proved), target="llvm").artifact.info.messages == ()
    for change in (
        ("i < 4", "i < 5"),
        ("k[0], 7", "k[0], 8"),
        ("% 8", "% 9"),
        ("j >= 4", "j > 2"),
        ("[i - 2]", "[i - 3]"),
    ):
        assert len(unproved(read(proved.replace(*change)))) == 1, change


def test_a_while_loop_that_does_not_end_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
@T.routine
def main(a: T.Buffer((1,), "int64")):
    while a[0] < 100:
        a[0] = a[0] * 1 + {}
"""
    from autosched.codegen.llvm import routine as code

    for module in (routines, interpreter, code):
        monkeypatch.setattr(module, "MOST_ITERATIONS", 50)
    with pytest.raises(VerifyError, match="ran 50 iterations"):
        run_routine(read(text.format(0)), [np.array([1])])
    with pytest.raises(ArgumentError, match="ran 50 iterations"):
        at.build(read(text.format(0)), target="llvm")(np.array([1]))
    assert both(read(text.format(2)), np.array([0]))[0][0] == 100


def test_memory_begins_as_zeros_in_each_iteration() -> None:
    text = """
@T.routine
def main(y: T.Buffer((3, 4), "float32"), flags: T.Buffer((3,), "bool")):
    for i in range(3):
        t = T.alloc_buffer((4,), "float32")
        seen = T.alloc_buffer((2,), "bool")
        for j in T.serial(i, 4, step=2):
            t[j] = t[j] + 1.0
            y[i, j] = y[i, j] + t[j]
            seen[j % 2] = not seen[j % 2]
        flags[i] = seen[0] or seen[1]
"""
    y, flags = both(read(text), np.zeros((3, 4), np.float32), np.zeros(3, bool))
    assert y.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert flags.tolist() == [False, False, True]


def test_symbolic_sizes_are_told_by_the_shapes() -> None:
    text = """
@T.routine
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (2 * n,), "float32")
    for i in range(n):
        for j in range(4):
            B[2 * i + j % 2] = A[n - 1 - i, j] + B[2 * i + j % 2]
    B[n * 2 - 1] = 7.0
"""
    func = read(text)
    assert read(func.script()).same(func)
    for n in (1, 3, 5):
        a = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        expected = a[::-1].reshape(n, 2, 2).sum(1).reshape(-1)
        expected[-1] = 7
        np.testing.assert_array_equal(both(func, a, np.zeros(2 * n, np.float32))[1], expected)
    with pytest.raises(ArgumentError):
        at.build(func, target="llvm")(np.zeros((3, 4), np.float32), np.zeros(4, np.float32))
    with pytest.raises(ArgumentError, match=r"expected float32\[6\]"):
        run_routine(func, [np.zeros((3, 4), np.float32), np.zeros(4, np.float32)])


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float64", "float32"])
def test_dtypes(dtype: str) -> None:
    text = f"""
@T.routine
def main(a: T.Buffer((6,), "{dtype}"), b: T.Buffer((6,), "{dtype}"), c: T.Buffer((6,), "int32")):
    for i in range(6):
        x = a[i] * b[5 - i] - b[i]
        a[i] = T.max(x, T.cast(c[i], "{dtype}"))
        c[i] += T.cast(x, "int32")
"""
    rng = np.random.default_rng(3)
    a, b = ((rng.random(6) * 20).astype(dtype) for _ in range(2))
    c = rng.integers(0, 9, 6).astype(np.int32)
    expected, counts = a.copy(), c.copy()
    with np.errstate(all="ignore"):
        for i in range(6):
            x = expected[i] * b[5 - i] - b[i]
            expected[i] = max(x, c[i].astype(dtype))
            counts[i] += x.astype(np.int32)
    found = both(read(text), a, b, c)
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(found[2], counts)


REFUSED = (
    ("for i in range(4):\n        b = a[i]\n    a[0] = b", "'b' is not defined"),
    ("a[0] = 1", None),
    ('a[0] = T.cast(1, "int64")', "holds float32"),
    ("if a[0]:\n        pass", "expected a condition"),
    ("for i in range(a[0]):\n        pass", "expected int64"),
    ("for i in T.serial(0, 4, step=0):\n        pass", "from 1 up"),
    ("while a[0] > 0.0:\n        pass\n    else:\n        pass", "no `else`"),
    ("for i in range(4):\n        pass\n    else:\n        pass", "no `else`"),
    ("a[0, 0] = 1.0", "1 dimensions"),
    ("a = 2.0", "defined already"),
    ("with T.block('x'):\n        pass", "expected a loop"),
    ("for i in T.thread_binding(4, thread='threadIdx.x'):\n        pass", "expected T.serial"),
    ("n = T.int64()\n    t = T.alloc_buffer((n,), 'int32')", "a size that no parameter|symbolic"),
)


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_a_text_that_is_no_routine_says_why(body: str, message: str | None) -> None:
    text = f'@T.routine\ndef main(a: T.Buffer((4,), "float32")):\n    {body}\n'
    if message is None:
        parse(text)
        return
    with pytest.raises((ScriptError, VerifyError), match=message):
        parse(text)


def test_the_rules_hold_for_routines_made_by_hand() -> None:
    func = read(COLLATZ)
    loop = func.body[0]
    assert isinstance(loop, routines.Loop)
    for body in (loop.body, (loop.body[1],)):
        with pytest.raises(VerifyError, match="outside of its statements"):
            run_routine(routines.Routine("f", func.params, body), [])


def test_a_routine_is_built_and_nothing_schedules_it() -> None:
    func: Any = read(COLLATZ)
    with pytest.raises(ScheduleError):
        at.Schedule(func)
    with pytest.raises(at.AutoschedError):
        at.SearchTask(prim_func=func, target="llvm")
    with pytest.raises(ArgumentError, match="runs as it is written"):
        at.lower(func)
    with pytest.raises(BuildError, match="runs on CPUs"):
        at.build(func, target="cuda -arch=sm_90", compile_only=True)
    with pytest.raises(ScriptError, match="is a routine"):
        parse_func(COLLATZ)
    assert at.build(func, target="llvm", name="other").name == "other"


def test_modules_hold_both_kinds_of_functions() -> None:
    plain = """
@T.prim_func
def twice(a: T.Buffer((8,), "int64"), b: T.Buffer((8,), "int64")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            b[v] = a[v] * 2
"""
    module = parse_module(COLLATZ + plain)
    assert list(module) == ["twice", "collatz"]
    assert parse_module(module.script()).same(module)
    assert pickle.loads(pickle.dumps(module)).same(module)
    assert isinstance(module["collatz"], Routine)
    built = at.build(module, target="llvm")
    start, steps = np.arange(1, 9), np.zeros(8, np.int64)
    built["collatz"](start, steps)  # type: ignore[index]
    assert steps.tolist() == [collatz(n) for n in range(1, 9)]
    assert at.lower(module)["collatz"].same(module["collatz"])
    alone = at.IRModule.of(module["collatz"])
    with pytest.raises(ScheduleError, match="run as they are written"):
        _ = alone.main
    assert at.build(alone, target="llvm").name == "collatz"
    moved = module.with_function("other", module["collatz"])
    assert moved["other"].name == "other"
    with pytest.raises(ScheduleError, match="expected a routine"):
        at.IRModule({}, routines={"x": 1})  # type: ignore[dict-item]


@routine
def written(a: T.Buffer((4,), "float32")) -> None:
    for i in range(4):
        if a[i] > 1.0:
            a[i] = a[3 - i]


def test_the_decorator_reads_a_function_of_a_file() -> None:
    assert isinstance(written, Routine)
    assert both(written, np.array([1, 2, 3, 4], np.float32))[0].tolist() == [1, 3, 3, 1]
    assert routine(written) is written
    with pytest.raises(ScriptError, match="@routine decorates a function"):
        routine(3)  # type: ignore[arg-type]
    with pytest.raises(ScriptError, match="@prim_func decorates a function"):
        prim_func(3)  # type: ignore[arg-type]


SOURCE = """
#include <stdint.h>
float halved(float x) { return x / 2; }
int8_t narrow(int8_t a, uint16_t b) { return (int8_t)(a + b); }
void scale(float *x, double by, int64_t n) { for (int64_t i = 0; i < n; i++) x[i] *= by; }
"""
CALLS = """
@T.routine
def main(x: T.Buffer((4,), "float32"), k: T.Buffer((2,), "int8")):
    t = T.alloc_buffer((4,), "float32")
    for i in range(4):
        if x[i] > 1.0 and T.call_extern("halved", x[i]) < 2.0:
            t[i] = T.call_extern("halved", x[i] + T.call_extern("halved", T.float32(8)))
    T.evaluate(T.call_extern("scale", t, T.float64(3), 3))
    T.evaluate(T.call_extern("scale", x, T.cast(t[1], "float64"), T.cast(k[0], "int64")))
    k[1] = T.call_extern("narrow", k[0], T.uint16(60000))
    for i in range(4):
        x[i] += t[i]
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with the functions of SOURCE, all of them registered."""
    folder = tmp_path_factory.mktemp("extern")
    (folder / "f.c").write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "f.so"), str(folder / "f.c")]
    subprocess.run(command, check=True)
    register("halved", "float32", ("float32",), folder / "f.so")
    register("narrow", "int8", ("int8", "uint16"), folder / "f.so")
    register("scale", "", ("float32*", "float64", "int64"), folder / "f.so")
    return folder / "f.so"


def test_c_functions_of_a_linked_library(library: Path) -> None:
    func = read(CALLS)
    assert read(func.script()).same(func)
    x, k = both(func, np.array([3, 1, 3.5, 9], np.float32), np.array([-2, 0], np.int8))
    # t = [3.5, 0, 3.75, 0] * 3; x is scaled by t[1] = 0 in its first -2 elements: not at all.
    np.testing.assert_allclose(x, [13.5, 1, 14.75, 9])
    assert k[1] == (60000 - 2) % 256
    written = {p.name: p.written for p in at.build(func, target="llvm").args}
    assert written == {"x": True, "k": True}
    assert pickle.loads(pickle.dumps(at.build(func, target="llvm").artifact)).info.externs


def test_what_is_no_c_function_says_why(library: Path, tmp_path: Path) -> None:
    for args, message in (
        (("no_such", "float32", (), library), "no C function no_such"),
        (("halved", "float32", (), tmp_path / "none.so"), "no C function halved"),
        (("halved", "float16", (), library), "no type of C"),
        (("halved", "float32*", (), library), "no type of C"),
        (("halved", "float32", ("bool",), library), "no type of C"),
        (("halved", "float32", "float32", library), "expected a tuple"),
    ):
        with pytest.raises(ArgumentError, match=message):
            register(*args)
    for call, message in (
        ('"halved", 1, 2', "takes .float32."),
        ('"halved", x', "expected float32, found float32"),
        ('"halved", k[0]', "expected float32, found int8"),
        ('"system", k', "no C function 'system' is registered"),
        ('"scale", k, T.float64(1), 2', r"expected float32\*"),
    ):
        with pytest.raises(ScriptError, match=message):
            parse(CALLS.replace('"halved", x[i] + T.call_extern("halved", T.float32(8))', call))
    with pytest.raises(ScriptError, match="called in a routine"):
        parse(
            '@T.prim_func\ndef f(a: T.Buffer((4,), "float32")):\n    for i in range(4):\n'
            '        with T.block("a"):\n            v = T.axis.spatial(4, i)\n'
            '            a[v] = T.call_extern("halved", T.float32(1))\n'
        )
    with pytest.raises(ScriptError, match="has a call of a C function"):
        parse(CALLS.replace("x[i] += t[i]", "T.evaluate(x[i])"))


def test_a_function_registered_as_another_is_not_called(library: Path) -> None:
    built = at.build(read(CALLS), target="llvm")
    register("halved", "float64", ("float64",), library)
    try:
        with pytest.raises(ArgumentError, match="not registered in this process"):
            Function(built.artifact)
        with pytest.raises(ScriptError, match="expected float64"):
            parse(CALLS)
    finally:
        register("halved", "float32", ("float32",), library)

"""Workloads of strangers: examined in a process that may die, within limits."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from script_fuzz import corpus, damaged

from autosched.tuning import SearchTask
from server.http.problems import ProblemError
from server.programs import pool as examiner
from server.programs.pool import Examiner, Turns
from server.programs.worker import WorkloadLimits, answer

LIMITS = WorkloadLimits()


def ask(limits: WorkloadLimits = LIMITS, **question: Any) -> dict[str, Any]:
    return answer({"target": "llvm", **question}, limits)


def test_an_operator_is_the_workload_that_the_command_line_tunes() -> None:
    found = ask(name="matmul_add", args=[64, 32, 16])
    task = SearchTask("matmul_add", (64, 32, 16), target="llvm")
    assert found["workload"]["key"] == task.workload_key
    assert found["workload"]["args"] == [64, 32, 16]
    assert found["target"] == str(task.target)


def test_a_script_is_the_workload_that_it_was_printed_from() -> None:
    task = SearchTask("softmax", (8, 16), target="llvm")
    found = ask(script=task.prim_func.script())
    assert found["workload"]["key"] == task.workload_key
    assert found["workload"]["args"] is None


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("nothing", [], "no operator named 'nothing'"),
        ("", [], "no operator named ''"),
        ("os.system", ["true"], "no operator named"),
        ("/etc/passwd:main", [], "no operator named"),
        ("examples/matmul.py:matmul_add", [8, 8, 8], "no operator named"),
        ("__import__", ["os"], "no operator named"),
        ("matmul", [], "does not fit 0 arguments: missing a required argument: 'N'"),
        ("matmul", [8, 8], "does not fit 2 arguments"),
        ("matmul", [8] * 9, "too many positional arguments"),
        ("matmul", [8, 8, 8.0], "argument M of matmul is '8.0'; expected an int"),
        ("matmul", [True, 8, 8], "argument N of matmul is 'True'; expected an int"),
        ("matmul", ["8", 8, 8], "argument N of matmul is '8'; expected an int"),
        ("matmul", [None, 8, 8], "argument N of matmul is 'None'; expected an int"),
        ("matmul", [[8], 8, 8], "expected an int"),
        ("matmul", [{"a": 1}, 8, 8], "expected an int"),
        ("matmul", [0, 8, 8], "N of matmul is 0; expected an int >= 1"),
        ("matmul", [-8, 8, 8], ">= 1"),
        ("matmul", [1 << 48, 1, 1], "expected an int of at most 48 bits"),
        ("matmul", [-(1 << 200), 1, 1], "expected an int of at most 48 bits"),
        ("matmul", [8, 8, 8, "float33"], "dtype"),
        ("matmul", [8, 8, 8, "float32\0"], "dtype"),
        ("matmul", [8, 8, 8, 32], "expected text such as float32"),
        ("conv2d", [8, 8, 3, 4, 99, 1, 0], "the window of conv2d covers 99"),
        ("conv2d", [8, 8, 3, 4, 3, 0, 0], "S of conv2d is 0"),
        ("conv2d", [8, 8, 3, 4, 3, 1, 1, 1, 7], "7 groups do not divide"),
    ],
)  # fmt: skip
def test_arguments_that_are_none(name: str, args: list[Any], message: str) -> None:
    found = ask(name=name, args=args)
    assert found.keys() == {"problem", "detail"}, found
    assert found["problem"] == "invalid-workload"
    assert re.search(message, found["detail"]), found["detail"]


@pytest.mark.parametrize(
    ("target", "message"),
    [("", "target"), ("nonsense", "target"), ("llvm -mcpu=zen99", "zen99"), ("llvm --x=y", "x")],
)
def test_targets_that_are_none(target: str, message: str) -> None:
    found = answer({"name": "matmul", "args": [8, 8, 8], "target": target}, LIMITS)
    assert (found["problem"], "mistake" in found) == ("invalid-workload", False)
    assert message in found["detail"]


@pytest.mark.parametrize(
    ("limits", "question", "what"),
    [
        (WorkloadLimits(operations=1e6), {"name": "matmul", "args": [128, 128, 128]}, "operations"),
        (WorkloadLimits(bytes=4096), {"name": "softmax", "args": [64, 64]}, "bytes of buffers"),
        (WorkloadLimits(depth=3), {"name": "conv2d", "args": [8, 8, 4, 4, 3, 1, 1]}, "loops"),
        (WorkloadLimits(blocks=2), {"name": "softmax", "args": [64, 64]}, "blocks"),
        (LIMITS, {"name": "matmul", "args": [1 << 20] * 3}, "operations"),
        (LIMITS, {"name": "transpose_batch_matmul", "args": [1 << 18, 1, 1]}, "bytes of buffers"),
        # Operations on integers are not floating-point ones, and take as long.
        (LIMITS, {"name": "matmul", "args": [1 << 20] * 3 + ["int32"]}, "operations"),
    ],
)  # fmt: skip
def test_workloads_beyond_limits(
    limits: WorkloadLimits, question: dict[str, Any], what: str
) -> None:
    found = ask(limits, **question)
    assert (found["problem"], what in found["detail"]) == ("workload-too-large", True), found


CLAIMS_NOTHING = """
@T.prim_func
def main(A: T.Buffer((100000, 100000), "int8"), B: T.Buffer((100000,), "int8")):
    for i, k in T.grid(100000, 100000):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.block_attr({"FLOP": 1})
            with T.init():
                B[vi] = T.int8(0)
            B[vi] = B[vi] + A[vi, vk]
"""


def test_a_script_cannot_claim_to_be_small() -> None:
    found = ask(WorkloadLimits(bytes=1 << 50, operations=1e9), script=CLAIMS_NOTHING)
    assert "operations" in found["detail"], found


def test_a_script_cannot_have_more_dimensions_than_arrays_may() -> None:
    script = CLAIMS_NOTHING.replace("(100000, 100000)", "(9, 9)").replace("100000", "9")
    many = script.replace("A: T.Buffer((", "A: T.Buffer((" + "1, " * 80)
    found = ask(script=many.replace("A[", "A[" + "0, " * 80))
    assert (found["problem"], "dimensions" in found["detail"]) == ("workload-too-large", True)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("", "no function"),
        ("import os\nos.system('true')", "expected @T.prim_func"),
        ("__import__('os').system('true')", "expected @T.prim_func"),
        ("x" * 2_000_000, "at most 1048576"),
        ("(" * 100_000, "nest more than"),
        ("@T.prim_func\ndef f(" + "a, " * 100_000 + "):\n  pass", ""),
        ("\0", ""),
        ("\ud800", ""),
        ("é" * 10, ""),
        ("def f(:\n", "no Python syntax"),
    ],
)
def test_texts_that_are_no_scripts(script: str, message: str) -> None:
    found = ask(script=script)
    assert found.keys() == {"problem", "detail"}, found
    assert message in found["detail"]


def examine_damaged(first: int, count: int) -> int:
    """How many of so many damaged scripts are workloads; the others are told what they lack."""
    good = 0
    for seed in range(first, first + count):
        text = damaged(random.Random(seed), corpus())
        found = ask(script=text)
        assert "mistake" not in found, f"seed {seed}: {found['mistake']}\n{text}"
        good += "workload" in found
    return good


def test_damaged_scripts_are_told_what_they_lack() -> None:
    assert 0 < examine_damaged(0, 300) < 150


@pytest.mark.long
def test_many_damaged_scripts_are_told_what_they_lack() -> None:
    assert examine_damaged(10**7, 6000) > 100


# The processes

Run = Callable[[Callable[[Examiner], Awaitable[None]]], None]


@asynccontextmanager
async def examining(limits: WorkloadLimits = LIMITS, **kw: int) -> AsyncIterator[Examiner]:
    made = Examiner(limits, **kw)
    try:
        yield made
    finally:
        await made.close()


QUESTION = {"name": "matmul", "args": [8, 8, 8], "target": "llvm"}


def test_a_process_answers_one_question_after_another() -> None:
    async def run() -> None:
        async with examining(processes=1) as made:
            first = await made.examine(QUESTION)
            (child,) = made._idle
            with pytest.raises(ProblemError, match="no operator") as caught:
                await made.examine(QUESTION | {"name": "x"})
            assert (caught.value.status, caught.value.kind.name) == (422, "invalid-workload")
            assert await made.examine(QUESTION) == first
            assert made._idle == [child]
        assert child.returncode is not None

    asyncio.run(run())


def test_modules_in_the_working_folder_are_not_run_by_who_examines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("server", "records", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        async with examining(processes=1) as made:
            await made.examine(QUESTION)

    asyncio.run(run())


def test_a_question_that_gets_no_processor_costs_its_process() -> None:
    async def run() -> None:
        async with examining(WorkloadLimits(seconds=2.0), processes=1) as made:
            await made.ask(QUESTION)
            (child,) = made._idle
            os.kill(child.pid, signal.SIGSTOP)
            # It had no processor, so nothing is known of the workload.
            with pytest.raises(ProblemError, match=r"busy: .* more than 5 seconds") as caught:
                await made.ask(QUESTION)
            assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "2"})
            assert child.returncode == -signal.SIGKILL
            await made.ask(QUESTION)

    asyncio.run(run())


def test_a_question_that_takes_too_long_costs_its_process() -> None:
    """Too long by the processor's time, which the child's own timer counts."""

    async def run() -> None:
        async with examining(WorkloadLimits(seconds=0.001), processes=1) as made:
            with pytest.raises(ProblemError, match=r"0\.001 seconds of processor time") as caught:
                await made.ask(QUESTION)
            assert (caught.value.status, caught.value.kind.name) == (422, "workload-too-large")
            assert made._idle == []

    asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_an_idle_process_that_was_killed_is_not_the_fault_of_the_next_question(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with examining(processes=1) as made:
            first = await made.ask(QUESTION)
            (child,) = made._idle
            child.send_signal(number)
            assert await made.ask(QUESTION) == first
            assert made._idle != [child]

    asyncio.run(run())
    assert "a process that examined a workload ended" in caplog.messages


@pytest.mark.parametrize(
    ("number", "status", "message"),
    [(signal.SIGSEGV, 422, "memory or the stack"), (signal.SIGKILL, 503, "its memory runs out")],
)
def test_a_question_that_kills_its_process(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int, message: str
) -> None:
    """Blamed where no other question was before it, and where nobody else killed the process."""
    exchange, asked = examiner._exchange, []

    async def killed(child: Process, question: Any) -> Any:
        asked.append(child)
        child.send_signal(number)
        return await exchange(child, question)

    async def run() -> None:
        async with examining(processes=1) as made:
            await made.ask(QUESTION)
            with monkeypatch.context() as patched:
                patched.setattr(examiner, "_exchange", killed)
                with pytest.raises(ProblemError, match=message) as caught:
                    await made.ask(QUESTION)
            assert caught.value.status == status
            await made.ask(QUESTION)

    asyncio.run(run())
    assert len(asked) == 2, "the first process had answered another question before"


def test_what_is_known_is_not_examined_again() -> None:
    async def run() -> None:
        async with examining(processes=1) as made:
            first = await made.examine(QUESTION)
            (child,) = made._idle
            os.kill(child.pid, signal.SIGSTOP)
            assert await made.examine(dict(QUESTION)) is first
            os.kill(child.pid, signal.SIGCONT)
            other = await made.examine({**QUESTION, "args": [16, 16, 16]})
            assert other.workload["key"] != first.workload["key"]

    asyncio.run(run())


def test_memory_is_bounded() -> None:
    """A script of many nodes under a bound that leaves little beyond the modules."""

    async def run() -> None:
        async with examining(WorkloadLimits(memory=1 << 20), processes=1) as made:
            with pytest.raises(ProblemError) as caught:
                await made.examine(QUESTION)
            assert caught.value.status == 422

    asyncio.run(run())


def test_questions_beyond_those_that_may_wait_are_put_off() -> None:
    async def run() -> None:
        async with examining(processes=1, waiting=1) as made:
            others = [QUESTION | {"args": [8 * n, 8, 8]} for n in range(1, 5)]
            asked = [asyncio.create_task(made.examine(other)) for other in others]
            found = await asyncio.gather(*asked, return_exceptions=True)
        refused = [f for f in found if isinstance(f, ProblemError)]
        assert [f.status for f in refused] == [503, 503]
        assert refused[0].headers == {"Retry-After": "2"}

    asyncio.run(run())


def test_one_client_leaves_places_to_others() -> None:
    """One that asks without end has half of the places, and its questions take turns with those of
    who came later."""
    order: list[str] = []

    async def ask(made: Examiner, client: str, rows: int) -> None:
        await made.examine(QUESTION | {"args": [rows, 8, 8]}, client)
        order.append(client)

    async def run() -> list[BaseException | None]:
        async with examining(processes=1, waiting=9) as made:
            many = [asyncio.create_task(ask(made, "many", 8 * n)) for n in range(1, 11)]
            await asyncio.sleep(0)
            other = asyncio.create_task(ask(made, "other", 7))
            return await asyncio.gather(*many, other, return_exceptions=True)

    *found, late = asyncio.run(run())
    refused = [f for f in found if isinstance(f, ProblemError)]
    assert [(f.status, f.headers) for f in refused] == [(429, {"Retry-After": "2"})] * 4
    assert late is None
    assert order == ["many"] * 2 + ["other"] + ["many"] * 4


def test_a_turn_that_is_given_up_goes_to_the_next() -> None:
    async def run() -> None:
        turns = Turns(1)

        async def take(client: str) -> str:
            async with turns.of(client):
                await asyncio.sleep(0)
                return client

        for given_up in range(1, 4):
            waiting = [asyncio.create_task(take(client)) for client in "abab"]
            for _ in range(3):  # each at another moment: before its turn, as it comes, in it
                await asyncio.sleep(0)
                if given_up == _ + 1:
                    waiting[1].cancel()
            found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20)
            assert found[0] == found[2] == "a"
            assert found[3] == "b"
        assert await asyncio.wait_for(take("last"), 20) == "last"

    asyncio.run(run())


def test_a_mistake_of_ours_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def exchange(child: object, question: object) -> dict[str, str]:
        return {"problem": "invalid-workload", "detail": "so", "mistake": "Traceback: here"}

    async def run() -> None:
        monkeypatch.setattr(examiner, "_exchange", exchange)
        async with examining(processes=1) as made:
            with pytest.raises(ProblemError, match="so"):
                await made.examine(QUESTION)

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert [r.traceback for r in caplog.records] == ["Traceback: here"]  # type: ignore[attr-defined]

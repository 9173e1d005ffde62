"""A stored workload gives the program again, from its text alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import autosched as at
from autosched import te
from autosched.errors import WorkloadError
from autosched.tuning.best import (
    best_compatible,
    best_schedule,
    compatible_scopes,
    schedule_of,
)
from autosched.tuning.stored import program_of, stored_task
from records import NoRecord, RecordError, RecordReader, Store
from records.logs.lines import decode_line, encode_line

OPERATORS = [
    ("matmul_add", (8, 12, 16)),
    ("conv2d_bias_relu", (8, 8, 4, 8, 3, 1, 1)),
    ("conv2d_transpose", (4, 4, 4, 8, 4, 2, 1)),
    ("softmax", (4, 24)),
    ("argmax", (4, 24)),
    ("max_pool2d", (8, 8, 4, 2, 2, 0)),
    ("cumsum", (6, 8)),
    ("lstm", (3, 1, 4, 8)),
]


@pytest.mark.parametrize(("name", "args"), OPERATORS, ids=[name for name, _ in OPERATORS])
def test_operators_come_back_from_the_store(
    name: str, args: tuple[int, ...], tmp_path: Path
) -> None:
    task = at.SearchTask(name, args)
    with Store(tmp_path / "x.db") as store:
        store.put_workload(task.workload)
        stored = store.workload(task.workload_key)
    assert stored == task.workload
    again = stored_task(replace(stored, name="removed", args=None), task.target)
    assert again.workload_key == task.workload_key
    assert again.prim_func.script() == stored.text
    assert stored_task(stored, task.target).title == task.title
    assert program_of(replace(stored, text=None)).script() == stored.text


def test_a_function_of_a_user_comes_back_without_the_function(tmp_path: Path) -> None:
    def mine(n: int) -> list[te.Tensor]:
        a = te.placeholder((n,), name="a")
        return [a, te.compute((n,), lambda i: a[i] * 3.0, name="tripled")]

    task = at.SearchTask(mine, (12,))
    stored = replace(task.workload, name="my_ops.py:mine")
    assert stored_task(stored).workload_key == task.workload_key
    with pytest.raises(WorkloadError, match=r"my_ops.py:mine\(12\) was stored without its text"):
        program_of(replace(stored, text=None))


GOLDEN = Path(__file__).parent / "golden_records.jsonl"
"""Records as the first release that stored texts has written them: never to be made anew."""


def test_golden_records_replay() -> None:
    """What a release has measured, later ones replay to the very programs that were measured."""
    source = RecordReader(GOLDEN)
    assert source.report.skipped == []
    workloads = list(source.workloads())
    assert len(workloads) >= 8
    for workload in workloads:
        func = program_of(workload)
        records = list(source.records(workload_key=workload.key, status="ok"))
        assert records
        for record in records:
            # schedule_of compares the program's hash with the one that was measured.
            assert schedule_of(func, record).func is not None
        assert best_schedule(func, source, workload.key, records[0].target)[1].status == "ok"


HERE = "llvm -mcpu=x86-64-v3 -mtriple=x86_64-unknown-linux-gnu -num-cores=4"


def test_another_target_is_crossed_only_on_request(tmp_path: Path) -> None:
    source = RecordReader(GOLDEN)
    workload = next(iter(source.workloads()))
    func, key = program_of(workload), workload.key
    wider = at.Target(HERE.replace("x86-64-v3", "x86-64-v4"))
    with pytest.raises(NoRecord, match=r"no record of workload .* on target"):
        best_schedule(func, source, key, str(wider))
    schedule, record = best_compatible(func, source, key, wider)
    assert (record.target, schedule.func is not None) == (HERE, True)
    assert best_compatible(func, source, key, at.Target(HERE))[1] == record
    narrower = at.Target(HERE.replace("x86-64-v3", "x86-64-v2"))
    with pytest.raises(NoRecord, match="nor is there one of a compatible target"):
        best_compatible(func, source, key, narrower)


def test_the_nearest_compatible_target_goes_first() -> None:
    def target(cpu: str, cores: int, triple: str = "x86_64-unknown-linux-gnu") -> str:
        return f"llvm -mcpu={cpu} -mtriple={triple} -num-cores={cores}"

    scopes = [
        (target("x86-64", 4), "a"),
        (target("x86-64-v3", 8), "b"),
        (target("x86-64-v3", 4), "c"),
        (target("znver5", 4), "d"),
        (target("neoverse-n1", 4, "aarch64-unknown-linux-gnu"), "e"),
        ("quantum -mcpu=1", "f"),
    ]
    found = compatible_scopes(scopes, at.Target(target("x86-64-v4", 4)))
    assert [device for _, device in found] == ["c", "a", "b"]


def test_a_log_holds_a_workload_only_under_the_key_of_its_script():
    workload = at.SearchTask("softmax", (4, 24), target="llvm").workload
    assert decode_line(encode_line(workload)) == workload
    other = replace(workload, script=workload.script + " ")
    with pytest.raises(RecordError, match="the key is not the hash of the script"):
        decode_line(encode_line(other))

"""Several processes on one file, and processes that are killed: nothing stored is ever lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from records_factory import JOB, KEY, WORKLOAD, slots, trial, with_job

from records import JsonlWriter, RecordReader, Store, open_records

CHILD = Path(__file__).parents[1] / "records_child.py"
FORMS = [("store", "shared.db"), ("log", "shared.jsonl")]


def start(form, path, job_id, count, batch):
    command = [sys.executable, str(CHILD), form, str(path), job_id, str(count), str(batch)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_two_processes_write_one_file_at_once(tmp_path, form, name):
    jobs = ["a" * 32, "b" * 32, "c" * 32]
    children = [start(form, tmp_path / name, job, 150, 3) for job in jobs]
    for child in children:
        _, error = child.communicate(timeout=250)
        assert (child.returncode, error) == (0, "")
    with open_records(tmp_path / name) as source:
        for job in jobs:
            found = list(source.records(job_id=job))
            assert [record.slot for record in found] == list(range(150))
            assert {len(record.error) for record in found} == {n * 997 % 5000 for n in range(150)}
        if isinstance(source, RecordReader):
            assert source.report.skipped == []
        assert source.best(KEY).seconds == 1e-3


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("form", "name"), FORMS)
@pytest.mark.parametrize("after", [1, 7, 40])
def test_a_killed_writer_loses_nothing_that_it_was_told_is_stored(tmp_path, form, name, after):
    child = start(form, tmp_path / name, JOB, 100_000, 1)
    stored = [int(child.stdout.readline()) for _ in range(after)]
    child.kill()
    stored += [int(line) for line in child.stdout]
    assert child.wait(timeout=60) == -9
    child.stdout.close()
    child.stderr.close()
    with open_records(tmp_path / name) as source:
        kept = slots(source)
    assert kept[: len(stored)] == stored == list(range(len(stored)))
    assert len(kept) <= len(stored) + 1
    if form == "store":
        with Store(tmp_path / name) as store:
            assert store.job(JOB).trials_done == len(kept)
            [record] = store.add_records([trial(len(kept))])
            assert record.slot == len(kept)


def test_threads_share_a_store(tmp_path):
    with Store(tmp_path / "x.db") as store, ThreadPoolExecutor(4) as pool:
        with_job(store)
        list(pool.map(lambda n: store.add_records([trial(n)]), range(60)))
        assert sorted(slots(store)) == list(range(60))
        assert store.job(JOB).trials_done == 60


def test_stores_opened_at_once_make_the_tables_once(tmp_path):
    barrier = threading.Barrier(4)

    def open_store(_):
        barrier.wait()
        with Store(tmp_path / "x.db") as store:
            store.put_workload(WORKLOAD)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(open_store, range(4)))
    with Store(tmp_path / "x.db") as store:
        assert list(store.workloads()) == [WORKLOAD]


def test_a_forked_process_and_its_parent_write_one_log(tmp_path):
    writer = JsonlWriter(tmp_path / "x.jsonl")
    writer.write_records([trial(0)])
    child = os.fork()
    if child == 0:
        for n in range(1, 101):
            writer.write_records([trial(n, error="x" * 5000)])
        os._exit(0)
    for n in range(101, 201):
        writer.write_records([trial(n, error="x" * 5000)])
    assert os.waitpid(child, 0)[1] == 0
    reader = RecordReader(tmp_path / "x.jsonl")
    assert sorted(slots(reader)) == list(range(201))
    assert reader.report.skipped == []

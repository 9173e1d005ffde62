"""The same seed gives the same records in any process, whatever its hash seed and its threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: int(sys.argv[1])])
import autosched as at
from autosched.tuning.callbacks import MeasureCallback

class Print(MeasureCallback):
    def on_records(self, records):
        for r in records:
            print(r.round, r.slot, r.program_hash, sorted(r.decisions.items()), r.seconds)

target = "llvm -mcpu=x86-64-v4 -num-cores=2"
for workload, args in (("matmul_add", (512, 384, 260)), ("softmax", (100, 333))):
    options = at.TuningOptions(
        num_measure_trials=56, pool="replay:model", measure_callbacks=[Print()], verbose=0, seed=5
    )
    at.SearchTask(workload, args, target=target).tune(options)
"""


def records(cores: int, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cores)],
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
        env={**os.environ, **environment},
    )
    return done.stdout.splitlines()


@pytest.mark.long
def test_two_processes_measure_the_same() -> None:
    first = records(1, PYTHONHASHSEED="1", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    again = records(2, PYTHONHASHSEED="2", OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2")
    assert len(first) == 2 * (2 + 56)
    assert first == again

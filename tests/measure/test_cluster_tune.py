"""`autosched tune --pool` on workers elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cluster_processes import Cluster

from autosched.cli.main import main
from autosched.target import Target
from records import Store

TUNE = ("tune", "matmul_add", "12", "10", "14", "--trials", "4", "--quiet", "--no-limits")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a worker with fewer cores than this")
def test_cluster_tune_is_for_the_devices_of_the_pool(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = str(min(os.sched_getaffinity(0)))
    with Cluster() as cluster:
        cluster.work("tune", "quick_engine", prefix=("taskset", "-c", one))
        pool = ("--pool", f"{cluster.address}?label=tune")
        db = tmp_path / "pool.db"
        assert main([*TUNE, *pool, "--db", str(db)]) == 0
    capfd.readouterr()
    with Store(db) as store:
        (job,) = store.jobs().jobs
    assert job.trials_done == 4
    here = Target("llvm")
    assert here.num_cores > 1
    assert Target(job.target).num_cores == 1
    assert Target(job.target).mcpu == here.mcpu

"""The search judged on measured spaces: what `benchmarks/search_replay.py` does."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
WORKLOAD = "matmul 256 256 256"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("search_replay")


def test_the_search_closes_in_on_the_best_of_a_measured_space(module: ModuleType) -> None:
    space = module.task_of(WORKLOAD, module.target_of(module.FILE)).space
    truth = module.Recorded(space, module.read(module.FILE, WORKLOAD, space))
    params = module.params_of([])
    runs = [module.run(truth, params, 64, seed)[0] for seed in range(2)]
    for held in runs:
        assert ((held > 0.0) & (held <= 1.0)).all()
    first, last = np.mean([(held[0], held[-1]) for held in runs], axis=0)
    assert last > max(first, 0.97)
    (again, _) = module.run(truth, params, 64, 0)
    np.testing.assert_array_equal(again, runs[0])


@pytest.mark.parametrize(
    ("file", "candidates"), [("search_space.npz", 1500), ("search_space_zen5.npz", 5000)]
)
def test_recorded_spaces_hold_distinct_candidates(
    module: ModuleType, file: str, candidates: int
) -> None:
    data = BENCHMARKS / file
    space = module.task_of(WORKLOAD, module.target_of(data)).space
    measured = module.read(data, WORKLOAD, space)
    assert len(measured.population.unique()) == len(measured.seconds) == candidates
    assert np.isfinite(measured.seconds).all()
    assert (measured.seconds > 0.0).all()
    rows = range(0, candidates, 100)
    assert space.holds([space.candidate(measured.population, k) for k in rows]).all()


def test_parameters_are_given_by_name(module: ModuleType) -> None:
    found = module.params_of(["near=0.5", "centres=2"])
    assert (found.near, found.centres, found.round_size) == (0.5, 2, module.ROUND)
    with pytest.raises(SystemExit, match="expected one of"):
        module.params_of(["far=1"])


def test_files_of_another_space_are_refused(module: ModuleType, tmp_path: Path) -> None:
    space_module = importlib.import_module("search_space")
    space = module.task_of(WORKLOAD, module.target_of(module.FILE)).space
    other = module.task_of("softmax 16 24", module.target_of(module.FILE)).space
    file = tmp_path / "x.npz"
    space_module.write(file, WORKLOAD, space, space_module.Measured.empty(space))
    assert len(module.read(file, WORKLOAD, space).seconds) == 0
    with pytest.raises(ValueError, match="measure it again"):
        module.read(file, WORKLOAD, other)

"""The trees that the package ships."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xgboost

from autosched.errors import AutoschedError
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.workloads import prim_func_of
from cost_model import pretrained
from cost_model.dataset import Dataset
from cost_model.features import NAMES, WIDTH
from cost_model.xgb import BoostedModel

GPU = NAMES.index("is_gpu")


@pytest.fixture
def afresh() -> None:
    """Trees are read once a process."""
    pretrained._trees.cache_clear()


def test_they_are_of_the_features_that_there_are() -> None:
    trees = xgboost.Booster()
    trees.load_model(pretrained.FILE)
    assert trees.attr("features") == pretrained.signature()
    assert trees.num_features() == WIDTH


def test_they_say_nothing_of_gpus() -> None:
    rows = np.random.default_rng(0).random((6, WIDTH)).astype(np.float32) * 1e4
    rows[:, GPU] = [0, 1, 0, 1, 1, 0]
    found = pretrained.said(rows)
    assert (found[rows[:, GPU] == 1] == 0).all()
    assert (found[rows[:, GPU] == 0] != 0).all()


def test_scores_of_a_space_and_of_its_data_set_both_have_them() -> None:
    space = generate_space(prim_func_of("matmul", (48, 40, 64)), Target("llvm -num-cores=2"))
    population = space.sample(np.random.default_rng(0), 32)

    class Task:
        def __init__(self) -> None:
            self.space = space

    data = Dataset.of(Task(), population, np.full(len(population), 1e-5))
    with_trees, without = BoostedModel(), BoostedModel(pretrained=False)
    scores = with_trees.predict(Task(), population)
    np.testing.assert_allclose(with_trees.predict_data(data), scores, rtol=1e-5)
    np.testing.assert_allclose(without.predict_data(data), data.prior)
    assert not np.allclose(with_trees.predict_data(data), data.prior, atol=1e-3)


@pytest.mark.usefixtures("afresh")
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "trees.ubj"
    damaged.write_bytes(pretrained.FILE.read_bytes()[:1000])
    monkeypatch.setattr(pretrained, "FILE", damaged)
    with pytest.raises(AutoschedError, match=r"trees\.ubj cannot be read"):
        pretrained.said(np.zeros((1, WIDTH), np.float32))


@pytest.mark.usefixtures("afresh")
def test_trees_of_other_features_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = xgboost.Booster()
    trees.load_model(pretrained.FILE)
    trees.set_attr(features="other")
    trees.save_model(tmp_path / "trees.ubj")
    monkeypatch.setattr(pretrained, "FILE", tmp_path / "trees.ubj")
    with pytest.raises(AutoschedError, match="other features"):
        pretrained.said(np.zeros((1, WIDTH), np.float32))

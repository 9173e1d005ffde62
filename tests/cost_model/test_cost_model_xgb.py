"""The learned model: what it starts as, what it learns, files, determinism; data sets, metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from autosched.errors import AutoschedError
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Population, Space
from autosched.target import Target
from autosched.workloads import prim_func_of
from cost_model import metrics
from cost_model.boosting import Boosting, Forest, telling
from cost_model.dataset import Dataset
from cost_model.evaluation import evaluator_of
from cost_model.features import WIDTH
from cost_model.objective import Pack
from cost_model.random import RandomModel
from cost_model.roofline import bound_seconds
from cost_model.xgb import BoostedModel

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")
Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def space() -> Space:
    return generate_space(prim_func_of("matmul", (256, 256, 256)), TARGET)


@pytest.fixture(scope="module")
def population(space: Space) -> Population:
    found = space.sample(np.random.default_rng(5), 700)
    found = found.take(found.unique())
    return found.take(np.isfinite(BoostedModel().predict(space, found)))


def pretended(space: Space, population: Population) -> Floats:
    """Seconds on a machine that disagrees with the roofline: panels of B cost three times as much,
    and long inner reductions pay."""
    bound = bound_seconds(space.func, space.target)
    seconds = bound / np.exp(BoostedModel().predict(space, population).astype(np.float64))
    packs = np.array(["B." in v.name for v in space.variants])[population.variant]
    levels = [space.column[n] for n in space.names if n.startswith("C.vk.")]
    steps = population.values[:, levels].prod(axis=1)
    return seconds * np.where(packs, 3.0, 1.0) * (1.0 + 20.0 / steps)


def error(model: BoostedModel, space: Space, population: Population, truth: Floats) -> float:
    off = model.predict(space, population) - np.log(bound_seconds(space.func, TARGET) / truth)
    return float(np.sqrt(np.mean((off - np.median(off)) ** 2)))


def test_without_data_it_is_the_roofline(space: Space, population: Population) -> None:
    scores = BoostedModel().predict(space, population)
    assert scores.dtype == np.float32
    assert (scores <= np.log(1.3)).all()  # the roofline is seldom faster than the bound
    for part in evaluator_of(space).parts(population):
        expected = np.log(bound_seconds(space.func, TARGET) / part.results[0])
        np.testing.assert_allclose(scores[part.rows], expected, rtol=1e-5)


def test_candidates_that_are_not_legal_score_minus_infinity(space: Space) -> None:
    variant, values = space.default()
    huge = {**values, "C.vi.3": 128, "C.vj.3": 256}
    both = space.population([(variant, values), (variant, huge)])
    for model in (BoostedModel(), RandomModel(1)):
        assert np.isfinite(model.predict(space, both)).tolist() == [True, False]


@pytest.mark.parametrize("known", [12, 48, 300])
def test_it_learns_a_task_from_its_measurements(
    space: Space, population: Population, known: int
) -> None:
    truth = pretended(space, population)
    first, rest = np.arange(known), np.arange(400, len(population))
    test, seconds = population.take(rest), truth[rest]
    model = BoostedModel()
    fitted = model.fit(space, population.take(first), truth[first])
    before, after = error(model, space, test, seconds), error(fitted, space, test, seconds)
    assert after < {12: 0.95, 48: 0.8, 300: 0.65}[known] * before
    assert error(model, space, test, seconds) == before  # the first one is left as it is


def test_it_transfers_what_tasks_have_in_common(space: Space, population: Population) -> None:
    """Trained on a matmul, it knows better about another shape than the roofline does."""
    other = generate_space(prim_func_of("matmul", (384, 192, 320)), TARGET)
    test = other.sample(np.random.default_rng(9), 300)
    test = test.take(np.isfinite(BoostedModel().predict(other, test)))
    model = BoostedModel().train(Dataset.of(space, population, pretended(space, population)))
    truth = pretended(other, test)
    assert error(model, other, test, truth) < 0.75 * error(BoostedModel(), other, test, truth)


def test_failures_lower_scores(space: Space, population: Population) -> None:
    """Every candidate of one variant fails, the others are as the roofline says."""
    seconds = bound_seconds(space.func, TARGET) / np.exp(
        BoostedModel().predict(space, population).astype(np.float64)
    )
    failing = population.variant == 3
    seconds[failing] = np.inf
    half = np.arange(len(population)) < len(population) // 2
    learned = {
        "own": BoostedModel().fit(space, population.take(half), seconds[half]),
        "shared": BoostedModel().train(Dataset.of(space, population.take(half), seconds[half])),
    }
    for name, model in learned.items():
        shift = model.predict(space, population) - BoostedModel().predict(space, population)
        lower = np.median(shift[failing & ~half]) - np.median(shift[~failing & ~half])
        assert lower < -0.25, name


def test_the_same_data_and_seed_give_the_same_model(space: Space, population: Population) -> None:
    # The seed says what is held out, and so how many trees are grown: few, of labels without sense.
    data = Dataset.of(space, population, np.random.default_rng(6).random(len(population)))
    a, b = BoostedModel(3).train(data), BoostedModel(3).train(data)
    assert a.predict(space, population).tobytes() == b.predict(space, population).tobytes()
    other = BoostedModel(4).train(data)
    assert a.predict(space, population).tobytes() != other.predict(space, population).tobytes()


PROGRAM = """
import hashlib
import numpy as np
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.workloads import prim_func_of
from cost_model.dataset import Dataset
from cost_model.xgb import BoostedModel
target = Target("llvm -mcpu=znver4 -num-cores=2")
space = generate_space(prim_func_of("matmul", (64, 64, 64)), target)
population = space.sample(np.random.default_rng(5), 300)
seconds = np.random.default_rng(6).random(300)
model = BoostedModel(1).train(Dataset.of(space, population, seconds))
scores = model.fit(space, population, seconds).predict(space, population)
print(hashlib.sha256(scores.tobytes()).hexdigest())
"""


@pytest.mark.long
def test_another_process_learns_the_same() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_a_saved_model_is_the_same_and_goes_on_learning(
    space: Space, population: Population, tmp_path: Path
) -> None:
    data = Dataset.of(space, population, pretended(space, population), "k")
    boosting = Boosting(shared=Forest(20, 4, 0.1, 8.0))
    model = BoostedModel(7, boosting).train(data.take(np.arange(len(data)) < 200))
    model.save(tmp_path / "model")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", "model.npz"]
    found = BoostedModel().load(tmp_path / "model")
    assert (found.seed, found.boosting) == (7, boosting)
    scores = model.predict(space, population)
    assert found.predict(space, population).tobytes() == scores.tobytes()
    more = data.take(np.arange(len(data)) >= 200)
    a, b = model.train(more), found.train(more)
    assert len(a.data) == len(data)
    assert a.predict(space, population).tobytes() == b.predict(space, population).tobytes()


def test_a_saved_model_keeps_what_it_was_fitted_to(
    space: Space, population: Population, tmp_path: Path
) -> None:
    seconds = pretended(space, population)
    told, asked = np.arange(64), np.arange(64, len(population))
    fitted = BoostedModel(7).fit(space, population.take(told), seconds[told])
    rest = population.take(asked)
    before = fitted.predict(space, rest)
    fitted.save(tmp_path / "model")
    after = BoostedModel().load(tmp_path / "model").predict(space, rest)
    assert after.tobytes() == before.tobytes()
    roofline = BoostedModel().predict(space, rest)
    speed = -np.log(seconds[asked])
    assert np.corrcoef(after, speed)[0, 1] > np.corrcoef(roofline, speed)[0, 1] + 0.1


def test_fitting_keeps_the_class_and_the_data_of_a_model(
    space: Space, population: Population
) -> None:
    class Own(BoostedModel):
        pass

    seconds = pretended(space, population)
    few = population.take(np.arange(40))
    trained = Own(3).train(Dataset.of(space, few, seconds[:40], "k"))
    fitted = trained.fit(space, few, seconds[:40])
    assert (type(fitted), len(fitted.data)) == (Own, 40)


def test_what_is_learned_of_a_choice_holds_for_all_that_have_it() -> None:
    """Three candidates with packed weights turn out slow: so do those of other structures with
    packed weights, more than those without."""
    conv = generate_space(prim_func_of("conv2d", (7, 7, 64, 64, 3, 1, 1)), TARGET)
    packed = np.array(["weight.root" in v.name for v in conv.variants])
    cached = np.array(["cache" in v.name for v in conv.variants])
    drawn = conv.sample(np.random.default_rng(0), 600)
    kinds = {
        name: drawn.take(
            np.flatnonzero((packed[drawn.variant] == p) & (cached[drawn.variant] == c))
        )
        for name, p, c in (("told", True, True), ("packed", True, False), ("plain", False, False))
    }
    told = kinds.pop("told").take(np.arange(3))
    others = kinds.pop("plain").take(np.arange(3))
    known = Population.concat([told, others])
    model = BoostedModel()
    said = model.predict(conv, known)
    seconds = bound_seconds(conv.func, conv.target) / np.exp(said)
    seconds[:3] *= 3.0
    fitted = model.fit(conv, known, seconds)
    rest = drawn.take(np.flatnonzero(~cached[drawn.variant]))
    shift = fitted.predict(conv, rest) - model.predict(conv, rest)
    legal = np.isfinite(shift)
    slower, same = (shift[legal & (packed[rest.variant] == p)] for p in (True, False))
    assert np.median(slower) < np.median(same) - 0.3
    without = model.fit(conv, others, seconds[3:])
    settled = without.doubts(conv, rest).deviations - fitted.doubts(conv, rest).deviations
    other = np.array(["weight.thread" in v.name for v in conv.variants])[rest.variant]
    assert np.median(settled[legal & packed[rest.variant]]) > np.median(settled[legal & other])


@pytest.mark.parametrize("told", [0, 1, 9])
def test_what_is_expected_leaves_the_doubt_that_measuring_it_would(
    told: int, space: Space, population: Population
) -> None:
    """Whatever time is measured: deviations depend on where measurements are."""
    rng = np.random.default_rng(told)
    rows = rng.choice(len(population), told + 5, replace=False)
    rest = population.take(rng.choice(len(population), 200, replace=False))
    seconds = rng.uniform(1e-4, 1e-3, len(rows))
    model = BoostedModel()
    if told:
        model = model.fit(space, population.take(rows[:told]), seconds[:told])
    expected = model.doubts(space, Population.concat([rest, population.take(rows[told:])]))
    before = expected.deviations[:200]
    for row in range(200, 205):
        expected.expect(row)
    after = expected.deviations[:200]
    measured = model.fit(space, population.take(rows), seconds).doubts(space, rest)
    np.testing.assert_allclose(after, measured.deviations, rtol=1e-4, atol=1e-5)
    assert (after <= before).all()
    assert after.mean() < 0.99 * before.mean()


def test_a_model_fitted_to_one_task_says_so_when_asked_of_another(
    space: Space, population: Population
) -> None:
    fitted = BoostedModel().fit(space, population.take(np.arange(8)), np.full(8, 1e-4))
    other = generate_space(prim_func_of("softmax", (16, 24)), TARGET)
    asked = other.sample(np.random.default_rng(0), 4)
    with pytest.raises(AutoschedError, match=r"choices and decisions are \d+ features"):
        fitted.predict(other, asked)


def test_files_of_two_models_do_not_make_one(tmp_path: Path) -> None:
    for name, data in (("a", 1), ("b", 2)):
        model = BoostedModel()
        model.data = replace(Dataset.empty(), tasks=(f"task {data}",))
        model.save(tmp_path / name)
    (tmp_path / "a.npz").replace(tmp_path / "b.npz")
    with pytest.raises(AutoschedError, match=r"it is not the one that .*b.json was written with"):
        BoostedModel().load(tmp_path / "b")


def test_files_of_another_version_are_refused(tmp_path: Path) -> None:
    BoostedModel().save(tmp_path / "model.json")
    text = json.loads((tmp_path / "model.json").read_text())
    for key, value in (("format", 4), ("format", 6), ("format", []), ("features", ["other"])):
        (tmp_path / "model.json").write_text(json.dumps({**text, key: value}))
        with pytest.raises(AutoschedError, match="train"):
            BoostedModel().load(tmp_path / "model")
    with pytest.raises(FileNotFoundError):
        BoostedModel().load(tmp_path / "none")


def test_damaged_files_are_refused_and_change_nothing(tmp_path: Path) -> None:
    BoostedModel(3).save(tmp_path / "model")
    text, data = tmp_path / "model.json", tmp_path / "model.npz"
    right = json.loads(text.read_text())
    loaded = BoostedModel(5)
    for damaged in (
        b"{",
        b"\xff\x00",
        json.dumps({k: v for k, v in right.items() if k != "seed"}).encode(),
        json.dumps({**right, "boosting": {"other": 1}}).encode(),
        json.dumps({**right, "trees": {"other": 1}}).encode(),
    ):
        text.write_bytes(damaged)
        with pytest.raises(AutoschedError, match=r"model.json is not what .* train it again"):
            loaded.load(tmp_path / "model")
    text.write_text(json.dumps(right))
    whole = data.read_bytes()
    stream = 30 + whole[26] + whole[28]  # where the first array begins, compressed
    torn = whole[:stream] + bytes(20 * [255]) + whole[stream + 20 :]
    for damaged in (b"", b"no archive", whole[:300], torn):
        data.write_bytes(damaged)
        with pytest.raises(AutoschedError, match=r"model.npz is not what .* train it again"):
            loaded.load(tmp_path / "model")
    assert loaded.seed == 5
    with pytest.raises(AutoschedError, match="seed is 'x'; expected an integer"):
        BoostedModel("x")  # type: ignore[arg-type]


def test_the_gradient_is_the_derivative_of_the_error(space: Space, population: Population) -> None:
    data = Dataset.of(space, population.take(np.arange(12)), np.full(12, 1e-4))
    pack = Pack.of(data, 0.25)
    said = np.random.default_rng(0).random(len(data.rows))
    first, second = pack.gradient(said)

    def loss(x: Floats) -> float:
        return float(0.5 * (pack.weight * pack.excess(x) ** 2).sum())

    for n in range(0, len(said), 5):
        step = np.zeros(len(said))
        step[n] = 1e-5
        slope = (loss(said + step) - loss(said - step)) / 2e-5
        assert first[n] == pytest.approx(slope, rel=1e-4)
    assert (second > 0).all()


def test_data_sets_keep_candidates_and_their_stores_together(
    space: Space, population: Population
) -> None:
    seconds = pretended(space, population)
    whole = Dataset.of(space, population, seconds, "a")
    counts = np.array([len(v.trace.steps) for v in space.variants])  # differ by variant
    assert len(np.unique(counts)) > 1
    assert whole.rows.shape == (whole.starts[-1], WIDTH)
    np.testing.assert_allclose(
        whole.label, np.log(bound_seconds(space.func, TARGET) / seconds), rtol=1e-12
    )
    mask = np.random.default_rng(0).random(len(whole)) < 0.5
    parts = Dataset.concat([whole.take(mask), replace(whole.take(~mask), tasks=("b",))])
    assert parts.tasks == ("a", "b")
    found = dict(parts.by_task())
    assert [len(found[k]) for k in "ab"] == [int(mask.sum()), int((~mask).sum())]
    again = Dataset.from_arrays(parts.arrays())
    for name, array in parts.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name])
    row = int(np.flatnonzero(mask)[7])
    alone = Dataset.of(space, population.take(np.array([row])), seconds[[row]])
    np.testing.assert_array_equal(
        alone.rows, found["a"].rows[found["a"].starts[7] : found["a"].starts[8]]
    )
    with pytest.raises(AutoschedError, match="rows have shape"):
        replace(whole, rows=whole.rows[:-1])


def test_metrics_by_hand() -> None:
    truth = np.array([1.0, 0.5, 0.5, 0.2, 0.0])
    right, wrong = truth.copy(), -truth
    assert metrics.pairwise(right, truth) == 1.0
    assert metrics.pairwise(wrong, truth) == 0.0
    assert metrics.pairwise(np.zeros(5), truth) == 0.5
    assert metrics.recall(right, truth, 30) == 1.0
    assert metrics.recall(wrong, truth, 2) == 0.0
    assert metrics.peak(wrong, truth, 1) == 0.0
    assert metrics.peak(np.array([0.1, 0.9, 0.0, 0.0, 0.0]), truth, 1) == 0.5
    assert metrics.peak(np.array([0.1, 0.9, 0.0, 0.0, 0.0]), truth, 5) == 1.0
    assert metrics.rmse(truth + 0.5, truth) == 0.5
    both = metrics.report([(right, truth), (wrong, truth)])
    assert (both.pairwise, both.peak_1) == (0.5, 0.5)


def test_a_long_run_teaches_by_its_best_its_latest_and_some_of_the_rest() -> None:
    seconds = np.random.default_rng(0).permutation(1000) + 1.0
    seconds[::7] = np.inf
    rows = telling(seconds, 64)
    assert len(rows) == 64
    assert np.array_equal(rows, np.unique(rows))
    assert set(np.argsort(seconds)[:16].tolist()) <= set(rows.tolist())
    assert set(range(984, 1000)) <= set(rows.tolist())
    others = np.setdiff1d(rows, [*np.argsort(seconds)[:16], *range(984, 1000)])
    assert np.diff(others).max() < 100
    assert np.array_equal(telling(seconds[:64], 64), np.arange(64))

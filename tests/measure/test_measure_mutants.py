"""Verification against programs with one small mistake: none that changes a result may pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from mutants import OUTSIDE, Mutant, effect, mistakes, results

from autosched.lowering.lower import lower
from autosched.schedule import Trace
from autosched.sketch.generate import generate_space
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of
from measure.local.build import LocalBuilder
from measure.local.pool import LocalPool
from measure.local.slot import LocalRunner
from measure.status import Status

# Extents that tiles do not divide, of every kind of block that there is.
PROGRAMS: dict[str, tuple[str, tuple[object, ...]]] = {
    "matmul_add": ("matmul_add", (9, 11, 17)),
    "matmul of bytes": ("matmul", (5, 12, 33, "int8")),
    "conv2d": ("conv2d_bias_relu", (4, 5, 2, 10, 3, 1, 1)),
    "max_pool2d": ("max_pool2d", (6, 7, 5, 3, 2, 1)),
    "softmax": ("softmax", (6, 37)),
    "layer_norm": ("layer_norm", (5, 29)),
    # Many rows: a candidate that leaves columns out is wrong in a row only where the largest is.
    "argmax": ("argmax", (128, 19)),
    "cumsum": ("cumsum", (11, 18)),
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    runner = LocalRunner(timeout=5, budget_ms=1, repeat=2, lock_folder=tmp_path_factory.mktemp("l"))
    with LocalPool(builder=LocalBuilder(n_parallel=1), runner=runner, target="llvm") as made:
        yield made


def drawn(func: PrimFunc, pool: LocalPool, seed: int) -> list[Trace]:
    """The program as it stands, and random schedules of it."""
    space = generate_space(func, pool.target)
    found = space.sample(np.random.default_rng(seed), 6)
    traces = [space.trace(*space.candidate(found, n)) for n in range(len(found))]
    return [Trace(), *traces]


def hunt(pool: LocalPool, name: str, count: int, seed: int) -> Counter[str]:
    """Try `count` mutants of a program that are wrong by the interpreter; their kinds, counted.

    Fails, naming mistake and program, if one of them is `ok`.
    """
    func = prim_func_of(*PROGRAMS[name])
    rng = np.random.default_rng(seed)
    traces = drawn(func, pool, seed)
    lowered = [lower(t.apply(func).func) for t in traces]
    right = [results(program, seed) for program in lowered]
    job = pool.open_job(func)
    assert all(r.ok for r in pool.measure(job, traces))
    kinds: Counter[str] = Counter()
    tried: list[tuple[str, str, Mutant]] = []
    seen = set()
    while len(tried) < count:
        n = int(rng.integers(len(traces)))
        number = int(rng.integers(len(mistakes(lowered[n]))))
        assert len(seen) < 40 * count, f"too few mutants of {name} are wrong: {kinds}"
        if (n, number) in seen:
            seen.add((n, number, len(seen)))
            continue
        seen.add((n, number))
        mutant = Mutant(traces[n], number)
        kind, program = mutant.program(func)
        found = effect(right[n], program, seed)
        kinds[f"effect: {found}"] += 1
        if found == "result" or (found == "bounds" and OUTSIDE in kind):
            tried.append((kind, found, mutant))
    found_out = pool.measure(job, [mutant for _, _, mutant in tried])
    for (kind, found, mutant), result in zip(tried, found_out, strict=True):
        assert result.status is not Status.OK, (
            f"{name}: {kind} ({found}) passed:\n{mutant.program(func)[1].script()}"
        )
        assert result.error
        kinds[kind] += 1
        kinds[str(result.status)] += 1
    job.close()
    return kinds


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_mutant_passes(pool: LocalPool, name: str) -> None:
    kinds = hunt(pool, name, 5, seed=1)
    assert kinds["effect: faint"] <= 3


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_none_of_many_mutants_passes(pool: LocalPool, name: str) -> None:
    kinds = hunt(pool, name, 40, seed=10)
    # Some do not build, so that verification has nothing to say.
    ran = sum(kinds[s] for s in ("wrong_result", "out_of_bounds", "runtime_error"))
    print(name, ran, dict(kinds))
    assert ran >= 10, kinds
    made = {k for k in kinds if k not in set(Status) and not k.startswith("effect")}
    assert len(made) >= 4, made

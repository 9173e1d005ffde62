"""Results in memory that earlier ones were let go of: what a caller has never changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dynamic import HEADS, SIZE, WIDTH, decoder, step

from autosched import graph
from autosched.graph import results
from autosched.graph.dynamic.returned import Returned
from autosched.graph.results import KEPT, ResultArrays
from autosched.graph.spec import Fresh
from autosched.runtime.arrays import empty

BIG = Fresh(0, (3, results.SMALL), "float32")


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "held", [lambda a: a, lambda a: a[1:, ::2], memoryview, lambda a: a.T.flat]
)
def test_memory_is_used_again_when_nothing_refers_to_it(held) -> None:
    arrays = ResultArrays(BIG)
    made = arrays.take()
    first, kept = address(made), held(made)
    del made
    second = arrays.take()
    assert address(second) != first
    del kept
    assert address(arrays.take()) == first
    assert address(arrays.take()) == first
    del second


def test_of_many_results_two_are_kept() -> None:
    arrays = ResultArrays(BIG)
    taken = [arrays.take() for _ in range(10)]
    assert len({address(a) for a in taken}) == 10
    assert len(arrays.kept) == KEPT


@pytest.mark.parametrize("laid", [np.ascontiguousarray, np.asfortranarray])
def test_two_arrays_do_for_calls_that_need_the_last_result(laid, monkeypatch) -> None:
    """However the inputs lie: with those that must be copied a model is called another way."""
    x = graph.var("x", (256, 256), "float32")
    model = graph.build(graph.module(main=graph.function([x], graph.op.tanh(x))), threads=1)
    made = []
    monkeypatch.setattr(results, "empty", lambda *given: made.append(given) or empty(*given))
    data = laid(np.linspace(-1, 1, 65536, dtype=np.float32).reshape(256, 256))
    found = None
    for _ in range(6):
        found = model(data)  # the last one is held meanwhile
        np.testing.assert_allclose(found[0], np.tanh(data), rtol=1e-5)
    assert len(made) == 2


def test_threads_never_share_an_array() -> None:
    arrays = ResultArrays(BIG)

    def shared(number: int) -> bool:
        for _ in range(300):
            a = arrays.take()
            a[:] = number
            if (a != number).any():
                return True
        return False

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(shared, range(4)))


@pytest.fixture(scope="module")
def dynamic() -> graph.DynamicModel:
    """A decoder built for lengths of 2 to 32, whose small results are kept as large ones are."""
    made = graph.build_dynamic(decoder(), threads=1)
    x = np.zeros((1, 1, SIZE), np.float32)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(results, "SMALL", 0)
        for n in (3, 4, 5, 5):
            found = made(x, *(np.zeros((1, HEADS, n, WIDTH), np.float32),) * 2)
    assert all(a.base is not None for a in found)
    return made


KINDS = st.sampled_from(["step", "cut", "copy", "write", "drop", "hold"])
ACTS = st.lists(st.tuples(KINDS, st.integers(0, 99)), min_size=5, max_size=40)


@settings(max_examples=60, deadline=None)
@given(ACTS)
def test_caches_that_a_caller_steps_cuts_and_keeps(dynamic, acts) -> None:
    """Whatever a caller does with results, all that it has stays what NumPy computes."""
    rng = np.random.default_rng(len(acts))
    start = rng.standard_normal((2, 1, HEADS, 6, WIDTH)).astype(np.float32)
    states = [((start[0], start[1]), (start[0].copy(), start[1].copy()))]
    for act, n in acts:
        own, other = states[n % len(states)]
        if act == "step":
            x = rng.standard_normal((1, 1, SIZE)).astype(np.float32)
            found, *own = dynamic(x, *own)
            expected, *other = step(x, *other)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        elif act == "cut":
            size = max(2, own[0].shape[2] - 1 - n % 3)
            own, other = ([a[:, :, :size] for a in s] for s in (own, other))
        elif act == "copy":
            own, other = ([a.copy() for a in s] for s in (own, other))
        elif act == "write":
            own[0][..., -1, :] = other[0][..., -1, :] = n
            continue
        elif act == "drop" and len(states) > 1:
            states.pop(n % len(states))
            continue
        states.append((tuple(own), tuple(other)))
        if act != "hold":
            states = states[-4:]
        for mine, his in states:
            for a, b in zip(mine, his, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_result_is_taken_as_it_lies() -> None:
    """A cache that comes back whole is not copied; a part of one is, and leaves the rest."""
    returned, whole = Returned(), ResultArrays(BIG).take()
    whole[:] = 1
    cut = whole[:2]
    returned.add(whole, cut, False)
    again = returned.whole(cut, whole.shape)
    assert again is not None
    assert address(again) == address(whole)
    assert not whole[2].any()
    whole[2] = 1
    for other in (cut[:1], cut[1:], cut.copy(), cut[:, ::2], cut.view(np.int32)):
        assert returned.whole(other, whole.shape) is None
    assert returned.whole(cut, (4, results.SMALL)) is None
    assert whole.all()

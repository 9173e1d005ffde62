"""How a built function is timed by `time_evaluator`."""

from __future__ import annotations

import numpy as np
import pytest
from runtime_arrays import arguments, expected

from autosched.codegen.artifact import Artifact
from autosched.errors import ArgumentError
from autosched.runtime.function import Function
from autosched.runtime.timing import Timing


def test_time_evaluator(mix: Artifact) -> None:
    function = Function(mix)
    arrays = arguments()
    timing = function.time_evaluator(number=3, repeat=5, cooldown_ms=0.1)(*arrays)
    assert timing.number == 3
    assert len(timing.seconds) == 5
    assert 0 < timing.min <= timing.median <= max(timing.seconds)
    assert timing.min <= timing.mean
    assert timing.spread >= 0
    np.testing.assert_array_equal(arrays[3], expected(arrays))


def test_min_repeat_ms_raises_the_number(mix: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own: on the real one another process may take a call's milliseconds."""
    function = Function(mix)
    each = 4e-9
    monkeypatch.setattr(function, "_timer", lambda arrays, *flushed: lambda count: count * each)
    timing = function.time_evaluator(number=2, min_repeat_ms=3)(*arguments())
    assert timing.number * each == pytest.approx(1.1 * 3e-3, rel=0.01)
    assert timing.seconds == pytest.approx([each])


def test_flush_cache(big_mix: Artifact) -> None:
    arrays = arguments((20000,))
    timing = Function(big_mix).time_evaluator(number=2, repeat=3, flush_cache=True)(*arrays)
    assert min(timing.seconds) > 0
    np.testing.assert_array_equal(arrays[3], expected(arrays))


def test_native_seconds(mix: Artifact) -> None:
    function = Function(mix)
    assert 0 < function.native_seconds(*arguments(), number=10) < 1


def test_timing_summary() -> None:
    timing = Timing((3e-6, 1e-6, 2e-6), 10)
    assert (timing.median, timing.min) == (2e-6, 1e-6)
    assert timing.mean == pytest.approx(2e-6)
    assert timing.spread == pytest.approx(0.9)
    assert str(timing) == "2.000 us (min 1.000, spread 90.0%, 3 x 10 calls)"


@pytest.mark.parametrize(
    ("option", "value", "bound"),
    [
        ("number", 0, "an integer of at least 1"),
        ("repeat", -1, "an integer of at least 1"),
        ("min_repeat_ms", -1, "0 or more"),
        ("cooldown_ms", -0.5, "0 or more"),
    ],
)
def test_options_that_make_no_sense(mix: Artifact, option: str, value: float, bound: str) -> None:
    with pytest.raises(ArgumentError, match=f"{option} is {value}; expected {bound}"):
        Function(mix).time_evaluator(**{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"), [("number", 1.5), ("repeat", "3"), ("min_repeat_ms", "x")]
)
def test_options_of_another_type(mix: Artifact, option: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"{option} is {value!r}; expected "):
        Function(mix).time_evaluator(**{option: value})  # type: ignore[arg-type]


def test_timing_checks_its_arguments(mix: Artifact) -> None:
    with pytest.raises(ArgumentError, match="mix takes 4 arrays"):
        Function(mix).time_evaluator()(*arguments()[:2])
    with pytest.raises(ArgumentError, match="number is 0; expected 1 or more"):
        Function(mix).native_seconds(*arguments(), number=0)

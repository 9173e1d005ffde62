"""The yardstick: one kernel's times from candidate to candidate are the noise of comparing them."""

from __future__ import annotations

from typing import Any

import pytest

from measure.yardstick import ENOUGH, KEPT, TOO_LONG_SECONDS, Yardstick


class Kernel:
    """Takes the given seconds, one turn after the other."""

    def __init__(self, *turns: float) -> None:
        self.turns = list(turns)
        self.calls = 0

    def call(self, number: int) -> float:
        self.calls += 1
        return number * self.turns[0]


def noises(yardstick: Any, kernel: Kernel) -> list[float]:
    found = []
    while kernel.turns:
        found.append(yardstick.noise())
        kernel.turns.pop(0)
    return found


def test_yardstick_shows_how_far_apart_the_same_kernel_lies() -> None:
    steady, moved = Kernel(*[2e-3] * 6), Kernel(*[1e-3, 1e-3, 1.2e-3, 1.2e-3, 1.2e-3])
    yardstick: Any = Yardstick()
    assert yardstick.noise() == 0.0
    yardstick.offer(steady, 2e-3)
    assert noises(yardstick, steady) == [0.0] * 6
    yardstick.offer(Kernel(1.0), 3e-3)  # slower: not taken
    yardstick.offer(moved, 1e-3)
    assert noises(yardstick, moved)[ENOUGH - 1 :] == [pytest.approx(0.2), pytest.approx(0.2)]


def test_yardstick_forgets_what_was_long_ago() -> None:
    kernel = Kernel(*[1e-3] * 3, *[2e-3] * KEPT)
    yardstick: Any = Yardstick()
    yardstick.offer(kernel, 1e-3)
    found = noises(yardstick, kernel)
    assert max(found) > 0.5
    assert found[-1] == 0.0


def test_yardstick_costs_little() -> None:
    for seconds in (1e-6, 1e-3, 4e-3, 20e-3):
        kernel = Kernel(seconds)
        yardstick: Any = Yardstick()
        yardstick.offer(kernel, seconds)
        yardstick.noise()
        assert 1 <= kernel.calls <= 5
    slow = Kernel(2 * TOO_LONG_SECONDS)
    yardstick = Yardstick()
    yardstick.offer(slow, 2 * TOO_LONG_SECONDS)
    assert yardstick.noise() == 0.0
    assert slow.calls == 0

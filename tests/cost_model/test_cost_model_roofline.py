"""What the roofline charges for threads that start and wait for one another, and for padding."""

from __future__ import annotations

import pytest

from autosched.schedule import Schedule
from autosched.search.analysis import analyse
from autosched.target import Target
from autosched.workloads import prim_func_of
from cost_model import roofline as module
from cost_model.roofline import Machine, block_cycles, roofline

TARGET = Target("llvm -mcpu=znver5 -num-cores=2")
STEPS = 10


@pytest.mark.parametrize(("loop", "starts", "waits"), [(0, 1, 0), (1, 1, STEPS - 1), (None, 0, 0)])
def test_a_team_starts_once_and_waits_each_step(
    monkeypatch: pytest.MonkeyPatch, loop: int | None, starts: int, waits: int
) -> None:
    """Parallel outermost, in a serial loop, or not at all."""
    sch = Schedule(prim_func_of("matmul", (STEPS, 64, 64)))
    if loop is not None:
        sch.parallel(sch.get_loops(sch.get_block("C"))[loop])
    analysis = analyse(sch.func, TARGET, 1)
    machine = Machine()
    charged = float(roofline(analysis, TARGET).seconds)
    monkeypatch.setattr(module, "machine_of", lambda target: Machine(fork=0.0, barrier=0.0))
    rest = float(roofline(analysis, TARGET).seconds)
    assert charged - rest == pytest.approx(starts * machine.fork + waits * machine.barrier)


def test_padding_inside_a_reduction_takes_no_time() -> None:
    """3×3 taps of 7×7 pixels: 19 of 21 rows of taps meet data, and of columns."""
    func = prim_func_of("conv2d", (7, 7, 16, 32, 3, 1, 1))
    times = []
    for inlined in (True, False):
        sch = Schedule(func)
        if inlined:
            sch.compute_inline(sch.get_block("pad"))
        analysis = analyse(sch.func, TARGET, 1)
        conv = analysis.blocks["conv2d"], analysis.facts["conv2d"]
        machine = Machine(guard=0.0)
        times.append(float(block_cycles(*conv, 32.0, machine)))
        entered = float(conv[0].entries * (machine.entry * conv[0].accumulators + machine.loop))
        times[-1] -= entered
    assert times[0] / times[1] == pytest.approx((19 / 21) ** 2)

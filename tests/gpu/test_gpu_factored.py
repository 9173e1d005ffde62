"""Partial results computed in the loop over threads (rfactor, bind, compute_at) give what the plain
program gives: in the interpreter, on a device, and as CUDA on the host."""

from __future__ import annotations

from pathlib import Path

import cuda_on_host
import numpy as np
import pytest
from factored_programs import FACTORED, rows_summed, tutorial
from gpu_run import check_all, here, program
from test_gpu_cuda_on_host import agree

import autosched as at
from autosched import te
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FACTORED)
def test_programs(name: str) -> None:
    check_all(*FACTORED[name]())


@pytest.mark.skipif(cuda_on_host.CXX is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize("name", FACTORED)
def test_cuda_on_the_host(name: str, tmp_path: Path) -> None:
    plain, scheduled = FACTORED[name]()
    assert agree(scheduled, plain, tmp_path)


def test_symbolic_sizes() -> None:
    """The tutorial's own sizes: a row may have fewer elements than there are lanes."""
    a, b = rows_summed(te.var("n"), te.var("m"))
    func = at.build(tutorial(b), [a, b], here())
    for shape in ((1, 1), (5, 15), (4, 16), (9, 100)):
        values = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
        sums = np.full(shape[0], np.nan, "float32")
        func(values, sums)
        np.testing.assert_allclose(sums, values.sum(1), rtol=1e-4, atol=1e-5)


def test_partial_results_are_of_a_thread() -> None:
    (kernel,) = program(FACTORED["tutorial"]()[1]).kernels
    assert [(b.name, b.shape) for b in kernel.local] == [("B_rf", (1, 1))]
    assert not kernel.shared


def test_a_total_is_complete_after_its_loop() -> None:
    func = parse_func(
        """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), S: T.Buffer((1,), "float32"), C: T.Buffer((8,), "float32")):
    for k in T.serial(8):
        with T.block("S"):
            vk = T.axis.reduce(8, k)
            with T.init():
                S[0] = T.float32(0.0)
            S[0] = S[0] + A[vk]
        with T.block("C"):
            vk = T.axis.spatial(8, k)
            C[vk] = S[0] + A[vk]
""",
        check=False,
    )
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=r"S reduces over loop k.*C in the loop accesses S"):
        sch.bind(sch.get_loops("C")[0], "threadIdx.x")


def test_a_result_that_a_loop_outside_would_set_anew() -> None:
    """A loop of other elements between the reduction loops: first values cannot be set before."""
    func = parse_func(
        """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), S: T.Buffer((1,), "float32")):
    for k in T.serial(4):
        for j in T.serial(2):
            for x in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("S"):
                    vk, vx = T.axis.remap("RR", [k, x])
                    T.where(j < 1)
                    with T.init():
                        S[0] = T.float32(0.0)
                    S[0] = S[0] + A[vk, vx]
""",
        check=False,
    )
    with pytest.raises(CodegenError, match=r"S is reduced across threadIdx.x; .* reorder them"):
        program(func)


def test_store_predicate() -> None:
    _, b = rows_summed(8, 64)
    tx = te.thread_axis("threadIdx.x")
    s = te.create_schedule(b.op)
    with pytest.raises(ScheduleError, match=r"s\[B\].set_store_predicate: expected tx.var.equal"):
        s[b].set_store_predicate(True)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"equal\(1\): expected 0"):
        tx.var.equal(1)
    s[b].bind(b.op.axis[0], tx)
    s[b].set_store_predicate(tx.equal(0))
    with pytest.raises(ScheduleError, match="no reduction loop of the stage is bound to threadIdx"):
        s.replay()

"""Nests of one kernel on different numbers of threads: the launch has the most of them, and those
that a nest does not use wait."""

from __future__ import annotations

from math import prod
from pathlib import Path

import cuda_on_host
import pytest
from gpu_run import check, check_all, program
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu_cuda_on_host import agree
from uneven_programs import UNEVEN, fetched_by_more, rows, shared_by_more


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", UNEVEN)
def test_programs(name: str) -> None:
    check_all(*UNEVEN[name]())


@pytest.mark.skipif(cuda_on_host.CXX is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize("name", UNEVEN)
def test_cuda_on_the_host(name: str, tmp_path: Path) -> None:
    plain, scheduled = UNEVEN[name]()
    assert agree(scheduled, plain, tmp_path)


def test_the_launch_has_the_most() -> None:
    for fill, use in ((40, 16), (8, 40), (1, 5)):
        (kernel,) = program(shared_by_more(fill, use)[1]).kernels
        assert prod(kernel.block) == max(fill, use)
    (kernel,) = program(fetched_by_more(8, 32)[1]).kernels
    assert kernel.block == (32, 8, 1)


@settings(max_examples=8, deadline=None)
@given(
    name=st.sampled_from(["softmax", "layer_norm", "argmax"]),
    columns=st.integers(1, 70),
    threads=st.lists(st.integers(1, 40), min_size=2, max_size=4),
)
def test_any_numbers(name: str, columns: int, threads: list[int]) -> None:
    plain, scheduled = rows(name, (3, columns), threads)
    check(scheduled, plain, nvrtc=False)

"""What lives in "shared.dyn" and "warp" holds what it should, in the interpreter, on a device and
as CUDA on the host; and where it is then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cuda_on_host
import pytest
from gpu_run import (
    check_all,
    cuda,
    opencl,
    program,
)
from scope_programs import DYNAMIC, WARPS, Pair, rows_of_warps
from test_gpu_cuda_on_host import agree

from autosched import te
from autosched.codegen.gpu.generate import generate
from autosched.schedule import Schedule

PROGRAMS: dict[str, Callable[[], Pair]] = {
    **{f"dynamic, {name}": make for name, make in DYNAMIC.items()},
    **{f"warp, {name}": make for name, make in WARPS.items()},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    check_all(*PROGRAMS[name]())


@pytest.mark.skipif(cuda_on_host.CXX is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize("name", PROGRAMS)
def test_cuda_on_the_host(name: str, tmp_path: Path) -> None:
    plain, scheduled = PROGRAMS[name]()
    assert agree(scheduled, plain, tmp_path)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_launch_asks_for_dynamic_memory(name: str) -> None:
    func = DYNAMIC[name]()[1]
    (kernel,) = program(func).kernels
    on_cuda, elsewhere = (generate(func, target) for target in (cuda(), opencl()))
    assert [x.shared_bytes for x in on_cuda.launches] == [kernel.shared_bytes]
    assert "extern __shared__" in on_cuda.source
    # OpenCL declares its arrays.
    assert [x.shared_bytes for x in elsewhere.launches] == [0]
    assert "__local" in elsewhere.source


@pytest.mark.parametrize("warps", [1, 4])
def test_elements_that_a_thread_has_for_itself_are_registers(warps: int) -> None:
    (kernel,) = program(rows_of_warps(False, warps)[1]).kernels
    assert [b.shape[-1] for b in kernel.local] == [2]
    assert not kernel.shared
    assert not kernel.barriers


def test_each_warp_has_a_part_of_shared_memory() -> None:
    (kernel,) = program(rows_of_warps(True, 4)[1]).kernels
    assert [b.shape for b in kernel.shared] == [(4, 1, 32)]
    assert len(kernel.barriers) == 1


def test_names_of_copies() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b)
    assert s.cache_read(a, "shared.dyn", [b]).name == "A_shared_dyn"
    sch = Schedule(te.create_prim_func([a, b]))
    assert sch.get(sch.cache_read("B", "A", "shared.dyn")).name == "A_shared_dyn"

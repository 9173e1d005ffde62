"""Functions of symbolic sizes: kernels for the sizes of each call."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_run import here

import autosched as at
from autosched import te
from autosched.building import gpu
from autosched.building.gpu import SizedGPUFunction
from autosched.errors import ArgumentError, BuildError, CodegenError


def scan_over_blocks(threads: int = 16) -> tuple[te.StageSchedule, list[te.Tensor]]:
    """The cumulative sum of TVM's tutorial: rows (m, n), columns bound to blocks and threads."""
    m, n = te.var("m"), te.var("n")
    x, state = te.placeholder((m, n), name="x"), te.placeholder((m, n))
    first = te.compute((1, n), lambda _, i: x[0, i])
    step = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i])
    total = te.scan(first, step, state, inputs=[x])
    s = te.create_schedule(total.op)
    for stage in (first, step):
        outer, inner = s[stage].split(stage.op.axis[1], factor=threads)
        s[stage].bind(outer, te.thread_axis("blockIdx.x"))
        s[stage].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [x, total]


def built(threads: int = 16, target: at.Target | None = None) -> SizedGPUFunction:
    found = at.build(*scan_over_blocks(threads), target or here(), name="cumsum")
    assert isinstance(found, SizedGPUFunction)
    return found


@pytest.mark.parametrize("shape", [(1, 1), (7, 300), (5, 16), (3, 17), (2, 1)])
def test_one_function_for_all_sizes(shape: tuple[int, int]) -> None:
    f = built()
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    out = np.full_like(x, np.nan)
    f(x, out)
    np.testing.assert_allclose(out, x.cumsum(0), rtol=1e-5, atol=1e-6)
    assert f.at(m=shape[0], n=shape[1]).launches[-1].grid == (-(-shape[1] // 16), 1, 1)


def test_kernels_of_the_last_sizes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "KEPT", 2)
    f = built()
    kept = f.at(m=2, n=3)
    assert f.at(n=3, m=2) is kept
    f.at(m=2, n=4)
    f.at(m=2, n=5)
    assert f.at(m=2, n=3) is not kept


def test_a_timed_call_has_its_own_sizes() -> None:
    f = built()
    for n in (3, 40):
        x = np.ones((4, n), np.float32)
        assert f.time_evaluator(number=1)(x, np.empty_like(x)).mean > 0.0


def test_what_does_not_fit_is_refused() -> None:
    f = built()
    x = np.ones((4, 3), np.float32)
    with pytest.raises(ArgumentError, match="cumsum takes 2 arrays; found 1"):
        f(x)
    with pytest.raises(ArgumentError, match="x of cumsum is of type int, which has no shape"):
        f(3, x)
    with pytest.raises(ArgumentError, match=r"has shape \(4, 2\); expected \(4, 3\)"):
        f(x, np.empty((4, 2), np.float32))
    with pytest.raises(ArgumentError, match="cannot be told"):
        f(np.ones(3, np.float32), x)
    with pytest.raises(ArgumentError, match="cumsum has the sizes m, n; found n"):
        f.at(n=3)
    with pytest.raises(ArgumentError, match="size m is 0; expected an int from 1"):
        f.at(m=0, n=3)
    with pytest.raises(ArgumentError, match=r"size n is \[1\]; expected an int from 1"):
        f.at(m=2, n=[1])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="size n is True; expected an int"):
        f.at(m=2, n=True)
    with pytest.raises(BuildError, match="no function of this process; call it"):
        f.function  # noqa: B018
    with pytest.raises(BuildError, match="no assembly text"):
        f.assembly()


def test_a_schedule_that_a_size_does_not_admit_says_so() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    f = at.build(s, [a, b], here())
    x = np.ones(8, np.float32)
    f(x, x[::-1].copy())
    big = np.ones(5000, np.float32)
    with pytest.raises(CodegenError, match=r"5000 .* threadIdx"):
        f(big, np.empty_like(big))


def test_cuda_compiles_for_each_size() -> None:
    f = built(256, at.Target("cuda -arch=sm_90"))
    one, other = f.at(m=4, n=1000), f.at(m=4, n=5)
    assert one.artifact.code[:4] == other.artifact.code[:4] == b"\x7fELF"
    assert one.launches[0].grid == (4, 1, 1)
    assert "@T.prim_func" in f.source
    assert [str(p.shape) for p in f.args] == ["(m, n)", "(m, n)"]

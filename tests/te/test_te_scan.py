"""te.scan: what it means, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autosched import te
from autosched.errors import TensorExprError
from autosched.script import parse
from autosched.tir import interp, whole
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc, sites
from autosched.tir.verify import verify

T, N = 6, 4
F32 = "float32"


def run(func: PrimFunc, *inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs by both evaluators, which agree; the script round-trips."""
    verify(func)
    assert first_difference(func, parse(func.script())) is None
    found = []
    for execute in (interp.run, whole.reference):
        outputs = [np.full(b.shape, np.nan, b.dtype) for b in func.params[len(inputs) :]]
        execute(func, [*inputs, *outputs])
        found.append(outputs)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return found[0]


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(F32)


def state(*shape: int, name: str = "s") -> te.Tensor:
    return te.placeholder(shape or (T, N), name=name)


X = te.placeholder((T, N), name="X")


def first(k: int = 1) -> te.Tensor:
    return te.compute((k, N), lambda t, i: X[t, i], name="first")


def test_cumulative_sum():
    s = state()
    step = te.compute((T, N), lambda t, i: s[t - 1, i] + X[t, i], name="step")
    out = te.scan(first(), step, s, inputs=[X], name="out")
    assert out.shape == (T, N)
    axis = out.op.scan_axis
    assert (axis.name, axis.dom, axis.kind) == ("t", (1, T - 1), "sequential")
    assert out.op.axis == (axis,)
    x = array(T, N)
    np.testing.assert_allclose(run(te.create_prim_func([X, out]), x)[0], x.cumsum(0), rtol=1e-6)


def test_two_first_steps():
    s = state()
    step = te.compute((T, N), lambda t, i: s[t - 1, i] + s[t - 2, i], name="step")
    x = array(T, N)
    (found,) = run(te.create_prim_func([X, te.scan(first(2), step, s)]), x)
    want = [x[0], x[1]]
    while len(want) < T:
        want.append(want[-1] + want[-2])
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_states_of_different_shapes_and_a_new_value_read_at_once():
    a, b = state(T, N, 2, name="a"), state(T, name="b")
    k = te.reduce_axis((0, N), name="k")
    a0 = te.compute((1, N, 2), lambda t, i, j: X[0, i], name="a0")
    b0 = te.compute((1,), lambda t: X[0, 0], name="b0")
    new_b = te.compute((T,), lambda t: b[t - 1] * 0.5 + X[t, 1], name="new_b")
    total = te.compute((T, 2), lambda t, j: te.sum(a[t - 1, k, j], axis=k), name="total")
    new_a = te.compute((T, N, 2), lambda t, i, j: X[t, i] - total[t, j] * new_b[t], name="new_a")
    out = te.scan([a0, b0], [new_a, new_b], [a, b], name="out")
    assert [t.shape for t in out] == [(T, N, 2), (T,)]
    x = array(T, N)
    want_a, want_b = [np.repeat(x[0][:, None], 2, 1)], [x[0, 0]]
    for t in range(1, T):
        want_b.append(want_b[-1] * 0.5 + x[t, 1])
        want_a.append(x[t][:, None] - want_a[-1].sum(0) * want_b[-1])
    for listed in ([*out], [out[0]], [out[1], out[0]]):
        found = run(te.create_prim_func([X, *listed]), x)
        for tensor, value in zip(listed, found, strict=True):
            want = want_a if tensor is out[0] else want_b
            np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-6)


def test_what_depends_on_no_state_is_computed_before():
    s = state()
    doubled = te.compute((T, N), lambda t, i: X[t, i] * 2, name="doubled")
    part = te.compute((T, N), lambda t, i: s[t - 1, N - 1 - i] * 0.5, name="part")
    step = te.compute((T, N), lambda t, i: part[t, i] + doubled[t, i], name="step")
    out = te.scan(first(), step, s, name="out")
    after = te.compute((T, N), lambda t, i: out[t, i] + 1, name="after")
    func = te.create_prim_func([X, after])
    assert [s.block.name for s in sites(func)] == ["first", "doubled", "part", "step", "after"]
    assert [len(n.body) for n in func.body] == [1, 1, 2, 1]
    x = array(T, N)
    want = [x[0]]
    for t in range(1, T):
        want.append(want[-1][::-1] * 0.5 + x[t] * 2)
    np.testing.assert_allclose(run(func, x)[0], np.stack(want) + 1, rtol=1e-6)


def test_a_scan_of_a_scan_and_an_init_that_is_an_input():
    h0 = te.placeholder((1, N), name="h0")
    s, r = state(), state()
    one = te.compute((T, N), lambda t, i: s[t - 1, i] * X[t, i], name="one")
    inner = te.scan(h0, one, s, name="inner")
    two = te.compute((T, N), lambda t, i: r[t - 1, i] - inner[t, i], name="two")
    outer = te.scan(te.compute((1, N), lambda t, i: inner[0, i], name="r0"), two, r, name="outer")
    x, h = array(T, N), array(1, N)
    want = np.concatenate([h, x[1:]]).cumprod(0)
    found = run(te.create_prim_func([X, h0, outer]), x, h)[0]
    np.testing.assert_allclose(found, 2 * want[0] - want.cumsum(0), rtol=1e-5, atol=1e-6)


def test_a_tuple_of_updates_and_one_init_for_two_states():
    a, b = state(name="a"), state(name="b")
    both = te.compute(
        (T, N), lambda t, i: (a[t - 1, i] + b[t - 1, i], a[t - 1, i] - X[t, i]), name="both"
    )
    zero = first()
    out = te.scan([zero, zero], list(both), [a, b], name="out")
    x = array(T, N)
    want = [(x[0], x[0])]
    for t in range(1, T):
        p, q = want[-1]
        want.append((p + q, p - x[t]))
    found = run(te.create_prim_func([X, *out]), x)
    for n in range(2):
        np.testing.assert_allclose(found[n], [w[n] for w in want], rtol=1e-5, atol=1e-6)


def test_one_state_in_a_list_gives_a_list():
    s = state()
    step = te.compute((T, N), lambda t, i: s[t - 1, i], name="step")
    (only,) = te.scan([first()], [step], [s])
    assert only.name == "scan"


def update(f, s, shape=(T, N), name="step"):
    return te.compute(shape, lambda t, i: f(s, t, i), name=name)


def scan_of(f):
    s = state()
    return te.scan(first(2), update(f, s), s, name="out")


def _stage(f, shape=(T, N)):
    s = state()
    stage = te.compute(shape, lambda t, i: s[t - 1, i] * 2, name="stage")
    return te.scan(first(), update(lambda _, t, i: f(stage, t, i), s), s, name="out")


def _nested():
    s, r = state(), state(name="r")
    inner = te.scan(first(), update(lambda r, t, i: r[t - 1, i] + s[t - 1, i], r, name="u"), r)
    return te.scan(first(), update(lambda _, t, i: inner[t, i], s), s, name="out")


def _new_value_of_the_step_before():
    a, b = state(name="a"), state(name="b")
    ua = update(lambda a, t, i: a[t - 1, i], a, name="ua")
    ub = update(lambda b, t, i: b[t - 1, i] + ua[t - 1, i], b, name="ub")
    return te.scan([first()] * 2, [ua, ub], [a, b], name="out")


def _init_reads_the_state():
    s = state()
    init = te.compute((1, N), lambda t, i: s[0, i], name="init")
    return te.scan(init, update(lambda s, t, i: s[t - 1, i], s), s, name="out")


def _lengths():
    a, b = state(name="a"), state(name="b")
    ups = [update(lambda s, t, i: s[t - 1, i], s, name=s.name + "u") for s in (a, b)]
    return te.scan([first(1), first(2)], ups, [a, b], name="out")


def plain(init=None, shape=(T, N), s=None, u=None, dtype=F32):
    s = te.placeholder(shape, name="s", dtype=dtype) if s is None else s
    u = te.compute(shape, lambda *i: s[i[0] - 1, *i[1:]], name="u") if u is None else u
    return te.scan(first() if init is None else init, u, s, name="out")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: scan_of(lambda s, t, i: s[t, i]),
            "stage step of scan out reads the state s[t, i] at the current step",
        ),
        (lambda: scan_of(lambda s, t, i: s[t + 2, i]), "at the future step t + 2"),
        (
            lambda: scan_of(lambda s, t, i: s[t - 3, i]),
            "3 steps back, and init gives only the first 2; expected s[t - d, …] with d from 1",
        ),
        (lambda: scan_of(lambda s, t, i: s[i, i]), "reads the state s[i, i] at step i"),
        (lambda: scan_of(lambda s, t, i: s[t // 2, i]), "at step t // 2"),
        (lambda: _stage(lambda m, t, i: m[t - 1, i]), "only states are kept from step to step"),
        (lambda: _stage(lambda m, t, i: m[i, t], (N, T)), "its first axis must be the step"),
        (_nested, "scans do not nest"),
        (_new_value_of_the_step_before, "read its state a there"),
        (_init_reads_the_state, "the init init of scan out reads a state"),
        (_lengths, "the inits of scan out give [1, 2] steps"),
        (lambda: plain(first(T)), "the init of scan out gives 6 of 6 steps; nothing is left"),
        (lambda: plain(X), "gives 6 of 6 steps"),
        (lambda: plain(shape=(T, N, 1)), "has shape (1, 4); expected (k, 4, 1)"),
        (lambda: plain(dtype="float64"), "the init first of scan out has dtype float32"),
        (lambda: plain(u=first(2)), "the update first of scan out has shape (2, 4)"),
        (lambda: plain(u=X), "the update X of scan out is not made by te.compute"),
        (lambda: plain(s=first(2)), "the state first of scan out is computed"),
        (lambda: te.scan([first()], [], [state()]), "1 inits, 0 updates and 1 states"),
        (lambda: te.scan(first(), 3, state()), "update of scan scan holds 3; expected a Tensor"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(TensorExprError, match=re.escape(message)):
        make()


def _used(use):
    s = state()
    stage = te.compute((T, N), lambda t, i: s[t - 1, i] * 2, name="stage")
    step = te.compute((T, N), lambda t, i: stage[t, i] + X[t, i], name="step")
    out = te.scan(first(), step, s, name="out")
    return te.create_prim_func(use(s, stage, step, out))


def _copy(t, out):
    both = te.compute((T, N), lambda i, j: t[i, j] + out[i, j], name="both")
    return [X, both]


def _two_scans(s, stage, step, out):
    again = te.scan(first(), step, s, name="again")
    return [X, out, again]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s, stage, step, out: [X, s, out], "s stands for the result of scan out"),
        (lambda s, stage, step, out: [X, stage, out], "uses stage, which lives inside scan out"),
        (lambda s, stage, step, out: _copy(s, out), "both uses s, which lives inside scan out"),
        (lambda s, stage, step, out: _copy(step, out), "both uses step, which lives inside"),
        (_two_scans, "is a stage of scan out and of scan again"),
        (lambda s, stage, step, out: [out], "reads the placeholder X, which is not a parameter"),
    ],
)
def test_refused_uses(use, message):
    with pytest.raises(TensorExprError, match=re.escape(message)):
        _used(use)

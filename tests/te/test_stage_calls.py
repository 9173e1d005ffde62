"""What the calls of the stage view mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from stage_cases import CASES, Case, example
from test_stage_view import meaning

import autosched as at
from autosched import te
from autosched.errors import ScheduleError
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, loops_of, site_of, sites


def extents(func: PrimFunc, block: str) -> list[int]:
    return [int(x.extent) for x in site_of(func, block).loops]


def test_split_by_factor_and_by_parts_cover_an_uneven_extent() -> None:
    a = te.placeholder((10,), name="A")
    b = te.compute((10,), lambda i: a[i] + 1.0, name="B")
    for options, wanted in (
        ({"factor": 4}, [3, 4]),
        ({"nparts": 4}, [4, 3]),
        ({"factor": 16}, [1, 16]),
    ):
        s = te.create_schedule(b.op)
        outer, inner = s[b].split(b.op.axis[0], **options)
        assert [outer.extent, inner.extent] == wanted
        assert extents(s.replay([a, b]).func, "B") == wanted


def test_split_inside_a_consumer_counts_what_is_needed_there() -> None:
    e = example()
    xo, _ = e.s[e.d].split(e.d.op.axis[0], factor=4)
    e.s[e.c].compute_at(e.s[e.d], xo)
    e.s[e.c].split(e.c.op.axis[0], nparts=2)
    # Two parts of the four rows that one iteration needs, not of all eight.
    assert extents(e.s.replay(e.args).func, "C") == [2, 2, 2, 8, 12]


def test_compute_at_may_come_before_the_splits_of_the_producer() -> None:
    texts = []
    for first in True, False:
        e = example()
        xo, _ = e.s[e.d].split(e.d.op.axis[0], factor=4)
        if first:
            e.s[e.c].compute_at(e.s[e.d], xo)
        ko, ki = e.s[e.c].split(e.k, factor=3)
        e.s[e.c].reorder(ko, *e.c.op.axis, ki)
        if not first:
            e.s[e.c].compute_at(e.s[e.d], xo)
        texts.append(e.s.replay(e.args).func.script())
    assert texts[0] == texts[1]


def test_compute_root_takes_back() -> None:
    e = example()
    plain = te.create_schedule(e.d.op).replay(e.args).func.script()
    e.s[e.c].compute_at(e.s[e.d], e.d.op.axis[0])
    e.s[e.p].compute_inline()
    assert e.s.replay(e.args).func.script() != plain
    e.s[e.c].compute_root()
    e.s[e.p].compute_root()
    assert e.s.replay(e.args).func.script() == plain


def test_axes_of_new_stages() -> None:
    e = example()
    cl = e.s.cache_write(e.c, "local")
    assert [x.name for x in e.s[cl].op.axis] == ["i.c", "j.c"]
    assert e.s[cl].op.reduce_axis == (e.k,)
    assert e.s[e.c].op.axis == e.c.op.axis
    assert e.s[e.c].op.reduce_axis == ()
    _, ki = e.s[cl].split(e.k, factor=5)
    cf = e.s.rfactor(cl, ki, factor_axis=1)
    assert cf.shape == (8, 5, 8)
    assert [x.name for x in e.s[cf].op.reduce_axis] == ["k.outer"]
    assert [x.extent for x in e.s[cl].op.reduce_axis] == [5]
    pc = e.s.cache_read(e.p, "global", cf)
    names = [stage.name for stage in e.s.stages]
    assert names == ["A", "P", "P_global", "C_local_rf", "C_local", "C", "D"]
    assert e.s.readers(e.s[pc]) == [e.s[cf]]
    sch = e.s.replay(e.args)
    assert {s.block.name for s in sites(sch.func)} >= {"P", "D", "P_global"}


@pytest.mark.parametrize("factor_axis", [0, 1, -1])
@pytest.mark.parametrize("inside", [False, True])
def test_loops_of_partial_results_are_those_of_their_axes(factor_axis: int, inside: bool) -> None:
    a = te.placeholder((3, 30, 7), name="A")
    k = te.reduce_axis((0, 30), "k")
    b = te.compute((3, 7), lambda i, j: te.sum(a[i, k, j], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, ki = s[b].split(k, factor=5)
    bf = s.rfactor(b, ki, factor_axis)
    lane, i, j = bf.shape.index(5), bf.shape.index(3), bf.shape.index(7)
    axis = s[bf].op.axis
    s[bf].reorder(*s[bf].op.reduce_axis, axis[j], axis[lane], axis[i])
    s[bf].unroll(axis[i])
    if inside:
        s[bf].compute_at(s[b], s[b].op.axis[0])
    loops = site_of(s.replay([a, b]).func, "B_rf").loops[-4:]
    assert [x.extent for x in loops] == [6, 7, 5, 1 if inside else 3]
    assert loops[3].kind == "unrolled"


def test_pragma_annotates_the_loop_and_scope_the_buffer() -> None:
    e = example()
    e.s[e.d].pragma(e.d.op.axis[0], "auto_unroll_max_step", 16)
    e.s[e.d].pragma(e.d.op.axis[1], "unroll_explicit")
    e.s[e.c].set_scope("local")
    func = e.s.replay(e.args).func
    x, y = site_of(func, "D").loops
    assert (dict(x.annotations), dict(y.annotations)) == (
        {"auto_scheduler_auto_unroll_max_step": 16},
        {"auto_scheduler_unroll_explicit": True},
    )
    assert site_of(func, "C").block.writes[0].buffer.scope == "local"


def _bound(parts: int) -> PrimFunc:
    e = example()
    x, y = e.s[e.d].op.axis
    xo, xi = e.s[e.d].split(x, nparts=parts)
    yo, yi = e.s[e.d].split(y, factor=4)
    e.s[e.d].bind(xo, te.thread_axis("blockIdx.x"))
    e.s[e.d].bind(xi, te.thread_axis((0, 2), "vthread", name="vx"))
    e.s[e.d].bind(yo, te.thread_axis("vthread"))
    e.s[e.d].bind(yi, te.thread_axis(4, "threadIdx.x"))
    return e.s.replay(e.args).func


def test_thread_axes() -> None:
    loops = site_of(_bound(4), "D").loops
    assert [x.thread for x in loops] == ["blockIdx.x", "vthread.x", "vthread.y", "threadIdx.x"]
    with pytest.raises(
        ScheduleError, match=r"s\[D\].bind\(x.inner, vthread\): .* has 4 iterations"
    ):
        _bound(2)


def test_parameters_are_chosen_by_args() -> None:
    e = example()
    assert [b.name for b in e.s.replay().func.params] == ["A", "D"]
    lowered = at.lower(e.s, [e.d, e.c, e.a], simple_mode=True)
    assert [b.name for b in lowered.params] == ["D", "C", "A"]
    assert at.lower(e.s, e.args, name="twice").name == "twice"
    x = np.arange(96, dtype="float32").reshape(8, 12) % 7
    d, c = np.zeros((8, 8), "float32"), np.zeros((8, 8), "float32")
    at.build(e.s, [e.d, e.c, e.a], name="twice")(d, c, x)
    np.testing.assert_array_equal(c, (x + 1) @ (x + 1).T)
    np.testing.assert_array_equal(d, 2 * c)


@pytest.mark.parametrize("make", CASES, ids=lambda f: f.__name__)
def test_operations_of_stages_say_what_is_computed(make: Callable[[], Case]) -> None:
    case = make()
    outputs = [t for t in case.args if t.op.input_tensors]
    now = {
        id(t): te.Tensor(t.name, t.shape, t.dtype, case.schedule[t].op, t.value_index)
        for t in outputs
    }
    func = te.create_prim_func([now.get(id(t), t) for t in case.args])
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, t.shape).astype(t.dtype) for t in case.args]
    wanted = meaning(case, func, arrays)
    interp.run(func, arrays)
    found = [a for a, t in zip(arrays, case.args, strict=True) if t.op.input_tensors]
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)


def test_a_fused_loop_inside_a_consumer_has_the_iterations_needed_there() -> None:
    e = example()
    xo, _ = e.s[e.d].split(e.d.op.axis[0], factor=3)
    e.s[e.c].compute_at(e.s[e.d], xo)
    e.s[e.c].fuse(*e.c.op.axis)
    func = e.s.replay(e.args).func
    assert extents(func, "C") == [3, 24, 12]
    assert len(list(loops_of(func))) == 7


def test_storage_align_is_that_of_the_dimension_of_an_axis() -> None:
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((6, 8), lambda i, j: b[j, i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[b].storage_align(b.op.axis[0], 8, 1)
    func = s.replay([a, c]).func
    (write,) = site_of(func, "B").block.writes
    assert write.buffer.align == ((0, 8, 1),)
    x, out = np.arange(48, dtype="float32").reshape(8, 6), np.zeros((6, 8), "float32")
    at.build(s, [a, c])(x, out)
    assert np.array_equal(out, (x + 1).T * 2)
    outer, _ = s[b].split(b.op.axis[0], factor=4)
    with pytest.raises(
        ScheduleError, match=r"expected an axis of B as it was computed, one of i, j"
    ):
        s[b].storage_align(outer, 8)
    with pytest.raises(ScheduleError, match="is an output of the schedule"):
        s[c].storage_align(c.op.axis[0], 8)
    s[b].storage_align(b.op.axis[1], 8)
    with pytest.raises(ScheduleError, match="axis is one before the last"):
        s.replay([a, c])


def test_arguments_in_another_layout() -> None:
    e = example()
    e.s[e.a].transform_layout(lambda i, j: (j, i), parameters=True)
    e.s[e.d].transform_layout(lambda i, j: (i // 4, j, i % 4), parameters=True)
    x, out = np.arange(96, dtype="float32").reshape(8, 12) % 7, np.zeros((2, 8, 4), "float32")
    at.build(e.s, e.args)(np.ascontiguousarray(x.T), out)
    expected = 2 * (x + 1) @ (x + 1).T
    np.testing.assert_array_equal(out, expected.reshape(2, 4, 8).transpose(0, 2, 1))


def test_stages_by_tensor_and_by_operation() -> None:
    e = example()
    cached = e.s.cache_write(e.c, "local")
    stages = e.s.stage_map
    assert stages[e.c] is stages[e.c.op] is stages[e.s[e.c].op] is e.s[e.c]
    assert stages[cached] is e.s[cached]
    assert {s.name for s in stages.values()} == {s.name for s in e.s.stages}
    assert "C" not in stages
    assert te.placeholder((2,)) not in stages


TILE = """
@T.prim_func
def tile(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32"), C: T.Buffer((4, 4), "int32")):
    for {loops} in T.grid(4, 4, 4):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


@pytest.fixture(scope="module")
def tile() -> at.TensorIntrin:
    return at.TensorIntrin.register(
        "stage_4x4x4", TILE.format(loops="i, j, k"), TILE.format(loops="k, i, j")
    )


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_tensorize_initialises_before_the_first_loop_that_reduces(
    tile: at.TensorIntrin, by_name: bool, inside: bool
) -> None:
    a, b = (te.placeholder((16, 16), "int32", name) for name in "AB")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((16, 16), lambda x, y: te.sum(a[x, k] * b[k, y], axis=k), name="C")
    d = te.compute((16, 16), lambda x, y: c[x, y] + 1, name="D")
    s = te.create_schedule(d)
    outer, _ = s[d].split(d.op.axis[0], 8)
    if inside:
        s[c].compute_at(s[d], outer)
        s[d].parallel(outer)
    xo, yo, xi, yi = s[c].tile(*c.op.axis, 4, 4)
    ko, ki = s[c].split(k, 4)
    s[c].reorder(xo, yo, ko, xi, yi, ki)
    s[c].tensorize(xi, tile.name if by_name else tile)
    s[c].transform_layout(lambda i, j: (i // 4, j // 4, i % 4, j % 4))
    func = s.replay([a, b, d]).func
    assert [x.extent for x in site_of(func, "C").loops[-4:]] == [4, 4, 4, 4]
    assert "C_init" in {x.block.name for x in sites(func)}
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (16, 16)).astype(np.int32) for _ in range(2))
    out = np.zeros((16, 16), np.int32)
    at.build(func)(x, y, out)
    np.testing.assert_array_equal(out, x @ y + 1)
    with pytest.raises(ScheduleError, match="has its tensorize already"):
        s[c].split(xi, 2)

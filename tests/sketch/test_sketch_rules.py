"""Sketches: which structures a program gets, and that every one computes what the program says."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from rule_programs import (
    PROGRAMS,
    bodies,
    column_sum,
    row_norms,
    scores,
)

from autosched import te
from autosched.codegen.build import build_artifact, generate_ir
from autosched.runtime.function import Function
from autosched.schedule import Schedule
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space, generate_states
from autosched.sketch.reference import reference_schedule
from autosched.sketch.state import State, Verdict
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.tir.expr import Expr
from autosched.tir.nodes import PrimFunc, loops_of, outputs_of, site_of, sites
from autosched.workloads import prim_func_of

TARGET = Target("llvm -num-cores=2")
WIDE = Target("llvm -mcpu=x86-64-v4 -num-cores=2")


def run(func: PrimFunc, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Results of a program on copies of `inputs`, poisoned first."""
    arrays = [a.copy() for a in inputs]
    outputs = {b.name for b in outputs_of(func)}
    for a, b in zip(arrays, func.params, strict=True):
        if b.name in outputs:
            a[...] = np.nan if a.dtype.kind == "f" else -77
    Function(build_artifact(func, TARGET))(*arrays)
    return [a for a, b in zip(arrays, func.params, strict=True) if b.name in outputs]


def random_arrays(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    # Errors of a recurrence grow from step to step if it multiplies with large weights.
    recurrent = any(it.kind == "sequential" for s in sites(func) for it in s.block.iters)
    return [
        rng.integers(-4, 5, b.shape).astype(b.dtype)
        if b.dtype.startswith("int")
        else np.asarray(rng.standard_normal(b.shape) * (0.1 if recurrent else 1.0), b.dtype)
        for b in func.params
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_structure_computes_what_the_program_says(program: str) -> None:
    func = PROGRAMS[program]()
    arrays = random_arrays(func)
    want = run(func, arrays)
    space = generate_space(func, TARGET)
    drawn = space.sample(np.random.default_rng(0), 64)
    firsts = [int(np.flatnonzero(drawn.variant == v)[0]) for v, _ in drawn.groups()][:4]
    schedules = [default_schedule(func, TARGET)]
    schedules += [space.schedule(*space.candidate(drawn, row)) for row in firsts]
    for schedule in schedules:
        for found, expected in zip(run(schedule.func, arrays), want, strict=True):
            np.testing.assert_allclose(
                found, expected, rtol=1e-3, atol=1e-4, err_msg=str(schedule.trace)
            )


@pytest.mark.parametrize("program", ["cumsum", "rnn of a batch", "lstm", "two_states", "softmax"])
def test_the_reference_schedule_changes_no_bit(program: str) -> None:
    func = PROGRAMS[program]()
    arrays = random_arrays(func)
    done = reference_schedule(func, TARGET).func
    assert any(loop.kind == "vectorized" for loop in loops_of(done))
    for found, expected in zip(run(done, arrays), run(func, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_recurrences_go_apart_where_they_can() -> None:
    """Columns of a running sum, rows of a batch; the one row of a cell stays step by step."""
    assert choices(prim_func_of("cumsum", (64, 1024)))[0] == ("step.apart",)
    assert "step.apart.packed" in choices(PROGRAMS["lstm"]())[0]
    large = prim_func_of("rnn", (30, 1, 256, 256))
    assert {c[0] for c in choices(large)} == {
        "step.shared.packed", "step.shared", "step.one.packed", "step.one",
    }  # fmt: skip


@pytest.mark.parametrize("batch", [1, 6])
def test_what_a_step_reduces_is_computed_once(batch: int) -> None:
    """A product of what another product made of all columns, in one step: GRU's own order. Blocks
    that reach over the end are at most as many again."""
    func = gated(3, batch, 512)
    space = generate_space(func, TARGET)
    drawn = space.sample(np.random.default_rng(0), 16)
    firsts = [int(np.flatnonzero(drawn.variant == v)[0]) for v, _ in drawn.groups()]
    arrays = random_arrays(func)
    want = run(func, arrays)
    for schedule in [default_schedule(func, TARGET), *(
        space.schedule(*space.candidate(drawn, row)) for row in firsts
    )]:  # fmt: skip
        for site in sites(schedule.func):
            if site.block.name in ("first", "reset", "second"):
                points = prod(int(i.extent) for i in site.block.iters)
                assert prod(int(x.extent) for x in site.loops) <= 2 * points, site.block.name
        for found, expected in zip(run(schedule.func, arrays), want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def gated(steps: int, batch: int, width: int) -> PrimFunc:
    """h[t] = x[t] + (sigmoid(h[t - 1] w) * h[t - 1]) u."""
    x = te.placeholder((steps + 1, batch, width), "float32", "x")
    w, u = (te.placeholder((width, width), "float32", n) for n in "wu")
    h = te.placeholder((steps + 1, batch, width), "float32", "h")

    def product(left: Any, right: Any, name: str) -> Any:
        k = te.reduce_axis((0, width), "k")
        return te.compute(
            h.shape, lambda t, n, j: te.sum(left(t, n, k) * right(k, j), axis=k), name=name
        )

    first = product(lambda t, n, k: h(t - 1, n, k), w, "first")
    reset = te.compute(h.shape, lambda t, n, j: te.sigmoid(first(t, n, j)) * h(t - 1, n, j),
                       name="reset")  # fmt: skip
    second = product(reset, u, "second")
    step = te.compute(h.shape, lambda *at: x(*at) + second(*at), name="step")
    start = te.compute((1, batch, width), lambda t, n, j: x(0, n, j), name="start")
    return create_prim_func([x, w, u, te.scan(start, step, h, name="out")])


def names(func: PrimFunc) -> list[str]:
    return [v.name for v in generate_space(func, TARGET).variants]


def choices(func: PrimFunc) -> list[tuple[str, ...]]:
    return [s.choices for s in generate_states(func, TARGET)]


def test_matmul_with_a_consumer_is_fused_and_packs_its_operands() -> None:
    assert names(prim_func_of("matmul_add", (64, 64, 64))) == [
        "matmul.fused",
        "matmul.fused+B.root",
        "matmul.fused+B.thread",
        "matmul.fused+A.thread",
        "matmul.fused+A.thread+B.root",
        "matmul.fused+A.thread+B.thread",
    ]


@pytest.mark.parametrize("by_head", [False, True])
def test_a_part_of_a_row_is_packed(by_head: bool) -> None:
    """That which vectors would gather: the second of three parts."""
    func = scores(64, 4, 16, by_head)
    choices = {name.split("+Q")[0] for name in names(func)}
    assert {"S+X.root", "S+X.thread", "S"} <= choices
    assert any("packed" in s.block.name for s in sites(default_schedule(func, TARGET).func))


def test_groups_are_an_axis_of_their_own() -> None:
    space = generate_space(prim_func_of("conv2d", (28, 28, 64, 64, 3, 1, 1, 1, 4)), TARGET)
    population = space.sample(np.random.default_rng(0), 256)
    for variant, rows in population.groups():
        # Raises NotBatchable where candidates fall apart into batches of their own.
        func = space.replay(variant, space.decisions(variant, population, rows))
        assert len(site_of(func, "conv2d").block.iters) == 7


@pytest.mark.parametrize(("channels", "groups"), [(32, 8), (40, 5), (42, 7), (48, 16)])
def test_groups_of_few_channels_share_vectors(channels: int, groups: int) -> None:
    target = Target("llvm -mcpu=znver5 -num-cores=2")
    func = prim_func_of("conv2d", (12, 12, channels, channels, 3, 1, 1, 1, groups))
    ir = generate_ir(default_schedule(func, target).func, target).ir
    assert "fma.v16f32" in ir
    assert "gather" not in ir


def test_few_costly_results_beside_each_other_have_vectors_across() -> None:
    assert choices(bodies(53))[0] == ("force.across",)
    assert ("force",) in choices(bodies(53))
    assert "fma.v16f32" in generate_ir(default_schedule(bodies(53), WIDE).func, WIDE).ir
    # Rows that fill half a vector, too few bodies, and sums of products stay as they lie.
    for func in (bodies(53, 8), bodies(15), prim_func_of("matmul", (53, 53, 3))):
        assert not any("across" in name for name in names(func))


def test_few_long_reductions_are_cut_into_pieces_for_the_threads() -> None:
    names = choices(row_norms(3, 20_000))
    assert names[0] == ("squares.rfactor.outer",)
    assert () in names
    assert choices(row_norms(3000, 20_000)) == [()]
    assert choices(row_norms(3, 20)) == [()]


def test_a_reducer_without_lanes_keeps_partial_results_in_vectors() -> None:
    names = choices(prim_func_of("argmax", (700, 1000)))
    assert names == [("argmax.rfactor.inner",), ()]


def test_padding_has_three_places_and_weights_are_packed() -> None:
    found = names(prim_func_of("conv2d", (16, 16, 8, 32, 3, 1, 1)))
    for place in ("inline", "thread", "root"):
        for packing in ("", "+weight.root", "+weight.thread"):
            assert f"conv2d{packing}+pad.{place}" in found
    assert not any("data." in n for n in found)  # a halo is no panel


@pytest.mark.parametrize(
    ("size", "stride", "place"), [(56, 1, "thread"), (28, 1, "inline"), (28, 2, "thread")]
)
def test_padding_along_the_vectors_is_stored_where_lanes_would_need_masks(
    size: int, stride: int, place: str
) -> None:
    """Not where one tile spans the rows of an image."""
    x, w = te.placeholder((16, size, size), name="X"), te.placeholder((32, 16, 3, 3), name="W")
    c, r, q = (te.reduce_axis((0, n), name=a) for a, n in (("c", 16), ("r", 3), ("q", 3)))
    pad = te.compute(
        (16, size + 2, size + 2),
        lambda o, i, j: te.if_then_else(
            te.all(i >= 1, i < size + 1, j >= 1, j < size + 1),
            x[o, i - 1, j - 1],
            0.0,
        ),
        name="pad",
    )
    conv = te.compute(
        (32, size // stride, size // stride),
        lambda o, i, j: te.sum(
            pad[c, i * stride + r, j * stride + q] * w[o, c, r, q], axis=[c, r, q]
        ),
        name="conv",
    )
    first = generate_space(create_prim_func([x, w, conv]), WIDE).variants[0]
    assert first.name == f"conv+pad.{place}"


def test_padding_across_the_vectors_is_inlined() -> None:
    found = generate_space(prim_func_of("conv2d", (56, 56, 16, 64, 3, 2, 1)), WIDE)
    assert found.variants[0].name == "conv2d+pad.inline"


def test_softmax_rows_are_fused_under_one_parallel_loop() -> None:
    func = default_schedule(prim_func_of("softmax", (512, 1024)), TARGET).func
    (root,) = func.body
    assert [s.block.name for s in sites(root)] == ["maxelem", "exp", "expsum", "softmax"]
    assert next(loops_of(func)).kind == "parallel"
    kinds = [x.kind for x in site_of(func, "expsum").loops]
    assert kinds[-2:] == ["unrolled", "vectorized"]


def test_a_long_row_is_summed_while_its_exponentials_are_computed() -> None:
    """Piece by piece, while a piece is in the first cache; a row that is there anyway is not."""
    for columns, shared in ((32_768, 2), (1024, 1)):
        func = default_schedule(prim_func_of("softmax", (16, columns)), TARGET).func
        exp, total = (site_of(func, name).loops for name in ("exp", "expsum"))
        assert sum(x in total for x in exp if x.extent != 1) == shared


def test_blocks_of_few_long_rows_run_apart() -> None:
    assert choices(prim_func_of("softmax", (1, 1000))) == [()]
    rows = choices(prim_func_of("softmax", (1, 100_000)))
    apart = ("softmax.apart", "expsum.rfactor.outer", "exp.apart", "maxelem.rfactor.outer")
    assert rows[0] == apart  # threads share the row
    assert () in rows
    alone = default_schedule(prim_func_of("softmax", (1, 100_000)), Target("llvm -num-cores=1"))
    assert len(alone.func.body) == 1  # one thread: no reason to run the blocks apart
    assert choices(prim_func_of("softmax", (64, 100_000)))[0][:1] != ("softmax.apart",)


def test_large_results_may_be_streamed() -> None:
    assert any("streaming" in n for n in names(prim_func_of("softmax", (16384, 1024))))
    assert not any("streaming" in n for n in names(prim_func_of("softmax", (64, 64))))


def test_tiles_of_results_that_no_cache_holds_are_streamed() -> None:
    rows = TARGET.l3_bytes // (1024 * 4)
    for count, streamed in ((rows, False), (rows + 1, True)):
        func = prim_func_of("matmul_add", (count, 8, 1024))
        assert any("streaming" in n for n in names(func)) == streamed
        site = site_of(default_schedule(func, TARGET).func, "out")
        assert bool(site.block.annotation("streaming", False)) == streamed


@pytest.mark.parametrize(
    ("depth", "window", "small"), [(16, 1, True), (2048, 1, False), (2, 3, False)]
)
def test_tiles_of_short_sums_stay_in_the_first_cache(depth: int, window: int, small: bool) -> None:
    """Until their consumer has read them; windows, and long sums, have tiles of more rows."""
    x = te.placeholder((8, 82, 82, depth), name="x")
    w = te.placeholder((window, window, depth, 96), name="w")
    r, q, c = (te.reduce_axis((0, n), name=a) for a, n in zip("rqc", w.shape[:3], strict=True))
    conv = te.compute(
        (8, 80, 80, 96),
        lambda n, i, j, o: te.sum(x[n, i + r, j + q, c] * w[r, q, c, o], axis=[r, q, c]),
        name="conv",
    )
    relu = te.compute(conv.shape, lambda *at: te.max(conv[at], 0), name="relu")
    site = site_of(default_schedule(create_prim_func([x, w, relu]), TARGET).func, "relu")
    stored = np.prod([loop.extent for loop in site.loops[-5:]]) * 4
    assert (stored <= TARGET.l1_bytes // 2) == small


def test_little_work_is_not_worth_threads() -> None:
    small = default_schedule(prim_func_of("softmax", (8, 16)), TARGET).func
    assert all(x.kind != "parallel" for x in loops_of(small))


def test_default_tiles_keep_all_cores_busy() -> None:
    many = Target("llvm -num-cores=16")
    func = default_schedule(prim_func_of("matmul_add", (1024, 1024, 1024)), many).func
    tasks = [x.extent for x in site_of(func, "matmul").loops if x.kind == "parallel"]
    assert np.prod(tasks) >= 64


def test_the_default_register_tile_holds_rows_that_share_their_vectors() -> None:
    """Of a convolution whose pixels are neighbours: filters, not lines of the image."""
    x, w = te.placeholder((16, 30, 30), name="X"), te.placeholder((32, 16, 3, 3), name="W")
    c, r, q = (te.reduce_axis((0, n), name=a) for a, n in (("c", 16), ("r", 3), ("q", 3)))
    conv = te.compute(
        (32, 28, 28),
        lambda o, i, j: te.sum(x[c, i + r, j + q] * w[o, c, r, q], axis=[c, r, q]),
        name="conv",
    )
    site = site_of(default_schedule(create_prim_func([x, w, conv]), WIDE).func, "conv")
    unrolled = {loop.var: int(loop.extent) for loop in site.loops if loop.kind == "unrolled"}
    copies = [
        np.prod([n for v, n in unrolled.items() if binding.uses([v])])
        for it, binding in zip(site.block.iters, site.block.bindings, strict=True)
        if it.kind == "spatial"
    ]
    assert copies == [8, 1, 1]


@pytest.mark.parametrize(("rows", "held"), [(131, 8), (14, 7), (64, 8), (9, 5)])
def test_rows_that_overhang_are_weighed_against_the_loads_that_rows_share(
    rows: int, held: int
) -> None:
    """A prime number of rows is no reason to compute one at a time."""
    site = site_of(default_schedule(prim_func_of("matmul", (rows, 128, 64)), WIDE).func, "C")
    (row,) = (x for x in site.loops if site.block.bindings[0].uses([x.var]) if x.kind == "unrolled")
    assert row.extent == held


def test_columns_are_reduced_in_vectors_where_another_reduction_feeds_them() -> None:
    """A mean is not computed column by column inside the variance."""
    a = te.placeholder((64, 48), name="A")
    k, r = te.reduce_axis((0, 64), name="k"), te.reduce_axis((0, 64), name="r")
    total = te.compute((48,), lambda j: te.sum(a[k, j], axis=k), name="total")

    def centred(j: Expr) -> Expr:
        return a[r, j] - total[j] * (1.0 / 64)

    v = te.compute((48,), lambda j: te.sum(centred(j) * centred(j), axis=r), name="v")
    func = default_schedule(create_prim_func([a, v]), WIDE).func
    assert [s.loops[-1].kind for s in sites(func)] == ["vectorized"] * 2


def test_short_windows_run_in_vectors_of_results() -> None:
    a = te.placeholder((8, 128), name="A")
    k = te.reduce_axis((0, 3), name="k")
    pool = te.compute((8, 63), lambda i, j: te.max(a[i, 2 * j + k], axis=k), name="pool")
    site = site_of(default_schedule(create_prim_func([a, pool]), WIDE).func, "pool")
    lanes = site.loops[-1]
    assert lanes.kind == "vectorized"
    assert site.block.bindings[1].uses([lanes.var])


class Untouched:
    """A custom rule that leaves one block as it is."""

    name = "untouched"

    def condition(self, state: State, block: str) -> Verdict:
        return Verdict.APPLY_AND_SKIP_REST if block == "S" else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        schedule: Schedule = state.fork()
        return [state.advance(schedule, (block,), choice="mine")]


def test_a_rule_of_the_users_own_goes_first() -> None:
    (state,) = generate_states(column_sum(100, 70), TARGET, [Untouched()])
    assert state.choices == ("mine",)
    assert all(x.kind == "serial" for x in loops_of(state.schedule.func))


@pytest.mark.parametrize(("columns", "once"), [(64, False), (512, True)])
def test_arithmetic_before_a_product_of_many_tiles_is_done_once(columns: int, once: bool) -> None:
    """Each of two tiles of columns computes its rows again, sixteen of them read what is stored."""
    a, b = te.placeholder((64, 256), name="A"), te.placeholder((256, 64), name="B")
    w = te.placeholder((64, columns), name="W")
    k = te.reduce_axis((0, 64), name="k")
    m = te.compute((256, 64), lambda i, d: a[d, i] * b[i, d], name="M")
    c = te.compute((256, columns), lambda i, j: te.sum(m[i, k] * w[k, j], axis=k), name="C")
    func = default_schedule(te.create_prim_func([a, b, w, c]), TARGET).func
    made = [s for s in sites(func) if s.block.name == "M"]
    assert len(made) == 1
    assert (prod(int(n.extent) for n in made[0].loops) == 256 * 64) == once


def test_a_sketch_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default schedule of a product needs one of its sketches."""
    made: list[State] = []
    advance = State.advance

    def counted(state: State, *args: Any, **kwargs: Any) -> State:
        made.append(advance(state, *args, **kwargs))
        return made[-1]

    monkeypatch.setattr(State, "advance", counted)
    func = prim_func_of("matmul", (64, 64, 64))
    (first,) = generate_states(func, TARGET, limit=1)
    assert made == [first]
    states = generate_states(func, TARGET)
    assert states[0].choices == first.choices
    assert len(made) >= len(states) > 1

"""Layout rewrite of weights: as a stage of the kernel, pre-transformed, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.codegen.build import build_artifact
from autosched.errors import ArgumentError, WorkloadError
from autosched.lowering.layout_rewrite import OPTION, option_of, split, transforms, with_option
from autosched.lowering.lower import lower
from autosched.schedule import Schedule
from autosched.search.analysis import analyse
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.tir.nodes import PrimFunc, sites
from autosched.workloads import prim_func_of
from measure.machine.kernel import Kernel
from measure.verify.verification import Guarded, param_bytes
from records import OK, TRIAL, open_records

NO, INSERT, PRE = at.LayoutRewriteOption
TARGET = "llvm -num-cores=2"


def packed_matmul(free: bool = True, n: int = 20, c: int = 24, m: int = 37) -> Schedule:
    """A product whose second operand is packed at the root, in panels of 8."""
    a, b = te.placeholder((n, c), name="A"), te.placeholder((c, m), name="B")
    k = te.reduce_axis((0, c), name="k")
    attrs = {"layout_free_placeholders": [b]} if free else {}
    out = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C", attrs=attrs)
    s = Schedule(create_prim_func([a, b, out]))
    panel = s.cache_read(s.get_block("C"), 1, "global", [[1, 8], [0], [1, 1, 8]])
    s.parallel(s.get_loops(panel)[0])
    i, j, k_ = s.get_loops(s.get_block("C"))
    outer, inner = s.split(j, [None, 8])
    s.reorder(outer, i, k_, inner)
    s.vectorize(inner)
    return s


def arrays(func: PrimFunc) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [tuple(int(n) for n in b.shape) for b in func.params]
    out = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    out[-1][...] = np.nan
    return out


def test_the_transform_stage_is_a_function_of_its_own() -> None:
    s = packed_matmul()
    (stage,) = transforms(s.func)
    assert (stage.weight.name, stage.packed.shape) == ("B", (5, 24, 8))
    kernel, prepare = split(s.func)
    assert [b.shape for b in kernel.params] == [(20, 24), (5, 24, 8), (20, 37)]
    assert [b.name for b in kernel.params] == ["A", "B", "C"]
    assert [x.block.name for x in sites(kernel)] == ["C"]
    assert [x.block.name for x in sites(prepare["B"])] == ["B_packed"]
    assert [b.shape for b in prepare["B"].params] == [(24, 37), (5, 24, 8)]


def test_prepared_weights_give_equal_results() -> None:
    s = packed_matmul()
    a, b, out = arrays(s.func)
    at.build(s, target=TARGET)(a, b, out)
    want = out.copy()
    np.testing.assert_allclose(want, a @ b, rtol=1e-4, atol=1e-5)
    func = at.build(s, target=TARGET, layout_rewrite=PRE)
    assert [p.shape for p in func.args] == [(20, 24), (5, 24, 8), (20, 37)]
    packed = func.prepare(b)
    expected = np.zeros((5, 24, 8), np.float32)
    for j in range(37):
        expected[j // 8, :, j % 8] = b[:, j]
    np.testing.assert_array_equal(packed, expected)
    for weights in (packed, func.prepare({"B": b})["B"], np.where(expected == 0, np.nan, packed)):
        out[...] = np.nan
        func(a, weights, out)  # what pads the panels is not used
        np.testing.assert_array_equal(out, want)


def test_unprepared_weights_are_refused() -> None:
    s = packed_matmul()
    a, b, out = arrays(s.func)
    func = at.build(s, target=TARGET, layout_rewrite=PRE)
    text = r"\(B\) of .* has shape \(24, 37\); expected \(5, 24, 8\).*as prepare\(\) of this"
    with pytest.raises(ArgumentError, match=text):
        func(a, b, out)
    with pytest.raises(ArgumentError, match=r"has shape \(37, 24\); expected \(24, 37\)"):
        func.prepare(np.ascontiguousarray(b.T))
    with pytest.raises(ArgumentError, match=r"'A' is no layout-free weight of main \(has B\)"):
        func.prepare({"A": a})


@pytest.mark.parametrize("option", [None, NO, INSERT])
def test_without_rewriting_a_weight_is_prepared_as_it_is(option: Any) -> None:
    s = packed_matmul()
    a, b, out = arrays(s.func)
    func = at.build(s, target=TARGET, layout_rewrite=option)
    assert func.prepare(b) is b
    func(a, func.prepare(b), out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)


def two_readers() -> Schedule:
    """A weight that is packed, and read by another block too."""
    w = te.placeholder((16, 16), name="W")
    a = te.placeholder((16, 16), name="A")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute(
        (16, 16),
        lambda i, j: te.sum(a[i, k] * w[k, j], axis=k),
        name="C",
        attrs={"layout_free_placeholders": [w]},
    )
    s = Schedule(
        create_prim_func([a, w, te.compute((16, 16), lambda i, j: c[i, j] + w[j, i], name="D")])
    )
    s.cache_read(s.get_block("C"), 1, "global", [[1, 8], [0], [1, 1, 8]])
    return s


def inside_a_loop() -> Schedule:
    s = packed_matmul()
    s.compute_at(s.get_block("B_packed"), s.get_loops(s.get_block("C"))[0])
    return s


def layout_that_is_the_callers() -> Schedule:
    return packed_matmul(free=False)


@pytest.mark.parametrize("make", [layout_that_is_the_callers, two_readers, inside_a_loop])
def test_what_cannot_leave_the_kernel_stays(make: Any) -> None:
    s = make()
    assert transforms(s.func) == []
    assert split(s.func) == (s.func, {})
    inputs = arrays(s.func)
    want = [x.copy() for x in inputs]
    at.build(s, target=TARGET)(*want)
    at.build(s, target=TARGET, layout_rewrite=PRE)(*inputs)
    np.testing.assert_array_equal(inputs[-1], want[-1])


def test_the_option_decides_which_sketches_there_are() -> None:
    def names(option: at.LayoutRewriteOption | None, *args: int) -> list[str]:
        task = at.SearchTask("matmul", args, target=TARGET, layout_rewrite_option=option)
        return [v.name for v in task.space.variants]

    assert names(None, 64, 64, 64) == names(INSERT, 64, 64, 64)
    assert "C+B.root" in names(None, 64, 64, 64)
    assert not any("B.root" in n for n in names(NO, 64, 64, 64))
    assert "C+B.thread" in names(NO, 64, 64, 64)
    # Packed beforehand costs nothing: first, even where nothing is read twice.
    assert names(PRE, 64, 64, 64)[:2] == ["C+B.root", "C"]
    assert "C+B.root" in names(PRE, 1, 64, 64)
    assert not any("B." in n for n in names(INSERT, 1, 64, 64))


def test_the_default_schedule_is_the_first_that_an_option_allows() -> None:
    """A recurrence packs its weights first; its first sketch without that is the default one."""
    task = at.SearchTask("rnn", (4, 2, 8, 8), layout_rewrite_option=NO)
    packed = at.SearchTask("rnn", (4, 2, 8, 8))
    assert transforms(default_schedule(packed.prim_func, packed.target).func)
    assert not transforms(default_schedule(task.prim_func, task.target).func)


def test_a_stage_of_the_program_is_no_choice_of_a_sketch() -> None:
    """Weights that are cast by a stage of their own, which is inlined later."""
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B", dtype="int8")
    cast = te.compute((16, 16), lambda i, j: te.cast(b[i, j], "float32") * 0.5, name="cast")
    k = te.reduce_axis((0, 16), name="k")
    attrs = {"layout_free_placeholders": [b]}
    out = te.compute(
        (16, 16), lambda i, j: te.sum(a[i, k] * cast[k, j], axis=k), name="C", attrs=attrs
    )
    func = with_option(create_prim_func([a, b, out]), NO)
    assert transforms(func)
    assert not transforms(default_schedule(func, Target(TARGET)).func)


def test_figures_leave_out_what_leaves_the_kernel() -> None:
    task = at.SearchTask("matmul", (64, 64, 64), target=TARGET, layout_rewrite_option=PRE)
    space = task.space
    sample = space.sample(np.random.default_rng(0), 16, np.array([0]))
    every = np.arange(len(sample))
    target = task.target
    batch = analyse(space.replay(0, space.decisions(0, sample, every)), target, len(sample))
    assert list(batch.blocks) == ["C"]
    assert not batch.packed_bytes.any()
    for row in range(len(sample)):
        alone = analyse(lower(space.schedule(*space.candidate(sample, row)).func), target)
        for name, column in batch.columns().items():
            np.testing.assert_allclose(column[row], alone.columns()[name][0], err_msg=name)


def test_artifacts_for_measuring_have_the_stages_beside_the_kernel() -> None:
    func = with_option(packed_matmul().func, PRE)
    artifact = build_artifact(func, at.Target(TARGET))
    assert [p.shape for p in artifact.info.params] == [(20, 24), (5, 24, 8), (20, 37)]
    assert [p.shape for p in artifact.given] == [(20, 24), (24, 37), (20, 37)]
    a, b, out = arrays(func)
    memory = [Guarded(p.name, param_bytes(p)) for p in artifact.given]
    for guarded, value in zip(memory, (a, b, out), strict=True):
        guarded.array(value.shape, "float32")[...] = value
    kernel = Kernel(artifact, memory, 2)
    for _ in range(2):
        kernel.call()
        found = memory[2].array(out.shape, "float32")
        np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)
        memory[1].poison()  # the weight itself is not read again
        memory[2].poison()
    assert not any(m.broken() for m in memory)


def test_tasks_with_other_options_are_other_workloads() -> None:
    def key(option: at.LayoutRewriteOption | None) -> str:
        task = at.SearchTask("matmul", (8, 8, 8), target=TARGET, layout_rewrite_option=option)
        return task.workload_key

    assert key(None) == key(INSERT)
    assert len({key(o) for o in at.LayoutRewriteOption}) == 3
    func = prim_func_of("matmul", (8, 8, 8))
    assert option_of(func) is INSERT
    assert [option_of(with_option(func, o)) for o in at.LayoutRewriteOption] == [NO, INSERT, PRE]
    assert with_option(with_option(func, PRE), INSERT).attrs == func.attrs
    wrong = PrimFunc("f", func.params, func.body, ((OPTION, 7),))
    with pytest.raises(WorkloadError, match="layout_rewrite of f is 7; expected 0, 1 or 2"):
        option_of(wrong)


def computed_weights(n: int, c: int, m: int) -> list[te.Tensor]:
    """A product with a function of the weights, which the program itself writes as a stage."""
    x, w = te.placeholder((n, c), name="X"), te.placeholder((c, m), name="W")
    k = te.reduce_axis((0, c), name="k")
    e = te.compute((c, m), lambda i, j: te.exp(w[i, j]), name="E")
    attrs = {"layout_free_placeholders": [w]}
    out = te.compute((n, m), lambda i, j: te.sum(x[i, k] * e[k, j], axis=k), name="O", attrs=attrs)
    return [x, w, out]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("matmul", (33, 40, 50)),
        ("conv2d", (8, 8, 8, 24, 3, 1, 1)),
        (computed_weights, (16, 24, 40)),
    ],
    ids=["matmul", "conv2d", "computed weights"],
)
def test_tuning_measures_and_hands_out_the_prepared_form(
    name: Any, args: tuple[int, ...], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    task = at.SearchTask(name, args, target="llvm", layout_rewrite_option=PRE)
    options = at.TuningOptions(
        num_measure_trials=12, measure_callbacks=[at.RecordToFile(log)], verbose=0
    )
    task.tune(options)
    with open_records(log) as source:
        trials = source.records(kind=TRIAL)
    assert {r.status for r in trials} == {OK}
    schedule, params = task.apply_best(log)
    func = at.build(schedule, params, task.target)
    inputs = arrays(task.prim_func)
    want = [x.copy() for x in inputs]
    at.build(task.prim_func, target=task.target, layout_rewrite=INSERT)(*want)
    (weight,) = func.layout_free
    place = [p.name for p in func.args].index(weight)
    inputs[place] = func.prepare(inputs[place])
    func(*inputs)
    np.testing.assert_allclose(inputs[-1], want[-1], rtol=1e-3, atol=1e-4)
    space = task.space
    drawn = space.sample(np.random.default_rng(0), 32)
    every = (space.schedule(*space.candidate(drawn, n)).func for n in range(32))
    assert any([t.weight.name for t in transforms(f)] == [weight] for f in every)


def test_exported_with_what_prepares_its_weights(tmp_path: Path) -> None:
    func = at.build(packed_matmul(), target=TARGET, name="product", layout_rewrite=PRE)
    func.export(tmp_path / "product")
    header = (tmp_path / "product.h").read_text()
    assert "product(" in header
    assert "product_prepare_B(" in header

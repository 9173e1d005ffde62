"""Operators as routines: compiled models compute what NumPy does, and stop where it raises."""

from __future__ import annotations

import ctypes
import errno
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import graph, te
from autosched.graph import op
from autosched.graph.ops.routines import ALONE, first_long
from autosched.tir.routine import Routine
from autosched.tir.run_routine import run_routine

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"]
HOW = ["none", "add", "mul", "max", "min"]


def built(
    name: str, arrays: list[np.ndarray], outputs: int = 1, **attrs: Any
) -> tuple[graph.CompiledModel, Any]:
    """A model of one operator, without any in NumPy, and its module."""
    given = [graph.var(f"x{n}", a.shape, a.dtype.name) for n, a in enumerate(arrays)]
    made = getattr(op, name)(*given, outputs=outputs, **attrs)
    module = graph.module(main=graph.function(given, tuple(made) if outputs > 1 else made))
    model = graph.build(module)
    assert model.host_operators == () or any(a.size == 0 for a in arrays)
    return model, module


def same(name: str, arrays: list[np.ndarray], outputs: int = 1, **attrs: Any) -> None:
    model, module = built(name, arrays, outputs, **attrs)
    expected = graph.evaluate(module, "main", *arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(model(*arrays), expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different values, so that many are equal; NaN among floats."""
    found = rng.integers(-3, 4, shape)
    if dtype.startswith("float"):
        with_nan = np.where(rng.random(shape) < 0.1, np.nan, found / 3)
        return np.asarray(with_nan, dtype)
    return np.asarray(
        found % 2 if dtype == "bool" else found & 127 if dtype[0] == "u" else found, dtype
    )


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_scatter_elements(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    few = tuple(
        data.draw(st.integers(0, 7 if d == axis % len(shape) else n)) for d, n in enumerate(shape)
    )
    dtype, how = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(HOW))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    at = rng.integers(-shape[axis], shape[axis], few).astype(data.draw(st.sampled_from("il")))
    arrays = [values(rng, shape, dtype), at, values(rng, few, dtype)]
    same("scatter_elements", arrays, axis=axis, reduction=how)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_scatter_nd(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    width = data.draw(st.integers(1, len(shape)))
    lead = tuple(data.draw(st.lists(st.integers(0, 4), max_size=2)))
    dtype, how = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(HOW))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    at = np.stack([rng.integers(-n, n, lead) for n in shape[:width]], -1)
    arrays = [values(rng, shape, dtype), at, values(rng, (*lead, *shape[width:]), dtype)]
    same("scatter_nd", arrays, reduction=how)


def test_scatter_nd_of_one_element(rng: np.random.Generator) -> None:
    """A row of indices alone, as `out[n] = value` of a loop is exported."""
    new = np.array(7, "float32")
    same("scatter_nd", [values(rng, (3, 4), "float32"), np.array([2, -1]), new])


@pytest.mark.parametrize("extent", [1, 2, 3, 4, 5, 8])
def test_compiling_prints_nothing(extent: int, capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM tells of loops that it is asked to make vectors of and cannot; users read that."""
    arrays = [np.zeros((3, extent), "float32"), np.array([[1, 0]]), np.ones(1, "float32")]
    built("scatter_nd", arrays)
    assert capfd.readouterr().err == ""


LARGE: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], int]] = {
    "rows": ("scatter_nd", (100, 256), (400, 1), 0),
    "rows of a batch": ("scatter_nd", (3, 40, 4, 96), (90, 2), 0),
    "columns": ("scatter_elements", (64, 512), (70, 512), 0),
    "last axis": ("scatter_elements", (8, 9, 512), (8, 9, 300), 2),
    "middle axis": ("scatter_elements", (1, 40, 512), (1, 90, 512), 1),
}


@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("how", HOW)
def test_threads_share_large_scatters(case: str, how: str, rng: np.random.Generator) -> None:
    name, shape, few, axis = LARGE[case]
    if name == "scatter_nd":
        at = np.stack([rng.integers(-n, n, few[:-1]) for n in shape[: few[-1]]], -1)
        new, attrs = (*few[:-1], *shape[few[-1] :]), {}
    else:
        at, new = rng.integers(-shape[axis], shape[axis], few), few
        attrs = {"axis": axis}
    arrays = [rng.standard_normal(s).astype("f4") for s in (shape, new)]
    same(name, [arrays[0], at, arrays[1]], reduction=how, **attrs)
    model, _ = built(name, [arrays[0], at, arrays[1]], reduction=how, **attrs)
    assert all(k.artifact.info.parallel for k in model.kernels)


@pytest.mark.parametrize("index", [4, -5, 1 << 40, -(1 << 63)])
def test_an_index_beyond_stops_the_model(
    index: int, rng: np.random.Generator, tmp_path: Path
) -> None:
    x, at = rng.standard_normal((4, 32)).astype("f4"), np.array([[1], [index], [2]])
    new = np.ones((3, 32), "f4")
    model, module = built("scatter_nd", [x, at, new], reduction="add")
    model.save(tmp_path)
    for run in (model, model.profile, graph.load(tmp_path)):
        with pytest.raises(graph.Unsupported, match="ScatterND: an index is beyond the 4 elements"):
            run(x, at, new)
        good = at % 4
        run(x, good, new)
    np.testing.assert_array_equal(
        model(x, good, new)[0], graph.evaluate(module, "main", x, good, new)
    )


def test_one_tensor_may_be_several_inputs(rng: np.random.Generator) -> None:
    x, at = graph.var("x", (5, 4)), graph.var("at", (5, 4), "int64")
    module = graph.module(main=graph.function([x, at], op.scatter_elements(x, at, x)))
    a, i = rng.standard_normal((5, 4)).astype("f4"), rng.integers(0, 5, (5, 4))
    want = graph.evaluate(module, "main", a, i)
    np.testing.assert_array_equal(graph.build(module)(a, i)[0], want)


def test_what_stands_around_a_routine_is_compiled_as_ever(rng: np.random.Generator) -> None:
    x, at, u = graph.var("x", (6, 8)), graph.var("at", (3, 1), "int64"), graph.var("u", (8, 3))
    made = op.scatter_nd(op.relu(x), at, op.transpose(u, perm=(1, 0)), reduction="add")
    module = graph.module(main=graph.function([x, at, u], op.tanh(made) + x))
    model = graph.build(module)
    assert model.host_operators == ()
    arrays = [rng.standard_normal(s).astype("f4") for s in ((6, 8), (8, 3))]
    given = [arrays[0], np.array([[5], [5], [-6]]), arrays[1]]
    want = graph.evaluate(module, "main", *given)
    np.testing.assert_allclose(model(*given)[0], want, rtol=1e-5, atol=1e-6)


RUNNING = {
    "rows": ((256, 100), 1),
    "rows and a rest": ((3, 11, 70), 2),
    "columns": ((70, 256), 0),
    "in the middle": ((2, 80, 3, 40), 1),
    "one batch": ((1, 80, 257), 1),
}


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(RUNNING)),
    st.sampled_from(["float32", "float16", "int64"]),
    st.booleans(),
    st.booleans(),
)
def test_running_sums_are_taken_in_order(
    case: str, dtype: str, exclusive: bool, reverse: bool
) -> None:
    shape, axis = RUNNING[case]
    x = (np.random.default_rng(3).standard_normal(shape) * 4).astype(dtype)
    v = graph.var("x", shape, dtype)
    made = op.cumsum(v, graph.const(np.array(axis)), exclusive=int(exclusive), reverse=int(reverse))
    model = graph.build(graph.module(main=graph.function([v], made)))
    assert "in order" in model.kernels[0].implementation
    turned = np.flip(x, axis) if reverse else x
    sums = np.cumsum(turned, axis, dtype="float32" if dtype == "float16" else dtype)
    if exclusive:
        first = np.zeros_like(sums.take([0], axis))
        sums = np.concatenate([first, sums.take(range(shape[axis] - 1), axis)], axis)
    want = np.flip(sums, axis) if reverse else sums
    np.testing.assert_array_equal(model(x)[0], want.astype(dtype))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_non_max_suppression(data: st.DataObject) -> None:
    batches, classes, many = (data.draw(st.integers(1, n)) for n in (2, 3, 40))
    rng, centre = np.random.default_rng(data.draw(st.integers(0, 999))), data.draw(st.booleans())
    middle, size = rng.uniform(0, 40, (batches, many, 2)), rng.uniform(1, 20, (batches, many, 2))
    corners = np.concatenate([middle - size / 2, middle + size / 2], -1)
    boxes = np.concatenate([middle, size], -1) if centre else corners
    if data.draw(st.booleans()):
        boxes = np.round(boxes / 8) * 8  # many overlap by just the bound, and some are empty
    scores = rng.integers(0, 9, (batches, classes, many)) / 8
    if data.draw(st.booleans()):
        scores[rng.random(scores.shape) < 0.2] = np.nan
        scores[rng.random(scores.shape) < 0.2] = -np.inf
    arrays = [boxes.astype("f4"), scores.astype("f4")]
    given = [graph.var(f"x{n}", a.shape) for n, a in enumerate(arrays)]
    numbers = [graph.const(np.array([data.draw(st.integers(1, 50))]))]
    numbers.append(graph.const(np.array([data.draw(st.sampled_from([0.0, 0.25, 0.5]))], "f4")))
    if data.draw(st.booleans()):
        numbers.append(graph.const(np.array([0.25], "f4")))
    made = op.non_max_suppression(*given, *numbers, center_point_box=int(centre))
    module = graph.module(main=graph.function(given, made))
    model = graph.build(module)
    assert model.host_operators == ("autosched.FirstRows",)
    want = graph.evaluate(module, "main", *arrays)
    np.testing.assert_array_equal(model(*arrays)[0], want)


def test_both_forms_of_non_max_suppression_have_all_rows(rng: np.random.Generator) -> None:
    arrays = [rng.random((2, 9, 4)).astype("f4"), rng.random((2, 3, 9)).astype("f4")]
    given = [graph.var(f"x{n}", a.shape) for n, a in enumerate(arrays)]
    numbers = [graph.const(np.array([5])), graph.const(np.array([0.25], "f4"))]
    made = op.autosched_non_max_suppression(*given, *numbers, outputs=2)
    module = graph.module(main=graph.function(given, tuple(made)))
    rows, count = graph.evaluate(module, "main", *arrays)
    assert rows.shape == (2 * 3 * 5, 3)
    assert not rows[int(count[0]) :].any()
    model = graph.build(module)
    assert model.host_operators == ()
    for got, want in zip(model(*arrays), (rows, count), strict=True):
        np.testing.assert_array_equal(got, want)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_top_k(data: st.DataObject) -> None:
    outer = tuple(data.draw(st.lists(st.integers(1, 4), max_size=2)))
    many = data.draw(st.sampled_from([1, 2, 17, 64, 65, 200, 5000]))
    k = data.draw(st.integers(1, min(many, 64)))
    dtype = data.draw(st.sampled_from(DTYPES[:-1]))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    axis = data.draw(st.integers(0, len(outer)))
    x = np.ascontiguousarray(np.moveaxis(values(rng, (*outer, many), dtype), -1, axis))
    v = graph.var("x", x.shape, dtype)
    attrs = {"axis": axis, "largest": data.draw(st.integers(0, 1))}
    made = op.top_k(v, graph.const(np.array([k])), **attrs, outputs=2)
    module = graph.module(main=graph.function([v], tuple(made)))
    model = graph.build(module)
    assert model.host_operators == ()
    for got, want in zip(model(x), graph.evaluate(module, "main", x), strict=True):
        np.testing.assert_array_equal(got, want)


NMS = ("non_max_suppression", [(2, 9, 4), (2, 3, 9)], [5, 0.25, 0.3], {})
SETTING: list[tuple[str, list[tuple[int, ...]], list[float], dict[str, Any]]] = [
    ("cumsum", [(16, 300)], [1], {}),
    ("cumsum", [(300, 19)], [0], {"reverse": 1, "exclusive": 1}),
    ("top_k", [(3, 200)], [7], {"outputs": 2}),
    ("scatter_elements", [(5, 9), (2, 9), (2, 9)], [], {"axis": 0, "reduction": "add"}),
    ("scatter_nd", [(6, 9), (4, 1), (4, 9)], [], {"reduction": "max"}),
    NMS,
]


@pytest.mark.parametrize(("name", "shapes", "numbers", "attrs"), SETTING)
def test_a_routine_sets_all_that_it_writes(
    name: str,
    shapes: list[tuple[int, ...]],
    numbers: list[float],
    attrs: dict[str, Any],
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Routine] = []
    extern = te.extern

    def kept(shape: Any, inputs: Any, routine: Routine, *rest: Any) -> Any:
        made.append(routine)
        return extern(shape, inputs, routine, *rest)

    monkeypatch.setattr(te, "extern", kept)
    types = ["int64" if n == 1 and "scatter" in name else "float32" for n in range(len(shapes))]
    given = [graph.var(f"x{n}", s, t) for n, (s, t) in enumerate(zip(shapes, types, strict=True))]
    kinds = ["f4" if isinstance(n, float) else "i8" for n in numbers]
    consts = [graph.const(np.array([n], t)) for n, t in zip(numbers, kinds, strict=True)]
    call = getattr(op, name)(*given, *consts, **attrs)
    made_of = tuple(call) if attrs.get("outputs") else call
    graph.build(graph.module(main=graph.function(given, made_of)))
    assert made
    arrays = [rng.random(b.shape).astype(b.dtype) for b in made[-1].params]
    read = len(arrays) - (2 if name in ("top_k", NMS[0]) else 1)
    found = []
    for fill in (3, 117):
        outs = [np.full_like(a, fill) for a in arrays[read:]]
        run_routine(made[-1], [*arrays[:read], *outs])
        found.append(outs)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("extents", "elements", "axes", "expected"),
    [
        ((1, 4, 5), ALONE + 1, None, 1),
        ((1, 4, 5), ALONE, None, -1),
        ((1, 1), ALONE + 1, None, -1),
        ((), ALONE + 1, None, -1),
        ((3, 1, 5), ALONE + 1, [1, 2], 2),
    ],
)
def test_the_first_long_loop_is_shared(
    extents: tuple[int, ...], elements: int, axes: list[int] | None, expected: int
) -> None:
    assert first_long(extents, elements, axes) == expected


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) on the PATH")
def test_a_c_program_is_told_of_an_index_beyond(rng: np.random.Generator, tmp_path: Path) -> None:
    x, at = rng.standard_normal((40, 512)).astype("f4"), rng.integers(-40, 40, (90, 1))
    new = rng.standard_normal((90, 512)).astype("f4")
    given = [graph.var("x", x.shape), graph.var("at", at.shape, "int64"), graph.var("u", new.shape)]
    made = op.scatter_nd(op.tanh(given[0]), *given[1:], reduction="add")
    model = graph.build(graph.module(main=graph.function(given, op.relu(made))))
    want, out = model(x, at, new)[0], np.zeros_like(x)
    done = model.export(tmp_path, prefix="net_")
    library = tmp_path / "net.so"
    command = ["cc", "-shared", "-Wl,-z,nodelete", done.object, "-o", library, "-lpthread", "-lm"]
    subprocess.run(command, check=True)
    run = ctypes.CDLL(str(library)).net_run
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, at, new, out)]
    assert run(*pointers, None, 2) == 0
    np.testing.assert_array_equal(out, want)
    at[7] = 40
    assert run(*pointers, None, 2) == errno.EDOM
    at[7] = 0
    assert run(*pointers, None, 1) == 0

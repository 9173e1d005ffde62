"""Models whose sizes are those of each call."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched import graph
from autosched.errors import ArgumentError
from autosched.graph.dynamic import DynamicModel
from autosched.graph.dynamic.lengths import Grid
from autosched.graph.model import Argument
from autosched.graph.onnx_import import OpenModel
from autosched.tir.module import IRModule

HEADS, WIDTH = 2, 4
SIZE = HEADS * WIDTH
RNG = np.random.default_rng(0)
WEIGHTS = {n: RNG.uniform(-0.5, 0.5, (SIZE, SIZE)).astype(np.float32) for n in ("q", "k", "v")}
POSITIONS = RNG.uniform(-1, 1, (200, SIZE)).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: list[str],
    constants: dict[str, np.ndarray],
) -> bytes:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    made = helper.make_graph(nodes, "g", infos, outs, tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


class Evaluated(graph.CompiledModel):
    """A module that is evaluated, not built: for calls that need many builds."""

    def __init__(self, module: IRModule) -> None:
        main: Any = module.graphs["main"]
        self.main = module
        self.inputs = tuple(Argument(p.name, p.type.known, p.type.dtype) for p in main.params)

    def __call__(self, *inputs: Any) -> tuple[np.ndarray, ...]:
        found = graph.evaluate(self.main, "main", *inputs)
        return found if isinstance(found, tuple) else (found,)


def evaluated(data: bytes, kept: int = 16) -> tuple[DynamicModel, list[IRModule]]:
    """A dynamic model that is evaluated, and the list of what it builds."""
    built: list[IRModule] = []

    def compiled(module: IRModule) -> Evaluated:
        built.append(module)
        return Evaluated(module)

    return DynamicModel(OpenModel(onnx.load_from_string(data)), compiled, kept), built


def as_exact(dynamic: DynamicModel, data: bytes, shape: tuple[int, ...]) -> None:
    """Random x of this shape gives what the model of exactly this size gives."""
    x = RNG.standard_normal(shape).astype(np.float32)
    exact = graph.evaluate(graph.from_onnx(data, {"x": shape}), "main", x)
    each = exact if isinstance(exact, tuple) else (exact,)
    for n, (a, b) in enumerate(zip(dynamic(x), each, strict=True)):
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"result {n}")


def decoder() -> bytes:
    """One step of attention with a cache that grows by the step."""
    node = helper.make_node
    nodes = [
        node("Shape", ["past_k"], ["sizes"]),
        node("Gather", ["sizes", "two"], ["n"]),
        node("Gather", ["positions", "n"], ["position"]),
        node("Add", ["x", "position"], ["y"]),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", ["y", f"w_{name}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", ["past_k", "k2"], ["k"], axis=2),
        node("Concat", ["past_v", "v2"], ["v"], axis=2),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q2", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["out"]),
    ]
    constants = {f"w_{n}": w for n, w in WEIGHTS.items()}
    constants |= {"positions": POSITIONS, "two": np.asarray([2]), "heads": np.asarray([1, 1, 2, 4])}
    past: list[int | str] = [1, HEADS, "past", WIDTH]
    inputs: dict[str, list[int | str]] = {"x": [1, 1, SIZE], "past_k": past, "past_v": past}
    return model(nodes, inputs, ["out", "k", "v"], constants)


def step(x: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same in NumPy."""
    y = x + POSITIONS[k.shape[2]]
    q, k1, v1 = ((y @ WEIGHTS[n]).reshape(1, 1, HEADS, WIDTH).transpose(0, 2, 1, 3) for n in "qkv")
    k, v = np.concatenate([k, k1], 2), np.concatenate([v, v1], 2)
    scores = q @ k.transpose(0, 1, 3, 2)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v, k, v


def test_a_decoder_with_a_growing_cache() -> None:
    """Each step takes the cache of the one before; 70 lengths are five builds."""
    dynamic = graph.build_dynamic(decoder(), threads=1)
    rng = np.random.default_rng(1)
    own = other = (np.zeros((1, HEADS, 1, WIDTH), np.float32),) * 2
    for _ in range(70):
        x = rng.standard_normal((1, 1, SIZE)).astype(np.float32)
        found, *own = dynamic(x, *own)
        expected, *other = step(x, *other)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        for a, b in zip(own, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert len(dynamic.builds) == 5
    assert [b.split(" of ")[0] for b in dynamic.builds[2:]] == [
        "lengths 2 to 32", "lengths 33 to 64", "lengths 65 to 96",
    ]  # fmt: skip
    assert not dynamic.refused


def test_results_outlive_the_next_call() -> None:
    """Padded inputs are kept from call to call; what a model gives back is the caller's."""
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    dynamic = graph.build_dynamic(model(nodes, {"x": ["n", 3]}, ["y", "z"], {}))
    given = [np.full((n, 3), n, np.float32) for n in (4, 5, 9, 6, 7, 3)]
    for x, (y, z) in zip(given, [dynamic(x) for x in given], strict=True):
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(z, -x)


def test_weights_are_in_memory_once() -> None:
    dynamic = graph.build_dynamic(decoder(), threads=1)
    x = np.zeros((1, 1, SIZE), np.float32)
    for n in (3, 4, 5):
        dynamic(x, *(np.zeros((1, HEADS, n, WIDTH), np.float32),) * 2)
    (a, _), (b, _) = dynamic._exact.values()
    (c,) = (bucket.model for bucket in dynamic._buckets)
    weights = [{id(w) for w in m.constants if w.size >= SIZE * SIZE} for m in (a, b, c)]
    assert weights[0] == weights[1]
    assert weights[0]
    assert weights[0] <= weights[2]


def test_a_model_that_is_not_padded() -> None:
    """An operator without a rule is built for each length, and says why."""
    nodes = [
        helper.make_node("Hardmax", ["x"], ["y"], axis=0),
        helper.make_node("Relu", ["y"], ["h"]),
    ]
    data = model(nodes, {"x": ["n", 1, 3]}, ["y", "h"], {})
    dynamic = graph.build_dynamic(data, threads=1, kept=2)
    for n in (2, 3, 4, 5, 2):
        as_exact(dynamic, data, (n, 1, 3))
    assert dynamic.builds == ("sizes x=5,1,3", "sizes x=2,1,3")
    assert set(dynamic.refused.values()) == {
        "Hardmax along an axis whose size depends on the length"
    }


def test_positions_that_end_before_the_capacity() -> None:
    """The build is for the lengths that the model takes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Slice", ["table", "zero", "n"], ["positions"]),
        helper.make_node("Add", ["x", "positions"], ["y"]),
    ]
    table = np.arange(45, dtype=np.float32)
    data = model(nodes, {"x": ["n"]}, ["y"], {"table": table, "zero": np.asarray([0])})
    dynamic = graph.build_dynamic(data, threads=1)
    for n in (33, 40, 41, 45, 34, 44):
        (y,) = dynamic(np.ones(n, np.float32))
        np.testing.assert_array_equal(y, table[:n] + 1)
    with pytest.raises(graph.Unsupported, match="46"):
        dynamic(np.ones(46, np.float32))
    assert [b.split(" of ")[0] for b in dynamic.builds] == [
        "sizes x=33", "sizes x=40", "lengths 33 to 45",
    ]  # fmt: skip


def attention() -> bytes:
    """Tokens and those before them, which attend to all that a mask lets them."""
    node = helper.make_node
    nodes = [
        node("Concat", ["past", "x"], ["k"], axis=1),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["x", "kt"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "k"], ["out"]),
    ]
    inputs: dict[str, list[int | str]] = {
        "x": ["b", "t", 3], "past": ["b", "n", 3], "mask": ["b", 1, "total"]
    }  # fmt: skip
    return model(nodes, inputs, ["out", "k"], {})


@pytest.mark.parametrize(
    ("sizes", "builds"),
    [
        ([(1, 3, 5), (1, 2, 9), (1, 4, 6), (1, 7, 6), (1, 2, 11), (1, 9, 20)],
         ["lengths 2 to 4 and 5 to 8 of x=1,4,3 past=1,8,3 mask=1,1,12",
          "lengths 5 to 8 and 5 to 8 of x=1,8,3 past=1,8,3 mask=1,1,16",
          "lengths 2 to 4 and 9 to 16 of x=1,4,3 past=1,16,3 mask=1,1,20",
          "lengths 9 to 16 and 17 to 32 of x=1,16,3 past=1,32,3 mask=1,1,48"]),
        ([(2, 1, 5), (4, 1, 6), (3, 1, 8), (5, 1, 6), (2, 1, 20), (3, 1, 3)],
         ["lengths 5 to 8 and 2 to 31 of x=8,1,3 past=8,31,3 mask=8,1,32",
          "lengths 2 to 4 and 2 to 31 of x=4,1,3 past=4,31,3 mask=4,1,32"]),
        ([(2, 3, 5), (3, 2, 9), (4, 5, 6), (3, 7, 8), (5, 3, 3)],
         ["lengths 2 to 4 and 5 to 8 and 5 to 8 of x=4,8,3 past=4,8,3 mask=4,1,16",
          "lengths 5 to 8 and 2 to 4 and 2 to 4 of x=8,4,3 past=8,4,3 mask=8,1,8"]),
        ([(2, 2, 5), (2, 2, 6), (2, 2, 7), (3, 2, 5), (3, 2, 6), (3, 2, 8), (4, 2, 12), (5, 2, 8)],
         ["lengths 2 to 30 of x=2,2,3 past=2,30,3 mask=2,1,32",
          "lengths 2 to 30 of x=3,2,3 past=3,30,3 mask=3,1,32",
          "lengths 2 to 4 and 2 to 30 of x=4,2,3 past=4,30,3 mask=4,1,32",
          "lengths 5 to 8 and 2 to 30 of x=8,2,3 past=8,30,3 mask=8,1,32"]),
    ],
    ids=["tokens and cache", "batch and cache", "all three", "batches of many lengths"],
)  # fmt: skip
def test_sizes_that_vary_independently(sizes: list[tuple[int, ...]], builds: list[str]) -> None:
    """A third value of each is what one build waits for; one size may be a sum of two."""
    dynamic = graph.build_dynamic(attention(), threads=1)
    rng = np.random.default_rng(1)
    for b, t, n in sizes:
        x, past = (rng.standard_normal((b, k, 3)).astype(np.float32) for k in (t, n))
        mask = np.where(rng.random((b, 1, n + t)) < 0.5, 0, -10).astype(np.float32)
        k = np.concatenate([past, x], axis=1)
        p = np.exp(x @ k.transpose(0, 2, 1) + mask)
        expected = p / p.sum(-1, keepdims=True) @ k
        for found, y in zip(dynamic(x, past, mask), (expected, k), strict=True):
            np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-5)
    assert [b for b in dynamic.builds if b.startswith("lengths")] == builds
    assert not dynamic.refused


@pytest.mark.parametrize("batches", [(3,), (2, 3, 4, 5)])
def test_a_batch_flattened_with_its_tokens(batches: tuple[int, ...]) -> None:
    """What counts lies between padding; results have it close together."""
    node = helper.make_node
    nodes = [
        node("Reshape", ["x", "rows"], ["r"]),
        node("Gemm", ["r", "w"], ["flat"]),
        node("Shape", ["x"], ["shape"]),
        node("Reshape", ["flat", "shape"], ["g"]),
        node("Transpose", ["g"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["x", "t"], ["y"]),
        node("ReduceSum", ["flat", "zero"], ["sum"]),
    ]
    w = RNG.standard_normal((3, 3)).astype(np.float32)
    constants = {"rows": np.asarray([-1, 3]), "zero": np.asarray([0]), "w": w}
    data = model(nodes, {"x": ["b", "n", 3]}, ["flat", "y", "sum"], constants)
    dynamic = graph.build_dynamic(data, threads=1)
    for k, n in enumerate((5, 9, 7, 2, 31, 12, 7)):
        x = RNG.standard_normal((batches[k % len(batches)], n, 3)).astype(np.float32)
        flat = x.reshape(-1, 3) @ w
        every = flat, x @ (x @ w).transpose(0, 2, 1), flat.sum(0, keepdims=True)
        for found, expected in zip(dynamic(x), every, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not dynamic.refused
    assert sum(b.startswith("lengths") for b in dynamic.builds) == 4


def test_lengths_that_grow_differently_are_built_apart() -> None:
    nodes = [helper.make_node("MatMul", ["x", "y"], ["z"])]
    dynamic = graph.build_dynamic(model(nodes, {"x": ["m", "k"], "y": ["k", 3]}, ["z"], {}))
    for m, k in ((4, 5), (4, 6), (5, 6), (4, 7), (6, 6), (4, 9), (7, 6), (4, 1), (7, 7)):
        x = RNG.standard_normal((m, k)).astype(np.float32)
        y = RNG.standard_normal((k, 3)).astype(np.float32)
        (z,) = dynamic.run({"y": y, "x": x})
        np.testing.assert_allclose(z, x @ y, rtol=1e-4, atol=1e-5)
    assert [b.split(" of ")[0] for b in dynamic.builds if b.startswith("lengths")] == [
        "lengths 5 to 8", "lengths 9 to 16", "lengths 5 to 8", "lengths 5 to 8 and 5 to 8",
    ]  # fmt: skip


def test_the_smallest_build_serves() -> None:
    """Not the one that was called last, of a larger batch."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    dynamic, _ = evaluated(model(nodes, {"x": ["b", "n", 3]}, ["y"], {}))
    for b, n in ((2, 5), (2, 6), (2, 7), (3, 5), (4, 8), (2, 8)):
        x = RNG.standard_normal((b, n, 3)).astype(np.float32)
        (y,) = dynamic(x)
        np.testing.assert_array_equal(y, np.maximum(x, 0))
    assert [b.split(" of ")[0] for b in dynamic.builds if b.startswith("lengths")] == [
        "lengths 2 to 4 and 5 to 8", "lengths 5 to 8",
    ]  # fmt: skip


def test_builds_of_several_lengths_do_not_multiply() -> None:
    """Where many are kept, coarse ones serve what they suit."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    data = model(nodes, {"x": ["b", "n", 2]}, ["y"], {"w": np.ones((2, 1), np.float32)})
    dynamic, built = evaluated(data, kept=6)
    rng = np.random.default_rng(0)
    for k in range(150):
        x = rng.standard_normal((rng.integers(1, 65), rng.integers(1, 257), 2)).astype(np.float32)
        (y,) = dynamic(x)
        np.testing.assert_allclose(y, x.sum(2, keepdims=True), rtol=1e-4, atol=1e-4)
        if k == 100:
            early = len(built)
    assert len(dynamic._buckets) == 6
    assert (early <= 30, len(built) - early <= 4) == (True, True)


def test_builds_that_compute_too_much_do_not_serve() -> None:
    """Only where no other can be made."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    dynamic, _ = evaluated(model(nodes, {"x": ["b", "n", 2]}, ["y"], {}), kept=1)
    for b, n in ((50, 300), (51, 301), (52, 302), (60, 400), (2, 3)):
        dynamic(np.zeros((b, n, 2), np.float32))
    assert dynamic.builds[-1] == "lengths 2 to 4 and 2 to 4 of x=4,4,2"


@pytest.mark.parametrize(
    ("axes", "capacity"),
    [
        (("t", "b", 4), "2 to 4"),
        ((3, "b", 2, "n", 4), "2 to 4 and 2 to 32"),
        ((1, 2, "n"), "2 to 32"),
    ],
)
def test_capacities_by_places(axes: tuple[int | str, ...], capacity: str) -> None:
    """A batch may be small wherever it stands; a cache that grows starts at 32."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    dynamic, _ = evaluated(model(nodes, {"x": list(axes)}, ["y"], {}))
    for sizes in ((2, 3, 4), (3, 2, 2), (4, 4, 3)):
        at = {"b": sizes[0], "n": sizes[1], "t": 20}
        dynamic(np.zeros([at[a] if isinstance(a, str) else a for a in axes], np.float32))
    assert dynamic.builds[-1].startswith(f"lengths {capacity} of")


def test_windows_that_short_lengths_do_not_hold() -> None:
    """The build is for the lengths that the model takes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Conv", ["c", "w"], ["y"]),
    ]
    data = model(nodes, {"x": [1, 1, "n"]}, ["y"], {"w": np.ones((1, 1, 3), np.float32)})
    dynamic, _ = evaluated(data)
    for n in (10, 12, 14, 5, 31):
        x = RNG.standard_normal((1, 1, n)).astype(np.float32)
        (y,) = dynamic(x)
        expected = np.convolve(x[0, 0], [1, 2, 3, 2, 1], "valid")
        np.testing.assert_allclose(y[0, 0], expected, rtol=1e-4, atol=1e-5)
    assert [b.split(" of ")[0] for b in dynamic.builds][2:] == ["lengths 5 to 32"]


def test_refusals_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two ranges of the same axes no other is read."""
    nodes = [helper.make_node("Hardmax", ["x"], ["y"], axis=1)]
    dynamic, built = evaluated(model(nodes, {"x": [1, "n"]}, ["y"], {}))
    read = DynamicModel._read
    readings: list[tuple[int, ...]] = []

    def counted(self: DynamicModel, family: Any, lengths: tuple[int, ...]) -> Any:
        readings.append(lengths)
        return read(self, family, lengths)

    monkeypatch.setattr(DynamicModel, "_read", counted)
    sizes = [*range(2, 9), *range(40, 2000, 150)]
    for n in sizes:
        dynamic(np.zeros((1, n), np.float32))
    assert (len(built), len(readings), len(dynamic.refused)) == (len(sizes), 6, 2)
    dynamic._refuse({(f, Grid((n,), (2,))): "" for n in range(50) for f, _ in dynamic.refused})
    assert len(dynamic.refused) == 32


def test_a_refusal_is_one_line() -> None:
    def compiled(module: IRModule) -> Evaluated:
        main: Any = module.graphs["main"]
        if len(main.params) > 1:
            raise graph.Unsupported("no kernel\nfor all of this:")
        return Evaluated(module)

    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    opened = OpenModel(onnx.load_from_string(model(nodes, {"x": ["n"]}, ["y"], {})))
    dynamic = DynamicModel(opened, compiled, 4)
    for n in (5, 6, 7):
        dynamic(np.zeros(n, np.float32))
    assert list(dynamic.refused.values()) == ["no kernel"]


def test_calls_from_several_threads() -> None:
    dynamic = graph.build_dynamic(decoder(), threads=1)
    rng = np.random.default_rng(1)
    calls = []
    for n in (2, 3, 4, 5, 40, 41, 6, 33):
        shape = (1, HEADS, n, WIDTH)
        x, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((1, 1, SIZE), shape, shape))
        calls.append(((x, k, v), step(x, k, v)))
    wrong: list[int] = []

    def run(seed: int) -> None:
        for n in np.random.default_rng(seed).permutation(len(calls) * 5) % len(calls):
            given, expected = calls[n]
            found = dynamic(*given)
            wrong.extend(
                n
                for a, b in zip(found, expected, strict=True)
                if not np.allclose(a, b, rtol=1e-4, atol=1e-5)
            )

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_inputs_that_do_not_fit() -> None:
    dynamic = graph.build_dynamic(decoder())
    x, past = np.zeros((1, 1, SIZE), np.float32), np.zeros((1, HEADS, 3, WIDTH), np.float32)
    with pytest.raises(ArgumentError, match=r"takes 3 inputs \(x, past_k, past_v\), found 1"):
        dynamic(x)
    with pytest.raises(ArgumentError, match="found x, past"):
        dynamic.run({"x": x, "past": past})
    with pytest.raises(graph.Unsupported, match="the size past is 3 of the input 'past_k' and 4"):
        dynamic(x, past, np.zeros((1, HEADS, 4, WIDTH), np.float32))
    with pytest.raises(graph.Unsupported, match=r"which \(1, 3, 8\) does not fit"):
        dynamic(np.zeros((1, 3, SIZE), np.float32), past, past)
    with pytest.raises(ArgumentError, match="int32"):
        dynamic(x.astype(np.int32), past, past)
    for n in (4, 5):
        dynamic(x, *(np.zeros((1, HEADS, n, WIDTH), np.float32),) * 2)
    wrong = np.zeros((1, HEADS, 6, WIDTH), np.int32)
    with pytest.raises(ArgumentError, match=r"past_k has shape \(1, 2, 6, 4\) and dtype int32"):
        dynamic(x, wrong, wrong)
    with pytest.raises(ArgumentError, match="kept is 0"):
        graph.build_dynamic(decoder(), kept=0)

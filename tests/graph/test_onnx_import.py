"""ONNX files read, and refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import info, model, residual_net
from onnx import helper, numpy_helper

from autosched import graph
from autosched.graph.onnx_import import Bounds, from_onnx

X = info("x", [2, 3])
Y = info("y", [2, 3])


def relu(**attrs):
    return helper.make_node("Relu", ["x"], ["y"], name="first", **attrs)


def test_path_bytes_and_proto_give_the_same_module(tmp_path, rng):
    proto = residual_net(rng)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    mod = from_onnx(proto)
    assert from_onnx(path).same(mod)
    assert from_onnx(str(path)).same(mod)
    assert from_onnx(path.read_bytes()).same(mod)


def test_shape_arithmetic_is_folded():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = {"zero": np.array([0], "i8"), "rest": np.array([-1, 1], "i8")}
    mod = from_onnx(model(nodes, [X], [info("y", [2, 3, 1])], weights))
    (b,) = mod["main"].body.bindings
    assert (b.value.callee, b.value.attrs) == ("Reshape", (("shape", (2, -1, 1)),))


def test_open_sizes_are_named():
    proto = model([relu()], [info("x", ["batch", 3])], [info("y", ["batch", 3])])
    with pytest.raises(
        graph.Unsupported, match=r"'x' has the shape \(batch, 3\), whose size batch"
    ):
        from_onnx(proto)
    mod = from_onnx(proto, shapes={"x": (4, 3)})
    assert mod["main"].params[0].type.shape == (4, 3)
    with pytest.raises(graph.Unsupported, match=r"\(batch, 3\), which \(4, 5\) does not"):
        from_onnx(proto, shapes={"x": (4, 5)})
    with pytest.raises(graph.Unsupported, match="no input is named 'z'"):
        from_onnx(proto, shapes={"x": (4, 3), "z": (1,)})
    with pytest.raises(graph.Unsupported, match=r"given the shape \('n', 3\); expected numbers"):
        from_onnx(proto, shapes={"x": ("n", 3)})


@pytest.mark.parametrize("given", ["4,3", "43", 4, ("4", "3"), (4, 3.0), (4, None), (True, 3)])
def test_a_shape_that_is_no_numbers_is_shown(given):
    proto = model(
        [helper.make_node("Relu", ["x"], ["y"])], [info("x", ["n", 3])], [info("y", None)]
    )
    with pytest.raises(graph.Unsupported, match="expected numbers, as in") as caught:
        from_onnx(proto, shapes={"x": given})
    assert f"given the shape {given!r};" in str(caught.value)
    with pytest.raises(graph.Unsupported, match=r"shapes is .*; expected shapes by the names"):
        from_onnx(proto, shapes=given)


@pytest.mark.parametrize("second", [(2, 4), (1, 4)])
def test_a_symbol_has_one_size(second):
    """Also where the sizes would broadcast."""
    add = helper.make_node("Add", ["a", "b"], ["y"])
    inputs = [info("a", ["n", 4]), info("b", ["n", 4])]
    proto = model([add], inputs, [info("y", ["n", 4])])
    shapes = {"a": (3, 4), "b": second}
    told = f"the size n is 3 of the input 'a' and {second[0]} of the input 'b'"
    for read in (from_onnx, graph.skeleton):
        with pytest.raises(graph.Unsupported, match=told):
            read(proto, shapes)
    assert from_onnx(proto, {"a": (3, 4), "b": (3, 4)})["main"].params[1].type.shape == (3, 4)
    for nothing in ("?", "unk__1", "None"):  # what exporters write for no name
        inputs = [info("a", [nothing, 4]), info("b", [nothing, 4])]
        loose = model([add], inputs, [info("y", [nothing, 4])])
        assert from_onnx(loose, {"a": (3, 4), "b": (1, 4)})["main"].params[1].type.shape == (1, 4)
    square = model([relu()], [info("x", ["n", "n"])], [info("y", ["n", "n"])])
    with pytest.raises(graph.Unsupported, match="the size n is 3 of the input 'x' and 4 of"):
        from_onnx(square, {"x": (3, 4)})


def test_function_bodies_stand_in_for_missing_operators(rng):
    from autosched.graph.ops import OPERATORS

    assert "HardSwish" in OPERATORS
    row = OPERATORS.pop("HardSwish")
    try:
        proto = model([helper.make_node("HardSwish", ["x"], ["y"])], [X], [Y])
        mod = from_onnx(proto)
    finally:
        OPERATORS["HardSwish"] = row
    assert [b.value.callee for b in mod["main"].body.bindings] == ["HardSigmoid", "Mul"]
    x = rng.standard_normal((2, 3)).astype("f4")
    want = x * np.clip(x / 6 + 0.5, 0, 1)
    np.testing.assert_allclose(graph.evaluate(mod, "main", x), want, rtol=1e-5, atol=1e-6)


def broken(name):
    """Models that are wrong in one way each."""
    big = [helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"]) for n in range(50)]
    leaf = helper.make_graph([], "g", [], [info("c", [], "bool")])
    nested = leaf
    for _ in range(30):
        inner = helper.make_node("If", ["c"], ["q"], then_branch=nested, else_branch=leaf)
        nested = helper.make_graph([inner], "g", [], [info("q", [2, 3])])
    negative = numpy_helper.from_array(np.zeros((2, 3), "f4"), "w")
    negative.dims[0] = -2
    short = numpy_helper.from_array(np.zeros((2, 3), "f4"), "w")
    short.dims[0] = 5
    huge = numpy_helper.from_array(np.zeros((2, 3), "f4"), "w")
    huge.dims[0] = 1 << 60
    outside = numpy_helper.from_array(np.zeros((2, 3), "f4"), "w")
    outside.ClearField("raw_data")
    outside.data_location = onnx.TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="../../etc/passwd")
    cases = {
        "cycle": [
            helper.make_node("Add", ["x", "z"], ["y"]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "undefined": [helper.make_node("Add", ["x", "nothing"], ["y"])],
        "twice": [relu(), relu()],
        "operator": [helper.make_node("Nothing", ["x"], ["y"], name="first")],
        "domain": [helper.make_node("Relu", ["x"], ["y"], domain="com.acme")],
        "attribute": [relu(alpha=2.0)],
        "shape": [helper.make_node("MatMul", ["x", "x"], ["y"], name="first")],
        "nodes": big,
    }
    if name in cases:
        inputs = [info("v0", [2, 3])] if name == "nodes" else [X]
        outputs = [info("v50", [2, 3])] if name == "nodes" else [Y]
        return model(cases[name], inputs, outputs)
    if name == "depth":
        graph_ = helper.make_graph(list(nested.node), "g", [X, info("c", [], "bool")], [Y])
        return helper.make_model(graph_)
    proto = model([helper.make_node("Add", ["x", "w"], ["y"], name="first")], [X], [Y])
    tensor = {"negative": negative, "short": short, "huge": huge, "outside": outside}[name]
    proto.graph.initializer.append(tensor)
    return proto


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cycle",
            r"node \d \((Add|Relu)\) is on a cycle: it reads what node \d \((Add|Relu)\) computes",
        ),
        ("undefined", "reads 'nothing', which no node before it computes"),
        ("twice", "'y' is defined twice"),
        ("operator", r"node 'first' \(Nothing\): this operator is not supported"),
        ("domain", r"com\.acme\.Relu.*not supported"),
        ("attribute", r"node 'first' \(Relu\): Relu has no attribute alpha"),
        ("shape", r"node 'first' \(MatMul\).*do not go together"),
        ("nodes", "more than 40 nodes"),
        ("depth", "nest more than 28 deep"),
        ("negative", r"initializer 'w' has the shape \(-2, 3\)"),
        ("short", "initializer 'w' cannot be read"),
        ("huge", "at most"),
        ("outside", "no file in the model's folder|give the model by its path"),
    ],
)
def test_broken_models_are_refused_by_name(name, message, tmp_path):
    proto = broken(name)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    for source in (proto, path):
        with pytest.raises(graph.Unsupported, match=message):
            from_onnx(source, bounds=Bounds(nodes=40))


def test_bytes_that_are_no_model():
    for data in (b"", b"\x00" * 100, b"not a model", bytes(range(256))):
        with pytest.raises(graph.Unsupported, match="no ONNX model"):
            from_onnx(data)


def fuzz(count, seed):
    """What the fuzz of the import printed, from a process with a limit on its memory."""
    folder = Path(__file__).parent
    command = [sys.executable, str(folder / "fuzz_import.py")]
    command += ["--count", str(count), "--seed", str(seed)]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    made = subprocess.run(command, capture_output=True, text=True, env=env)
    assert made.returncode == 0, (made.stdout + made.stderr)[-3000:]
    return made.stdout


def test_mutated_models_are_read_or_refused():
    assert "refused" in fuzz(600, seed=1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_thousand_mutated_models_are_read_or_refused():
    fresh = os.environ.get("FUZZ_FRESH")
    assert "refused" in fuzz(100_000, seed=int(time.time()) if fresh else 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.opset_import.__getitem__(0).__setattr__("version", 999),
         r"the model is of opset 999; opsets 1 to \d+ are known"),
        (lambda m: m.opset_import.__getitem__(0).__setattr__("version", -3), "is of opset -3"),
        (lambda m: m.graph.node.__getitem__(0).__setattr__("domain", "ai.onnx.ml"),
         r"ai\.onnx\.ml\.Relu\): this operator is not supported: the file has no function for it"),
        (lambda m: m.graph.node.extend([m.graph.node[0]] * 1_000_000),
         "has 1000001 nodes; more than 100000 nodes are not read"),
        (lambda m: m.graph.input.extend([m.graph.input[0]] * 200_000),
         "has 200001 inputs; at most 100000 are read"),
        (lambda m: m.graph.input[0].type.tensor_type.shape.dim.extend(
            [m.graph.input[0].type.tensor_type.shape.dim[0]] * 100), "has 102 axes; at most 32"),
        (lambda m: m.graph.initializer.add(
            name="w", dims=[1 << 29], data_type=1, raw_data=b"1234"), "'w' cannot be read"),
        (lambda m: (m.graph.node.append(helper.make_node(
            "ConstantOfShape", ["big"], ["z"], name="huge")), m.graph.initializer.append(
            numpy_helper.from_array(np.array([1 << 40]), "big"))),
         r"node 'huge' \(ConstantOfShape\): the result has the shape \(1099511627776,\)"),
        (lambda m: (m.graph.node.append(helper.make_node("Resize", ["x", "", "by"], ["z"])),
         m.graph.initializer.append(numpy_helper.from_array(np.array([1, 1e8], "f4"), "by"))),
         "Resize: axis 1 would have 300000000 elements; at most 65536"),
    ],
)  # fmt: skip
def test_absurd_models_are_refused_at_once(change, message):
    proto = model([relu()], [X], [Y])
    change(proto)
    with pytest.raises(graph.Unsupported, match=message):
        from_onnx(proto.SerializeToString())


@pytest.mark.parametrize("op", ["Concat", "Sum", "Max"])
def test_operators_of_hundreds_of_arguments(op, rng):
    """An unrolled recurrence puts its steps together so; one expression of them is too deep."""
    x, y = rng.standard_normal((2, 2, 1)).astype("f4")
    names = [*["x", "y"] * 110, "x"]
    attrs = {"axis": 1} if op == "Concat" else {}
    node = helper.make_node(op, names, ["z"], **attrs)
    mod = from_onnx(model([node], [info("x", [2, 1]), info("y", [2, 1])], [info("z", None)]))
    parts = [x, y] * 110 + [x]
    want = {"Concat": np.concatenate(parts, 1), "Sum": np.sum(parts, 0), "Max": np.maximum(x, y)}
    np.testing.assert_allclose(graph.evaluate(mod, "main", x, y), want[op], rtol=1e-4)


def test_a_split_into_hundreds_of_pieces(rng):
    x = rng.standard_normal((2, 300)).astype("f4")
    sizes = np.array([2, 4] * 50)
    for weights, names in (({}, ["x"]), ({"sizes": sizes}, ["x", "sizes"])):
        node = helper.make_node("Split", names, [f"y{n}" for n in range(100)], axis=-1)
        results = [info(f"y{n}", None) for n in (1, 99)]
        mod = from_onnx(model([node], [info("x", [2, 300])], results, weights))
        second, last = graph.evaluate(mod, "main", x)
        ends = np.cumsum(sizes if weights else [3] * 100)
        np.testing.assert_array_equal(second, x[:, ends[0] : ends[1]])
        np.testing.assert_array_equal(last, x[:, ends[98] :])


def test_types_of_many_arguments_are_not_all_named():
    node = helper.make_node("Concat", ["x"] * 60 + ["w"], ["y"], axis=0)
    proto = model([node], [X], [Y], {"w": np.zeros((1, 4), "f4")})
    with pytest.raises(graph.Unsupported, match=r"shapes \(2, 3\) and \(1, 4\)"):
        from_onnx(proto)
    proto = model([helper.make_node("Max", ["x"] * 60 + ["w"], ["y"])], [X], [Y], {"w": [1]})
    with pytest.raises(graph.Unsupported, match=r"float32\"\), and 53 more\)") as e:
        from_onnx(proto)
    assert len(str(e.value)) < 600


def test_names_that_are_no_text_do_no_harm():
    proto = model([relu()], [X], [Y])
    for name in (b"first", b"x", b"y"):
        data = proto.SerializeToString().replace(name, b"\xff\xfe" + name[2:])
        try:
            text = from_onnx(data).script()
        except graph.Unsupported as e:
            text = str(e)
        assert (
            text.encode("ascii", "backslashreplace").decode("ascii").isprintable() or "\n" in text
        )


def test_paths_that_are_no_model(tmp_path):
    (tmp_path / "empty.onnx").write_bytes(b"")
    data = model([relu()], [X], [Y]).SerializeToString()
    (tmp_path / "cut.onnx").write_bytes(data[: len(data) // 2])
    for name in ("empty.onnx", "cut.onnx"):
        with pytest.raises(graph.Unsupported, match="no ONNX model"):
            from_onnx(tmp_path / name)
    with pytest.raises(graph.Unsupported, match="Is a directory; expected an ONNX file"):
        from_onnx(tmp_path)
    with pytest.raises(graph.Unsupported, match="No such file"):
        from_onnx(tmp_path / "missing.onnx")


def test_the_code_of_the_readme_runs(rng, tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "README.md").read_text()
    (block,) = [
        b for b in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if "from_onnx" in b
    ]
    monkeypatch.chdir(tmp_path)
    onnx.save(residual_net(rng), "model.onnx")
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["outputs"][0].shape == (1, 5)
    again = graph.load("model")
    np.testing.assert_array_equal(again(*names["inputs"])[0], names["outputs"][0])

"""Models compiled and called."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from graph_models import ELEM, info, model, reference, residual_net
from onnx import helper, numpy_helper

from autosched import build, graph, te
from autosched.codegen import compilers
from autosched.errors import ArgumentError, BuildError
from autosched.graph import kernels, nn, op
from autosched.graph.plan import Life, place
from autosched.target import target


@pytest.fixture(scope="module")
def net():
    return residual_net(np.random.default_rng(1))


@pytest.fixture(scope="module")
def compiled(net):
    return graph.build(graph.from_onnx(net))


def test_a_model_computes_what_onnx_says(net, compiled, rng):
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    (y,) = compiled(x)
    np.testing.assert_allclose(y, reference(net, x)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], y)
    assert (compiled.inputs[0].name, compiled.inputs[0].shape) == ("x", (1, 3, 12, 12))
    assert (compiled.outputs[0].name, compiled.outputs[0].dtype) == ("y", "float32")


def test_a_mapping_in_place_of_arrays_is_pointed_to_run(compiled, rng):
    with pytest.raises(ArgumentError, match=r"expected the inputs x in this order.*model\.run"):
        compiled({"x": rng.standard_normal((1, 3, 12, 12)).astype("f4")})


def test_outputs_are_fresh_and_calls_do_not_disturb_each_other(compiled, rng):
    xs = [rng.standard_normal((1, 3, 12, 12)).astype("f4") for _ in range(6)]
    wanted = [compiled(x)[0].copy() for x in xs]
    found: dict[int, np.ndarray] = {}

    def work(n: int) -> None:
        for _ in range(20):
            found[n] = compiled(xs[n])[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n in range(6):
        np.testing.assert_array_equal(found[n], wanted[n])


def test_kernels_are_fused_and_named(compiled):
    names = [k.name for k in compiled.kernels]
    assert names == ["fused_conv_relu", "fused_conv_add_relu", "global_average_pool", "gemm"]
    assert all(k.workload_key.startswith("1-") for k in compiled.kernels)
    assert [k.implementation for k in compiled.kernels[:3]] == [
        "conv.direct (plevel 10): default schedule",
        "conv.direct (plevel 10): default schedule",
        "default schedule",
    ]
    (lowered,) = compiled.lowered.values()
    assert set(lowered) == set(names)
    (step,) = json.loads(compiled.graph_json)["program"]["steps"]
    assert [c["kernel"] for c in step["calls"]] == names
    assert compiled.plan.bytes >= compiled.plan.peak > 0


def test_other_processes_compile_what_this_one_does(net, compiled, monkeypatch):
    started = []

    class Watched(compilers.Compilers):
        def __exit__(self, *error):
            started.append(len(self._children))
            super().__exit__(*error)

    monkeypatch.setattr(compilers, "Compilers", Watched)
    monkeypatch.setattr(target, "available_cores", lambda: 2)
    mod = graph.from_onnx(net)
    for few, children in ((len(compiled.kernels), 2), (len(compiled.kernels) + 1, 0)):
        monkeypatch.setattr(kernels, "_FEW", few)
        made = graph.build(mod)
        assert started.pop() == children
        assert [k.artifact for k in made.kernels] == [k.artifact for k in compiled.kernels]


def test_wrong_inputs_are_refused(compiled):
    x = np.zeros((1, 3, 12, 12), "f4")
    with pytest.raises(ArgumentError, match=r"expected \(1, 3, 12, 12\) and float32"):
        compiled(x[:, :, :5])
    with pytest.raises(ArgumentError, match="dtype float64"):
        compiled(x.astype("f8"))
    with pytest.raises(ArgumentError, match="takes 1 inputs"):
        compiled(x, x)
    with pytest.raises(ArgumentError, match="takes the inputs x; found z"):
        compiled.run({"z": x})


def test_inputs_of_any_layout_give_the_same(compiled, rng):
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    (want,) = compiled(x)
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    frozen = x.copy()
    frozen.flags.writeable = False
    forms = {
        "big-endian": x.astype(">f4"),
        "every second": np.repeat(x, 2, -1)[..., ::2],
        "backwards": x[..., ::-1].copy()[..., ::-1],
        "fortran": np.asfortranarray(x),
        "unaligned": shifted,
        "read-only": frozen,
        "broadcast": np.broadcast_to(x[0], x.shape),
    }
    for name, form in forms.items():
        np.testing.assert_array_equal(compiled(form)[0], want, err_msg=name)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0], [2.0, 3.0]], "is a list that is no array.*expected an array of shape"),
        (object(), r"has shape \(\) and dtype object"),
        ("text", "has shape"),
        (None, "dtype object; expected"),
        (np.zeros((1, 3, 12), "f4"), r"expected \(1, 3, 12, 12\) and float32"),
        (np.zeros((1, 3, 12, 12), "f8"), "dtype float64; expected"),
    ],
)
def test_what_is_no_input_is_refused_by_name(compiled, value, message):
    with pytest.raises(ArgumentError, match=f"input x .*{message}"):
        compiled(value)


def test_inputs_by_name_are_refused_by_name(compiled):
    with pytest.raises(ArgumentError, match="takes the inputs x; found y, z"):
        compiled.run({"y": 1, "z": 2})
    with pytest.raises(ArgumentError, match="the inputs x; found ndarray"):
        compiled.run(np.zeros(3))


def test_damaged_models_are_refused(compiled, tmp_path):
    compiled.save(tmp_path / "m")
    files = {f.name: f.read_bytes() for f in (tmp_path / "m").iterdir()}
    for name, data in files.items():
        for broken in (b"", b"{}", b"[]", data[: len(data) // 2]):
            (tmp_path / "m" / name).write_bytes(broken)
            with pytest.raises(ArgumentError, match="compile"):
                graph.load(tmp_path / "m")
        (tmp_path / "m" / name).write_bytes(data)
    assert graph.load(tmp_path / "m").inputs == compiled.inputs


def test_intermediate_values_without_room_are_refused(monkeypatch):
    from autosched.graph import executor

    def full(shape, dtype):
        raise MemoryError(f"Unable to allocate {shape} of {dtype}")

    x = graph.var("x", (3,))
    mod = graph.module(main=graph.function([x], op.softmax(op.exp(x))))
    monkeypatch.setattr(executor, "empty", full)
    with pytest.raises(BuildError, match=r"intermediate values of the model take .* bytes"):
        graph.build(mod)


def test_params_make_inputs_constants(rng):
    x, w = graph.var("x", (2, 8)), graph.var("w", (4, 8))
    mod = graph.module(main=graph.function([x, w], op.gemm(x, w, transB=1)))
    weight = rng.standard_normal((4, 8)).astype("f4")
    compiled = graph.build(mod, params={"w": weight})
    assert [i.name for i in compiled.inputs] == ["x"]
    a = rng.standard_normal((2, 8)).astype("f4")
    np.testing.assert_allclose(compiled(a)[0], a @ weight.T, rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError, match="the inputs are x, w"):
        graph.build(mod, params={"v": weight})


def test_results_that_are_inputs_constants_or_given_twice():
    x = graph.var("x", (3,))
    y = op.exp(x)
    c = graph.const([1.0, 2.0])
    mod = graph.module(main=graph.function([x], [x, y, y, graph.builder.Value(c)]))
    a = np.array([0.0, 1.0, 2.0], "f4")
    out = graph.build(mod)(a)
    np.testing.assert_array_equal(out[0], a)
    np.testing.assert_allclose(out[1], np.exp(a), rtol=1e-6)
    np.testing.assert_array_equal(out[1], out[2])
    np.testing.assert_array_equal(out[3], [1.0, 2.0])
    out[0][...] = 7
    out[3][...] = 7
    assert a[1] == 1.0
    np.testing.assert_array_equal(graph.build(mod)(a)[3], [1.0, 2.0])


def _loop_model():
    """h = tanh(h @ w) n times, stopped once the sum of h exceeds a bound; an If in the body."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["m"]),
            helper.make_node("ReduceSum", ["m"], ["s"], keepdims=0),
            helper.make_node("Greater", ["s", "zero"], ["big"]),
            helper.make_node(
                "If",
                ["big"],
                ["k"],
                then_branch=helper.make_graph(
                    [helper.make_node("Tanh", ["m"], ["kt"])], "t", [], [info("kt", [2, 3])]
                ),
                else_branch=helper.make_graph(
                    [helper.make_node("Neg", ["m"], ["ke"])], "e", [], [info("ke", [2, 3])]
                ),
            ),
            helper.make_node("Identity", ["c"], ["c2"]),
        ],
        "body",
        [info("i", [], "int64"), info("c", [], "bool"), info("h", [2, 3])],
        [info("c2", [], "bool"), info("k", [2, 3]), info("s", [])],
    )
    rng = np.random.default_rng(3)
    weights = {"w": -np.eye(3, dtype="f4") + rng.standard_normal((3, 3)).astype("f4") * 0.1,
               "zero": np.float32(0)}  # fmt: skip
    return model(
        [helper.make_node("Loop", ["n", "", "h0"], ["h", "sums"], body=body)],
        [info("n", [], "int64"), info("h0", [2, 3])],
        [info("h", [2, 3]), helper.make_tensor_value_info("sums", ELEM["float32"], None)],
        weights,
    )


def test_symbolic_sizes_are_evaluated_and_a_group_has_a_kernel_for_all(rng):
    n = te.var("n")
    x, w = graph.var("x", (n, 8)), graph.const(rng.standard_normal((4, 8)).astype("f4"))
    mod = graph.module(main=graph.function([x], op.relu(nn.dense(x, w))))
    with pytest.raises(graph.Unsupported, match=r"'x' has the shape \(n, 8\), whose size n"):
        graph.build(mod)
    fused = graph.passes.optimise(mod)["fused_gemm_relu"]
    kernel = build(graph.lower(fused))
    for rows in (1, 5, 33):
        data = rng.standard_normal((rows, 8)).astype("f4")
        out = np.empty((rows, 4), np.float32)
        kernel(data, w.value, out)
        np.testing.assert_allclose(out, graph.evaluate(mod, "main", data), rtol=1e-5, atol=1e-5)


def test_loops_and_branches(rng):
    proto = _loop_model()
    mod = graph.from_onnx(proto)
    compiled = graph.build(mod)
    w = numpy_helper.to_array(proto.graph.initializer[0])
    start = rng.standard_normal((2, 3)).astype("f4")
    for steps in (1, 4):
        h, sums = start, []
        for _ in range(steps):
            h = h @ w
            sums.append(h.sum())
            h = np.tanh(h) if sums[-1] > 0 else -h
        n = np.array(steps, "i8")
        for got in (compiled(n, start), graph.evaluate(mod, "main", n, start)):
            np.testing.assert_allclose(got[0], h, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(got[1], sums, rtol=1e-4, atol=1e-5)


def test_profile_times_each_kernel(compiled):
    rows = compiled.profile(np.zeros((1, 3, 12, 12), "f4"), repeat=2)
    assert [k.name for _, k, _ in rows] == [k.name for k in compiled.kernels]
    assert all(seconds > 0 for _, _, seconds in rows)
    timing = compiled.time_evaluator(number=2)(np.zeros((1, 3, 12, 12), "f4"))
    assert timing.median > 0


def test_the_plan_never_puts_two_living_values_in_one_place():
    rng = np.random.default_rng(5)
    for _ in range(200):
        lives = []
        for n in range(int(rng.integers(1, 30))):
            first = int(rng.integers(0, 20))
            last = first + int(rng.integers(0, 6))
            lives.append(Life(f"v{n}", int(rng.integers(1, 2000)), first, last))
        plan = place(lives)
        for n, (a, at) in enumerate(zip(plan.lives, plan.offsets, strict=True)):
            assert at % 64 == 0
            assert at + a.bytes <= plan.bytes
            for b, other in zip(plan.lives[:n], plan.offsets[:n], strict=True):
                alive = a.first <= b.last and b.first <= a.last
                assert not alive or at + a.bytes <= other or other + b.bytes <= at
        assert plan.bytes >= plan.peak


def test_a_saved_model_runs_in_a_process_without_compiler(compiled, rng, tmp_path):
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    compiled.save(tmp_path / "m")
    np.save(tmp_path / "x.npy", x)
    code = f"""
import sys
import numpy as np

from autosched import graph
model = graph.load({str(tmp_path / "m")!r})
(y,) = model(np.load({str(tmp_path / "x.npy")!r}))
np.save({str(tmp_path / "y.npy")!r}, y)
loaded = {{"onnx", "autosched.te", "autosched.sketch", "autosched.schedule"}} & {{*sys.modules}}
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), compiled(x)[0])
    again = graph.load(tmp_path / "m")
    assert [k.workload_key for k in again.kernels] == [k.workload_key for k in compiled.kernels]
    assert again.plan == compiled.plan
    with pytest.raises(ArgumentError, match="holds no compiled model"):
        graph.load(tmp_path)


def test_a_model_is_saved_and_not_pickled(compiled):
    with pytest.raises(TypeError, match=r"write it by save\(folder\), and read it by graph.load"):
        pickle.dumps(compiled)


def test_saved_loops_and_branches_run(rng, tmp_path):
    compiled = graph.build(graph.from_onnx(_loop_model()))
    compiled.save(tmp_path)
    again = graph.load(tmp_path)
    n, h = np.array(3, "i8"), rng.standard_normal((2, 3)).astype("f4")
    for a, b in zip(compiled(n, h), again(n, h), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_cache_keeps_kernels_and_survives_torn_files(net, rng, tmp_path, monkeypatch):
    mod = graph.from_onnx(net)
    first = graph.build(mod, cache=tmp_path)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    want = first(x)[0]
    files[0].write_text("{torn")
    built = []
    import autosched.codegen.build as codegen

    whole = codegen.generate_sources
    monkeypatch.setattr(
        codegen, "generate_sources", lambda *args: built.append(args[0]) or whole(*args)
    )
    np.testing.assert_array_equal(graph.build(mod, cache=tmp_path)(x)[0], want)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match=r"cache is the file .*; expected a folder"):
        graph.build(mod, cache=tmp_path / "file")
    assert len([f for f in built if "prepare" not in f.name]) == 1

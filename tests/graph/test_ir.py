"""Functions made by calls, their types, text, and equality."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import residual_net
from language import dense_twice

from autosched import graph
from autosched.errors import ScheduleError, ScriptError, WorkloadError
from autosched.graph import infer, op, passes
from autosched.graph.builder import const
from autosched.graph.ir import Binding, Body, Call, Function, Var
from autosched.graph.onnx_import import from_onnx
from autosched.graph.printer import _Printer
from autosched.graph.types import TensorType
from autosched.script import parse
from autosched.tir.module import IRModule


def test_a_value_used_twice_is_bound_once():
    main = dense_twice()["main"]
    assert [b.value.callee for b in main.body.bindings] == ["Gemm", "Relu", "Add"]
    assert main.type.results == (TensorType((1, 32), "float32"),)


def test_text_reads_back_as_the_same_module():
    mod = dense_twice()
    assert "relu = op.relu(gemm)" in mod.script()
    again = parse(mod.script())
    assert again.same(mod)
    assert again.script() == mod.script()


def test_same_knows_other_functions_apart():
    x = graph.var("x", (4,), "float32")
    y = graph.var("renamed", (4,), "float32")
    f = graph.function([x], op.exp(x) + 1.0)
    assert f.same(graph.function([y], op.exp(y) + 1.0))
    assert not f.same(graph.function([y], op.exp(y) + 2.0))
    assert not f.same(graph.function([y], op.sqrt(y) + 1.0))
    z = graph.var("x", (5,), "float32")
    assert not f.same(graph.function([z], op.exp(z) + 1.0))


def test_large_constants_stand_in_text_by_digest(rng):
    mod = from_onnx(residual_net(rng))
    assert "G.data(" in mod.script()
    skeleton = parse(mod.script())
    assert skeleton.same(mod)
    with pytest.raises(WorkloadError, match="not in the text"):
        graph.evaluate(skeleton, "main", np.zeros((1, 3, 12, 12), "f4"))
    arrays = {c.digest: c.value for c in graph.constants(mod)}
    whole = parse(mod.script(), constants=arrays)
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    np.testing.assert_array_equal(graph.evaluate(whole, "main", x), graph.evaluate(mod, "main", x))


def test_every_stage_of_a_build_reads_back(rng):
    mod = from_onnx(residual_net(rng))
    for one in passes.PIPELINE:
        mod = one(mod)
        assert parse(mod.script()).same(mod), one.name


def test_loop_functions_stand_beside_graph_functions():
    from autosched import te

    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    mod = dense_twice().with_function("plus", te.create_prim_func([A, B], "plus"))
    again = parse(mod.script())
    assert again.same(mod)
    assert set(again) == {"main", "plus"}
    with pytest.raises(ScheduleError, match=r"graph\.build"):
        _ = dense_twice().main
    with pytest.raises(ScheduleError, match="names a loop function and a graph function"):
        IRModule({"main": mod["plus"]}, {"main": mod["main"]})


def test_if_and_closures_in_text():
    text = """
@G.module
class M:
    @G.function
    def main(c: G.Tensor((), "bool"), x: G.Tensor((3,), "float32")) -> G.Tensor((3,), "float32"):
        @G.function
        def shift(y: G.Tensor((3,), "float32")) -> G.Tensor((3,), "float32"):
            z = op.add(y, x)
            return z
        if c:
            a = op.exp(x)
            out = a
        else:
            out = x
        b = shift(out)
        return b
"""
    mod = parse(text)
    assert parse(mod.script()).same(mod)
    x = np.array([0.0, 1.0, 2.0], "f4")
    for condition, first in ((True, np.exp(x)), (False, x)):
        got = graph.evaluate(mod, "main", np.array(condition), x)
        np.testing.assert_allclose(got, first + x, rtol=1e-6)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = op.nothing(x)", r"no operator op\.nothing"),
        ("y = op.add(x, z)", "z is not defined"),
        ("y = op.add(x, None + x)", "None stands only for an input that is left out"),
        ("y = op.relu(x, alpha=2)", "Relu has no attribute alpha"),
        ("y = op.reshape(x, shape=(7,))", "Reshape"),
        ("y = [x]", "expected a value"),
    ],
)
def test_wrong_text_is_shown_with_its_place(line, message):
    text = f"""
@G.module
class M:
    @G.function
    def main(x: G.Tensor((3,), "float32")) -> G.Tensor((3,), "float32"):
        {line}
        return y
"""
    with pytest.raises(ScriptError, match=message) as e:
        parse(text)
    assert e.value.line == 6


@pytest.mark.long
def test_a_chain_of_50000_operators_passes_every_pass():
    x = Var("x", TensorType((8,), "float32"))
    last, bindings = x, []
    one = const(1.0, "float32")
    for _ in range(50_000):
        v = Var("v", x.type)
        bindings.append(Binding((v,), Call("Add", (last, one))))
        last = v
    mod = IRModule({}, {"main": Function("main", (x,), Body(tuple(bindings), (last,)))})
    for one_pass in passes.PIPELINE:
        mod = one_pass(mod)
    assert mod["main"].same(mod["main"])
    assert mod.script().count("def ") > 1


def test_names_of_a_long_function_are_each_tried_a_few_times():
    """50,000 variables of one name used to be numbered from 1 each."""

    class Counting(set):
        asked = 0

        def __contains__(self, name):
            Counting.asked += 1
            return super().__contains__(name)

    x = graph.var("v", (8,), "float32")
    y = x
    for _ in range(200):
        y = op.add(y, x)
    f = graph.function([x], y)
    printer = _Printer(f)
    printer.taken = Counting(printer.taken)
    assert "add_199 = op.add(add_198, v)" in printer.function(f)
    assert Counting.asked < 1000


def test_an_operator_is_made_a_program_once(monkeypatch):
    made = []
    define = infer.define
    monkeypatch.setattr(infer, "define", lambda name, *a: made.append(name) or define(name, *a))
    infer._program.cache_clear()
    x = np.arange(6, dtype="f4").reshape(2, 3)
    for _ in range(3):
        infer.evaluate_operator("ReduceSum", [x], {"axes": (1,)}, 1)
    assert made == ["ReduceSum"]
    for zero in (0.0, -0.0):  # equal, and not the same
        (y,) = infer.evaluate_operator("Mul", [np.ones(2, "f4"), np.float32([zero])], {}, 1)
        assert np.signbit(y).all() == np.signbit(zero)


def test_arithmetic_on_values_calls_operators():
    x = graph.var("x", (4,), "float32")
    f = graph.function([x], (2.0 - x) * x / 3.0 + x**2.0)
    mod = graph.module(main=f)
    a = np.array([1.0, 2.0, -1.0, 0.5], "f4")
    np.testing.assert_allclose(graph.evaluate(mod, "main", a), (2 - a) * a / 3 + a**2, rtol=1e-6)
    with pytest.raises(WorkloadError, match="true or false only when it runs"):
        bool(x < 1.0)


def test_sizes_of_numpy_are_numbers():
    x = graph.var("x", (np.int64(2), np.int32(3)))
    model = graph.build(graph.module(main=graph.function([x], op.relu(x))))
    np.testing.assert_array_equal(model(np.ones((2, 3), "f4"))[0], np.ones((2, 3)))


def test_a_function_of_unknown_variables_is_refused():
    x, y = graph.var("x", (4,)), graph.var("y", (4,))
    with pytest.raises(WorkloadError, match="uses the variable y"):
        graph.function([x], x + y)


@pytest.mark.parametrize("name", ["x.1", "a b", "0", "lambda", "op"])
def test_a_variable_of_any_name_has_text_that_reads_back(name):
    x, y = graph.var(name, (2,)), graph.var("x_1", (2,))
    mod = graph.module(main=graph.function([x, y], x - y))
    again = parse(mod.script())
    assert again.same(mod)
    assert graph.evaluate(again, "main", np.ones(2, "f4"), np.zeros(2, "f4")).tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3), (0, 0)])
def test_a_constant_without_elements_needs_no_array_to_be_read(shape):
    mod = graph.module(main=graph.function([], graph.const(np.zeros(shape, "f4"))))
    assert ("G.const(" in mod.script()) == (0 not in shape[:-1])
    again = parse(mod.script())
    assert again.same(mod)
    assert graph.evaluate(again).shape == shape


def test_a_constant_is_a_result():
    x = graph.var("x", (2,))
    f = graph.function([x], [x, graph.const([1.0, 2.0])])
    found = graph.build(graph.module(main=f))(np.ones(2, "f4"))
    assert [a.tolist() for a in found] == [[1, 1], [1, 2]]

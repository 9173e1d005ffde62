"""If, Loop and Scan from ONNX files, with state: by the evaluator and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from control_models import any_shape, count_ifs, loop_model, node, part, scan_model, voice_model
from graph_models import info, model, reference

from autosched import graph
from autosched.graph.higher import HIGHER
from autosched.graph.ir import Call, bodies
from autosched.script import parse

F = np.float32


def run_both(proto, inputs, wanted):
    """The evaluator's results and the compiled model's are those wanted, in type as well."""
    mod = graph.from_onnx(proto)
    built = graph.build(mod)
    for given, want in zip(inputs, wanted, strict=True):
        found = graph.evaluate(mod, "main", *given)
        several = found if isinstance(found, tuple) else (found,)
        for row in (several, built(*given)):
            for x, y in zip(row, want, strict=True):
                assert (x.shape, x.dtype) == (y.shape, y.dtype)
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    return mod, built


def operators(body):
    """Names of all operators that are called, in bodies inside it, too."""
    for b in body.bindings:
        if isinstance(b.value, Call) and isinstance(b.value.callee, str):
            yield b.value.callee
        for inner in bodies(b.value):
            yield from operators(inner)


def test_a_nest_of_if_with_a_state_from_window_to_window(rng):
    """25 If; the state goes through six windows at both rates."""
    proto = voice_model(rng)
    assert count_ifs(proto.graph) == 25
    mod = graph.from_onnx(proto)
    built = graph.build(mod)
    assert built.host_operators == ()  # what follows the If has types again
    constants = {c.digest: c.array for c in graph.constants(mod)}
    assert parse(mod.script(), constants=constants).same(mod)
    for rate in (16000, 8000):
        state = [np.zeros((1, 1, 16), F)] * 2
        other = state
        for n in range(3):
            x = rng.standard_normal((1, 64)).astype(F) * (n + 0.1)
            y, *state = built(x, np.int64(rate), *state)
            want, *other = reference(proto, x, np.int64(rate), *other)
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
        for a, b in zip(state, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_if_nests_twenty_five_deep(rng):
    proto = voice_model(rng, depth=25)
    built = graph.build(graph.from_onnx(proto))
    for scale in (1, -1, 0.1):
        given = [rng.standard_normal((1, 64)).astype(F) * scale, np.int64(16000),
                 *(rng.standard_normal((1, 1, 16)).astype(F) for _ in range(2))]  # fmt: skip
        for x, y in zip(built(*given), reference(proto, *given), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def loop(h, count, go, ends="data", grows=False, scanned=True):
    """What `loop_model` computes."""
    rows, totals, n = h, [], 0
    while (go is None or go) and (count is None or n < count):
        h = (np.tanh(h @ (np.eye(4, dtype=F) * F(0.9))) + F(n)).astype(F)
        rows = np.concatenate([rows, h])
        totals.append(h.sum(dtype=F))
        go = totals[-1] < 6 if ends == "data" else True if ends == "same" and go is None \
            else go if ends == "same" else ends  # fmt: skip
        n += 1
    return [h, *([rows] if grows else []), *([np.array(totals, F)] if scanned else [])]


H = np.random.default_rng(0).standard_normal((2, 4)).astype(F)
LOOPS = {
    # Arguments of the model: counts and conditions that it is run with.
    "a count and a condition": ({}, [(3, True), (0, True), (4, False), (50, True)]),
    "a condition alone": ({"trips": ""}, [(None, True), (None, False)]),
    "a constant condition": ({"trips": "", "go": True}, [(None, True)]),
    "neither": ({"trips": "", "go": "", "ends": False}, [(None, None)]),
    "a count alone": ({"go": "", "ends": "same"}, [(3, None), (0, None)]),
    "a constant count": ({"trips": 3, "go": True, "ends": True}, [(3, True)]),
    "a constant count, the condition as it was": ({"trips": 3, "go": "", "ends": "same"},
                                                  [(3, None)]),
    "a constant count that may end early": ({"trips": 5, "go": ""}, [(5, None)]),
    "many turns": ({"trips": 40, "go": "", "ends": "same"}, [(40, None)]),
    "no turn": ({"trips": 0, "go": ""}, [(0, None)]),
    "never": ({"trips": 5, "go": False}, [(5, False)]),
    "a state that grows": ({"grows": True}, [(3, True), (0, True)]),
    "a state that grows, a constant count": ({"grows": True, "trips": 3, "go": "", "ends": True},
                                             [(3, None)]),
    "nothing scanned": ({"scanned": False}, [(3, True)]),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_loop(name):
    given, runs = LOOPS[name]
    proto = loop_model(**given)
    kept = {k: v for k, v in given.items() if k in ("ends", "grows", "scanned")}
    inputs, wanted = [], []
    for count, go in runs:
        named = {"n": None if count is None else np.int64(count), "go": np.array(go)}
        inputs.append([H, *(named[i.name] for i in proto.graph.input[1:])])
        wanted.append(loop(H, count, go, **kept))
    mod, built = run_both(proto, inputs, wanted)
    constant = isinstance(given.get("trips"), int) and given["trips"] <= 8
    if (constant and given.get("ends", "data") != "data") or name in ("no turn", "never"):
        assert "Loop" not in list(operators(mod["main"].body))
        assert not built.host_operators


def scan(x, axis=0, back=0, out_axis=0, out_back=0, states=1, steps=5):
    """What `scan_model` computes."""
    rows = np.moveaxis(x, axis, 0)[:: -1 if back else 1]
    h, ys, count = np.linspace(-1, 1, 3).astype(F), [], F(1)
    for row in rows:
        h = np.tanh(h + row) if states else row
        ys.append(h * row)
        count += F(1)
    made = np.stack(ys[::-1] if out_back else ys)
    ends = [h, *([count] if states == 2 else [])] if states else []
    return [*map(np.asarray, ends), np.moveaxis(made, 0, out_axis)]


SCANS = [
    {}, {"axis": 1}, {"axis": -1, "back": 1}, {"back": 1, "out_back": 1}, {"out_axis": 1},
    {"out_axis": -1, "out_back": 1}, {"states": 2}, {"states": 0}, {"steps": 1}, {"steps": 20},
]  # fmt: skip


@pytest.mark.parametrize("given", SCANS, ids=str)
def test_scan(given, rng):
    proto = scan_model(**given)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    x = rng.standard_normal([d.dim_value for d in dims]).astype(F)
    mod, _ = run_both(proto, [[x]], [scan(x, **given)])
    # Slices are picked inside of kernels: it is a loop of native calls.
    assert "Scan" not in list(operators(mod["main"].body))


@pytest.mark.parametrize("known", [True, False])
def test_what_a_loop_of_no_turn_scans_has_the_shape_that_its_body_declares(known):
    """A sum over the first i columns, whose number no type says."""
    nodes = [
        node("Unsqueeze", ["i", "zero"], ["end"]),
        node("Slice", ["x", "zero", "end", "one"], ["p"]),
        node("ReduceSum", ["p"], ["y"], keepdims=0),
        node("Identity", ["c"], ["c2"]),
    ]
    ends = {"zero": np.array([0]), "one": np.array([1])}
    given = [info("i", [], "int64"), info("c", [], "bool")]
    body = part("body", nodes, given, [info("c2", [], "bool"), info("y", [])], ends)
    ins = [info("x", [2, 3]), *([] if known else [info("n", [], "int64")])]
    weights = {"n": np.int64(0)} if known else {}
    proto = model([node("Loop", ["n", ""], ["ys"], body=body)], ins, [any_shape("ys")], weights)
    x = np.arange(6, dtype=F).reshape(2, 3)
    runs = [[x]] if known else [[x, np.int64(0)], [x, np.int64(3)]]
    run_both(proto, runs, [[np.zeros(0, F)], [np.array([0, 3, 8], F)]][: len(runs)])


def test_a_scan_over_inputs_of_different_lengths_is_refused():
    inner = part("body", [node("Add", ["a", "b"], ["y"])], [info(n, [3]) for n in "ab"],
                 [info("y", [3])])  # fmt: skip
    scanned = [node("Scan", ["x", "w"], ["ys"], body=inner, num_scan_inputs=2)]
    proto = model(scanned, [info("x", [2, 3]), info("w", [4, 3])], [any_shape("ys")])
    with pytest.raises(graph.Unsupported, match=r"node 0.*have 2 and 4 steps"):
        graph.from_onnx(proto)
    with pytest.raises(graph.Unsupported, match="have 2 and 4 steps"):  # known as it runs
        HIGHER["Scan"](lambda a, b: [a + b], np.zeros(2, F), np.zeros(4, F), num_scan_inputs=2)


def test_a_branch_for_other_sizes_is_refused_when_it_is_taken(rng):
    """As in a model for two sampling rates, of which the sizes given suit one."""
    branches = [
        part(f"b{n}", [node("MatMul", ["x", f"w{n}"], [f"y{n}"])], [], [any_shape(f"y{n}")],
             {f"w{n}": rng.standard_normal((n, 2)).astype(F)})
        for n in (4, 3)
    ]  # fmt: skip
    proto = model(
        [node("If", ["c"], ["y"], name="rate", then_branch=branches[0], else_branch=branches[1])],
        [info("c", [], "bool"), info("x", [2, 4])],
        [any_shape("y")],
    )
    mod = graph.from_onnx(proto)
    assert parse(mod.script(), constants={c.digest: c.array for c in graph.constants(mod)}).same(
        mod
    )
    built = graph.build(mod)
    x = rng.standard_normal((2, 4)).astype(F)
    w = mod["main"].body.bindings[0].value.then.bindings[0].value.args[1].value
    np.testing.assert_allclose(built(np.array(True), x)[0], x @ w, rtol=1e-4, atol=1e-5)
    for call in (lambda *a: built(*a), lambda *a: graph.evaluate(mod, "main", *a)):
        with pytest.raises(graph.Unsupported, match=r"node .*MatMul.*do not go together"):
            call(np.array(False), x)
    # Where no branch fits, the file is refused, and so is an operator that there is not.
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 5
    with pytest.raises(graph.Unsupported, match="do not go together"):
        graph.from_onnx(proto)
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 4
    proto.graph.node[0].attribute[1].g.node[0].op_type = "Nothing"
    with pytest.raises(graph.Unsupported, match=r"\(Nothing\): this operator is not supported"):
        graph.from_onnx(proto)


def test_loops_inside_branches_and_branches_inside_loops(rng):
    """A Loop in an If in a Loop, over values of all bodies around."""
    inner = part(
        "inner",
        [node("Add", ["u", "x"], ["u2"]), node("Identity", ["d"], ["d2"])],
        [info("j", [], "int64"), info("d", [], "bool"), info("u", [3])],
        [info("d2", [], "bool"), info("u2", [3])],
    )
    then = part("then", [node("Loop", ["n", "", "h"], ["t"], body=inner)], [], [info("t", [3])])
    other = part("other", [node("Mul", ["h", "half"], ["o"])], [], [info("o", [3])])
    outer = part(
        "outer",
        [
            node("ReduceSum", ["h"], ["s"], keepdims=0),
            node("Less", ["s", "limit"], ["small"]),
            node("If", ["small"], ["h2"], then_branch=then, else_branch=other),
            node("Identity", ["c"], ["c2"]),
        ],
        [info("i", [], "int64"), info("c", [], "bool"), info("h", [3])],
        [info("c2", [], "bool"), info("h2", [3]), info("s", [])],
    )
    proto = model(
        [node("Loop", ["m", "", "x"], ["y", "sums"], body=outer)],
        [info("x", [3]), info("m", [], "int64"), info("n", [], "int64")],
        [any_shape("y"), any_shape("sums")],
        {"half": F(0.5), "limit": F(4)},
    )
    inputs, wanted = [], []
    for m, n in ((6, 2), (3, 0), (0, 4)):
        x = rng.uniform(0, 1, 3).astype(F)
        h, sums = x, []
        for _ in range(m):
            sums.append(h.sum(dtype=F))
            h = h + n * x if sums[-1] < 4 else h * F(0.5)
        inputs.append([x, np.int64(m), np.int64(n)])
        wanted.append([h.astype(F), np.array(sums, F)])
    run_both(proto, inputs, wanted)


def test_malformed_loops_are_refused_by_name():
    table = [
        (lambda b: b.graph.node[0].attribute.pop(), "the attribute body is missing"),
        (lambda b: b.graph.node[0].attribute[0].g.input.pop(), "its body has 2 inputs; expected 3"),
    ]
    for change, message in table:
        proto = loop_model()
        change(proto)
        with pytest.raises(graph.Unsupported, match=rf"Loop.*{message}"):
            graph.from_onnx(proto)

"""ONNX models with control flow, made in the test: If in If, Loop, Scan."""

from __future__ import annotations

import numpy as np
from graph_models import ELEM, info, model
from onnx import helper, numpy_helper

node = helper.make_node


def any_shape(name, dtype="float32"):
    """An output whose shape is not said."""
    return helper.make_tensor_value_info(name, ELEM[dtype], None)


def part(name, nodes, inputs, outputs, weights=None):
    """A graph inside a node."""
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    return helper.make_graph(nodes, name, inputs, outputs, tensors)


class Names:
    """Fresh names with a prefix."""

    def __init__(self, prefix):
        self.prefix, self.count = prefix, 0

    def __call__(self, base="v"):
        self.count += 1
        return f"{self.prefix}{base}{self.count}"


def voice_model(rng, depth=12, hidden=16):
    """In the manner of silero_vad's export: two encoders, chosen by the sampling rate, in each a
    nest of `depth` If, and an LSTM whose state the caller carries from window to window.

    Conditions are of all the kinds that exporters leave: of shapes (known when the file is read),
    of the rate, of the data; the two branches may have results of other ranks, which the next one
    undoes. Altogether 2 * depth + 1 If.
    """
    both = {}

    def weight(name, *shape):
        both[name] = (rng.standard_normal(shape) * 0.3).astype("f4")
        return name

    weight("W", 1, 4 * hidden, hidden)
    weight("R", 1, 4 * hidden, hidden)
    weight("B", 1, 8 * hidden)
    both |= {
        "two": np.int64(2),
        "zero": np.float32(0),
        "axes0": np.array([0]),
        "rate": np.int64(16000),
        "half": np.float32(0.5),
    }

    def level(prefix, at, x):
        """Nodes that make a feature (1, hidden) of `x` (1, hidden) through `at` nested If."""
        new = Names(f"{prefix}{at}_")
        nodes, out = [], new("out")
        if at == 0:
            nodes.append(node("MatMul", [x, weight(f"{prefix}w", hidden, hidden)], [new("m")]))
            nodes.append(node("Tanh", [nodes[-1].output[0]], [out]))
            return nodes, out
        kind, condition = at % 4, new("c")
        if kind == 0:  # of a shape: known when the file is read
            shape, rank = new("shape"), new("rank")
            nodes += [node("Shape", [x], [shape]), node("Size", [shape], [rank]),
                      node("Equal", [rank, "two"], [condition])]  # fmt: skip
        elif kind == 1:  # of the data
            total = new("t")
            nodes += [node("ReduceSum", [x], [total], keepdims=0),
                      node("Greater", [total, "zero"], [condition])]  # fmt: skip
        elif kind == 2:  # of the rate
            nodes.append(node("Equal", ["sr", "rate"], [condition]))
        else:  # of the data, an or of two
            a, b, total = new("a"), new("b"), new("t")
            nodes += [node("ReduceMax", [x], [total], keepdims=0),
                      node("Greater", [total, "half"], [a]), node("Equal", ["sr", "rate"], [b]),
                      node("Or", [a, b], [condition])]  # fmt: skip
        inner, deep = level(prefix, at - 1, x)
        narrow = kind == 3
        ends, other = new("then"), new("else")
        if narrow:  # one branch has another rank
            inner.append(node("Squeeze", [deep, "axes0"], [ends]))
        else:
            inner.append(node("Relu", [deep], [ends]))
        outs = [any_shape(ends)], [any_shape(other)]
        otherwise = [node("Mul", [x, "half"], [other])]
        chosen = new("if")
        nodes.append(
            node("If", [condition], [chosen], then_branch=part("then", inner, [], outs[0]),
                 else_branch=part("else", otherwise, [], outs[1]))
        )  # fmt: skip
        back = new("back")
        nodes += [node("Reshape", [chosen, "row"], [back]), node("Add", [back, x], [out])]
        return nodes, out

    both["row"] = np.array([1, hidden])
    encoders = []
    for prefix, size in (("wide_", 8), ("narrow_", 4)):
        nodes = [
            node("Conv", ["frame", weight(f"{prefix}k", hidden, 1, size)], [f"{prefix}c"],
                 strides=[size]),
            node("Relu", [f"{prefix}c"], [f"{prefix}r"]),
            node("ReduceMean", [f"{prefix}r"], [f"{prefix}p"], axes=[2], keepdims=0),
        ]  # fmt: skip
        more, out = level(prefix, depth, f"{prefix}p")
        encoders.append(part(prefix, [*nodes, *more], [], [info(out, [1, hidden])]))
    nodes = [
        node("Unsqueeze", ["x", "axes0"], ["frame"]),
        node("Equal", ["sr", "rate"], ["is_wide"]),
        node("If", ["is_wide"], ["feature"], then_branch=encoders[0], else_branch=encoders[1]),
        node("Unsqueeze", ["feature", "axes0"], ["step"]),
        node("LSTM", ["step", "W", "R", "B", "", "h", "c"], ["", "hn", "cn"], hidden_size=hidden),
        node("ReduceMean", ["hn"], ["score"], axes=[0, 2], keepdims=1),
        node("Sigmoid", ["score"], ["y"]),
    ]
    state = [1, 1, hidden]
    return model(
        nodes,
        [info("x", [1, 64]), info("sr", [], "int64"), info("h", state), info("c", state)],
        [info("y", [1, 1, 1]), info("hn", state), info("cn", state)],
        both,
    )


def count_ifs(graph):
    """If nodes of a graph, those in subgraphs included."""
    return sum(
        (n.op_type == "If") + sum(count_ifs(a.g) for a in n.attribute if a.HasField("g"))
        for n in graph.node
    )


def loop_model(trips="n", go="go", ends="data", scanned=True, grows=False):
    """h = tanh(h w) + i over and over, and the sum of h each time.

    `trips` and `go`: names of the count and of the condition, "" for none, numbers for constants.
    `ends`: the condition of the next turn: "data" while the sum is small, "same" as it was, a bool.
    `grows`: a second state to which each turn appends a row.
    """
    weights = {"w": np.eye(4, dtype="f4") * 0.9, "limit": np.float32(6), "yes": np.array(True),
               "no": np.array(False)}  # fmt: skip
    inputs = [info("h0", [2, 4])]
    names = []
    for name, given, dtype in (("n", trips, "int64"), ("go", go, "bool")):
        if isinstance(given, str):
            names.append(given)
            if given:
                inputs.append(info(name, [], dtype))
        else:
            names.append(f"const_{name}")
            weights[f"const_{name}"] = np.asarray(given, dtype)
    body = [
        node("MatMul", ["h", "w"], ["m"]),
        node("Tanh", ["m"], ["t"]),
        node("Cast", ["i"], ["fi"], to=1),
        node("Add", ["t", "fi"], ["h_out"]),
        node("ReduceSum", ["h_out"], ["total"], keepdims=0),
        node("Less", ["total", "limit"], ["next"])
        if ends == "data"
        else node("Identity", ["go_in" if ends == "same" else "yes" if ends else "no"], ["next"]),
    ]
    states, results = [info("h", [2, 4])], [info("h_out", [2, 4])]
    given, made = ["h0"], ["h_end"]
    if grows:
        body.append(node("Concat", ["rows", "h_out"], ["rows_out"], axis=0))
        states.append(any_shape("rows"))
        results.append(any_shape("rows_out"))
        given.append("h0")
        made.append("rows_end")
    if scanned:
        results.append(info("total", []))
        made.append("totals")
    inner = part(
        "body", body, [info("i", [], "int64"), info("go_in", [], "bool"), *states],
        [info("next", [], "bool"), *results],
    )  # fmt: skip
    return model(
        [node("Loop", [*names, *given], made, body=inner)],
        inputs,
        [any_shape(n) for n in made],
        weights,
    )


def scan_model(axis=0, back=0, out_axis=0, out_back=0, states=1, steps=5):
    """A recurrence h = tanh(h + x_t) with the running sum as output, and a second state that
    counts; x is scanned along an axis, maybe backwards."""
    body = [
        node("Add", ["h", "xt"], ["s"]),
        node("Tanh", ["s"], ["h_out"]),
        node("Mul", ["h_out", "xt"], ["y"]),
    ]
    ins, outs = [info("h", [3])], [info("h_out", [3])]
    given, made = ["h0"], ["h_end"]
    weights = {"unit": np.float32(1), "h0": np.linspace(-1, 1, 3).astype("f4")}
    if states == 2:
        body.append(node("Add", ["k", "unit"], ["k_out"]))
        ins.append(info("k", []))
        outs.append(info("k_out", []))
        given.append("unit")
        made.append("k_end")
    if states == 0:
        body = [node("Mul", ["xt", "xt"], ["y"])]
        ins, outs, given, made = [], [], [], []
    inner = part("body", body, [*ins, info("xt", [3])], [*outs, info("y", [3])])
    shape = [3]
    shape.insert(axis % 2, steps)
    attrs = {"scan_input_axes": [axis], "scan_input_directions": [back],
             "scan_output_axes": [out_axis], "scan_output_directions": [out_back]}  # fmt: skip
    return model(
        [node("Scan", [*given, "x"], [*made, "ys"], body=inner, num_scan_inputs=1, **attrs)],
        [info("x", shape)],
        [any_shape(n) for n in (*made, "ys")],
        weights,
    )

"""Gradients through branches, loops, recursion, data types and matches: by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from control_models import scan_model
from differences import compare

from autosched import graph
from autosched.script import parse

BRANCH = """
@G.module
class M:
    @G.function
    def main(x: G.Tensor((3,), "float64"), w: G.Tensor((3, 3), "float64")):
        s = op.reduce_sum(x, keepdims=0)
        y = op.matmul(x, w)
        z = x
        if s > 0.0:
            y = op.tanh(op.matmul(y, w)) * s
            if op.reduce_max(y, keepdims=0) > 0.5:
                z = y * y
        else:
            y = op.exp(y)
        return op.reduce_sum(y * x + z, keepdims=0)
"""


def test_a_branch_in_a_branch(rng):
    mod = parse(BRANCH)
    w = rng.standard_normal((3, 3))
    seen = set()
    made = graph.gradient(mod)
    built = graph.build(made)
    for x in ([0.5, 0.4, 0.3], [-0.5, -0.4, -0.3], [2.0, 1.0, -0.5]):
        compare(mod, [np.array(x), w], rng, made)
        expected = graph.evaluate(made, "main", np.array(x), w)
        for a, b in zip(built(np.array(x), w), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
        seen.add(sum(x) > 0)
    assert seen == {True, False}
    assert parse(made.script()).same(made)
    function = graph.gradient(mod["main"])  # of a function alone: there is no call of another
    compare(mod, [np.array(x), w], rng, graph.module(main=function))


GIVES = '(G.Tensor((), "bool"), G.Tensor((2,), "float64"), G.Tensor((2,), "float64"))'
LOOPS = {
    "a count that is known, with what is scanned": """
        four = G.const(4, "int64")
        last, rows = op.loop(four, None, body, h, parts=(((2,), "float64"),), turns=4)
        return op.reduce_sum(last, keepdims=0) + op.reduce_sum(rows * rows, keepdims=0)""",
    "a count that is data": """
        last, rows = op.loop(n, None, body, h, parts=(((2,), "float64"),))
        return op.reduce_sum(last * op.gather(w, G.const(0, "int64")), keepdims=0)""",
    "a condition": """
        last, rows = op.loop(None, go, ends, h, parts=(((2,), "float64"),))
        return op.reduce_sum(last, keepdims=0)""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop(name, rng):
    mod = parse(f"""
@G.module
class M:
    @G.function
    def main(h: G.Tensor((2,), "float64"), w: G.Tensor((2, 2), "float64"), n: int64):
        def body(i: int64, go: bool, s: G.Tensor((2,), "float64")) -> {GIVES}:
            t = op.tanh(op.matmul(s, w) + op.cast(i, to="float64"))
            return (go, t, t * s)
        def ends(i: int64, go: bool, s: G.Tensor((2,), "float64")) -> {GIVES}:
            t = op.tanh(op.matmul(s, w)) * 1.5
            return (i < n, t, t * s)
        go = n > 0
{LOOPS[name]}
""")
    made = graph.gradient(mod)
    built = graph.build(made)
    for n in (3, 1, 0):
        args = [rng.standard_normal(2), rng.standard_normal((2, 2)), np.int64(n)]
        compare(mod, args, rng, made)
        expected = graph.evaluate(made, "main", *args)
        for a, b in zip(built(*args), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    assert parse(made.script()).same(made)


def test_an_onnx_scan_has_a_gradient_that_compiles():
    """Of float32, so the differences are rough: it is compared with that of its turns in a row."""
    mod = graph.from_onnx(scan_model())
    main = mod["main"]
    made = graph.gradient(mod, seeds=True)
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(p.type.shape).astype("f4") for p in made["main"].params]
    found = graph.build(made)(*args)
    for a, b in zip(found, graph.evaluate(made, "main", *args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    count = len(main.params)
    seeds = [a.astype("f8") for a in args[count:]]

    def loss(inputs):
        results = graph.evaluate(mod, "main", *inputs)
        several = results if isinstance(results, tuple) else (results,)
        return sum(float(np.sum(r * s)) for r, s in zip(several, seeds, strict=True))

    ways = [rng.standard_normal(a.shape) for a in args[:count]]
    ends = [
        loss([(a + s * w).astype("f4") for a, w in zip(args, ways, strict=False)])
        for s in (1e-2, -1e-2)
    ]
    grads = found[-count:]
    slope = sum(float(np.sum(g * w)) for g, w in zip(grads, ways, strict=True))
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=2e-2)


FUNCTIONS = {
    "recursion and a closure": """
    @G.function
    def power(x: G.Tensor((), "float64"), n: int32) -> G.Tensor((), "float64"):
        if n <= 0:
            return 1.0
        return x * power(x, n - 1)
    @G.function
    def main(x: G.Tensor((), "float64"), n: int32):
        def add(total: G.Tensor((), "float64"), k: int32):
            if k <= 0:
                return total
            return add(total * x + op.sin(x), k - 1)
        return power(x, n) + add(x, n)
""",
    "folds over lists": """
    from prelude import foldl, map, List
    @G.function
    def main(xs: List[G.Tensor((2,), "float64")], w: G.Tensor((2, 2), "float64"),
             h: G.Tensor((2,), "float64")):
        ys = map(lambda x: op.tanh(op.matmul(x, w)), xs)
        last = foldl(lambda s, y: op.tanh(s + op.matmul(y, w)), h, ys)
        return op.reduce_sum(last * last, keepdims=0)
""",
    "a tree": """
    @G.data
    class Tree:
        Leaf: (G.Tensor((2,), "float64"), int32)
        Node: (Tree, Tree)
        Empty: ()
    @G.function
    def total(t: Tree, w: G.Tensor((2,), "float64")):
        match t:
            case Node(Leaf(x, _), b):
                return op.sin(x) + total(b, w)
            case Node(a, b):
                return total(a, w) * total(b, w)
            case Leaf(x, k):
                y = x
                if k > 1:
                    y = x * w
                return y
            case Empty():
                return w
    @G.function
    def main(t: Tree, w: G.Tensor((2,), "float64")):
        return op.reduce_sum(total(t, w) * w, keepdims=0)
""",
    "functions of tuples that call each other": """
    @G.function
    def even(p: G.Tuple[G.Tensor((), "float64"), G.Tensor((), "float64")], n: int32) \
            -> G.Tensor((), "float64"):
        if n == 0:
            return p[0] * p[1]
        a, b = p
        return odd((a * b, op.sin(b)), n - 1)
    @G.function
    def odd(p: G.Tuple[G.Tensor((), "float64"), G.Tensor((), "float64")], n: int32) \
            -> G.Tensor((), "float64"):
        if n == 0:
            return p[1]
        return op.exp(p[0]) + even((p[1], p[0]), n - 1)
    @G.function
    def main(x: G.Tensor((), "float64"), y: G.Tensor((), "float64"), n: int32):
        return even((x, y), n)
""",
    "a list that is the result of a function": """
    from prelude import List, foldl, rev
    @G.function
    def powers(x: G.Tensor((), "float64"), n: int32):
        if n == 0:
            return Nil()
        return Cons(x, powers(x * x + 0.1, n - 1))
    @G.function
    def main(x: G.Tensor((), "float64"), n: int32):
        return foldl(lambda s, y: s * 0.5 + y, x, rev(powers(x, n)))
""",
}


def arguments(name, rng):
    """Arguments of each program."""

    def leaf(k):
        return graph.Tagged("Leaf", (rng.standard_normal(2), np.int32(k)))

    def node(a, b):
        return graph.Tagged("Node", (a, b))

    if name == "folds over lists":
        xs = graph.to_list([rng.standard_normal(2) for _ in range(3)])
        return [xs, rng.standard_normal((2, 2)), rng.standard_normal(2)]
    if name == "a tree":
        inner = node(node(leaf(1), graph.Tagged("Empty")), leaf(3))
        return [node(node(leaf(2), leaf(1)), inner), rng.standard_normal(2)]
    if name == "functions of tuples that call each other":
        return [np.float64(0.3), np.float64(0.7), np.int32(5)]
    return [np.float64(0.8), np.int32(4)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, rng):
    mod = parse(f"@G.module\nclass M:{FUNCTIONS[name]}")
    made = compare(mod, arguments(name, rng), rng)
    assert parse(made.script()).same(made)


def test_recursion_goes_back_through_five_thousand_calls():
    n = 5_000
    text = FUNCTIONS["recursion and a closure"].replace(" + add(x, n)", "")
    alone = graph.gradient(parse(f"@G.module\nclass M:{text}"))
    assert graph.evaluate(alone, "main", np.float64(1), np.int32(n))[1] == n


def test_what_has_no_gradient_is_refused_by_name():
    unknown = parse("""
@G.module
class M:
    @G.function
    def main(f: G.Fn[[G.Tensor((), "float32")], G.Tensor((), "float32")],
             x: G.Tensor((), "float32")):
        return f(x)
""")
    with pytest.raises(graph.Unsupported, match="is made by a call of a function value"):
        graph.gradient(unknown)
    mod = parse(f"@G.module\nclass M:{FUNCTIONS['functions of tuples that call each other']}")
    with pytest.raises(
        graph.Unsupported, match=r"even, which has no adjoint here; pass the module"
    ):
        graph.gradient(mod["main"])


def test_a_scan_of_unknown_length_is_refused():
    pair = '(G.Tensor((2,), "float64"), G.Tensor((2,), "float64"))'
    mod = parse(f"""
@G.module
class M:
    @G.function
    def main(h: G.Tensor((2,), "float64"), xs: G.Tensor((n, 2), "float64")):
        def body(s: G.Tensor((2,), "float64"), x: G.Tensor((2,), "float64")) -> {pair}:
            t = op.tanh(s + x)
            return (t, t)
        last, rows = op.scan(body, h, xs, num_scan_inputs=1)
        return op.reduce_sum(last, keepdims=0)
""")
    message = "Scan has no adjoint where how many steps it takes is not known; import the model"
    with pytest.raises(graph.Unsupported, match=message):
        graph.gradient(mod)

"""Each pass on a small module: text before and after, the same results; random graphs through all
of them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.ir import Call, Function, Global
from autosched.graph.passes.fuse import MAX_VIEWS
from autosched.script import parse

HEAD = """
@G.module
class M:
    @G.function
    def main(x: G.Tensor((1, 2, 4, 4), "float32")) -> G.Tensor((1, 3, 4, 4), "float32"):
"""

BODIES = {
    "fold": """
        a = op.cast(G.const([1, 2, 3], "int64"), to="float32")
        b = op.unsqueeze(a, axes=(1, 2))
        w = op.reshape(G.const([1.0, -1.0, 2.0, 0.5, 3.0, 1.0], "float32"), shape=(3, 2, 1, 1))
        c = op.conv(x, w)
        d = op.mul(c, b)
        return d
""",
    "simplify": """
        i = op.identity(x)
        w = op.reshape(G.const([1.0, -1.0, 2.0, 0.5, 3.0, 1.0], "float32"), shape=(3, 2, 1, 1))
        c = op.conv(i, w)
        n = op.batch_normalization(
            c, G.const([1.0, 2.0, 3.0], "float32"), G.const([0.0, 1.0, 2.0], "float32"),
            G.const([1.0, 1.0, 2.0], "float32"), G.const([4.0, 1.0, 0.25], "float32"),
        )
        s = op.mul(n, G.const(2.0, "float32"))
        m = op.mul(s, G.const(1.0, "float32"))
        return m
""",
    "common_subexpressions": """
        w = op.reshape(G.const([1.0, -1.0, 2.0, 0.5, 3.0, 1.0], "float32"), shape=(3, 2, 1, 1))
        a = op.conv(x, w)
        b = op.conv(x, w)
        e = op.exp(a)
        f = op.exp(b)
        g = op.add(e, f)
        return g
""",
    "dead_code": """
        w = op.reshape(G.const([1.0, -1.0, 2.0, 0.5, 3.0, 1.0], "float32"), shape=(3, 2, 1, 1))
        u = op.exp(x)
        v = op.relu(u)
        a = op.conv(x, w)
        return a
""",
    "fuse": """
        w = op.reshape(G.const([1.0, -1.0, 2.0, 0.5, 3.0, 1.0], "float32"), shape=(3, 2, 1, 1))
        p = op.add(x, G.const(1.0, "float32"))
        a = op.conv(p, w)
        s = op.sigmoid(a)
        b = op.mul(a, s)
        t = op.transpose(b, perm=(0, 1, 3, 2))
        c = op.softmax(t)
        d = op.add(c, b)
        return d
""",
    "integers": """
        q = op.quantize_linear(x, G.const(0.05, "float32"), G.const(3, "uint8"))
        a = op.dequantize_linear(q, G.const(0.05, "float32"), G.const(3, "uint8"))
        k = op.reshape(G.const([1, -7, 9, 127, -128, 4], "int8"), shape=(3, 2, 1, 1))
        w = op.dequantize_linear(k, G.const([0.1, 0.2, 0.4], "float32"), axis=0)
        b = op.dequantize_linear(G.const([9, 0, -7], "int32"),
                                 G.const([0.005, 0.01, 0.02], "float32"), axis=0)
        c = op.conv(a, w, b)
        return c
""",
    "layout": """
        w = op.reshape(G.const([1.0, -1.0, 2.0, 0.5, 3.0, 1.0], "float32"), shape=(3, 2, 1, 1))
        a = op.conv(x, w)
        m = op.max_pool(a, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        b = op.add(a, m)
        return b
""",
}
BEFORE = {"integers": ["fold"], "layout": ["fold", "fuse"], "fuse": ["fold"], "simplify": ["fold"]}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_pass(name: str, golden: Callable[[str, str], None]) -> None:
    before = parse(HEAD + BODIES[name].lstrip("\n"))
    for first in BEFORE.get(name, []):
        before = getattr(passes, first)(before)
    after = getattr(passes, name)(before)
    golden(f"pass_{name}", f"# before\n{before.script()}\n# after {name}\n{after.script()}")
    assert parse(after.script()).same(after)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype("f4")
    np.testing.assert_allclose(
        graph.evaluate(after, "main", x), graph.evaluate(before, "main", x), rtol=1e-5, atol=1e-6
    )


STEPS = (
    lambda a, b, w: op.tanh(a),
    lambda a, b, w: op.add(a, b),
    lambda a, b, w: op.mul(a, b),
    lambda a, b, w: op.matmul(a, w),
    lambda a, b, w: op.transpose(a, perm=(1, 0)),
    lambda a, b, w: op.add(op.reduce_max(a, axes=(1,)), b),
    lambda a, b, w: op.softmax(a),
    lambda a, b, w: op.concat(
        op.slice(a, starts=(0,), ends=(2,), axes=(1,)),
        op.slice(b, starts=(1,), ends=(3,), axes=(1,)),
        axis=1,
    ),
    lambda a, b, w: op.reshape(op.reshape(a, shape=(2, 8)), shape=(4, 4)),
)


def random_module(seed: int):
    """A DAG of pointwise operators, reductions, products and views over (4, 4)."""
    rng = np.random.default_rng(seed)
    x = graph.var("x", (4, 4))
    w = graph.const(rng.standard_normal((4, 4)).astype("f4") * 0.5)
    values = [x]
    for _ in range(int(rng.integers(3, 14))):
        a, b = (values[int(rng.integers(max(len(values) - 5, 0), len(values)))] for _ in "ab")
        values.append(STEPS[int(rng.integers(0, len(STEPS)))](a, b, w))
    outs = [values[-1], values[int(rng.integers(1, len(values)))]]
    return graph.module(main=graph.function([x], outs))


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_their_meaning(seed: int) -> None:
    mod = random_module(seed)
    x = np.random.default_rng(seed).standard_normal((4, 4)).astype("f4")
    want = graph.evaluate(mod, "main", x)
    done = passes.optimise(mod)
    for a, b in zip(graph.evaluate(done, "main", x), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    # Groups stand in an order in which each has what it reads.
    main = done["main"]
    known = {id(p) for p in main.params}
    for b in main.body.bindings:
        assert isinstance(b.value, Call)
        assert isinstance(b.value.callee, Global)
        assert all(id(a) in known for a in b.value.args if hasattr(a, "name"))
        known |= {id(v) for v in b.vars}


@pytest.mark.parametrize("seed", [1, 5])
def test_random_graphs_compile(seed: int) -> None:
    mod = random_module(seed)
    x = np.random.default_rng(seed).standard_normal((4, 4)).astype("f4")
    for a, b in zip(graph.build(mod)(x), graph.evaluate(mod, "main", x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_prologue_epilogue_and_views_of_one_group() -> None:
    mod = passes.fuse(passes.fold(parse(HEAD + BODIES["fuse"].lstrip("\n"))))
    names = [n for n in mod.graphs if n != "main"]
    assert names == ["fused_add_conv_sigmoid_mul", "fused_softmax_add"]
    assert all(
        isinstance(f, Function) and f.is_primitive for n, f in mod.graphs.items() if n in names
    )


def test_the_picture_of_fusion_is_that_of_the_passes():
    folder = Path(__file__).parents[2] / "docs" / "figures"
    names = runpy.run_path(str(folder / "fusion.py"))
    assert names["picture"]() == (folder / "fusion.svg").read_text(), (
        "the passes fuse otherwise now; run python docs/figures/fusion.py"
    )


def test_of_many_views_in_a_row_some_are_stored(rng):
    """The index of each stands in the next: 5,000 were too deep."""
    x = graph.var("x", (3, 4), "float32")
    data = want = rng.standard_normal((3, 4)).astype("f4")
    y = x
    for n in range(150):
        if n % 3:
            y, want = op.transpose(y, perm=(1, 0)), want.T
        else:
            y = op.slice(y, starts=(-1,), ends=(-99,), axes=(0,), steps=(-1,))
            want = want[::-1]
        if n == 40:
            y, want = op.exp(y), np.exp(want)
    model = graph.build(graph.module(main=graph.function([x], y)))
    # 41 views, exp, 109 views: four are stored, exp and the last are results.
    assert len(model.kernels) == 41 // MAX_VIEWS + 1 + 109 // MAX_VIEWS + 1
    np.testing.assert_allclose(model(data)[0], want, rtol=1e-6)


def test_layouts_go_through_transpositions_and_end_at_products() -> None:
    """Of a convolution, its channels turned last for a product, and turned back for another one."""
    rng = np.random.default_rng(0)
    constant = lambda *shape: graph.const(rng.standard_normal(shape).astype("float32"))  # noqa: E731
    x = graph.var("x", (1, 8, 6, 7), "float32")
    first = op.conv(x, constant(8, 1, 3, 3), pads=(1, 1, 1, 1), group=8)
    turned = op.layer_normalization(
        op.transpose(first, perm=(0, 2, 3, 1)), constant(8), constant(8), axis=-1
    )
    wide = op.matmul(turned, constant(8, 24))
    back = op.transpose(op.matmul(op.relu(wide), constant(24, 8)), perm=(0, 3, 1, 2))
    last = op.conv(op.add(back, first), constant(5, 8, 3, 3))
    module = graph.module(main=graph.function([x], last))
    ready = passes.layout(passes.fuse(module))
    by_rank = {
        t.stored
        for f in ready.graphs.values()
        if f.is_primitive
        for v in f.body.results
        for t in [v.type]
    }
    assert by_rank == {(1, 6, 7, 8), (1, 6, 7, 24), (1, 5, 4, 5)}
    (found,) = graph.build(module)(value := rng.standard_normal((1, 8, 6, 7)).astype("float32"))
    np.testing.assert_allclose(found, graph.evaluate(module, "main", value), rtol=1e-3, atol=1e-3)

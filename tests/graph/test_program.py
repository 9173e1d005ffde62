"""Programs that are no dataflow: the evaluator between compiled regions, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from language import module, program, value
from test_language import PROGRAMS

from autosched import graph
from autosched.errors import ArgumentError, WorkloadError


@pytest.mark.parametrize(("name", "expected", "text"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_programs_of_the_language_reference(name, expected, text):
    assert value(graph.build_program(program(text))()) == expected


CHOICE = """
@G.function
def main(x: G.Tensor((4,), "float32"), c: bool):
    f = (lambda y: y + x) if c else (lambda y: y * x)
    return f(f(x))
"""
LIST = """
from prelude import foldl, map, rev, sum
@G.function
def main(x: G.Tensor((8, 8), "float32"), xs: List[G.Tensor((8, 8), "float32")], n: int32):
    w = G.const([[1.0, 2.0], [3.0, 4.0]])
    def down(k: int32) -> List[int32]:
        if k == 0:
            return Nil()
        return Cons(k, down(k - 1))
    s = op.cast(sum(map(lambda v: v * v, down(n))), to="float32")
    y = foldl(lambda a, b: op.tanh(op.matmul(a, b) + a) * 0.5, x, xs)
    return (y + s, rev(xs), op.matmul(op.reduce_mean(y, axes=(0, 1), keepdims=1) * w, w))
"""
PAIR = """
@G.function
def step(n: int32, s: G.Tuple[G.Tensor((3,), "float32"), G.Tensor((3,), "float32")]):
    if n == 0:
        return s
    return step(n - 1, (s[1], (s[0] + s[1]) * 0.5))
@G.function
def main(n: int32, x: G.Tensor((3,), "float32")):
    return step(n, (x, x + 1.0))
"""


def matrices(rng, count):
    return [rng.standard_normal((8, 8)).astype("f4") for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "regions", "given"),
    [
        (CHOICE, 2, lambda rng: (matrices(rng, 1)[0][0, :4], True)),
        (CHOICE, 2, lambda rng: (matrices(rng, 1)[0][0, :4], False)),
        (LIST, 3, lambda rng: (matrices(rng, 1)[0], graph.to_list(matrices(rng, 50)), 5)),
        (LIST, 3, lambda rng: (matrices(rng, 1)[0], graph.to_list([]), 0)),
        (PAIR, 2, lambda rng: (20_000, matrices(rng, 1)[0][0, :3])),
    ],
)  # fmt: skip
def test_what_stays_calls_compiled_regions(text, regions, given, rng):
    mod = module(text)
    with pytest.raises(graph.Unsupported, match=r"graph.build_program compiles what is computed"):
        graph.build(mod)
    compiled, args = graph.build_program(mod), given(rng)
    assert len(compiled.regions) == regions
    for model in compiled.regions.values():
        assert model.kernels
    found, known = compiled(*args), graph.evaluate(mod, "main", *args)
    for a, b in zip(_arrays(found), _arrays(known), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def _arrays(x):
    """All arrays of a value."""
    if isinstance(x, graph.Tagged):
        return [a for i in graph.from_list(x) for a in _arrays(i)]
    return [a for i in x for a in _arrays(i)] if isinstance(x, tuple) else [np.asarray(x)]


def test_a_function_of_python_is_called_and_constants_are_packed(rng):
    mod = module("""
@G.function
def main(f: G.Fn[[G.Tensor((1, 64), "float32")], G.Tensor((1, 64), "float32")],
         x: G.Tensor((1, 64), "float32"), w: G.Tensor((64, 64), "float32")):
    return f(op.matmul(f(x), w))
""")
    x, w = (rng.standard_normal(s).astype("f4") for s in ((1, 64), (64, 64)))
    found = graph.build_program(mod)(lambda y: y + 1, x, w)
    np.testing.assert_allclose(found, (x + 1) @ w + 1, rtol=1e-4, atol=1e-4)


def test_weights_stand_in_the_regions(rng):
    w = rng.standard_normal((64, 64)).astype("f4")
    x, c = graph.var("x", (1, 64)), graph.var("c", (), "bool")
    y = graph.op.matmul(x, graph.const(w))
    compiled = graph.build_program(graph.module(main=graph.function([x, c], (y, y))))
    (region,) = compiled.regions.values()
    assert [i.name for i in region.inputs] == ["x"]
    given = rng.standard_normal((1, 64)).astype("f4")
    for found in compiled(given, True):
        np.testing.assert_allclose(found, given @ w, rtol=1e-4, atol=1e-4)


def test_wrong_calls_say_so():
    compiled = graph.build_program(module(PAIR))
    with pytest.raises(ArgumentError, match="main takes 2 arguments, found 1"):
        compiled(1)
    with pytest.raises(ArgumentError, match="expected an IRModule"):
        graph.build_program(None)
    with pytest.raises(WorkloadError, match="no graph function main"):
        graph.build_program(module(PAIR.replace("main", "other")))

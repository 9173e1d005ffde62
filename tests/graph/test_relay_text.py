"""Programs in the predecessor's text format."""

from __future__ import annotations

import numpy as np
import pytest
from test_language import value

from autosched import graph
from autosched.errors import ScriptError
from autosched.script import parse

PROGRAM = """#[version = "0.0.5"]
type List[A] {
  Cons(A, List[A]),
  Nil,
}
def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) {
    Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)),
    Nil => Nil,
  }
}
def @fact(%n: int32) -> int32 {
  if (%n == 0) { 1 } else { %n * @fact(%n - 1) }
}
def @dense(%x: Tensor[(1, 4), float32], %w: Tensor[(2, 4), float32]) -> Tensor[(1, 2), float32] {
  %0 = nn.dense(%x, %w, units=2);
  %1 = nn.relu(%0);  /* used twice */
  add(%1, %1)
}
def @main() {
  let %go = fn (%n: int32, %acc: int32) {
    if (%n <= 0) { %acc } else { %go(%n - 1, %acc + %n) }
  };
  let %t = (@fact(5), -3);
  let %add = fn (%x) { %x + %t.1 };
  (%t.0, %go(10, 0), @map(%add, Cons(1, Cons(2, Nil))), 2f * 0.5f)
}
"""


def test_a_program_of_the_predecessor(rng):
    mod = graph.from_relay(PROGRAM)
    assert parse(mod.script()).same(mod)
    assert value(graph.evaluate(mod)) == (120, 55, [-2, -1], 1.0)
    x, w = rng.standard_normal((1, 4)).astype("f4"), rng.standard_normal((2, 4)).astype("f4")
    got = graph.evaluate(mod, "dense", x, w)
    np.testing.assert_allclose(got, 2 * np.maximum(x @ w.T, 0), rtol=1e-5)


NETWORK = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 8, 8), float32], %g: Tensor[(3), float32],
          %w: Tensor[(4, 3, 3, 3), float32], %fc: Tensor[(5, 8), float32]) {
  %0 = nn.batch_norm(%data, %g, %g, %g, %g, epsilon=2e-05f, scale=False);
  %1 = %0.0 /* ty=Tensor[(1, 3, 8, 8), float32] */;
  %2 = nn.conv2d(%1, %w, strides=[2, 2], padding=[1, 1], channels=4, kernel_size=[3, 3]);
  %3 = nn.max_pool2d(nn.relu(%2), pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]);
  %4 = nn.global_avg_pool2d(%3);
  %5 = (nn.batch_flatten(%4), nn.batch_flatten(-%4));
  %6 = concatenate(%5, axis=1);
  %7 = split(nn.dense(%6, %fc, units=5), indices_or_sections=5, axis=1);
  clip(%7.2, a_min=-1f, a_max=1f)
}
"""


def test_a_network_of_the_predecessor(rng):
    """Operators with tuples, padding a number an axis, and flags."""
    mod = graph.from_relay(NETWORK)
    assert parse(mod.script()).same(mod)
    data, w = rng.standard_normal((1, 3, 8, 8)), rng.standard_normal((4, 3, 3, 3))
    g, fc = rng.uniform(0.5, 1, 3), rng.standard_normal((5, 8))
    given = [a.astype("f4") for a in (data, g, w, fc)]
    at = g[None, :, None, None]
    x = np.pad((data - at) / np.sqrt(at + 2e-5) + at, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    y = np.maximum(np.einsum("ncyxij,kcij->nkyx", windows, w), 0)
    y = y.reshape(1, 4, 2, 2, 2, 2).max(axis=(3, 5)).mean(axis=(2, 3))
    expected = np.clip(np.concatenate([y, -y], axis=1) @ fc.T, -1, 1)[:, 2:3]
    np.testing.assert_allclose(graph.evaluate(mod, "main", *given), expected, rtol=1e-4)
    np.testing.assert_allclose(graph.build(mod)(*given)[0], expected, rtol=1e-4)


def test_what_is_not_read_is_shown():
    for text, message in [
        (
            'def @f(%x: Tensor[(1), float32]) { nn.conv2d(%x, %x, data_layout="NHWC") }',
            "nn.conv2d: data_layout is 'NHWC'; read is 'NCHW' alone",
        ),
        ("def @f(%x: Tensor[(1), float32]) { nn.bias_add(%x, %x) }", "write add.*expand_dims"),
        ("def @f(%x: Tensor[(1), float32]) { concatenate(%x) }", "expected a tuple"),
        ("def @f(%x: Tensor[(1), float32]) { clip(%x) }", "too few arguments or attributes"),
        ("def @f(%x: int32) { add(%x, meta[relay.Constant][0]) }", "make them parameters"),
        ('def @f() { "abc }', "a string that does not end"),
        ("def @f() { 99999999999 }", "is no value of int32"),
        ("def @f(%x: int32) { %0 = %x; }", "expected a value, found }"),
        ("def @main(%x: int32) { nn.magic(%x) }", "column 24: the operator nn.magic has no"),
        ("def @main(%x: int32) { %y }", "%y is not defined"),
        ("def @main(%x: Tensor[(?, 2), int32]) { %x }", r"the size \? is no number"),
        ("def @main(%x: vector) { %x }", "no type is named vector"),
        ("def @main(%x: int32) { %x ", "expected }"),
        (
            "def @main(%x: int32) { %x + 1f }",
            "Add takes operands of one dtype",
        ),
        ("def @main(%x: Tensor[(2), int32]) { reshape(%x, order=1) }", "the attribute order"),
        ("main", "expected `def @name"),
        ("  ", "no function"),
        ("def @main() { $ }", "no such character"),
    ]:
        with pytest.raises(ScriptError, match=message):
            graph.from_relay(text)

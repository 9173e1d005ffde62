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


def test_what_is_not_read_is_shown():
    for text, message in [
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

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


X = np.random.default_rng(0).standard_normal((2, 5)).astype("f4")
IMAGE = np.random.default_rng(1).standard_normal((1, 3, 4, 4)).astype("f4")
B = np.array([1, -2, 3], "f4")
N = np.array([-7, 7], "i4")
OPERATORS = [
    # Of %x (2, 5), %i (1, 3, 4, 4), %b (3), %n (2) of int32, and what it is in NumPy.
    ("nn.bias_add(%i, %b)", IMAGE + B[:, None, None]),
    ("nn.bias_add(nn.dense(%x, %x), mean(%x, axis=[1]))", X @ X.T + X.mean(1)),
    ("nn.prelu(%i, %b)", np.where(IMAGE < 0, IMAGE * B[:, None, None], IMAGE)),
    ("nn.leaky_relu(%x)", np.where(X < 0, X / 4, X)),
    ("split(%x, indices_or_sections=[1, 3], axis=1).1", X[:, 1:3]),
    ("strided_slice(%x, begin=[0, 1], end=[2, 5], strides=[1, 2])", X[:, 1:5:2]),
    ("strided_slice(%x, begin=[4], end=[-6], strides=[-1], axes=[1])", X[:, ::-1]),
    ('strided_slice(%x, begin=[0, 1], end=[-1, 3], slice_mode="size")', X[:, 1:4]),
    ("nn.pad(%x, 2f, pad_width=[[0, 0], [1, 2]])", np.pad(X, ((0, 0), (1, 2)), constant_values=2)),
    ("argmax(%x, axis=[1])", X.argmax(1).astype("i4")),
    (
        'nn.dense(cast(30f * %x, dtype="int8"), cast(30f * %x, dtype="int8"), out_dtype="int32")',
        (30 * X).astype("i1").astype("i4") @ (30 * X).astype("i1").T.astype("i4"),
    ),
    ("take(%x, 6)", X[1, 1]),
    ("take(%x, %n, axis=1)", X[:, [0, 4]]),
    (  # a table with more rows than the dtype of the indices has numbers
        'take(zeros(shape=[300], dtype="int8"), cast(%n, dtype="int8"), axis=0)',
        np.zeros(2),
    ),
    ('clip(cast(%n, dtype="int8"), a_min=0f, a_max=255f)', np.array([0, 7])),
    ("clip(%n, a_min=-6.5f, a_max=6.5f)", np.array([-6, 6])),
    ('clip(cast(%x, dtype="float16"), a_min=0f, a_max=3.4e38f)', np.maximum(X, 0).astype("f2")),
    (
        'nn.l2_normalize(cast(300f * %x, dtype="float16"), eps=1e-10f, axis=[1])',
        (
            (XH := (300 * X).astype("f2").astype("f8")) / np.linalg.norm(XH, axis=1, keepdims=True)
        ).astype("f2"),
    ),
    ('variance(cast(300f * %x, dtype="float16"), axis=[1]) < 65000f16', XH.var(1) < 65000),
    ('one_hot(cast(%n, dtype="int8"), 1f, 0f, depth=200)', np.arange(200) == N[:, None]),
    ('arange(0f, 5f, 1.5f, dtype="int32")', np.array([0, 1, 3, 4])),
    ('take(%x, %n, axis=1, mode="wrap")', X[:, [3, 2]]),
    ("sum(%x, axis=[1], exclude=False)", X.sum(1)),
    ("(mod(%n, 3), floor_mod(%n, 3)).0", np.array([-1, 1])),
    ("floor_mod(%n, 3)", np.array([2, 1])),
    ("clip(%n, a_min=0f, a_max=6f)", np.array([0, 6])),
    ("expand_dims(stack((%x, %x), axis=1), axis=-1)", np.stack([X, X], 1)[..., None]),
    ("nn.dropout(%x, rate=0.5f).0", X),
    ("add(zeros_like(%x), full(2f, shape=[5]))", np.full((2, 5), 2)),
    ('multiply(%x, ones(shape=[2, 5], dtype="float32"))', X),
    ('cast(not_equal(%x, 0f), dtype="int32")', np.ones((2, 5))),
    ("nn.dense(expand_dims(%x, axis=0), %x)", (X @ X.T)[None]),
    ("nn.matmul(%x, %x, transpose_b=True)", X @ X.T),
    ("nn.upsampling(%i, scale_h=2, scale_w=2)", IMAGE.repeat(2, 2).repeat(2, 3)),
    (
        'image.resize2d(%i, size=[8, 8], roi=[0f, 0f], method="nearest_neighbor", '
        'coordinate_transformation_mode="asymmetric")',
        IMAGE.repeat(2, 2).repeat(2, 3),
    ),
    (
        "nn.adaptive_avg_pool2d(%i, output_size=[2, 2])",
        IMAGE.reshape(1, 3, 2, 2, 2, 2).mean((3, 5)),
    ),
    ("nn.conv1d(expand_dims(%x, axis=0), expand_dims(%x, axis=0))", (X * X).sum()),
    ("(floor_divide(%n, 2), floor_divide(%x, 0.5f)).0", N // 2),
    ("floor_divide(%x, 0.5f)", X // 0.5),
    ("trunc(2f * %x)", np.trunc(2 * X)),
    ("log2(exp(%x)) + log10(exp(%x))", X / np.log(2) + X / np.log(10)),
    ("bitwise_xor(bitwise_and(%n, 6), bitwise_not(bitwise_or(%n, 1)))", (N & 6) ^ ~(N | 1)),
    ("right_shift(left_shift(%n, 3), 1)", (N << 3) >> 1),
    ("variance(%i, axis=[1], exclude=True, keepdims=True)", IMAGE.var((0, 2, 3), keepdims=True)),
    ("std(%x, axis=[-1], unbiased=True)", X.std(1, ddof=1)),
    ("variance(%x, mean(%x, axis=[1], keepdims=True), axis=[1])", X.var(1)),
    ("max(%i, axis=[1, 2], exclude=True)", IMAGE.max((0, 3))),
    ("(all(%x > -9f), any(%x > 0f, axis=[1])).1", (X > 0).any(1)),
    ("all(%x > 0f, axis=[0])", (X > 0).all(0)),
    ("repeat(%i, repeats=2, axis=2) + repeat(%i, repeats=2, axis=-2)", 2 * IMAGE.repeat(2, 2)),
    ("reverse(%x, axis=1)", X[:, ::-1]),
    ("full_like(%n, 3)", np.full(2, 3)),
    ('arange(0, 7, 2, dtype="int32")', np.arange(0, 7, 2)),
    ('arange(1, 7, 2, start=1, stop=7, step=2, dtype="int32")', np.arange(1, 7, 2)),
    ("trunc_mod(%n, 3)", np.fmod(N, 3)),
    ("shape_of(%i)", np.array([1, 3, 4, 4])),
    ("nn.mirror_pad(%x, pad_width=[[1, 0], [2, 1]])", np.pad(X, ((1, 0), (2, 1)), "symmetric")),
    (
        'nn.mirror_pad(%x, mode="REFLECT", pad_width=[[0, 1], [3, 0]])',
        np.pad(X, ((0, 1), (3, 0)), "reflect"),
    ),
    ("nn.l2_normalize(%x, eps=1e-10f, axis=[1])", X / np.linalg.norm(X, axis=1, keepdims=True)),
    ("gather_nd(%x, stack((%n * 0 + 1, %n * 0 + 3), axis=0))", X[[1, 1], [3, 3]]),
    ("one_hot(%n, 2f, -1f, depth=8, axis=0)", np.where(np.arange(8)[:, None] == N, 2, -1)),
    ("topk(%x, k=2, axis=1).0", -np.sort(-X, 1)[:, :2]),
    ('topk(%x, k=3, axis=1, ret_type="indices", is_ascend=True)', X.argsort(1)[:, :3]),
    ("cumsum(%x, axis=1, exclusive=True)", X.cumsum(1) - X),
    ("cumsum(%n)", N.cumsum()),
    ("tile(%b, reps=[2, 1, 2])", np.tile(B, (2, 1, 2))),
    ("tile(%x, reps=[2])", np.tile(X, 2)),
    ("reshape(%i, newshape=[-3, -2])", IMAGE.reshape(3, 4, 4)),
    ("reshape(%i, newshape=[0, -4, -1, 1, 2, -1])", IMAGE.reshape(1, 3, 1, 2, -1)),
]


@pytest.mark.parametrize("text", [t for t, _ in OPERATORS])
def test_operators_of_the_predecessor(text):
    mod = graph.from_relay(
        "fn (%x: Tensor[(2, 5), float32], %i: Tensor[(1, 3, 4, 4), float32], %b: Tensor[(3), "
        f"float32], %n: Tensor[(2), int32]) {{ {text} }}"
    )
    found, wanted = graph.evaluate(mod, "main", X, IMAGE, B, N), dict(OPERATORS)[text]
    np.testing.assert_allclose(np.squeeze(found), np.squeeze(wanted), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("def @f.g() { 1 } def @f_g() { 2 } def @main() { (@f.g(), @f_g()) }", (1, 2)),
        ("def @lambda(%x: int32) { %x } def @main() { @lambda(3) }", 3),
        ("type O[a] { None, Some(a) } def @main() { match (None) { None => 0, Some(_) => 1 } }", 0),
        ("type class { if.x, other(int32) } def @main() -> class { other(2) }", "other(2)"),
        ("def @main() { let %t = (1, (3, 4)); (%t.1.0, ((5, 6), 7).0.1) }", (3, 6)),
        ("def @main() { let %t.u = (1, 2); %t.u.1 }", 2),
        ("def @main() { let %f = fn[t](%x: t) -> t { %x }; (%f(1), %f(True)) }", (1, True)),
        ("def @main() { let %f = fn<t>(%x: t) -> t { %x }; (%f(1), %f(True)) }", (1, True)),
        ("type O<a> { No, Of(a) } def @f<a>(%x: a) -> O[a] { Of(%x) } def @main() { @f(2) }",
         "Of(2)"),
        ("def @id[t](%x: t) -> t { %x } def @main() { @id[int32](3) }", 3),
        (
            "type L { N, C(int32, L) } def @main() { match? (C(4, N)) { C(%x, _) => %x } }",
            4,
        ),
        ("let %x = 1; add(%x, 2)", 3),
        ("(1, 2)", (1, 2)),
    ],
)  # fmt: skip
def test_names_and_forms_of_the_predecessor(text, wanted):
    mod = graph.from_relay(text)
    assert parse(mod.script()).same(mod)
    found = graph.evaluate(mod)
    assert (repr(found) if isinstance(wanted, str) else value(found)) == wanted


def test_what_passes_and_expressions_print_is_read():
    """Fused functions have attributes among their parameters; an expression has free variables."""
    fused = graph.from_relay("""#[version = "0.0.5"]
def @main(%x: Tensor[(2, 5), float32] /* ty=Tensor[(2, 5), float32] */) {
  %1 = fn (%p0: Tensor[(2, 5), float32], Primitive=1, hash="5f2") -> Tensor[(2, 2), float32] {
    %0 = nn.dense(%p0, %p0, units=None, out_dtype="float32") /* span=a.py:3:4 */;
    nn.relu(%0)
  };
  %1(%x)
}
""")
    np.testing.assert_allclose(graph.evaluate(fused, "main", X), np.maximum(X @ X.T, 0), rtol=1e-5)
    free = graph.from_relay("free_var %x: Tensor[(2, 5), float32];\n%0 = tanh(%x);\nadd(%0, %x)")
    np.testing.assert_allclose(graph.evaluate(free, "main", X), np.tanh(X) + X, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "options"),
    [
        ("nn.conv2d(%x, {}, kernel_size=[3, 3], channels=4, strides=[2, 1], padding=[1, 0, 2, 1]",
         {"data_layout": ("NCHW", "NHWC"), "kernel_layout": ("OIHW", "HWIO")}),
        ("nn.conv2d_transpose(%x, {}, kernel_size=[3, 3], channels=4, strides=[2, 2]",
         {"data_layout": ("NCHW", "NHWC"), "kernel_layout": ("IOHW", "HWOI")}),
        ("nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]",
         {"layout": ("NCHW", "NHWC")}),
        ("nn.adaptive_avg_pool2d(%x, output_size=[1, 1]", {"layout": ("NCHW", "NHWC")}),
        ("nn.global_max_pool2d(%x", {"layout": ("NCHW", "NHWC")}),
        ("image.resize2d(%x, size=[8, 10], method=\"linear\"", {"layout": ("NCHW", "NHWC")}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("out", [False, True])
def test_axes_in_another_order(call, options, out, rng):
    """The call with all axes in ONNX's order, and with them in another one."""
    x = rng.standard_normal((1, 3, 4, 5)).astype("f4")
    w = rng.standard_normal((3, 4, 3, 3) if "transpose" in call else (4, 3, 3, 3)).astype("f4")
    wanted, found = (_computed(call, options, n, x, w, out) for n in (0, 1))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def _computed(call, options, which, x, w, out):
    given = [(x, next(iter(options.values()))), (w, options.get("kernel_layout", ("OIHW",) * 2))]
    (x, w) = (a.transpose([names[0].index(c) for c in names[which]]) for a, names in given)
    attrs = "".join(f', {n}="{v[which]}"' for n, v in options.items())
    if out and "resize" not in call:
        attrs += ', out_layout="NCHW"'
    types = (f"Tensor[{a.shape}, float32]" for a in (x, w))
    mod = graph.from_relay(
        f"fn (%x: {next(types)}, %w: {next(types)}) {{ {call.format('%w')}{attrs}) }}"
    )
    made = graph.evaluate(mod, "main", x, w)
    return made.transpose(0, 3, 1, 2) if which and "out_layout" not in attrs else made


def test_what_is_not_read_is_shown():
    for text, message in [
        (
            'def @f(%x: Tensor[(1), float32]) { nn.conv2d(%x, %x, data_layout="NCHW4c") }',
            "nn.conv2d: data_layout is 'NCHW4c'; read are 'NCHW' and other orders of it",
        ),
        (
            "def @g(%x: float32) { %x } def @f(%x: float32) { nn.bias_add(@g(%x), %x) }",
            r"nn.bias_add: the type of its argument does not follow.*let %x: Tensor\[",
        ),
        ("def @f(%x: Tensor[(1), float32]) { nn.bias_add(%x, %x) }", "axis is 1; there are 1 axes"),
        ("def @f() { 1 } def @f() { 2 }", "f is defined twice"),
        ("def @f(%x: int32) { ref_read(ref(%x)) }", "references have no translation"),
        (
            "def @f(%x: Tensor[(1, 1, 3, 3), float32]) "
            "{ nn.adaptive_avg_pool2d(%x, output_size=[2, 2]) }",
            r"output_size is \(2, 2\), which does not divide \(3, 3\)",
        ),
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
        ("def @f(%x: int32, %x: int32) { %x }", "column 19: two parameters are named %x"),
        ("free_var %x: int32; free_var %x: int32; %x", "two variables are named %x"),
        ("type A { X } type A { Y } def @f() { 1 }", "A is defined twice"),
        ("type A { X } type B { X } def @f() { 1 }", "the constructor X is defined twice"),
        ("def @f(%x: Tensor[(2), int32]) { sum(%x, axis=[0], axis=[0]) }", "axis is given twice"),
        ("def @f() { let %t = (1, 2); %t.a }", "a is no part of a tuple"),
        (
            "def @f(%y: int32) { let %g = fn[t](%x: t) { (%x, %y) }; %g(1) }",
            "%y is not defined before in this function over types, which takes nothing",
        ),
        (
            "def @id[t](%x: t) { %x } def @f() { @id[int32, int32](3) }",
            "1 type parameters, found 2",
        ),
        ("type A[b] { X(b) } def @f() { X[int32](3) }", "a constructor takes no types"),
        ("def @f(%x: Tensor[(4), int32]) { reshape(%x, newshape=[-4, 2]) }", "two sizes"),
        ("def @main() { $ }", "no such character"),
    ]:
        with pytest.raises(ScriptError, match=message):
            graph.from_relay(text)

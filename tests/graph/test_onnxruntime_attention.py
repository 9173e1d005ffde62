"""Operators of onnxruntime's transformer optimiser and of exported language models."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.helper import make_node

from autosched import graph
from autosched.graph.passes import fuse

HEADS, DEPTH, BATCH, ROWS = 4, 8, 2, 5
WIDTH = HEADS * DEPTH
LEAST = float(np.finfo("f4").min)


def imported(op, inputs, outputs=1, known=(), domain="com.microsoft", **attrs):
    """The results of one operator by its definition; the inputs that are `known` are constants."""
    names = [f"i{n}" if a is not None else "" for n, a in enumerate(inputs)]
    node = make_node(op, names, [f"o{n}" for n in range(outputs)], domain=domain, **attrs)
    given = {n: np.asarray(a) for n, a in zip(names, inputs, strict=True) if n}
    data = {n: a for n, a in given.items() if int(n[1:]) not in known}
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for n, a in data.items()]  # fmt: skip
    constants = [numpy_helper.from_array(a, n) for n, a in given.items() if n not in data]
    results = [helper.make_empty_tensor_value_info(o) for o in node.output]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_graph([node], "g", infos, results, constants)
    mod = graph.from_onnx(helper.make_model(proto, opset_imports=opsets))
    found = graph.evaluate(mod, "main", *[data[n] for n in data])
    return found if isinstance(found, tuple) else (found,)


def by_heads(x, heads=HEADS):
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def joined(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def attended(q, k, v, added=0.0, scale=None):
    """Attention (batch, heads, rows, depth) in float64."""
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype("f8"), groups, 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale) + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def causal(rows, columns, least=-np.inf):
    return np.where(np.tri(rows, columns, columns - rows), 0, least)


def close(found, want):
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.fixture
def packed(rng):
    """x (batch, rows, width), weights of three products and their biases."""
    shapes = (BATCH, ROWS, 12), (12, 3 * WIDTH), (3 * WIDTH,)
    return [rng.standard_normal(s).astype("f4") for s in shapes]


KEPT = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], "i4")
MASKS = {
    "none": (None, 0.0),
    "lengths": (np.array([3, 5], "i4"), np.arange(ROWS) < [[[[3]]], [[[5]]]]),
    "keys": (KEPT, KEPT[:, None, None] > 0),
    "rows": (np.stack([KEPT] * ROWS, 1), KEPT[:, None, None] > 0),
    "no key": (np.zeros_like(KEPT), np.zeros((2, 1, 1, ROWS), bool)),
}


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("form", MASKS)
def test_attention_with_masks(packed, form, unidirectional):
    mask, kept = MASKS[form]
    x, w, b = packed
    for value in (LEAST,) if form == "no key" else (-10000.0, LEAST):
        added = 0.0 if mask is None else np.where(kept, 0.0, value)
        if unidirectional:  # with a mask the numbers are finite: all keys of a row may be masked
            behind = causal(ROWS, ROWS, -np.inf if mask is None else LEAST)
            added = np.where(behind < 0, behind, added)
        (found,) = imported("Attention", [x, w, b, mask], num_heads=HEADS,
                            unidirectional=unidirectional, mask_filter_value=value)  # fmt: skip
        q, k, v = (by_heads(p) for p in np.split(x @ w + b, 3, -1))
        rounded = np.float32 if value == LEAST else np.float64  # the scores vanish beside it
        scores = (q @ k.swapaxes(2, 3) * DEPTH**-0.5).astype(rounded) + np.asarray(added, rounded)
        close(found, joined(attended(np.zeros_like(q), k, v, scores)))


def test_attention_with_a_past(packed, rng):
    x, w, b = packed
    past = rng.standard_normal((2, BATCH, HEADS, 3, DEPTH)).astype("f4")
    bias = rng.standard_normal((1, HEADS, ROWS, ROWS + 3)).astype("f4")
    found = imported("Attention", [x, w, b, None, past, bias], 2, num_heads=HEADS, scale=0.2,
                     unidirectional=1)  # fmt: skip
    q, k, v = (by_heads(p) for p in np.split(x @ w + b, 3, -1))
    present = np.concatenate([past, [k, v]], 3)
    added = bias + causal(ROWS, ROWS + 3)
    close(found[0], joined(attended(q, present[0], present[1], added, 0.2)))
    close(found[1], present)


def test_attention_with_wider_values(packed, rng):
    x, w = packed[0], rng.standard_normal((12, 2 * WIDTH + 48)).astype("f4")
    (found,) = imported("Attention", [x, w], num_heads=HEADS,
                        qkv_hidden_sizes=[WIDTH, WIDTH, 48])  # fmt: skip
    q, k, v = (by_heads(p) for p in np.split(x @ w, [WIDTH, 2 * WIDTH], -1))
    close(found, joined(attended(q, k, v)))


@pytest.mark.parametrize("form", ["three", "packed", "packed keys", "keys by heads"])
def test_attention_of_many_heads(form, rng):
    q, k, v = rng.standard_normal((3, BATCH, ROWS, WIDTH)).astype("f4")
    bias = rng.standard_normal(3 * WIDTH).astype("f4")
    five = [x.reshape(BATCH, ROWS, HEADS, 1, DEPTH) for x in (q, k, v)]
    given = {"three": [q, k, v], "packed": [np.concatenate(five, 3), None, None],
             "packed keys": [q, np.concatenate(five[1:], 3), None],
             "keys by heads": [q, by_heads(k), by_heads(v)]}[form]  # fmt: skip
    (found,) = imported("MultiHeadAttention", [*given, bias, KEPT], num_heads=HEADS)
    a, b, c = np.split(bias, 3)
    if form == "keys by heads":
        b = c = 0
    added = np.where(KEPT[:, None, None], 0, -1e4)
    close(found, joined(attended(by_heads(q + a), by_heads(k + b), by_heads(v + c), added)))


def test_attention_of_many_heads_with_a_past(rng):
    q, k, v = rng.standard_normal((3, BATCH, ROWS, WIDTH)).astype("f4")
    past = rng.standard_normal((2, BATCH, HEADS, 3, DEPTH)).astype("f4")
    found = imported("MultiHeadAttention", [q, k, v, None, None, None, *past], 3, num_heads=HEADS,
                     unidirectional=1)  # fmt: skip
    keys, values = (np.concatenate([p, by_heads(x)], 2) for p, x in zip(past, (k, v), strict=True))
    close(found[0], joined(attended(by_heads(q), keys, values, causal(ROWS, ROWS + 3))))
    close(found[1], keys)
    close(found[2], values)


ANGLES = np.arange(16)[:, None] * np.exp(-np.arange(DEPTH // 2))
COS, SIN = np.cos(ANGLES).astype("f4"), np.sin(ANGLES).astype("f4")


def turned(x, positions, interleaved=0):
    """x (batch, heads, rows, depth) by the angles of positions (batch, rows)."""
    c, s = COS[positions][:, None], SIN[positions][:, None]
    parts = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    pair = parts[0] * c - parts[1] * s, parts[0] * s + parts[1] * c
    return np.stack(pair, -1).reshape(x.shape) if interleaved else np.concatenate(pair, -1)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("single", [True, False])
def test_rotary_embedding(single, interleaved, rng):
    x = rng.standard_normal((BATCH, ROWS, WIDTH)).astype("f4")
    positions = np.array([2]) if single else rng.integers(0, 16, (BATCH, ROWS))
    every = np.arange(2, 2 + ROWS)[None] if single else positions
    want = turned(by_heads(x), every, interleaved)
    for given, result in ((x, joined(want)), (by_heads(x), want)):
        (found,) = imported(
            "RotaryEmbedding", [given, positions, COS, SIN], interleaved=interleaved, scale=1.0
        )
        close(found, result)


def cached(rows, before, lengths, total, rng, known=(6,), **attrs):
    """The results of grouped attention, and what is expected: what rows see, and the caches up to
    their lengths. Unless `known`, the total is an input of the model."""
    groups, batch = 2, len(lengths)
    q = rng.standard_normal((batch, rows, WIDTH)).astype("f4")
    k, v = rng.standard_normal((2, batch, rows, groups * DEPTH)).astype("f4")
    past = rng.standard_normal((2, batch, groups, before, DEPTH)).astype("f4")
    past[..., max(lengths) + 1 :, :] = np.nan
    turns = [COS, SIN] if attrs.get("do_rotary") else [None, None]
    given = [q, k, v, *(past if before else [None, None]), np.array(lengths, "i4"), total, *turns]
    if attrs.pop("joined", False):
        given[:3] = [np.concatenate([q, k, v], -1), None, None]
    found = imported("GroupQueryAttention", given, 3, known=known, num_heads=HEADS,
                     kv_num_heads=groups, **attrs)  # fmt: skip
    window = attrs.get("local_window_size", 99)
    for b, last in enumerate(lengths):
        begin = last + 1 - rows if rows < total else 0
        heads = [by_heads(x[b : b + 1], n) for x, n in ((q, HEADS), (k, groups), (v, groups))]
        if attrs.get("do_rotary"):
            places = np.arange(begin, begin + rows)[None]
            heads[:2] = [turned(x, places, attrs.get("rotary_interleaved", 0)) for x in heads[:2]]
        keys, values = (np.concatenate([p[b : b + 1, :, :begin], x], 2)
                        for p, x in zip(past, heads[1:], strict=True))  # fmt: skip
        far = np.arange(begin, begin + rows)[:, None] - np.arange(begin + rows)
        kept = np.where((far >= 0) & (far < window), 0, -np.inf)
        close(found[0][b : b + 1], joined(attended(heads[0], keys, values, kept)))
        close(found[1][b : b + 1, :, : begin + rows], keys)
        close(found[2][b : b + 1, :, : begin + rows], values)
        assert not np.any([x[b, :, begin + rows :] for x in found[1:]]), "whatever the cache had"
    assert found[1].shape[2] == max(total, before)


@pytest.mark.parametrize(
    ("rows", "before", "lengths", "total"),
    [(5, 0, [4], 5), (5, 9, [4, 4], 5), (1, 8, [5, 3], 6), (1, 5, [5], 6), (3, 8, [6], 7)],
    ids=["first", "first into a cache", "next into a cache", "next", "some into a cache"],
)
@pytest.mark.parametrize(
    "attrs",
    [{}, {"do_rotary": 1, "joined": True}, {"do_rotary": 1, "rotary_interleaved": 1},
     {"local_window_size": 2}],
    ids=["plain", "rotary", "interleaved", "window"],
)  # fmt: skip
@pytest.mark.parametrize("known", [(6,), ()], ids=["known", "given"])
def test_grouped_attention(rows, before, lengths, total, attrs, known, rng):
    cached(rows, before, lengths, total, rng, known, **attrs)


def test_layers_by_root_mean_squares(rng):
    x, skip = rng.standard_normal((2, 2, 3, 8)).astype("f4")
    gamma, bias = rng.standard_normal((2, 8)).astype("f4")
    normal = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * gamma
    for domain in ("", "com.microsoft"):
        (found,) = imported("SimplifiedLayerNormalization", [x, gamma], domain=domain, axis=-1,
                            epsilon=1e-3, stash_type=1)  # fmt: skip
        close(found, normal)
    for given in ([x, skip, gamma], [x, skip, gamma, bias]):
        total = x + skip + (bias if len(given) == 4 else 0)
        (found,) = imported("SkipSimplifiedLayerNormalization", given, epsilon=1e-3)
        close(found, total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-3) * gamma)


@pytest.mark.parametrize("form", ["all", "no segments", "positions"])
def test_embedding_and_normalisation(form, rng):
    words, places, kinds = (rng.standard_normal((n, 8)).astype("f4") for n in (9, 6, 2))
    gamma, beta = rng.standard_normal((2, 8)).astype("f4")
    ids, segments = rng.integers(0, 9, (2, 5), "i4"), rng.integers(0, 2, (2, 5), "i4")
    at = rng.integers(0, 6, (2, 5), "i4") if form == "positions" else None
    total = words[ids] + places[np.arange(5) if at is None else at]
    if form == "no segments":
        segments = kinds = None
    else:
        total = total + kinds[segments]
    given = [ids, segments, words, places, kinds, gamma, beta, KEPT, at]
    found = imported("EmbedLayerNormalization", given, 3, epsilon=1e-5, mask_index_type=1)
    mean, var = total.mean(-1, keepdims=True), total.var(-1, keepdims=True)
    close(found[0], (total - mean) / np.sqrt(var + 1e-5) * gamma + beta)
    np.testing.assert_array_equal(found[1], KEPT.sum(1))
    close(found[2], total)


def test_split_activation_and_products_of_old_files(rng):
    x, bias = rng.standard_normal((2, 3, 8)).astype("f4"), rng.standard_normal(8).astype("f4")
    (gate,) = imported("Gelu", [(x + bias)[..., 4:].copy()])
    (found,) = imported("BiasSplitGelu", [x, bias])
    close(found, (x + bias)[..., :4] * gate)
    (found,) = imported("TransposeMatMul", [x[0], x[1]], transB=1)
    close(found, x[0] @ x[1].T)


def zeros(*shape):
    return np.zeros(shape, "f4")


X = zeros(2, 5, WIDTH)
CACHE = zeros(2, 2, 5, DEPTH)
LAST, TOTAL = np.array([5, 5], "i4"), np.int32(6)
GROUPED = [zeros(2, 1, WIDTH), *[zeros(2, 1, 16)] * 2, CACHE, CACHE, LAST, TOTAL]


@pytest.mark.parametrize(
    ("op", "given", "attrs", "message"),
    [
        ("Attention", [X, zeros(WIDTH, 96)], {}, "attribute num_heads is 0; expected a positive"),
        ("Attention", [X, zeros(WIDTH, 96)], {"num_heads": 4, "do_rotary": 1},
         "attribute do_rotary is not supported"),
        ("Attention", [X, zeros(WIDTH, 96), None, np.zeros(4, "i4")], {"num_heads": 4},
         r"mask_index has the shape \(4,\); expected \(2,\) or \(2, 5\) or \(2, 5, 5\); take the"),
        ("MultiHeadAttention", [X, X, X, *[None] * 5, LAST], {"num_heads": 4},
         "past_sequence_length is not supported; take the file from before"),
        ("MultiHeadAttention", [X], {"num_heads": 4}, "the input key is missing"),
        ("GroupQueryAttention", GROUPED, {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": 1},
         "attribute smooth_softmax = 1 is not supported; take"),
        ("GroupQueryAttention", [*GROUPED[:6], np.int32(60)], {"num_heads": 4, "kv_num_heads": 2},
         "total_sequence_length is 60; there are 1 rows, and a cache of 5"),
        ("RotaryEmbedding", [zeros(2, 3), LAST, COS, SIN], {},
         "input has the shape \\(2, 3\\); expected 3 or 4 axes"),
    ],
)  # fmt: skip
def test_forms_that_are_refused(op, given, attrs, message):
    with pytest.raises(graph.Unsupported, match=message):
        imported(op, given, known=(6,) if op == "GroupQueryAttention" else (), **attrs)


def test_the_total_decides_in_each_call_whether_all_rows_are_new(rng):
    """One model for the first rows and those after them: a build for three rows."""
    node = make_node("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "lens", "total"],
                     ["y", "tk", "tv"], domain="com.microsoft", num_heads=HEADS,
                     kv_num_heads=HEADS)  # fmt: skip
    arrays = {n: rng.standard_normal((1, 3, WIDTH)).astype("f4") for n in "qkv"}
    arrays |= {n: rng.standard_normal((1, HEADS, 4, DEPTH)).astype("f4") for n in ("pk", "pv")}
    arrays |= {"lens": np.array([2], "i4"), "total": np.array(3, "i4")}
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for n, a in arrays.items()]  # fmt: skip
    results = [helper.make_empty_tensor_value_info(o) for o in node.output]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_graph([node], "g", infos, results)
    model = graph.build(graph.from_onnx(helper.make_model(proto, opset_imports=opsets)))
    q, k, v = (by_heads(arrays[n]) for n in "qkv")
    for total, begin in ((3, 0), (4, 1), (7, 4)):
        given = {**arrays, "lens": np.array([total - 1], "i4"), "total": np.array(total, "i4")}
        keys, values = (np.concatenate([arrays[p][:, :, :begin], x], 2)
                        for p, x in (("pk", k), ("pv", v)))  # fmt: skip
        found = model.run(given)
        close(found[0], joined(attended(q, keys, values, causal(3, begin + 3))))
        assert found[1].shape == (1, HEADS, max(total, 4), DEPTH)
        close(found[1][:, :, :total], keys)


def test_attention_of_onnxruntime_is_one_kernel():
    """It is ONNX's, which is fused: one product is that of the weights."""
    node = make_node("Attention", ["x", "w", "b", "m"], ["y"], domain="com.microsoft", num_heads=3)
    infos = [helper.make_tensor_value_info("x", 1, (1, 64, 96)),
             helper.make_tensor_value_info("m", 6, (1, 64))]  # fmt: skip
    weights = [numpy_helper.from_array(zeros(*s), n) for n, s in (("w", (96, 288)), ("b", (288,)))]
    results = [helper.make_empty_tensor_value_info("y")]
    proto = helper.make_graph([node], "g", infos, results, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    names = fuse(graph.from_onnx(helper.make_model(proto, opset_imports=opsets))).graphs
    assert len([n for n in names if "matmul" in str(n)]) == 2
    assert not [n for n in names if str(n).startswith("softmax")]

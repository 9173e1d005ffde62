"""Attention and rotary embedding of onnxruntime, by function bodies in those of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.ir import Const, tensor_type
from autosched.graph.onnx_import.scope import Value, tensors
from autosched.graph.types import TensorType

INSTEAD = "take the file from before onnxruntime's optimiser, or one without this form"
"""What helps where a form of an operator is not supported."""


@dataclass(frozen=True)
class Call:
    """A call whose function body depends on attributes and on types of arguments; `outputs` are
    the names of its results, "" for what nothing reads."""

    args: Sequence[Value | None]
    attrs: Mapping[str, Any]
    outputs: Sequence[str]

    def given(self, n: int) -> bool:
        """Whether there is an argument n."""
        return n < len(self.args) and self.args[n] is not None

    def wants(self, n: int) -> bool:
        """Whether something reads result n."""
        return n < len(self.outputs) and bool(self.outputs[n])

    def type(self, n: int, name: str) -> TensorType:
        """Type of argument n. Raises Unsupported where it is left out."""
        found = tensors(self.args)[n] if self.given(n) else None
        if found is None:
            raise Unsupported(f"the input {name} is missing")
        return tensor_type(found)

    def shape(self, n: int, name: str, *ranks: int) -> tuple[int, ...]:
        """Shape of argument n, of one of these ranks. Raises Unsupported for another."""
        shape = self.type(n, name).shape
        if shape is None:
            raise Unsupported(f"the shape of the input {name} depends on data; {INSTEAD}")
        if ranks and len(shape) not in ranks:
            self.refuse(f"the input {name} has the shape {shape}; expected "
                        f"{' or '.join(map(str, ranks))} axes")  # fmt: skip
        return tuple(map(int, shape))

    def positive(self, name: str) -> int:
        """An attribute that must be positive. Raises Unsupported."""
        found = int(self.attrs.get(name, 0))
        if found < 1:
            raise Unsupported(f"attribute {name} is {found}; expected a positive number")
        return found

    def without(self, inputs: Mapping[int, str]) -> None:
        """Raises Unsupported where one of these inputs is given."""
        for n, name in inputs.items():
            if self.given(n):
                self.refuse(f"the input {name} is not supported")

    def refuse(self, why: str) -> NoReturn:
        """Raise Unsupported, saying what helps."""
        raise Unsupported(f"{why}; {INSTEAD}")


def _ints(name: str, values: Sequence[int]) -> str:
    """A constant of integers."""
    return f"{name} = Constant <value_ints = [{', '.join(map(str, values))}]> ()\n"


def counting(name: str, count: int) -> str:
    """The numbers from 0 up to `count`."""
    return (f"{name}_0 = Constant <value_int = 0> () {name}_1 = Constant <value_int = 1> ()\n"
            f"{name}_n = Constant <value_int = {count}> ()\n"
            f"{name} = Range({name}_0, {name}_n, {name}_1)\n")  # fmt: skip


def _number(name: str, value: float, like: str) -> str:
    """A constant of the element type of `like`."""
    text = "-inf" if np.isneginf(value) else repr(float(value))
    return f"{name}_f = Constant <value_float = {text}> () {name} = CastLike({name}_f, {like})\n"


def _masked(call: Call, n: int, name: str, rows: int, columns: int) -> tuple[str, str]:
    """What is added to the scores, and its name: the input `bias` and, where an input n, `m`, masks
    keys, numbers for these and for those behind a row. It has the count of the keys that it keeps
    (batch), or is 0 for the others: (batch, keys) or (batch, rows, keys)."""
    if not call.given(n):
        return "", "bias"
    shape, batch = call.shape(n, name), call.shape(0, "query")[0]
    forms = {(batch,): (1, 2, 3), (batch, columns): (1, 2), (batch, rows, columns): (1,)}
    if shape not in forms:
        call.refuse(
            f"the input {name} has the shape {shape}; expected {' or '.join(map(str, forms))}"
        )
    text = _ints("m_axes", forms[shape]) + "m_wide = Unsqueeze(m, m_axes)\n"
    text += counting("m_key", columns)
    if len(shape) == 1:
        text += "m_count = Cast <to = 7> (m_wide) m_kept = Less(m_key, m_count)\n"
    else:
        text += "m_kept = Cast <to = 9> (m_wide)\n"
    # A number of the dtype: rows without any key are even, as they are in onnxruntime.
    least = float(np.finfo(call.type(0, "query").dtype).min)
    value = max(float(call.attrs.get("mask_filter_value", -10000.0)), least)
    text += _number("m_number", value, "q") + _number("m_zero", 0, "q")
    text += "m_off = Where(m_kept, m_zero, m_number)\n"
    if not call.attrs.get("unidirectional", 0):
        return text + "added = Sum(m_off, bias)\n", "added"
    text += counting("m_row", rows) + _ints("m_column", [1]) + _number("m_least", least, "q")
    text += f"m_past = Constant <value_int = {columns - rows}> () m_at = Add(m_row, m_past)\n"
    text += "m_last = Unsqueeze(m_at, m_column) m_seen = LessOrEqual(m_key, m_last)\n"
    return text + "m_all = Where(m_seen, m_off, m_least) added = Sum(m_all, bias)\n", "added"


def _attention(call: Call, heads: int, mask: str, past: str, results: str) -> str:
    """ONNX's attention of q, k, v (batch, rows, width)."""
    options = f"q_num_heads = {heads}, kv_num_heads = {heads}"
    causal = mask == "bias" and call.attrs.get("unidirectional", 0)  # else the mask is
    options += f", is_causal = {int(causal)}"
    scale = float(call.attrs.get("scale", 0.0))  # 0 is what ONNX has by default
    options += f", scale = {scale!r}" if scale else ""
    return f"{results} = Attention <{options}> (q, k, v, {mask}, {past})\n"


def attention(call: Call) -> str:
    """Attention of x by x, whose weights are those of queries, keys and values in one matrix."""
    heads = call.positive("num_heads")
    _, rows, _ = call.shape(0, "input", 3)
    width = call.shape(1, "weights", 2)[1]
    call.without({6: "past_sequence_length"})
    sizes = call.attrs.get("qkv_hidden_sizes") or [width // 3] * 3
    text = "p = MatMul(x, w) t = Sum(p, b)\n" + _ints("sizes", sizes)
    text += "q, k, v = Split <axis = -1> (t, sizes)\n"
    before = call.shape(4, "past", 5)[3] if call.given(4) else 0
    if before:
        text += "at_0 = Constant <value_int = 0> () at_1 = Constant <value_int = 1> ()\n"
        text += "pk = Gather(past, at_0) pv = Gather(past, at_1)\n"
    mask, added = _masked(call, 3, "mask_index", rows, before + rows)
    results = "y, tk, tv" if call.wants(1) else "y"
    text += mask + _attention(call, heads, added, "pk, pv" if before else "", results)
    if call.wants(1):
        text += _ints("front", [0]) + "wk = Unsqueeze(tk, front) wv = Unsqueeze(tv, front)\n"
        text += "present = Concat <axis = 0> (wk, wv)\n"
    return (
        "Attention <num_heads, unidirectional, mask_filter_value, scale, qkv_hidden_sizes>"
        f"(x, w, b, m, past, bias, length) => (y, present) {{\n{text}}}"
    )


def _apart(names: str, packed: str) -> str:
    """Parts of one tensor (batch, rows, heads, parts, depth), each (batch, rows, width)."""
    parts = ", ".join(f"{n}_5" for n in names)
    text = f"{parts} = Split <axis = 3, num_outputs = {len(names)}> ({packed})\n"
    return text + "".join(f"{n}_3 = Reshape({n}_5, flat)\n" for n in names)


def _parts(call: Call) -> str:
    """Statements that give q_3, k_3 and v_3 (batch, rows, width) of what queries, keys and values
    may be: so, packed into one tensor, or keys and values by heads."""
    text = _ints("flat", [0, 0, -1])
    if len(call.shape(0, "query", 3, 5)) == 5:
        return text + _apart("qkv", "query")
    text += "q_3 = Identity(query)\n"
    form = len(call.shape(1, "key", 3, 4, 5))
    if form == 5:
        return text + _apart("kv", "key")
    call.shape(2, "value", form)
    for n, name in (("k", "key"), ("v", "value")):
        if form == 3:
            text += f"{n}_3 = Identity({name})\n"
        else:
            text += f"{n}_4 = Transpose <perm = [0, 2, 1, 3]> ({name}) "
            text += f"{n}_3 = Reshape({n}_4, flat)\n"
    return text


def multi_head(call: Call) -> str:
    """Attention of queries, keys and values that are products already, but for a bias."""
    heads = call.positive("num_heads")
    call.without({8: "past_sequence_length", 9: "cache_indirection"})
    text, biased = _parts(call), ""
    query, key = call.shape(0, "query"), call.shape(1 if call.given(1) else 0, "key")
    if call.given(3):
        width = query[2] if len(query) == 3 else prod(query[2:]) // 3
        biased = "q" if len(key) == 4 else "qkv"  # keys by heads have theirs
        text += _ints("sizes", [width, width, call.shape(3, "bias", 1)[0] - 2 * width])
        text += "q_b, k_b, v_b = Split <axis = 0> (b, sizes)\n"
    for n in "qkv":
        text += f"{n} = " + (f"Add({n}_3, {n}_b)\n" if n in biased else f"Identity({n}_3)\n")
    columns = key[2] if len(key) == 4 else key[1]
    columns += call.shape(6, "past_key", 4)[2] if call.given(6) else 0
    mask, added = _masked(call, 4, "key_padding_mask", query[1], columns)
    results = "y, tk, tv" if call.wants(1) or call.wants(2) else "y"
    text += mask + _attention(call, heads, added, "pk, pv", results)
    return (
        "MultiHeadAttention <num_heads, unidirectional, mask_filter_value, scale>"
        f"(query, key, value, b, m, bias, pk, pv, length, moved) => (y, tk, tv, scores) {{{text}}}"
    )


def rotary(call: Call) -> str:
    """Rotation of pairs by angles of positions; a single position is that of the first row."""
    shape = call.shape(0, "input", 3, 4)
    depth = 2 * call.shape(2, "cos_cache", 2)[1]
    heads = int(call.attrs.get("num_heads", 0)) or shape[-1] // max(depth, 1)
    if call.attrs.get("scale", 1.0) != 1.0:
        call.refuse(f"attribute scale = {call.attrs['scale']!r} is not supported")
    text = "at = Identity(p)\n"
    if prod(call.shape(1, "position_ids")) == 1:
        text = counting("row", shape[-2]) + _ints("wide", [1, -1])
        text += "first = Cast <to = 7> (p) rows = Add(first, row) at = Reshape(rows, wide)\n"
    interleaved, part = (int(call.attrs.get(n, 0)) for n in ("interleaved", "rotary_embedding_dim"))
    text += _rotated("y", "x", heads if len(shape) == 3 else 0, interleaved, part)
    return (
        "RotaryEmbedding <interleaved, num_heads, rotary_embedding_dim, scale>"
        f"(x, p, c, s) => (y) {{\n{text}}}"
    )


def _rotated(name: str, of: str, heads: int, interleaved: int, depth: int) -> str:
    """The rotation of (batch, rows, width), or with 0 `heads` of (batch, heads, rows, depth), by
    the angles in c and s at the positions `at`; `depth` is what it rotates of each, 0 for all."""
    options = f"num_heads = {heads}, interleaved = {interleaved}, rotary_embedding_dim = {depth}"
    return f"{name} = RotaryEmbedding <{options}> ({of}, c, s, at)\n"


_LEFT_OUT = {11: "head_sink", 12: "k_scale", 13: "v_scale", 14: "q_norm_weight",
             15: "k_norm_weight", 16: "query_seqlens"}  # fmt: skip
_FIXED = {"causal": (1,), "k_quant_type": ("NONE",), "v_quant_type": ("NONE",),
          "smooth_softmax": (-1, 0)}  # fmt: skip


def grouped(call: Call) -> str:
    """Causal attention of groups of queries by the keys of a cache. All rows are new where there
    are as many as keys in total; else they follow what the cache of each batch has."""
    call.without(_LEFT_OUT)
    for name, known in _FIXED.items():
        if call.attrs.get(name, known[0]) not in known:
            call.refuse(f"attribute {name} = {call.attrs[name]!r} is not supported")
    counts = (call.positive("num_heads"), call.positive("kv_num_heads"))
    _, rows, width = call.shape(0, "query", 3)
    before = call.shape(3, "past_key", 4)[2] if call.given(3) else 0
    total = _total(call, rows, before)
    later = total is None or rows < total
    keys = before + rows if total is None else max(total, before)
    text = _ints("flat", [0, 0, -1]) + _ints("axes", [1, 2, 3]) + _ints("column", [1])
    text += counting("row", rows) + "row_2 = Unsqueeze(row, column)\n"
    text += _begin(rows, total is None) if later else ""
    text += _unpacked(call, counts, width) + _turned(call, later)
    for n, heads in zip("qkv", (counts[0], counts[1], counts[1]), strict=True):
        text += _ints(f"{n}_to", [0, 0, heads, -1]) + f"{n}_4 = Reshape({n}_3, {n}_to)\n"
        text += f"{n} = Transpose <perm = [0, 2, 1, 3]> ({n}_4)\n"
    text += _cached(rows, before, keys, later)
    text += _causal(call, keys if later else rows, later)
    if total is None:
        text += _ints("start", [0]) + _ints("least", [before]) + _ints("key_axis", [2])
        text += "stop = Max(total_1, least)\n"
        text += "".join(f"s{n} = Slice(t{n}, start, stop, key_axis)\n" for n in "kv")
    results = "sk, sv" if total is None else "tk, tv"
    return (
        "GroupQueryAttention <num_heads, kv_num_heads, scale, softcap, local_window_size, "
        "do_rotary, rotary_interleaved, qk_norm_epsilon, causal, k_quant_type, v_quant_type, "
        "smooth_softmax> (query, key, value, pk, pv, lens, total, c, s, p, bias)"
        f" => (y, {results}, scores) {{\n{text}}}"
    )


def _total(call: Call, rows: int, before: int) -> int | None:
    """The number of keys in total, by which shapes go; None where it depends on data, and is known
    when it runs. Without a cache all rows are new."""
    found = call.args[6] if call.given(6) else None
    if found is None:
        call.refuse("the input total_sequence_length is missing")
    if not isinstance(found, Const):
        return None if before else rows
    total = int(np.asarray(found.value).reshape(-1)[0])
    if not rows <= total <= max(before, rows) + (rows if before else 0):
        raise Unsupported(f"the input total_sequence_length is {total}; there are {rows} rows, and "
                          f"a cache of {before}")  # fmt: skip
    return total


def _begin(rows: int, unknown: bool) -> str:
    """Where the new rows of each batch begin; `lens` is the last position of each. Where the total
    is `unknown`, all rows may be new: there are as many."""
    text = _ints("batches", [-1]) + f"less = Constant <value_int = {rows - 1}> ()\n"
    text += "lens_7 = Cast <to = 7> (lens) lens_1 = Reshape(lens_7, batches)\n"
    if unknown:
        text += "total_7 = Cast <to = 7> (total) total_1 = Reshape(total_7, batches)\n"
        text += _ints("rows", [rows]) + _ints("none", [0]) + "whole = Equal(total_1, rows)\n"
        text += "later = Sub(lens_1, less) begin = Where(whole, none, later)\n"
    else:
        text += "begin = Sub(lens_1, less)\n"
    return text + "begin_4 = Unsqueeze(begin, axes)\n"


def _unpacked(call: Call, counts: tuple[int, int], width: int) -> str:
    """Statements that give q_0, k_0 and v_0 (batch, rows, width)."""
    if call.given(1):
        return "q_0 = Identity(query) k_0 = Identity(key) v_3 = Identity(value)\n"
    depth = width // (counts[0] + 2 * counts[1])
    text = _ints("sizes", [n * depth for n in (counts[0], counts[1], counts[1])])
    return text + "q_0, k_0, v_3 = Split <axis = -1> (query, sizes)\n"


def _turned(call: Call, later: bool) -> str:
    """q_3 and k_3, turned by the angles of their positions where the call says so."""
    if not call.attrs.get("do_rotary", 0):
        return "q_3 = Identity(q_0) k_3 = Identity(k_0)\n"
    text = "begin_2 = Unsqueeze(begin, column) at = Add(begin_2, row)\n" if later else ""
    if call.given(9):
        text = "at = Identity(p)\n"
    elif not later:
        text = _ints("front", [0]) + "at = Unsqueeze(row, front)\n"
    depth = 2 * call.shape(7, "cos_cache", 2)[1]
    for n, name in (("q", "num_heads"), ("k", "kv_num_heads")):
        interleaved = int(call.attrs.get("rotary_interleaved", 0))
        text += _rotated(f"{n}_3", f"{n}_0", call.positive(name), interleaved, depth)
    return text


def _cached(rows: int, before: int, keys: int, later: bool) -> str:
    """The caches tk and tv (batch, heads, keys, depth) with the new keys and values; behind these
    they are 0, whatever the caches have there."""
    text = _ints("pads", [0] * 6 + [keys - (before if later else rows), 0])
    if not later:
        return text + "tk = Pad(k, pads) tv = Pad(v, pads)\n"
    text += counting("place", keys) + "place_2 = Unsqueeze(place, column)\n"
    text += "is_old = Less(place_2, begin_4) is_new = Equal(place_2, begin_4)\n"
    text += _number("nothing", 0, "k")
    for n in "kv":
        text += f"all_{n} = Pad(p{n}, pads) old_{n} = Where(is_old, all_{n}, nothing) t{n} = "
        text += f"Where(is_new, {n}, old_{n})\n" if rows == 1 else (
                f"TensorScatter(old_{n}, {n}, begin)\n")  # fmt: skip
    return text


def _causal(call: Call, columns: int, later: bool) -> str:
    """The result y: rows look at keys up to their own position, and no farther back than a
    window."""
    window = int(call.attrs.get("local_window_size", -1))
    options = [f"is_causal = {int(not later and window < 1)}"]
    options += [
        f"{n} = {float(call.attrs[n])!r}" for n in ("scale", "softcap") if call.attrs.get(n)
    ]
    text, added = "", "bias"
    if call.given(10):
        # What is behind the total is masked.
        more = columns - call.shape(10, "attention_bias", 4)[3]
        text += _ints("bias_pads", [0] * 7 + [max(more, 0)])
        text, added = text + "bias_all = Pad(bias, bias_pads)\n", "bias_all"
    if later or window > 0:
        text += counting("seen", columns)
        text += "here = Add(begin_4, row_2)\n" if later else "here = Identity(row_2)\n"
        text += "kept = LessOrEqual(seen, here)\n"
        if window > 0:
            text += f"window = Constant <value_int = {window}> () left = Sub(here, window)\n"
            text += "inside = Greater(seen, left) within = And(kept, inside)\n"
        kept = "within" if window > 0 else "kept"
        if call.given(10):
            text += _number("off", -np.inf, "q") + f"added = Where({kept}, bias_all, off)\n"
        added = "added" if call.given(10) else kept
    names = "tk, tv" if later else "k, v"
    text += f"y_4 = Attention <{', '.join(options)}> (q, {names}, {added})\n"
    return text + "y_3 = Transpose <perm = [0, 2, 1, 3]> (y_4) y = Reshape(y_3, flat)\n"


FORMS: Mapping[str, Callable[[Call], str]] = {
    "Attention": attention,
    "GroupQueryAttention": grouped,
    "MultiHeadAttention": multi_head,
    "RotaryEmbedding": rotary,
}
"""Function bodies that depend on the call, as ONNX writes them."""

"""Nests that move stretches of memory: copies and zeros as calls, cut where rows change source."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosched as at
from autosched import te
from autosched.codegen.build import generate_ir
from autosched.sketch.default import default_schedule
from autosched.target import Target

TARGETS = ["llvm -num-cores=1", "llvm -num-cores=2"]
COPY, CLEAR = "call void @llvm.memcpy", "call void @llvm.memset"


def joined(shapes, axis, dtype="float32"):
    """Tensors one behind the other along an axis."""
    parts = [te.placeholder(s, name=f"p{k}", dtype=dtype) for k, s in enumerate(shapes)]
    total = sum(s[axis] for s in shapes)

    def element(*index):
        found, begin = None, total
        for part, s in reversed(list(zip(parts, shapes, strict=True))):
            begin -= s[axis]
            at_part = (*index[:axis], index[axis] - begin, *index[axis + 1 :])
            here = part(*at_part)
            end = begin + s[axis]
            found = here if found is None else te.if_then_else(index[axis] < end, here, found)
        return found

    shape = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    return te.create_prim_func([*parts, te.compute(shape, element, name="out")])


def padded(shape, before, after, value=0.0):
    """Rows of `value` before and after those of an array."""
    p = te.placeholder(shape, name="p")
    n = shape[0]

    def element(i, *rest):
        inside = te.all(i >= before, i < before + n)
        return te.if_then_else(inside, p(i - before, *rest), te.const(value, "float32"))

    out = te.compute((before + n + after, *shape[1:]), element, name="out")
    return te.create_prim_func([p, out])


def run(func, *inputs, target):
    out = np.empty([int(n) for n in func.params[-1].shape], func.params[-1].dtype)
    at.build(default_schedule(func, Target(target)), target=target)(*inputs, out)
    return out


def text_of(func, target="llvm -mcpu=skylake-avx512 -num-cores=1"):
    return generate_ir(default_schedule(func, Target(target)).func, Target(target)).ir


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 150),
    st.integers(0, 2),
    st.sampled_from(TARGETS),
    st.sampled_from(["float32", "int8", "bool"]),
)
def test_joined_blocks_are_those_of_numpy(extents, outer, inner, axis, target, dtype):
    shapes = []
    for n in extents:
        shape = [outer, outer + 1, inner]
        shape[axis] = n
        shapes.append(tuple(shape))
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 2, s).astype(dtype) for s in shapes]
    found = run(joined(shapes, axis, dtype), *parts, target=target)
    np.testing.assert_array_equal(found, np.concatenate(parts, axis))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 200), st.integers(0, 40), st.integers(0, 40),
    st.sampled_from([0.0, -0.0, 2.5]), st.sampled_from(TARGETS),
)  # fmt: skip
def test_padded_blocks_are_those_of_numpy(rows, width, before, after, value, target):
    x = np.random.default_rng(0).standard_normal((rows, width)).astype("f4")
    found = run(padded(x.shape, before, after, value), x, target=target)
    expected = np.pad(x, ((before, after), (0, 0)), constant_values=value)
    np.testing.assert_array_equal(found.view("i4"), expected.astype("f4").view("i4"))


@settings(max_examples=30, deadline=None)
@given(
    st.permutations([0, 1, 2]), st.sampled_from(TARGETS), st.integers(1, 5), st.integers(1, 40),
    st.integers(1, 1500),
)  # fmt: skip
def test_what_lies_in_another_order_is_no_stretch(order, target, a, b, c):
    x = np.random.default_rng(0).standard_normal((a, b, c)).astype("f4")
    p = te.placeholder(x.shape, name="p")
    shape = [x.shape[k] for k in order]
    back = [order.index(k) for k in range(3)]
    out = te.compute(shape, lambda *i: p(*(i[k] for k in back)), name="out")
    found = run(te.create_prim_func([p, out]), x, target=target)
    np.testing.assert_array_equal(found, x.transpose(order))


def test_each_part_of_joined_rows_is_one_copy():
    text = text_of(joined([(64, 256), (300, 256), (212, 256)], 0))
    assert text.count(COPY) == 3
    assert "select" not in text


def test_many_joined_tensors_are_as_many_copies():
    """In each part one of them is read, however deep its condition stands."""
    text = text_of(joined([(16, 256)] * 40, 0))
    assert text.count(COPY) == 40
    assert "select" not in text


def test_threads_ask_once_for_each_tensor_not_for_each_row():
    func = joined([(32, 28, 28)] * 8, 0)
    text = text_of(func, "llvm -mcpu=skylake-avx512 -num-cores=2")
    assert "autosched_parallel_for" in text
    assert "select" not in text


def test_a_cache_is_copied_and_the_row_behind_it_stored_in_vectors():
    text = text_of(joined([(12, 500, 64), (12, 1, 64)], 1))
    assert text.count(COPY) == 1
    assert "store <16 x float>" in text


@pytest.mark.parametrize(("value", "cleared"), [(0.0, 2), (-0.0, 0)])
def test_rows_of_zeros_are_cleared(value, cleared):
    text = text_of(padded((100, 256), 10, 14, value))
    assert (text.count(COPY), text.count(CLEAR)) == (1, cleared)


def test_a_short_stretch_is_stored_in_vectors():
    """A call costs more than it saves."""
    assert COPY not in text_of(joined([(2, 256), (3, 256)], 0))

"""Keys: equal for equal programs, different for different ones, the same from run to run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tir_rebuild import Rebuild, shuffled

from autosched import te
from autosched.errors import VerifyError
from autosched.ops import OPERATORS
from autosched.script import parse_func
from autosched.tir.canonical import (
    VERSION,
    block_index,
    block_order,
    canonical_text,
    program_hash,
    workload_key,
)
from autosched.tir.nodes import PrimFunc, buffers_of, sites


def matmul_add(n=8, m=4, k=6, dtype="float32", reverse=False, free=False) -> PrimFunc:
    A = te.placeholder((n, k), name="A", dtype=dtype)
    B = te.placeholder((k, m), name="B", dtype=dtype)
    C = te.placeholder((n, m), name="C", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [B]} if free else {}
    product = te.compute(
        (n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="product", attrs=attrs
    )
    out = te.compute((n, m), lambda i, j: product[i, j] + C[i, j], name="out")
    return te.create_prim_func([B, A, C, out] if reverse else [A, B, C, out])


def softmax(n=4, m=6) -> PrimFunc:
    A = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="k2")
    top = te.compute((n,), lambda i: te.max(A[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(A[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")
    return te.create_prim_func([A, out])


def conv(h=7, w=9, c=3, o=4, stride=2) -> PrimFunc:
    X = te.placeholder((h, w, c), name="X")
    W = te.placeholder((3, 3, c, o), name="W")
    pad = te.compute(
        (h + 2, w + 2, c),
        lambda y, x, z: te.if_then_else(
            te.all(y >= 1, y < h + 1, x >= 1, x < w + 1), X[y - 1, x - 1, z], 0.0
        ),
        name="pad",
    )
    ky, kx, kc = (te.reduce_axis((0, n), name=s) for n, s in ((3, "ky"), (3, "kx"), (c, "kc")))
    out = te.compute(
        ((h - 1) // stride + 1, (w - 1) // stride + 1, o),
        lambda y, x, z: te.sum(
            pad[y * stride + ky, x * stride + kx, kc] * W[ky, kx, kc, z], axis=[ky, kx, kc]
        ),
        name="conv",
    )
    return te.create_prim_func([X, W, out])


PROGRAMS = {"matmul_add": matmul_add, "softmax": softmax, "conv": conv}
GOLDEN_KEYS = {
    "matmul_add": "1-86ec2ec1cbc21b78c1ffa56a",
    "softmax": "1-b9db074aa5bf5e9748bbc990",
    "conv": "1-1d0538d0ea463daa01b3c028",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_keys_are_the_same_from_release_to_release(name):
    assert workload_key(PROGRAMS[name]()) == GOLDEN_KEYS[name]


LIBRARY_KEYS = {
    "argmax": ((4, 5), "1-97085cd214ca6af314873edd"),
    "batch_matmul": ((2, 4, 5, 6), "1-4c3b2b87f820a726ae78a3ae"),
    "conv1d": ((9, 3, 4, 3, 2, 1), "1-7f1e6793f30c9eb8b06cf101"),
    "conv2d": ((8, 7, 3, 4, 3, 2, 1), "1-b9e4d64f370c7287be39dc8f"),
    "conv2d_bias_relu": ((6, 6, 2, 3, 3, 1, 1), "1-e1cbd44f4742c71543f8998c"),
    "conv2d_bn_relu": ((5, 5, 2, 3, 3, 2, 1), "1-c9709da2760b5faa6fdea634"),
    "conv2d_capsule": ((4, 4, 2, 2, 3, 2, 1, 2), "1-93a3c7809399e0c754ad6571"),
    "conv2d_mixed": ((8, 7, 3, 4, 3, 2, 1), "1-7c53916370b0e27ff6a35a5d"),
    "conv2d_transpose": ((3, 4, 2, 3, 3, 2, 1), "1-be93836c083f1679f7539250"),
    "conv3d": ((5, 4, 6, 2, 3, 3, 1, 1), "1-b9baacfda06872e2f9116634"),
    "cumsum": ((4, 5), "1-589b38aa4a9e21d8c1654af7"),
    "depthwise_conv2d": ((7, 7, 3, 3, 2, 1), "1-8fc9008b200ee9867f8a7448"),
    "ema": ((4, 5), "1-935f6d6019200b426aaba609"),
    "gru": ((3, 2, 4, 5), "1-9bc11136dd921d88132be932"),
    "layer_norm": ((4, 6), "1-69003852473e07313f4a75f9"),
    "lstm": ((3, 2, 4, 5), "1-1d2d4874281c5a62eb13497d"),
    "matmul": ((8, 9, 10), "1-7bffcdc221504cab51b7e0d0"),
    "matmul_add": ((7, 4, 6), "1-2b34bb3520b673ce8e2baf5a"),
    "matmul_bias_gelu": ((4, 5, 6), "1-a00e0d501e7873f1def81f7e"),
    "matmul_mixed": ((8, 9, 10), "1-c8e2acf9dd6e449d621ca15d"),
    "max_pool2d": ((8, 8, 3, 3, 2, 1), "1-7acf61fade0f4df7725c07c0"),
    "mul_add_relu": ((3, 4), "1-c2d3abb638feaa4322f050f3"),
    "norm": ((4, 5), "1-2a0d32f28fde09c12fd4287b"),
    "rnn": ((3, 2, 4, 5), "1-09b22218c056ea60833e86a7"),
    "softmax": ((4, 5), "1-965745027c67f7e03483d49c"),
    "transpose_batch_matmul": ((4, 2, 4), "1-0d48d3bbd430237a3a3944b0"),
    "transpose_batch_matmul_softmax": ((3, 2, 2), "1-497086257c91b9454f30a9fe"),
    "two_matmuls": ((3, 4, 5, 2), "1-b34299f12c90ae990c9bbfe8"),
    "winograd_conv2d": ((5, 4, 2, 2, 1), "1-2f329e0cd85cc70bc7ba9b55"),
}
"""Operators of the library at small sizes, and their keys. A key that changes makes every record
under it unreachable, so that is for a new VERSION only."""


@pytest.mark.parametrize("name", OPERATORS)
def test_keys_of_the_library_are_the_same_from_release_to_release(name):
    assert name in LIBRARY_KEYS, "a new operator: add sizes and its key to LIBRARY_KEYS"
    sizes, key = LIBRARY_KEYS[name]
    func = te.create_prim_func(OPERATORS[name](*sizes))
    assert workload_key(func) == key
    assert key.split("-")[0] == VERSION
    # Neither names nor the order of independent nests, nor a round trip through text, change it.
    for seed in range(3):
        assert workload_key(shuffled(Rebuild(seed).function(func), seed)) == key
    parsed = parse_func(func.script())
    assert workload_key(parsed) == key
    assert block_order(parsed) == block_order(func)


@pytest.mark.parametrize("name", OPERATORS)
def test_keys_see_parameters_and_attributes(name):
    func = te.create_prim_func(OPERATORS[name](*LIBRARY_KEYS[name][0]))
    key = workload_key(func)
    first, *others = func.params
    swapped = replace(func, params=(*others, first))
    noted = replace(func, attrs=(*func.attrs, ("note", 1)))
    assert len({key, workload_key(swapped), workload_key(noted)}) == 3


def test_keys_are_the_same_in_another_process():
    """Hash seeds and addresses differ there."""
    code = (
        "from autosched import te; from autosched.ops import OPERATORS; "
        "from autosched.tir.canonical import workload_key; "
        "print(workload_key(te.create_prim_func(OPERATORS['layer_norm'](4, 6))))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout.strip() == LIBRARY_KEYS["layer_norm"][1], done.stderr


def test_text_is_free_of_names():
    assert canonical_text(matmul_add(free=True)) == GOLDEN_TEXT


def diamonds(choices: list[tuple[int, int, int]], outputs: int) -> PrimFunc:
    """A random DAG of elementwise computations and row sums over (5, 5) tensors."""
    tensors = [te.placeholder((5, 5), name="a"), te.placeholder((5, 5), name="b")]
    inputs = list(tensors)
    for n, (kind, x, y) in enumerate(choices):
        p, q = tensors[x % len(tensors)], tensors[y % len(tensors)]
        k = te.reduce_axis((0, 5), name="k")
        body = {
            0: lambda i, j, p=p, q=q: p[i, j] + q[i, j],
            1: lambda i, j, p=p, q=q: p[j, i] * q[i, j],
            2: lambda i, j, p=p, q=q, k=k: te.sum(p[i, k] * q[k, j], axis=k),
            3: lambda i, j, p=p: te.exp(p[i, j]),
        }[kind]
        tensors.append(te.compute((5, 5), body, name=f"t{n}"))
    return te.create_prim_func([*inputs, *tensors[-outputs:]])


DAGS = st.builds(
    diamonds,
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9
    ),
    st.integers(1, 2),
)


@settings(max_examples=60, deadline=None)
@given(DAGS, st.integers(0, 10**6))
def test_key_forgets_names_objects_and_order(func, seed):
    other = shuffled(Rebuild(seed).function(func), seed)
    assert canonical_text(other) == canonical_text(func)
    assert workload_key(other) == workload_key(func)


@settings(max_examples=40, deadline=None)
@given(DAGS, st.integers(0, 10**6))
def test_canonical_index_follows_a_block_through_renaming(func, seed):
    copy = Rebuild(seed)
    renamed = copy.function(func)
    pairs = {a.block.name: b.block.name for a, b in zip(sites(func), sites(renamed), strict=True)}
    ours, theirs = block_index(func), block_index(shuffled(renamed, seed))
    assert sorted(ours.values()) == list(range(len(ours)))
    if len(set(nest_texts(func))) == len(ours):  # twins may swap places
        assert {pairs[name]: n for name, n in ours.items()} == theirs


def nest_texts(func: PrimFunc) -> list[str]:
    return [canonical_text(replace(func, body=(n,))) for n in func.body]


def test_block_order_puts_producers_first():
    func = conv()
    assert block_order(func) == ("pad", "conv")
    assert block_order(replace(func, body=func.body[::-1])) == ("conv", "pad")


@pytest.mark.parametrize(
    "other",
    [
        matmul_add(n=9),
        matmul_add(dtype="float64"),
        matmul_add(reverse=True),
        matmul_add(free=True),
        softmax(),
        replace(matmul_add(), attrs=(("FLOP", 5),)),
    ],
    ids=["shape", "dtype", "parameter order", "attribute", "operation", "FLOP"],
)
def test_key_tells_programs_apart(other):
    assert workload_key(other) != workload_key(matmul_add())


def test_key_sees_constants_operand_order_and_scope():
    def program(body, scope="global"):
        A = te.placeholder((4,), name="A")
        T = te.compute((4,), lambda i: body(A[i]), name="T")
        func = te.create_prim_func([A, te.compute((4,), lambda i: T[i] * 2.0, name="out")])
        local = next(b for b in buffers_of(func) if b.name == "T")
        object.__setattr__(local, "scope", scope)
        return workload_key(func)

    keys = [
        program(lambda x: x - 1.0),
        program(lambda x: 1.0 - x),
        program(lambda x: x - 2.0),
        program(lambda x: x - 0.0),
        program(lambda x: x - -0.0),
        program(lambda x: x - 1.0, scope="local"),
    ]
    assert len(set(keys)) == len(keys)


def test_layout_free_is_by_position():
    func = matmul_add(free=True)
    assert workload_key(Rebuild(1).function(func)) == workload_key(func)


def test_program_hash_keeps_the_order():
    A = te.placeholder((4,), name="A")
    x = te.compute((4,), lambda i: A[i] + 1.0, name="x")
    y = te.compute((4,), lambda i: A[i] * 2.0, name="y")
    func = te.create_prim_func([A, x, y])
    swapped = replace(func, body=func.body[::-1])
    assert workload_key(func) == workload_key(swapped)
    assert program_hash(func) != program_hash(swapped)
    assert program_hash(func) == program_hash(Rebuild(3).function(func))


def test_loose_ends_have_a_place_too():
    A = te.placeholder((4,), name="A")
    x = te.compute((4,), lambda i: A[i] + 1.0, name="x")
    y = te.compute((4,), lambda i: A[i] * 2.0, name="y")
    z = te.compute((4,), lambda i: y[i] * 3.0, name="z")
    func = te.create_prim_func([A, x, z])
    loose = replace(func, params=func.params[:2])  # z is no output any more
    assert set(block_index(loose)) == {"x", "y", "z"}
    for seed in range(8):
        assert workload_key(shuffled(Rebuild(seed).function(loose), seed)) == workload_key(loose)


def test_overwriting_waits_for_readers():
    A = te.placeholder((4,), name="A")
    x = te.compute((4,), lambda i: A[i] + 1.0, name="x")
    y = te.compute((4,), lambda i: x[i] * 2.0, name="y")
    z = te.compute((4,), lambda i: A[i] * 3.0, name="z")
    func = te.create_prim_func([A, x, y, z])
    # z writes x's buffer again, after y has read it
    old, new = func.params[3], func.params[1]
    last = list(sites(func))[2].block
    block = replace(last, writes=(replace(last.writes[0], buffer=new),))
    body = (*func.body[:2], replace(func.body[2], body=(block,)))
    again = replace(func, params=tuple(b for b in func.params if b is not old), body=body)
    assert block_order(again) == ("x", "y", "z")


def test_long_chains_do_not_exhaust_the_stack():
    t = te.placeholder((2,), name="A")
    first = t
    for _ in range(1500):
        t = te.compute((2,), lambda i, t=t: t[i] + 1.0)
    func = te.create_prim_func([first, t])
    assert len(block_order(func)) == 1500


def test_two_blocks_of_one_name_are_refused():
    func = matmul_add()
    sites_ = list(sites(func))
    twin = replace(sites_[1].block, name="product")
    loop = func.body[1]
    inner = replace(loop.body[0], body=(twin,))
    bad = replace(func, body=(func.body[0], replace(loop, body=(inner,))))
    with pytest.raises(VerifyError, match="several blocks named product"):
        block_index(bad)


def test_attributes_that_are_no_data_are_refused():
    with pytest.raises(VerifyError, match="cannot be part of a key"):
        workload_key(replace(matmul_add(), attrs=(("x", object()),)))


GOLDEN_TEXT = """\
param p0 float32[8,6]@global
param p1 float32[6,4]@global
param p2 float32[8,4]@global
param p3 float32[8,4]@global
outputs p3
attrs {"layout_free":[1]}
for l0 8 serial
 for l1 4 serial
  for l2 6 serial
   block x0:S8 x1:S4 x2:R6
    bind 1*l0; 1*l1; 1*l2
    read s0 p0[1*x0, 1*x2]
    read s1 p1[1*x2, 1*x1]
    write t0=float32[8,4]@global[1*x0, 1*x1]
    value mul(s0, s1)
    combine add(acc0:float32, new0:float32) from 0.0:float32
for l3 8 serial
 for l4 4 serial
  block x0:S8 x1:S4
   bind 1*l3; 1*l4
   read s0 t0[1*x0, 1*x1]
   read s1 p2[1*x0, 1*x1]
   write p3[1*x0, 1*x1]
   value add(s0, s1)
"""

"""The verifier: right programs of every shape pass, and each rule has a program that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from verify_programs import Copy, bits, fails, of, placeholder

from autosched import te
from autosched.errors import TensorExprError
from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.height import MAX_HEIGHT
from autosched.tir.nodes import (
    Access,
    Buffer,
    For,
    Iter,
    Predicate,
    PrimFunc,
    Reducer,
    map_func,
)
from autosched.tir.verify import RULES, verify

# -- programs that are right


def padded_conv(h=9, w=8, c=3, o=4, k=3, stride=2, pad=2, dilation=2):
    x, weights = placeholder((h, w, c), "X"), placeholder((k, k, c, o), "W")
    oh = (h + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    ow = (w + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    ky, kx, kc = (te.reduce_axis((0, n), name=s) for n, s in ((k, "ky"), (k, "kx"), (c, "kc")))

    def point(y, x_, z):
        yy, xx = y * stride + ky * dilation - pad, x_ * stride + kx * dilation - pad
        inside = te.all(yy >= 0, yy < h, xx >= 0, xx < w)
        return te.sum(
            te.if_then_else(inside, x[yy, xx, kc], 0.0) * weights[ky, kx, kc, z],
            axis=[ky, kx, kc],
        )

    return [x, weights, te.compute((oh, ow, o), point, name="conv")]


def causal_conv(n=12, k=3, dilation=2):
    x, w = placeholder((n,), "X"), placeholder((k,), "W")
    kh = te.reduce_axis((0, k), name="kh")
    out = te.compute(
        (n,),
        lambda h: te.sum(
            te.if_then_else(h - kh * dilation >= 0, x[h - kh * dilation], 0.0) * w[kh], axis=kh
        ),
        name="out",
    )
    return [x, w, out]


def transposed_conv(n=6, k=4, stride=2, pad=1):
    x, w = placeholder((n,), "X"), placeholder((k,), "W")
    kh = te.reduce_axis((0, k), name="kh")

    def point(h):
        t = h + pad - kh
        inside = te.all(t % stride == 0, t >= 0, t // stride < n)
        return te.sum(te.if_then_else(inside, x[t // stride], 0.0) * w[kh], axis=kh)

    return [x, w, te.compute(((n - 1) * stride + k - 2 * pad,), point, name="out")]


def reshaped(rows=6, columns=8):
    x = placeholder((rows, columns))
    flat = te.compute((rows * columns,), lambda i: x[i // columns, i % columns], name="flat")
    return [x, te.compute((columns, rows), lambda i, j: flat[j * columns + i], name="out")]


def other_branch(n=10):
    x = placeholder((n,))
    y = te.compute(
        (n + 4,),
        lambda i: te.if_then_else(te.any(i < 2, i >= n + 2), 0.0, x[i - 2]),
        name="out",
    )
    return [x, y]


def gather(n=10, m=5):
    table, where = placeholder((n,), "table"), placeholder((m,), "where", "int64")
    guarded = te.compute(
        (m,),
        lambda i: te.if_then_else(te.all(where[i] >= 0, where[i] < n), table[where[i]], 0.0),
        name="out",
    )
    return [table, where, guarded]


RIGHT = {
    "padded conv": padded_conv,
    "plain conv": lambda: padded_conv(pad=0),
    "causal conv": causal_conv,
    "transposed conv": transposed_conv,
    "strided transposed conv": lambda: transposed_conv(5, 3, 3, 0),
    "reshape": reshaped,
    "else branch": other_branch,
    "gather": gather,
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_pass(name):
    verify(te.create_prim_func(RIGHT[name]()))


@pytest.mark.parametrize(
    ("make", "index"),
    [
        (lambda: padded_conv(h=9), "index 0"),
        (causal_conv, "index 0"),
        (other_branch, "index 0"),
        (gather, "index 0"),
    ],
)
def test_the_same_programs_fail_without_their_guards(make, index):
    def unguarded(e: Expr) -> Expr | None:
        if isinstance(e, Call) and e.op == "if_then_else":
            return e.args[1] if any(isinstance(x, Slot) for x in ex.walk(e.args[1])) else e.args[2]
        return None

    func = te.create_prim_func(make())
    bare = map_func(
        func, lambda b: replace(b, body=tuple(ex.rewrite(e, unguarded) for e in b.body))
    )
    fails(bare, "bounds: ", index, "not provably in")


def test_a_select_guards_nothing():
    x = placeholder((8,))
    y = te.compute((9,), lambda i: te.select(i < 8, x[i], 0.0), name="out")
    with pytest.raises(TensorExprError, match=r"reads A\[vi\]: index 0, vi, reaches 0..8"):
        te.create_prim_func([x, y])


def test_tail_of_a_split():
    p, outer, inner = Copy(), Var("i_0"), Var("i_1")
    form = of(outer, 6) + of(inner)

    def split(*predicates: Predicate) -> PrimFunc:
        block = replace(p.block, bindings=(form,), predicates=predicates)
        return p.func(For(outer, 3, (For(inner, 6, (block,)),)))

    verify(split(Predicate(form, 16)))
    fails(split(), "domains: ", "axis vi is bound to i_0 * 6 + i_1, which reaches 0..17")
    fails(split(Predicate(form, 17)), "domains: ")


def test_predicates_may_guard_what_axes_do_not():
    p = Copy()
    reads = (Access(p.A, (of(p.vi, 1, 4),)),)
    good = replace(p.block, reads=reads, predicates=(Predicate(of(p.i), 12),))
    p.B = Buffer("B", (12,), "float32")
    good = replace(good, writes=(Access(p.B, (of(p.vi),)),))
    verify(p.func(replace(p.loop, body=(good,))))


def test_shrunk_buffers_are_indexed_from_their_region():
    p, outer, inner = Copy(), Var("o"), Var("n")
    local, v1, v2 = Buffer("tile", (4,), "float32"), Var("v1"), Var("v2")
    form = of(outer, 4) + of(inner)
    index = of(v1) + of(outer, -4)
    first = replace(
        p.block, iters=(Iter(v1, 16),), bindings=(form,), writes=(Access(local, (index,)),),
        reads=(Access(p.A, (of(v1),)),),
    )  # fmt: skip
    other = Var("m")
    second = replace(
        p.block, name="back", iters=(Iter(v2, 16),), bindings=(of(outer, 4) + of(other),),
        reads=(Access(local, (of(v2) + of(outer, -4),)),), writes=(Access(p.B, (of(v2),)),),
    )  # fmt: skip
    nests = (For(inner, 4, (first,)), For(other, 4, (second,)))
    verify(p.func(For(outer, 4, nests, allocs=(local,))))
    verify(p.func(For(outer, 4, nests, "parallel", allocs=(local,))))
    fails(p.func(For(outer, 4, nests)), "scopes: ", "an index of tile uses o")
    elsewhere = For(outer, 4, nests[:1], allocs=(local,))
    rest = For(Var("q"), 4, nests[1:])
    fails(p.func(elsewhere, rest), "uses o, which is not")


# -- faults of form


def test_counts():
    p = Copy()
    fails(p.with_block(bindings=()), "nodes: block 'copy' has 1 axes and 0 bindings")
    fails(p.with_block(body=()), "nodes: block 'copy' writes 1 elements and computes 0 values")
    fails(p.with_block(writes=(), body=()), "writes 0 elements")


def test_reducer_shape():
    p, a, b = Copy(), Var("a", "float32"), Var("b", "float32")
    short = Reducer("sum", (a,), (b,), (a + b,), ())
    fails(
        p.with_block(reducer=short),
        "nodes: block 'copy' writes 1 elements with reducer 'sum' of 1 accumulated and 1 new "
        "values, 1 results and 0 identities",
    )


def test_loop_kinds():
    p = Copy()
    fails(
        p.with_loop(kind="fast"),
        "nodes: loop 'i' has kind 'fast'; expected one of serial, parallel, vectorized",
    )
    fails(p.with_loop(kind="thread"), "sizes: loop 'i' is thread with thread axis None")
    fails(p.with_loop(thread="threadIdx.x"), "is serial with thread axis 'threadIdx.x'")


def test_forms_are_of_integers():
    import numpy as np

    p = Copy()
    fails(p.with_block(bindings=(Affine(np.zeros(3, np.int64)),)), "the binding of vi has a coeff")
    fails(p.with_block(bindings=(bits(of(p.i), 0),)), "divisor or modulus is below 1")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (Slot(3, "float32"), "the body uses slot 3 of 1 reads"),
        (Call("frob", (), "float32"), "the body calls 'frob', which is no operation"),
        (
            Call("add", (Slot(0, "float32"),), "float32"),
            "the body gives 1 arguments to add, which takes 2",
        ),
    ],
)
def test_expressions(body, message):
    fails(Copy().with_block(body=(body,)), f"expressions: block 'copy': {message}")


def test_expressions_nest_so_deep_only():
    body: Expr = Slot(0, "float32")
    for _ in range(MAX_HEIGHT):
        body = Call("neg", (body,), "float32")
    fails(Copy().with_block(body=(body,)), "expressions: block 'copy': the body nests more than")


@pytest.mark.parametrize(
    "attrs",
    [
        {"layout_free": ("A", "Z")},
        {"layout_free": 3},
        {"layout_free": ([],)},
        {"FLOP": "many"},
        {"FLOP": -1},
        {"FLOP": float("nan")},
        {"FLOP": True},
    ],
    ids=str,
)
def test_attributes_mean_what_they_say(attrs):
    fails(Copy().func(attrs=tuple(attrs.items())), "attributes: ")


def test_tensor_reads_belong_to_tensor_expressions():
    p = Copy()
    read = placeholder((16,))[0]
    fails(p.with_block(body=(read,)), "which is for tensor expressions")


def test_an_index_cannot_depend_on_itself():
    p = Copy()
    table = Buffer("T", (16,), "int64")
    loop = Access(table, (Slot(1, "int64"),))
    fails(p.with_block(reads=(p.block.reads[0], loop)), "index of read 1 depends on its own value")


def test_sizes():
    p = Copy()
    fails(p.with_loop(extent=0), "sizes: loop 'i' has extent 0; expected an integer from 1 up")
    fails(p.with_loop(body=()), "sizes: loop 'i' has no body")
    fails(p.with_block(iters=(Iter(p.vi, 0),)), "axis vi has extent 0")
    fails(p.with_block(iters=(Iter(p.vi, 16, "odd"),)), "axis vi has kind 'odd'")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float8"}, "buffers: A has dtype 'float8'; expected one of float16"),
        ({"shape": (-1,)}, "buffers: A has shape (-1,); expected integers from 1 up"),
        ({"scope": "moon"}, "buffers: A has scope 'moon'; expected one of global"),
    ],
)
def test_buffers(change, message):
    p = Copy()
    p.A = replace(p.A, **change)
    fails(p.with_block(reads=(Access(p.A, (of(p.vi),)),)), message)


def test_buffers_are_declared_once():
    p = Copy()
    fails(p.func(params=(p.A, p.B, p.A)), "buffers: A is declared 2 times")


def test_names_and_ranks():
    p, q = Copy(), Copy()
    again = replace(q.loop, body=(replace(q.block, writes=(Access(p.B, (of(q.vi),)),)),))
    text = fails(p.func(p.loop, again, params=(p.A, p.B, q.A)), "another block is named 'copy'")
    assert text.startswith("main breaks a rule of the loop IR\nnames: ")
    two = (of(p.vi), of(p.vi))
    fails(
        p.with_block(reads=(Access(p.A, two),)),
        "names: block 'copy' gives 2 indices to A, which has 1 dimensions",
    )


# -- faults of meaning


def test_scopes():
    p, w = Copy(), Var("w")
    fails(
        p.with_block(bindings=(of(w),)), "scopes: ", "the binding of vi uses w, which is not a loop"
    )
    fails(p.with_block(predicates=(Predicate(of(w), 3),)), "a predicate uses w")
    fails(
        p.with_block(reads=(Access(p.A, (of(p.i),)),)),
        "an index of A uses i, which is not an axis of the block",
    )
    fails(p.with_block(body=(ex.cast(w, "float32"),)), "the body uses w")
    fails(p.func(For(p.i, 16, (p.loop,))), "loop variable i belongs to two loops")
    fails(p.with_block(iters=(Iter(p.i, 16),)), "axes must have variables of their own")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (Call("add", (Slot(0, "float32"), Const(1, "int32")), "float32"), "different dtypes"),
        (Slot(0, "float64"), "slot 0 has dtype float64, its buffer float32"),
        (Call("lt", (Slot(0, "float32"), Slot(0, "float32")), "float32"), "expected bool"),
        (Call("exp", (Const(1, "int32"),), "int32"), "exp is not defined on int32"),
        (Call("cast", (Slot(0, "float32"),), "int7"), "cast to the unknown dtype 'int7'"),
        (ex.cast(Slot(0, "float32"), "int8"), "writes int8 to B, which holds float32"),
    ],
)
def test_types(body, message):
    fails(Copy().with_block(body=(body,)), "types: block 'copy'", message)


def test_types_of_indices():
    p = Copy()
    index = ex.cast(p.vi, "int32")
    fails(p.with_block(reads=(Access(p.A, (index,)),)), "an index of A has dtype int32")


def test_types_of_reducers():
    p, a, b, c = Copy(), Var("a", "float32"), Var("b", "float32"), Var("c", "float32")
    zero, one = Const(0.0, "float32"), Const(0.0, "float64")
    fails(p.with_block(reducer=Reducer("r", (a,), (b,), (a + c,), (zero,))), "reducer 'r' uses c")
    fails(p.with_block(reducer=Reducer("r", (a,), (b,), (a + b,), (c,))), "identity of reducer 'r'")
    fails(
        p.with_block(reducer=Reducer("r", (a,), (b,), (a + b,), (one,))),
        "reducer 'r' computes float32, float64 for B, which holds float32",
    )
    slot = Slot(0, "float32")
    fails(p.with_block(reducer=Reducer("r", (a,), (b,), (a + slot,), (zero,))), "reads a buffer")


def test_the_table_names_every_rule_once():
    names = [rule.name for group in RULES for rule in group]
    assert len(names) == len(set(names))
    assert all(rule.says and rule.check.__doc__ for group in RULES for rule in group)

"""Two spellings of one computation give one space: the same sketches, by what they compute."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import ops, te
from autosched.schedule import Schedule
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Space
from autosched.sketch.spelling import canonicalise
from autosched.target import Target
from autosched.tir import expr as ex
from autosched.tir.canonical import program_hash
from autosched.tir.expr import Call, Expr, Slot
from autosched.tir.nodes import Block, For, Node, PrimFunc

CPU = Target("llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu -num-cores=4")
GPU = Target("cuda -arch=sm_80")
SYMMETRIC = {"add", "mul", "min", "max", "and", "or", "eq", "ne"}


def text(e: Expr, block: Block) -> str:
    """An expression as text that sorts operands."""
    if isinstance(e, Slot):
        access = block.reads[e.index]
        return f"{access.buffer.name}{access.indices}"
    if isinstance(e, Call):
        return f"{e.op}({', '.join(text(a, block) for a in e.args)})"
    return repr(e)


def ordered(e: Expr, block: Block) -> Expr:
    """Operands of symmetric operations in one order, and comparisons one way round."""
    if not isinstance(e, Call):
        return e
    args = [ordered(a, block) for a in e.args]
    if e.op in ("ge", "gt"):
        return Call({"ge": "le", "gt": "lt"}[e.op], tuple(reversed(args)), e.dtype)
    if e.op == "and":
        parts = [a.args if isinstance(a, Call) and a.op == "and" else (a,) for a in args]
        args = [x for part in parts for x in part]
    if e.op in SYMMETRIC:
        args.sort(key=lambda a: text(a, block))
    return Call(e.op, tuple(args), e.dtype)


def plain(node: Node, around: tuple[For, ...] = ()) -> Node:
    """A program that differs from another only by the order of operands, of reads, and of the
    reduction axes in a block's list, in one form."""
    if isinstance(node, For):
        return replace(node, body=tuple(plain(n, (*around, node)) for n in node.body))
    assert isinstance(node, Block)
    loops = [loop.var for loop in around]
    both = sorted(
        zip(node.iters, node.bindings, strict=True),
        key=lambda p: (
            (0, 0)
            if p[0].kind != "reduce"
            else (1, min((n for n, v in enumerate(loops) if p[1].uses((v,))), default=-1))
        ),
    )
    body = [ordered(e, node) for e in node.body]
    used = [x.index for e in body for x in ex.walk(e) if isinstance(x, Slot)]
    order = list(dict.fromkeys([*used, *range(len(node.reads))]))
    place = {old: new for new, old in enumerate(order)}

    def renumbered(e: Expr) -> Expr | None:
        return Slot(place[e.index], e.dtype) if isinstance(e, Slot) else None

    return replace(
        node,
        iters=tuple(i for i, _ in both),
        bindings=tuple(b for _, b in both),
        reads=tuple(node.reads[n] for n in order),
        body=tuple(ex.rewrite(e, renumbered) for e in body),
    )


def sketches(func: PrimFunc, target: Target) -> tuple[Space, set[str]]:
    """The space, and a hash of each sketch's program with its default decisions."""
    space = generate_space(func, target)
    found = set()
    for n, variant in enumerate(space.variants):
        values = {k: v for s in variant.decisions for k, v in zip(s.names, s.default, strict=True)}
        made = space.schedule(n, values).func
        found.add(program_hash(replace(made, body=tuple(map(plain, made.body)))))
    return space, found


def P(name: str, *shape: int) -> te.Tensor:
    return te.placeholder(shape, name=name)


def R(*extents: int) -> list[te.IterVar]:
    return [te.reduce_axis((0, n), name=f"r{k}") for k, n in enumerate(extents)]


def product(a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...], spec: str) -> Any:
    """A contraction as einsum spells it, and turned round: factors and reductions the other way."""
    (left, right), result = spec.split("->")[0].split(","), spec.split("->")[1]
    extent = dict(zip(left + right, a + b, strict=True))
    summed = [c for c in dict.fromkeys(left + right) if c not in result]

    def make(second: bool) -> list[te.Tensor]:
        A, B = P("A", *a), P("B", *b)
        axes = {c: te.reduce_axis((0, extent[c]), name=c) for c in summed}

        def element(*at: Any) -> Any:
            of = dict(zip(result, at, strict=True)) | axes
            x, y = A(*(of[c] for c in left)), B(*(of[c] for c in right))
            order = [axes[c] for c in (summed[::-1] if second else summed)]
            return te.sum(y * x if second else x * y, axis=order)

        return [A, B, te.compute(out, element, name="C")]

    return make


def product_in_a_stage(second: bool) -> list[te.Tensor]:
    A, B, (k,) = P("A", 64, 32), P("B", 32, 48), R(32)
    if not second:
        C = te.compute((64, 48), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    else:
        T = te.compute((64, 48, 32), lambda i, j, k: A[i, k] * B[k, j], name="T")
        C = te.compute((64, 48), lambda y, x: te.sum(T[y, x, k], axis=k), name="C")
    return [A, B, C]


def window(
    data: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...], channels_last: bool
) -> Any:
    """A convolution of one to three dimensions, its reduction axes in data order or turned."""

    def make(second: bool) -> list[te.Tensor]:
        X, W = P("X", *data), P("W", *weight)
        taps = R(*(weight[:-2] if channels_last else weight[2:]))
        (c,) = (te.reduce_axis((0, weight[-2] if channels_last else weight[1]), name="rc"),)
        order = [*taps, c] if channels_last else [c, *taps]

        def element(n: Any, *at: Any) -> Any:
            places, o = (at[:-1], at[-1]) if channels_last else (at[1:], at[0])
            moved = [p + r for p, r in zip(places, taps, strict=True)]
            x = X(n, *moved, c) if channels_last else X(n, c, *moved)
            w = W(*taps, c, o) if channels_last else W(o, c, *taps)
            return te.sum(w * x if second else x * w, axis=order[::-1] if second else order)

        return [X, W, te.compute(out, element, name="C")]

    return make


def padded(second: bool) -> list[te.Tensor]:
    """A padded convolution; second: conditions, factors and axes the other way."""
    X, W, (rh, rw, rc) = P("X", 1, 12, 12, 8), P("W", 3, 3, 8, 16), R(3, 3, 8)

    def pad(n: Any, h: Any, w: Any, c: Any) -> Any:
        conditions = [h >= 1, h < 13, w >= 1, w < 13]
        return te.if_then_else(te.all(*conditions), X[n, h - 1, w - 1, c], 0.0)

    Y = te.compute((1, 14, 14, 8), pad, name="pad")

    def element(n: Any, h: Any, w: Any, c: Any) -> Any:
        x, y = Y[n, h + rh, w + rw, rc], W[rh, rw, rc, c]
        if second:
            return te.sum(y * x, axis=[rc, rw, rh])
        return te.sum(x * y, axis=[rh, rw, rc])

    return [X, W, te.compute((1, 12, 12, 16), element, name="C")]


def epilogue(second: bool) -> list[te.Tensor]:
    A, B, b, (k,) = P("A", 64, 32), P("B", 32, 48), P("b", 48), R(32)
    C = te.compute((64, 48), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    if second:
        D = te.compute((64, 48), lambda y, x: te.max(0.0, b[x] + C[y, x]), name="D")
    else:
        D = te.compute((64, 48), lambda i, j: te.max(C[i, j] + b[j], 0.0), name="D")
    return [A, B, b, D]


def whole(second: bool) -> list[te.Tensor]:
    """Elements one by one, and whole tensors."""
    A, B, (k,) = P("A", 64, 32), P("B", 32, 48), R(32)
    C = te.compute((64, 48), lambda i, j: te.sum(A[i][k] * B[k][j], axis=k), name="C")
    if second:
        return [A, B, te.tanh(0.5 * C)]
    return [A, B, te.compute((64, 48), lambda i, j: te.tanh(C[i, j] * 0.5), name="tanh")]


def depthwise(second: bool) -> list[te.Tensor]:
    X, W, (rh, rw) = P("X", 1, 16, 16, 8), P("W", 3, 3, 8), R(3, 3)

    def element(n: Any, h: Any, w: Any, c: Any) -> Any:
        x, y = X[n, h + rh, w + rw, c], W[rh, rw, c]
        return te.sum(y * x, axis=[rw, rh]) if second else te.sum(x * y, axis=[rh, rw])

    return [X, W, te.compute((1, 14, 14, 8), element, name="C")]


def reduced(extents: tuple[int, ...], kept: int, reducer: Any) -> Any:
    """A reduction of the first axes of a tensor, in either order."""

    def make(second: bool) -> list[te.Tensor]:
        A, axes = P("A", *extents), R(*extents[:kept])

        def element(*at: Any) -> Any:
            inner = at if len(extents) > kept else ()
            return reducer(A(*axes, *inner), axis=axes[::-1] if second else axes)

        return [A, te.compute(extents[kept:] or (1,), element, name="C")]

    return make


def pool(second: bool) -> list[te.Tensor]:
    X, (rh, rw) = P("X", 1, 16, 16, 8), R(2, 2)
    return [
        X,
        te.compute(
            (1, 8, 8, 8),
            lambda n, h, w, c: te.max(
                X[n, (2 * h if second else h * 2) + rh, w * 2 + rw, c],
                axis=[rw, rh] if second else [rh, rw],
            ),
            name="C",
        ),
    ]


def rows(second: bool) -> list[te.Tensor]:
    X, (k, r) = P("X", 64, 128), R(128, 128)
    m = te.compute((64,), lambda i: te.max(X[i, k], axis=k), name="m")
    e = te.compute((64, 128), lambda i, j: te.exp(X[i, j] - m[i]), name="e")
    s = te.compute((64,), lambda i: te.sum(e[i, r], axis=r), name="s")
    if second:
        return [X, te.compute((64, 128), lambda y, x: (1.0 / s[y]) * e[y, x], name="o")]
    return [X, te.compute((64, 128), lambda i, j: e[i, j] * (1.0 / s[i]), name="o")]


WORKLOADS: dict[str, Callable[[bool], list[te.Tensor]]] = {
    "matmul": product((64, 32), (32, 48), (64, 48), "ik,kj->ij"),
    "transposed matmul": product((64, 32), (48, 32), (64, 48), "ik,jk->ij"),
    "batch matmul": product((4, 16, 32), (4, 32, 48), (4, 16, 48), "bik,bkj->bij"),
    "contraction of two": product((16, 8, 12), (8, 12, 24), (16, 24), "ikl,klj->ij"),
    "attention": product((32, 4, 16), (32, 4, 16), (4, 32, 32), "ihd,jhd->hij"),
    "matrix and vector": product((512, 256), (256,), (512,), "ik,k->i"),
    "whole tensors": whole,
    "product in a stage": product_in_a_stage,
    "epilogue": epilogue,
    "conv1d": window((1, 34, 8), (3, 8, 16), (1, 32, 16), True),
    "conv2d": window((1, 14, 14, 8), (3, 3, 8, 16), (1, 12, 12, 16), True),
    "conv2d channels first": window((1, 8, 14, 14), (16, 8, 3, 3), (1, 16, 12, 12), False),
    "conv3d": window((1, 6, 10, 10, 4), (3, 3, 3, 4, 8), (1, 4, 8, 8, 8), True),
    "padded conv2d": padded,
    "depthwise": depthwise,
    "max pool": pool,
    "norm": reduced((64, 64), 2, te.sum),
    "sums of columns": reduced((32, 16, 64), 2, te.sum),
    "minimum of a cube": reduced((16, 8, 32), 3, te.min),
    "softmax": rows,
}


QUICK = ("matmul", "contraction of two", "product in a stage", "padded conv2d", "sums of columns")


@pytest.mark.parametrize(
    "names", [QUICK, pytest.param(tuple(WORKLOADS), marks=pytest.mark.long)], ids=["quick", "all"]
)
def test_two_spellings_have_one_space(names: tuple[str, ...]) -> None:
    assert len(WORKLOADS) == 20
    for name in names:
        make = WORKLOADS[name]
        (first, found), (second, other) = (
            sketches(te.create_prim_func(make(turned)), CPU) for turned in (False, True)
        )
        assert len(first.variants) == len(second.variants), name
        assert found == other, name


@pytest.mark.long
def test_two_spellings_have_one_space_on_gpus() -> None:
    """The same decisions with the same values; only the copies of two operands to shared memory
    stand in the order of the factors."""
    for name, make in WORKLOADS.items():
        first, second = (
            generate_space(te.create_prim_func(make(turned)), GPU) for turned in (False, True)
        )
        sets = [
            sorted(sorted((kept(s.names), s.default) for s in v.decisions) for v in space.variants)
            for space in (first, second)
        ]
        assert sets[0] == sets[1], name


def kept(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of decisions without those of axes, which a user chooses."""
    return tuple(re.sub(r"\.v[a-z0-9]+\.", ".axis.", n) for n in names)


def test_the_library_is_taken_as_it_is_written() -> None:
    """No step is made, so that traces recorded before mean what they meant."""
    for func in (
        ops.conv2d(8, 8, 8, 8, 3, 1, 1),
        ops.conv3d(4, 8, 8, 4, 8, 3, 1, 1),
        ops.conv2d_capsule(8, 8, 4, 4, 3, 1, 1, 4),
        ops.norm(16, 16),
        ops.winograd_conv2d(8, 8, 8, 8, 1),
        ops.max_pool2d(8, 8, 8, 2, 2, 0),
    ):
        schedule = Schedule(te.create_prim_func(func))
        canonicalise(schedule)
        assert not schedule.trace.steps


@pytest.mark.long
def test_a_turned_convolution_computes_the_same() -> None:
    """The reordered axes are replayed on the program as it was written."""
    func = te.create_prim_func(padded(True))
    space = generate_space(func, CPU)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(b.shape, np.float32) for b in func.params[:2])
    wanted, found = np.zeros((1, 12, 12, 16), "float32"), np.zeros((1, 12, 12, 16), "float32")
    at.build(func)(x, w, wanted)
    for n in (0, len(space.variants) - 1):
        decided = space.variants[n].decisions
        values = {k: v for s in decided for k, v in zip(s.names, s.default, strict=True)}
        at.build(space.schedule(n, values))(x, w, found)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)

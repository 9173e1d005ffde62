"""Two spellings of one computation give one space: the same sketches, by what they compute."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import autosched as at
from autosched import ops, te
from autosched.schedule import Schedule
from autosched.search.analysis import analyse
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Space
from autosched.sketch.spelling import canonicalise
from autosched.target import Target
from autosched.tir import expr as ex
from autosched.tir.canonical import program_hash
from autosched.tir.expr import Call, Expr, Slot
from autosched.tir.nodes import Block, For, Node, PrimFunc
from cost_model.features import store_features

CPU = Target("llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu -num-cores=4")
GPU = Target("cuda -arch=sm_80")
BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


def _pairs() -> dict[str, Callable[[bool], list[te.Tensor]]]:
    """Those that the benchmark times. Its folder comes last: it has a `records` of its own."""
    sys.path.append(BENCHMARKS)
    try:
        found: dict[str, Callable[[bool], list[te.Tensor]]] = import_module("spellings").PAIRS
    finally:
        sys.path.remove(BENCHMARKS)
    return found


PAIRS = _pairs()
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


QUICK = ("matmul", "contraction of two", "product in a stage", "padded conv2d", "sums of columns")


@pytest.mark.parametrize(
    "names", [QUICK, pytest.param(tuple(PAIRS), marks=pytest.mark.long)], ids=["quick", "all"]
)
def test_two_spellings_have_one_space(names: tuple[str, ...]) -> None:
    assert len(PAIRS) == 20
    for name in names:
        make = PAIRS[name]
        (first, found), (second, other) = (
            sketches(te.create_prim_func(make(turned)), CPU) for turned in (False, True)
        )
        assert len(first.variants) == len(second.variants), name
        assert found == other, name


@pytest.mark.long
def test_two_spellings_have_one_space_on_gpus() -> None:
    """The same decisions with the same values; only the copies of two operands to shared memory
    stand in the order of the factors."""
    for name, make in PAIRS.items():
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
    return tuple(re.sub(r"\.v[a-z0-9_]+\.", ".axis.", n) for n in names)


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
    func = te.create_prim_func(PAIRS["padded conv2d"](True))
    space = generate_space(func, CPU)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(b.shape, np.float32) for b in func.params[:2])
    wanted, found = (np.zeros(func.params[2].shape, "float32") for _ in range(2))
    at.build(func)(x, w, wanted)
    for n in (0, len(space.variants) - 1):
        decided = space.variants[n].decisions
        values = {k: v for s in decided for k, v in zip(s.names, s.default, strict=True)}
        at.build(space.schedule(n, values))(x, w, found)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


PROPOSED = ("matrix and vector", "contraction of two", "softmax")


@pytest.mark.parametrize(
    "name", [n if n in PROPOSED else pytest.param(n, marks=pytest.mark.long) for n in PAIRS]
)
def test_two_spellings_have_the_same_features(name: str) -> None:
    """What the cost model sees of a candidate does not hang on the order of factors, so that one
    seed proposes the same candidates for both spellings."""
    found = []
    for turned in (False, True):
        space = generate_space(te.create_prim_func(PAIRS[name](turned)), CPU)
        drawn = space.sample(np.random.default_rng(0), 8)
        candidates = [space.candidate(drawn, row) for row in range(len(drawn))]
        programs = [space.schedule(*c).func for c in candidates]
        found.append([store_features(analyse(p, CPU)) for p in programs])
    np.testing.assert_equal(*found)

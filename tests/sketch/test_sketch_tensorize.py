"""Sketches whose innermost loops an intrinsic does: from the computation alone, for any size."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autosched import graph, te
from autosched.codegen.build import build_artifact
from autosched.codegen.llvm.listing import listing
from autosched.graph import nn, op, passes
from autosched.graph.lowering import lower as lower_group
from autosched.lowering.lower import lower
from autosched.runtime.function import Function
from autosched.search.evaluate import legal
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Population
from autosched.target import Target
from autosched.tir.interp import run as interpret
from autosched.tir.nodes import PrimFunc, sites

HOST = Target("llvm -num-cores=2")
LONG = pytest.mark.long
BYTES = ("uint8", "int8", "int32")
HAS_PAIRS = "avx2" in HOST.features
KINDS = (("uint8", "int8"), ("int8", "int8"), ("uint8", "int16"), ("int16", "int16"))
runs = pytest.mark.skipif(not HAS_PAIRS, reason="the processor has no AVX2")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def product_of(
    left: str, right: str, n: int, m: int, k: int, total: str = "int32", fused: bool = True
) -> PrimFunc:
    """A @ B, and a bias."""
    a = te.placeholder((n, k), name="A", dtype=left)
    b = te.placeholder((k, m), name="B", dtype=right)
    bias = te.placeholder((m,), name="bias", dtype=total)
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (n, m), lambda i, j: te.sum(a[i, r].astype(total) * b[r, j].astype(total), axis=r), name="C"
    )
    if not fused:
        return te.create_prim_func([a, b, c])
    return te.create_prim_func(
        [a, b, bias, te.compute((n, m), lambda i, j: c[i, j] + bias[j], name="out")]
    )


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    # Extremes are frequent: sums that saturate somewhere show.
    extremes = rng.choice(np.array([low, high], dtype), shape)
    return np.where(rng.random(shape) < 0.3, extremes, rng.integers(low, high + 1, shape)).astype(
        dtype
    )


def run(func: PrimFunc, target: Target, *arrays) -> None:
    Function(build_artifact(func, target, "search"))(*arrays)


def check_product(func: PrimFunc, original: PrimFunc, rng: np.random.Generator) -> None:
    """The scheduled product against exact integer arithmetic."""
    shapes = [(tuple(int(n) for n in p.shape), p.dtype) for p in original.params]
    inputs = [numbers(rng, d, s) for s, d in shapes[:2]]
    inputs += [rng.integers(-99, 99, s).astype(d) for s, d in shapes[2:-1]]
    out = np.full(shapes[-1][0], -77, "int32")
    run(func, HOST, *inputs, out)
    want = inputs[0].astype("i8") @ inputs[1].astype("i8")
    want = want + (inputs[2] if len(inputs) > 2 else 0)
    np.testing.assert_array_equal(out, want.astype("int32"), err_msg=str(shapes))


def check_sizes(sizes, rng) -> None:
    """The default schedule of each dtype at each size, with and without a consumer in turns."""
    for n, (size, kind) in enumerate(product(sizes, KINDS)):
        func = product_of(*kind, *size, fused=n % 4 > 0)
        schedule = default_schedule(func, HOST)
        assert "tensorize" in schedule.mod.script(), size
        check_product(schedule.func, func, rng)


@runs
def test_products_of_odd_sizes(rng):
    check_sizes([(3, 7, 5), (1, 70, 33)], rng)


@runs
@pytest.mark.long
def test_products_of_any_size(rng):
    """Sizes from 1 to 70 in each dimension, drawn."""
    sizes = [(2, 1, 70), (8, 8, 4), (70, 17, 2), *map(tuple, rng.integers(2, 71, (17, 3)))]
    check_sizes([tuple(map(int, s)) for s in sizes], rng)


def candidates(space, count: int):
    """Legal candidates of the variants with an intrinsic, drawn, mutated and crossed."""
    rng = np.random.default_rng(1)
    drawn = space.sample(rng, 256)
    every = Population.concat([drawn, space.mutate(drawn, rng, 0.3)])
    every = every.take(every.unique())
    every = every.take(np.flatnonzero(legal(space, every)))
    rows = [n for n, v in enumerate(every.variant) if "dot_" in space.variants[v].name]
    return every.take(np.array(rows[:count]))


def apply(space, population, row: int) -> PrimFunc:
    variant, values = space.candidate(population, row)
    return space.schedule(variant, values).func


@runs
def test_random_candidates_of_a_product(rng):
    func = product_of("uint8", "int8", 37, 45, 59)
    space = generate_space(func, HOST)
    found = candidates(space, 6)
    assert len(found) == 6
    for n in range(6):
        check_product(apply(space, found, n), func, rng)


def convolution(size: int, ci: int, co: int, window: int, **attrs):
    """The group of a quantised convolution as a loop function of the graph level."""
    rng = np.random.default_rng(co)
    x = graph.var("x", (1, ci, size, size), "uint8")
    w = graph.const(rng.integers(-128, 128, (co, ci, window, window)).astype("i1"))
    y = op.autosched_conv_sums(x, w, graph.const(np.array(7, "u1")), **attrs)
    module = graph.module(main=graph.function([x], op.relu(y)))
    ready = passes.layout(passes.fuse(module))
    groups = [f for f in ready.graphs.values() if f.is_primitive]
    (group,) = [f for f in groups if "conv_sums" in f.script()]  # a copy may turn its result
    return module, lower_group(group)


@runs
@pytest.mark.parametrize(
    ("sizes", "attrs"),
    [
        ((9, 3, 17, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}),
        ((7, 16, 16, 1), {"strides": (2, 3)}),
        pytest.param((12, 8, 9, 2), {"dilations": (3, 2)}, marks=LONG),
        pytest.param((6, 13, 30, 1), {}, marks=LONG),
    ],
)
def test_convolutions(sizes, attrs, rng):
    module, func = convolution(*sizes, **attrs)
    schedule = default_schedule(func, HOST)
    assert "_u8s8s32_" in schedule.mod.script()
    model = graph.build(module)
    size, ci = sizes[:2]
    x = numbers(rng, "uint8", (1, ci, size, size))
    (found,) = model(x)
    np.testing.assert_array_equal(found, graph.evaluate(module, "main", x))


@pytest.mark.parametrize(("size", "panels"), [(7, True), (14, True), (28, False)])
def test_few_rows_pass_over_one_panel_after_the_other(size, panels):
    """So that the next one can be fetched meanwhile; more rows read each panel often enough."""
    _, func = convolution(size, 64, 512, 3, pads=(1, 1, 1, 1))
    schedule = default_schedule(func, Target("llvm -mcpu=znver4 -num-cores=1"))
    (site,) = [s for s in sites(schedule.func) if s.block.name == "conv"]
    order = [x.var.name for x in site.loops if int(x.extent) > 1]
    assert (order.index("c_0_2") < order.index("y_2")) == panels


def test_groups_and_depthwise_convolutions_are_none(rng):
    x = graph.var("x", (1, 8, 9, 9), "uint8")
    w = graph.const(rng.integers(-128, 128, (8, 1, 3, 3)).astype("i1"))
    module = graph.module(main=graph.function([x], op.autosched_conv_sums(x, w, group=8)))
    (group,) = [f for f in passes.fuse(module).graphs.values() if f.is_primitive]
    assert "tensorize" not in default_schedule(lower_group(group), HOST).mod.script()
    dense = graph.module(main=graph.function([v := graph.var("v", (4, 8))], nn.dense(v, v)))
    (group,) = [f for f in passes.fuse(dense).graphs.values() if f.is_primitive]
    assert "tensorize" not in default_schedule(lower_group(group), HOST).mod.script()


@pytest.mark.parametrize(
    ("cpu", "instruction", "kind"),
    [
        ("znver4", "vpdpbusd", BYTES),
        pytest.param("sierraforest", "vpdpbusd", ("uint8", "int8", "int32"), marks=LONG),
        ("cooperlake", "vdpbf16ps", ("bfloat16", "bfloat16", "float32")),
        pytest.param("haswell", "vpmaddwd", ("int8", "int8", "int32"), marks=LONG),
    ],
)
def test_the_instruction_of_each_target(cpu, instruction, kind):
    """Code for processors that are not here is read, and its program interpreted."""
    target = Target(f"llvm -mcpu={cpu} -num-cores=2")
    *sides, total = kind
    func = product_of(*sides, 37, 53, 21, total)
    schedule = default_schedule(func, target)
    lines = listing(schedule.func, target).assembly
    assert sum(instruction in line.text for line in lines) >= 8
    # Registers are not spilled between the products: none of them reads the stack.
    assert not [x.text for x in lines if instruction in x.text and "(%rsp)" in x.text]
    if total == "int32":
        small = default_schedule(product_of(*sides, 3, 18, 7, total), target)
        rng = np.random.default_rng(0)
        arrays = [numbers(rng, d, s) for d, s in zip(sides, ((3, 7), (7, 18)), strict=True)]
        arrays += [np.zeros(18, "i4"), np.zeros((3, 18), "i4")]
        interpret(lower(small.func), arrays)
        want = arrays[0].astype("i8") @ arrays[1].astype("i8")
        np.testing.assert_array_equal(arrays[-1], want)


@runs
def test_no_sum_of_extremes_saturates():
    """All combinations of the least and the largest numbers of each operand."""
    for left, right in KINDS:
        group = 2 if right == "int16" else 4
        ends = [[np.iinfo(d).min, np.iinfo(d).max] for d in (left, right)]
        a = np.array(list(product(ends[0], repeat=group)), left)
        b = np.array(list(product(ends[1], repeat=group)), right).T.copy()
        func = product_of(left, right, len(a), b.shape[1], group, fused=False)
        out = np.zeros((len(a), b.shape[1]), "int32")
        schedule = default_schedule(func, HOST)
        assert "tensorize" in schedule.mod.script()
        run(schedule.func, HOST, a, b, out)
        # Two products of -2**15 by itself wrap around in int32, as the sums are meant to.
        np.testing.assert_array_equal(out, (a.astype("i8") @ b.astype("i8")).astype("i4"))

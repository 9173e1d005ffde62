"""Convolutions of bytes in groups whose weights lie group by group: exactly NumPy's sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.lowering import lower as lower_group
from autosched.graph.ops.alternatives import _joined
from autosched.graph.strategies import implementations
from autosched.lowering.lower import lower
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.tir.interp import run as interpret

HOST = Target("llvm -num-cores=2")
WIDE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake -num-cores=2")
"""avx512vnni and no avxvnni: vectors of 16 sums."""
NARROW = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sierraforest -num-cores=2")
"""avxvnni and no AVX-512: vectors of 8."""
BOTH = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=2")
NAME = "conv_sums.groups"
VNNI = {"avx512vnni", "avxvnni"}
ORDER = (0, 1, 2, 3)
LESS = 1000
"""What is taken off a sum behind the convolution, in one kernel with it."""


@dataclass(frozen=True)
class Case:
    """Groups, channels and filters of one, and how many become one on WIDE and on NARROW."""

    group: int
    depth: int
    each: int
    wide: int | None
    narrow: int | None
    window: tuple[int, int] = (3, 3)
    size: tuple[int, int] = (2, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    images: int = 1


CASES = (
    Case(2, 4, 16, 1, 1, size=(4, 5)),
    Case(4, 8, 8, 2, 1, images=2),
    Case(8, 4, 4, 4, 2, pads=(0, 1, 2, 0)),
    Case(3, 16, 16, 1, 1, strides=(2, 1)),
    Case(6, 2, 8, 2, 2, window=(2, 3), pads=(0, 0, 1, 1)),
    Case(4, 4, 8, 2, 1, size=(5, 5), dilations=(2, 3), pads=(2, 3, 2, 3)),
    Case(8, 3, 4, None, None, window=(1, 1), pads=(0, 0, 0, 0)),
    Case(4, 1, 16, None, None),
    Case(8, 4, 3, None, None),
    Case(3, 4, 8, None, 1, strides=(2, 2)),
    Case(3, 6, 16, None, None),
    Case(8, 5, 12, 4, 4, window=(3, 2), size=(2, 2), dilations=(2, 1), pads=(3, 1, 4, 0)),
    Case(8, 5, 24, 4, 4, window=(3, 1), size=(1, 4), strides=(1, 2), pads=(2, 0, 0, 0)),
    Case(8, 16, 2, None, 4, window=(1, 2), pads=(0, 1, 0, 0)),
    Case(2, 8, 112, 1, 1, size=(3, 4)),
    Case(2, 4, 80, 1, 1, size=(4, 4)),
    Case(2, 32, 32, 1, 1, size=(5, 5)),
    Case(16, 3, 48, None, None, size=(2, 2)),
    Case(8, 64, 4, None, 2, window=(1, 1), pads=(0, 0, 0, 0)),
)
"""All that `_joined` gives, with a rest of columns, windows beyond the image on either side."""


def joined(case: Case, target: Target) -> int | None:
    return _joined(case.group, case.each, case.depth, ("uint8", "int8"), target)


def sums(case: Case, x: np.ndarray, w: np.ndarray, fill: int) -> np.ndarray:
    """Each group's sums in int64."""
    top, left, bottom, right = case.pads
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    wide = np.pad(x.astype(np.int64), around, constant_values=fill)
    out = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(wide.shape[2:], case.window, case.dilations, case.strides,
                              strict=True)
    ]  # fmt: skip
    made = np.zeros((case.images, case.group, case.each, *out), np.int64)
    parts = wide.reshape(case.images, case.group, case.depth, *wide.shape[2:])
    weights = w.astype(np.int64).reshape(case.group, case.each, case.depth, *case.window)
    for i in range(case.window[0]):
        for j in range(case.window[1]):
            ys, xs = (
                slice(a * d, a * d + (n - 1) * s + 1, s)
                for a, d, n, s in zip((i, j), case.dilations, out, case.strides, strict=True)
            )
            made += np.einsum("ngchw,gfc->ngfhw", parts[..., ys, xs], weights[..., i, j])
    return made.reshape(case.images, -1, *out)


def given(case: Case, seed: int = 0, dtype: str = "uint8", fused: bool = True):
    """A module of the sums, its input, its weight and the fill; many numbers are extreme. `fused`:
    a number is taken off each sum, and what reads the results takes channels last."""
    rng = np.random.default_rng(seed)
    shape = (case.images, case.group * case.depth, *case.size)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, shape).astype(dtype)
    w = rng.integers(-128, 128, (case.group * case.each, case.depth, *case.window)).astype("int8")
    x[rng.random(x.shape) < 0.3] = info.max
    w[rng.random(w.shape) < 0.3] = -128
    fill = int(rng.integers(1, 100))
    var = graph.var("x", shape, dtype)
    made = op.autosched_conv_sums(
        var, w, graph.const(np.array(fill, dtype)), group=case.group, strides=case.strides,
        dilations=case.dilations, pads=case.pads,
    )  # fmt: skip
    if fused:
        made = op.max_pool(op.sub(made, graph.const(np.int32(LESS))), kernel_shape=(1, 1))
    return graph.module(main=graph.function([var], made)), x, w, fill


def ways(module, target: Target):
    """The primitive function of the sums, and its implementations by name."""
    ready = passes.layout(passes.fuse(module))
    (function,) = [f for f in ready.graphs.values() if f.is_primitive and "sums" in f.name]
    return function, {i.name: i for i in implementations(function, target)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_how_many_groups_become_one(case: Case) -> None:
    for target, n in ((WIDE, case.wide), (NARROW, case.narrow)):
        assert joined(case, target) == n
        _, found = ways(given(case)[0], target)
        assert (NAME in found) == (n is not None)
    # Vectors of 16 where they fit, else of 8.
    n = case.narrow if case.wide is None else case.wide
    assert joined(case, BOTH) == n


def test_other_operands_are_no_groups_of_bytes() -> None:
    module = given(CASES[0], dtype="int8")[0]
    assert NAME not in ways(module, WIDE)[1]
    for cpu in ("haswell", "skylake-avx512"):
        target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
        assert NAME not in ways(given(CASES[0])[0], target)[1]


def _interpreted() -> list[Any]:
    """The cases that vectors have; those of many products take the interpreter long."""
    found = [c for c in CASES if c.wide or c.narrow]
    return [
        pytest.param(c, marks=pytest.mark.long if c.depth * c.each > 256 or c.group > 4 else ())
        for c in found
    ]


@pytest.mark.parametrize("fused", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("case", _interpreted(), ids=str)
def test_scheduled_programs_are_exact(case: Case, fused: bool) -> None:
    """The program for a target that need not be here, interpreted."""
    module, x, w, fill = given(case, fused=fused)
    want = sums(case, x, w, fill) - (LESS if fused else 0)
    for target in [t for t, n in ((WIDE, case.wide), (NARROW, case.narrow)) if n is not None]:
        function, found = ways(module, target)
        how = found[NAME]
        schedule = default_schedule(lower_group(function, how), target)
        # Without pads the model's own input is read, whose channels come first.
        if fused and any(case.pads):
            assert "_u8s8s32_" in schedule.mod.script()
        assert list(how.prepare) == [1]
        layouts = [v.type.layout or ORDER for v in (function.params[0], *function.body.results)]
        assert (layouts[1] == ORDER) != fused
        out = np.full([want.shape[n] for n in layouts[1]], -77, "int32")
        given_x = np.ascontiguousarray(x.transpose(layouts[0]))
        interpret(lower(schedule.func), [given_x, how.prepare[1](w), out])
        np.testing.assert_array_equal(out, want.transpose(layouts[1]))


@pytest.mark.sampled(3)
@pytest.mark.skipif(not VNNI & HOST.features, reason="the processor multiplies no bytes")
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_programs_are_exact(case: Case, fused: bool) -> None:
    """On this machine, by whatever is taken here."""
    module, x, w, fill = given(case, seed=1, fused=fused)
    model = graph.build(module, target=HOST, threads=1)
    taken = any(k.implementation.startswith(NAME) for k in model.kernels)
    assert taken == (joined(case, HOST) is not None)
    want = sums(case, x, w, fill) - (LESS if fused else 0)
    np.testing.assert_array_equal(model(x)[0], want)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cpu", ["cascadelake", "icelake-server", "znver4", "alderlake", "haswell"])
def test_direct_sums_of_other_processors(cpu: str) -> None:
    """Sums of 16 products at once, which LLVM may make instructions of, where they run here."""
    target = Target(f"llvm -mcpu={cpu} -num-cores=2")
    if target.missing_here():
        pytest.skip(f"this machine does not run code for {cpu}")
    for case in (
        Case(11, 16, 3, None, None, window=(1, 1), size=(5, 5), pads=(0, 0, 0, 0)),
        Case(3, 32, 5, None, None, window=(1, 1), size=(9, 20), pads=(0, 0, 0, 0)),
    ):
        for fused in (False, True):
            module, x, w, fill = given(case, fused=fused)
            model = graph.build(module, target=target, threads=1)
            want = sums(case, x, w, fill) - (LESS if fused else 0)
            np.testing.assert_array_equal(model(x)[0], want)


@pytest.mark.parametrize(("channels", "group"), [(18, 3), (6, 2), (10, 5)])
def test_shuffled_channels_in_no_whole_group_of_terms(channels: int, group: int) -> None:
    """What shuffles them is written through two axes for one, and cannot be computed by the copy
    that adds terms."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (1, channels, 7, 6)).astype("u1")
    w = rng.integers(-100, 100, (8, channels, 3, 3)).astype("i1")
    var = graph.var("x", x.shape, "uint8")
    parts = op.reshape(var, graph.const(np.array([1, group, channels // group, 7, 6])))
    turned = op.transpose(parts, perm=[0, 2, 1, 3, 4])
    shuffled = op.reshape(turned, graph.const(np.array(x.shape)))
    made = op.autosched_conv_sums(shuffled, graph.const(w), pads=[1] * 4, dilations=[1, 2])
    module = graph.module(main=graph.function([var], op.add(made, graph.const(np.int32(1)))))
    want = graph.evaluate(module, "main", x)
    np.testing.assert_array_equal(graph.build(module, target=HOST)(x)[0], want)

"""Tiles that overhang, and padding that is copied: no condition where it costs."""

from __future__ import annotations

import re
from typing import Any

from gpu_run import check, cuda, opencl, source

from autosched.codegen.cuda import compile_cuda
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Space
from autosched.target import Target
from autosched.workloads import prim_func_of


def spaced(name: str, args: tuple[Any, ...], target: Target) -> tuple[Any, Space]:
    func = prim_func_of(name, args)
    return func, generate_space(func, target)


def variant(space: Space, ahead: bool) -> int:
    (found,) = [n for n, v in enumerate(space.variants) if v.name.endswith(".ahead") == ahead]
    return found


def values(space: Space, **some: int) -> dict[str, int]:
    """The default decisions but for those whose names end so."""
    out = dict(space.default()[1])
    for name in out:
        for end, value in some.items():
            if name.endswith(end.replace("_", ".")):
                out[name] = value
    return out


def test_sums_of_an_overhanging_tile_ask_nothing() -> None:
    plain, space = spaced("matmul", (13, 16, 10), opencl())
    chosen = values(space, vi_4=4, vi_2=2, vj_4=3, vj_2=2, vk_1=4, vk_2=2)
    func = space.schedule(0, chosen).func
    text = check(func, plain)
    lines = text.splitlines()
    (sums,) = [n for n, x in enumerate(lines) if "fma(" in x]
    around = [x for x in lines[sums - 5 : sums] if "if (" in x]
    assert not around, text
    assert re.search(r"if \([^)]*< 13", text), "stores are still asked for"


def test_an_overhanging_reduction_is_asked_for() -> None:
    """Terms that do not exist would be added."""
    plain, space = spaced("matmul", (8, 7, 8), opencl())
    chosen = values(space, vi_4=2, vi_2=2, vj_4=2, vj_2=2, vk_1=2, vk_2=2)
    check(space.schedule(0, chosen).func, plain)


def test_padding_is_copied_in_vectors() -> None:
    plain, space = spaced("conv2d", (6, 6, 4, 8, 3, 1, 1), opencl())
    func = space.schedule(variant(space, False), values(space, vrc_1=4, fetch=4)).func
    text = check(func, plain)
    assert "float4 result;" in text
    assert re.search(r"result\w* = \*\(__global const float4 \*\)&data\[", text), text


def test_padding_is_copied_while_something_is_computed() -> None:
    _, space = spaced("conv2d", (6, 6, 8, 8, 3, 1, 1), cuda())
    chosen = values(space, vrc_1=4, fetch=4)
    text = source(space.schedule(variant(space, True), chosen).func, cuda())
    assert "copy_16_where(&pad_shared[" in text
    assert compile_cuda(text, "sm_90")
    single = values(space, vrc_1=4, fetch=1)
    text = source(space.schedule(variant(space, True), single).func, cuda())
    assert "copy_4_where(&pad_shared[" in text
    assert compile_cuda(text, "sm_90")

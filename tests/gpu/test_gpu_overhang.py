"""Tiles that overhang, and padding that is copied: no condition where it costs."""

from __future__ import annotations

import re
from typing import Any

from gpu_run import check, cuda, opencl, source

from autosched.codegen.cuda import compile_cuda
from autosched.search.analysis import analyse
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


def test_an_overhanging_reduction_is_asked_for_where_it_ends() -> None:
    """Terms that do not exist would be added: in the last step alone."""
    plain, space = spaced("matmul", (8, 15, 8), opencl())
    chosen = values(space, vi_2=2, vi_4=2, vj_2=2, vj_4=2, vk_1=2, vk_2=2)
    func = space.schedule(0, chosen).func
    text = check(func, plain)
    whole, last = text[text.index("if (k_0 * 4 < 12) {") :].split("else {", 1)
    assert "fma(" in whole
    assert "if (" not in whole[1:]
    assert "if (k_0 * 4 + k_1 * 2 + k_2 < 15)" in last
    (kernel,) = analyse(func, opencl()).kernels
    assert kernel.guarded == 8 * 8 * 16 / 4, "a quarter of all points, since of four steps one ends"


def test_what_ends_with_a_vector_is_copied_and_stored_in_vectors() -> None:
    """Rows of 20 in tiles of 16: neighbours exist together."""
    plain, space = spaced("matmul", (8, 8, 20), opencl())
    chosen = values(space, vi_2=2, vi_4=2, vj_2=4, vj_4=4, vk_1=4, fetch=4)
    text = check(space.schedule(0, chosen).func, plain)
    assert re.search(r"if \([^)]*< 20\) \{\n\s*const float4 B_vec", text), text
    assert re.search(r"if \([^)]*< 20\) \{\n\s*float4 result", text), text
    plain, space = spaced("matmul", (8, 8, 21), opencl())
    assert "float4 result" not in check(space.schedule(0, chosen).func, plain)


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

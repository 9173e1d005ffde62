"""Products of warpgroups (wgmma): random candidates of random programs on the host against NumPy,
through NVRTC, and as the analysis counts them; and what is no such product."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import cuda_on_host
import numpy as np
import pytest
from cuda_on_host import run_on_host, translated
from gpu_run import check_kernels, reference, source
from tensor_core_programs import PAIRS, Case, plain, stored, sums, total_of

import autosched as at
from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.codegen.cuda_warp import warp_helper
from autosched.codegen.warp_intrinsics import KINDS, name_of
from autosched.errors import CodegenError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.search.evaluate import legal
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Space

on_host = pytest.mark.skipif(cuda_on_host.CXX is None, reason="no C++ compiler (g++)")


def hopper() -> at.Target:
    return at.Target("cuda -arch=sm_90a")


def grouped(seed: int) -> Case:
    """A product, perhaps batched, whose operands lie in rows that warpgroups read."""
    rng = random.Random(seed)
    left, right = rng.choice([("float16", "float16"), ("bfloat16", "bfloat16"), *PAIRS])
    bytes_ = "int" in left
    turned = bytes_ or rng.random() < 0.4
    rows, row = rng.randint(33, 150), 128 if bytes_ else 64
    columns = rng.randint(5, 150) if turned else 64 * rng.randint(1, 4)
    depth, batch = row * rng.randint(1, 3), rng.choice([1, 1, 2])
    k = te.reduce_axis((0, depth), name="k")
    a = te.placeholder((batch, rows, depth), name="A", dtype=left)
    shape = (batch, columns, depth) if turned else (batch, depth, columns)
    b = te.placeholder(shape, name="B", dtype=right)
    c = te.compute(
        (batch, rows, columns),
        lambda z, i, j: sums(
            a(z, i, k), b(z, j, k) if turned else b(z, k, j), dtype=total_of(left), axis=k
        ),
        name="C",
    )
    words = f"{left} {right} {batch} {rows} {columns} {depth} {'turned' * turned}"
    letters = "zik,zjk->zij" if turned else "zik,zkj->zij"
    return stored(rng, words, (a, b, c), lambda x, y: np.einsum(letters, x, y))


def by_groups(space: Space) -> list[int]:
    """The variants that warpgroups do."""
    return [n for n, v in enumerate(space.variants) if "wgmma_" in v.name]


def drawn(program: Case, seed: int) -> Schedule:
    """A random candidate of them."""
    space = generate_space(program.func, hopper())
    rng, variants = np.random.default_rng(seed), np.array(by_groups(space))
    assert len(variants), program.words
    while True:
        population = space.sample(rng, 16, variants)
        for row in np.flatnonzero(legal(space, population)):
            found = space.schedule(*space.candidate(population, int(row)))
            if check_kernels(found.func, hopper()):
                return found


def hold(seed: int, folder: Path) -> None:
    program = grouped(seed)
    schedule = drawn(program, seed)
    text = schedule.func.script()
    assert parse(text).script() == text
    inputs = program.arrays(seed)
    wanted = program.wanted(inputs)
    program.check(reference(program.func, inputs)[0], wanted)
    folder.mkdir()
    note = f"seed {seed}\n{schedule.trace.as_python()}"
    for (found,) in run_on_host(schedule.func, inputs, folder, hopper()):
        program.check(found, wanted, note)


@on_host
@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    hold(seed, tmp_path / "run")


@on_host
@pytest.mark.long
@pytest.mark.parametrize("start", range(100, 200, 10))
def test_more_random_programs(start: int, tmp_path: Path) -> None:
    for seed in range(start, start + 10):
        hold(seed, tmp_path / str(seed))


@pytest.mark.parametrize(
    "kind", ["f16f16f32", *(pytest.param(k, marks=pytest.mark.long) for k in KINDS)]
)
def test_every_instruction_compiles(kind: str) -> None:
    types = KINDS[kind]
    program = plain(128, 64, 256, types.left, types.right, turned=True)
    text = source(drawn(program, 1).func, hopper())
    assert re.search(rf"wgmma_m64n\d+k{types.terms}_{kind}\(", text)
    assert compile_cuda(text, "sm_90a")


BREAKS: dict[str, Callable[[str], str]] = {
    "a barrier": lambda text: text.replace("__syncthreads();", ";"),
    "a wait for what is fetched": lambda text: text.replace("copied_but_1();", ";"),
    "a wait for products": lambda text: text.replace("wgmma_wait_0();", ";"),
    "a swizzle": lambda text: text.replace("copy_16(&A_packed[swizzled_2(", "copy_16(&A_packed[("),
}


@on_host
@pytest.mark.parametrize("what", [None, *BREAKS])
def test_what_steps_lack_is_found(
    what: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = plain(64, 64, 448)
    space = generate_space(program.func, hopper())
    _, values = space.default()
    func = space.schedule(by_groups(space)[0], values).func
    if what is not None:
        broken = BREAKS[what]
        monkeypatch.setattr(cuda_on_host, "translated", lambda text: broken(translated(text)))
        text = translated(source(func, hopper()))
        assert broken(text) != text
    inputs = program.arrays(0)
    wanted = program.wanted(inputs)
    found = run_on_host(func, inputs, tmp_path, hopper())
    assert all(np.allclose(x, wanted, 1e-3, 1e-3) for (x,) in found) == (what is None)


@pytest.mark.parametrize("size", [72, 80, 144, 640])
def test_defaults_are_candidates(size: int) -> None:
    space = generate_space(plain(size, 8 * (size // 8), 128, turned=True).func, hopper())
    for variant in (n for n, v in enumerate(space.variants) if "mma_" in v.name):
        described = space.variants[variant]
        values = {
            n: x for s in described.decisions for n, x in zip(s.names, s.default, strict=True)
        }
        assert space.holds([(variant, values)]).all(), described.name


def test_only_hopper_has_warpgroups() -> None:
    func = plain(128, 128, 128).func
    assert by_groups(generate_space(func, hopper()))
    for arch in ("sm_80", "sm_90", "sm_100a"):
        assert not by_groups(generate_space(func, at.Target(f"cuda -arch={arch}")))
    schedule = drawn(plain(128, 128, 128), 0)
    with pytest.raises(CodegenError, match="needs sm_90a; the target lacks it"):
        source(schedule.func, at.Target("cuda -arch=sm_90"))


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((128, 96, 128), "columns are no whole rows of 64 halves"),
        ((128, 128, 96), "terms are not either"),
        ((32, 128, 128), "fewer rows than half a product"),
    ],
)
def test_what_is_left_to_single_warps(shape: tuple[int, int, int], why: str) -> None:
    space = generate_space(plain(*shape).func, hopper())
    assert not by_groups(space), why
    assert any("mma_" in v.name for v in space.variants)


def marked(columns: int, depth: int, layout: bool, rows: int = 64) -> str:
    """The text of one warpgroup's product, by hand, with or without rows of 128 bytes."""
    program = plain(rows, columns, depth, turned=True)
    sch = Schedule(program.func)
    block = sch.get_block("C")
    store = sch.cache_write(block, 0, "local")
    panels = [[1, 64], [0], [1, 1, 64]] if layout else None
    copies = [sch.cache_read(block, n, "shared", panels) for n in (0, 1)]
    i, j = sch.get_loops(store)
    first, w, r1, g = sch.split(i, [None, 4, 2, 8])
    tile, t, r0 = sch.split(j, [None, 4, 2])
    sch.reorder(first, w, g, t, tile, r1, r0)
    sch.bind(first, "blockIdx.x")
    sch.bind(w, "threadIdx.y")
    sch.bind(g, "threadIdx.x")
    sch.bind(t, "threadIdx.x")
    for axis, factor in ((2, 16), (1, 8), (2, 2), (0, 16), (1, 8)):
        sch.split_axis(block, axis, factor)
    dims = [[0, 16], [0, 8, 2], [0, 1, 8], [1, 8], [1, 2, 4], [1, 1, 2]]
    sch.transform_layout(block, ("write", 0), dims)
    sch.compute_at(block, t)
    a, r1, b, tile, c, r0, steps, terms = sch.get_loops(block)[-8:]
    sch.reorder(a, b, c, steps, tile, r1, r0, terms)
    for loop in (a, b, c, steps, tile):
        sch.unroll(loop)
    sch.tensorize(r1, name_of("f16f16f32", 4))
    for copy in copies:
        sch.compute_at(copy, t)
        sch.annotate(copy, "cooperative", 8)
    text = source(sch.func, hopper())
    assert f"m64n{columns}k16" in text
    return text


def test_by_hand() -> None:
    assert compile_cuda(marked(256, 64, True), "sm_90a")


@pytest.mark.parametrize(
    ("columns", "depth", "layout", "message"),
    [
        (264, 64, True, "a product of a warpgroup has up to 256 columns.*found 264"),
        (64, 128, False, "A_shared does not lie in shared memory as products of warpgroups read"),
    ],
)
def test_what_a_warpgroup_cannot_do(columns: int, depth: int, layout: bool, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        marked(columns, depth, layout)


@pytest.mark.parametrize("rows", [48, 112])
def test_a_warpgroup_is_whole(rows: int) -> None:
    """Of four warps the last one has no rows."""
    with pytest.raises(CodegenError, match="some threads of a warpgroup have no part in a product"):
        marked(64, 64, True, rows)


@pytest.mark.parametrize("columns", [40, 56, 104])
def test_products_of_bytes_have_widths_that_there_are(columns: int) -> None:
    """Above 32 columns, multiples of 16."""
    program = plain(64, columns, 128, "int8", turned=True)
    space = generate_space(program.func, hopper())
    rng, variants = np.random.default_rng(0), np.array(by_groups(space))
    population = space.sample(rng, 12, variants)
    found = set()
    for row in np.flatnonzero(legal(space, population)):
        func = space.schedule(*space.candidate(population, int(row))).func
        if check_kernels(func, hopper()):
            found |= {int(n) for n in re.findall(r"m64n(\d+)k32", source(func, hopper()))}
    assert found
    assert all(n <= 32 or n % 16 == 0 for n in found)


def test_helpers_are_those_of_the_instructions() -> None:
    assert warp_helper("wgmma_m64n40k32_s8s8s32") is None
    assert warp_helper("wgmma_m64n24k32_s8s8s32") is not None
    assert warp_helper("wgmma_m64n40k16_f16f16f32") is not None
    assert warp_helper("wgmma_m64n12k16_f16f16f32") is None
    assert warp_helper("wgmma_m64n264k16_f16f16f32") is None
    assert warp_helper("wgmma_m64n8k16_f32f32f32") is None

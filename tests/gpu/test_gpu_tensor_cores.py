"""Products on tensor cores: random candidates of random programs on the host against NumPy, through
NVRTC, and as the analysis counts them; and what is no such product."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_on_host
import numpy as np
import pytest
from cuda_on_host import run_on_host, translated
from gpu_run import check_kernels, cuda, poisoned, random_inputs, reference, source
from tensor_core_programs import PAIRS, Case, by_hand, case, in_context, plain, with_itself

import autosched as at
from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.codegen.warp_intrinsics import KINDS, name_of
from autosched.errors import AutoschedError, CodegenError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.search.evaluate import legal
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Space
from autosched.tir import interp, intrin
from autosched.tir.intrin import TensorIntrin
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

on_host = pytest.mark.skipif(cuda_on_host.CXX is None, reason="no C++ compiler (g++)")


def on_cores(space: Space) -> list[int]:
    """The variants of a space that use tensor cores."""
    return [n for n, v in enumerate(space.variants) if "mma_" in v.name]


def drawn(space: Space, seed: int) -> Schedule:
    """A random candidate, on tensor cores if any is."""
    rng = np.random.default_rng(seed)
    variants = np.array(on_cores(space) or range(len(space.variants)))
    while True:
        population = space.sample(rng, 16, variants)
        for row in np.flatnonzero(legal(space, population)):
            return space.schedule(*space.candidate(population, int(row)))


def hold(program: Case, schedule: Schedule, seed: int, folder: Path) -> None:
    """Hold a schedule of a program to NumPy, to the analysis and to its own text."""
    try:
        assert check_kernels(schedule.func, cuda())
        text = schedule.func.script()
        assert parse(text).script() == text
        again = Schedule(program.func)
        again.replay(schedule.trace)
        assert again.func.same(schedule.func)
        inputs = program.arrays(seed)
        wanted = program.wanted(inputs)
        program.check(reference(program.func, inputs)[0], wanted)
        for mode, (found,) in enumerate(run_on_host(schedule.func, inputs, folder)):
            program.check(found, wanted, f"in mode {mode}")
    except (AssertionError, AutoschedError) as e:
        raise AssertionError(f"seed {seed}: {program.words}\n{schedule.trace.as_python()}") from e


def draw_and_hold(seed: int, low: int, folder: Path) -> bool:
    """Whether a random program was one for tensor cores."""
    program = case(seed, low)
    space = generate_space(program.func, cuda())
    folder.mkdir()
    hold(program, drawn(space, seed), seed, folder)
    return bool(on_cores(space))


@pytest.mark.sampled(3)
@on_host
@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    assert draw_and_hold(seed, 17, tmp_path / "run")


@on_host
@pytest.mark.parametrize(
    ("n", "turned"),
    [(32, False)] + [pytest.param(*x, marks=pytest.mark.long) for x in ((32, True), (40, False))],
)
def test_a_matrix_by_itself(n: int, turned: bool, tmp_path: Path) -> None:
    """Each side has a copy in shared memory, of its own tiles."""
    program = with_itself(n, 40 if turned else n, turned)
    space = generate_space(program.func, cuda())
    assert on_cores(space)
    names = [name for s in space.variants[0].decisions for name in s.names]
    assert len(set(names)) == len(names)
    hold(program, drawn(space, 0), 0, tmp_path)


@on_host
@pytest.mark.long
@pytest.mark.parametrize("n", [32, 37])
@pytest.mark.parametrize("what", ["scaled", "turned", "cut", "flat", "chained"])
def test_products_among_other_computations(what: str, n: int, tmp_path: Path) -> None:
    program = in_context(what, n)
    space = generate_space(program.func, cuda())
    assert on_cores(space)
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        hold(program, drawn(space, seed), seed, folder)


@on_host
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("n", [40, 64])
def test_two_products_may_share_an_operand(n: int, arch: str) -> None:
    """Copies for one of them are then called as those for the other are in another sketch."""
    x, y, z = (te.placeholder((n, n), name=name, dtype="float16") for name in "XYZ")
    found = []
    for name, other in (("C", y), ("D", z)):
        k = te.reduce_axis((0, n), name=f"k_{name}")

        def element(i: Any, j: Any, k: Any = k, other: te.Tensor = other) -> Any:
            return te.sum(x[i, k].astype("float32") * other[k, j].astype("float32"), axis=k)

        found.append(te.compute((n, n), element, name=name))
    c, d = found
    out = te.compute((n, n), lambda i, j: c[i, j] * d[i, j], name="E")
    space = generate_space(te.create_prim_func([x, y, z, out]), at.Target(f"cuda -arch={arch}"))
    names = {v.name.split("_m16")[0] for v in space.variants}
    assert {"D+C", "D.ahead+C", "D.mma"} <= names
    assert any(v.name.count("mma_") == 2 for v in space.variants)


@pytest.mark.long
@pytest.mark.parametrize("start", range(100, 250, 10))
def test_more_random_programs(start: int, tmp_path: Path) -> None:
    """Of every size up to 70: some are too small for tensor cores, and run all the same."""
    seeds = range(start, start + 10)
    done = [draw_and_hold(n, 1 if n % 2 else 17, tmp_path / str(n)) for n in seeds]
    assert sum(done) >= 5


@on_host
@pytest.mark.long
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_sums_of_the_largest_bytes_and_of_many_terms(pair: tuple[str, str], tmp_path: Path) -> None:
    """int32 wraps where a sum of bytes exceeds it; nothing is rounded before it is summed up."""
    program = plain(17, 9, 3000, *pair)
    hold(program, drawn(generate_space(program.func, cuda()), 0), 0, tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "arch"),
    [(name, "sm_90") for name in KINDS]
    + [("f16f16f32", "sm_80"), ("s8s8s32", "sm_80")]
    + [pytest.param(x, "sm_80", marks=pytest.mark.long) for x in sorted(KINDS)],
)
def test_every_instruction_compiles(name: str, arch: str) -> None:
    kind = KINDS[name]
    program = plain(40, 30, 100, kind.left, kind.right)
    target = at.Target(f"cuda -arch={arch}")
    text = source(drawn(generate_space(program.func, target), 1).func, target)
    assert f"{name_of(name)}(" in text
    assert compile_cuda(text, arch)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(300, 330))
def test_random_programs_compile(seed: int) -> None:
    program = case(seed, 17)
    text = source(drawn(generate_space(program.func, cuda()), seed).func, cuda())
    assert compile_cuda(text, "sm_80")
    assert compile_cuda(text, "sm_90")


def test_the_interpreter_runs_the_nest_that_is_marked() -> None:
    """Its meaning is that of the program without tensor cores."""
    program = plain(17, 9, 17)
    space = generate_space(program.func, cuda())
    assert on_cores(space)
    inputs, func = program.arrays(0), drawn(space, 2).func
    outputs = poisoned(func)
    interp.run(func, [*inputs, *outputs])
    program.check(outputs[0], program.wanted(inputs))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "int8"])
def test_sums_of_one_dtype_are_not_made_on_tensor_cores(dtype: str) -> None:
    """float32 is never rounded to fewer bits, and halves summed in halves keep their rounding."""
    assert not on_cores(generate_space(prim_func_of("matmul", (64, 64, 64, dtype)), cuda()))


def test_other_targets_have_no_tensor_cores() -> None:
    func = prim_func_of("matmul_mixed", (64, 64, 64))
    for target in ("opencl", "cuda -arch=sm_75", "llvm"):
        assert not on_cores(generate_space(func, at.Target(target)))
    assert at.Target("cuda -arch=sm_80").features == {"sm_80"}
    assert at.Target("cuda -arch=sm_75").features == set()


@pytest.mark.parametrize(
    ("dtype", "turned", "expected"),
    [
        ("float16", True, {"ldmatrix_x4"}),
        ("int8", True, {"ldmatrix_x4"}),
        ("float16", False, {"ldmatrix_x4", "ldmatrix_x4_trans"}),
        ("int8", False, {"ldmatrix_x4"}),  # B by element
    ],
)
def test_operands_are_loaded_as_they_lie(dtype: str, turned: bool, expected: set[str]) -> None:
    """By `ldmatrix` where 16 bytes of terms lie together; of halves where as many columns do."""
    space = generate_space(plain(64, 64, 64, dtype, turned=turned).func, cuda())
    lines = source(space.schedule(*space.default()).func, cuda()).splitlines()
    assert {x.split("(")[0].strip() for x in lines if "  ldmatrix_x" in x} == expected
    assert sum("(unsigned char)B_shared" in x for x in lines) == (
        2 if (dtype, turned) == ("int8", False) else 0
    )


STEPS = {"C.mma.vk.1": 1, "C.mma.vi.1": 1, "C.mma.vi.2": 1, "C.mma.vj.1": 2, "C.mma.vj.2": 1}
BREAKS: dict[str, Callable[[str, int], str]] = {
    "a barrier": lambda text, n: text.replace("__syncthreads();", ";"),
    "a wait": lambda text, n: text.replace(f"copied_but_{n - 2}();", ";"),
    "a step of a wait": lambda text, n: text.replace(f"but_{n - 2}();", f"but_{n - 1}();"),
    "a commit": lambda text, n: text.replace("commit();", ";"),
}


def pipelined(copies: int) -> tuple[Case, PrimFunc]:
    """A product of seven steps, each fetched some steps ahead by two warps."""
    program = plain(16, 16, 112)
    space = generate_space(program.func, cuda())
    (variant,) = on_cores(space)
    spec = space.variants[variant]
    values = {
        name: value
        for d in spec.decisions
        for name, value in zip(d.names, np.atleast_1d(d.default).tolist(), strict=True)
    }
    return program, space.schedule(variant, {**values, **STEPS, "C.mma.stages": copies}).func


@on_host
@pytest.mark.parametrize(
    ("what", "copies"),
    [(x, 3) for x in (None, *BREAKS)]
    + [pytest.param(x, 4, marks=pytest.mark.long) for x in (None, *BREAKS)],
)
def test_what_steps_ahead_lack_is_found(
    what: str | None, copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A barrier, a wait or a commit too few, or a wait that lets one step too many be under way."""
    program, func = pipelined(copies)
    text = source(func, cuda())
    assert text.count("copy_16(&") == 2
    if what is not None:
        broken = BREAKS[what]
        assert broken(translated(text), copies) != translated(text)
        monkeypatch.setattr(
            cuda_on_host, "translated", lambda text: broken(translated(text), copies)
        )
    inputs = program.arrays(0)
    wanted = program.wanted(inputs)
    right = [
        np.allclose(found, wanted, 1e-3, 1e-3) for (found,) in run_on_host(func, inputs, tmp_path)
    ]
    assert all(right) == (what is None)


@on_host
@pytest.mark.long
@pytest.mark.parametrize("copies", range(2, 9))
def test_any_number_of_buffers(copies: int, tmp_path: Path) -> None:
    """More than there are steps, too."""
    unscheduled, func = by_hand((16, 8, 80), copies=copies)
    inputs = random_inputs(unscheduled)
    (wanted,) = reference(unscheduled, inputs)
    for (found,) in run_on_host(func, inputs, tmp_path):
        np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert check_kernels(func, cuda())


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "lanes in the other order": (
        {"lanes": "columns, rows"},
        r"expected thread 4 \* g \+ t of a warp to have the rows of A_shared by g alone.* bind a "
        r"loop of 8 along the rows, then one of 4 along the columns, to threadIdx\.x",
    ),
    "threads of another axis": (
        {"thread": "threadIdx.y"},
        r"C is done by warps, whose 32 threads are those of threadIdx\.x; found 1: bind loops of 8 "
        "by 4 iterations",
    ),
    "operands in global memory": (
        {"shared": False},
        "C: A is in global memory; expected operands of products that warps do together in shared",
    ),
    "results that threads share": (
        {"scope": "shared"},
        "results of products that warps do together are local, 2 by 2 a thread; C is not",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_the_threads_of_a_warp_cannot_do(what: str) -> None:
    options, message = WRONG[what]
    assert source(by_hand()[1], cuda()).count("mma_m16n8k16_f16f16f32(") == 2
    with pytest.raises(CodegenError, match=message):
        source(by_hand(**options)[1], cuda())


@pytest.mark.parametrize("target", ["opencl", "cuda -arch=sm_75"])
def test_devices_without_the_instructions(target: str) -> None:
    with pytest.raises(CodegenError, match=r"block C uses .* needs sm_80; the target lacks it"):
        source(by_hand()[1], at.Target(target))


def test_a_cpu_has_no_warps() -> None:
    _, func = by_hand(bound=False, shared=False, scope="global")
    with pytest.raises(CodegenError, match=r"needs sm_80; .* lacks it: build for a CPU"):
        at.build(func, target="llvm", compile_only=True)


def test_a_nest_of_a_cpu_is_none_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intrin, "_REGISTRY", dict(intrin._REGISTRY))
    TensorIntrin.register(
        "pair_for_a_cpu",
        meaning="""
@T.prim_func
def pair(A: T.Buffer((2,), "float32"), C: T.Buffer((2,), "float32")):
    for i in range(2):
        with T.block("pair"):
            vi = T.axis.spatial(2, i)
            C[vi] = A[vi] + A[vi]
""",
        implementation="""
define <2 x float> @pair(<2 x float> %A) {
  %c = fadd <2 x float> %A, %A
  ret <2 x float> %c
}
""",
    )
    a = te.placeholder((64,), name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((64,), lambda i: a[i] + a[i], name="B")]))
    outer, inner = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 2])
    sch.bind(outer, "threadIdx.x")
    sch.tensorize(inner, "pair_for_a_cpu")
    with pytest.raises(CodegenError, match="pair_for_a_cpu, which needs a CPU"):
        source(sch.func, cuda())


@pytest.mark.parametrize("name", ["bf16bf16f32", "s8s8s32", "none"])
def test_a_nest_of_other_dtypes_is_none_of_an_instruction(name: str) -> None:
    other = name_of(name) if name in KINDS else name
    text = by_hand()[1].script().replace(name_of("f16f16f32"), other)
    with pytest.raises(CodegenError, match="is marked as an intrinsic: "):
        source(parse(text), cuda())


def test_a_nest_of_two_blocks_is_none_of_an_instruction() -> None:
    _, func = by_hand()
    marked = f"annotations={{'tensorize': '{name_of('f16f16f32')}'}}"
    text = func.script().replace("for ax6 in T.serial(4)", f"for ax6 in T.serial(4, {marked})")
    program = parse(text)
    assert isinstance(program, PrimFunc)
    with pytest.raises(CodegenError, match="nest of one block, found A_shared, B_shared, C"):
        source(program, cuda())

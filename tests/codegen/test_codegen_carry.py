"""State in registers: recurrences whose time loop stands inside the loops over columns."""

from __future__ import annotations

import pytest
from guarded import HOST, MANY, TARGETS, arguments, compiled, same, story
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.codegen.build import generate_ir
from autosched.codegen.llvm.assemble import optimised_ir
from autosched.script import parse
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc

PROGRAM = """
@T.prim_func
def main(X: T.Buffer((@T@, @R@, @N@), "@D@"), S: T.Buffer((@T@, @R@, @N@), "@D@")):
    for t, i, j in T.grid(@K@, @R@, @N@):
        with T.block("init"):
            vt, vi, vj = T.axis.remap("SSS", [t, i, j])
            S[vt, vi, vj] = X[vt, vi, vj]
    for p in T.parallel(@P@):
        for t in T.serial(@T@ - @K@):
            for i in T.@I@(@R@):
                for j in T.@J@(@V@):
                    with T.block("update"):
                        vt = T.axis.sequential(@T@ - @K@, t)
                        vi = T.axis.spatial(@R@, i)
                        vj = T.axis.spatial(@N@, p * @V@ + j)
                        T.where(p * @V@ + j < @N@)
                        S[vt + @K@, vi, vj] = @E@
"""
SUM = "S[vt + @B@, vi, vj] + X[vt + @K@, vi, vj]"
MAX = "T.max(X[vt + @K@, vi, vj], S[vt + @B@, vi, vj])"
LAST = "T.if_then_else(X[vt + @K@, vi, vj] > one, X[vt + @K@, vi, vj], S[vt + @B@, vi, vj])"
TWICE = "S[vt + @B@, vi, vj] - X[vt, vi, vj] * S[vt + @B@, vi, vj]"
OTHER_ROW = "S[vt + @B@, @R@ - 1 - vi, vj] + X[vt + @K@, vi, vj]"
MOVED = "S[vt + @B@, (vi + 1) % @R@, vj] + S[vt + @B@, vi, vj]"
BODIES = (SUM, MAX, LAST, TWICE, OTHER_ROW, MOVED)


def program(
    body: str = SUM,
    steps: int = 9,
    rows: int = 2,
    cols: int = 40,
    wide: int = 32,
    back: int = 1,
    first: int = 1,
    dtype: str = "float32",
    row_kind: str = "unroll",
    kind: str = "vectorized",
) -> PrimFunc:
    """S[t] from S[t - back] for all t from `first` on; columns in groups of `wide`."""
    values = {
        "@E@": body.replace("one", f'T.cast(1, "{dtype}")'),
        "@T@": steps,
        "@R@": rows,
        "@N@": cols,
        "@V@": wide,
        "@P@": -(-cols // wide),
        "@K@": first,
        "@B@": first - back,
        "@D@": dtype,
        "@I@": row_kind,
        "@J@": kind,
    }
    text = PROGRAM
    for key, value in values.items():
        text = text.replace(key, str(value))
    return parse(text)


def check(func: PrimFunc, target: str = "llvm", seed: int = 0, threads: int = 2) -> None:
    arrays = arguments(func, seed=seed)
    want = [a.copy() for a in arrays]
    interp.run(func, want)
    found = compiled(func, arrays, target, "full" if seed % 3 == 0 else "search", threads)
    try:
        same(found[1], want[1])
    except AssertionError as e:
        raise AssertionError(f"{e}\n{story(func, func, target)}") from e


def carries(func: PrimFunc) -> bool:
    """Whether the update's loop over t has a vector of state in a register."""
    ir = optimised_ir(generate_ir(func, HOST).ir, HOST, "full")
    return any(
        "phi" in line and ("x float>" in line or " float " in line) for line in ir.split("\n")
    )


@MANY
@pytest.mark.parametrize("body", BODIES)
def test_every_form(body: str, target: str) -> None:
    for dtype in ("float32", "int8"):
        check(program(body, dtype=dtype), target)


@pytest.mark.parametrize("body", [SUM, MAX, LAST, TWICE])
def test_the_step_before_stays_in_a_register(body: str) -> None:
    assert carries(program(body))


def test_what_is_not_the_step_before_at_the_same_place_is_read_from_memory() -> None:
    assert not carries(program(OTHER_ROW))
    assert not carries(program(SUM, back=2, first=2))
    assert not carries(program(SUM, row_kind="serial"))


def test_more_state_than_registers_stays_in_memory() -> None:
    assert not carries(program(SUM, rows=1, cols=8192, wide=4096, steps=3))


def test_both_the_carried_step_and_another_one() -> None:
    """One read is carried, the other must find in memory what was stored."""
    func = program("S[vt + 1, vi, vj] + S[vt, vi, vj] + X[vt + 2, vi, vj]", first=2, dtype="int32")
    for threads in (1, 2, 3, 5):
        check(func, threads=threads)


@given(
    st.sampled_from(BODIES),
    st.integers(2, 9),
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 2),
    st.integers(0, 1),
    st.sampled_from(("float32", "int32", "int8", "int64", "uint8")),
    st.sampled_from(("unroll", "serial")),
    st.sampled_from(("vectorized", "unroll", "serial")),
    st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_random_forms(
    body: str,
    steps: int,
    rows: int,
    cols: int,
    wide: int,
    back: int,
    more: int,
    dtype: str,
    row_kind: str,
    kind: str,
    seed: int,
) -> None:
    first = back + more
    if steps > first:
        func = program(body, steps, rows, cols, wide, back, first, dtype, row_kind, kind)
        check(func, TARGETS[seed % len(TARGETS)], seed, threads=1 + seed % 4)

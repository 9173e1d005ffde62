"""LLVM IR to object code: levels, targets and what is said about bad IR."""

from __future__ import annotations

import pytest

from autosched.codegen.build import generate_ir
from autosched.codegen.llvm.assemble import assembly, compile_ir, optimised_ir
from autosched.errors import BuildError
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.workloads import prim_func_of

SQUARES = """
define void @squares(ptr noalias %a, ptr noalias %b, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %a, i64 %i
  %q = getelementptr float, ptr %b, i64 %i
  %x = load <16 x float>, ptr %p, align 4
  %y = fmul <16 x float> %x, %x
  store <16 x float> %y, ptr %q, align 4
  %next = add i64 %i, 16
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

# A constant-trip scalar loop: the kind that LLVM unrolls or vectorises if it is let.
SCALAR = """
define void @scalar(ptr noalias %a, ptr noalias %b) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %a, i64 %i
  %q = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %p, align 4
  %y = fmul float %x, %x
  store float %y, ptr %q, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 8
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

TILE = """
define void @tile(ptr %a) {
  %t = alloca [2 x <8 x float>], align 64
  %x = load <8 x float>, ptr %a, align 4
  %p = getelementptr [2 x <8 x float>], ptr %t, i64 0, i64 1
  store <8 x float> %x, ptr %p
  %y = load <8 x float>, ptr %p
  %z = fadd <8 x float> %y, %y
  store <8 x float> %z, ptr %a, align 4
  ret void
}
"""

# What LLVM 22 makes a store of eight bytes where a processor truncates as it stores.
ONE_LANE = """
declare void @llvm.masked.store.v8i8.p0(<8 x i8>, ptr, i32, <8 x i1>)
define void @one_lane(ptr noalias %a, ptr noalias %b, i1 %c) {
  %x = load <8 x i64>, ptr %a, align 8
  %y = trunc <8 x i64> %x to <8 x i8>
  %m = and <8 x i1> <FIRST>, <SECOND>
  call void @llvm.masked.store.v8i8.p0(<8 x i8> %y, ptr %b, i32 1, <8 x i1> %m)
  ret void
}
"""


@pytest.mark.parametrize("level", ["search", "full"])
@pytest.mark.parametrize(
    ("target", "register"),
    [
        ("llvm -mcpu=znver5 -mtriple=x86_64-linux-gnu", "zmm"),
        # Its tuning prefers 32 bytes; what the code generator chose stands.
        ("llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu", "zmm"),
        ("llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu", "ymm"),
        ("llvm -mcpu=x86-64 -mtriple=x86_64-linux-gnu", "xmm"),
        ("llvm -mtriple=aarch64-linux-gnu", "v0.4s"),
    ],
)
def test_targets(target: str, register: str, level: str) -> None:
    code = compile_ir(SQUARES, Target(target), level)  # type: ignore[arg-type]
    assert code.startswith(b"\x7fELF")
    assert register in assembly(SQUARES, Target(target), level)  # type: ignore[arg-type]


def test_object_bytes_are_reproducible() -> None:
    host = Target("llvm")
    assert compile_ir(SQUARES, host) == compile_ir(SQUARES, host)


@pytest.mark.parametrize("level", ["search", "full"])
def test_scalar_loops_stay_loops(level: str) -> None:
    text = optimised_ir(SCALAR, Target("llvm"), level)  # type: ignore[arg-type]
    assert text.count("fmul float") == 1
    assert "x float>" not in text


@pytest.mark.parametrize("level", ["search", "full"])
def test_tiles_are_promoted_to_registers(level: str) -> None:
    assert "alloca" not in optimised_ir(TILE, Target("llvm"), level)  # type: ignore[arg-type]


def _bits(bits: str) -> str:
    return ", ".join(f"i1 {'true' if b == '1' else 'false'}" for b in bits)


@pytest.mark.parametrize("level", ["search", "full"])
@pytest.mark.parametrize(
    ("first", "second", "stores"),
    [
        ("10000000", "11111111", "store i8"),
        ("11110000", "00011111", "store i8"),  # one lane to the passes, not to the generator
        ("11110000", "00111111", "masked.store"),
    ],
)
def test_a_store_of_one_lane_stores_an_element(
    first: str, second: str, stores: str, level: str
) -> None:
    ir = ONE_LANE.replace("FIRST", _bits(first)).replace("SECOND", _bits(second))
    target = Target("llvm -mcpu=x86-64-v4 -mtriple=x86_64-linux-gnu")
    body = optimised_ir(ir, target, level)  # type: ignore[arg-type]
    body = body[body.index("define") : body.index("}")]
    assert ("store i8" in body, "masked.store" in body) == (
        stores == "store i8",
        stores == "masked.store",
    )
    wide = ("vmovlps", "vmovq", "vextractps", "%rax, (%rsi)")
    assert not any(x in assembly(ir, target, level) for x in wide)  # type: ignore[arg-type]


def test_parse_errors_show_the_line() -> None:
    bad = SQUARES.replace("fmul <16 x float> %x, %x", "fmul <8 x float> %x, %x")
    with pytest.raises(BuildError) as caught:
        compile_ir(bad, Target("llvm"))
    message = str(caught.value)
    assert "'%x' defined with type '<16 x float>' but expected '<8 x float>'" in message
    assert "line 10 of the IR:" in message
    assert ">    10 |   %y = fmul <8 x float> %x, %x" in message


def test_verifier_errors_show_the_line() -> None:
    bad = SQUARES.replace("done:", "done:\n  %u = add i64 %u, 1")
    with pytest.raises(BuildError, match="Only PHI nodes may reference their own value") as caught:
        compile_ir(bad, Target("llvm"))
    assert ">    16 |   %u = add i64 %u, 1" in str(caught.value)


def test_unknown_level() -> None:
    with pytest.raises(BuildError, match="unknown level 'best' of optimisation; expected 'search'"):
        compile_ir(SQUARES, Target("llvm"), "best")  # type: ignore[arg-type]


@pytest.mark.parametrize(("taps", "spills"), [(3, True), (1, False)])
def test_code_that_spills_at_the_full_level_is_that_of_the_search(taps: int, spills: bool) -> None:
    """Nine taps of fourteen rows: O3 loads more at once than there are registers."""
    target = Target("llvm -mcpu=x86-64-v4 -num-cores=1")
    name, sizes = "depthwise_conv2d", (115, 115, 128, 3, 2, 0)
    space = generate_space(prim_func_of(name, sizes), target)
    tile: dict[str, tuple[int, ...]] = {"vy": (2, 14, 1), "vx": (1, 1, 14), "vc": (4, 1, 32)}
    tile |= {"vry": (3 // taps, taps), "vrx": (3 // taps, taps)}
    values = {f"{name}.{a}.{n}": f for a, t in tile.items() for n, f in enumerate(t, 1)}
    ir = generate_ir(space.schedule(0, values).func, target).ir
    assert (compile_ir(ir, target, "full") == compile_ir(ir, target, "search")) is spills
    assert (assembly(ir, target, "full") == assembly(ir, target, "search")) is spills

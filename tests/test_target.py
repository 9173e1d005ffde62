"""Targets: detection, canonical text, what is known of an instruction set, refusals."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from autosched.errors import TargetError
from autosched.target import CPUS, Target, available_cores

X86 = "-mtriple=x86_64-unknown-linux-gnu"
ARM = "-mtriple=aarch64-unknown-linux-gnu"


def test_host_is_detected() -> None:
    host = Target("llvm")
    assert host.is_host
    assert host.names_host
    assert host.missing_here() == ()
    assert host.num_cores == available_cores() == len(os.sched_getaffinity(0))
    assert host.mcpu
    assert host.features
    assert host.l1_bytes <= host.l2_bytes <= host.l3_bytes


@pytest.mark.parametrize(
    "text",
    [
        "llvm",
        "llvm -num-cores=3",
        "llvm -mcpu=x86-64-v3",
        f"llvm -mcpu=znver5 -num-cores=2 {X86}",
        f"llvm -mcpu=znver4 -mattr=-avx512bf16,-avx512vnni,+gfni {X86}",
        f"llvm -mcpu=neoverse-v2 {ARM}",
        f"llvm {ARM}",
    ],
)
def test_text_round_trips(text: str) -> None:
    target = Target(text)
    assert Target(str(target)) == target == Target(target)
    assert str(Target(str(target))) == str(target)
    assert hash(Target(text)) == hash(target)
    assert repr(target) == f"Target({str(target)!r})"


def test_attributes_are_sorted() -> None:
    one = Target(f"llvm -mcpu=znver4 -mattr=-fma,+gfni,-avx2 {X86}")
    assert one.mattr == "-avx2,-fma,+gfni"
    assert one == Target(f"llvm -mattr=+gfni,-avx2,-fma -mcpu=znver4 {X86}")


@pytest.mark.parametrize(
    ("options", "width", "registers", "fma", "masked"),
    [
        (f"-mcpu=znver5 {X86}", 64, 32, True, True),
        (f"-mcpu=skylake-avx512 {X86}", 64, 32, True, True),
        (f"-mcpu=x86-64-v4 {X86}", 64, 32, True, True),
        (f"-mcpu=znver5 -mattr=-avx512f {X86}", 32, 16, True, True),
        (f"-mcpu=x86-64-v3 {X86}", 32, 16, True, True),
        (f"-mcpu=haswell {X86}", 32, 16, True, True),
        (f"-mcpu=x86-64 {X86}", 16, 16, False, False),
        (f"-mcpu=generic {ARM}", 16, 32, True, False),
        (f"-mcpu=neoverse-n1 {ARM}", 16, 32, True, False),
    ],
)
def test_instruction_sets(
    options: str, width: int, registers: int, fma: bool, masked: bool
) -> None:
    target = Target(f"llvm {options}")
    assert target.vector_bytes == width
    assert target.vector_registers == registers
    assert target.has_fma is fma
    assert target.has_masked_stores is masked


def test_an_older_cpu_runs_here() -> None:
    host = Target("llvm")
    older = Target({"x86_64": "llvm -mcpu=x86-64", "aarch64": "llvm -mcpu=generic"}[host.arch])
    assert older.is_host
    assert older.missing_here() == ()
    assert older.names_host == (older.mcpu == host.mcpu and older.mattr == host.mattr)


def test_another_machine_is_not_this_one() -> None:
    arm = Target(f"llvm {ARM}")
    if Target("llvm").arch != "aarch64":
        assert arm.missing_here() == ("an aarch64 processor",)
    assert not arm.is_host
    assert arm.l2_bytes == 1 << 20


def test_every_listed_cpu_is_known_to_llvm() -> None:
    # In a process of its own: LLVM ends the process on an x86 CPU that it does not know.
    code = (
        "from autosched.target import CPUS, Target\n"
        "for arch, names in CPUS.items():\n"
        "    for name in names:\n"
        "        assert Target(f'llvm -mcpu={name} -mtriple={arch}-linux-gnu').features, name\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(CPUS["x86_64"]) > 40


def test_import_loads_no_llvm() -> None:
    code = "import sys, autosched.target; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'the target is empty; expected e.g. "llvm"'),
        ("cudnn", "unknown target kind 'cudnn' in 'cudnn'; known: llvm"),
        ("llvm -mpcu=znver5", "unknown option '-mpcu=znver5' of target .*; known: -mcpu=, -mattr="),
        ("llvm znver5", "unknown option 'znver5'"),
        ("llvm -mcpu", "option -mcpu of target 'llvm -mcpu' needs a value: -mcpu=..."),
        ("llvm -mcpu=", "option -mcpu of target 'llvm -mcpu=' needs a value"),
        ("llvm -mcpu=haswell -mcpu=znver4", "option -mcpu stands twice"),
        (f"llvm -mcpu=pentium9 {X86}", "unknown CPU 'pentium9' for x86_64; known: x86-64, "),
        (f"llvm -mcpu=znver5 {ARM}", "unknown CPU 'znver5' for aarch64; known: generic, "),
        (f"llvm -mattr=avx2 {X86}", "feature 'avx2' of -mattr needs a sign: [+]avx2 or -avx2"),
        (f"llvm -mattr=+avx1024 {X86}", "unknown feature '[+]avx1024' for x86_64; known: adx, avx"),
        (f"llvm -mattr=+fma,-fma {X86}", "feature 'fma' is both added and removed"),
        ("llvm -num-cores=0", "-num-cores=0 is no number of cores; expected 1 to 256"),
        ("llvm -num-cores=two", "-num-cores=two is no number of cores"),
        ("llvm -mtriple=riscv64-linux-gnu", "architecture 'riscv64'; supported: x86_64, aarch64"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        Target(text)


def test_a_target_is_text() -> None:
    with pytest.raises(TargetError, match="a target is text, found int: 3"):
        Target(3)  # type: ignore[arg-type]

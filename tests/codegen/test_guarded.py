"""The guarded child itself: whatever a kernel does, the test goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import numpy as np
import pytest
from guarded import HOST, Child, child

from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.llvm.generate import Generated

KERNEL = """
declare ptr @signal(i32, ptr)
define void @kernel(ptr %args, ptr %workspace, i32 %threads) {
entry:
  %out = load ptr, ptr %args
@BODY@
}
"""
ENDLESS = "  br label %again\nagain:\n  br label %again"
IGNORE = f"  %old = call ptr @signal(i32 {int(signal.SIGALRM)}, ptr inttoptr (i64 1 to ptr))\n"
PAST_THE_END = """  %p = getelementptr i32, ptr %out, i64 4
  store volatile i32 1, ptr %p
  %q = getelementptr i32, ptr %out, i64 -1
  store volatile i32 1, ptr %q
  ret void"""


def run(body: str, by: Child) -> list[np.ndarray]:
    info = KernelInfo("kernel", (Param("out", (4,), "int32", True),))
    generated = Generated(KERNEL.replace("@BODY@", body), info)
    return by.run(generated, HOST, "search", [np.arange(4, dtype=np.int32)], 1)


@pytest.fixture
def quick() -> Iterator[Child]:
    """A child that waits one second."""
    made = Child(seconds=1)
    yield made
    made.stop()


def test_a_kernel_that_hangs_fails(quick: Child) -> None:
    with pytest.raises(AssertionError, match="took more than 1 s and was ended"):
        run(ENDLESS, quick)
    np.testing.assert_array_equal(run("  ret void", quick)[0], np.arange(4))


def test_a_child_that_ignores_its_alarm_is_killed(
    quick: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("guarded.GRACE", 1)
    with pytest.raises(AssertionError, match="took more than 1 s and was ended"):
        run(IGNORE + ENDLESS, quick)


def test_an_access_outside_fails() -> None:
    with pytest.raises(AssertionError, match="died of SIGSEGV: it left its arrays"):
        run(PAST_THE_END, child)


def test_code_that_llvm_refuses_fails() -> None:
    with pytest.raises(AssertionError, match="BuildError: LLVM refuses the generated code"):
        run("  ret i32 0", child)

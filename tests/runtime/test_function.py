"""Built functions: calls, every refusal, concurrency, life time, timing."""

from __future__ import annotations

import array
import dataclasses
import gc
import math
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from runtime_arrays import arguments, expected

import autosched as at
from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.codegen.llvm.assemble import compile_ir
from autosched.errors import ArgumentError, BuildError, TargetError
from autosched.runtime.arrays import empty
from autosched.runtime.function import Function
from autosched.script import Limits, parse
from autosched.target import Target

Array = npt.NDArray[Any]


def test_call_writes_in_place(mix: Artifact) -> None:
    function = Function(mix)
    arrays = arguments()
    assert function(*arrays) is None  # type: ignore[func-returns-value]
    np.testing.assert_array_equal(arrays[3], expected(arrays))


def test_arrays_with_an_offset_and_read_only_inputs_are_taken(mix: Artifact) -> None:
    a, b, c, _ = arguments()
    a = np.stack([c, a])[1]
    b.flags.writeable = False
    out = np.empty(7, np.float32)[1:].reshape(2, 3)
    Function(mix)(a, b, c, out)
    np.testing.assert_array_equal(out, (a + b) * c)


def test_other_objects_with_a_buffer_are_taken(mix: Artifact) -> None:
    a, b, c, out = arguments()
    Function(mix)(memoryview(a), b, c, memoryview(out))
    np.testing.assert_array_equal(out, (a + b) * c)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
)
def test_every_dtype(dtype: str) -> None:
    size = np.dtype(dtype).itemsize
    text = f"""
define void @copy(ptr %args, ptr %workspace, i32 %threads) {{
  %a = load ptr, ptr %args
  %p = getelementptr ptr, ptr %args, i64 1
  %o = load ptr, ptr %p
  call void @llvm.memcpy.p0.p0.i64(ptr %o, ptr %a, i64 {4 * size}, i1 false)
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
    host = Target("llvm")
    info = KernelInfo("copy", (Param("a", (4,), dtype, False), Param("out", (4,), dtype, True)))
    function = Function(Artifact(compile_ir(text, host), info, str(host)))
    a, out = np.array([0, 1, 1, 0]).astype(dtype), np.zeros(4, dtype)
    function(a, out)
    np.testing.assert_array_equal(out, a)
    # Another type of the same size, as integers, is not the same type.
    other = {1: "S1", 2: "uint16", 4: "uint32", 8: "uint64"}[size]
    with pytest.raises(ArgumentError, match=f"argument 0 .a. of copy has dtype .*{dtype}"):
        function(a.view(other), out)


def test_long_long_is_int64(report: Artifact) -> None:
    out = np.zeros(2, np.longlong)
    Function(report, threads=3)(out)
    assert out[0] == 3


def _misaligned(shape: tuple[int, ...]) -> Array:
    raw = np.zeros(4 * math.prod(shape) + 8, np.uint8)
    start = 1 if raw.ctypes.data % 4 == 0 else 0
    return raw[start : start + 4 * math.prod(shape)].view(np.float32).reshape(shape)


def _read_only(values: Array) -> Array:
    copy = values.copy()
    copy.flags.writeable = False
    return copy


def test_refusals(mix: Artifact) -> None:
    function = Function(mix)
    a, b, c, out = arguments()
    out[:] = 0
    shared = np.zeros(9, np.float32)
    calls: list[tuple[tuple[Any, ...], str]] = [
        ((a, b, c), r"mix takes 4 arrays \(a, b, c, out\), found 3; outputs are passed as well"),
        ((a, b, c, out, out), "mix takes 4 arrays .* found 5"),
        (
            (a.astype("float64"), b, c, out),
            r"argument 0 \(a\) of mix has dtype float64; expected float32; convert it with "
            r"a.astype\('float32'\)",
        ),
        (
            (a, b, c, out.astype("int32")),
            r"argument 3 \(out\) of mix has dtype int32; expected float32; pass an array made "
            "with dtype='float32'",
        ),
        ((a.astype(">f4"), b, c, out), "has dtype >f4 .not native.; expected float32"),
        ((a, b[:1], c, out), r"argument 1 \(b\) of mix has shape \(1, 3\); expected \(2, 3\)"),
        ((a, b, c.ravel(), out), r"argument 2 \(c\) of mix has shape \(6,\); expected \(2, 3\)"),
        (
            (np.asfortranarray(a), b, c, out),
            r"argument 0 \(a\) of mix is not C-contiguous \(strides \(4, 8\)\); make it so with "
            r"np.ascontiguousarray\(a\)",
        ),
        (
            (a, b, c, np.zeros((2, 6), np.float32)[:, ::2]),
            r"argument 3 \(out\) of mix is not C-contiguous .*; pass a C-contiguous array and copy",
        ),
        ((a, b, c, _read_only(out)), r"\(out\) of mix is an output and is read-only; pass a writ"),
        (
            (_misaligned((2, 3)), b, c, out),
            r"\(a\) of mix starts at address 0x[0-9a-f]+, which is not aligned to its 4-byte "
            r"elements; copy it with a.copy\(\)",
        ),
        ((a, b, c, _misaligned((2, 3))), "not aligned to its 4-byte elements; pass an aligned arr"),
        (
            (a, b, c, a),
            r"output out \(argument 3\) of mix overlaps a \(argument 0\) in memory; pass a ",
        ),
        (
            (a, b, shared[:6].reshape(2, 3), shared[3:].reshape(2, 3)),
            r"output out \(argument 3\) of mix overlaps c \(argument 2\) in memory",
        ),
        (([1, 2], b, c, out), r"argument 0 \(a\) of mix is a list, not a NumPy array; inputs are"),
        ((a, b, c, None), r"argument 3 \(out\) of mix is a NoneType, not a NumPy array"),
        ((a, 1.5, c, out), r"argument 1 \(b\) of mix is a float, not a NumPy array"),
    ]
    for call, message in calls:
        with pytest.raises(ArgumentError, match=message):
            function(*call)
    function(a, b, c, out)
    np.testing.assert_array_equal(out, (a + b) * c)


def test_buffers_are_released(big_mix: Artifact) -> None:
    function = Function(big_mix)
    a, b, c, out = (array.array("f", [0.0] * 20000) for _ in range(4))
    function(a, b, c, out)
    with pytest.raises(ArgumentError, match="overlaps"):
        function(a, b, c, a)
    with pytest.raises(ArgumentError, match="not a NumPy array"):
        function(a, b, c, None)
    for values in (a, b, c, out):
        values.append(0.0)  # raises BufferError while somebody holds the buffer
    with pytest.raises(ArgumentError, match=r"has shape \(20001,\); expected \(20000,\)"):
        function(a, b, c, out)
    a.append(0.0)


def test_two_inputs_may_be_one_array(mix: Artifact) -> None:
    a, _, _, out = arguments()
    Function(mix)(a, a, a, out)
    np.testing.assert_array_equal(out, (a + a) * a)


def test_references_are_balanced(mix: Artifact) -> None:
    function = Function(mix)
    arrays = arguments()
    function(*arrays)
    gc.collect()  # of earlier tests: what it frees holds references to None
    before = [sys.getrefcount(x) for x in (*arrays, None, NotImplemented)]
    for _ in range(1000):
        function(*arrays)
        with pytest.raises(ArgumentError):
            function(*arrays[:3], arrays[0])
    after = [sys.getrefcount(x) for x in (*arrays, None, NotImplemented)]
    assert all(abs(x - y) < 100 for x, y in zip(before, after, strict=True))


def test_threads_and_workspace(report: Artifact) -> None:
    function = Function(report, threads=2)
    out = np.zeros(2, np.int64)
    function(out)
    assert function.threads == out[0] == 2
    assert out[1] % 64 == 0
    first = out[1]
    function(out)
    assert out[1] == first, "the workspace is allocated once"
    other = function.with_threads(5)
    other(out)
    assert other.threads == out[0] == 5
    assert out[1] != first
    assert function.threads == 2
    assert Function(report).threads == Target("llvm").num_cores


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_impossible_thread_counts(report: Artifact, threads: int) -> None:
    with pytest.raises(ArgumentError, match=f"threads is {threads}; expected 1 to 256"):
        Function(report, threads=threads)
    with pytest.raises(ArgumentError, match="threads is"):
        Function(report).with_threads(threads)


def test_parallel_kernel(count: Artifact) -> None:
    for threads in (1, 2, 7):
        out = np.zeros(1000, np.int32)
        function = Function(count, threads=threads)
        for _ in range(50):
            function(out)
        assert (out == 50).all()


def test_threads_of_python_call_at_once(big_mix: Artifact) -> None:
    function = Function(big_mix)
    wrong: list[int] = []

    def work(seed: int) -> None:
        arrays = arguments((20000,), seed)
        for _ in range(100):
            arrays[3].fill(np.nan)
            function(*arrays)
            if not np.array_equal(arrays[3], expected(arrays)):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_first_calls_at_once_share_no_workspace(big_mix: Artifact) -> None:
    for _ in range(20):
        function = Function(big_mix)
        start = threading.Barrier(3)
        right: list[bool] = []

        def work(
            seed: int,
            function: Function = function,
            start: threading.Barrier = start,
            right: list[bool] = right,
        ) -> None:
            arrays = arguments((20000,), seed)
            start.wait()
            function(*arrays)
            right.append(np.array_equal(arrays[3], expected(arrays)))

        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert right == [True] * 3


def test_artifacts_travel(mix: Artifact) -> None:
    arrays = arguments()
    Function(pickle.loads(pickle.dumps(mix)))(*arrays)
    np.testing.assert_array_equal(arrays[3], expected(arrays))


def test_foreign_code_is_refused(mix: Artifact) -> None:
    target = "llvm -mtriple=aarch64-linux-gnu"
    if Target("llvm").arch == "aarch64":
        target = "llvm -mcpu=znver5 -mtriple=x86_64-linux-gnu"
    with pytest.raises(TargetError, match=r"this machine lacks an .* processor; build"):
        Function(dataclasses.replace(mix, target=target))


def test_link_errors_name_the_symbol(mix: Artifact) -> None:
    info = dataclasses.replace(mix.info, entry="absent")
    with pytest.raises(BuildError, match=r"cannot link absent: .*absent"):
        Function(dataclasses.replace(mix, info=info))
    with pytest.raises(BuildError, match="cannot link mix"):
        Function(dataclasses.replace(mix, code=b"not an object file"))


def test_repr_and_info(mix: Artifact) -> None:
    function = Function(mix, threads=2)
    assert function.info is mix.info
    assert function.artifact is mix
    assert repr(function) == (
        "<Function mix(a: float32[2, 3], b: float32[2, 3], c: float32[2, 3], "
        "out: float32[2, 3] out), threads=2>"
    )


def _resident_kib() -> int:
    text = Path("/proc/self/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    assert found is not None
    return int(found.group(1))


def _link_and_drop(artifact: Artifact, times: int) -> None:
    arrays = arguments()
    for _ in range(times):
        Function(artifact)(*arrays)
    gc.collect()


def test_code_is_freed(mix: Artifact) -> None:
    _link_and_drop(mix, 200)
    before = _resident_kib()
    _link_and_drop(mix, 200)
    assert _resident_kib() - before < 1024, "linked functions are not freed"


def test_a_dropped_functions_code_lives_while_it_is_needed(mix: Artifact) -> None:
    base = Function(mix)
    other = base.with_threads(1)
    del base
    gc.collect()
    arrays = arguments()
    other(*arrays)
    np.testing.assert_array_equal(arrays[3], expected(arrays))


def test_child_of_a_fork_can_call(count: Artifact) -> None:
    function = Function(count, threads=2)
    function(np.zeros(1000, np.int32))
    child = os.fork()
    if child == 0:
        out = np.zeros(1000, np.int32)
        for _ in range(100):
            function(out)
        os._exit(0 if (out == 100).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_llvm_on_import() -> None:
    code = "import sys, autosched.runtime.function; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_empty_is_aligned() -> None:
    for shape in ((), (1,), (3, 5), (0, 4), 7):
        for dtype in ("float32", "int8", "bool", "float16"):
            found = empty(shape, dtype)
            assert found.size == 0 or found.ctypes.data % 64 == 0
            assert found.dtype == dtype
            assert found.flags.c_contiguous
            assert found.flags.writeable
            assert found.shape == ((shape,) if isinstance(shape, int) else shape)


def test_a_workspace_beyond_memory_is_named() -> None:
    text = """@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    C = T.alloc_buffer((576460752303423488,), "float32", placed=True)
    for i in range(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = A[v]
    for i in range(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = C[v]
"""
    function = at.build(parse(text, limits=Limits(bytes=1 << 62)))
    with pytest.raises(ArgumentError, match="needs a workspace of 2305843009213693952 bytes"):
        function(np.zeros(4, "float32"), np.zeros(4, "float32"))

"""Numbers below the least normal one: kept, or taken for 0 while kernels run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from graph_models import info, model
from onnx import helper

from autosched import graph

CC = shutil.which("cc")
TINY = np.full((64, 1024), 1e-39, "f4")


def halves():
    proto = model(
        [helper.make_node("Mul", ["x", "half"], ["y"])],
        [info("x", TINY.shape)],
        [info("y", None)],
        {"half": np.float32(0.5)},
    )
    return graph.from_onnx(proto)


def flushed(array):
    return not array.any()


def test_denormals_are_kept_or_flushed_on_all_threads(tmp_path):
    kept = graph.build(halves(), threads=2)
    fast = graph.build(halves(), threads=2, flush_denormals=True)
    fast.save(tmp_path)
    again = graph.load(tmp_path)
    slow = graph.load(tmp_path, flush_denormals=False)
    for _ in range(20):  # the pool's workers compute now for the one, now for the other
        for one in (fast, again):
            assert flushed(one(TINY)[0])
        for one in (kept, slow):
            assert (one(TINY)[0] == np.float32(5e-40)).all()
    assert (TINY * np.float32(1) == TINY).all(), "the caller's own mode has changed"
    assert [m.flush_denormals for m in (kept, slow, fast, again)] == [False, False, True, True]


def test_denormals_in_a_loop():
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "half"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [info("i", [], "int64"), info("c", [], "bool"), info("s", [4])],
        [info("d", [], "bool"), info("t", [4])],
    )
    proto = model(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        [info("x", [4]), info("n", [], "int64")],
        [info("y", None)],
        {"half": np.float32(0.5)},
    )
    x = np.full(4, 1e-38, "f4")
    for flush in (False, True):
        made = graph.build(graph.from_onnx(proto), flush_denormals=flush)
        assert flushed(made(x, np.array(3))[0]) == flush
        assert (made(x, np.array(0))[0] == x).all()


@pytest.mark.skipif(CC is None, reason="no C compiler (cc) on the PATH")
def test_denormals_in_an_exported_model(tmp_path):
    for flush in (False, True):
        folder = tmp_path / str(flush)
        done = graph.build(halves(), flush_denormals=flush).export(folder, prefix="net_")
        library = folder / "net.so"
        command = [CC, "-shared", "-o", library, done.object, "-lpthread", "-lm"]
        subprocess.run([str(c) for c in command], check=True)
        run = ctypes.CDLL(str(library)).net_run
        arrays = [*([np.fromfile(done.weights, "u1")] if done.weights else []), TINY]
        y = np.ones_like(TINY)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, y)]
        assert run(*pointers, None, 2) == 0
        assert flushed(y) == flush

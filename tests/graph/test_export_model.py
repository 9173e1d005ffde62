"""A model in a C program, with no Python."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from graph_models import info, model, residual_net
from onnx import helper

from autosched import graph
from autosched.errors import ArgumentError
from autosched.graph import op

CC, CMAKE, VALGRIND = (shutil.which(name) for name in ("cc", "cmake", "valgrind"))
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler (cc) on the PATH")

MAIN = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "net.h"

static float x[3 * 12 * 12], y[5], again[5];

int main(int argc, char **argv) {
    struct stat status;
    int file = open(argv[1], O_RDONLY);
    if (argc != 4 || file < 0 || fstat(file, &status) != 0) return 2;
    const uint8_t *w = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    if (w == MAP_FAILED || !in || !out || fread(x, sizeof x, 1, in) != 1) return 3;
    if (net_run(w, x, y, NULL, 0) != 0) return 4;
    if (net_run(NULL, x, y, NULL, 0) == 0) return 5;
    void *space = aligned_alloc(64, net_run_workspace_bytes(1));
    if (net_run(w, x, again, space, 1) != 0) return 6;
    for (int n = 0; n < 5; n++)
        if (y[n] != again[n]) return 7;
    free(space);
    return fwrite(y, sizeof y, 1, out) == 1 && fclose(out) == 0 ? 0 : 8;
}
"""


def run(*command):
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, f"{command}\n{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A model, its files beside a C program, an input and what it should give."""
    folder = tmp_path_factory.mktemp("net")
    rng = np.random.default_rng(3)
    # A processor that valgrind knows the instructions of.
    made = graph.build(graph.from_onnx(residual_net(rng)), "llvm -mcpu=haswell -num-cores=2")
    done = made.export(folder, prefix="net_")
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    x.tofile(folder / "x.bin")
    (folder / "main.c").write_text(MAIN)
    (want,) = made(x)
    return done, folder, want


@needs_cc
def test_a_c_program_computes_the_same_bits(built):
    done, folder, want = built
    assert [p.name for p in done] == ["net.o", "net.h", "net.weights", "net.cmake"]
    strict = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
    run(CC, *strict, f"-I{folder}", folder / "main.c", done.object, "-o", folder / "main",
        "-lpthread", "-lm")  # fmt: skip
    files = (done.weights, folder / "x.bin", folder / "y.bin")
    run(folder / "main", *files)
    np.testing.assert_array_equal(np.fromfile(folder / "y.bin", "f4"), want.reshape(-1))
    if VALGRIND is not None:
        run(VALGRIND, "--error-exitcode=9", "--quiet", folder / "main", *files)
        np.testing.assert_array_equal(np.fromfile(folder / "y.bin", "f4"), want.reshape(-1))


@pytest.mark.skipif(CC is None or CMAKE is None, reason="no cmake and cc on the PATH")
def test_the_lines_for_cmake_link_it(built):
    done, folder, want = built
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\ninclude(net.cmake)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE net)\n"
    )
    run(CMAKE, "-S", folder, "-B", folder / "build")
    run(CMAKE, "--build", folder / "build")
    run(folder / "build" / "app", done.weights, folder / "x.bin", folder / "z.bin")
    np.testing.assert_array_equal(np.fromfile(folder / "z.bin", "f4"), want.reshape(-1))


def test_a_model_without_constants_has_no_weights(tmp_path):
    x, y = graph.var("x", (4, 6)), graph.var("y", (6, 5))
    made = graph.build(graph.module(main=graph.function([x, y], op.matmul(x, y))))
    done = made.export(tmp_path)
    assert (done.weights, done.paths) == (None, (done.object, done.header, done.cmake))
    text = done.header.read_text()
    assert "int run(" in text
    assert "weights" not in text


def test_what_is_more_than_kernels_is_refused(tmp_path):
    node = helper.make_node("NonZero", ["x"], ["y"])
    proto = model([node], [info("x", [4])], [info("y", [1, None], "int64")])
    with pytest.raises(graph.Unsupported, match="NonZero"):
        graph.build(graph.from_onnx(proto)).export(tmp_path)


def test_a_loaded_model_is_refused(tmp_path):
    x = graph.var("x", (8,))
    graph.build(graph.module(main=graph.function([x], op.tanh(x)))).save(tmp_path / "saved")
    with pytest.raises(ArgumentError, match="was loaded has no programs"):
        graph.load(tmp_path / "saved").export(tmp_path)

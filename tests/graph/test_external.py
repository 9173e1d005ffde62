"""External code generators: partitioning, the two that come along, and every way to fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGKILL

import numpy as np
import pytest

from autosched import graph
from autosched.errors import AutoschedError
from autosched.graph import external, external_c, external_check, nn, passes
from autosched.graph import op as o
from autosched.graph.pattern import any, op
from autosched.script import parse

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler (cc) on the PATH")
F = np.float32


@pytest.fixture
def scratch(monkeypatch):
    """A registry that is as it was after the test."""
    external.generator("blas")  # the built-in ones are there
    monkeypatch.setattr(external, "_GENERATORS", dict(external._GENERATORS))


def perceptron(rng):
    x = graph.var("x", (4, 24))
    w, v = (graph.const(rng.standard_normal(s).astype(F)) for s in ((16, 24), (16, 16)))
    b = graph.const(rng.standard_normal(16).astype(F))
    h = o.relu(nn.dense(x, w))
    y = o.softmax(o.add(o.gemm(h, v, b, transB=1, alpha=0.5, beta=2.0), h))
    return graph.module(main=graph.function([x], y))


def callees(f):
    return [getattr(b.value.callee, "name", b.value.callee) for b in f.body.bindings]


def test_regions_are_convex(scratch):
    """b reads a both itself and through what is not taken: they cannot be one function."""
    graph.external_codegen("acme", [op("Relu"), op("Add"), op("Mul")])(lambda f, t: None)
    x = graph.var("x", (3,))
    a = o.relu(x)
    apart = graph.module(main=graph.function([x], o.add(a, o.exp(a))))
    assert callees(graph.partition(apart, "acme")["main"]) == ["acme_0", "Exp", "acme_1"]
    # Two regions that would each wait for the other.
    p, q = o.relu(x), o.relu(o.exp(x))
    crossed = graph.module(main=graph.function([x], [o.mul(p, o.exp(q)), o.mul(q, o.exp(p))]))
    made = graph.partition(crossed, "acme")
    computed = graph.evaluate(made, "main", np.ones(3, F))
    np.testing.assert_array_equal(computed, graph.evaluate(crossed, "main", np.ones(3, F)))
    # A diamond all of which is taken is one region, with the results that are read outside.
    whole = graph.module(main=graph.function([x], [o.add(a, o.mul(a, a)), a]))
    made = graph.partition(whole, "acme")
    assert callees(made["main"]) == ["acme_0"]
    assert len(made["acme_0"].body.results) == 2
    assert parse(made.script()).same(made)
    # A pattern that itself is not convex there is left.
    graph.external_codegen("acme", [op("Add")(op("Relu").named("r"), op("Exp"))])(lambda f, t: None)
    graph.external_codegen("pair", [op("Add")(op("Relu"), any)])(lambda f, t: None)
    assert callees(graph.partition(apart, "acme")["main"]) == ["acme_0"]
    assert callees(graph.partition(apart, "pair")["main"]) == ["Relu", "Exp", "Add"]


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_are_partitioned_without_a_cycle(seed, scratch):
    graph.external_codegen("acme", [op("Add")(op("Relu"), any), op("Relu"), op("Add")])(
        lambda f, t: None
    )
    rng = np.random.default_rng(seed)
    x = graph.var("x", (2,))
    values = [x]
    for _ in range(60):
        a, b = (values[int(n)] for n in rng.integers(max(0, len(values) - 6), len(values), 2))
        kind = rng.integers(4)
        values.append(o.relu(a) if kind == 0 else o.tanh(a) if kind == 1 else o.add(a, b)
                      if kind == 2 else o.sigmoid(b))  # fmt: skip
    mod = graph.module(main=graph.function([x], values[-4:]))
    made = graph.partition(mod, "acme")
    assert len(made.graphs) > 2
    given = rng.standard_normal(2).astype(F)
    for one, two in zip(
        graph.evaluate(mod, "main", given), graph.evaluate(made, "main", given), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_blas_computes_products(rng):
    mod = perceptron(rng)
    made = graph.partition(mod, "blas")
    model = graph.build(made)
    x = rng.standard_normal((4, 24)).astype(F)
    np.testing.assert_allclose(model(x)[0], graph.evaluate(mod, "main", x), rtol=1e-4, atol=1e-5)
    assert model.external["blas"].functions == ("blas_0", "blas_1")
    assert len(model.kernels) == 2
    with pytest.raises(graph.Unsupported, match="blas_0, blas_1 are functions in Python"):
        model.save("nowhere")
    with pytest.raises(graph.Unsupported, match="blas_0, blas_1: functions in Python"):
        model.export("nowhere")
    chain = graph.var("a", (3, 3))
    several = graph.module(main=graph.function([chain], o.matmul(o.matmul(chain, chain), chain)))
    one = graph.partition(several, "blas")
    assert callees(one["main"]) == ["blas_0"]
    a = rng.standard_normal((3, 3)).astype(F)
    np.testing.assert_allclose(graph.build(one)(a)[0], a @ a @ a, rtol=1e-4, atol=1e-5)


@needs_cc
def test_cc_compiles_once_and_the_model_is_saved(rng, tmp_path, monkeypatch):
    from autosched.graph import external_c

    runs = []
    compile_c = external_c.compile_c
    monkeypatch.setattr(
        external_c, "compile_c", lambda *args: (runs.append(args), compile_c(*args))[1]
    )
    mod = perceptron(rng)
    # Products stay ours: so there are two regions of C, and one compilation.
    others = [op(lambda c: c.callee not in ("Gemm", "MatMul"))]
    model = graph.build(graph.partition(mod, "cc", patterns=others))
    assert len(runs) == 1
    assert model.external["cc"].functions == ("cc_0", "cc_1")
    assert "void cc_0(" in model.external["cc"].source
    x = rng.standard_normal((4, 24)).astype(F)
    (y,) = model(x)
    np.testing.assert_allclose(y, graph.evaluate(mod, "main", x), rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(graph.load(tmp_path / "saved")(x)[0], y)


MAIN = """
#include <stdio.h>
#include "net.h"
static float x[4 * 24], y[4 * 16];
static _Alignas(64) uint8_t w[NET];
int main(int argc, char **argv) {
    FILE *file = fopen(argv[1], "rb"), *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    if (argc != 4 || fread(w, 1, NET, file) != NET || fread(x, sizeof x, 1, in) != 1) return 1;
    if (net_run(w, x, y, NULL, 0) != 0) return 2;
    return fwrite(y, sizeof y, 1, out) == 1 && fclose(out) == 0 ? 0 : 3;
}
"""


@needs_cc
def test_c_source_links_into_the_exported_model(rng, tmp_path):
    mod = perceptron(rng)
    others = [op(lambda c: c.callee != "Gemm")]
    model = graph.build(graph.partition(mod, "cc", patterns=others))
    files = model.export(tmp_path, prefix="net_")
    x = rng.standard_normal((4, 24)).astype(F)
    x.tofile(tmp_path / "x.bin")
    (tmp_path / "main.c").write_text(MAIN)
    command = [CC, f"-DNET={files.weights.stat().st_size}", f"-I{tmp_path}",
               tmp_path / "main.c", files.object,
               "-o", tmp_path / "main", "-lpthread", "-lm"]  # fmt: skip
    subprocess.run([str(c) for c in command], check=True)
    subprocess.run(
        [tmp_path / "main", files.weights, tmp_path / "x.bin", tmp_path / "y.bin"], check=True
    )
    np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", F), model(x)[0].reshape(-1))


@needs_cc
def test_cc_computes_what_operators_of_all_kinds_mean(rng):
    x = graph.var("x", (2, 3, 8, 8))
    h = graph.var("h", (2, 3), "float16")
    n = graph.var("n", (5,), "int64")
    w = graph.const(rng.standard_normal((4, 3, 3, 3)).astype(F))
    results = [
        o.max_pool(o.conv(x, w, strides=(2, 2), pads=(1, 1, 1, 1)), kernel_shape=(2, 2)),
        o.global_average_pool(x),
        o.layer_normalization(x, graph.const(np.ones(8, F)), graph.const(np.zeros(8, F))),
        o.add(o.mul(h, h), h),
        o.mod(n, graph.const(np.array([3], "int64"))),
        o.argmax(x, axis=1),
        o.erf(x),
        o.cast(o.greater(x, graph.const(F(0))), to="uint8"),
    ]
    mod = graph.module(main=graph.function([x, h, n], results))
    made = graph.partition(mod, "cc")
    assert not [c for c in callees(made["main"]) if not c.startswith("cc_")]
    given = (
        rng.standard_normal((2, 3, 8, 8)).astype(F),
        rng.standard_normal((2, 3)).astype("f2"),
        np.arange(-2, 3),
    )
    for y, z in zip(graph.build(made)(*given), graph.evaluate(mod, "main", *given), strict=True):
        np.testing.assert_allclose(y.astype("f8"), z.astype("f8"), rtol=1e-3, atol=1e-4)


def test_branches_and_passes_leave_external_functions(rng, scratch):
    text = """
@G.module
class Module:
    @G.function
    def main(
        p: G.Tensor((), "bool"), x: G.Tensor((3, 3), "float32")
    ) -> G.Tensor((3, 3), "float32"):
        if p:
            a = op.matmul(x, x)
            y = a
        else:
            b = op.matmul(x, x)
            c = op.cumsum(b, axis=0)
            y = c
        return y
"""
    made = graph.partition(parse(text), "blas")
    assert list(made.graphs) == ["main", "blas_0"]  # equal regions are one function
    ready = passes.optimise(made)
    assert ready["blas_0"].same(made["blas_0"])
    x = rng.standard_normal((3, 3)).astype(F)
    model = graph.build(made)
    for p in (True, False):
        want = x @ x if p else np.cumsum(x @ x, axis=0)
        np.testing.assert_allclose(model(np.asarray(p), x)[0], want, rtol=1e-4, atol=1e-5)


def raising(*args):
    raise RuntimeError("no luck")


def unlocks(x, y):
    x.flags.writeable = True
    np.maximum(x, 0, out=y)
    x.fill(1)


def c_text(body):
    return lambda f, t: graph.CSource(
        f"void {f.name}(const float *x, float *y, void *space) {{ {body} }}"
    )


DOUBLE = "for (int i = 0; i < 6; ++i) y[i] = x[i] > 0 ? x[i] : 0;"
FAULTS = {
    # What is generated: the message, which also names the generator and the function.
    "generator raises": (lambda f, t: raising(), "the generator raised RuntimeError: no luck"),
    "returns nothing": (lambda f, t: None, "returned None; expected a function of arrays"),
    "function raises": (lambda f, t: raising, "raised RuntimeError: no luck"),
    "wrong shape": (lambda f, t: lambda x, y: x[:1], r"gave result 0 as shape \(1, 3\)"),
    "wrong dtype": (lambda f, t: lambda x, y: x.astype("f8"), "dtype float64; expected shape"),
    "no array": (lambda f, t: lambda x, y: 3, "gave result 0 as a int"),
    "wrong count": (lambda f, t: lambda x, y: (x, x), "gave 2 results; expected 1"),
    "wrong values": (lambda f, t: lambda x, y: x, "result 0 is wrong: .* elements differ"),
    "nothing written": (lambda f, t: lambda x, y: None, "result 0 is wrong: 6 of 6 elements"),
    "zeros not written": (
        lambda f, t: lambda x, y: np.copyto(y, x, where=x > 0),
        "is nan where the evaluator has 0.0",
    ),
    "writes to input": (lambda f, t: lambda x, y: x.fill(0), "raised ValueError.*read-only"),
    "unlocks its input": (lambda f, t: unlocks, "writes to its input 0"),
    "other output": (lambda f, t: lambda x, y: y.resize((9, 9), refcheck=False), "as shape .9, 9"),
    "crash": (lambda f, t: lambda x, y: os.kill(os.getpid(), SIGKILL), "crashed: .* signal 9"),
    "exit": (lambda f, t: lambda x, y: os._exit(0), "ended its process with status 0"),
    "leaves": (lambda f, t: lambda x, y: sys.exit(1), "raised SystemExit"),
    "generator leaves": (lambda f, t: sys.exit(1), "the generator raised SystemExit"),
    "hangs": (lambda f, t: lambda x, y: time.sleep(1000), "did not return within 0.5 seconds"),
    "c: no c": (c_text("this is no C"), "cc refuses the source: source.c"),
    "c: no such function": (c_text("y[0] = nowhere(x);"), "cc refuses the source"),
    "c: unresolved": (
        c_text("extern float nowhere(float); y[0] = nowhere(1);"),
        "ended its process with status 1.*nowhere",
    ),
    "c: zeros not written": (
        c_text("for (int i = 0; i < 6; ++i) if (x[i] > 0) y[i] = x[i];"),
        "is nan where the evaluator has 0.0",
    ),
    "c: wrong values": (c_text("y[0] = 1;"), "result 0 is wrong"),
    "c: crash": (c_text("*(volatile int *)0 = 1;"), "crashed: .* with signal 11"),
    "c: exit": (c_text("extern void _Exit(int); _Exit(0);"), "ended its process"),
    "c: before": (c_text(f"{DOUBLE} y[-1] = 1;"), "writes before or after argument 1"),
    "c: after": (c_text(f"{DOUBLE} y[6] = 1;"), "writes before or after argument 1"),
    "c: workspace": (
        c_text(f"{DOUBLE} *(int *)space = 1;"),
        "writes before or after its workspace",
    ),
    "c: input": (c_text(f"{DOUBLE} ((float *)x)[0] = 9;"), "writes to its input 0"),
}


QUICK = {"c: crash", "c: after", "c: no c"}
"""Of C source, whose faults each take a compiler and a process."""


@pytest.mark.parametrize(
    "name",
    [
        n if not n.startswith("c:") or n in QUICK else pytest.param(n, marks=pytest.mark.long)
        for n in FAULTS
    ],
)
def test_every_fault_names_the_generator(name, scratch, monkeypatch):
    if name == "hangs":
        monkeypatch.setattr(external_check, "SECONDS", 0.5)
    if name.startswith("c:") and CC is None:
        pytest.skip("no C compiler (cc) on the PATH")
    made, message = FAULTS[name]
    graph.external_codegen("acme", [op("Relu")])(made)
    x = graph.var("x", (2, 3))
    mod = graph.partition(graph.module(main=graph.function([x], o.relu(x))), "acme")
    with pytest.raises(graph.ExternalError, match=f"(?s)'acme', function.* acme_0: .*{message}"):
        graph.build(mod)


def test_what_a_first_call_leaves_behind_is_ended(scratch, tmp_path):
    """It is not waited for, and does not stay."""

    def generated(f, t):
        def relu(x, y):
            if not (tmp_path / "pid").exists() and os.fork() == 0:
                (tmp_path / "pid").write_text(str(os.getpid()))
                time.sleep(1000)
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                time.sleep(0.01)
            np.maximum(x, 0, out=y)

        return relu

    graph.external_codegen("acme", [op("Relu")])(generated)
    x = graph.var("x", (3,))
    built = graph.build(graph.partition(graph.module(main=graph.function([x], o.relu(x))), "acme"))
    assert built(np.array([-1, 0, 2], F))[0].tolist() == [0, 0, 2]
    assert ended(int((tmp_path / "pid").read_text()))


def ended(pid):
    """Whether a process ends: it was told to. It stays a zombie until its parent waits for it."""
    for _ in range(1000):
        try:
            stat = (Path("/proc") / str(pid) / "stat").read_text()
        except FileNotFoundError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


@needs_cc
def test_what_c_source_leaves_behind_is_not_waited_for(scratch, monkeypatch, tmp_path):
    """Though it holds the standard output."""
    monkeypatch.setattr(external_c, "SECONDS", 20)
    first = f'access("{tmp_path}/once", 0) && creat("{tmp_path}/once", 384) > 0'
    body = f"""extern int access(const char *, int), creat(const char *, unsigned), fork(void);
        extern unsigned sleep(unsigned);
        if ({first} && fork() == 0) sleep(1000);
        {DOUBLE}"""
    graph.external_codegen("acme", [op("Relu")])(c_text(body))
    x = graph.var("x", (2, 3))
    built = graph.build(graph.partition(graph.module(main=graph.function([x], o.relu(x))), "acme"))
    assert not np.any(built(np.full((2, 3), -1, F))[0])
    assert (tmp_path / "once").exists()


def test_integers_are_compared_beyond_0_and_1(scratch):
    """Of those the least is the product, too."""
    graph.external_codegen("acme", [op("Mul")])(
        lambda f, t: lambda x, y, z: np.minimum(x, y, out=z)
    )
    x, y = graph.var("x", (4,), "int32"), graph.var("y", (4,), "int32")
    mod = graph.partition(graph.module(main=graph.function([x, y], o.mul(x, y))), "acme")
    with pytest.raises(graph.ExternalError, match="result 0 is wrong"):
        graph.build(mod)


def test_a_fault_that_comes_later_names_the_generator_too(scratch):
    state = {"n": 0}

    def step(x, y):
        state["n"] += 1
        if state["n"] == 3:
            return x[0]
        if state["n"] == 4:
            raise KeyError("fourth")
        return np.maximum(x, 0, out=y)

    graph.external_codegen("acme", [op("Relu")])(lambda f, t: step)
    x = graph.var("x", (2, 3))
    model = graph.build(graph.partition(graph.module(main=graph.function([x], o.relu(x))), "acme"))
    given = np.full((2, 3), -1, F)
    assert not model(given)[0].any()
    with pytest.raises(graph.ExternalError, match=r"'acme', function acme_0: gave result 0"):
        model(given)
    with pytest.raises(graph.ExternalError, match="'acme', function acme_0: raised KeyError"):
        model(given)
    assert not model(given)[0].any()


def test_wrong_generators_say_so(scratch):
    mod = perceptron(np.random.default_rng(0))
    table = [
        (lambda: graph.partition(mod, "nobody"), "no code generator is named 'nobody'; there are"),
        (lambda: graph.partition(mod, 3), "no code generator is named 3"),
        (lambda: graph.partition(mod, "blas", patterns=[1]), "patterns"),
        (lambda: graph.external_codegen("a b", [any]), "expected an identifier"),
        (lambda: graph.external_codegen("a", [1]), "the patterns of a"),
        (lambda: graph.external_codegen("a", [any], merge=1), "merge of a"),
        (lambda: graph.external_codegen("a", [any])(3), "it is called"),
    ]
    for make, message in table:
        with pytest.raises(AutoschedError, match=message):
            make()

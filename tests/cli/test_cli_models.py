"""`autosched compile`, `quantise`, `run`, `show` and `bench` on an ONNX file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_runner import Cli
from graph_models import info, model, reference, residual_net
from onnx import helper

from autosched.graph import cache


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A model in a file, in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    proto = residual_net(np.random.default_rng(2))
    onnx.save(proto, "net.onnx")
    return proto


def test_compile_and_run(cli: Cli, net, tmp_path) -> None:
    done = cli("compile", "net.onnx")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("net: 4 kernels (4 distinct, 0 from records)")
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype("f4")
    np.save("x.npy", x)
    want = reference(net, x)[0]
    for source in ("net", "net.onnx"):
        done = cli("run", source, "--input", "x=x.npy", "--output", "y.npz")
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith("y: float32 (1, 5) [")
        np.testing.assert_allclose(np.load("y.npz")["y"], want, rtol=1e-4, atol=1e-5)
    assert len(list((tmp_path / "autosched.db.kernels").iterdir())) == 4


def test_a_folder_that_cannot_be_written_to(cli: Cli, net, tmp_path, monkeypatch) -> None:
    """A model is looked at where it lies; what is to be written there is refused at once."""
    allowed = os.access

    def access(path, mode):
        return Path(path).resolve() != tmp_path and allowed(path, mode)

    monkeypatch.setattr(os, "access", access)
    done = cli("show", "net.onnx", "--as", "plan")
    assert done.status == 0
    assert done.err.startswith(f"compiled kernels are not kept: {tmp_path} cannot be written to")
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
    for option in ("-o", "--cache"):
        done = cli("compile", "net.onnx", option, "out")
        assert (done.status, done.out) == (1, "")
        said = f"{tmp_path} cannot be written to; give a folder that can be"
        folder = "net" if option == "--cache" else "out"
        assert done.err == f"autosched compile: -o {folder}: {said}\n"


def test_kernels_in_a_folder_that_cannot_be_written_to_are_used(
    cli: Cli, net, tmp_path, monkeypatch
) -> None:
    assert cli("compile", "net.onnx").status == 0
    folder = tmp_path / "autosched.db.kernels"
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda p, m: Path(p).resolve() != folder and allowed(p, m))
    removed = min(folder.iterdir())
    removed.unlink()
    kept = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    read = []
    unseal = cache.unseal
    monkeypatch.setattr(cache, "unseal", lambda raw: read.append(raw) or unseal(raw))
    for given in ((), ("--cache", str(folder))):
        done = cli("show", "net.onnx", "--as", "plan", *given)
        assert done.status == 0
        assert done.err.startswith(f"compiled kernels are not kept: {folder} cannot be written to")
        assert {p: p.stat().st_mtime_ns for p in folder.iterdir()} == kept
    assert len(read) == 2 * len(kept)
    monkeypatch.setattr(os, "access", lambda p, m: Path(p).resolve() != tmp_path and allowed(p, m))
    done = cli("show", "net.onnx", "--as", "plan", "--cache", "new")
    assert done.err.startswith(f"autosched show: --cache new: {tmp_path} cannot be written to")


def test_int8_says_how_many_products_it_took(cli: Cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    weights = {
        "q": rng.integers(-128, 128, (16, 8)).astype("i1"), "s": np.full((1, 8), 0.01, "f4"),
        "v": rng.standard_normal((8, 4)).astype("f4"),
    }  # fmt: skip
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=1), helper.make_node("Mul", ["f", "s"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["y"]),
    ]  # fmt: skip
    onnx.save(model(nodes, [info("x", [3, 16])], [info("y", [3, 4])], weights), "m.onnx")
    x = rng.standard_normal((3, 16)).astype("f4")
    np.save("x.npy", x)
    want = x @ (weights["q"] * weights["s"]) @ weights["v"]
    said = (
        "int8: 1 of 2 products of float matrices; the others have no weight of 8 bits with scales"
    )
    for word in (("compile", "-o", "m"), ("run", "--input", "x=x.npy", "--output", "y.npz")):
        done = cli(word[0], "m.onnx", "--precision", "int8", *word[1:])
        assert (done.status, done.err) == (0, f"{said} by column\n")
    error = np.abs(np.load("y.npz")["y"] - want).max()
    assert 1e-5 < error / np.abs(want).max() < 0.02
    assert cli("run", "m.onnx", "--input", "x=x.npy", "--output", "y.npz").err == ""
    np.testing.assert_allclose(np.load("y.npz")["y"], want, rtol=1e-4, atol=1e-4)
    done = cli("run", "m", "--precision", "int8", "--input", "x=x.npy")
    assert done.status != 0
    assert "m is compiled already" in done.err


def test_quantise(cli: Cli, net, tmp_path) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 12, 12)).astype("f4")
    np.savez("x.npz", x=x)
    done = cli("quantise", "net.onnx", "--samples", "x.npz", "--skip", "y", "-o", "small")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[1].startswith("a      Conv ")
    assert done.out.endswith("small: 2 layers of 8 bits\n")
    np.save("x.npy", x[:1])
    assert cli("run", "small", "--input", "x=x.npy", "--output", "y.npz").status == 0
    want = reference(net, x[:1])[0]
    assert np.abs(np.load("y.npz")["y"] - want).max() < 0.1 * np.abs(want).max()
    x[2, 1, 3, 4] = np.nan
    np.savez("nan.npz", x=x)
    done = cli("quantise", "net.onnx", "--samples", "nan.npz", "-o", "ruined")
    assert (done.status, done.out) == (1, "")
    assert "sample 2 (the first is 0) gives layer 'a' no range: input 'x' holds NaN" in done.err
    assert not (tmp_path / "ruined").exists()


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("graph", "op.batch_normalization("),
        ("groups", "def fused_conv_add_relu("),
        ("tasks", "1 x  fused_conv_relu"),
        ("plan", "workspace of"),
        ("script", "@T.prim_func"),
    ],
)
def test_show(cli: Cli, net, form: str, text: str) -> None:
    done = cli("show", "net.onnx", "--as", form)
    assert done.status == 0, done.err
    assert text in done.out


def test_bench(cli: Cli, net) -> None:
    done = cli("bench", "net.onnx", "--rounds", "1", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["seconds"]["autosched"]["min"] > 0
    assert {r["kernel"] for r in found["kernels"]} >= {"fused_conv_relu", "gemm"}
    assert all(r["seconds"] > 0 for r in found["kernels"])


def test_open_sizes_are_fixed_by_shape(cli: Cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = helper.make_node("Relu", ["x"], ["y"])
    onnx.save(model([node], [info("x", ["n", 3])], [info("y", ["n", 3])]), "m.onnx")
    done = cli("compile", "m.onnx")
    assert done.status == 1
    assert "--shape x=" in done.err
    assert cli("compile", "m.onnx", "--shape", "x=4,3").status == 0
    twice = cli("compile", "m.onnx", "--shape", "x=4,3", "--shape", "x=5,3")
    assert (twice.status, "--shape gives the input x two shapes" in twice.err) == (2, True)
    np.save("x.npy", np.ones((5, 3), np.float32))
    done = cli("run", "m.onnx", "--input", "x=x.npy", "--output", "missing/y.npz")
    assert done.status == 1
    assert "--output missing/y.npz cannot be written" in done.err
    assert "y: float32 (5, 3)" in cli("run", "m.onnx", "--input", "x=x.npy").out


def test_tune_and_compile_from_the_records(cli: Cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = {"w": np.ones((16, 8), "f4")}
    onnx.save(model([node], [info("x", [4, 16])], [info("y", [4, 8])], weights), "m.onnx")
    tune = ("tune", "m.onnx", "--trials", "8", "--pool", "replay:model", "--db", "m.db")
    done = cli(*tune, "--quiet", "-o", "out")
    assert (done.status, done.err) == (0, "")
    assert done.out.split()[:7] == ["kernel", "calls", "share", "before", "after", "gain", "trials"]
    assert "8 trials in " in done.out
    done = cli(*tune, "--resume", "--json")
    assert (done.status, done.err) == (0, "")
    (row,) = json.loads(done.out)["kernels"]
    assert (row["title"], row["calls"], row["trials"]) == ("matmul", 1, 8)
    done = cli("compile", "m.onnx", "--db", "m.db", "-o", "again")
    assert done.out.startswith("again: 1 kernels (1 distinct, 1 from records)")
    done = cli("compile", "m.onnx", "--db", "n.db", "-o", "no")
    assert (done.status, sorted(tmp_path.glob("n*"))) == (1, [])
    assert "--db n.db: there is no such file; expected records" in done.err
    np.save("x.npy", np.ones((4, 16), "f4"))
    for folder in ("out", "again"):
        assert cli("run", folder, "--input", "x=x.npy").status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune", "net.onnx", "3"), "a model takes no arguments"),
        (("tune", "net.onnx", "--pool", "tls://h:1"), "--target is missing"),
        (("tune", "net.onnx", "--resume", "--db", "a.json"), "needs a store"),
        (("compile", "none.onnx"), "there is no file none.onnx"),
        (("compile", "net.txt"), "is no ONNX file"),
        (("quantise", "net.onnx", "--samples", "net.onnx"), "expected a file of numpy.savez"),
        (("run", "nowhere"), "neither an ONNX file nor a folder"),
        (("run", "net.onnx", "--input", "x"), "expected NAME=FILE.npy"),
        (("run", "net.onnx"), "inputs are missing: x (float32 ("),
        (("run", "net.onnx", "--input", "z=bad.npy"), "no input is named 'z'; there are x"),
        (("run", "net.onnx", "--input", f"x={__file__}"), "expected numbers as numpy.save writes"),
        (
            ("run", "net.onnx", "--input", "x=one.npz"),
            "an archive, of numpy.savez, with x; expected",
        ),
        (
            ("run", "net.onnx", "--input", "x=bad.npy"),
            "the input 'x' has the shape (1, 3, 12, 12), which (8, 17) does not fit",
        ),
        (("show", "net.onnx", "--as", "asm"), "expected one of graph, groups"),
        (("show", "12", "--as", "graph"), "expected one of schedule"),
        (("show", "net.onnx", "--json"), "--json and --workload are of a record"),
        (("bench", "net.onnx", "3"), "a model takes no arguments"),
        *(
            ((*command, "-o", f"{file}"), f"-o {file}: net.onnx is no folder; expected a folder")
            for command in (
                ("compile", "net.onnx"),
                ("quantise", "net.onnx", "--samples", "none.npz"),
                ("tune", "net.onnx", "--trials", "1"),
            )
            for file in ("net.onnx", "net.onnx/a")
        ),
        *(
            ((*command, "--cache", "net.onnx"), "--cache net.onnx: net.onnx is no folder")
            for command in (("compile", "net.onnx"), ("run", "net.onnx"), ("bench", "net.onnx"))
        ),
    ],
)
def test_mistakes(cli: Cli, net, arguments: tuple[str, ...], message: str) -> None:
    np.save("bad.npy", np.ones((8, 17), "f4"))
    np.savez("one.npz", x=np.ones((1, 3, 12, 12), "f4"))
    done = cli(*arguments)
    assert done.status == 1
    assert message in done.err


@pytest.mark.parametrize("operator", ["Relu", "NonZero"])
def test_a_model_without_kernels_is_not_tuned(cli: Cli, tmp_path, monkeypatch, operator) -> None:
    """Of a batch of 0, or in NumPy alone: without a number of trials, too."""
    monkeypatch.chdir(tmp_path)
    rows = 4 if operator == "NonZero" else 0
    node = helper.make_node(operator, ["x"], ["y"])
    onnx.save(model([node], [info("x", ["n", 8])], [info("y", None)]), "m.onnx")
    for trials in ((), ("--trials", "4")):
        done = cli("tune", "m.onnx", "--shape", f"x={rows},8", *trials)
        assert (done.status, done.out) == (1, "")
        assert "no kernel to tune: all that it computes are views, constants, arrays" in done.err

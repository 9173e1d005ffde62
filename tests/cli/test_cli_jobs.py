"""`autosched jobs` against a server in this process."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_runner import COMMAND, Cli
from graph_models import info, model
from onnx import helper
from serving import serving

import autosched as at
from records import Store
from records.operations.tokens import Tokens
from server.client import Client
from server.settings import Settings

SMALL = ("matmul", "16", "16", "16", "--per-round", "4")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = Settings(
        db=str(tmp_path_factory.mktemp("jobs") / "x.db"),
        pool="replay:model?seconds=0.02",
        poll_seconds=0.1,
        examine_processes=1,
        jobs_at_once=2,
    )
    with serving(settings) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def jobs(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """`cli("jobs", ...)`, the server being named by the environment."""
    monkeypatch.setenv("AUTOSCHED_SERVER", url)
    return cli


def job_id(text: str) -> str:
    (found,) = set(re.findall(r"\b[0-9a-f]{32}\b", text))
    return str(found)


def test_submitting_and_watching(jobs: Cli) -> None:
    done = jobs("jobs", "submit", *SMALL, "--trials", 12, "--watch")
    assert done.status == 0, done.err
    name = job_id(done.out + done.err)
    assert re.search(rf"^job {name} succeeded: 12/12 trials, best .* GFLOP/s", done.out)
    assert f"job {name}: running (claimed)" in done.err
    assert re.search(r"^12/12 trials, best .*s, .* GFLOP/s", done.err, re.MULTILINE)
    again = jobs("jobs", "watch", name)
    assert (again.status, again.out) == (0, done.out)
    listed = jobs("jobs", "list", "--state", "succeeded", "--limit", 50)
    assert re.search(rf"^{name}  succeeded +12/12 .*matmul\(16, 16, 16", listed.out, re.MULTILINE)
    assert len(jobs("jobs", "list", "--limit", 1).out.splitlines()) == 1


def test_everything_as_json(jobs: Cli) -> None:
    job = json.loads(jobs("jobs", "submit", *SMALL, "--trials", 4, "--seed", 3, "--json").out)
    assert (job["workload_name"], job["seed"], job["state"]) == ("matmul", 3, "queued")
    lines = jobs("jobs", "watch", job["id"], "--json").out.splitlines()
    *events, result = map(json.loads, lines)
    assert {e["kind"] for e in events} == {"state", "phase", "progress"}
    assert (result["event"], result["id"], result["trials_done"]) == ("result", job["id"], 4)
    found = [json.loads(line) for line in jobs("jobs", "list", "--json").out.splitlines()]
    assert job["id"] in [each["id"] for each in found]


def test_scripts_and_functions_of_ones_own(
    jobs: Cli, my_ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = json.loads(
        jobs("jobs", "submit", f"{my_ops.name}:rows", 4, 8, "--trials", 1, "--json").out
    )
    assert own["workload_key"] == at.SearchTask(f"{my_ops}:rows", (4, 8)).workload_key
    task = at.SearchTask("softmax", (4, 8))
    Path("p.py").write_text(task.prim_func.script())
    job = json.loads(jobs("jobs", "submit", "--script", "p.py", "--trials", 1, "--json").out)
    assert job["workload_key"] == task.workload_key
    for wrong in ((), ("matmul", "--script", "p.py")):
        done = jobs("jobs", "submit", *wrong)
        assert done.status == 1
        assert done.err == "autosched jobs: expected either a WORKLOAD or --script FILE\n"


def test_cancelling_and_resuming(jobs: Cli) -> None:
    name = job_id(jobs("jobs", "submit", *SMALL, "--trials", 3000).out)
    done = jobs("jobs", "cancel", name)
    assert re.match(rf"job {name} of matmul\(.*\) is cancell(ed|ing)\n", done.out)
    watched = jobs("jobs", "watch", name)
    assert watched.status == 1
    assert f"job {name} cancelled: " in watched.out
    assert "is queued" in jobs("jobs", "resume", name, "--trials", 1).out
    jobs("jobs", "cancel", name)


def test_pausing(jobs: Cli) -> None:
    name = job_id(jobs("jobs", "submit", *SMALL, "--trials", 3000).out)
    assert re.match(
        rf"job {name} of matmul\(.*\) is paus(ed|ing)\n", jobs("jobs", "pause", name).out
    )
    assert re.search(r"is (queued|running)", jobs("jobs", "resume", name).out)
    jobs("jobs", "cancel", name)
    done = jobs("jobs", "pause", "nobody")
    assert (done.status, "no job nobody" in done.err) == (1, True)


def test_ctrl_c_ends_the_watching_and_not_the_job(jobs: Cli, url: str) -> None:
    name = job_id(jobs("jobs", "submit", *SMALL, "--trials", 3000).out)
    command = [*COMMAND, "jobs", "watch", name, "--server", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        while "trials" not in watching.stderr.readline():
            pass
        watching.send_signal(signal.SIGINT)
        rest = watching.stderr.read()
    assert watching.returncode == 130
    assert "no longer watching; the job goes on" in rest
    assert f"to follow it again: autosched jobs watch {name} --server {url}\n" in rest
    with Client(url) as client:
        assert client.job(name).state == "running"
        client.cancel(name)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("cancel", "nobody"), "nobody: no job nobody"),
        (("list", "--name", "\udcff"), "expected text in utf-8, found"),
        (("submit", "matmul", 4, 5, 6, "--key", "\xe9"), "expected text in ascii, found"),
        (("show", "\udcff"), "String should match pattern"),
        (("submit", "matmul", 4, 5, 6, "--name", "\udcff"), "expected text in utf-8, found"),
        (("show", "nobody"), "There is no such thing: no job nobody"),
        (("submit", "nothing", 1), "nothing"),
        (("submit", "matmul", 4, 5), "'M'"),
        (("submit", "matmul", 4, 5, 6, "--shape", "x=1"), "--shape is of a model, and matmul is"),
        (("submit", "--script", sys.executable), "is no text in UTF-8"),
        (("list", "--token-file", "none"), "--token-file none cannot be read: No such file"),
        (("list", "--token-file", "/"), "--token-file / cannot be read: Is a directory; expected"),
        (("list", "--token-file", sys.executable), "is no text; expected a file with one token"),
        (("list", "--token-file", os.devnull), "is empty; expected a file with one token"),
        (("list", "--server", "tuner:8000"), "no address of a server; expected http://HOST:PORT"),
    ],
)
def test_mistakes(jobs: Cli, arguments: tuple[object, ...], text: str) -> None:
    done = jobs("jobs", *arguments)
    assert done.status == 1
    assert done.err.startswith("autosched jobs: ")
    assert text in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_script_that_is_no_text_is_refused_in_every_locale(
    jobs: Cli, monkeypatch: pytest.MonkeyPatch, errors: str
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", stdin)
    done = jobs("jobs", "submit", "--script", "-")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("autosched jobs: --script - is no text in UTF-8; expected")


def test_the_token_is_sent(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = str(tmp_path / "x.db")
    with Store(db) as store:
        token = Tokens(store).create("ann", "submit", None)[0]
    settings = Settings(db=db, pool="replay:model", jobs_at_once=0, require_tokens=True)
    with serving(settings) as client:
        server = ("--server", str(client.base_url))
        assert "A token is needed" in cli("jobs", "list", *server).err
        (tmp_path / "token").write_text(f"{token}\n")
        assert cli("jobs", "list", *server, "--token-file", tmp_path / "token").status == 0
        monkeypatch.setenv("AUTOSCHED_TOKEN", token)
        assert "queued" in cli("jobs", "submit", "matmul", 4, 4, 4, *server).out


def test_a_server_that_is_not_there_is_told_of_at_once(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watching does not wait a minute for a server to be started."""
    slept: list[float] = []
    monkeypatch.setattr("server.client.answers.time.sleep", slept.append)
    for action in ("watch", "show", "cancel"):
        found = cli("jobs", action, "1" * 32, "--server", "http://127.0.0.1:9")
        assert found.status != 0
        assert "does not answer" in found.err
        assert "is the server running?" in found.err
    assert slept == []


def test_jobs_by_the_beginning_of_their_ids(jobs: Cli) -> None:
    made = jobs(
        "jobs", "submit", *SMALL, "--trials", 4, "--name", "short one", "--tag", "cli", "--watch"
    )
    name = job_id(made.out + made.err)
    assert f"job {name}: searching" in made.err
    shown = jobs("jobs", "show", name[:10])
    assert (shown.status, job_id(shown.out)) == (0, name)
    assert "of short one is succeeded" in shown.out
    assert re.search(r"best .*s, .* GFLOP/s, .* times as fast as the baseline", shown.out)
    listed = jobs("jobs", "list", "--name", "SHORT", "--tag", "cli", "--since", "2020-01-01")
    assert listed.out.startswith(name)
    assert jobs("jobs", "list", "--tag", "cli", "--until", "2020-01-01").out == ""
    clone = json.loads(jobs("jobs", "clone", name[:8], "--seed", 77, "--json").out)
    assert (clone["seed"], clone["name"], clone["tags"]) == (77, "short one", ["cli"])
    cancelled = jobs("jobs", "cancel", clone["id"][:12], "0000000000")
    assert cancelled.status == 1
    assert job_id(cancelled.out) == clone["id"]
    assert "0000000000: no job" in cancelled.err
    assert jobs("jobs", "delete", name[:12]).status == 0
    assert "no job" in jobs("jobs", "show", name).err


def test_quotas_of_tokens(cli: Cli, tmp_path: Path) -> None:
    db = ("--db", tmp_path / "x.db")
    cli("token", "create", "--name", "ann", "--scope", "submit", "--max-jobs", 3, *db)
    (token,) = json.loads(cli("token", "list", "--json", *db).out)
    assert token["quota"] == {"jobs": 3, "trials": None, "device_seconds": None}
    limited = cli("token", "limit", token["id"], "--max-trials", 50, *db)
    assert re.search(r"ann +submit +valid .* 0 +0/50 +0$", limited.out, re.MULTILINE)
    assert "no token nobody" in cli("token", "limit", "nobody", *db).err


def test_a_model_is_submitted_without_its_weights_and_compiled_from_the_records(
    jobs: Cli, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = {n: np.random.default_rng(0).standard_normal((16, 16)).astype("f4") for n in "wv"}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Tanh", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "v"], ["r"]),
        helper.make_node("Tanh", ["r"], ["y"]),
    ]
    proto = model(nodes, [info("x", ["n", 16])], [info("y", ["n", 16])], weights)
    onnx.save(proto, "net.onnx")
    failed = jobs("jobs", "submit", "net.onnx")
    assert (failed.status, "--shape x=" in failed.err) == (1, True)
    assert "takes no arguments" in jobs("jobs", "submit", "net.onnx", 3).err
    assert "there is no file no.onnx" in jobs("jobs", "submit", "no.onnx").err
    assert "--shape is of a model" in jobs("jobs", "submit", *SMALL, "--shape", "x=1").err
    asked = ("net.onnx", "--shape", "x=8,16", "--trials", 6, "--per-round", 3)
    done = jobs("jobs", "submit", *asked, "--watch")
    assert done.status == 0, done.err
    assert re.search(r"^fused_matmul_tanh +2 +100.0% .* 6/6 +succeeded$", done.out, re.MULTILINE)
    assert re.search(r"^6/6 trials, kernels .* untuned: .* x$", done.out, re.MULTILINE)
    again = json.loads(jobs("jobs", "submit", *asked, "--seed", 1, "--json").out)
    assert (again["name"], again["model"]["gain"]) == ("net", 1.0)
    shown = jobs("jobs", "show", again["id"]).out
    assert "a task of a model, whose kernels take" in shown
    jobs("jobs", "cancel", again["id"])
    target = again["target"]
    built = jobs("compile", "net.onnx", "--shape", "x=8,16", "--db", url, "--target", target)
    assert built.status == 0, built.err
    assert built.out.startswith("net: 2 kernels (1 distinct, 2 from records)")

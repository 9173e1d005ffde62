"""`autosched best|show|records --server`: what a service has, told as what a database has."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_runner import WORKLOAD, Cli, Done, Tuned
from graph_models import info, model
from onnx import helper
from serving import serving

from records import Store
from server.settings import Settings


@pytest.fixture(scope="module")
def db(tuned: Tuned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tuned store."""
    return Path(shutil.copy(tuned.db, tmp_path_factory.mktemp("remote") / "x.db"))


@pytest.fixture(scope="module")
def url(db: Path) -> Iterator[str]:
    """A server of that store, which measures nothing."""
    settings = Settings(db=str(db), pool="replay:model", jobs_at_once=0, examine_processes=1)
    with serving(settings) as client:
        yield str(client.base_url).rstrip("/")


def same(cli: Cli, db: Path, url: str, *arguments: object) -> Done:
    """What a command answers of both, which is the same."""
    local, remote = cli(*arguments, "--db", db), cli(*arguments, "--server", url)
    assert (remote.status, remote.out) == (local.status, local.out)
    assert remote.err.replace(url, str(db)) == local.err
    return remote


def test_the_best(cli: Cli, db: Path, url: str) -> None:
    assert same(cli, db, url, "best", *WORKLOAD).status == 0
    assert '"trace"' in same(cli, db, url, "best", *WORKLOAD, "--json").out
    assert "def apply" in same(cli, db, url, "best", *WORKLOAD, "--as", "schedule").out
    assert same(cli, db, url, "best", *WORKLOAD, "--compatible").status == 0


def test_without_a_best_it_is_told_how_to_make_one(cli: Cli, url: str) -> None:
    none = cli("best", "matmul", 5, 6, 7, "--server", url)
    assert (none.status, none.out) == (1, "")
    assert f"to make some: autosched jobs submit matmul 5 6 7 --server {url}" in none.err
    assert (
        "compatible target" in cli("best", "matmul", 5, 6, 7, "--server", url, "--compatible").err
    )


def test_a_record(cli: Cli, db: Path, url: str) -> None:
    for more in ([], ["--json"], ["--as", "script"]):
        assert same(cli, db, url, "show", 3, *more).status == 0
    assert "no record 99" in same(cli, db, url, "show", 99).err


def test_records_out_and_in(cli: Cli, db: Path, url: str, tmp_path: Path) -> None:
    logs = [tmp_path / "local.json", tmp_path / "remote.json"]
    filters = ("--status", "ok")
    local = cli("records", "export", logs[0], "--db", db, *filters)
    remote = cli("records", "export", logs[1], "--server", url, *filters)
    assert (remote.status, remote.err) == (0, local.err)
    assert logs[1].read_bytes() == logs[0].read_bytes()
    with logs[1].open("a") as log:
        log.write('{"torn\n')
    taken = cli("records", "import", logs[1], "--server", url)
    assert taken.status == 0
    assert "0 new, 10 known, 1 refused" in taken.err
    assert "not JSON" in taken.err


@pytest.mark.parametrize(("scheme", "path"), [("http", ""), ("HTTP", "/v1/")])
def test_a_model_is_compiled_from_the_records_of_a_service(
    cli: Cli, url: str, tmp_path: Path, scheme: str, path: str
) -> None:
    weights = {"w": np.ones((16, 8), "f4")}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    proto = model(nodes, [info("x", [4, 16])], [info("y", [4, 8])], weights)
    onnx.save(proto, tmp_path / "m.onnx")
    address = url.replace("http", scheme, 1) + path
    done = cli("compile", tmp_path / "m.onnx", "--db", address, "-o", tmp_path / "m")
    assert (done.status, done.err) == (0, "")
    assert "1 kernels (1 distinct, 0 from records)" in done.out


def test_a_path_with_no_service_is_not_one_without_records(
    cli: Cli, url: str, tmp_path: Path
) -> None:
    onnx.save(model([], [info("x", [1])], [info("x", [1])], {}), tmp_path / "m.onnx")
    done = cli("compile", tmp_path / "m.onnx", "--db", f"{url}/jobs", "-o", tmp_path / "m")
    assert (done.status, done.out) == (1, "")
    assert f"there is no autosched service at {url}/jobs" in done.err
    assert not (tmp_path / "m").exists()


def test_a_service_that_is_given_as_a_database_is_told_where_it_belongs(cli: Cli, url: str) -> None:
    done = cli("best", *WORKLOAD, "--db", url)
    assert done.status == 1
    assert "take its address with --server" in done.err


def test_one_of_db_and_server(cli: Cli) -> None:
    assert "not allowed with" in cli("show", 1, "--db", "x.db", "--server", "http://x").err


@pytest.mark.parametrize(
    "command",
    [("best", *WORKLOAD), ("show", "1"), ("records", "export", "-"), ("jobs", "watch", "9f2c")],
    ids=lambda command: command[0],
)
def test_nobody_there_is_told_at_once(cli: Cli, command: tuple[str, ...]) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        done = cli(*command, "--server", url)
    assert done.status == 1
    assert f"{url} does not answer" in done.err
    assert "is the server running?" in done.err
    assert time.monotonic() - began < 30, "it has waited for a server to be started"


def test_the_source_has_all_that_a_store_has(db: Path, url: str) -> None:
    from server.client import Client
    from server.client.remote_records import RemoteRecords

    with RemoteRecords(Client(url)) as remote, Store(db) as store:
        records = list(store.records(limit=3))
        assert list(remote.records(limit=3)) == records
        assert list(remote.records(after_id=records[1].id, limit=1)) == records[2:]
        assert list(remote.workloads()) == list(store.workloads())
        key = records[0].workload_key
        assert remote.devices(key) == store.devices(key)
        best = store.best(key)
        assert remote.measurements(best.id) == store.measurements(best.id)
        assert remote.best(key, exclude=[best.id]) == store.best(key, exclude=[best.id])

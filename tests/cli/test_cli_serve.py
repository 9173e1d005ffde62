"""`autosched serve`: what it starts with, what it refuses to start with, how it ends."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from autosched.cli.main import main
from records import Store
from server.settings import Settings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"AUTOSCHED_{name.upper()}", raising=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A server started with no configuration but a free port."""
    with open(tmp_path / "log", "w") as log:
        command = [sys.executable, "-m", "autosched.cli", "serve", "--port", "0"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_it_starts_with_nothing_and_says_where(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert server.stdout is not None
    told = server.stdout.readline()
    found = re.fullmatch(
        r"autosched serves (http://127\.0\.0\.1:\d+)/ \(pages\), (http://\S+) \(API\)\n", told
    )
    assert found, told + (tmp_path / "log").read_text()
    assert httpx.get(f"{found[1]}/readyz", timeout=60).json()["status"] == "ok"
    assert httpx.get(found[2], timeout=60).json()["info"]["title"] == "autosched"
    assert httpx.get(f"{found[1]}/", headers={"Accept": "text/html"}, timeout=60).status_code == 200
    assert (tmp_path / "autosched.db").exists()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    assert "Application shutdown complete" in (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said by a server that does not start."""
    assert main(["serve", *arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_off_loopback_without_a_token_it_does_not_start(
    capsys: pytest.CaptureFixture[str], host: str
) -> None:
    said = refused(capsys, "--host", host, "--db", "x.db")
    assert "every request needs a token, and there is none that is valid" in said
    command = re.search(r"`autosched (token create .*)`", said)
    assert command
    words = command[1].replace("NAME", "ann").split()
    assert main(words) == 0
    token = capsys.readouterr().out.strip()
    (token_id,) = re.findall(r"as_(\w{12})_", token)
    assert main(["token", "revoke", token_id, "--db", "x.db"]) == 0
    assert "none that is valid" in refused(capsys, "--host", host, "--db", "x.db")


def test_an_address_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused(capsys, "--port", port, "--db", "x.db")
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said
    assert not Path("x.db").exists(), "a database was made for nothing"


def test_a_database_of_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Store("x.db").close()
    connection = sqlite3.connect("x.db")
    connection.execute("UPDATE alembic_version SET version_num = '0002'")
    connection.commit()
    connection.close()
    assert "run `autosched db upgrade --db " in refused(capsys, "--db", "x.db")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "port (from the command line): Input should be less than"),
        (["--port", "http"], "port (from the command line): Input should be a valid integer"),
        (["--settings", "none.toml"], "cannot read the settings in none.toml: No such file"),
        (["--db", "/none/x.db"], "no folder /none"),
        (["--db", "mongodb://x/y"], "no such kind of database"),
        (["--host", "no such host"], "cannot listen on"),
        (["--host", ""], "host (from the command line): String should have at least 1 character"),
        (
            ["--pool", "foo"],
            "pool (from the command line): Value error, 'foo' is no pool's address",
        ),
        (["--pool", ""], "pool (from the command line): Value error, '' is no pool's address"),
        (["--pool", "local?x=1"], "pool local?x=1: unknown option x; it has device"),
    ],
)
def test_what_cannot_be(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    said = refused(capsys, *arguments)
    assert message in said or "tokens" in said or "needs a token" in said
    assert "Traceback" not in said


def test_an_unknown_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_PROT", "1")
    assert "unknown setting AUTOSCHED_PROT in the environment; did you mean port?" in (
        refused(capsys)
    )


def test_the_help_teaches_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = capsys.readouterr().out
    for name, field in Settings.model_fields.items():
        assert re.search(rf"^  {name} +{re.escape(field.description or '?')} \(", said, re.M), name
    assert "autosched token create" in said

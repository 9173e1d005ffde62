"""What the service tells about itself: metrics, health, logs without secrets."""

from __future__ import annotations

import io
import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import serving

from records import Store
from records.operations.tokens import Tokens
from server.http import logs
from server.http.auth import COOKIE
from server.jobs.supervisor import Supervisor
from server.settings import Settings

JOB = {"workload": {"name": "matmul", "args": [8, 8, 8]}}


def sample(text: str, name: str, **labels: str) -> float:
    """The value of one metric; 0 where there is none yet."""
    for line in text.splitlines():
        found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if found and dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")) == labels:
            return float(found[2])
    return 0.0


def test_requests_are_counted_by_template_method_and_status(tmp_path: Path) -> None:
    with serving(Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)) as client:
        for n in range(3):
            client.get(f"/v1/jobs/{n:032}")
        client.get("/none/1")
        client.get("/none/2")
        client.request("MOVE", "/v1/jobs")
        text = client.get("/metrics").text
        assert client.get("/metrics").headers["content-type"].startswith("text/plain")
    route = {"route": "/v1/jobs/{job_id}", "method": "GET"}
    assert sample(text, "autosched_requests_total", **route, status="404") == 3
    assert sample(text, "autosched_request_seconds_count", **route) == 3
    unmatched = {"route": "unmatched", "method": "GET", "status": "404"}
    assert sample(text, "autosched_requests_total", **unmatched) == 2
    brewed = {"route": "unmatched", "method": "other", "status": "405"}
    assert sample(text, "autosched_requests_total", **brewed) == 1
    assert "/none/1" not in text
    assert sample(text, "process_resident_memory_bytes") > 1e6


def test_jobs_and_trials_are_counted(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)
    with serving(settings) as client:
        text = client.get("/metrics").text
        assert sample(text, "autosched_jobs", state="queued") == 0
        assert sample(text, "autosched_database_up") == 1
        assert sample(text, "autosched_queue_age_seconds") == 0
        ids = [client.post("/v1/jobs", json=JOB).raise_for_status().json()["id"] for _ in range(3)]
        client.post(f"/v1/jobs/{ids[0]}/cancel").raise_for_status()
        text = client.get("/metrics").text
        assert sample(text, "autosched_jobs", state="queued") == 2
        assert sample(text, "autosched_jobs", state="cancelled") == 1
        assert sample(text, "autosched_jobs_here") == 0
        assert sample(text, "autosched_workers", healthy="true") == 1
        assert sample(text, "autosched_workers", healthy="false") == 0
        assert 0 < sample(text, "autosched_queue_age_seconds") < 100


def test_readiness_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)
    with serving(settings) as client:
        assert client.get("/readyz").json()["status"] == "ok"
        connection = sqlite3.connect(settings.db)
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
        connection.close()
        answer = client.get("/readyz")
        assert (answer.status_code, "9999" in answer.json()["detail"]) == (503, True)
        assert client.get("/healthz").status_code == 200


def test_a_supervisor_that_is_gone_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "healthy", False)
    with serving(Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, "looks after" in answer.json()["detail"]) == (503, True)


# Logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the service logs, as it is configured by `autosched serve`; as before afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("info", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_request_is_a_line_with_its_id(lines: io.StringIO, tmp_path: Path) -> None:
    with serving(Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)) as client:
        answer = client.get("/v1/records?job_id=secret", headers={"X-Request-ID": "mine"})
        told = next(e for e in entries(lines) if e.get("path") == "/v1/records")
        missing = client.get("/v1/jobs/abc")
        lost = next(e for e in entries(lines) if e.get("path") == "/v1/jobs/abc")
    assert told["request_id"] == answer.headers["x-request-id"]
    assert (told["method"], told["status"], told["client"]) == ("GET", 200, "local")
    assert lost["request_id"] == missing.headers["x-request-id"] == missing.json()["request_id"]
    assert (lost["route"], lost["status"]) == ("/v1/jobs/{job_id}", 404)
    assert told["seconds"] > 0
    assert told["time"].endswith("+00:00")
    assert "secret" not in lines.getvalue()


def test_tokens_are_in_no_log(lines: io.StringIO, tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, require_tokens=True)
    with Store(settings.db) as store:
        text, _ = Tokens(store).create("ann", "admin", 60)
    secret = text[-43:]
    with serving(settings) as client:
        for headers in (
            {"Authorization": f"Bearer {text}"},
            {"Authorization": f"Basic {text}"},
            {"Cookie": f"{COOKIE}={text}"},
        ):
            client.get("/v1/jobs", headers=headers)
        client.get(f"/v1/jobs/{text}", headers={"Authorization": f"Bearer {text}"})
        client.get(f"/v1/jobs?token={text}")
    logging.getLogger("x").error("it was %s at postgresql://u:hunter2@h/db?password=abc", text)
    assert secret not in lines.getvalue()
    assert "hunter2" not in lines.getvalue()
    assert "abc" not in lines.getvalue().splitlines()[-1].replace("autosched", "")
    assert len([e for e in entries(lines) if e.get("status") == 401]) == 2


def test_lines_are_json_whatever_is_logged(lines: io.StringIO) -> None:
    logger = logging.getLogger("autosched.x")
    mark = logs.job_id.set("j1")
    logger.warning("two\nlines \x1b[31m \ud800 %s", "é", extra={"path": Path("/a"), "n": 3})
    logs.job_id.reset(mark)
    try:
        raise ValueError("bearer as_0123456789ab_secret")
    except ValueError:
        logger.exception("failed")
    first, second = entries(lines)
    assert (first["job_id"], first["n"], first["path"], first["level"]) == (
        *("j1", 3, "/a", "warning"),
    )
    assert "two\nlines" in first["message"]
    assert "job_id" not in second
    assert "ValueError" in second["exception"]
    assert "secret" not in second["exception"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as_0123456789ab_abc-DEF_1", "as_0123456789ab_***"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("postgresql+psycopg://ann:p%40ss@host/x", "postgresql+psycopg://ann:***@host/x"),
        (
            "postgresql://host/x?user=a&password=b&c=d",
            "postgresql://host/x?user=a&password=***&c=d",
        ),
        ("http://host:80/path@x", "http://host:80/path@x"),
        ("nothing secret", "nothing secret"),
    ],
)
def test_redaction(text: str, shown: str) -> None:
    assert logs.redact(text) == shown

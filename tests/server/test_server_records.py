"""Records over HTTP: the best, programs as text, tags, export and import."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import submit, wait_for
from serving import serving

import autosched as at
from autosched.script import parse_func
from autosched.tir.canonical import program_hash
from autosched.tuning import SearchTask
from server.settings import Settings


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server that has run one job on made-up devices."""
    db = str(tmp_path_factory.mktemp("server") / "x.db")
    settings = Settings(db=db, pool="replay:model", poll_seconds=0.1, examine_processes=1)
    with serving(settings) as client:
        job = submit(client, 8, args=[24, 40, 56])
        assert wait_for(client, job["id"], "succeeded", "failed")["state"] == "succeeded"
        yield client


@pytest.fixture(scope="module")
def task() -> SearchTask:
    return SearchTask("matmul", (24, 40, 56))


@pytest.fixture(scope="module")
def best(client: httpx.Client, task: SearchTask) -> dict[str, Any]:
    answer = client.get("/v1/best", params={"workload_key": task.workload_key})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def test_the_best_is_of_those_measured_again(client: httpx.Client, best: dict[str, Any]) -> None:
    records = client.get("/v1/records", params={"status": "ok"}).json()["items"]
    again = [r["remeasured_seconds"] for r in records if r["remeasured_seconds"]]
    assert best["remeasured_seconds"] == min(again)


def test_a_short_target_is_this_machine(
    client: httpx.Client, task: SearchTask, best: dict[str, Any]
) -> None:
    asked = {"workload_key": task.workload_key, "target": "llvm"}
    assert client.get("/v1/best", params=asked).json() == best
    found = client.get("/v1/records", params=asked).json()["items"]
    assert {r["target"] for r in found} == {str(task.target)}


def test_without_a_best_the_answer_says_why(client: httpx.Client, task: SearchTask) -> None:
    asked = {"workload_key": task.workload_key, "target": "llvm -mcpu=haswell"}
    answer = client.get("/v1/best", params=asked)
    assert answer.status_code == 404
    assert str(task.target) in answer.json()["detail"]  # where there are some


def test_the_schedule_runs_as_it_is(
    client: httpx.Client, task: SearchTask, best: dict[str, Any]
) -> None:
    answer = client.get(f"/v1/records/{best['id']}/schedule").raise_for_status()
    assert answer.headers["content-type"].startswith("text/x-python")
    namespace: dict[str, Any] = {"__name__": "schedule"}
    exec(answer.text, namespace)
    schedule = at.Schedule(task.prim_func)
    namespace["apply"](schedule)
    script = client.get(f"/v1/records/{best['id']}/script").raise_for_status().text
    assert schedule.func.script().strip() == script.strip()
    assert program_hash(parse_func(script)) == best["program_hash"]


@pytest.mark.parametrize(("form", "word"), [("llvm", "define void"), ("asm", ".text")])
def test_the_source_is_what_is_compiled(
    client: httpx.Client, best: dict[str, Any], form: str, word: str
) -> None:
    answer = client.get(f"/v1/records/{best['id']}/source", params={"form": form})
    assert answer.status_code == 200
    assert word in answer.text


@pytest.mark.parametrize("path", ["", "/schedule", "/script", "/source"])
def test_what_the_client_has_is_not_sent_again(
    client: httpx.Client, best: dict[str, Any], path: str
) -> None:
    where = f"/v1/records/{best['id']}{path}"
    tag = client.get(where).headers["etag"]
    again = client.get(where, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(where, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["", "/schedule", "/script", "/source"])
def test_unknown_records_are_not_found(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/v1/records/999999{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_answers_are_compressed(client: httpx.Client) -> None:
    with client.stream("GET", "/v1/records", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        body = b"".join(answer.iter_raw())
    assert json.loads(gzip.decompress(body))["items"]


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("br, GZIP;q=0.5", "gzip"), ("gzip;q=0", None), ("gzip; q=0.0, br", None), ("identity", None)],
    ids=["some", "none", "not gzip", "as it is"],
)
def test_who_takes_no_gzip_gets_none(
    client: httpx.Client, accepted: str, coding: str | None
) -> None:
    answer = client.get("/v1/records", headers={"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == coding
    assert "accept-encoding" in answer.headers["vary"].lower()
    assert answer.json()["items"]


def test_an_export_is_imported_once_and_never_the_best(
    client: httpx.Client, task: SearchTask, tmp_path: Path
) -> None:
    log = client.get("/v1/records/export").raise_for_status()
    assert log.headers["content-type"] == "application/x-ndjson"
    lines = log.text.splitlines()
    assert json.loads(lines[0])["kind"] == "workload"
    one = client.get("/v1/records/export", params={"kind": "baseline"}).text.splitlines()
    assert sum(json.loads(line)["kind"] == "baseline" for line in one) == 2

    settings = Settings(db=str(tmp_path / "y.db"), jobs_at_once=0, examine_processes=1)
    with serving(settings) as other:
        kind = {"Content-Type": "application/x-ndjson"}
        body = log.content + b'{"torn": \n'
        first = other.post("/v1/records/import", content=body, headers=kind).json()
        assert (first["known"], first["refused"]) == (0, 1)
        assert first["new"] >= 10
        assert first["reasons"][0].startswith(f"line {len(lines) + 1}: ")
        again = other.post("/v1/records/import", content=body, headers=kind).json()
        assert (again["new"], again["known"]) == (0, first["new"])

        answer = other.get("/v1/best", params={"workload_key": task.workload_key})
        assert answer.status_code == 404
        assert "imported" in answer.json()["detail"]
        (job,) = other.get("/v1/jobs").json()["items"]
        assert (job["origin"], other.post(f"/v1/jobs/{job['id']}/resume", json={}).status_code) == (
            *("import", 409),
        )
        record = other.get("/v1/records").json()["items"][0]
        assert other.get(f"/v1/records/{record['id']}/schedule").status_code == 200


def test_a_record_of_an_unknown_kind_of_target_is_shown(
    client: httpx.Client, tmp_path: Path
) -> None:
    """A log may be of a later version, with kinds of targets that this one lacks."""
    lines = [json.loads(line) for line in client.get("/v1/records/export").text.splitlines()]
    for line in lines:
        if line["kind"] != "workload":
            line["target"] = "vax -mcpu=<b>"
    body = "\n".join(map(json.dumps, lines)).encode()
    with serving(Settings(db=str(tmp_path / "v.db"), jobs_at_once=0, examine_processes=1)) as other:
        kind = {"Content-Type": "application/x-ndjson"}
        assert other.post("/v1/records/import", content=body, headers=kind).json()["refused"] == 0
        record = other.get("/v1/records", params={"status": "ok"}).json()["items"][0]
        for path in (f"/records/{record['id']}", f"/jobs/{record['job_id']}"):
            page = other.get(path, headers={"Accept": "text/html"})
            assert (page.status_code, "vax -mcpu=&lt;b&gt;" in page.text) == (200, True)
        for path in ("schedule", "files/py", "files/o"):
            answer = other.get(f"/v1/records/{record['id']}/{path}")
            assert (answer.status_code, "vax" in answer.json()["detail"]) == (409, True)
        assert "expected a target of llvm, cuda, opencl" in answer.json()["detail"]
        asked = {"Accept": "text/html"}
        for path in ("text/schedule", "text/source", "listing"):
            assert other.get(f"/records/{record['id']}/{path}", headers=asked).status_code == 409
        assert other.get(f"/v1/jobs/{record['job_id']}/best/py").status_code in (404, 409)


def test_an_imported_name_runs_nothing(client: httpx.Client, tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef f():\n    pass\n")
    lines = [json.loads(line) for line in client.get("/v1/records/export").text.splitlines()]
    for line in lines:
        if line["kind"] == "workload":
            line |= {"name": f"{trap}:f", "args": [], "text": None}
    body = "\n".join(map(json.dumps, lines)).encode()
    settings = Settings(db=str(tmp_path / "z.db"), jobs_at_once=0, examine_processes=1)
    with serving(settings) as other:
        kind = {"Content-Type": "application/x-ndjson"}
        assert other.post("/v1/records/import", content=body, headers=kind).json()["new"] > 0
        record = other.get("/v1/records").json()["items"][0]
        answer = other.get(f"/v1/records/{record['id']}/schedule")
        assert answer.status_code == 409
        assert "without its text" in answer.json()["detail"]
    assert not (tmp_path / "sprung").exists()


def test_the_best_by_an_operators_name_and_arguments(client: httpx.Client) -> None:
    record = client.get("/v1/records", params={"status": "ok", "limit": 1}).json()["items"][0]
    workload = client.get(f"/v1/workloads/{record['workload_key']}").json()
    key = {"workload_key": workload["key"]}
    named = {"name": workload["name"], "arg": [str(arg) for arg in workload["args"]]}
    by_name = client.get("/v1/best", params=named)
    assert by_name.json() == client.get("/v1/best", params=key).json()
    for wrong in (
        {},
        {**key, **named},
        {**key, "arg": ["1"]},
        {"name": "matmul", "arg": ["x"]},
        *({"name": "matmul", "arg": [n, "8", "8"]} for n in ("1_0", " 8", "+8", "inf")),
    ):
        assert client.get("/v1/best", params=wrong).status_code == 422
    assert client.get("/v1/best", params={"name": "matmul", "arg": ["3"] * 3}).status_code == 404

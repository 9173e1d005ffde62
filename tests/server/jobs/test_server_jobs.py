"""The life of a job, asked for over HTTP: submitted, run in a process, cancelled, resumed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server_process import runners_of, submit, wait_for
from serving import serving

from server.settings import Settings

SLOW = "replay:model?seconds=0.05"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server whose devices are made up, with two jobs at a time."""
    db = str(tmp_path_factory.mktemp("server") / "x.db")
    # Nothing here may come from a lease that runs out.
    settings = Settings(
        db=db, pool=SLOW, poll_seconds=0.1, jobs_at_once=2, examine_processes=1, lease_seconds=600
    )
    with serving(settings) as client:
        yield client


def states(client: httpx.Client, job_id: str) -> list[str]:
    """The states that a job went through."""
    found = client.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "application/json"}).json()
    return [e["data"]["state"] for e in found["items"] if e["kind"] == "state"]


def test_a_job_runs_to_its_end(client: httpx.Client) -> None:
    answer = client.post(
        "/v1/jobs",
        json={
            "workload": {"name": "matmul", "args": [32, 32, 32]},
            "options": {"num_measure_trials": 16},
        },
    )
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["trials_requested"]) == ("queued", 16)
    assert job["target"].startswith("llvm -mcpu=")

    done = wait_for(client, job["id"], "succeeded", "failed")
    assert (done["state"], done["trials_done"], done["error"]) == ("succeeded", 16, None)
    assert states(client, job["id"]) == ["queued", "running", "succeeded"]
    records = client.get("/v1/records", params={"job_id": job["id"]}).json()["items"]
    assert [r["kind"] for r in records].count("trial") == 16
    assert [r["kind"] for r in records].count("baseline") == 2
    assert sum(r["remeasured_seconds"] is not None for r in records) >= 4
    again = [r for r in records if r["remeasured_seconds"] is not None]
    best = min(again, key=lambda r: r["remeasured_seconds"])
    assert (done["best_seconds"], done["best_record_id"]) == (
        best["remeasured_seconds"],
        best["id"],
    )
    asked = {"workload_key": job["workload_key"]}
    assert client.get("/v1/best", params=asked).json()["id"] == best["id"]
    told = client.get(f"/v1/jobs/{job['id']}/events", headers={"Accept": "application/json"}).json()
    assert told["items"][-1]["data"]["best_seconds"] == done["best_seconds"]
    assert told["items"][-1]["data"]["best_record_id"] == best["id"]
    curve = client.get(f"/v1/jobs/{job['id']}/curve").json()
    assert curve["points"][0]["trial"] == 1

    more = client.post(f"/v1/jobs/{job['id']}/resume", json={"additional_trials": 8})
    assert more.json()["trials_requested"] == 24
    assert wait_for(client, job["id"], "succeeded", trials=24)["trials_done"] == 24
    assert states(client, job["id"])[3:] == ["queued", "running", "succeeded"]


def test_modules_in_the_working_folder_are_not_run(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("server", "records", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(tmp_path)
    job = submit(client, 1)
    assert wait_for(client, job["id"], "succeeded", "failed")["state"] == "succeeded"


def test_a_job_by_script_is_the_same_workload(client: httpx.Client) -> None:
    from autosched.tuning import SearchTask

    task = SearchTask("matmul", (32, 32, 32))
    submit(client, 1)  # from here on the workload has its name
    body = {"workload": {"script": task.prim_func.script()}, "options": {"num_measure_trials": 1}}
    job = client.post("/v1/jobs", json=body).raise_for_status().json()
    assert job["workload_key"] == task.workload_key
    assert job["workload_name"] == "matmul"


def test_a_repeated_submission_makes_one_job(client: httpx.Client) -> None:
    named = {"headers": {"Idempotency-Key": "once"}, "args": [16, 16, 16]}
    first, again = submit(client, 4, **named), submit(client, 4, **named)
    assert first["id"] == again["id"]
    other = client.post(
        "/v1/jobs",
        json={"workload": {"name": "matmul", "args": [16, 16, 32]}},
        headers={"Idempotency-Key": "once"},
    )
    assert other.status_code == 409
    assert "once" in other.json()["detail"]


def test_a_job_that_runs_is_paused_and_goes_on_with_what_is_left(client: httpx.Client) -> None:
    job = submit(client, 40, options={"time_budget_s": 3600, "num_measures_per_round": 16})
    wait_for(client, job["id"], "running", trials=8)
    assert client.post(f"/v1/jobs/{job['id']}/pause").json()["state"] == "pausing"
    paused = wait_for(client, job["id"], "paused")
    assert 8 <= paused["trials_done"] < 40
    assert paused["ended_at"] is None
    resumed = client.post(f"/v1/jobs/{job['id']}/resume", json={}).raise_for_status()
    assert (resumed.json()["state"], resumed.json()["trials_requested"]) == ("queued", 40)
    done = wait_for(client, job["id"], "succeeded", "failed")
    assert (done["state"], done["trials_done"]) == ("succeeded", 40)
    assert states(client, job["id"]) == [
        *("queued", "running", "pausing", "paused"),
        *("queued", "running", "succeeded"),
    ]
    refused = client.post(f"/v1/jobs/{job['id']}/pause")
    assert (refused.status_code, "it is succeeded" in refused.json()["detail"]) == (409, True)


def test_a_job_that_runs_is_cancelled_and_goes_on_with_more_trials(client: httpx.Client) -> None:
    job = submit(client, 400)
    wait_for(client, job["id"], "running", trials=8)
    assert client.post(f"/v1/jobs/{job['id']}/cancel").json()["state"] == "cancelling"
    cancelled = wait_for(client, job["id"], "cancelled")
    done = cancelled["trials_done"]
    assert 8 <= done < 400
    again = client.post(f"/v1/jobs/{job['id']}/cancel")
    assert (again.status_code, again.json()["state"]) == (200, "cancelled")

    # To the end of the round after the one that was left.
    more = 16 - done % 8
    resumed = client.post(
        f"/v1/jobs/{job['id']}/resume", json={"additional_trials": 0}
    ).raise_for_status()
    assert resumed.json()["state"] == "queued"
    wait_for(client, job["id"], "running", trials=done + more)
    client.post(f"/v1/jobs/{job['id']}/cancel")
    wait_for(client, job["id"], "cancelled")
    assert states(client, job["id"]) == ["queued", "running", "cancelling", "cancelled"] * 2
    records = client.get("/v1/records", params={"job_id": job["id"], "limit": 1000}).json()
    places = [(r["round"], r["slot"]) for r in records["items"]]
    assert len(places) == len(set(places))


def test_a_job_that_waits_is_cancelled_at_once(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, examine_processes=1)
    with serving(settings) as client:
        job = submit(client, 4)
        assert client.post(f"/v1/jobs/{job['id']}/resume", json={}).status_code == 409
        assert client.post(f"/v1/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
        assert states(client, job["id"]) == ["queued", "cancelled"]
        assert client.post(f"/v1/jobs/{job['id']}/resume", json={}).json()["state"] == "queued"


def test_a_process_that_crashes_fails_its_job_with_the_reason(client: httpx.Client) -> None:
    job = submit(client, 400)
    wait_for(client, job["id"], "running", trials=1)
    (pid,) = runners_of(job["id"])
    os.kill(pid, signal.SIGSEGV)
    failed = wait_for(client, job["id"], "failed")
    assert "signal 11" in failed["error"]
    assert failed["trials_done"] >= 1


@pytest.mark.parametrize("path", ["", "/curve", "/events"])
def test_unknown_jobs_are_not_found(client: httpx.Client, path: str) -> None:
    assert client.get(f"/v1/jobs/nobody{path}").status_code == 404


def test_unknown_jobs_cannot_be_changed(client: httpx.Client) -> None:
    assert client.post("/v1/jobs/nobody/cancel").status_code == 404
    assert client.post("/v1/jobs/nobody/resume", json={}).status_code == 404


def test_a_target_that_nobody_here_runs_is_refused(client: httpx.Client) -> None:
    body = {"workload": {"name": "matmul", "args": [8, 8, 8]}, "target": "cuda9 -arch=x"}
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 422
    assert "cuda9" in answer.json()["detail"]


def test_a_time_budget_is_kept_over_an_interruption(client: httpx.Client) -> None:
    job = submit(client, 100_000, options={"time_budget_s": 20.0})
    ended = wait_for(client, job["id"], "succeeded", "failed")
    assert ended["state"] == "succeeded", ended
    assert 0 < ended["trials_done"] < 1000
    assert ended["notice"].startswith("time budget reached: ")
    assert f"{ended['trials_done']} of 100000 trials" in ended["notice"]


def test_early_stopping_begins_anew_with_a_resumed_job(client: httpx.Client) -> None:
    """What had no better program at the end of one run may have one in the next."""
    job = submit(client, 400, options={"early_stopping": 4, "num_measures_per_round": 4})
    first = wait_for(client, job["id"], "succeeded", "failed")
    assert 4 < first["trials_done"] < 400
    assert f"{first['trials_done']} of 400 trials" in first["notice"]
    client.post(f"/v1/jobs/{job['id']}/resume").raise_for_status()  # no body: no more trials
    again = wait_for(client, job["id"], "succeeded", "failed", trials=first["trials_done"] + 4)
    assert (again["state"], again["error"]) == ("succeeded", None)

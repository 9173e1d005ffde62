"""What a job's process may take, how often it is tried, what it is called, and who goes first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from problem_shape import check_problem
from server_process import runners_of, submit, wait_for
from serving import serving

from autosched.tuning import SearchTask
from records import Store
from records.operations.tokens import Tokens
from records.queue.submissions import Quota
from server.settings import Settings

SLOW = "replay:model?seconds=0.05"


def chain(products: int) -> str:
    """A script of that many small products, each of the one before: its space takes long."""
    lines = [
        "@T.prim_func",
        'def evil(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):',
    ]
    for n in range(products - 1):
        lines.append(f'    t{n} = T.alloc_buffer((4, 4), "float32")')
    for n in range(products):
        source = "x" if n == 0 else f"t{n - 1}"
        target = "y" if n == products - 1 else f"t{n}"
        lines += [
            "    for i, j, k in T.grid(4, 4, 4):",
            f'        with T.block("b{n}"):',
            '            vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
            "            with T.init():",
            f"                {target}[vi, vj] = 0.0",
            f"            {target}[vi, vj] += {source}[vi, vk] * x[vk, vj]",
        ]
    return "\n".join(lines) + "\n"


def settings(folder: Path, **values: Any) -> Settings:
    usual = {"poll_seconds": 0.1, "examine_processes": 1, "lease_seconds": 600}
    return Settings(db=str(folder / "x.db"), pool=SLOW, **usual | values)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("server")
    with serving(settings(folder, jobs_at_once=2, retries=1, retry_seconds=0.2)) as client:
        yield client


def by_script(client: httpx.Client, script: str, **more: Any) -> dict[str, Any]:
    body = {"workload": {"script": script}, "options": {"num_measure_trials": 4}} | more
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def events(client: httpx.Client, job_id: str) -> list[dict[str, Any]]:
    asked = client.get(
        f"/v1/jobs/{job_id}/events", params={"limit": 500}, headers={"Accept": "application/json"}
    )
    found: list[dict[str, Any]] = asked.json()["items"]
    return found


# Preparing


def test_preparing_is_shown_as_phases(client: httpx.Client) -> None:
    job = submit(client, 8)
    done = wait_for(client, job["id"], "succeeded", "failed")
    told = [e["data"]["phase"] for e in events(client, job["id"]) if e["kind"] == "phase"]
    assert told == ["space", "reference", "baselines", "searching", "finalists"]
    assert done["phase"] is None


@pytest.mark.long
def test_preparing_that_takes_too_long_is_ended_with_the_reason(tmp_path: Path) -> None:
    with serving(settings(tmp_path, prepare_seconds=0.1)) as client:
        job = by_script(client, chain(60))
        failed = wait_for(client, job["id"], "failed", "succeeded")
        assert failed["state"] == "failed"
        assert "preparing took more than 0.1 s" in failed["error"]
        assert "before the first trial" in failed["error"]
        assert failed["trials_done"] == 0


@pytest.mark.long
def test_preparing_that_takes_too_much_memory_is_ended_with_the_reason(tmp_path: Path) -> None:
    with serving(settings(tmp_path, prepare_bytes=32 << 20)) as client:
        job = by_script(client, chain(60))
        failed = wait_for(client, job["id"], "failed", "succeeded")
        assert failed["state"] == "failed"
        assert "and may take 32 MiB (the server's prepare_bytes)" in failed["error"]


def test_the_time_budget_counts_from_the_claim(tmp_path: Path) -> None:
    """The process alone takes longer to start."""
    with serving(settings(tmp_path)) as client:
        job = submit(client, 8, options={"time_budget_s": 0.05})
        failed = wait_for(client, job["id"], "failed", "succeeded")
        assert failed["state"] == "failed"
        assert "the time budget was over in the phase" in failed["error"]
        assert failed["trials_done"] == 0


def test_preparing_is_cancelled(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as client:
        job = by_script(client, chain(100))
        deadline = time.monotonic() + 120
        while client.get(f"/v1/jobs/{job['id']}").json()["phase"] != "space":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        client.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
        assert (
            wait_for(client, job["id"], "cancelled", "succeeded", "failed")["state"] == "cancelled"
        )


# Retries


def kill(client: httpx.Client, job_id: str, known: set[int]) -> None:
    """Kill the job's process of now, as the kernel does that wants its memory."""
    deadline = time.monotonic() + 120
    while not (found := set(runners_of(job_id)) - known):
        assert time.monotonic() < deadline, client.get(f"/v1/jobs/{job_id}").json()
        time.sleep(0.02)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    known |= found


def test_a_killed_process_is_started_again(client: httpx.Client) -> None:
    job = submit(client, 40)
    wait_for(client, job["id"], "running", trials=8)
    kill(client, job["id"], set())
    done = wait_for(client, job["id"], "succeeded", "failed")
    assert (done["state"], done["trials_done"], done["error"]) == ("succeeded", 40, None)
    reasons = [e["data"]["reason"] for e in events(client, job["id"]) if e["kind"] == "state"]
    assert reasons == ["submitted", "claimed", "killed", "claimed", "ended"]


@pytest.mark.long
def test_a_process_that_is_always_killed_fails_its_job_with_the_reason(tmp_path: Path) -> None:
    few = settings(tmp_path, retries=1, retry_seconds=0.1)
    with serving(few) as client:
        job = by_script(client, chain(100))  # it has no trial for long
        known: set[int] = set()
        kill(client, job["id"], known)
        kill(client, job["id"], known)
        failed = wait_for(client, job["id"], "failed", "succeeded")
        assert failed["state"] == "failed"
        assert "2 processes of this job in a row were killed" in failed["error"]
        assert "signal 9" in failed["error"]


# Names


def test_names_belong_to_jobs(client: httpx.Client) -> None:
    script = SearchTask("softmax", (8, 24)).prim_func.script().replace("def main(", "def stolen(")
    first = by_script(client, script)
    assert (first["name"], first["workload_args"]) == ("stolen", None)
    assert "stolen" not in first["workload_name"]
    body = {"workload": {"name": "softmax", "args": [8, 24]}, "options": {"num_measure_trials": 1}}
    second = client.post("/v1/jobs", json=body | {"name": "mine", "tags": ["a", "b.c"]}).json()
    assert second["workload_key"] == first["workload_key"]
    assert (second["name"], second["tags"]) == ("mine", ["a", "b.c"])
    assert (second["workload_name"], second["workload_args"]) == ("softmax", [8, 24])
    third = by_script(client, script, name="other")
    assert third["name"] == "other"
    detail = client.get(f"/v1/workloads/{first['workload_key']}").json()
    assert (detail["name"], detail["args"]) == ("softmax", [8, 24])


# Finding and changing jobs


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server that runs no jobs."""
    with serving(settings(tmp_path_factory.mktemp("still"), jobs_at_once=0)) as client:
        yield client


def listed(http: httpx.Client, /, **asked: str) -> list[str]:
    return [
        job["id"] for job in http.get("/v1/jobs", params=asked).raise_for_status().json()["items"]
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "\x1b[2J", "a\x9b2J", "a\x85b", "\u202etxt.exe", "a\u2066b", "\u200b", "\u2003"),
        *("\u0301a", "\u20dd", "\ufe0f", "\ufe20a", "\xad"),
    ],
)
def test_names_of_jobs_are_seen_and_steer_nothing(still: httpx.Client, name: str) -> None:
    body = {"workload": {"name": "matmul", "args": [16, 16, 32]}, "name": name}
    batch = {"workloads": [{"workload": body["workload"]}], "name": name}
    check_problem(still.post("/v1/jobs", json=body), 422)
    check_problem(still.post("/v1/batches", json=batch), 422)
    assert (
        submit(still, 4, name="Größe 5 × 5, 東京", args=[16, 16, 32])["name"] == "Größe 5 × 5, 東京"
    )
    decomposed = "e\u0301te\u0301"
    assert submit(still, 4, name=decomposed, args=[16, 16, 32])["name"] == decomposed


def test_jobs_are_found_by_what_is_known_of_them(still: httpx.Client) -> None:
    one = submit(still, 4, name="100% Night", tags=["night", "x"], args=[16, 16, 32])["id"]
    two = submit(still, 4, name="1000 nights", tags=["nights"], args=[16, 16, 32])["id"]
    assert listed(still, name="100% n") == [one]
    assert set(listed(still, name="night")) == {one, two}
    assert {one, two} <= set(listed(still, name="MATMUL"))
    assert listed(still, tag="night") == [one]
    assert listed(still, tag="nigh_") == []
    assert set(listed(still, client="local")) >= {one, two}
    assert listed(still, client="bob") == listed(still, device="none") == []
    made = still.get(f"/v1/jobs/{two}").json()["created_at"]
    assert one not in listed(still, created_after=made)
    assert two in listed(still, created_after=made)
    assert two not in listed(still, created_before=made)
    for text in ("yesterday", "0.5", "1767225600", "2026-01-31"):
        assert still.get("/v1/jobs", params={"created_after": text}).status_code == 422


def test_the_beginning_of_an_id_is_enough(still: httpx.Client) -> None:
    job = submit(still, 4)
    assert still.get(f"/v1/jobs/{job['id'][:12]}").json()["id"] == job["id"]
    assert still.get(f"/jobs/{job['id'][:12]}").status_code == 200
    assert still.post(f"/v1/jobs/{job['id'][:12]}/cancel").json()["state"] == "cancelled"
    assert still.get("/v1/jobs/____").status_code == 404
    assert still.get(f"/v1/jobs/{job['id'][:3]}").status_code == 404


def test_an_ambiguous_beginning_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        from records import Workload

        store.put_workload(Workload(key="w", name="m", script="s"))
        for last in "12":
            store.create_job("w", "llvm", seed=0, trials_requested=1, job_id="a" * 31 + last)
    with serving(settings(tmp_path, jobs_at_once=0)) as client:
        answer = client.get("/v1/jobs/aaaa")
        assert (answer.status_code, "several jobs" in answer.json()["detail"]) == (409, True)


def test_a_waiting_job_knows_its_place(still: httpx.Client) -> None:
    for state in ("queued",):
        ids = listed(still, state=state)
        if ids:
            still.post("/v1/jobs/cancel", json={"ids": ids}).raise_for_status()
    first, second = submit(still, 4), submit(still, 4)
    urgent = submit(still, 4, priority=3)
    places = [
        still.get(f"/v1/jobs/{j['id']}").json()["queue_place"] for j in (urgent, first, second)
    ]
    assert places == [1, 2, 3]


def test_many_jobs_are_cancelled_at_once(still: httpx.Client) -> None:
    jobs = [submit(still, 4)["id"] for _ in range(3)]
    answer = still.post("/v1/jobs/cancel", json={"ids": [*jobs, "0" * 32]}).raise_for_status()
    report = answer.json()
    assert [(job["id"], job["state"]) for job in report["jobs"]] == [(j, "cancelled") for j in jobs]
    assert list(report["refused"]) == ["0" * 32]


def test_a_job_is_cloned_with_another_seed(still: httpx.Client) -> None:
    job = submit(still, 12, name="a", tags=["t"], options={"seed": 5, "finalists": 2})
    clone = still.post(f"/v1/jobs/{job['id']}/clone", json={"seed": 9}).json()
    assert clone["id"] != job["id"]
    assert (clone["seed"], clone["options"]["finalists"], clone["trials_requested"]) == (9, 2, 12)
    assert (clone["name"], clone["tags"], clone["workload_key"]) == (
        "a",
        ["t"],
        job["workload_key"],
    )
    named = {"headers": {"Idempotency-Key": "once more"}}
    again = [still.post(f"/v1/jobs/{job['id']}/clone", json={}, **named).json() for _ in range(2)]
    assert (again[0]["id"], again[0]["seed"]) == (again[1]["id"], 6)


def test_an_ended_job_is_deleted_with_all_that_it_measured(client: httpx.Client) -> None:
    job = submit(client, 4, args=[8, 16, 24])
    assert client.delete(f"/v1/jobs/{job['id']}").status_code == 409
    wait_for(client, job["id"], "succeeded", "failed")
    assert client.delete(f"/v1/jobs/{job['id']}").status_code == 204
    assert client.get(f"/v1/jobs/{job['id']}").status_code == 404
    assert client.get("/v1/records", params={"job_id": job["id"]}).json()["items"] == []
    asked = {"workload_key": job["workload_key"]}
    assert client.get("/v1/best", params=asked).status_code == 404


def test_a_job_tells_its_speed_its_gain_and_its_time(client: httpx.Client) -> None:
    job = submit(client, 16)
    done = wait_for(client, job["id"], "succeeded", "failed")
    flop = client.get(f"/v1/workloads/{job['workload_key']}").json()["flop"]
    assert done["gflops"] == pytest.approx(flop / done["best_seconds"] / 1e9)
    assert done["gain"] == pytest.approx(done["baseline_seconds"] / done["best_seconds"])
    assert done["run_seconds"] > 0.1
    assert (done["eta_seconds"], done["queue_place"]) == (None, None)


# Scopes and quotas


def test_priorities_and_quotas_of_tokens(tmp_path: Path) -> None:
    asked = settings(tmp_path, jobs_at_once=0, require_tokens=True)
    with Store(asked.db) as store:
        tokens = Tokens(store)
        user, _ = tokens.create("ann", "submit", None, Quota(jobs=2, trials=100))
        admin, _ = tokens.create("root", "admin", None)

    with serving(asked) as client:

        def ask(token: str, trials: int = 4, **more: Any) -> httpx.Response:
            body = {
                "workload": {"name": "matmul", "args": [16, 16, 16]},
                "options": {"num_measure_trials": trials},
            }
            headers = {"Authorization": f"Bearer {token}"}
            return client.post("/v1/jobs", json=body | more, headers=headers)

        assert ask(user, priority=11).status_code == 403
        assert ask(admin, priority=100).status_code == 201
        assert ask(user, priority=10).status_code == 201
        refused = ask(user, trials=97)
        assert refused.status_code == 403
        assert refused.json()["type"] == "urn:autosched:problem:quota-exceeded"
        assert ask(user).status_code == 201
        assert ask(user).json()["type"] == "urn:autosched:problem:quota-exceeded"
        assert ask(admin).status_code == 201


@pytest.mark.long
def test_a_run_ends_when_the_tokens_device_seconds_are_spent(tmp_path: Path) -> None:
    asked = settings(tmp_path, require_tokens=True)
    with Store(asked.db) as store:
        user, _ = Tokens(store).create("ann", "submit", None, Quota(device_seconds=15.0))
    with serving(asked) as client:
        client.headers["Authorization"] = f"Bearer {user}"
        job = submit(client, 100_000)
        done = wait_for(client, job["id"], "succeeded", "failed")
        assert done["state"] == "succeeded", done
        assert "the token's device seconds are spent" in done["notice"]
        assert client.delete(f"/v1/jobs/{job['id']}").status_code == 204
        again = submit_refused(client)  # what it has spent stays spent
        assert again["type"] == "urn:autosched:problem:quota-exceeded"


def submit_refused(client: httpx.Client) -> dict[str, Any]:
    body = {"workload": {"name": "matmul", "args": [16, 16, 16]}}
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 403
    found: dict[str, Any] = answer.json()
    return found


def test_times_at_the_ends_of_the_calendar_are_times(still: httpx.Client) -> None:
    for text in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        assert still.get("/v1/jobs", params={"created_after": text}).status_code == 200

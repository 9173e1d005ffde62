"""Models as jobs: their kernels on one budget, and what later builds find of them."""

from __future__ import annotations

import base64
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from graph_models import info, model
from html_check import problems_of
from onnx import ModelProto, TensorProto, helper
from server_process import runners_of
from serving import serving

from autosched import graph
from records import Store
from records.operations.tokens import Tokens
from records.queue.submissions import Quota
from server.client import Client
from server.client.remote_records import RemoteRecords
from server.settings import Settings


def two_products(rng: np.random.Generator) -> ModelProto:
    """Two kernels, the first of which runs twice."""
    weights = {n: rng.standard_normal((16, 16)).astype("f4") for n in "ab"}
    weights["c"] = rng.standard_normal((16, 4)).astype("f4")
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Tanh", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["r"]),
        helper.make_node("Tanh", ["r"], ["s"]),
        helper.make_node("MatMul", ["s", "c"], ["y"]),
    ]
    return model(nodes, [info("x", [8, 16])], [info("y", [8, 4])], weights)


NET = two_products(np.random.default_rng(0))
SKELETON = graph.skeleton(NET)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = Settings(
        db=str(tmp_path_factory.mktemp("models") / "x.db"),
        pool="replay:model?seconds=0.01",
        poll_seconds=0.1,
        jobs_at_once=2,
        retries=100,
        retry_seconds=0.05,
    )
    with serving(settings) as client:
        yield client


def submit(
    client: httpx.Client, trials: int | None, skeleton: bytes = SKELETON, **more: Any
) -> httpx.Response:
    options: dict[str, Any] = {"num_measures_per_round": 4}
    if trials is not None:
        options["num_measure_trials"] = trials
    headers = more.pop("headers", {})
    sent = {"skeleton": base64.b64encode(skeleton).decode()}
    body = {"model": sent, "options": options | more.pop("options", {})} | more
    return client.post("/v1/jobs", json=body, headers=headers)


def wait(client: httpx.Client, job_id: str, *states: str, trials: int = 0) -> dict[str, Any]:
    """The tasks of a model once all of their jobs are in one of the states."""
    deadline = time.monotonic() + 60
    while True:
        found: dict[str, Any] = client.get(f"/v1/jobs/{job_id}/tasks").raise_for_status().json()
        if {t["state"] for t in found["tasks"]} <= set(states) and found["trials_done"] >= trials:
            return found
        assert time.monotonic() < deadline, [(t["state"], t["trials_done"]) for t in found["tasks"]]
        time.sleep(0.1)


@pytest.mark.long
def test_a_model_is_tuned_on_one_budget_for_the_build_at_its_owner(client: httpx.Client) -> None:
    answer = submit(client, 21, name="net", headers={"Idempotency-Key": "net"})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    again = submit(client, 21, name="net", headers={"Idempotency-Key": "net"})
    assert again.json()["id"] == made["id"]
    before = made["model"]
    assert before["estimated_seconds"] == before["untuned_seconds"] > before["rest_seconds"] >= 0
    done = wait(client, made["id"], "succeeded")
    assert (done["trials_requested"], done["trials_done"]) == (21, 21)
    tasks = done["tasks"]
    assert [t["weight"] for t in tasks] == [2.0, 1.0]
    assert all(t["trials_done"] == t["trials_requested"] > 0 for t in tasks)
    assert all(t["seconds"] == pytest.approx(t["weight"] * t["best_seconds"]) for t in tasks)
    assert [t["kernel"] for t in tasks] == sorted(t["kernel"] for t in tasks)
    assert Counter(t["kernel"] for t in tasks if t["taken"]) == Counter(
        {t["kernel"] for t in tasks}
    )
    times = done["model"]
    assert times["estimated_seconds"] == pytest.approx(
        times["rest_seconds"] + sum(t["seconds"] for t in tasks if t["taken"])
    )
    assert sum(t["share"] for t in tasks if t["taken"]) <= 1.0 + 1e-12  # each is rounded
    assert times["gain"] == times["untuned_seconds"] / times["estimated_seconds"] >= 1.0
    job = client.get(f"/v1/jobs/{made['id']}").json()
    assert (job["model"], job["name"], job["batch_id"]) == (times, "net", done["batch_id"])
    # The keys are those of a build with the true weights, which takes these records.
    target = job["target"]
    with RemoteRecords(Client(str(client.base_url))) as records:
        built = graph.build(graph.from_onnx(NET), target, records=records)
    recorded = {k.workload_key for k in built.by_name.values() if k.seconds is not None}
    assert recorded == {t["workload_key"] for t in tasks if t["taken"]}
    events = client.get(
        f"/v1/jobs/{made['id']}/events",
        params={"limit": 500},
        headers={"Accept": "application/json"},
    ).json()["items"]
    told = [e["data"]["model_seconds"] for e in events if e["kind"] == "progress"]
    assert told
    assert told[-1] >= times["estimated_seconds"] > 0
    own = f"/jobs/{made['id']}"
    for path in (own, f"/batches/{done['batch_id']}"):
        page = client.get(path, headers={"Accept": "text/html"})
        assert page.status_code == 200, page.text
        assert problems_of(page.text) == []
        assert "Tasks of the model" in page.text
        for t in tasks:
            assert t["title"] in page.text
            assert f'href="/jobs/{t["job_id"]}"' in page.text or path == own
    for path in ("/jobs", "/"):
        page = client.get(path, headers={"Accept": "text/html"})
        shown = [t["title"] in page.text for t in tasks]
        assert all(shown) if path == "/jobs" else any(shown) == (times["gain"] > 1.0)


@pytest.mark.long
def test_a_model_is_paused_resumed_and_cancelled_as_a_whole(client: httpx.Client) -> None:
    made = submit(client, 80, options={"seed": 1}).json()
    wait(client, made["id"], "running", trials=4)
    client.post(f"/v1/jobs/{made['id']}/pause").raise_for_status()
    paused = wait(client, made["id"], "paused")
    assert 4 <= paused["trials_done"] < paused["trials_requested"] == 80
    other = paused["tasks"][-1]["job_id"]
    body = {"additional_trials": 7}
    client.post(f"/v1/jobs/{other}/resume", json=body).raise_for_status()
    running = wait(client, made["id"], "running", trials=paused["trials_done"] + 4)
    assert running["trials_requested"] == 87
    client.post("/v1/jobs/cancel", json={"ids": [other]}).raise_for_status()
    ended = wait(client, made["id"], "cancelled")
    assert ended["trials_requested"] == 87
    body = {"additional_trials": 0}
    client.post(f"/v1/jobs/{other}/resume", json=body).raise_for_status()
    done = wait(client, made["id"], "succeeded")
    assert done["trials_done"] == done["trials_requested"] == 87
    places = [
        (r["job_id"], r["round"], r["slot"])
        for t in done["tasks"]
        for r in client.get(
            "/v1/records", params={"job_id": t["job_id"], "limit": 1000, "kind": "trial"}
        ).json()["items"]
    ]
    assert len(places) == len(set(places)) == 87


def test_without_a_number_each_kernel_has_64_and_others_have_tasks_too(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "y.db"), pool="replay:model", jobs_at_once=0)
    with serving(settings) as client:
        found = client.get(f"/v1/jobs/{submit(client, None).json()['id']}/tasks").json()
        assert (found["trials_requested"], len(found["tasks"])) == (128, 2)
        matmul = {"workload": {"name": "matmul", "args": [16, 16, 16]}}
        job = client.post("/v1/jobs", json=matmul).json()
        (task,) = client.get(f"/v1/jobs/{job['id']}/tasks").json()["tasks"]
        assert (task["title"], task["weight"], task["share"]) == ("matmul", 1.0, None)
        batch = client.post("/v1/batches", json={"workloads": [matmul | {"weight": 3.0}]}).json()
        (job,) = batch["jobs"]
        found = client.get(f"/v1/jobs/{job['id']}/tasks").json()
        assert (found["model"], found["batch_id"]) == (None, batch["id"])
        assert [t["weight"] for t in found["tasks"]] == [3.0]
        assert client.get(f"/v1/jobs/{job['id']}").json()["model"] is None
        assert client.get(f"/v1/jobs/{'0' * 32}/tasks").status_code == 404


def hostile() -> Iterator[tuple[str, bytes]]:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]

    def of(**tensor: Any) -> bytes:
        proto = model(nodes, [info("x", [4])], [info("y", [4])])
        proto.graph.initializer.append(TensorProto(name="w", data_type=1, **tensor))
        data: bytes = proto.SerializeToString()
        return data

    outside = TensorProto(name="w", dims=[4], data_type=1, data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="/etc/hostname")
    proto = model(nodes, [info("x", [4])], [info("y", [4])])
    proto.graph.initializer.append(outside)
    mark = "autosched.weight:1"
    yield "no ONNX model", b"\0\1\2" * 40
    yield "is in another file", proto.SerializeToString()
    yield "at most 1073741824 elements", of(dims=[1 << 40], doc_string=mark)
    yield "more bytes than a server has room", of(dims=[1 << 29], doc_string=mark)
    yield "do not go together", of(dims=[5], doc_string=mark)
    views = model(
        [helper.make_node("Flatten", ["x"], ["y"])], [info("x", [4, 4])], [info("y", [4, 4])]
    )
    yield "all that it computes are views", views.SerializeToString()
    product = helper.make_node("MatMul", ["x", "z"], ["y"])
    wide = [32_000, 32_000]
    huge = model([product], [info("x", wide), info("z", wide)], [info("y", wide)])
    yield "bytes of buffers", huge.SerializeToString()


@pytest.mark.parametrize(
    ("said", "skeleton"), list(hostile()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_hostile_model_is_refused(client: httpx.Client, said: str, skeleton: bytes) -> None:
    refused = submit(client, 64, skeleton)
    assert (refused.status_code, said in refused.json()["detail"]) == (422, True), refused.text


def test_what_is_no_model_is_refused(client: httpx.Client) -> None:
    for body, part in (
        ({"model": {"skeleton": "(no base64)"}}, "no base64"),
        ({"model": {"skeleton": ""}}, "skeleton"),
        ({"model": {"skeleton": "A" * 1_400_001}}, "skeleton"),
        ({}, "either a workload or a model"),
        (
            {"model": {"skeleton": "AA"}, "workload": {"name": "matmul", "args": [8, 8, 8]}},
            "either a workload or a model",
        ),
    ):
        refused = client.post("/v1/jobs", json=body)
        assert (refused.status_code, part in refused.text) == (422, True), refused.text
    few = submit(client, 1)
    assert (few.status_code, "expected a trial for each of the" in few.text) == (422, True)


def test_a_quota_takes_a_model_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Store(path) as store:
        secret, _ = Tokens(store).create("ann", "submit", None, Quota(trials=20))
    settings = Settings(db=str(path), pool="replay:model", require_tokens=True, jobs_at_once=0)
    with serving(settings) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        refused = submit(client, 21)
        assert (refused.status_code, "quota-exceeded" in refused.text) == (403, True)
        assert client.get("/v1/jobs").json()["items"] == []
        assert submit(client, 20).status_code == 201


def test_kills_of_its_process_leave_each_budget_exact(client: httpx.Client) -> None:
    made = submit(client, 23, options={"seed": 5, "num_measures_per_round": 3}).json()
    ids = [t["job_id"] for t in client.get(f"/v1/jobs/{made['id']}/tasks").json()["tasks"]]
    luck = random.Random(1)
    for kill in range(2):
        wait(client, made["id"], "running", trials=4 + 6 * kill)
        time.sleep(luck.uniform(0.0, 0.1))
        for pid in {pid for job_id in ids for pid in runners_of(job_id)}:
            os.kill(pid, signal.SIGKILL)
        sums = client.get(f"/v1/jobs/{made['id']}/tasks").json()
        assert sums["trials_requested"] == 23
    done = wait(client, made["id"], "succeeded")
    assert [t["trials_done"] for t in done["tasks"]] == [
        t["trials_requested"] for t in done["tasks"]
    ]
    assert done["trials_done"] == 23
    for t in done["tasks"]:
        asked = {"job_id": t["job_id"], "limit": 1000}
        records = client.get("/v1/records", params=asked).json()["items"]
        assert max(Counter((r["round"], r["slot"]) for r in records).values()) == 1
        kinds = Counter(r["kind"] for r in records)
        assert kinds == {"trial": t["trials_done"], "baseline": 2}

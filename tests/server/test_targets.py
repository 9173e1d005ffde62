"""Targets of submissions: what the pool's devices are, and what none of them runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from problem_shape import check_problem
from server_process import submit, wait_for
from serving import serving

from autosched.target import Target
from measure.cluster.registry import DeviceStatus, State
from measure.devices import Device
from records import JobQueue, Store, Workload
from records.queue.fair_share import Scope
from records.queue.submissions import Submission
from server.http.problems import ProblemError
from server.pools import pool_workers
from server.pools.plan import PoolSettings
from server.pools.targets import gpu_here, lacks
from server.pools.workers import Workers
from server.settings import Settings

ZEN = "llvm -mcpu=znver5 -mtriple=x86_64-unknown-linux-gnu -num-cores=8"
OLD = "llvm -mcpu=haswell -mtriple=x86_64-unknown-linux-gnu -num-cores=4"
H100, A100 = "cuda -arch=sm_90", "cuda -arch=sm_80"
DEVICE = Device("made up", "x86_64", 8, (), "none")
GONE = DeviceStatus("g", "cpu", "tcp://g", State.GONE, 0.0, "", DEVICE, "opencl")


def cluster(*targets: str) -> Workers:
    """The devices of a cluster with such targets; one is away."""
    found = Workers(Settings(pool="tcp://127.0.0.1:1"))  # never started
    found.pools[0]._listing = (
        GONE,
        *(
            DeviceStatus(f"d{n}", "l", "tcp://d", State.READY, 0.0, str(n), DEVICE, target)
            for n, target in enumerate(targets)
        ),
    )
    return found


def taken(workers: Workers, text: str) -> str:
    """As a submission does."""

    async def run() -> str:
        target = await workers.resolve(text)
        await workers.fitting(str(Target(target)))
        return target

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["llvm", "cuda", ZEN])
def test_while_no_device_is_known_nobody_can_tell(text: str) -> None:
    """The server's own processor is none of the pool's."""
    with pytest.raises(ProblemError, match="no worker of this server's pool is known yet") as told:
        taken(cluster(), text)
    assert (told.value.status, told.value.headers) == (503, {"Retry-After": "5"})


def test_a_target_in_full_is_not_refused_while_no_device_is_known() -> None:
    """That of a job that is cloned, say, where the server has just started."""
    for workers in (cluster(), several(("a", (), ()), ("b", (), (OLD,)))):
        with pytest.raises(ProblemError, match="no worker of this server's pool is known") as told:
            asyncio.run(workers.fitting(ZEN))
        assert (told.value.status, told.value.headers) == (503, {"Retry-After": "5"})


def test_a_kind_alone_is_the_device_of_that_kind() -> None:
    workers = cluster(ZEN, H100)
    assert taken(workers, "llvm") == ZEN
    assert taken(workers, " cuda ") == H100
    assert Target(taken(workers, "cuda -max-vthread-extent=4")).mcpu == "sm_90"
    assert taken(workers, ZEN.replace("=8", "=2")) == ZEN.replace("=8", "=2")
    assert taken(workers, OLD) == OLD


def test_devices_that_differ_are_listed() -> None:
    with pytest.raises(ProblemError) as told:
        taken(cluster(ZEN, OLD, ZEN), "llvm")
    assert told.value.status == 422
    assert told.value.detail.endswith(f"name one: {OLD}; {ZEN}")
    assert taken(cluster(ZEN, OLD, ZEN), ZEN) == ZEN


@pytest.mark.parametrize(
    "text",
    ["opencl", "cuda", "cuda -arch=sm_999", ZEN.replace("=8", "=9"),
     "llvm -mcpu=sapphirerapids -mtriple=x86_64-unknown-linux-gnu",
     "llvm -mcpu=neoverse-v2 -mtriple=aarch64-unknown-linux-gnu"],
)  # fmt: skip
def test_what_no_device_runs_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ProblemError) as told:
        taken(cluster(OLD, A100) if "-arch" in text else cluster(OLD), text)
    assert told.value.status == 422
    assert OLD in told.value.detail


def test_code_of_an_older_gpu_of_the_same_kind_runs() -> None:
    assert not lacks(Target("cuda -arch=sm_80"), Target("cuda -arch=sm_86"))
    assert lacks(Target("cuda -arch=sm_86"), Target("cuda -arch=sm_80")) == ("sm_86",)
    assert lacks(Target("cuda -arch=sm_80"), Target("cuda -arch=sm_90")) == ("sm_80",)


@pytest.fixture
def client(tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Of a server of this machine, which has no GPU."""
    monkeypatch.setattr(pool_workers, "gpu_here", lambda kind: None)
    with serving(Settings(db=f"{tmp_path}/x.db", jobs_at_once=0)) as client:
        yield client


@pytest.mark.parametrize(
    "target", ["cuda -arch=sm_999", "cuda", "opencl", "llvm -num-cores=100000"]
)
def test_targets_that_this_machine_lacks_are_refused_at_once(
    client: httpx.Client, target: str
) -> None:
    body = {"workload": {"name": "matmul", "args": [8, 8, 8]}, "target": target}
    check_problem(client.post("/v1/jobs", json=body), 422)
    assert client.get("/v1/jobs").json()["items"] == []


def test_a_gpu_is_looked_for_by_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_here("abacus") is None
    asked: list[str] = []
    monkeypatch.setattr(pool_workers, "gpu_here", lambda kind: asked.append(kind))
    workers = Workers(Settings())
    for _ in range(3):
        with pytest.raises(ProblemError):
            taken(workers, "cuda -arch=sm_90")
    assert asked == ["cuda"]
    monkeypatch.setattr(pool_workers, "gpu_here", lambda kind: H100)
    assert taken(Workers(Settings()), "cuda") == H100


def several(*pools: tuple[str, tuple[str, ...], tuple[str, ...]]) -> Workers:
    """Clusters by name, with the kinds that they take and their targets."""
    plans = {
        name: PoolSettings(address=f"tcp://127.0.0.1:{n + 1}", kinds=kinds)  # type: ignore[arg-type]
        for n, (name, kinds, _) in enumerate(pools)
    }
    found = Workers(Settings(pools=plans))  # never started
    for one, (_, _, targets) in zip(found.pools, pools, strict=True):
        one._listing = cluster(*targets).pools[0]._listing
    return found


def placed(workers: Workers, text: str, pool: str | None = None) -> tuple[str, str | None]:
    """The target of a submission, and where it goes."""

    async def run() -> tuple[str, str | None]:
        target = await workers.resolve(text, pool)
        return target, await workers.fitting(str(Target(target)), pool)

    return asyncio.run(run())


def test_a_job_goes_to_the_pool_that_fits() -> None:
    workers = several(
        ("old", ("llvm",), (OLD,)), ("new", ("llvm",), (ZEN,)), ("gpu", ("cuda",), (H100,))
    )
    assert placed(workers, "llvm") == (OLD, "old")
    assert placed(workers, "llvm", "new") == (ZEN, "new")
    assert placed(workers, ZEN) == (ZEN, "new")
    assert placed(workers, "cuda") == (H100, "gpu")
    with pytest.raises(ProblemError, match="no pool takes targets of kind opencl; old: llvm"):
        placed(workers, "opencl")
    with pytest.raises(ProblemError, match=r"no device .* runs .*znver5"):
        placed(workers, ZEN, "old")
    with pytest.raises(ProblemError, match="no pool 'none' on this server; it has: old, new, gpu"):
        placed(workers, "llvm", "none")


def test_a_pool_whose_devices_are_not_known_yet_may_be_the_one() -> None:
    workers = several(("a", ("llvm",), ()), ("b", (), (H100,)))
    assert placed(workers, "cuda") == (H100, "b")
    with pytest.raises(ProblemError, match="no worker") as told:
        placed(several(("a", (), ()), ("b", (), (H100,))), "llvm")
    assert told.value.status == 503


def test_each_pool_takes_its_own_jobs(tmp_path: Path) -> None:
    """Two pools, one of which has no room: its job waits, that of the other runs."""
    pools = {
        "shut": PoolSettings(address="replay:model?seconds=0.001", jobs_at_once=0),
        "open": PoolSettings(address="replay:model?seconds=0.002", kinds=("llvm",)),
    }
    settings = Settings(db=str(tmp_path / "x.db"), pools=pools, poll_seconds=0.05)
    with serving(settings) as client:
        waits = submit(client, 8)
        runs = submit(client, 8, pool="open")
        assert (waits["pool"], runs["pool"]) == ("shut", "open")
        wait_for(client, runs["id"], "succeeded")
        assert client.get(f"/v1/jobs/{waits['id']}").json()["state"] == "queued"
        again = client.post(f"/v1/jobs/{runs['id']}/clone", json={}).json()
        assert again["pool"] == "open"
        names = {
            w["name"].split("@")[0]: w["pool"] for w in client.get("/v1/workers").json()["items"]
        }
        assert names == {
            "replay:model?seconds=0.001": "shut", "replay:model?seconds=0.002": "open"
        }  # fmt: skip
        check_problem(
            client.post("/v1/jobs", json={"workload": {"name": "matmul", "args": [8, 8, 8]},
                                          "pool": "none"}), 422
        )  # fmt: skip


def test_what_a_pool_claims(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        queue = JobQueue(store)
        workload = Workload(key="w", name="m", script="s")

        def add(target: str, pool: str | None) -> str:
            one = Submission(
                workload=workload, target=target, seed=0, trials_requested=1, pool=pool
            )
            return queue.submit(one)[0].id

        named, cuda, llvm = add("cuda -arch=sm_90", "b"), add("cuda", None), add("llvm x", None)
        assert queue.claim("w", 60, Scope("a", ("opencl",))) is None
        assert queue.claim("w", 60, Scope("a", ("cuda",))).id == cuda  # type: ignore[union-attr]
        assert queue.claim("w", 60, Scope("a", ("cuda",))) is None
        assert queue.claim("w", 60, Scope()).id == llvm  # type: ignore[union-attr]
        assert queue.claim("w", 60, Scope("b", ("llvm",))).id == named  # type: ignore[union-attr]

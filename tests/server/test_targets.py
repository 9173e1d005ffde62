"""Targets of submissions: what the pool's devices are, and what none of them runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from problem_shape import check_problem
from serving import serving

from autosched.target import Target
from measure.cluster.registry import DeviceStatus, State
from measure.devices import Device
from server import workers as workers_module
from server.devices import gpu_here, lacks
from server.problems import ProblemError
from server.settings import Settings
from server.workers import Workers

ZEN = "llvm -mcpu=znver5 -mtriple=x86_64-unknown-linux-gnu -num-cores=8"
OLD = "llvm -mcpu=haswell -mtriple=x86_64-unknown-linux-gnu -num-cores=4"
H100, A100 = "cuda -arch=sm_90", "cuda -arch=sm_80"
DEVICE = Device("made up", "x86_64", 8, (), "none")
GONE = DeviceStatus("g", "cpu", "tcp://g", State.GONE, 0.0, "", DEVICE, "opencl")


def cluster(*targets: str) -> Workers:
    """The devices of a cluster with such targets; one is away."""
    found = Workers(Settings(pool="tcp://127.0.0.1:1"))  # never started
    found._listing = (
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
        await workers.check(str(Target(target)))
        return target

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["llvm", "cuda", ZEN])
def test_while_no_device_is_known_nobody_can_tell(text: str) -> None:
    """The server's own processor is none of the pool's."""
    with pytest.raises(ProblemError, match="no worker of this server's pool is known yet") as told:
        taken(cluster(), text)
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
    monkeypatch.setattr(workers_module, "gpu_here", lambda kind: None)
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
    monkeypatch.setattr(workers_module, "gpu_here", lambda kind: asked.append(kind))
    workers = Workers(Settings())
    for _ in range(3):
        with pytest.raises(ProblemError):
            taken(workers, "cuda -arch=sm_90")
    assert asked == ["cuda"]
    monkeypatch.setattr(workers_module, "gpu_here", lambda kind: H100)
    assert taken(Workers(Settings()), "cuda") == H100

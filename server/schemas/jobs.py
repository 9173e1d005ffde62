"""Jobs, batches and trials, as they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from server.schemas.base import (
    DEVICE,
    JOB_ID,
    TARGET,
    WHEN,
    WORKLOAD_KEY,
    JobState,
    Model,
    Phase,
    Status,
)


class ModelTimes(Model):
    """Seconds of a run of a model, as a sum over its kernels: `estimated_seconds` by the best of
    each, `untuned_seconds` by its fastest baseline, `gain` the latter over the former. A kernel
    that is not measured yet counts with the bound of arithmetic and memory traffic;
    `rest_seconds`: such bounds of kernels that are not tuned."""

    estimated_seconds: float = Field(examples=[0.0112])
    untuned_seconds: float = Field(examples=[0.0173])
    rest_seconds: float = Field(examples=[0.0002])
    gain: float = Field(examples=[1.54])


class Job(Model):
    """A tuning job. Times are UTC.

    `best_seconds` is that of its best record, `best_record_id`: measured again where anything was,
    baselines included; `gflops` its speed, `gain` how many times faster it is than the fastest
    baseline. `phase`: what a running job is at. `notice`: what the state does not say, such as why
    trials are left. `run_seconds`: how long it was worked on; `eta_seconds`: how long its trials
    will still take at that pace. Where one job is asked for: `queue_place`, 1 is the next; `share`:
    the least time that its device could take, over `best_seconds`, and by which side of the
    roofline (`bound_by`); null for a device whose limits are not measured, or other than float32;
    `model`: the times of the model whose tasks are the jobs of its batch, null for other jobs.
    """

    id: str = Field(examples=[JOB_ID])
    name: str = Field("", examples=["nightly"])
    tags: list[str] = Field([], examples=[["release"]])
    state: JobState
    phase: Phase | None = None
    workload_key: str = Field(examples=[WORKLOAD_KEY])
    workload_name: str = Field(examples=["matmul_add"])
    workload_args: list[Any] | None = Field(examples=[[1024, 1024, 1024]])
    target: str = Field(examples=[TARGET])
    device: str | None = Field(examples=[DEVICE])
    seed: int | None = Field(examples=[0])
    options: dict[str, Any] = Field(examples=[{"num_measure_trials": 64, "seed": 0}])
    priority: int
    client: str
    trials_requested: int = Field(examples=[64])
    trials_done: int = Field(examples=[17])
    best_seconds: float | None = Field(examples=[0.00213])
    best_record_id: int | None = Field(None, examples=[1042])
    baseline_seconds: float | None = Field(None, examples=[0.0213])
    gflops: float | None = Field(None, examples=[1008.7])
    gain: float | None = Field(None, examples=[10.0])
    run_seconds: float = Field(0.0, examples=[48.2])
    share: float | None = Field(None, examples=[0.87])
    bound_by: Literal["arithmetic", "memory"] | None = None
    eta_seconds: float | None = Field(None, examples=[12.5])
    queue_place: int | None = Field(None, examples=[3])
    pool: str | None = Field(None, examples=["gpu"])
    error: str | None
    notice: str | None = None
    batch_id: str | None = Field(None, examples=[JOB_ID])
    model: ModelTimes | None = None
    origin: Literal["local", "import"]
    created_at: datetime = Field(examples=[WHEN])
    updated_at: datetime = Field(examples=[WHEN])
    ended_at: datetime | None = None


class JobTask(Model):
    """A kernel of a model, or a workload of a batch, and the job that tunes it. `weight`: how often
    a run calls it. `seconds`: of these calls by the job's best; `share` of the model's estimated
    time; `gain` over the job's fastest baseline. A kernel with several implementations has a task
    for each; `taken`: this one is the fastest, or the one that is taken until any is measured."""

    job_id: str = Field(examples=[JOB_ID])
    kernel: int = Field(examples=[0])
    title: str = Field(examples=["conv_relu by direct"])
    weight: float = Field(examples=[3.0])
    workload_key: str = Field(examples=[WORKLOAD_KEY])
    state: JobState
    trials_requested: int = Field(examples=[64])
    trials_done: int = Field(examples=[17])
    best_seconds: float | None = Field(examples=[0.00213])
    seconds: float | None = Field(examples=[0.00639])
    share: float | None = Field(examples=[0.57])
    gain: float | None = Field(examples=[1.8])
    taken: bool
    error: str | None


class JobTasks(Model):
    """What is tuned together with a job, on one budget: the tasks of its model, the workloads of
    its batch, or it alone; trials are those of all. `model` is null where there is none."""

    batch_id: str | None = Field(examples=[JOB_ID])
    trials_requested: int = Field(examples=[640])
    trials_done: int = Field(examples=[170])
    model: ModelTimes | None
    tasks: list[JobTask]


class Batch(Model):
    """Jobs that were submitted together, in the order of their submission; trials are those of all,
    `states` how many of them are in each."""

    id: str = Field(examples=[JOB_ID])
    name: str | None = Field(examples=["resnet"])
    client: str
    states: dict[str, int] = Field(examples=[{"running": 2}])
    trials_requested: int = Field(examples=[128])
    trials_done: int = Field(examples=[17])
    created_at: datetime = Field(examples=[WHEN])
    jobs: list[Job]


class CancelReport(Model):
    """The jobs that were cancelled, or are about to be; the others, each with the reason."""

    jobs: list[Job]
    refused: dict[str, str] = Field(examples=[{JOB_ID: "no job 9f2c in this store"}])


class CurvePoint(Model):
    """A trial that was faster than all before it: the `trial`-th, so long after the job's start."""

    trial: int = Field(examples=[12])
    record_id: int = Field(examples=[1042])
    seconds: float = Field(examples=[0.00213])
    elapsed_seconds: float = Field(examples=[38.2])


class Curve(Model):
    """How a job got faster."""

    job_id: str = Field(examples=[JOB_ID])
    trials_done: int
    points: list[CurvePoint]


class Trial(Model):
    """A trial of a job, the `trial`-th. `variant`: trials with one have the same decisions to make;
    `gflops`, `gain` over the job's fastest baseline and `share` of its device's bound are of
    `seconds`. `error`: the beginning of it."""

    trial: int = Field(examples=[12])
    record_id: int = Field(examples=[1042])
    round: int
    slot: int
    variant: int
    status: Status
    seconds: float | None = Field(examples=[0.00213])
    remeasured_seconds: float | None
    gflops: float | None = Field(None, examples=[1008.7])
    gain: float | None = Field(None, examples=[10.0])
    share: float | None = Field(None, examples=[0.87])
    decisions: dict[str, int]
    error: str | None
    created_at: datetime = Field(examples=[WHEN])


class Event(Model):
    """Something that happened to a job; a job's ids grow."""

    id: int = Field(examples=[71])
    job_id: str = Field(examples=[JOB_ID])
    kind: str = Field(examples=["state"])
    data: dict[str, Any] = Field(examples=[{"state": "running"}])
    created_at: datetime = Field(examples=[WHEN])


class EventPage(Model):
    """Some events; ask for the following ones with `last_id` as `after`. `ended`: there will be no
    more unless the job is resumed."""

    items: list[Event]
    last_id: int = Field(examples=[71])
    ended: bool

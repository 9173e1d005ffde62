"""What goes over the wire, as models: the OpenAPI document is made from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from server.pools import NAME

T = TypeVar("T")

JobState = Literal[
    "queued", "running", "pausing", "paused", "cancelling", "succeeded", "failed", "cancelled"
]
Scopes = Literal["read", "submit", "admin"]

Phase = Literal["starting", "space", "reference", "baselines", "searching", "finalists"]
Kind = Literal["trial", "baseline"]
Status = Literal[
    "ok",
    "instantiation_error",
    "build_error",
    "build_timeout",
    "runtime_error",
    "run_timeout",
    "wrong_result",
    "out_of_bounds",
    "out_of_memory",
    "device_lost",
    "cancelled",
    "stale",
]

JOB_ID = "9f2c4e1ab7d84d6f8c0a3b5e7d9f1c2e"
WORKLOAD_KEY = "1-6022f2dea13b9c45ab7b7218"
TARGET = "llvm -mcpu=znver5 -mtriple=x86_64-unknown-linux-gnu -num-cores=2"
DEVICE = "4f1c2ab09d3e"
_WHEN = "2026-01-31T12:00:00Z"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


def _whole(value: Any) -> Any:
    """To JSON 64.0 and 64 are the same integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WHOLE = BeforeValidator(_whole)
Whole = Annotated[int, _WHOLE]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


# What is sent in


class NamedWorkload(_Request):
    """An operator of the library with its arguments, in order."""

    name: str = Field(min_length=1, max_length=200, examples=["matmul_add"])
    args: list[int | float | str | bool] = Field(
        default=[], max_length=32, examples=[[1024, 1024, 1024, "float32"]]
    )


class ScriptWorkload(_Request):
    """A program as script text. It is parsed and checked, never executed."""

    script: str = Field(min_length=1, max_length=1 << 20)


class ModelWorkload(_Request):
    """An ONNX model without its weights, as `autosched.graph.skeleton` makes it. Its kernels become
    the jobs of a batch, on one budget."""

    skeleton: str = Field(
        min_length=1, max_length=1_400_000, description="the skeleton in base64, at most 1 MB"
    )


Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,63}$")]
"""A word that jobs are found by."""
JOB_NAME = r"^[^\x00-\x20\x7f-\xa0\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]" + (
    r"[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$"
)
"""What begins with something that is seen, and has nothing that steers a terminal or turns the
direction of the text around it (U+009B, U+202E, ...)."""


class JobOptions(_Request):
    """What a job may spend; the meaning is that of `TuningOptions`."""

    num_measure_trials: Whole = Field(default=64, ge=1, le=1_000_000)
    # Bounds elsewhere than before the conversion would be lost in the JSON schema of a union.
    early_stopping: Annotated[int, Field(ge=1, le=1_000_000), _WHOLE] | None = None
    num_measures_per_round: Annotated[int, Field(ge=1, le=10_000), _WHOLE] | None = None
    time_budget_s: float | None = Field(default=None, gt=0, le=30 * 86400, allow_inf_nan=False)
    finalists: Whole = Field(default=4, ge=1, le=64)
    seed: Whole = Field(default=0, ge=0, lt=1 << 31)


def _one_of_two(schema: dict[str, Any]) -> None:
    """The schema of JobRequest: one of `workload` and `model`, and neither is null."""
    schema["oneOf"] = [{"required": ["workload"]}, {"required": ["model"]}]
    for name in ("workload", "model"):
        schema["properties"][name].pop("default", None)
    schema["examples"] = [
        {
            "workload": {"name": "matmul_add", "args": [1024, 1024, 1024]},
            "target": "llvm",
            "options": {"num_measure_trials": 64, "seed": 0},
        }
    ]


class JobRequest(_Request):
    """A job to be queued: of a `workload`, or of all kernels of a `model`, whose trials are 64 for
    each unless `num_measure_trials` says how many they are together."""

    model_config = ConfigDict(json_schema_extra=_one_of_two)

    workload: NamedWorkload | ScriptWorkload | SkipJsonSchema[None] = None
    model: ModelWorkload | SkipJsonSchema[None] = None
    target: str = Field(default="llvm", min_length=1, max_length=1000)
    options: JobOptions = Field(default=JobOptions())
    priority: Whole = Field(
        default=0, ge=-100, le=100, description="among jobs of its client; above 10 for admins"
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=JOB_NAME,
        description="what the job is called; else its workload, or the function of its script",
        examples=["nightly"],
    )
    tags: list[Tag] = Field(default=[], max_length=16, examples=[["release", "resnet"]])
    pool: str | None = Field(
        default=None,
        pattern=NAME,
        description="the pool that is to measure; else the first one with such a device",
        examples=[None],
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.workload is None) == (self.model is None):
            raise ValueError("expected either a workload or a model")
        return self


class BatchItem(_Request):
    """A workload of a batch; `weight`: how often it is called."""

    workload: NamedWorkload | ScriptWorkload
    weight: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)


class BatchRequest(_Request):
    """Several workloads to be tuned on one budget: `num_measure_trials`, `time_budget_s` and
    `early_stopping` are those of all together, spent where the weighted sum of their times falls
    fastest."""

    workloads: list[BatchItem] = Field(
        min_length=1,
        max_length=32,
        examples=[[{"workload": {"name": "matmul", "args": [512, 512, 512]}, "weight": 2.0}]],
    )
    target: str = Field(default="llvm", min_length=1, max_length=1000)
    options: JobOptions = Field(default=JobOptions())
    priority: Whole = Field(default=0, ge=-100, le=100)
    name: str | None = Field(default=None, min_length=1, max_length=200, pattern=JOB_NAME)
    tags: list[Tag] = Field(default=[], max_length=16)
    pool: str | None = Field(default=None, pattern=NAME, examples=[None])


class CloneRequest(_Request):
    """Another job like one that is there."""

    # As in JobOptions: bounds beside the conversion would be lost in the JSON schema of a union.
    seed: Annotated[int, Field(ge=0, lt=1 << 31), _WHOLE] | None = Field(
        default=None, description="null: one more than the job's", examples=[7]
    )
    priority: Whole = Field(default=0, ge=-100, le=100)


class CancelRequest(_Request):
    """Jobs to be cancelled."""

    ids: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{4,64}$")]] = Field(
        min_length=1, max_length=500, examples=[[JOB_ID]]
    )


class QuotaRequest(_Request):
    """What the jobs of a token may come to; null: any."""

    max_jobs: Annotated[int, Field(ge=0, lt=1 << 53), _WHOLE] | None = None
    max_trials: Annotated[int, Field(ge=0, lt=1 << 53), _WHOLE] | None = None
    max_device_seconds: float | None = Field(
        default=None, ge=0, lt=1 << 53, allow_inf_nan=False, examples=[86400.0]
    )


class TokenRequest(QuotaRequest):
    """A token to be made."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$", examples=["ann"])
    scope: Scopes = "read"
    expires_seconds: float | None = Field(
        default=30 * 86400.0,
        gt=0,
        le=3650 * 86400.0,
        allow_inf_nan=False,
        description="null: never",
    )


class RotateRequest(_Request):
    """Another secret for a token."""

    grace_seconds: float = Field(
        default=3600.0,
        ge=0,
        le=30 * 86400.0,
        allow_inf_nan=False,
        description="for so long the old secret is taken as well",
    )


class WebhookRequest(_Request):
    """An address that is to be told when one's jobs end."""

    url: str = Field(
        min_length=8,
        max_length=2000,
        pattern=r"^https?://[!-~]+$",
        examples=["https://ci.example/autosched"],
    )
    secret: str = Field(
        min_length=16,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="signs what is told (HMAC-SHA256); kept, and never returned",
        examples=["correct-horse-battery"],
    )


class DrainRequest(_Request):
    """Workers, by their names."""

    names: list[Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,300}$")]] = Field(
        min_length=1, max_length=500, examples=[["local@tuner"]]
    )


class ResumeRequest(_Request):
    """More trials for a job that has ended, or is paused."""

    additional_trials: Whole = Field(default=0, ge=0, le=1_000_000, examples=[64])


# What comes out


class ModelTimes(_Model):
    """Seconds of a run of a model, as a sum over its kernels: `estimated_seconds` by the best of
    each, `untuned_seconds` by its fastest baseline, `gain` the latter over the former. A kernel
    that is not measured yet counts with the bound of arithmetic and memory traffic;
    `rest_seconds`: such bounds of kernels that are not tuned."""

    estimated_seconds: float = Field(examples=[0.0112])
    untuned_seconds: float = Field(examples=[0.0173])
    rest_seconds: float = Field(examples=[0.0002])
    gain: float = Field(examples=[1.54])


class Job(_Model):
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
    created_at: datetime = Field(examples=[_WHEN])
    updated_at: datetime = Field(examples=[_WHEN])
    ended_at: datetime | None = None


class JobTask(_Model):
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


class JobTasks(_Model):
    """What is tuned together with a job, on one budget: the tasks of its model, the workloads of
    its batch, or it alone; trials are those of all. `model` is null where there is none."""

    batch_id: str | None = Field(examples=[JOB_ID])
    trials_requested: int = Field(examples=[640])
    trials_done: int = Field(examples=[170])
    model: ModelTimes | None
    tasks: list[JobTask]


class Batch(_Model):
    """Jobs that were submitted together, in the order of their submission; trials are those of all,
    `states` how many of them are in each."""

    id: str = Field(examples=[JOB_ID])
    name: str | None = Field(examples=["resnet"])
    client: str
    states: dict[str, int] = Field(examples=[{"running": 2}])
    trials_requested: int = Field(examples=[128])
    trials_done: int = Field(examples=[17])
    created_at: datetime = Field(examples=[_WHEN])
    jobs: list[Job]


class CancelReport(_Model):
    """The jobs that were cancelled, or are about to be; the others, each with the reason."""

    jobs: list[Job]
    refused: dict[str, str] = Field(examples=[{JOB_ID: "no job 9f2c in this store"}])


class CurvePoint(_Model):
    """A trial that was faster than all before it: the `trial`-th, so long after the job's start."""

    trial: int = Field(examples=[12])
    record_id: int = Field(examples=[1042])
    seconds: float = Field(examples=[0.00213])
    elapsed_seconds: float = Field(examples=[38.2])


class Curve(_Model):
    """How a job got faster."""

    job_id: str = Field(examples=[JOB_ID])
    trials_done: int
    points: list[CurvePoint]


class Trial(_Model):
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
    created_at: datetime = Field(examples=[_WHEN])


class Limits(_Request):
    """What a device can do at best with all of its cores, as `autosched doctor` tells: float32
    multiply-adds, two FLOP each, a second; bytes read and written a second in a copy of large
    arrays; bytes of the last cache."""

    flops: float = Field(gt=0, lt=1e18, allow_inf_nan=False, examples=[2.5e11])
    bytes_per_second: float = Field(gt=0, lt=1e18, allow_inf_nan=False, examples=[3.2e10])
    cache_bytes: Whole = Field(gt=0, lt=1 << 50, examples=[33554432])


class DeviceLimits(_Model):
    """The limits of one device."""

    device: str = Field(examples=[DEVICE])
    flops: float = Field(examples=[2.5e11])
    bytes_per_second: float = Field(examples=[3.2e10])
    cache_bytes: int = Field(examples=[33554432])
    created_at: datetime = Field(examples=[_WHEN])


class RooflinePoint(_Model):
    """The best of a workload on a device. `intensity`: FLOP a byte that has to be moved at least;
    `share` of the device's bound, and the side that it is of."""

    workload_key: str = Field(examples=[WORKLOAD_KEY])
    workload_name: str = Field(examples=["matmul_add"])
    workload_args: list[Any] | None = Field(examples=[[1024, 1024, 1024]])
    device: str = Field(examples=[DEVICE])
    record_id: int = Field(examples=[1042])
    job_id: str = Field(examples=[JOB_ID])
    seconds: float = Field(examples=[0.00213])
    gflops: float = Field(examples=[1008.7])
    intensity: float | None = Field(examples=[170.5])
    in_cache: bool | None
    share: float | None = Field(examples=[0.87])
    bound_by: Literal["arithmetic", "memory"] | None


class Roofline(_Model):
    """The limits of devices, and what the jobs of this server reached below them."""

    devices: list[DeviceLimits]
    points: list[RooflinePoint]


class Event(_Model):
    """Something that happened to a job; a job's ids grow."""

    id: int = Field(examples=[71])
    job_id: str = Field(examples=[JOB_ID])
    kind: str = Field(examples=["state"])
    data: dict[str, Any] = Field(examples=[{"state": "running"}])
    created_at: datetime = Field(examples=[_WHEN])


class EventPage(_Model):
    """Some events; ask for the following ones with `last_id` as `after`. `ended`: there will be no
    more unless the job is resumed."""

    items: list[Event]
    last_id: int = Field(examples=[71])
    ended: bool


class Workload(_Model):
    """A computation; `key` is the hash of its canonical `script`, `flop` that of one run."""

    key: str = Field(examples=[WORKLOAD_KEY])
    name: str = Field(examples=["matmul_add"])
    args: list[Any] | None = Field(examples=[[1024, 1024, 1024]])
    flop: float = Field(examples=[2148532224.0])


class Scope(_Model):
    """A target and a device of which there are records."""

    target: str = Field(examples=[TARGET])
    device: str = Field(examples=[DEVICE])


class WorkloadDetail(Workload):
    """A computation with its canonical text, whose hash is the key, the script that can be parsed
    (null where an older version has stored it), and what there are records of."""

    script: str
    text: str | None
    devices: list[Scope] = []


class Record(_Model):
    """One measurement of a job, or a baseline. Times are seconds a run."""

    id: int = Field(examples=[1042])
    job_id: str = Field(examples=[JOB_ID])
    kind: Kind
    round: int
    slot: int
    workload_key: str = Field(examples=[WORKLOAD_KEY])
    target: str = Field(examples=[TARGET])
    device: str = Field(examples=[DEVICE])
    status: Status
    seconds: float | None = Field(examples=[0.00213])
    spread: float | None = Field(examples=[0.00001])
    noise: float | None
    runs: int
    remeasured_seconds: float | None
    build_seconds: float | None
    error: str | None
    program_hash: str
    toolchain: str
    dialect: int
    origin: Literal["local", "import"]
    created_at: datetime = Field(examples=[_WHEN])


class AssemblyLine(_Model):
    """A label or an instruction; `source`: the line of the script that it comes from, null where
    the compiler has lost that, or it comes from none."""

    text: str = Field(examples=["\tvfmadd231ps\t%zmm17, %zmm19, %zmm2"])
    source: int | None = Field(examples=[8])


class Listing(_Model):
    """A program's loop IR and assembly. `linked`: whether the lines of assembly have sources."""

    script: str
    assembly: list[AssemblyLine]
    linked: bool


class Measurement(_Model):
    """A repeated timing of a record."""

    id: int
    seconds: float
    spread: float | None
    noise: float | None
    runs: int
    origin: Literal["local", "import"]
    created_at: datetime


class RecordDetail(Record):
    """A record with its trace, the integers of its decisions, and its repeated timings."""

    trace: list[Any]
    decisions: dict[str, int]
    measurements: list[Measurement]


class Worker(_Model):
    """What measures: a device of a pool, with the jobs that run on it.

    `load` (1: one job's work all the time) and `trials_per_second` are those of the last five
    minutes, `faults` those of the last day and of each of its hours, the oldest first. A worker
    that is `drained` takes no more work; it is `draining` while it is at some.
    """

    name: str = Field(examples=["local@tuner"])
    pool: str = Field("default", examples=["default"])
    device: str = Field(examples=[DEVICE])
    description: str = Field(examples=["AMD EPYC, 2 cores, L1d 48K [4f1c2ab09d3e]"])
    target: str = Field(examples=[TARGET])
    state: str = Field(examples=["ready"])
    slots: int = Field(examples=[1])
    healthy: bool
    drained: bool = False
    last_seen: datetime | None = Field(None, examples=[_WHEN])
    load: float = Field(default=0.0, examples=[0.92])
    trials_per_second: float = Field(default=0.0, examples=[3.5])
    faults: int = Field(default=0, examples=[0])
    faults_by_hour: list[int] = []
    jobs: list[str] = Field(examples=[[JOB_ID]])


class Usage(_Model):
    """What the jobs of a token come to now: those that wait or run, trials, and seconds for which
    they were worked on."""

    jobs: int = Field(examples=[1])
    trials: int = Field(examples=[640])
    device_seconds: float = Field(examples=[512.5])


class Token(_Model):
    """A token, without its secret, with its quotas (null: none) and what is used of them.

    `previous_until`: until then the secret before the last rotation is taken as well."""

    id: str = Field(examples=["0123456789ab"])
    name: str = Field(examples=["ann"])
    scope: Scopes
    state: Literal["valid", "expired", "revoked"]
    created_at: datetime = Field(examples=[_WHEN])
    expires_at: datetime | None = Field(examples=[_WHEN])
    revoked_at: datetime | None
    previous_until: datetime | None = None
    max_jobs: int | None
    max_trials: int | None
    max_device_seconds: float | None
    used: Usage


class MadeToken(Token):
    """A token that was made or rotated just now: the only answer that has its text."""

    token: str = Field(examples=["as_0123456789ab_…"])


class Webhook(_Model):
    """An address that is told when jobs of its client end, without its secret; its deliveries of
    the last week by what came of them, and the last thing that went wrong."""

    id: str = Field(examples=["0123456789ab"])
    client: str = Field(examples=["ann"])
    url: str = Field(examples=["https://ci.example/autosched"])
    created_at: datetime = Field(examples=[_WHEN])
    waiting: int
    delivered: int
    failed: int
    last_error: str | None


class ImportReport(_Model):
    """What an import did: lines refused are told with their numbers, the first hundred."""

    new: int
    known: int
    refused: int
    reasons: list[Annotated[str, Field(examples=["line 3: not JSON"])]]


class Health(_Model):
    """Whether the server lives, or is ready to work; `checks` says what was looked at."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str]


class Page(_Model, Generic[T]):
    """Some items; `next_cursor` asks for the following ones, null: there are no more."""

    items: list[T]
    next_cursor: str | None = None


class ProblemItem(_Model):
    """One of several things wrong with a request, and where: `body/options/seed`."""

    at: str
    message: str


class Problem(_Model):
    """An error, as RFC 9457 has it; `request_id` finds it in the server's log."""

    type: str = Field(examples=["urn:autosched:problem:not-found"])
    title: str = Field(examples=["There is no such thing"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no job 9f2c"])
    instance: str = Field(examples=["/v1/jobs/9f2c"])
    request_id: str = Field(examples=["4f1d6a2b9c0e77aa"])
    errors: list[ProblemItem] = []

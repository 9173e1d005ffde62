"""What is sent in, as bodies."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from server.pools.plan import NAME
from server.schemas.base import DEVICE, JOB_ID, TARGET, WHOLE, Model, Request, Scopes, Whole


class NamedWorkload(Request):
    """An operator of the library with its arguments, in order."""

    name: str = Field(min_length=1, max_length=200, examples=["matmul_add"])
    args: list[int | float | str | bool] = Field(
        default=[], max_length=32, examples=[[1024, 1024, 1024, "float32"]]
    )


class ScriptWorkload(Request):
    """A program as script text. It is parsed and checked, never executed."""

    script: str = Field(min_length=1, max_length=1 << 20)


class ModelWorkload(Request):
    """An ONNX model without its weights, as `autosched.graph.skeleton` makes it. Its kernels become
    the jobs of a batch, on one budget."""

    skeleton: str = Field(
        min_length=1, max_length=1_400_000, description="the skeleton in base64, at most 1 MB"
    )


Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,63}$")]
JOB_NAME = (
    r"^[^\x00-\x20\x7f-\xa0\xad\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u2000-\u200f"
    r"\u2028-\u202f\u205f-\u206f\u20d0-\u20ff\u3000\ufe00-\ufe0f\ufe20-\ufe2f\ufeff]"
    r"[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$"
)
"""What begins with something that is seen by itself, no space and none of the marks that combine
with what stands before (Unicode's blocks of these), and has nothing that steers a terminal or turns
the direction of the text around it (U+009B, U+202E, ...)."""


class JobOptions(Request):
    """What a job may spend; the meaning is that of `TuningOptions`."""

    num_measure_trials: Whole = Field(default=64, ge=1, le=1_000_000)
    # Bounds elsewhere than before the conversion would be lost in the JSON schema of a union.
    early_stopping: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    num_measures_per_round: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = None
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


class JobRequest(Request):
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


class BatchItem(Request):
    """A workload of a batch; `weight`: how often it is called."""

    workload: NamedWorkload | ScriptWorkload
    weight: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)


class BatchRequest(Request):
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


class CloneRequest(Request):
    """Another job like one that is there."""

    # As in JobOptions: bounds beside the conversion would be lost in the JSON schema of a union.
    seed: Annotated[int, Field(ge=0, lt=1 << 31), WHOLE] | None = Field(
        default=None, description="null: one more than the job's", examples=[7]
    )
    priority: Whole = Field(default=0, ge=-100, le=100)


class CancelRequest(Request):
    """Jobs to be cancelled."""

    ids: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{4,64}$")]] = Field(
        min_length=1, max_length=500, examples=[[JOB_ID]]
    )


class QuotaRequest(Request):
    """What the jobs of a token may come to; null: any."""

    max_jobs: Annotated[int, Field(ge=0, lt=1 << 53), WHOLE] | None = None
    max_trials: Annotated[int, Field(ge=0, lt=1 << 53), WHOLE] | None = None
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


class RotateRequest(Request):
    """Another secret for a token."""

    grace_seconds: float = Field(
        default=3600.0,
        ge=0,
        le=30 * 86400.0,
        allow_inf_nan=False,
        description="for so long the old secret is taken as well",
    )


class WebhookRequest(Request):
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


class DrainRequest(Request):
    """Workers, by their names."""

    names: list[Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,300}$")]] = Field(
        min_length=1, max_length=500, examples=[["local@tuner"]]
    )


class ResumeRequest(Request):
    """More trials for a job that has ended, or is paused."""

    additional_trials: Whole = Field(default=0, ge=0, le=1_000_000, examples=[64])


class Limits(Request):
    """What a device can do at best with all of its cores, as `autosched doctor` tells: float32
    multiply-adds, two FLOP each, a second; bytes read and written a second in a copy of large
    arrays; bytes of the last cache."""

    flops: float = Field(gt=0, lt=1e18, allow_inf_nan=False, examples=[2.5e11])
    bytes_per_second: float = Field(gt=0, lt=1e18, allow_inf_nan=False, examples=[3.2e10])
    cache_bytes: Whole = Field(gt=0, lt=1 << 50, examples=[33554432])


class Scope(Model):
    """A target and a device of which there are records."""

    target: str = Field(examples=[TARGET])
    device: str = Field(examples=[DEVICE])

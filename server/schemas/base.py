"""What the schemas share: their bases, enumerations, and the values of their examples."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from records.types import Status as Status

T = TypeVar("T")
JobState = Literal[
    "queued", "running", "pausing", "paused", "cancelling", "succeeded", "failed", "cancelled"
]
Scopes = Literal["read", "submit", "admin"]
Phase = Literal["starting", "space", "reference", "baselines", "searching", "finalists"]
Kind = Literal["trial", "baseline"]
JOB_ID = "9f2c4e1ab7d84d6f8c0a3b5e7d9f1c2e"
WORKLOAD_KEY = "1-6022f2dea13b9c45ab7b7218"
TARGET = "llvm -mcpu=znver5 -mtriple=x86_64-unknown-linux-gnu -num-cores=2"
DEVICE = "4f1c2ab09d3e"
WHEN = "2026-01-31T12:00:00Z"


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


def _whole(value: Any) -> Any:
    """To JSON 64.0 and 64 are the same integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Whole = Annotated[int, WHOLE]


class Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

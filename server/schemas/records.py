"""Records, workloads and bounds of devices, as they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from server.schemas.base import DEVICE, JOB_ID, TARGET, WHEN, WORKLOAD_KEY, Kind, Model, Status
from server.schemas.requests import Scope


class DeviceLimits(Model):
    """The limits of one device."""

    device: str = Field(examples=[DEVICE])
    flops: float = Field(examples=[2.5e11])
    bytes_per_second: float = Field(examples=[3.2e10])
    cache_bytes: int = Field(examples=[33554432])
    created_at: datetime = Field(examples=[WHEN])


class RooflinePoint(Model):
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


class Roofline(Model):
    """The limits of devices, and what the jobs of this server reached below them."""

    devices: list[DeviceLimits]
    points: list[RooflinePoint]


class Workload(Model):
    """A computation; `key` is the hash of its canonical `script`, `flop` that of one run."""

    key: str = Field(examples=[WORKLOAD_KEY])
    name: str = Field(examples=["matmul_add"])
    args: list[Any] | None = Field(examples=[[1024, 1024, 1024]])
    flop: float = Field(examples=[2148532224.0])


class WorkloadDetail(Workload):
    """A computation with its canonical text, whose hash is the key, the script that can be parsed
    (null where an older version has stored it), and what there are records of."""

    script: str
    text: str | None
    devices: list[Scope] = Field(default=[])


class Record(Model):
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
    created_at: datetime = Field(examples=[WHEN])


class AssemblyLine(Model):
    """A label or an instruction; `source`: the line of the script that it comes from, null where
    the compiler has lost that, or it comes from none."""

    text: str = Field(examples=["\tvfmadd231ps\t%zmm17, %zmm19, %zmm2"])
    source: int | None = Field(examples=[8])


class Listing(Model):
    """A program's loop IR and assembly. `linked`: whether the lines of assembly have sources."""

    script: str
    assembly: list[AssemblyLine]
    linked: bool


class Measurement(Model):
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


class ImportReport(Model):
    """What an import did: lines refused are told with their numbers, the first hundred."""

    new: int
    known: int
    refused: int
    reasons: list[Annotated[str, Field(examples=["line 3: not JSON"])]]

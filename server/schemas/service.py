"""Workers, tokens, webhooks, health, pages and problems, as they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Literal

from pydantic import Field

from server.schemas.base import DEVICE, JOB_ID, TARGET, WHEN, Model, Scopes, T


class Worker(Model):
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
    last_seen: datetime | None = Field(None, examples=[WHEN])
    load: float = Field(default=0.0, examples=[0.92])
    trials_per_second: float = Field(default=0.0, examples=[3.5])
    faults: int = Field(default=0, examples=[0])
    faults_by_hour: list[int] = Field(default=[])
    jobs: list[str] = Field(examples=[[JOB_ID]])


class Usage(Model):
    """What the jobs of a token come to now: those that wait or run, trials, and seconds for which
    they were worked on."""

    jobs: int = Field(examples=[1])
    trials: int = Field(examples=[640])
    device_seconds: float = Field(examples=[512.5])


class Token(Model):
    """A token, without its secret, with its quotas (null: none) and what is used of them.

    `previous_until`: until then the secret before the last rotation is taken as well."""

    id: str = Field(examples=["0123456789ab"])
    name: str = Field(examples=["ann"])
    scope: Scopes
    state: Literal["valid", "expired", "revoked"]
    created_at: datetime = Field(examples=[WHEN])
    expires_at: datetime | None = Field(examples=[WHEN])
    revoked_at: datetime | None
    previous_until: datetime | None = None
    max_jobs: int | None
    max_trials: int | None
    max_device_seconds: float | None
    used: Usage


class MadeToken(Token):
    """A token that was made or rotated just now: the only answer that has its text."""

    token: str = Field(examples=["as_0123456789ab_…"])


class Webhook(Model):
    """An address that is told when jobs of its client end, without its secret; its deliveries of
    the last week by what came of them, and the last thing that went wrong."""

    id: str = Field(examples=["0123456789ab"])
    client: str = Field(examples=["ann"])
    url: str = Field(examples=["https://ci.example/autosched"])
    created_at: datetime = Field(examples=[WHEN])
    waiting: int
    delivered: int
    failed: int
    last_error: str | None


class Health(Model):
    """Whether the server lives, or is ready to work; `checks` says what was looked at."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str]


class Page(Model, Generic[T]):
    """Some items; `next_cursor` asks for the following ones, null: there are no more."""

    items: list[T]
    next_cursor: str | None = None


class ProblemItem(Model):
    """One of several things wrong with a request, and where: `body/options/seed`."""

    at: str
    message: str


class Problem(Model):
    """An error, as RFC 9457 has it; `request_id` finds it in the server's log."""

    type: str = Field(examples=["urn:autosched:problem:not-found"])
    title: str = Field(examples=["There is no such thing"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no job 9f2c"])
    instance: str = Field(examples=["/v1/jobs/9f2c"])
    request_id: str = Field(examples=["4f1d6a2b9c0e77aa"])
    errors: list[ProblemItem] = Field(default=[])

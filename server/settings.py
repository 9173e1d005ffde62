"""What a server can be told: where its records are, what it measures on, how much it takes.

Read once, by `load`: defaults, then a TOML file, then the environment, then flags. The object is
frozen and passed down; making one reads nothing.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from autosched.errors import AutoschedError
from server.http.origins import origin_of
from server.http.security import LOOPBACK_HOSTS, Proxies, is_loopback
from server.pools.plan import DEFAULT, Address, PoolPlan, PoolSettings, check_name, slots_of

PREFIX = "AUTOSCHED_"
FILE_VARIABLE = "AUTOSCHED_SETTINGS"
OF_OTHERS = frozenset({FILE_VARIABLE, "AUTOSCHED_TOKEN", "AUTOSCHED_SERVER"})
"""Variables with the prefix that are no settings: the file, and what clients are told by."""

LISTS = frozenset({"allowed_hosts", "trusted_proxies", "webhook_origins", "webhook_networks"})
"""Settings that are several texts, between commas in the environment."""

_DAY = 86400.0
"""More seconds than any of these can mean, and fewer than a clock's wait can take."""


class SettingsError(AutoschedError):
    """Settings that cannot be: unknown, of the wrong type, or contradicting one another."""


class Settings(BaseModel):
    """Settings of one server. The descriptions are what `autosched serve --help` prints."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )

    db: str = Field("autosched.db", description="an SQLite file or a database URL")
    pool: Address = Field("local", description="what measures: local, replay:…, or a scheduler")
    pools: dict[str, PoolSettings] = Field(
        {}, description="several pools in place of one, by name; in a file only: [pools.NAME]"
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="address to listen on; others than loopback need tokens",
    )
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0: a free one")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error"
    )

    require_tokens: bool = Field(
        False, description="ask for tokens on loopback, too; elsewhere they are always asked for"
    )
    allowed_hosts: tuple[str, ...] = Field(
        (), description="names of this server that Host may have; none: loopback names, or any"
    )
    tls_certificate: str | None = Field(None, description="PEM file with the certificate chain")
    tls_key: str | None = Field(None, description="PEM file with the private key")

    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="addresses or networks of proxies, whose X-Forwarded-For and -Proto are taken",
    )
    secure_cookies: bool = Field(
        False, description="send cookies over TLS only, also where it ends before this server"
    )
    hsts_seconds: int = Field(
        0, ge=0, le=1 << 30, description="have browsers come by TLS only for so long; 0: not told"
    )

    jobs_at_once: int | None = Field(
        None,
        ge=0,
        le=64,
        description="jobs that run at a time; 0: none, it only answers; "
        "left out: 1 on the local pool, 4 on others",
    )
    lease_seconds: float = Field(
        30.0,
        gt=0,
        le=_DAY,
        description="without a sign of life for so long, a job goes to another server",
    )
    readers: int = Field(
        4, ge=1, le=64, description="threads that ask the database; more help where it is far away"
    )
    poll_seconds: float = Field(
        0.5, gt=0, le=_DAY, description="how often queue and events are looked at"
    )
    grace_seconds: float = Field(10.0, gt=0, le=_DAY, description="time to stop in, after SIGTERM")

    requests_per_second: float = Field(1000.0, ge=0, description="by one client; 0: any number")
    request_burst: int = Field(2000, ge=1, description="requests of one client at once")
    url_bytes: int = Field(8 << 10, ge=256, description="the longest URL")
    header_bytes: int = Field(16 << 10, ge=1024, description="the largest headers of a request")
    body_bytes: int = Field(4 << 20, ge=1024, description="the largest body")
    import_bytes: int = Field(1 << 30, ge=1024, description="the largest import of records")
    body_seconds: float = Field(
        30.0, gt=0, le=_DAY, description="time for a body, or a part of an import"
    )
    head_seconds: float = Field(
        10.0, gt=0, le=_DAY, description="time for the headers of a request"
    )
    write_seconds: float = Field(
        30.0,
        gt=0,
        le=_DAY,
        description="without reading for so long a client that is behind is cut off",
    )
    connections: int = Field(1024, ge=1, description="open connections")
    connections_per_address: int = Field(
        512, ge=1, description="open connections of one address (of IPv6: of one /64)"
    )
    streams: int = Field(512, ge=0, description="open event streams")
    streams_per_client: int = Field(256, ge=0, description="open event streams of one client")
    jobs_queued: int = Field(1000, ge=0, description="jobs that wait, of all clients")
    jobs_queued_per_client: int = Field(100, ge=0, description="jobs that wait, of one client")

    workload_operations: float = Field(1e14, gt=0, description="operations of one run")
    workload_bytes: int = Field(8 << 30, gt=0, description="bytes of all buffers of a workload")
    workload_depth: int = Field(
        32, gt=0, description="loops around one block, dimensions of a buffer"
    )
    workload_blocks: int = Field(256, gt=0, description="blocks of a workload")
    script_characters: int = Field(1 << 20, gt=0, description="length of a script's text")
    examine_seconds: float = Field(
        10.0, gt=0, le=_DAY, description="processor time to examine one workload"
    )
    examine_bytes: int = Field(4 << 30, gt=0, description="memory to examine one workload")
    examine_processes: int = Field(2, ge=1, le=64, description="workloads examined at once")
    prepare_seconds: float = Field(
        300.0,
        gt=0,
        le=_DAY,
        description="time of a job before its first trial: search space, reference, baselines",
    )
    prepare_bytes: int = Field(
        2 << 30, gt=0, description="memory of a job's process while its search space is built"
    )
    keep_progress_days: float | None = Field(
        90.0,
        gt=0,
        le=36500,
        description="events that told of records are removed so long after their job's end; the "
        "records stay",
    )
    keep_jobs_days: float | None = Field(
        None,
        gt=0,
        le=36500,
        description="jobs made here that ended so long ago are removed with their records and "
        "events, but for those that hold a workload's best; left out: never",
    )
    retries: int = Field(
        3, ge=0, le=100, description="times that a job's killed process is started again, in a row"
    )
    retry_seconds: float = Field(
        5.0, gt=0, le=3600.0, description="pause before that, twice as long each time"
    )
    webhook_origins: tuple[str, ...] = Field(
        (), description="where webhooks may lead, such as https://ci.example; none: there are none"
    )
    webhook_networks: tuple[str, ...] = Field(
        (), description="networks besides public addresses that webhooks may lead to"
    )
    webhook_attempts: int = Field(6, ge=1, le=20, description="times that a webhook is told")
    webhook_retry_seconds: float = Field(
        10.0, gt=0, le=3600.0, description="pause after the first time, four times as long each"
    )
    build_seconds: float = Field(15.0, gt=0, le=_DAY, description="time to build one candidate")

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together; found one of them")
        return self

    @model_validator(mode="after")
    def _check_pools(self) -> Self:
        if self.pools and self.model_fields_set & {"pool", "jobs_at_once"}:
            raise ValueError(
                "pools is in place of pool and jobs_at_once; found both: each pool has an address "
                "and jobs_at_once of its own"
            )
        for name in self.pools:
            check_name(name)
        return self

    @field_validator("webhook_origins")
    @classmethod
    def _check_origins(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for text in given:
            origin_of(text)
        return given

    @field_validator("trusted_proxies", "webhook_networks")
    @classmethod
    def _check_proxies(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for text in given:
            ip_network(text)  # a ValueError, which says what is wrong
        return given

    @property
    def webhook_allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks besides public addresses that webhooks may lead to."""
        return tuple(map(ip_network, self.webhook_networks))

    @property
    def proxies(self) -> Proxies:
        """The proxies that are trusted."""
        return Proxies(tuple(map(ip_network, self.trusted_proxies)))

    @property
    def tokens_required(self) -> bool:
        """Whether requests need a token."""
        return self.require_tokens or not is_loopback(self.host)

    @cached_property
    def all_pools(self) -> tuple[PoolPlan, ...]:
        """The pools, in the order in which a job is offered to them."""
        if not self.pools:
            return (PoolPlan(DEFAULT, self.pool, (), slots_of(self.pool, self.jobs_at_once)),)
        return tuple(
            PoolPlan(name, one.address, one.kinds, slots_of(one.address, one.jobs_at_once))
            for name, one in self.pools.items()
        )

    @property
    def hosts(self) -> frozenset[str] | None:
        """What the Host header may name, lower case, without ports; None: anything.

        On loopback it is always checked: a page on another site may have its name resolve to here.
        """
        if self.allowed_hosts:
            return frozenset(h.lower() for h in self.allowed_hosts) | LOOPBACK_HOSTS
        return LOOPBACK_HOSTS | {self.host.lower()} if is_loopback(self.host) else None


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | None = None
) -> Settings:
    """The settings that hold: `flags` (None: not given) before environment before file.

    Raises SettingsError for unknown names, telling the nearest known one, and wrong values.
    """
    file = file or environment.get(FILE_VARIABLE)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, found in (
        (file or "", _from_file(file) if file else {}),
        ("the environment", _from_environment(environment)),
        ("the command line", {k: v for k, v in flags.items() if v is not None}),
    ):
        values |= found
        sources |= dict.fromkeys(found, source)
    try:
        return Settings(**values)
    except ValidationError as e:
        wrong = [
            f"{'.'.join(map(str, x['loc']))} (from {sources[str(x['loc'][0])]}): {x['msg']}"
            if x["loc"]
            else x["msg"]
            for x in e.errors()
        ]
        raise SettingsError("; ".join(wrong)) from e


def _from_file(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            found = tomllib.load(stream)
    except OSError as e:
        raise SettingsError(f"cannot read the settings in {file}: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise SettingsError(f"{file} is not TOML: {e}") from e
    for name in found:
        _check_known(name, f"in {Path(file).name}", name)
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in OF_OTHERS or not text:
            continue
        name = variable.removeprefix(PREFIX).lower()
        _check_known(name, "in the environment", variable)
        found[name] = [x.strip() for x in text.split(",")] if name in LISTS else text
    return found


def _check_known(name: str, where: str, written: str) -> None:
    if name in Settings.model_fields:
        return
    near = difflib.get_close_matches(name, Settings.model_fields, 1)
    advice = f"did you mean {near[0]}?" if near else "`autosched serve --help` lists them all"
    raise SettingsError(f"unknown setting {written} {where}; {advice}")

"""The pools of a server, as its settings have them: a name, an address, kinds of targets."""

from __future__ import annotations

import re
import socket
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from autosched.errors import AutoschedError
from autosched.tuning.pools import PoolAddress

DEFAULT = "default"
"""The name of the only pool of a server that names none; its jobs are any server's."""
NAME = r"^[a-z0-9][a-z0-9_-]{0,31}$"
Kind = Literal["llvm", "cuda", "opencl"]


def _check_address(text: str) -> str:
    try:
        PoolAddress.parse(text)
    except AutoschedError as e:
        raise ValueError(str(e)) from e
    return text


Address = Annotated[str, AfterValidator(_check_address)]
"""A setting that is a pool's address."""


class PoolSettings(BaseModel):
    """One pool in the settings: `[pools.NAME]` of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    address: Address = Field(description="what measures: local, replay:… or a scheduler")
    kinds: tuple[Kind, ...] = Field((), description="kinds of targets that it takes; none: all")
    jobs_at_once: int | None = Field(None, ge=0, le=64)


class PoolPlan(NamedTuple):
    """A pool that a server has: jobs of targets of `kinds` (empty: any), `slots` at a time."""

    name: str
    address: str
    kinds: tuple[str, ...]
    slots: int

    @property
    def parsed(self) -> PoolAddress:
        """The address, taken apart."""
        return PoolAddress.parse(self.address)

    @property
    def is_cluster(self) -> bool:
        """Whether its devices are a scheduler's workers."""
        return self.parsed.is_cluster

    @property
    def worker(self) -> str:
        """The name of its one worker, where it is no cluster: servers on other machines that share
        the database have others. What may be a password in an address is left out."""
        shown = self.parsed.scheme if "://" in self.address else self.address
        return f"{shown}@{socket.gethostname()}"

    @property
    def stored(self) -> str | None:
        """The name as its jobs have it."""
        return None if self.name == DEFAULT else self.name

    def takes(self, kind: str) -> bool:
        """Whether jobs of targets of that kind are for it."""
        return not self.kinds or kind in self.kinds


def slots_of(address: str, given: int | None) -> int:
    """How many jobs run at a time. Two on one machine would only wait for each other."""
    if given is not None:
        return given
    return 1 if PoolAddress.parse(address).is_local else 4


def check_name(name: str) -> str:
    """Raises ValueError for what is no pool's name."""
    if not re.fullmatch(NAME, name) or name == DEFAULT:
        raise ValueError(
            f"{name!r}: a pool's name is up to 32 small letters, digits, - and _, and not {DEFAULT}"
        )
    return name

"""Pools by address: what `--pool`, `TuningOptions(pool=…)` and a service's jobs name.

| address | pool |
|---|---|
| `local`, `local?device=1` | this machine, or a GPU of it: `measure.local.pool.LocalPool` |
| `replay:model` | nothing is built or timed: every program gets the seconds of a made-up machine |
| `replay:RECORDS` | the same from a log, a SQLite file or a database URL, by program |
| `tls://HOST:PORT`, `tcp://HOST:PORT` | the workers of a scheduler: `ClusterPool` |

An address may end in options: `replay:model?seconds=0.05` answers twenty candidates a second;
`tls://HOST:PORT?label=lab&tls-dir=certs` names workers and the folder of certificates.
What a replay says is never ranked beside what was measured: its device is another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from autosched.errors import TuningError

if TYPE_CHECKING:
    from autosched.target import Target
    from autosched.tir.nodes import PrimFunc
    from autosched.tuning.options import TuningOptions
    from measure.cluster.pool import ClusterPool
    from measure.local.build import LocalBuilder
    from measure.local.pool import LocalRunner
    from measure.pool import Pool

LOCAL = "local"
FORMS = "local, replay:model, replay:RECORDS or tls://HOST:PORT"
MODEL = "model"
CLUSTER_OPTIONS = ("label", "fingerprint", "tls-dir")
SPREAD = 0.25
"""The made-up machine's programs are up to this fraction slower than their roofline."""


@dataclass(frozen=True)
class PoolAddress:
    """An address taken apart: `scheme` "local", "replay", "tls" or "tcp"; `rest` what follows it,
    without the options."""

    text: str
    scheme: str
    rest: str
    options: Mapping[str, str]

    @staticmethod
    def parse(text: str) -> PoolAddress:
        """Raises TuningError on what is no address."""
        body, options = _split_options(text)
        scheme, _, rest = body.partition(":")
        known = {
            "local": not rest,
            "replay": bool(rest),
            "tls": rest.startswith("//"),
            "tcp": rest.startswith("//"),
        }
        if not known.get(scheme, False):
            raise TuningError(f"{text!r} is no pool's address; expected {FORMS}")
        address = PoolAddress(text, scheme, rest, options)
        own = {"local": ("device",), "replay": ("seconds",)}.get(scheme, CLUSTER_OPTIONS)
        wrong = [name for name in options if name not in own]
        if wrong:
            has = f"it has {', '.join(own)}" if own else "it has none"
            raise TuningError(f"pool {text}: unknown option {wrong[0]}; {has}")
        return address

    @property
    def is_cluster(self) -> bool:
        """Whether it is a scheduler's."""
        return self.scheme in ("tls", "tcp")

    @property
    def is_local(self) -> bool:
        """Whether candidates run on this machine, in this process's own pool."""
        return self.scheme == LOCAL


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the last `?`, and the options after it."""
    body, mark, query = text.rpartition("?")
    if not mark:
        return text, {}
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
    except ValueError as e:
        raise TuningError(f"pool {text}: expected options as name=value; found {query!r}") from e
    if body.startswith("replay:") and "://" in body and "seconds" not in options:
        return text, {}  # those of a database URL
    return body, options


def pool_from(
    address: str,
    target: Target,
    builder: LocalBuilder | None = None,
    runner: LocalRunner | None = None,
    seed: int = 0,
    aligned: bool = False,
) -> Pool:
    """The pool at an address, for programs of `target`. Whoever asks closes it.

    `builder`, `runner`: options of the local pool, whose runner is `aligned` if this says so.
    `seed`: of its input data where a job names none. Raises TuningError if there can be none,
    RecordError if a replay's records cannot be read.
    """
    parsed = PoolAddress.parse(address)
    if parsed.is_local:
        from measure.local.build import LocalBuilder
        from measure.local.pool import LocalPool, LocalRunner

        runner = runner or LocalRunner()
        if aligned and not runner.aligned:
            runner = replace(runner, aligned=True)
        if "device" in parsed.options:
            runner = replace(runner, device=_device(parsed))
        return LocalPool(target, builder or LocalBuilder(), runner, seed)
    if builder is not None or runner is not None:
        raise TuningError(
            f"builder and runner are options of the local pool; pool {address} has none"
        )
    if parsed.scheme == "replay":
        return _replay(parsed, target)
    return cluster_pool(parsed, target, seed)


@contextmanager
def pool_of(options: TuningOptions, target: Target, aligned: bool = False) -> Iterator[Pool]:
    """The pool that the options name; if by address, or not at all, it is closed at the end.
    `aligned`: see `pool_from`."""
    if options.pool is not None and not isinstance(options.pool, str):
        yield options.pool
        return
    address = options.pool or LOCAL
    pool = pool_from(address, target, options.builder, options.runner, options.seed, aligned)
    try:
        yield pool
    finally:
        pool.close()


def _replay(address: PoolAddress, target: Target) -> Pool:
    from measure.devices import Device
    from measure.replay import ReplayPool, modelled, recorded

    delay = _seconds(address)
    device = Device(f"replay:{address.rest}", target.mcpu, target.num_cores, (), "none")
    if address.rest == MODEL:
        return ReplayPool(device, modelled(made_up_machine(target)), delay)
    from records import open_records

    with open_records(address.rest) as source:
        return ReplayPool(device, recorded(source.records(target=str(target))), delay)


def _device(address: PoolAddress) -> int:
    text = address.options["device"]
    if not (text.isascii() and text.isdigit()):
        raise TuningError(f"pool {address.text}: device is {text!r}; expected a GPU's number")
    return int(text)


def _seconds(address: PoolAddress) -> float:
    text = address.options.get("seconds", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise TuningError(
            f"pool {address.text}: seconds is {text!r}; expected what a candidate takes, such as "
            "seconds=0.05"
        )
    return seconds


def made_up_machine(target: Target) -> Callable[[PrimFunc], float]:
    """Seconds of scheduled programs: their roofline, and for each program a fraction more that
    follows from its hash, so that there is something to learn which no model knows."""
    from autosched.search.analysis import analyse
    from autosched.tir.canonical import program_hash
    from cost_model.roofline import roofline

    def seconds(func: PrimFunc) -> float:
        digest = hashlib.sha256(program_hash(func).encode()).digest()
        share = int.from_bytes(digest[:6], "little") / 2**48
        return float(roofline(analyse(func, target), target).seconds) * (1.0 + SPREAD * share)

    return seconds


def cluster_pool(address: PoolAddress, target: Target | None, seed: int = 0) -> ClusterPool:
    """The workers of a scheduler. Without `target` programs are for what its devices are; the pool
    says so (`ClusterPool.target`). Raises MeasureError if the scheduler cannot be reached,
    MissingPackage where `autosched[cluster]` is not installed."""
    from measure.cluster.pool import ClusterPool

    o = address.options
    return ClusterPool(
        f"{address.scheme}:{address.rest}",
        label=o.get("label"),
        tls_dir=o.get("tls-dir"),
        fingerprint=o.get("fingerprint"),
        target=target,
        seed=seed,
    )

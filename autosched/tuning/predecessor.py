"""What TVM's auto_scheduler has words for and this project says otherwise.

`autosched.auto_scheduler` hands these out beside the names that are the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from autosched.checks import instance, number, text
from autosched.errors import TuningError
from autosched.integers import integer
from autosched.schedule import Schedule
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import Buffer
from autosched.tuning.best import schedule_of
from autosched.tuning.options import TuningOptions as Options
from autosched.tuning.policy import EmptyPolicy
from autosched.tuning.policy import SketchPolicy as Policy
from autosched.tuning.task import SearchTask
from autosched.workloads import check_args, prim_func_of
from measure.local.build import LocalBuilder
from measure.local.slot import LocalRunner as Runner

if TYPE_CHECKING:
    from autosched.search.model import CostModel
    from autosched.tuning.callbacks import MeasureCallback


def make_workload_key(func: Callable[..., Any] | str, args: Sequence[Any] = ()) -> str:
    """The key of a workload, given as to `SearchTask`: a hash of the program, so that two spellings
    of one function have one key. Raises WorkloadError."""
    return workload_key(prim_func_of(func, check_args(args)))


class SketchPolicy(Policy):
    """`autosched.SketchPolicy` with the predecessor's name of the cost model."""

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: CostModel | None = None,
        params: Any = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(task, program_cost_model, params, seed or 0, init_search_callbacks or ())
        self.verbose = verbose


class LocalRunner(Runner):
    """`autosched.LocalRunner` with the predecessor's names: seconds of `cooldown_interval`, and
    `enable_cpu_cache_flush`. What is left out is this project's default."""

    def __init__(
        self,
        timeout: float = Runner.timeout,
        number: int = Runner.number,
        repeat: int = Runner.repeat,
        min_repeat_ms: float = Runner.min_repeat_ms,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int | None = None,
    ) -> None:
        super().__init__(
            timeout=timeout,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_ms=1e3 * _seconds("cooldown_interval", cooldown_interval),
            flush_cache=enable_cpu_cache_flush,
            device=device,
        )


def _seconds(name: str, value: Any) -> float:
    return number(name, value, TuningError)


@dataclass(frozen=True)
class RPCRunner:
    """The workers of a scheduler: `key` is the label of the workers to use, `host` and `port` the
    scheduler's. How a worker times and how long it waits are options of `autosched worker`.
    `tls_dir`: the folder of certificates (`autosched cluster certs`); without one the connection
    is a plain one, which a scheduler takes from this machine only."""

    key: str
    host: str
    port: int
    tls_dir: str | None = None

    def __post_init__(self) -> None:
        for name in ("key", "host"):
            text(name, getattr(self, name), TuningError)
        integer("port", self.port, 1, TuningError)

    @property
    def address(self) -> str:
        """The pool's address, as `TuningOptions(pool=)` takes it."""
        scheme = "tcp" if self.tls_dir is None else "tls"
        certificates = "" if self.tls_dir is None else f"&tls-dir={self.tls_dir}"
        return f"{scheme}://{self.host}:{self.port}?label={self.key}{certificates}"


class LocalRPCMeasureContext:
    """A context whose `runner` measures on this machine: every local run has processes of its own
    here, so there is nothing to start."""

    def __init__(self, **options: Any) -> None:
        self.runner = LocalRunner(**options)

    def __enter__(self) -> LocalRPCMeasureContext:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing was started."""


def TuningOptions(
    num_measure_trials: int = 0,
    early_stopping: int | None = None,
    num_measures_per_round: int = 64,
    verbose: int = 1,
    builder: LocalBuilder | str | None = "local",
    runner: Union[Runner, RPCRunner, str, None] = "local",
    measure_callbacks: Sequence[MeasureCallback] | None = None,
    **more: Any,
) -> Options:
    """`autosched.TuningOptions` as the predecessor takes it: its order and defaults, "local" for
    builder and runner, an `RPCRunner`; `more` are this project's own (`seed`, `resume`, …)."""
    remote = isinstance(runner, RPCRunner)
    if isinstance(runner, RPCRunner):
        more["pool"] = runner.address
    return Options(
        num_measure_trials=num_measure_trials,
        early_stopping=early_stopping,
        num_measures_per_round=num_measures_per_round,
        verbose=verbose,
        builder=None if isinstance(builder, str) and builder == "local" else builder,  # type: ignore[arg-type]
        runner=None if remote or runner == "local" else runner,  # type: ignore[arg-type]
        measure_callbacks=measure_callbacks or (),
        **more,
    )


def auto_schedule(
    task: SearchTask,
    search_policy: Policy | EmptyPolicy | str | None = None,
    tuning_options: Options | None = None,
) -> tuple[Schedule, tuple[Buffer, ...]]:
    """Schedule and parameters of the best program found for a task.

    With trials it is measured, as by `task.tune`. Without `tuning_options`, or with
    `num_measure_trials=0`, nothing is: the program is the one that the policy's cost model ranks
    first. Of an `EmptyPolicy` it is the one that is written, which trials time.
    Raises TuningError as `tune` does, or for another task's policy.
    """
    from autosched.tuning.policies import policy_of

    instance("task", task, SearchTask, "a SearchTask", TuningError)
    if isinstance(search_policy, EmptyPolicy):
        search_policy.check_is_for(task)
        if tuning_options is not None and tuning_options.num_measure_trials:
            task.tune(tuning_options, search_policy)
        schedule = Schedule(search_policy.task.prim_func)
        return schedule, schedule.func.params
    if tuning_options is not None and tuning_options.num_measure_trials:
        best = task.tune(tuning_options, search_policy).best
        schedule = schedule_of(task.prim_func, best)
        return schedule, schedule.func.params
    seed = 0 if tuning_options is None else tuning_options.seed
    policy = policy_of(search_policy, task, seed)
    ranked = policy.evolutionary_search(1)
    if not ranked:
        raise TuningError(f"{task.title} has no candidate to rank; build it as it is written")
    schedule = policy.space.schedule(*ranked[0])
    return schedule, schedule.func.params

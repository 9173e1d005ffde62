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
from autosched.search.evolution import SearchParams
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import Buffer
from autosched.tuning.best import schedule_of
from autosched.tuning.models import XGBModel
from autosched.tuning.options import TuningOptions as Options
from autosched.tuning.policies import MODELS, SearchPolicies
from autosched.tuning.policy import EmptyPolicy, PreloadMeasuredStates
from autosched.tuning.policy import SketchPolicy as Policy
from autosched.tuning.run.scheduler import Objective, SchedulerResult, Strategy
from autosched.tuning.run.scheduler import TaskScheduler as Scheduler
from autosched.tuning.run.scheduler_callbacks import TaskSchedulerCallback
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
    """`autosched.SketchPolicy` with the predecessor's name of the cost model. `params` may be a
    dict, as there; those that mean the same here are taken, and what is left out has this project's
    default. Raises TuningError for a key that the predecessor does not have."""

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: CostModel | None = None,
        params: Any = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[Any] | None = None,
    ) -> None:
        chosen = _search_params(params) if isinstance(params, dict) else params
        super().__init__(task, program_cost_model, chosen, seed or 0, init_search_callbacks or ())
        self.verbose = verbose


_PARAMS = {
    "eps_greedy": "eps_greedy",
    "sample_init_min_population": "population",
    "evolutionary_search_population": "offspring",
    "evolutionary_search_num_iters": "generations",
}
"""The predecessor's parameters of a policy, and the fields that mean the same."""
_NO_PARAMS = (
    "retry_search_one_round_on_empty",
    "sample_init_use_measured_ratio",
    "evolutionary_search_mutation_prob",
    "cpu_multi_level_tiling_structure",
    "gpu_multi_level_tiling_structure",
    "max_innermost_split_factor",
    "max_vectorize_size",
    "disable_change_compute_location",
)
"""Those that are of its search alone."""


def _search_params(params: dict[str, Any]) -> SearchParams:
    unknown = sorted(set(params) - _PARAMS.keys() - set(_NO_PARAMS))
    if unknown:
        have = ", ".join((*_PARAMS, *_NO_PARAMS))
        raise TuningError(f"params has {unknown[0]!r}; expected some of {have}")
    return SearchParams(**{_PARAMS[k]: v for k, v in params.items() if k in _PARAMS})


class TaskScheduler(Scheduler):
    """`autosched.TaskScheduler` in the predecessor's order. `load_log_file`: records that the
    policy of each task begins with; `load_model_file`: a model that an `XGBModel` saved, for the
    policies that `tune` makes."""

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Objective | None = None,
        strategy: Strategy = "gradient",
        load_model_file: str | None = None,
        load_log_file: str | None = None,
        alpha: float = 0.2,
        beta: float = 2.0,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        super().__init__(
            tasks,
            task_weights,
            strategy,
            objective_func=objective_func,
            alpha=alpha,
            beta=beta,
            backward_window_size=backward_window_size,
            callbacks=callbacks or (),
        )
        self.load_model_file, self.load_log_file = load_model_file, load_log_file

    def tune(
        self,
        tune_option: Options | None = None,
        search_policy: SearchPolicies = None,
        search_policy_params: dict[str, Any] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> SchedulerResult:
        """`autosched.TaskScheduler.tune`; models learn at each round, `adaptive_training` or not.
        Raises TuningError as that does."""
        if per_task_early_stopping is not None:
            least = integer("per_task_early_stopping", per_task_early_stopping, 1, TuningError)
            self.early_stopping_task = least
        begin = self.load_log_file or self.load_model_file or search_policy_params
        name = "default" if search_policy is None else search_policy
        if begin and isinstance(name, str) and name in MODELS:
            search_policy = self._policy(name, search_policy_params or {}, tune_option)
        return super().tune(tune_option, search_policy)

    def _policy(
        self, name: str, params: dict[str, Any], options: Options | None
    ) -> Callable[[SearchTask], Policy]:
        seed = 0 if options is None else options.seed

        def made(task: SearchTask) -> Policy:
            log = self.load_log_file
            known = () if log is None else (PreloadMeasuredStates(log),)
            model = MODELS[name](seed)
            if self.load_model_file is not None and name != "sketch.random":
                model = XGBModel(seed=seed).load(self.load_model_file)
            return SketchPolicy(task, model, params, seed, init_search_callbacks=known)

        return made


def LocalRunner(
    timeout: float = Runner.timeout,
    number: int = Runner.number,
    repeat: int = Runner.repeat,
    min_repeat_ms: float = Runner.min_repeat_ms,
    cooldown_interval: float = 0.0,
    enable_cpu_cache_flush: bool = False,
    device: int | None = None,
) -> Runner:
    """`autosched.LocalRunner` by the predecessor's names: seconds of `cooldown_interval`, and
    `enable_cpu_cache_flush`. What is left out is this project's default."""
    return Runner(
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
    scheduler's. How a worker times and how long it waits are options of `autosched worker`, so that
    the predecessor's words for them change nothing.
    `tls_dir`: the folder of certificates (`autosched cluster certs`); without one the connection
    is a plain one, which a scheduler takes from this machine only."""

    key: str
    host: str
    port: int
    tls_dir: str | None = None
    priority: int = 1
    n_parallel: int = 1
    timeout: float = 10.0
    number: int = 3
    repeat: int = 1
    min_repeat_ms: float = 0.0
    cooldown_interval: float = 0.0
    enable_cpu_cache_flush: bool = False
    device: int = 0

    def __post_init__(self) -> None:
        for name in ("key", "host", *(() if self.tls_dir is None else ("tls_dir",))):
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
    here, so there is nothing to start, and `priority` and `n_parallel` change nothing."""

    def __init__(self, priority: int = 1, n_parallel: int = 1, **options: Any) -> None:
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

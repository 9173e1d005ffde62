"""Kernels of a module: primitive functions lowered, scheduled and compiled, equal ones once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache as once
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from autosched.codegen.artifact import Artifact
from autosched.errors import AutoschedError, BuildError
from autosched.graph.cache import KernelCache
from autosched.runtime.function import Function as Linked
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import has_opaque, joined, pieces

if TYPE_CHECKING:
    from autosched.codegen.build import Level
    from autosched.codegen.compilers import Compilers
    from autosched.graph.ir import Function
    from autosched.graph.strategies import Implementation


_FEW = 8
"""Fewer kernels are compiled in this process: starting another takes 0.1 s."""
_LEVEL: Level = "full"
"""What LLVM does for them (`assemble.py`): a model is built once and runs often."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A compiled primitive function.

    `implementation` says which one was taken and why; `workload_key` is the key of its records,
    `seconds` the recorded time, if there is one. `function` is what it computes, `schedule` makes
    the scheduled program, `transforms` is what is done beforehand with constants, by parameter; a
    model that was loaded has none of these.
    """

    name: str
    workload_key: str
    implementation: str
    artifact: Artifact
    seconds: float | None = None
    function: Function | None = None
    schedule: Callable[[], PrimFunc] | None = None
    transforms: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)

    @property
    def is_external(self) -> bool:
        """Whether an external code generator made it."""
        return self.function is not None and self.function.is_external

    @cached_property
    def linked(self) -> Linked:
        """The code in this process. Raises TargetError if this machine cannot run it."""
        return Linked(self.artifact)

    @cached_property
    def func(self) -> PrimFunc | None:
        """The scheduled program; None for a model that was loaded."""
        return None if self.schedule is None else self.schedule()


@dataclass(frozen=True)
class Choice:
    """A recorded schedule: the scheduled program, its recorded time, and where it is from."""

    func: PrimFunc
    seconds: float
    why: str


Choose = Callable[["PrimFunc", Target], "Choice | None"]
"""Gives what is recorded for a loop function on a target."""
Progress = Callable[[str, int, int], None]
"""Told a kernel's name, how many are done, and how many there are."""
Artifacts = dict[tuple[str, str], Artifact]
"""Compiled kernels by the workload's key and the hash of the scheduled program, "" for that of the
default schedule."""


def task_of(function: Function, implementation: Implementation | None = None) -> PrimFunc:
    """The loop function of a primitive function as it is built and tuned: its weights are packed
    beforehand."""
    from autosched.graph.lowering import lower
    from autosched.lowering.layout_rewrite import LayoutRewriteOption, with_option

    func = lower(function, implementation)
    return with_option(func, LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED)


def compile_functions(
    functions: Iterable[Function],
    target: Target,
    progress: Progress | None = None,
    cache: KernelCache | None = None,
    choose: Choose | None = None,
    artifacts: Artifacts | None = None,
) -> dict[str, Kernel]:
    """The kernel of each function, by its name. `artifacts` are taken where there are some, and
    added to. Raises BuildError naming the function that fails."""
    from autosched.codegen.compilers import Compilers
    from autosched.graph.lowering import transforms
    from autosched.target.target import available_cores
    from autosched.tir.canonical import program_hash

    wanted = list(functions)
    made = {} if artifacts is None else artifacts
    found: list[tuple[Function, Selected, tuple[str, str]]] = []
    started: dict[tuple[str, str], Future[Artifact]] = {}
    count = available_cores() if len(wanted) >= _FEW else 1
    with Compilers(count) as compilers:
        for n, function in enumerate(wanted):
            if progress is not None:
                progress(function.name, n, len(wanted))
            with _naming(function):
                taken = select(function, target, choose)
                # A default schedule is not made again to find what was made of it.
                at = taken.key, "" if taken.default else program_hash(taken.func)
                if at not in made and at not in started:
                    started[at] = _start(taken, at[1], target, cache, compilers)
            found.append((function, taken, at))
        for function, _, at in found:
            if at not in made:
                with _naming(function):
                    made[at] = started[at].result()
    return {
        f.name: Kernel(
            f.name,
            taken.key,
            taken.why,
            made[at],
            taken.seconds,
            f,
            taken.schedule,
            transforms(f, taken.implementation),
        )
        for f, taken, at in found
    }


@contextmanager
def _naming(function: Function) -> Iterator[None]:
    """An error of ours names the kernel that it is about."""
    try:
        yield
    except AutoschedError as e:
        raise BuildError(f"kernel {function.name}: {e}") from e


@dataclass(frozen=True)
class Alternative:
    """One implementation of a primitive function as a loop function, which is what is built, tuned
    and recorded. `implementation` is None where the anchor has no strategy."""

    implementation: Implementation | None
    func: PrimFunc
    key: str

    @property
    def name(self) -> str:
        """Name of the implementation; empty without a strategy."""
        return "" if self.implementation is None else self.implementation.name


def alternatives(function: Function, target: Target) -> Iterator[Alternative]:
    """The implementations of a primitive function; the one taken without records is first."""
    from autosched.graph.strategies import implementations
    from autosched.tir.canonical import workload_key

    rows: Sequence[Implementation | None] = implementations(function, target) or [None]
    for one in rows:
        func = task_of(function, one)
        yield Alternative(one, func, workload_key(func))


@dataclass(frozen=True)
class Selected:
    """The implementation that a function gets, and what makes its scheduled program; `default`:
    by the default schedule, which depends on the function alone."""

    implementation: Implementation | None
    key: str
    schedule: Callable[[], PrimFunc]
    seconds: float | None
    why: str
    default: bool = False

    @cached_property
    def func(self) -> PrimFunc:
        """The scheduled program."""
        return self.schedule()


def select(function: Function, target: Target, choose: Choose | None = None) -> Selected:
    """The implementation with the least recorded time, else the one of the highest plevel."""
    from autosched.building.dispatch import chosen
    from autosched.schedule import Schedule

    rows = alternatives(function, target)
    first = next(rows)
    recorded: list[Selected] = []
    for one in [first, *rows] if choose is not None else []:
        assert choose is not None
        found = choose(one.func, target)
        if found is not None:
            why = f"{one.name}: {found.why}" if one.name else found.why
            why += f", {found.seconds * 1e6:.4g} us"
            program = partial(_itself, found.func)
            recorded.append(Selected(one.implementation, one.key, program, found.seconds, why))
    if recorded:
        return min(recorded, key=lambda s: s.seconds or float("inf"))
    func, key, taken = first.func, first.key, first.implementation
    name = "" if taken is None else f"{taken.name} (plevel {taken.plevel}): "
    best = chosen(func, target)
    if best is not func:
        return Selected(taken, key, lambda: best, None, f"{name}recorded schedule")
    if taken is not None and taken.schedule is not None:
        schedule = Schedule(func)
        taken.schedule(schedule)
        return Selected(taken, key, lambda: schedule.func, None, f"{name}its own schedule")
    scheduled = once(lambda: _by_default(func, target))
    return Selected(taken, key, scheduled, None, f"{name}default schedule", True)


def _itself(program: PrimFunc) -> PrimFunc:
    return program


def _by_default(func: PrimFunc, target: Target) -> PrimFunc:
    from autosched.sketch.default import default_schedule

    if has_opaque(func):
        parts = pieces(func)
        done = (default_schedule(p, target).func if isinstance(p, PrimFunc) else p for p in parts)
        return joined(func, list(done))
    return default_schedule(func, target).func


def _start(
    taken: Selected,
    program: str,
    target: Target,
    cache: KernelCache | None,
    compilers: Compilers,
) -> Future[Artifact]:
    """The kernel from the cache, or its build begun. Raises CodegenError."""
    from autosched.codegen.build import generate_sources
    from autosched.graph.cache import scheduler_version

    keep: Callable[[Artifact], None] | None = None
    if cache is not None:
        version = program or scheduler_version()
        artifact = cache.get(taken.key, version, target)
        if artifact is not None:
            ready: Future[Artifact] = Future()
            ready.set_result(artifact)
            return ready
        # As soon as it is compiled: a build that is given up is then begun where it ended.
        keep = partial(cache.put, taken.key, version)
    return compilers.submit(generate_sources(taken.func, target), target, _LEVEL, keep)

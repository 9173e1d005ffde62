"""What a pass is, and running several with their programs kept, printed and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Union

from autosched.checks import shown as brief
from autosched.errors import ScheduleError
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc

Shown = Union[bool, Collection[str]]
"""Which passes to print the module for: all, none, or those named."""


@dataclass(frozen=True)
class Pass:
    """A named function from IRModule to IRModule, which computes the same."""

    name: str
    change: Callable[[IRModule], IRModule]

    def __call__(self, module: IRModule) -> IRModule:
        """The changed module. Raises ScheduleError for what is not an IRModule."""
        if not isinstance(module, IRModule):
            raise ScheduleError(
                f"pass {self.name} takes an IRModule, found {type(module).__name__}; "
                "IRModule.of(func) makes one of a function"
            )
        return self.change(module)


def func_pass(name: str) -> Callable[[Callable[[PrimFunc], PrimFunc]], Pass]:
    """A decorator: the pass that changes every function of a module by itself."""

    def decorate(change: Callable[[PrimFunc], PrimFunc]) -> Pass:
        def apply(module: IRModule) -> IRModule:
            functions = {n: change(f) for n, f in module.functions.items()}
            return IRModule(functions, module.graphs, module.routines)

        return Pass(name, apply)

    return decorate


@dataclass(frozen=True)
class Step:
    """One pass of a run: the module `before` and `after` it, and the `seconds` that it took."""

    name: str
    before: IRModule
    after: IRModule
    seconds: float

    @property
    def changed(self) -> bool:
        """Whether the printed module differs."""
        return self.before.script() != self.after.script()


@dataclass(frozen=True)
class PassRun:
    """A module and the steps that were made from it."""

    before: IRModule
    steps: tuple[Step, ...]

    @property
    def after(self) -> IRModule:
        """The module after the last step."""
        return self.steps[-1].after if self.steps else self.before

    def __str__(self) -> str:
        """A line a pass: its name, its time, and whether it changed anything."""
        return "\n".join(
            f"{s.name:<20} {s.seconds * 1e3:9.3f} ms{'' if s.changed else '  unchanged'}"
            for s in self.steps
        )


@dataclass(frozen=True)
class Sequential:
    """Passes one after the other; itself callable on a module.

    `print_before` and `print_after` name the passes around which the module is printed as script;
    True: all of them. Raises ScheduleError if they name a pass that is not there.
    """

    passes: Sequence[Pass]
    print_before: Shown = False
    print_after: Shown = False

    def __post_init__(self) -> None:
        given = self.passes if isinstance(self.passes, (list, tuple)) else [self.passes]
        wrong = [p for p in given if not (callable(p) and hasattr(p, "name"))]
        if given is not self.passes or wrong:
            found = wrong[0] if wrong else self.passes
            raise ScheduleError(f"Sequential: expected a list of passes, found {found!r}")
        known = {p.name for p in self.passes}
        for shown in (self.print_before, self.print_after):
            if isinstance(shown, bool):
                continue
            listed = isinstance(shown, (list, tuple, set, frozenset))
            if not listed or not all(isinstance(n, str) for n in shown):
                raise ScheduleError(
                    f"Sequential: passes to print are {brief(shown)}; expected True, False or a "
                    "list of names"
                )
            unknown = set(shown) - known
            if unknown:
                raise ScheduleError(
                    f"no pass {min(unknown)!r} to print; there are {', '.join(sorted(known))}"
                )

    def __call__(self, module: IRModule) -> IRModule:
        """The module after all passes."""
        return self.run(module).after

    def run(self, module: IRModule) -> PassRun:
        """Do all passes; the modules between them and their times are kept."""
        steps: list[Step] = []
        now = module
        for one in self.passes:
            _show(one.name, "before", self.print_before, now)
            start = time.perf_counter()
            after = one(now)
            steps.append(Step(one.name, now, after, time.perf_counter() - start))
            _show(one.name, "after", self.print_after, after)
            now = after
        return PassRun(module, tuple(steps))


def _show(name: str, when: str, shown: Shown, module: IRModule) -> None:
    if shown is True or (not isinstance(shown, bool) and name in shown):
        print(f"# {when} {name}\n{module.script()}")

"""Functions that call each other in a compiled model: a stack of their own, not Python's.

Every call that waits for the result of another has a program, and so a workspace, to itself. A call
that is the last thing a function does takes the place of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import WorkloadError

if TYPE_CHECKING:
    from autosched.graph.executor import Program
    from autosched.graph.spec import CallStep, IfStep

DEEPEST = 10_000
"""Calls that wait for the result of another."""


class Branch:
    """One of two programs."""

    def __init__(self, step: IfStep, then: Program, other: Program) -> None:
        self.step, self.then, self.other = step, then, other
        self.calls = then.calls or other.calls

    def taken(self, slots: list[Any]) -> tuple[Program, list[Any]]:
        """The program that is run, and its arguments."""
        holds = bool(slots[self.step.condition].any())
        program, args = (
            (self.then, self.step.then_args) if holds else (self.other, self.step.other_args)
        )
        return program, [slots[n] for n in args]

    def __call__(self, slots: list[Any]) -> None:
        """Run it."""
        program, args = self.taken(slots)
        for slot, array in zip(self.step.results, program.run(args), strict=True):
            slots[slot] = array


@dataclass(eq=False)
class Callee:
    """A function with the programs that no call uses now."""

    name: str
    make: Callable[[], Program] | None = None
    free: list[Program] = field(default_factory=list)

    def program(self) -> Program:
        """A program for one call."""
        assert self.make is not None
        return self.free.pop() if self.free else self.make()


@dataclass(frozen=True)
class Called:
    """A step that calls a function."""

    step: CallStep
    callee: Callee

    def __call__(self, slots: list[Any]) -> None:
        """Run it."""
        program = self.callee.program()
        made = program.run([slots[n] for n in self.step.args])
        self.callee.free.append(program)
        for slot, array in zip(self.step.results, made, strict=True):
            slots[slot] = array


@dataclass
class Frame:
    """A body that runs: its next step, and the function whose program is free when it is done."""

    program: Program
    slots: list[Any]
    step: int = 0
    owner: tuple[Callee, Program] | None = None

    def release(self) -> None:
        """The program is free for another call."""
        if self.owner is not None:
            self.owner[0].free.append(self.owner[1])


def run_calls(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The results of a program whose functions call each other. Raises WorkloadError where too many
    calls wait."""
    frame = Frame(program, program.start(inputs))
    stack: list[Frame] = []
    while True:
        now = frame.program
        if frame.step == len(now.steps):
            made = now.finish(frame.slots)
            frame.release()
            if not stack:
                return made
            frame = stack.pop()
            caller: Any = frame.program.steps[frame.step - 1]
            for slot, array in zip(caller.step.results, made, strict=True):
                frame.slots[slot] = array
            continue
        step = now.steps[frame.step]
        frame.step += 1
        if not isinstance(step, (Branch, Called)):
            step(frame.slots)
            continue
        tail = now.tail and frame.step == len(now.steps)
        if isinstance(step, Branch):
            body, args = step.taken(frame.slots)
            after = Frame(body, body.start(args), owner=frame.owner if tail else None)
        else:
            # What is in the workspace of a program that another call takes over is copied.
            args = [np.array(frame.slots[n]) if tail else frame.slots[n] for n in step.step.args]
            if tail:
                frame.release()
            body = step.callee.program()
            after = Frame(body, body.start(args), owner=(step.callee, body))
        if not tail:
            stack.append(frame)
            if len(stack) > DEEPEST:
                raise WorkloadError(
                    f"more than {DEEPEST} calls of compiled functions wait for their results; "
                    "make the recursive call the last thing that the function does, with what is "
                    "computed so far as an argument"
                )
        frame = after

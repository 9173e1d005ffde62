"""All builder children together: a list of programs in, a list of replies out, nothing raised."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from autosched.target import Target
from measure.local.build import Build, BuildReply, LocalBuilder
from measure.process.child import RETRIES, Child, Outcome, wait_any
from measure.process.template_client import Limits, Template
from measure.status import Status

FAILURES = {
    "error": Status.BUILD_ERROR,
    "memory": Status.OUT_OF_MEMORY,
    "timeout": Status.BUILD_TIMEOUT,
    "crash": Status.BUILD_ERROR,
    "lost": Status.DEVICE_LOST,
}


class Builders:
    """`count` builder children, started when there is work for them."""

    def __init__(
        self,
        template: Template,
        target: Target,
        options: LocalBuilder,
        count: int,
    ) -> None:
        self.options = options
        # OpenCL is compiled by the device's driver, which may reserve any address space. NVRTC
        # needs no device, but opens one that it sees, which takes long and more than the limit.
        limits = Limits(
            memory_bytes=0 if target.kind == "opencl" else options.memory_bytes,
            imports=() if options.is_default else (str(options.build_func).partition(":")[0],),
            env=(("CUDA_VISIBLE_DEVICES", ""),) if target.kind == "cuda" else (),
        )
        self.children = [Child(template, limits) for _ in range(count)]

    def build(
        self, work: Sequence[Build], cancel: threading.Event | None = None
    ) -> list[BuildReply]:
        """Build everything, on all children at once; once `cancel` is set the rest is `cancelled`.

        A build whose child was lost for no fault of its own is tried again.
        """
        replies: dict[int, BuildReply] = {}
        attempts = [0] * len(work)
        at_work: dict[int, int] = {}
        todo = deque(range(len(work)))
        while True:
            for child in self.children:
                if todo and not child.busy and not (cancel is not None and cancel.is_set()):
                    at_work[id(child)] = todo.popleft()
                    child.send(work[at_work[id(child)]], self.options.timeout)
            if not any(child.busy for child in self.children):
                break
            for child, outcome in wait_any(self.children):
                place = at_work.pop(id(child))
                attempts[place] += 1
                if outcome.kind == "lost" and attempts[place] <= RETRIES:
                    todo.append(place)
                else:
                    replies[place] = _reply(outcome)
        for child in self.children:
            child.rest()  # while others time, or this pool does
        cancelled = BuildReply(Status.CANCELLED, error="cancelled before it was built")
        return [replies.get(n, cancelled) for n in range(len(work))]

    def kill(self) -> None:
        """End all children."""
        for child in self.children:
            child.kill()


def _reply(outcome: Outcome[BuildReply]) -> BuildReply:
    if outcome.value is not None:
        return replace(outcome.value, seconds=outcome.wall_seconds)
    status = FAILURES[outcome.kind]
    return BuildReply(status, error=outcome.text, seconds=outcome.wall_seconds)

"""Examining a model that a client sent: its kernels as workloads, with their weights.

A part of `server.programs.worker`, in the same child under the same limits. What comes in is a
skeleton (`autosched.graph.skeleton`), read within `SKELETON_BOUNDS`; nothing outside of it is
opened.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import asdict, replace
from typing import Any

from autosched.errors import WorkloadError
from autosched.graph.compile import prepared
from autosched.graph.onnx_import.skeleton import from_skeleton
from autosched.graph.tasks import kernel_groups
from autosched.target import Target
from autosched.tuning.run.model_tasks import ModelTasks, model_tasks
from server.programs.worker import TooLarge, WorkloadLimits, check

MOST_TASKS = 48
"""Jobs of a model: its kernels that are taken to need the most time."""
MOST_CALLS = 1e12
"""Of one kernel in a run."""


def answer(question: dict[str, Any], limits: WorkloadLimits) -> dict[str, Any]:
    """The tasks of `{"skeleton", "target"}`, most time first: for each the workload and its parts
    (`records.queue.model_tasks.Part`); the target in full, and the seconds that the kernels are
    taken to need which are not tuned. Raises AutoschedError, TooLarge beyond limits."""
    try:
        data = base64.b64decode(question["skeleton"], validate=True)
    except (binascii.Error, ValueError) as e:
        raise WorkloadError(f"the skeleton is no base64: {e}") from e
    target = Target(question["target"])
    if target.is_gpu:
        raise WorkloadError(
            f"a model is tuned for a processor, found the target {target.kind}; submit its kernels "
            "as scripts"
        )
    plan = model_tasks(kernel_groups(prepared(from_skeleton(data)), target), {}, target,
                       most=MOST_TASKS)  # fmt: skip
    if max(plan.weights) > MOST_CALLS:
        raise TooLarge(
            f"a run of the model calls a kernel {max(plan.weights):.3g} times; at most "
            f"{MOST_CALLS:.0e} calls are taken"
        )
    found = []
    for n, task in enumerate(plan.tasks):
        check(task, limits)
        # The names of a file's kernels are no names of other clients' workloads.
        workload = replace(task.workload, name=f"program_{task.workload_key[2:10]}")
        found.append({"workload": asdict(workload), "parts": _parts(plan, n)})
    return {"target": str(target), "tasks": found, "rest_seconds": plan.rest}


def _parts(plan: ModelTasks, task: int) -> list[tuple[int, str, float, float]]:
    title = plan.tasks[task].name
    return [
        (k, title, float(group.calls), plan.estimates[task])
        for k, (group, of) in enumerate(zip(plan.groups, plan.of, strict=True))
        if task in of
    ]

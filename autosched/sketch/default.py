"""The default schedule: the first sketch of every rule, with every decision at its default.

It knows no operator by name. It is the baseline of every tuning job, and what a program gets that
is built without tuning.
"""

from __future__ import annotations

from autosched.schedule import Schedule
from autosched.sketch.generate import generate_states, variants_of
from autosched.sketch.gpu_default import default_gpu_schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc


def default_schedule(func: PrimFunc, target: Target) -> Schedule:
    """A reasonable schedule of `func`: rows in parallel, vectors, fixed register tiles; on a GPU,
    blocks and threads (`gpu_default.py`).

    Deterministic. Raises TuningError if no rule applies.
    """
    if target.is_gpu:
        return default_gpu_schedule(func, target)
    (variant,) = variants_of(generate_states(func, target, limit=1)[:1])
    values = {
        n: x for spec in variant.decisions for n, x in zip(spec.names, spec.default, strict=True)
    }
    return variant.trace.bind(values).apply(func)

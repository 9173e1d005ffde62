"""Refused: a value that cannot be had. It stands in branches that do not fit the model's sizes."""

from __future__ import annotations

from typing import Any

from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import Results, host_operator


def _results(*, message: str, results: Results) -> Results | None:
    return None if any(shape is None for shape, _ in results) else results


@host_operator("Refused", result=_results)
def refused(*, message: str, results: Results = ()) -> Any:
    """Raises Unsupported with a message, whenever it is to be computed; `results` are the shapes
    and dtypes of what it stands for."""
    raise Unsupported(message)

"""A computation for peers: its arrays, and itself in NumPy, PyTorch and ONNX words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Node:
    """One ONNX operator."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """`inputs` come at run time; `weights` too, or are constants, as the server is told;
    `constants` of the ONNX form (an axis, a shape) always are.

    `torch(t, out)` computes with the tensors `t` into `out` where PyTorch has a form that does;
    `numpy(a, out)` is None where NumPy has no such operation. `reference` is in float64.
    """

    inputs: Arrays
    weights: Arrays
    flop: int
    shape: tuple[int, ...]
    torch: Callable[[Arrays, Any], Any]
    nodes: tuple[Node, ...]
    reference: Callable[[Arrays], Array]
    numpy: Callable[[Arrays, Array], Any] | None = None
    image: bool = False
    constants: Arrays = field(default_factory=dict)


def draw(rng: np.random.Generator, *shape: int) -> Array:
    """Normal numbers."""
    return rng.standard_normal(shape, dtype=np.float32)


def torch_module() -> Any:
    """PyTorch, where it is needed."""
    import torch

    return torch


def by_torch(forward: Callable[[Arrays, Any], Any]) -> Callable[[Arrays], Array]:
    """What PyTorch makes of NumPy arrays."""

    def reference(a: Arrays) -> Array:
        torch = torch_module()
        result: Array = forward({k: torch.from_numpy(v) for k, v in a.items()}, None).numpy()
        return result

    return reference

"""Compiled models in a folder: `model.json`, a file a kernel, and the constants as they lie in
memory. Reading one needs neither onnx, nor te, nor LLVM's compiler."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosched.checks import path_text
from autosched.errors import ArgumentError
from autosched.graph.cache import artifact_from_json, artifact_to_json, write_whole
from autosched.graph.errors import Unsupported
from autosched.graph.kernels import Kernel
from autosched.graph.model import Argument, Array, CompiledModel, thread_count
from autosched.graph.spec import from_json
from autosched.runtime.arrays import ALIGNMENT, empty
from autosched.target import Target

MODEL, KERNELS, WEIGHTS = "model.json", "kernels.json", "weights.bin"


def save(model: CompiledModel, folder: str | os.PathLike[str]) -> None:
    """Write a model; see `CompiledModel.save`."""
    python = sorted({step.function for step in model.spec.externals()})
    if python:
        raise Unsupported(
            f"{', '.join(python)} are functions in Python that a code generator made, which cannot "
            "be saved; a generator that returns graph.CSource makes functions that can"
        )
    root = Path(path_text("the folder of a model", folder, ArgumentError))
    root.mkdir(parents=True, exist_ok=True)
    table = write_weights(model.constants, root / WEIGHTS)
    kernels = {n: artifact_to_json(k.artifact) for n, k in model.by_name.items()}
    write_whole(root / KERNELS, json.dumps(kernels).encode())
    data = {**json.loads(model.graph_json), "constants": table}
    write_whole(root / MODEL, json.dumps(data, indent=1).encode())


def write_weights(constants: Sequence[Array], path: Path) -> list[list[Any]]:
    """Write constants one after the other, each on a cache line; of each its offset, shape and
    dtype. The file is a whole number of lines long."""
    table, at = [], 0
    part = path.with_name(f".{path.name}")
    with part.open("wb") as file:
        for a in constants:
            table.append([at, list(a.shape), a.dtype.str])
            file.write(np.ascontiguousarray(a).data if a.size else b"")
            at = -(-file.tell() // ALIGNMENT) * ALIGNMENT
            file.write(b"\0" * (at - file.tell()))
    os.replace(part, path)
    return table


def load(
    folder: str | os.PathLike[str],
    threads: int | None = None,
    flush_denormals: bool | None = None,
) -> CompiledModel:
    """The model that `CompiledModel.save` wrote into a folder; `threads` and `flush_denormals`
    where they are to be others than those that it was saved with.

    The folder is code: load none that you would not run. Raises ArgumentError for a folder without
    a model, TargetError if this machine cannot run it.
    """
    root = Path(path_text("the folder of a model", folder, ArgumentError))
    try:
        data: dict[str, Any] = json.loads((root / MODEL).read_text())
        artifacts = json.loads((root / KERNELS).read_text())
        raw = np.fromfile(root / WEIGHTS, np.uint8)
    except (OSError, ValueError) as e:
        raise ArgumentError(
            f"{root} holds no compiled model: {e}; `autosched compile MODEL.onnx -o {root}` "
            "writes one"
        ) from e
    if not isinstance(data, dict) or data.get("schema") != 1:
        found = data.get("schema") if isinstance(data, dict) else "none"
        raise ArgumentError(
            f"{root} was written by another version (schema {found}); compile it again"
        )
    try:
        if flush_denormals is not None:
            data["flush_denormals"] = flush_denormals
        return _model(data, artifacts, raw, threads)
    except (AttributeError, LookupError, TypeError, ValueError) as e:
        raise ArgumentError(
            f"{root} holds a damaged model: {type(e).__name__}: {e}; compile it again"
        ) from e


def _model(
    data: dict[str, Any], artifacts: dict[str, Any], raw: Array, threads: int | None
) -> CompiledModel:
    kernels = {
        n: Kernel(n, artifact=artifact_from_json(artifacts[n]), **row)
        for n, row in data["kernels"].items()
    }
    constants = []
    for at, shape, dtype in data["constants"]:
        kind = np.dtype(dtype)
        array = empty(tuple(shape), kind)
        array.reshape(-1)[...] = raw[at : at + array.nbytes].view(kind)
        constants.append(array)
    inputs, outputs = (
        [Argument(a["name"], None if a["shape"] is None else tuple(a["shape"]), a["dtype"])
         for a in data[side]]
        for side in ("inputs", "outputs")
    )  # fmt: skip
    return CompiledModel(
        from_json(data["program"]),
        kernels,
        constants,
        inputs,
        outputs,
        Target(data["target"]),
        thread_count(threads, data["threads"]),
        flush_denormals=bool(data.get("flush_denormals", False)),
    )

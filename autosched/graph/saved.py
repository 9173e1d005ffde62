"""Compiled models in a folder: `model.json`, a file a kernel, and the constants as they lie in
memory. Reading one needs neither onnx, nor te, nor LLVM's compiler."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosched.checks import path_text
from autosched.errors import ArgumentError
from autosched.graph.cache import artifact_from_json, artifact_to_json
from autosched.graph.errors import Unsupported
from autosched.graph.kernels import Kernel
from autosched.graph.model import SCHEMA, Argument, Array, CompiledModel, thread_count
from autosched.graph.spec import from_json
from autosched.graph.stored import checksum, seal, unseal, write_whole
from autosched.runtime.arrays import ALIGNMENT, empty, rounded
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
    table, weights = write_weights(model.constants, root / WEIGHTS)
    artifacts = {n: artifact_to_json(k.artifact) for n, k in model.by_name.items()}
    kernels = write_whole(root / KERNELS, [json.dumps(artifacts).encode()])
    sums = {KERNELS: kernels, WEIGHTS: weights}
    data = {**json.loads(model.graph_json), "constants": table, "checksums": sums}
    write_whole(root / MODEL, [seal(data)])


def write_weights(constants: Sequence[Array], path: Path) -> tuple[list[list[Any]], int]:
    """Write constants one after the other, each on a cache line; of each its offset, shape and
    dtype, and the file's checksum. The file is a whole number of lines long."""
    table: list[list[Any]] = []
    at = 0
    for a in constants:
        table.append([at, list(a.shape), a.dtype.str])
        at += rounded(a.nbytes)

    def parts() -> Iterator[Any]:
        for a in constants:
            if a.size:
                yield np.ascontiguousarray(a).data
                yield b"\0" * (-a.nbytes % ALIGNMENT)

    return table, write_whole(path, parts())


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
        raw = {n: np.fromfile(root / n, np.uint8) for n in (MODEL, KERNELS, WEIGHTS)}
    except OSError as e:
        raise ArgumentError(
            f"{root} holds no compiled model: {e}; `autosched compile MODEL.onnx -o {root}` "
            "writes one"
        ) from e
    try:
        data: dict[str, Any] = unseal(raw[MODEL].tobytes())
        if data["schema"] != SCHEMA:
            raise ValueError(f"expected its schema to be {SCHEMA}, found {data['schema']}")
        sums = data["checksums"]
    except (ValueError, LookupError, TypeError) as e:
        raise ArgumentError(
            f"{root / MODEL} is damaged, or was written by another version: {e}; compile the model "
            "again"
        ) from e
    if wrong := [n for n in (KERNELS, WEIGHTS) if checksum(raw[n]) != sums[n]]:
        raise ArgumentError(
            f"{root / wrong[0]} is damaged, or another model's than {MODEL} beside it: expected "
            f"the checksum {sums[wrong[0]]}, found {checksum(raw[wrong[0]])}; compile the model "
            "again"
        )
    if flush_denormals is not None:
        data["flush_denormals"] = flush_denormals
    return _model(data, json.loads(raw[KERNELS].tobytes()), raw[WEIGHTS], threads)


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

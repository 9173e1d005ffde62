"""Models meet records: building with the best that is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from autosched.checks import instance, path_text, shown
from autosched.errors import ArgumentError
from autosched.graph.cache import KernelCache
from autosched.graph.compile import compile_module, compile_ready, prepared
from autosched.graph.dynamic import DynamicModel
from autosched.graph.kernels import Artifacts, Choice, Choose, Progress
from autosched.graph.model import CompiledModel
from autosched.graph.onnx_import import ModelLike, OpenModel
from autosched.graph.planner import Shared
from autosched.graph.program import CompiledProgram
from autosched.integers import as_int
from autosched.target import Target
from autosched.tir.canonical import workload_key
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc
from autosched.tuning.best import RecordsLike, best_schedule, opened
from records import NoRecord, RecordSource

KERNELS_KEPT = 2000
"""Compiled kernels that the builds of one model take from those before them."""


def build(
    module: IRModule,
    target: Target | str = "llvm",
    records: RecordsLike | None = None,
    params: Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    cache: str | os.PathLike[str] | None = None,
    consume: bool = False,
    flush_denormals: bool = False,
    precision: str = "float32",
) -> CompiledModel:
    """The module's function `main` compiled for `target`.

    `records`: a log, a SQLite file, a database URL or an open source, whose best schedules are
    taken; a kernel without one has the default schedule. `params` makes inputs constants, by name.
    `cache` is a folder of compiled kernels, used, and added to unless it can only be read; several
    processes may share it.
    `consume`: weights leave the module as they are packed, so that they are not in memory twice.
    `flush_denormals`: floats below the least normal number (1.2e-38 of float32) are taken for 0 by
    kernels, which are many times slower on them; onnxruntime keeps them by default, too.
    `precision`: with "bfloat16" products of float32 with constant weights round both operands to
    bfloat16, and sum in float32; with AMX those of attention do so, too. With "int8" products of
    float32 whose weights the module has as 8 bits round the rows of the other operand to 8 bits,
    and sum in int32; `graph.int8_products` says how many did. Neither is taken unless asked for.
    Raises Unsupported, naming the operator, for what cannot be compiled, BuildError, naming the
    kernel, and RecordError for records that cannot be read.
    """
    kept = _cache(cache)
    with ExitStack() as stack:
        choose = None if records is None else best_of(stack.enter_context(opened(records)))
        return compile_module(
            module, target, params, threads, progress, kept, choose, consume, flush_denormals,
            precision,
        )  # fmt: skip


def _cache(cache: str | os.PathLike[str] | None) -> KernelCache | None:
    if cache is None:
        return None
    folder = Path(path_text("cache", cache, ArgumentError))
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"cache is the file {folder}; expected a folder, which may be new")
    return KernelCache(folder)


def build_dynamic(
    model: ModelLike,
    target: Target | str = "llvm",
    records: RecordsLike | None = None,
    threads: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    flush_denormals: bool = False,
    precision: str = "float32",
    kept: int = 16,
) -> DynamicModel:
    """An ONNX model that takes arrays of any sizes that its file leaves open.

    `model`: a path, the file's bytes, or a ModelProto. `kept`: how many builds are kept, those that
    were called last. The others are as `build` takes them. Nothing is built before the first call.
    Raises Unsupported for what is no model, and ArgumentError.
    """
    count = as_int(kept)
    if count is None or count < 1:
        raise ArgumentError(f"kept is {shown(kept)}; expected an int from 1 up")
    compiled = _compiler(target, records, threads, cache, flush_denormals, precision)
    return DynamicModel(OpenModel(model), compiled, count)


def build_program(
    module: IRModule,
    target: Target | str = "llvm",
    records: RecordsLike | None = None,
    threads: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    flush_denormals: bool = False,
    precision: str = "float32",
) -> CompiledProgram:
    """A functional program, `main` with all that it calls, whose parts on tensors of fixed sizes
    are compiled: recursion, tuples, values of data types, matches and function values that partial
    evaluation leaves are run by the evaluator, between compiled regions.

    Arguments are as `build` takes them. Raises Unsupported and BuildError.
    """
    instance("the program", module, IRModule, "an IRModule", ArgumentError)
    compiled = _compiler(target, records, threads, cache, flush_denormals, precision)
    return CompiledProgram(module, compiled)


def _compiler(
    target: Target | str,
    records: RecordsLike | None,
    threads: int | None,
    cache: str | os.PathLike[str] | None,
    flush_denormals: bool,
    precision: str,
) -> Callable[[IRModule], CompiledModel]:
    """A function that compiles modules, which share kernels and constants."""
    where = target if isinstance(target, Target) else Target(target)
    folder = _cache(cache)
    artifacts: Artifacts = {}
    shared = Shared()

    def compiled(module: IRModule) -> CompiledModel:
        ready = prepared(module, None, precision, where)
        while len(artifacts) > KERNELS_KEPT:
            del artifacts[next(iter(artifacts))]
        with ExitStack() as stack:
            choose = None if records is None else best_of(stack.enter_context(opened(records)))
            return compile_ready(
                ready, where, threads, None, folder, choose, artifacts,
                flush_denormals=flush_denormals, shared=shared,
            )  # fmt: skip

    return compiled


def best_of(source: RecordSource) -> Choose:
    """The best schedule that an open source has for a loop function."""

    def choose(func: PrimFunc, target: Target) -> Choice | None:
        try:
            schedule, record = best_schedule(func, source, workload_key(func), str(target))
        except NoRecord:
            return None
        return Choice(schedule.func, record.final_seconds or 0.0, f"record {record.id}")

    return choose

"""A compiled model for C programs: an object file, a header, the weights, and lines for CMake.

The model is one function of the weights, the inputs and the outputs. Its code is that of the
kernels, and calls of them in order with addresses in its workspace; no Python is left in it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autosched.checks import path_text
from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.export import export
from autosched.errors import ArgumentError, BuildError
from autosched.graph.errors import Unsupported
from autosched.graph.saved import write_weights
from autosched.graph.spec import KernelCall, RunStep
from autosched.runtime.arrays import ALIGNMENT, rounded
from autosched.runtime.float_mode import float_mode_ir, flushed_ir
from autosched.tir.nodes import PrimFunc

if TYPE_CHECKING:
    from autosched.graph.kernels import Kernel
    from autosched.graph.model import CompiledModel
    from autosched.target import Target

ENTRY = "autosched_model"
_NOTE = """\
/* weights: the {size} bytes of {stem}.weights, on a multiple of {alignment} bytes, as a file
 * that is mapped into memory is. They are only read: all callers may share them.
 */
"""
_CMAKE = """\
# include(.../{stem}.cmake), then target_link_libraries(PROGRAM PRIVATE {stem})
add_library({stem} INTERFACE)
target_include_directories({stem} INTERFACE "${{CMAKE_CURRENT_LIST_DIR}}")
target_link_libraries({stem} INTERFACE "${{CMAKE_CURRENT_LIST_DIR}}/{stem}.o" pthread m)
"""


class ExportedModel(NamedTuple):
    """The files written; `weights` is None for a model without constants."""

    object: Path
    header: Path
    weights: Path | None
    cmake: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files alone, in this order."""
        return tuple(path for path in self if path is not None)


def export_model(
    model: CompiledModel, folder: str | os.PathLike[str], prefix: str
) -> ExportedModel:
    """Write a model; see `CompiledModel.export`."""
    root = Path(path_text("folder", folder, ArgumentError))
    stem = prefix.rstrip("_") or "model"
    calls = _calls(model)
    used = {c.kernel: model.by_name[c.kernel] for c in calls}
    offsets, size = _weights(model)
    info = _info(model, list(used.values()), size)
    external = {n: k for n, k in used.items() if k.is_external}
    entries, inner = _kernels({n: k for n, k in used.items() if n not in external}, model.target)
    entries |= {n: f"{prefix or f'{stem}_'}external_{n}" for n in external}
    ir = "\n".join(_code(model, calls, entries, offsets, bool(size)))
    note = _NOTE.format(size=size, stem=stem, alignment=ALIGNMENT) if size else ""
    weights, cmake = root / f"{stem}.weights" if size else None, root / f"{stem}.cmake"
    try:
        root.mkdir(parents=True, exist_ok=True)
        done = export(
            root / stem,
            {"run": (ir, info)},
            model.target,
            prefix=prefix,
            inner=inner,
            note=note,
            outside=[entries[n] for n in external],
        )
        if external:
            _link_external(model, external, prefix or f"{stem}_", done.object)
        if weights is not None:
            write_weights(model.constants, weights)
        cmake.write_text(_CMAKE.format(stem=stem), encoding="utf-8")
    except OSError as e:
        raise BuildError(f"cannot write {e.filename or root}: {e.strerror}") from e
    return ExportedModel(done.object, done.header, weights, cmake)


def _link_external(
    model: CompiledModel, external: Mapping[str, Kernel], prefix: str, file: Path
) -> None:
    """Put the code of C compilers into the object file."""
    from autosched.codegen.c import merge_objects
    from autosched.graph.external_c import object_for

    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        parts = [Path(folder) / "model.o"]
        os.replace(file, parts[0])
        for name, made in model.external.items():
            if any(f in external for f in made.functions):
                parts.append(Path(folder) / f"{name}_external.o")
                object_for(made.source, made.functions, prefix, parts[-1])
        merge_objects(parts, file)


def _calls(model: CompiledModel) -> tuple[KernelCall, ...]:
    """The kernels in order. Raises Unsupported for a model that is more than these."""
    steps = model.spec.steps
    if len(steps) != 1 or not isinstance(steps[0], RunStep) or model.spec.copied:
        host = f" ({', '.join(model.host_operators)} run in NumPy)" if model.host_operators else ""
        python = ", ".join(sorted({step.function for step in model.spec.externals()}))
        if python:
            host += f" ({python}: functions in Python of a code generator)"
        raise Unsupported(
            "export takes a model that is kernels in a row, each output made by one; this one has "
            f"branches, loops, operators in NumPy, or outputs that are inputs{host}"
        )
    return steps[0].calls


def _weights(model: CompiledModel) -> tuple[list[int], int]:
    """Where each constant stands in the file of weights, and how large that is."""
    offsets, size = [], 0
    for a in model.constants:
        offsets.append(size)
        size += rounded(a.nbytes)
    return offsets, size


def _info(model: CompiledModel, kernels: Sequence[Kernel], size: int) -> KernelInfo:
    """The parameters and the memory of the model as one kernel."""
    fresh = {f.slot: f for f in model.spec.fresh}
    infos = [k.artifact.info for k in kernels]
    params = [Param("weights", (size,), "uint8", False)] if size else []
    params += [Param(i.name, i.shape or (), i.dtype, False) for i in model.inputs]
    params += [
        Param(o.name, fresh[slot].shape, o.dtype, True)
        for o, slot in zip(model.outputs, model.spec.results, strict=True)
    ]
    shared = max(_fixed(i.workspace_bytes) for i in infos)
    messages = tuple(dict.fromkeys(m for i in infos for m in i.messages))
    return KernelInfo(
        ENTRY,
        tuple(params),
        _status(model) + rounded(model.plan.bytes) + rounded(shared),
        max(_fixed(i.thread_bytes) for i in infos),
        any(i.parallel for i in infos),
        messages=messages,
    )


def _status(model: CompiledModel) -> int:
    """Bytes of the workspace before the intermediate values: they say whether a kernel stopped."""
    return ALIGNMENT if any(k.artifact.info.messages for k in model.kernels) else 0


def _kernels(used: Mapping[str, Kernel], target: Target) -> tuple[dict[str, str], dict[str, str]]:
    """The entry of each kernel by its name, and the LLVM IR of each entry."""
    entries: dict[str, str] = {}
    inner: dict[str, str] = {}
    by_code: dict[bytes, str] = {}
    for name, kernel in used.items():
        if kernel.func is None:
            raise ArgumentError(
                "a model that was loaded has no programs to export; export the one that "
                "graph.build gives"
            )
        code = kernel.artifact.code
        if code not in by_code:
            by_code[code] = f"{ENTRY}.k{len(by_code)}"
            inner[by_code[code]] = _ir(kernel.func, target, by_code[code])
        entries[name] = by_code[code]
    return entries, inner


def _ir(func: PrimFunc, target: Target, entry: str) -> str:
    """LLVM IR of a kernel whose weights are packed beforehand."""
    from autosched.codegen.build import generate_ir
    from autosched.lowering.layout_rewrite import LayoutRewriteOption, option_of, split

    if option_of(func) is LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
        func, _ = split(func)
    return generate_ir(func, target, entry).ir


_PARAMS = "ptr %args, ptr %workspace, i32 %threads"


def _code(
    model: CompiledModel,
    calls: Sequence[KernelCall],
    entries: Mapping[str, str],
    offsets: Sequence[int],
    has_weights: bool,
) -> Iterator[str]:
    """LLVM IR of the model: cells of addresses, and calls."""
    spec = model.spec
    first = int(has_weights)
    numbers = {n: first + n for n in range(len(model.inputs))}
    numbers |= {slot: first + len(model.inputs) + n for n, slot in enumerate(spec.results)}
    places = {p.slot: p.offset for p in spec.places}
    fixed = dict(spec.constants)
    yield f'target triple = "{model.target.triple}"'
    for entry in dict.fromkeys(entries.values()):
        yield f"declare void @{entry}(ptr, ptr, i32)"
    name = ENTRY
    if model.flush_denormals:
        name = f"{ENTRY}.kernels"
        yield float_mode_ir(model.target.arch) + flushed_ir(model.target.arch, ENTRY, name, _PARAMS)
    yield f"define void @{name}({_PARAMS}) {{"
    yield f"  %cells = alloca [{max(len(c.args) for c in calls)} x ptr], align 8"
    for n in [*([0] if has_weights else []), *numbers.values()]:
        yield f"  %at{n} = getelementptr ptr, ptr %args, i64 {n}"
        yield f"  %a{n} = load ptr, ptr %at{n}, align 8"
    status = _status(model)
    scratch = status + rounded(model.plan.bytes)
    if status:
        yield "  store i64 0, ptr %workspace, align 8"
    yield f"  %scratch = getelementptr i8, ptr %workspace, i64 {scratch}"
    for n, call in enumerate(calls):
        for m, arg in enumerate(call.args):
            value = f"%v{n}.{m}"
            if arg < 0 or arg in fixed:
                offset = offsets[-1 - arg if arg < 0 else fixed[arg]]
                yield f"  {value} = getelementptr i8, ptr %a0, i64 {offset}"
            elif arg in places:
                yield f"  {value} = getelementptr i8, ptr %workspace, i64 {status + places[arg]}"
            else:
                value = f"%a{numbers[arg]}"
            yield f"  %c{n}.{m} = getelementptr ptr, ptr %cells, i64 {m}"
            yield f"  store ptr {value}, ptr %c{n}.{m}, align 8"
        yield f"  call void @{entries[call.kernel]}(ptr %cells, ptr %scratch, i32 %threads)"
        if model.by_name[call.kernel].artifact.info.messages:
            yield f"  %status{n} = load i64, ptr %scratch, align 8"
            yield f"  store i64 %status{n}, ptr %workspace, align 8"
            yield f"  %stopped{n} = icmp ne i64 %status{n}, 0"
            yield f"  br i1 %stopped{n}, label %stop, label %go{n}"
            yield f"go{n}:"
    if status:
        yield "  br label %stop"
        yield "stop:"
    yield "  ret void"
    yield "}"


def _fixed(size: object) -> int:
    assert isinstance(size, int), "a model's sizes are fixed"
    return size

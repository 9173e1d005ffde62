"""Writing an object file and its header."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from autosched.checks import path_text
from autosched.codegen.artifact import KernelInfo
from autosched.codegen.build import Level, toolchain
from autosched.codegen.export.entries import Source, entry_ir, symbol, unique
from autosched.codegen.export.header import header
from autosched.errors import ArgumentError, BuildError
from autosched.target import Target

_NOT_HERE = (".a", ".c", ".dll", ".dylib", ".h", ".so")
_WORDS = """
    aligned_alloc clock_gettime free getpid memcpy memmove memset pthread_atfork pthread_create
    pthread_detach pthread_getaffinity_np pthread_self pthread_setaffinity_np pthread_sigmask
    sched_getcpu sched_yield sigfillset syscall
"""
_MATH = """
    acos acosh asin asinh atan atan2 atanh cos cosh erf exp exp10 exp2 expm1 fmod hypot log log10
    log1p log2 pow sin sinh tan tanh
"""
_LIBC = frozenset(_WORDS.split()) | {f"{f}{end}" for f in _MATH.split() for end in ("", "f")}
"""What an object may leave to the C library."""

_FORK_IR = """
define internal void @autosched_at_load() {
  %rc = call i32 @pthread_atfork(ptr null, ptr null, ptr @autosched_parallel_reset)
  ret void
}
declare i32 @pthread_atfork(ptr, ptr, ptr)
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @autosched_at_load, ptr null }]
"""
"""A forked child has no workers; the object tells its runtime by itself."""


class Exported(NamedTuple):
    """The files written."""

    object: Path
    header: Path


def export(
    path: str | os.PathLike[str],
    functions: Mapping[str, tuple[str, KernelInfo]],
    target: Target,
    level: Level = "full",
    prefix: str = "",
    inner: Mapping[str, str] | None = None,
    note: str = "",
    outside: Collection[str] = (),
) -> Exported:
    """Writes PATH.o and PATH.h with the functions, given by name as (LLVM IR, info).

    The object is position independent, stands on the C library alone, and defines no global
    symbols but the functions, called `prefix` + name in C (`main`: prefix + the file's name).
    `inner`: LLVM IR of functions that these call, by name; `outside`: functions that they call and
    the caller links to the object; `note` stands in the header.
    Raises ArgumentError for names that cannot be, BuildError if it cannot be compiled or written.
    """
    if not Path(path_text("path", path, ArgumentError)).name:
        raise ArgumentError(
            f"export: expected the path of the files without .o and .h, found {path!r}"
        )
    if not isinstance(prefix, str):
        raise ArgumentError(f"export: expected a string as prefix, found {prefix!r}")
    place = Path(path)
    if place.suffix in _NOT_HERE:
        raise ArgumentError(
            f"export writes an object file and a header, not {place.suffix}: name {place.stem!r} "
            f"or {place.stem + '.o'!r}; export_library links a shared library"
        )
    file = place.stem if place.suffix == ".o" else place.name
    stem = re.sub(r"[^A-Za-z0-9_]", "_", file)
    sources = [
        Source(symbol(name, stem, prefix), ir, info) for name, (ir, info) in functions.items()
    ]
    unique(s.symbol for s in sources)
    from autosched.runtime.parallel import MAX_THREADS

    code = _object(sources, target, level, MAX_THREADS, inner or {}, frozenset(outside))
    text = header(file, sources, target, toolchain(), MAX_THREADS, note)
    done = Exported(place.with_name(f"{file}.o"), place.with_name(f"{file}.h"))
    try:
        done.object.write_bytes(code)
        done.header.write_text(text, encoding="utf-8")
    except OSError as e:
        raise BuildError(f"cannot write {e.filename or place}: {e.strerror}") from e
    return done


def export_library(path: str | os.PathLike[str], exported: Exported, cc: str = "cc") -> Path:
    """Links an exported object to the shared library `path`, by the C compiler `cc`. Raises
    BuildError where there is none, or it fails."""
    place = Path(path_text("path", path, ArgumentError))
    compiler = shutil.which(cc)
    if compiler is None:
        raise BuildError(
            f"a shared library is linked by the C compiler, and there is no {cc} here: install "
            f"one, give another by cc=, or link {exported.object} elsewhere"
        )
    words = [compiler, "-shared", "-Wl,-z,nodelete", str(exported.object), "-o", str(place)]
    done = subprocess.run([*words, "-lpthread", "-lm"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{compiler} cannot link {place}: {done.stderr.strip()}")
    return place


def _object(
    sources: list[Source],
    target: Target,
    level: Level,
    max_threads: int,
    inner: Mapping[str, str],
    outside: frozenset[str],
) -> bytes:
    """One object file of all kernels, the functions that call them, and the runtime they need."""
    from autosched.codegen.llvm.assemble import compile_ir
    from autosched.runtime.parallel import runtime_ir

    public = {s.symbol for s in sources}
    kernels = [*inner.values()]
    kernels += [s.ir + entry_ir(s, target.num_cores, max_threads) for s in sources]
    parallel = any(s.info.parallel for s in sources)
    runtime = runtime_ir(target.triple) + _FORK_IR if parallel else ""
    whole = _linked(kernels, runtime, public, public | set(inner), _LIBC | outside)
    return compile_ir(whole, target, level)


def _linked(
    kernels: list[str],
    runtime: str,
    public: set[str],
    linked: set[str],
    allowed: frozenset[str],
) -> str:
    """One module of several, in which only the `public` names are global; `linked` are the names by
    which they call one another, `allowed` those that it may leave undefined."""
    import llvmlite.binding as llvm

    try:
        whole = llvm.parse_assembly(runtime)
        for text in kernels:
            module = llvm.parse_assembly(text)
            _hide(module, linked)  # LLVM renames what is internal where two modules have it
            whole.link_in(module)
    except RuntimeError as e:
        raise BuildError(f"LLVM refuses the code to export: {e}") from e
    _hide(whole, public)
    for value in whole.functions:
        known = value.name.startswith("llvm.") or value.name in allowed
        if value.is_declaration and not known:
            raise BuildError(f"the code to export calls {value.name}, which nothing defines")
    return str(whole)


def _hide(module: Any, public: set[str]) -> None:
    """Make every definition internal but those of the public names."""
    for value in (*module.functions, *module.global_variables):
        if not (value.is_declaration or value.name in public or value.name.startswith("llvm.")):
            value.linkage = "internal"

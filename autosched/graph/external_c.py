"""C source from code generators: one compilation a generator, run for the first time in a process
of its own, then linked like any kernel."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.codegen.c import compile_c, link_shared, prologue
from autosched.errors import AutoschedError
from autosched.graph import external_child
from autosched.graph.errors import ExternalError
from autosched.graph.external_check import SECONDS, agree, end_session
from autosched.graph.ir import Array, Function, tensor_type
from autosched.graph.kernels import Kernel
from autosched.target import Target

Tests = Mapping[str, tuple[list[Array], list[Array]]]
"""Inputs and expected results by function."""


@dataclass(frozen=True)
class CSource:
    """C source of a function: `text` defines `void NAME(inputs…, outputs…, void *workspace)`, where
    NAME is the graph function's name and arguments point to arrays in row-major order.

    `helpers` are definitions that stand before it, equal ones of several functions once.
    `workspace` is how many bytes of scratch memory it wants, aligned to 64. The headers math.h,
    stdbool.h, stdint.h and string.h are included.
    """

    text: str
    helpers: tuple[str, ...] = ()
    workspace: int = 0


ENTRY = "AUTOSCHED_ENTRY"
_ENTRY = f"""\
#ifndef {ENTRY}
#define {ENTRY} __attribute__((visibility("default")))
#endif
"""


def entry_of(name: str) -> str:
    """The symbol of a function's entry, as `KernelInfo` says how it is called."""
    return f"autosched_external_{name}"


def file_of(rows: Sequence[tuple[Function, CSource]]) -> str:
    """The sources of one generator as one file, with an entry for each function."""
    helpers = dict.fromkeys(h for _, s in rows for h in s.helpers)
    parts = [prologue() + _ENTRY, *helpers]
    for f, source in rows:
        count = len(f.params) + len(f.body.results)
        args = ", ".join([*(f"args[{n}]" for n in range(count)), "workspace"])
        parts.append(
            f"{source.text}\n"
            f"{ENTRY} void {entry_of(f.name)}(void **args, void *workspace, int threads) {{\n"
            f"  (void)threads;\n  {f.name}({args});\n}}\n"
        )
    return "\n".join(parts)


def compiled(
    generator: str, rows: Sequence[tuple[Function, CSource]], target: Target, tests: Tests
) -> tuple[str, dict[str, Kernel]]:
    """The file and the kernels by name. Raises ExternalError, naming the generator, where it does
    not compile, crashes, or computes something else than the functions in `tests`."""
    text = file_of(rows)
    here = Target("llvm").arch
    if target.arch != here:
        raise failed(
            generator,
            rows[0][0].name,
            f"cc makes code for {here}, the target is of {target.arch}",
        )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        try:
            compile_c(text, root / "external.o")
            link_shared([root / "external.o"], root / "external.so")
        except AutoschedError as e:
            names = ", ".join(f.name for f, _ in rows)
            raise ExternalError(
                f"external code generator {generator!r}, functions {names}: {e}"
            ) from e
        if tests:
            _check(generator, rows, tests, root)
        code = (root / "external.o").read_bytes()
    return text, {f.name: _kernel(generator, f, s, code, target) for f, s in rows}


def object_for(source: str, functions: Sequence[str], prefix: str, output: Path) -> dict[str, str]:
    """Write the object file of a generator's source for a program of several models: what it
    defines is hidden in libraries, and its names begin with `prefix`. The entries by function.
    Raises BuildError."""
    names = {f: f"{prefix}external_{f}" for f in functions}
    renamed = [f"-D{entry_of(f)}={name}" for f, name in names.items()]
    renamed += [f"-D{f}={prefix}{f}" for f in functions]
    compile_c(source, output, [f"-D{ENTRY}=", *renamed])
    return names


def _kernel(generator: str, f: Function, source: CSource, code: bytes, target: Target) -> Kernel:
    params = []
    for n, a in enumerate((*f.params, *f.body.results)):
        t = tensor_type(a)
        shape = tuple(int(m) for m in t.known)
        params.append(Param(f"p{n}", shape, t.dtype, n >= len(f.params)))
    info = KernelInfo(entry_of(f.name), tuple(params), source.workspace, 0, name=f.name)
    artifact = Artifact(code, info, str(target))
    return Kernel(f.name, "", f"external: {generator}", artifact, function=f)


def _check(
    generator: str, rows: Sequence[tuple[Function, CSource]], tests: Tests, root: Path
) -> None:
    """Run the functions in a process of its own, and compare. It imports NumPy alone."""
    given = {}
    for f, source in rows:
        inputs, wanted = tests[f.name]
        given[f"{f.name}/entry"] = np.array([len(inputs), len(wanted), source.workspace])
        given |= {f"{f.name}/{n}": x for n, x in enumerate([*inputs, *wanted])}
    np.savez(root / "given.npz", **given)  # type: ignore[arg-type]
    script = str(Path(external_child.__file__))
    command = [sys.executable, "-P", script, str(root)]
    # Files, since processes that the code leaves behind would hold a pipe open.
    with open(root / "log", "wb") as log, open(root / "errors", "wb") as errors:
        child = subprocess.Popen(command, stdout=log, stderr=errors, start_new_session=True)
        rc = child.returncode = end_session(child.pid, SECONDS)
    lines = (root / "log").read_text(errors="replace").split()
    last = lines[-1] if lines else rows[0][0].name
    if rc is None:
        raise failed(generator, last, f"did not return within {SECONDS} seconds")
    if rc < 0:
        raise failed(generator, last, f"crashed: it ended its process with signal {-rc}")
    if rc:
        said = (root / "errors").read_text(errors="replace")[-500:]
        raise failed(generator, last, f"ended its process with status {rc}: {said}")
    if not (root / "found.npz").exists():
        raise failed(generator, last, "ended its process")
    with np.load(root / "found.npz") as found:
        for f, _ in rows:
            fault = str(found[f"{f.name}/fault"])
            if fault:
                raise failed(generator, f.name, fault)
            for n, result in enumerate(tests[f.name][1]):
                fault = agree(found[f"{f.name}/{n}"], result)
                if fault:
                    raise failed(generator, f.name, f"result {n} is wrong: {fault}")


def failed(generator: str, function: str, what: str) -> ExternalError:
    """An error that names a generator and one of its functions."""
    return ExternalError(f"external code generator {generator!r}, function {function}: {what}")

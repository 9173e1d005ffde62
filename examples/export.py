"""Kernels for a C program: a matrix product and a softmax, built ahead of time.

    python examples/export.py [FOLDER]

Writes kernels.o and kernels.h to FOLDER (default: the current one), and, where there is a C
compiler, makes and runs the program examples/export.c with them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import autosched as at
from autosched import te
from autosched.passes import Sequential, dead_code, inline, simplify

N, L, M = 64, 48, 32
MAIN = Path(__file__).with_name("export.c")


def matmul() -> at.Schedule:
    """C = A @ B with rows divided over threads and vectors along the columns."""
    func = te.create_prim_func(at.ops.matmul(N, L, M), name="matmul")
    sch = at.Schedule(func)
    i, j, k = sch.get_loops(sch.get_blocks()[0])
    outer, inner = sch.split(i, factors=[None, 8])
    sch.reorder(outer, k, inner, j)
    sch.parallel(outer)
    sch.unroll(inner)
    sch.vectorize(j)
    return sch


def main(folder: Path) -> int:
    softmax = te.create_prim_func(at.ops.softmax(N, M), name="softmax")
    mod = at.IRModule.of(matmul().func, softmax)
    mod = Sequential([inline, simplify, dead_code])(mod)
    print(mod.script())
    built = at.build(mod)
    files = built.export(folder / "kernels")
    print("wrote", *files)
    cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if cc is None:
        print("no C compiler here; link them yourself:", files.header)
        return 0
    program = folder / "export"
    include = f"-I{folder}"
    command = [cc, "-O2", include, str(MAIN), str(files.object), "-o", str(program), "-lpthread"]
    subprocess.run([*command, "-lm"], check=True)
    return subprocess.run([str(program.absolute())], check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        sys.exit(0 if len(sys.argv) == 2 else 2)
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) == 2 else ".")))

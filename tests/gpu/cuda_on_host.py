"""CUDA kernels on the host: their text compiled as C++ with `cuda_on_host.h`, each thread a fiber.

Threads run from one barrier to the next, one after the other: forwards, with copies that arrive at
once, and backwards, with copies that arrive when they are waited for. What a barrier or a wait too
few leaves to chance differs in one of the two. Indices of arrays in shared memory and in threads
are checked, as is the alignment of vectors; what overruns an array in global memory crashes.
"""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from gpu_run import Array, cuda, ordered, poisoned

from autosched.codegen.gpu.generate import GPUArtifact, generate
from autosched.codegen.warp_intrinsics import group_columns
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.nodes import PrimFunc, outputs_of

CXX = shutil.which("g++")
HEADER = Path(__file__).with_name("cuda_on_host.h")
CHECKS = ("-fsanitize=bounds,alignment", "-fno-sanitize-recover=all")
FLAGS = ("-std=c++17", "-w", "-fno-strict-aliasing", "-ffp-contract=off", *CHECKS)
MODES = 2
OBJECT = "cuda_on_host.o"


@cache
def compiled_once() -> Path:
    """A folder with the header precompiled, and what of it no kernel changes as an object: that is
    most of a program. It goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="cuda-on-host-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for kind, source, out in (
        (("-x", "c++-header"), HEADER, f"{HEADER.name}.gch"),
        (("-c",), HEADER.with_suffix(".cpp"), OBJECT),
    ):
        command = [str(CXX), *FLAGS, *kind, "-o", str(folder / out), str(source)]
        subprocess.run(command, check=True, timeout=120)
    return folder


def run_on_host(
    func: PrimFunc, inputs: Sequence[Array], folder: Path, target: Target | None = None
) -> list[list[Array]]:
    """Outputs of a function that is scheduled for CUDA, of each mode."""
    artifact = generate(func, target or cuda())
    outputs = poisoned(func)
    arrays = ordered(func, inputs, outputs)
    (folder / "kernels.cpp").write_text(host_text(artifact, arrays), encoding="utf-8")
    for n, array in enumerate(arrays):
        array.tofile(folder / f"in{n}")
    once = compiled_once()
    command = [str(CXX), *FLAGS, "-iquote", str(once), "-o", "kernels", "kernels.cpp"]
    command.append(str(once / OBJECT))
    for step in (command, ["./kernels"]):
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[-2000:]}"
    written = [n for n, b in enumerate(func.params) if any(b is o for o in outputs_of(func))]
    return [
        [
            np.fromfile(folder / f"out{n}_{mode}", arrays[n].dtype).reshape(arrays[n].shape)
            for n in written
        ]
        for mode in range(MODES)
    ]


def host_text(artifact: GPUArtifact, arrays: Sequence[Array]) -> str:
    """A program in C++ that reads the arrays, launches the kernels in each mode and writes all."""
    sizes = [a.nbytes for a in arrays]
    sizes += [count * dtypes.array_dtype(t).itemsize for count, t in artifact.workspaces]
    lines = [f'#include "{HEADER.name}"', *groups(artifact.source), translated(artifact.source)]
    lines.append(f"static void *memory[{len(sizes)}];")
    for n, x in enumerate(artifact.launches):
        args = ", ".join(f"Pointer{{memory[{a}]}}" for a in x.args)
        lines.append(f"static void launch_{n}() {{ {x.name}({args}); }}")
    lines += ["int main() {", f"for (int mode = 0; mode < {MODES}; ++mode) {{", "char name[40];"]
    lines += [f"memory[{n}] = guarded({size});" for n, size in enumerate(sizes)]
    for n, size in enumerate(sizes[: len(arrays)]):
        lines.append(f'{{ FILE *f = fopen("in{n}", "rb"); fread(memory[{n}], 1, {size}, f); }}')
    for n, x in enumerate(artifact.launches):
        grid, block = ("{" + ", ".join(map(str, shape)) + "}" for shape in (x.grid, x.block))
        lines.append(f"launch(launch_{n}, {grid}, {block}, {x.shared_bytes}, mode);")
    for n, size in enumerate(sizes[: len(arrays)]):
        lines.append(f'sprintf(name, "out{n}_%d", mode);')
        lines.append(f'{{ FILE *f = fopen(name, "wb"); fwrite(memory[{n}], 1, {size}, f);')
        lines.append("fclose(f); }")
    return "\n".join([*lines, "}", "}"]) + "\n"


TYPES = {"f16": "Half", "bf16": "Brain", "s8": "signed char", "u8": "unsigned char"}
TOTALS = {"f32": "float", "s32": "int"}


def groups(source: str) -> list[str]:
    """Macros for the products of warpgroups that a source calls: there is one for each width."""
    name = r"\b(wgmma_m64n(\d+)k\d+_(b?f16|[su]8)(b?f16|[su]8)([fs]32)(_trans)?)\("
    found = sorted({m.groups() for m in re.finditer(name, source)}, key=str)
    for whole, columns, left, right, total, _ in found:
        assert group_columns(f"{left}{right}{total}", int(columns)), f"no device has {whole}"
    return [
        f"#define {whole}(...) wgmma<{TYPES[left]}, {TYPES[right]}, {TOTALS[total]}, {columns}, "
        f"{'true' if trans else 'false'}>(__LINE__, __VA_ARGS__)"
        for whole, columns, left, right, total, trans in found
    ]


def translated(source: str) -> str:
    """The text of kernels for the header: its own copies, and arrays that threads share static."""
    void = r"void (?:copied\w*|copy_\w+|commit|ldmatrix_\w+|w?g?mma_\w+|proxy_fence)"
    helper = (
        rf"__device__ __forceinline__ (?:{void}|\S+(?: short)? f16_\w+)\([^)]*\) \{{\n.*?\n\}}\n"
    )
    source = re.sub(helper, "", source, flags=re.DOTALL)
    descriptor = r"__device__ __forceinline__ unsigned long long matrix_descriptor.*?\n\}\n"
    source = re.sub(descriptor, "", source, flags=re.DOTALL)
    one_line = r"__device__ __forceinline__ float f16_round\(float value\) \{.*\}\n"
    source = re.sub(one_line, "", source)
    source = re.sub(r'extern "C" __global__ void __launch_bounds__\(\d+\)', "static void", source)
    dynamic = r"extern __shared__ __align__\(\d+\) unsigned char (\w+)\[\];"
    source = re.sub(dynamic, r"unsigned char *const \1 = dynamic_shared;", source)
    shared = r"__shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)(\[\d+\])?;"
    return re.sub(
        shared,
        r"static __attribute__((aligned(1024))) \1 \2\3; unset((void *)&\2, sizeof \2);",
        source,
    )

"""OpenCL kernels that do what candidates must not: named for it, and importable by children."""

from __future__ import annotations

from measure_doubles import SIZE, Double

from autosched.codegen.artifact import KernelInfo
from autosched.codegen.gpu.generate import GPUArtifact, Launch
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from measure.local.build import compiled, params_of
from measure.machine.protocol import GPU

BUILD_FUNC = "gpu_doubles:build_double"
THREADS = 40
_HEAD = "__kernel void add(__global float *a, __global float *b, __global float *out{more}) {{\n"
_I = "  int i = get_global_id(0);\n"
_RIGHT = f"{_I}  out[i] = a[i] + b[i];\n"

KERNELS = {
    "right": _RIGHT,
    "wrong_result": f"{_I}  out[i] = a[i] + 2.0f * b[i];\n",
    "wrong_at_the_end": f"{_RIGHT}  if (i == {SIZE - 1}) out[i] = 7.0f;\n",
    "unwritten": f"{_I}  if (i < {SIZE - 3}) out[i] = a[i] + b[i];\n",
    "writes_input": f"{_RIGHT}  if (i == 5) a[i] = 5.0f;\n",
    "write_after_end": f"{_RIGHT}  if (i == 0) out[{SIZE}] = 1.0f;\n",
    "write_before_start": f"{_RIGHT}  if (i == 0) out[-2] = 1.0f;\n",
    "write_past_workspace": f"{_RIGHT}  if (i == 0) space[32] = 1;\n",
    # A workspace is poisoned before the first call: all ones, which is -1.
    "right_once": f"{_I}  out[i] = a[i] + b[i] + (float)(space[i] + 1);\n  space[i] = 3;\n",
    "endless_loop": f"{_I}  while (((volatile __global float *)a)[i] < 1e30f) out[i] = 0.0f;\n",
    "segfault": f"{_RIGHT}  if (i == 0) out[(long)1 << 40] = 1.0f;\n",
    "reads_unwritten_shared": "  __local float rows[40];\n"
    f"{_I}  if (a[i] > 1e30f) rows[i % 40] = 0.0f;\n  barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  out[i] = a[i] + b[i] + rows[i % 40];\n",
    "huge_workspace": _RIGHT,
    "too_many_threads": _RIGHT,
    "not_opencl": "  oops;\n",
}
SPACES = {
    "write_past_workspace": 32,
    "right_once": SIZE,
    "huge_workspace": 1 << 40,
}


def build_double(func: PrimFunc, trace: Double, target: Target) -> GPUArtifact:
    """The kernel that a double's name says, compiled."""
    spaces = SPACES.get(trace.name)
    more = "" if spaces is None else ", __global int *space"
    source = _HEAD.format(more=more) + KERNELS[trace.name] + "}\n"
    threads = SIZE * 10 if trace.name == "too_many_threads" else THREADS
    launch = Launch("add", (SIZE // THREADS, 1, 1), (threads, 1, 1), (0, 1, 2))
    if spaces is not None:
        launch = Launch(launch.name, launch.grid, launch.block, (0, 1, 2, 3))
    workspaces = () if spaces is None else ((spaces, "int32"),)
    info = KernelInfo("add", params_of(func))
    made = GPUArtifact(source, info, (launch,), workspaces, str(target))
    return compiled(made, target, GPU("opencl"))

"""The clock probe of a GPU: fixed multiply-adds on every multiprocessor, and a kernel that fills
shared memory with NaN, printed by hand in both languages."""

from __future__ import annotations

from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.gpu.generate import GPUArtifact, Launch
from autosched.runtime.queue import QueueInfo
from autosched.target import Target
from measure.machine.gpu_dialect import words

THREADS = 128
BLOCKS = 4
"""A multiprocessor: 512 threads of four chains hide the latency of a multiply-add."""
ITERATIONS = {"cuda": 5000, "opencl": 500}
"""About 50 microseconds of a GPU; PoCL's processors are slower."""
MOST_SHARED = 48 << 10

_SOURCE = """\
{kernel}clock_probe({memory}float *out) {{
  float a = 1.0f, b = 1.0625f, c = 1.125f, d = 1.1875f;
  for (int i = 0; i < {iterations}; ++i) {{
    a = {fma}(a, 0.5f, 0.5f);
    b = {fma}(b, 0.5f, 0.5f);
    c = {fma}(c, 0.5f, 0.5f);
    d = {fma}(d, 0.5f, 0.5f);
  }}
  out[{block} * {threads} + {thread}] = a + b + c + d;
}}
{kernel}poison({memory}float *out) {{
  {shared} float all[{count}];
  for (int i = {thread}; i < {count}; i += {threads}) all[i] = {nan};
  {barrier}
  int last = {count} - 1 - {thread};
  out[{block} * {threads} + {thread}] = all[last] != all[last] ? ((size_t)all >> 4) % 16777216 : 0;
}}
"""


def probe_source(kind: str, shared_bytes: int) -> str:
    """Text of the two kernels."""
    return _SOURCE.format(
        **words(kind, THREADS),
        iterations=ITERATIONS[kind],
        threads=THREADS,
        count=min(shared_bytes, MOST_SHARED) // 4,
    )


def gpu_clock_probe(target: Target, kind: str, info: QueueInfo) -> GPUArtifact:
    """The clock probe for a device, to be compiled. Its one argument takes what the threads
    computed, so that it is computed."""
    blocks = BLOCKS * info.units
    out = Param("out", (blocks * THREADS,), "float32", True)
    return GPUArtifact(
        probe_source(kind, info.shared_bytes),
        KernelInfo("clock_probe", (out,)),
        (Launch("clock_probe", (blocks, 1, 1), (THREADS, 1, 1), (0,)),),
        (),
        str(target),
    )


def poisoning(blocks: int) -> Launch:
    """The launch that fills shared memory, of a source that `probe_source` made. Each thread leaves
    where its block's lies, which tells apart the threads of a device that is a processor."""
    return Launch("poison", (blocks, 1, 1), (THREADS, 1, 1), (0,))

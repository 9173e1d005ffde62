"""Results compared with the reference where they are: a kernel looks through them on the device.

What it passes is right. What it does not pass is copied to the host, which decides and says what is
wrong: so nothing is refused by rounding of the device, and the words are the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.codegen.artifact import KernelInfo
from autosched.codegen.gpu.generate import GPUArtifact, Launch
from autosched.runtime.queue import Array, Memory, Queue
from measure.machine.gpu_dialect import words

THREADS = 256
BLOCKS = 8
"""Of a multiprocessor."""
_SOURCE = """\
{kernel}same({memory}const unsigned int *a, {memory}const unsigned int *b,
    {memory}const {long} *count, {memory}unsigned int *wrong) {{
  unsigned int found = 0;
  for ({long} i = ({long}){block} * {threads} + {thread}; i < *count; i += {all})
    found |= a[i] != b[i];
  if (found) *wrong = 1;
}}
{kernel}near({memory}const float *a, {memory}const float *b, {memory}const {long} *count,
    {memory}unsigned int *wrong, {memory}const float *bounds) {{
  const float share = bounds[0], usual = bounds[1];
  unsigned int found = 0;
  for ({long} i = ({long}){block} * {threads} + {thread}; i < *count; i += {all}) {{
    const float value = a[i], expected = b[i];
    const unsigned int bits = {bits}(expected), exponent = bits & 0x7f800000u;
    if (exponent != 0x7f800000u)
      found |= !({abs}(value - expected) <= share * {abs}(expected) + share * usual);
    else if (bits & 0x7fffffu)
      found |= ({bits}(value) & 0x7fffffffu) <= 0x7f800000u;
    else
      found |= {bits}(value) != bits;
  }}
  if (found) *wrong = 1;
}}
"""


def compare_source(kind: str, blocks: int) -> str:
    """Text of the two kernels, in the language `kind`."""
    return _SOURCE.format(**words(kind, THREADS), threads=THREADS, all=blocks * THREADS)


class Comparison:
    """The kernels on one device. Raises BuildError if it does not take them."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._blocks = BLOCKS * queue.info.units
        source, code = compare_source(queue.info.kind, self._blocks), b""
        if queue.info.kind == "cuda":
            from autosched.codegen.cuda import compile_cuda

            code = compile_cuda(source, queue.info.version)
        grid, block = (self._blocks, 1, 1), (THREADS, 1, 1)
        launches = tuple(Launch(name, grid, block, ()) for name in ("same", "near"))
        artifact = GPUArtifact(source, KernelInfo("compare", ()), launches, (), queue.name, code)
        self._same, self._near = queue.load(artifact)
        # Made here, since there may be no room later.
        self._wrong, self._count, self._bounds = map(queue.allocate, (4, 8, 8))

    def copied(self, values: Array) -> Memory:
        """A copy of an array on the device. Raises MemoryError."""
        memory = self._queue.allocate(values.nbytes)
        self._queue.write(memory, np.ascontiguousarray(values))
        return memory

    def same(self, memory: Memory, expected: Memory, nbytes: int) -> bool:
        """Whether two pieces of memory are equal; `nbytes` is a multiple of 4."""
        return self._passes(self._same, nbytes // 4, (memory, expected))

    def near(
        self, memory: Memory, expected: Memory, count: int, share: float, usual: float
    ) -> bool:
        """Whether `count` float32 values differ from those expected by at most `share` of these and
        of `usual`, infinities and NaN standing where they are expected."""
        self._queue.write(self._bounds, np.array([share, usual], np.float32))
        return self._passes(self._near, count, (memory, expected), (self._bounds,))

    def _passes(
        self, kernel: Any, count: int, first: tuple[Memory, ...], last: tuple[Memory, ...] = ()
    ) -> bool:
        self._queue.write(self._count, np.array([count], np.int64))
        self._queue.fill(self._wrong, 0, 4, 0)
        used = (*first, self._count, self._wrong, *last)
        self._queue.launcher(kernel, (self._blocks, 1, 1), (THREADS, 1, 1), used)()
        wrong = np.empty(1, np.uint32)
        self._queue.read(wrong, self._wrong)
        return not wrong[0]

"""`Kernel`: what one launch runs, with threads, memory scopes and barriers decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from autosched.errors import CodegenError, ScheduleError
from autosched.tir.dtypes import itemsize
from autosched.tir.intrin import KEY as TENSORIZED
from autosched.tir.intrin import TensorIntrin, warp_code
from autosched.tir.intrin_code import WarpCode
from autosched.tir.nodes import Block, Buffer, For, Node, Site, allocated, sites

if TYPE_CHECKING:
    from autosched.codegen.gpu.lookback import Lookback

AXES = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
"""What loops are bound to in hardware; virtual threads are loops of a thread."""
BLOCKS, THREADS = AXES[:3], AXES[3:]


@dataclass(frozen=True)
class Limits:
    """What a device grants a block. `warp`: threads that run in step, 1 if nothing is known."""

    max_threads: int
    shared_bytes: int
    warp: int = 1
    max_extents: tuple[tuple[str, int], ...] = ()
    """Largest extents of single axes, where they are less than the whole allows."""
    static_bytes: int | None = None
    """The most shared memory that a block has without asking for more at the launch; None: all."""
    features: tuple[str, ...] = ()
    """Instructions beside those of all devices, by `TensorIntrin.features`."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """One launch: every thread runs `body`, in which the variables of bound loops are those of
    `axes`.

    `params` are the buffers in global memory that it takes, in order: arguments of the function
    and its workspaces. `shared` arrays are one a block, `local` ones one a thread; loops
    hold no buffers. `barriers` says before which nodes, by id, the threads of
    a block wait for each other, and which memories ("shared", "global") they
    then see alike; `memories` are those of any barrier.
    """

    name: str
    body: tuple[Node, ...]
    axes: dict[str, For]
    params: tuple[Buffer, ...] = ()
    shared: tuple[Buffer, ...] = ()
    local: tuple[Buffer, ...] = ()
    barriers: dict[int, frozenset[str]] = field(default_factory=dict)
    memories: frozenset[str] = frozenset({"shared", "global"})
    dynamic_bytes: int = 0
    """Of shared memory that a launch asks for: all of `shared`, where that is too much else, or the
    program says so."""
    lookback: Lookback | None = None
    """Of one that scans in a single pass: how."""

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along x, y, z."""
        return self._extents(BLOCKS)

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block along x, y, z."""
        return self._extents(THREADS)

    def _extents(self, names: Sequence[str]) -> tuple[int, int, int]:
        x, y, z = (int(self.axes[n].extent) if n in self.axes else 1 for n in names)
        return x, y, z

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, without what reductions across threads take."""
        return sum(buffer_bytes(b) for b in self.shared)

    def sites(self) -> Iterator[Site]:
        """Every block; its loops begin with those that are bound."""
        return sites_in(self.body, tuple(self.axes.values()))


def sites_in(nodes: Sequence[Node], around: tuple[For, ...]) -> Iterator[Site]:
    """Every block below `nodes`, which stand in the loops `around`."""
    for node in nodes:
        for s in sites(node):
            yield Site(s.block, (*around, *s.loops))


def buffer_bytes(b: Buffer) -> int:
    """Bytes of an array in memory."""
    return int(allocated(b.shape, b.align)) * itemsize(b.dtype)


SHARED_ALIGN, SWIZZLE_ALIGN = 16, 1024
"""Bytes that arrays in shared memory begin at multiples of, and those that are swizzled."""


def swizzled_in(kernel: Kernel) -> frozenset[Buffer]:
    """The shared arrays that products of warpgroups read."""
    found: set[Buffer] = set()
    for s in kernel.sites():
        codes = [warp_code(x) for x in s.loops]
        if any(code is not None and code.warps > 1 for code in codes):
            found |= {a.buffer for a in s.block.reads if a.buffer.scope == "shared"}
    return frozenset(found)


def shared_offsets(kernel: Kernel) -> list[int]:
    """Where each of the arrays in `shared` begins in memory that a launch asks for, and where they
    end."""
    found = [0]
    align = SWIZZLE_ALIGN if swizzled_in(kernel) else SHARED_ALIGN
    for b in kernel.shared:
        found.append(-(-(found[-1] + buffer_bytes(b)) // align) * align)
    return found


def check_limits(kernel: Kernel, limits: Limits, extra_bytes: int = 0) -> None:
    """Raise CodegenError if a device of these limits cannot run the kernel, whose reductions take
    `extra_bytes` of shared memory."""
    threads = prod(kernel.block)
    if threads > limits.max_threads:
        raise CodegenError(
            f"kernel {kernel.name} has {threads} threads a block ({_times(kernel.block)}); the "
            f"target allows {limits.max_threads}: split the loops bound to threadIdx further"
        )
    for name, most in limits.max_extents:
        extent = int(kernel.axes[name].extent) if name in kernel.axes else 1
        if extent > most:
            raise CodegenError(
                f"kernel {kernel.name} has {extent} iterations bound to {name}; the target allows "
                f"{most}: fuse into the .x axis, or split the loop"
            )
    needed = kernel.shared_bytes + extra_bytes
    if needed > limits.shared_bytes:
        parts = ", ".join(f"{b.name} {buffer_bytes(b)}" for b in kernel.shared)
        parts += f", reductions across threads {extra_bytes}" if extra_bytes else ""
        raise CodegenError(
            f"kernel {kernel.name} needs {needed} bytes of shared memory ({parts}); the target "
            f"has {limits.shared_bytes} a block: compute what is shared in smaller pieces"
        )


def check_intrinsic(site: Site, limits: Limits) -> None:
    """Raise CodegenError if a block is marked with an intrinsic that the device has not."""
    for name in (str(m) for x in site.loops if (m := x.annotation(TENSORIZED)) is not None):
        try:
            intrin = TensorIntrin.get(name)
        except ScheduleError as e:
            raise CodegenError(f"block {site.block.name} is marked as an intrinsic: {e}") from e
        lacks = sorted(intrin.features.difference(limits.features))
        if lacks or not isinstance(intrin.implementation, WarpCode):
            raise CodegenError(
                f"block {site.block.name} uses the tensor intrinsic {name}, which needs "
                f"{', '.join(lacks) or 'a CPU'}; the target lacks it: build for one that has it, "
                "or schedule the block without tensorize"
            )


def _times(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))


def allocated_in(node: Node) -> Iterator[Buffer]:
    """Buffers that live in loops of `node`."""
    if isinstance(node, For):
        yield from node.allocs
        for child in node.body:
            yield from allocated_in(child)


def without_allocs(node: Node) -> Node:
    """`node` with no buffers of its own."""
    if isinstance(node, Block):
        return node
    return replace(node, body=tuple(without_allocs(child) for child in node.body), allocs=())

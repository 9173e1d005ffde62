"""Writing the function that a team of threads runs together; see `phases`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from autosched.codegen.llvm.function import FunctionWriter
from autosched.codegen.llvm.phases import Waits, chain_of, has_parallel, units
from autosched.tir import dtypes
from autosched.tir.affine import Int
from autosched.tir.nodes import Buffer, For, Node, allocated
from autosched.tir.size import Size
from autosched.tir.size_atoms import Undecided


def iterations(chain: Sequence[For]) -> Int:
    """Of nested loops together."""
    total: Int = 1
    for loop in chain:
        total = total * loop.extent
    return total


def most_threads(root: For) -> int | None:
    """Iterations of the longest parallel loop inside: more threads have nothing to do. None where
    that depends on symbolic sizes."""

    def below(node: Node) -> int:
        if not isinstance(node, For):
            return 1
        if node.kind == "parallel":
            return int(iterations(chain_of(node)))
        return max(map(below, node.body))

    try:
        return below(root)
    except Undecided:
        return None


@dataclass
class TeamWriter(FunctionWriter):
    """Writes the loops around the parallel ones. `%begin` and `%end` are the thread's rank and the
    number of threads. Buffers that live here are shared by all, and no two share their memory,
    since a thread may be a phase ahead of another."""

    waits: Waits | None = None
    places: dict[int, str] = field(default_factory=dict)
    """Offset of each buffer (by id) in the workspace."""

    def node(self, node: Node) -> None:
        """Write the outermost loop, and with it everything."""
        if self.waits is not None or not isinstance(node, For):
            super().node(node)
            return
        self.waits = Waits(node, self.blocks)
        mark = self.module.shared_scratch.top
        super().node(node)
        self.module.shared_scratch.top = mark

    def scratch(self, buffers: Sequence[Buffer], body: Sequence[Node]) -> None:
        """Write `body` with shared scratch memory for `buffers`."""
        for buffer in buffers:
            if id(buffer) not in self.places:
                size = dtypes.itemsize(buffer.dtype) * allocated(buffer.shape, buffer.align)
                if isinstance(size, Size):
                    at = self.index.number(self.module.place(False, buffer, size))
                    place = self.b.op(f"add nsw i64 {at}, @@SHARED@@")
                else:
                    place = str(self.module.shared_scratch.take(size))
                self.places[id(buffer)] = place
            self.memory.pointers[id(buffer)] = self.b.op(
                f"getelementptr inbounds i8, ptr %workspace, i64 {self.places[id(buffer)]}"
            )
        for unit in units(body):
            first = unit[0]
            if isinstance(first, For) and first.kind != "parallel" and has_parallel(first):
                self.node(first)
                continue
            if self.waits is not None and unit in self.waits:
                self.b.do("call void @autosched_parallel_barrier(i64 %begin, i64 %end)")
            if isinstance(first, For) and first.kind == "parallel":
                self._share(first)
            else:
                one = self.b.op("icmp eq i64 %begin, 0")
                self.branch(one, partial(self.module.alone, self, unit))

    def _share(self, loop: For) -> None:
        """This thread's iterations, the same ones whenever the loop comes by."""
        extent = self.index.number(iterations(chain_of(loop)))
        next_rank = self.b.op("add nuw i64 %begin, 1")
        bounds = []
        for rank in ("%begin", next_rank):
            total = self.b.op(f"mul nuw i64 {rank}, {extent}")
            bounds.append(self.b.op(f"udiv i64 {total}, %end"))
        self.module.share(self, loop, bounds[0], bounds[1])

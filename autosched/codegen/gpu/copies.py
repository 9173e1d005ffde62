"""Copies from global to shared memory: in vectors, with zeros where there is nothing, and on CUDA
while their thread goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from autosched.codegen.gpu.across import ReductionWriter
from autosched.codegen.gpu.double import AHEAD, IN_STEP
from autosched.codegen.gpu.exprs import Exprs
from autosched.codegen.gpu.vectors import Vectors, condition_of, copied_by, is_vector
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.annotations import copies_of
from autosched.tir.expr import Expr, Var
from autosched.tir.nodes import Access, Block, Buffer, For, Node, sites
from autosched.tir.simplify import substitute_loops


class CopyWriter(ReductionWriter):
    """Writes blocks that only copy."""

    @cached_property
    def written(self) -> set[Buffer]:
        """What the kernel writes."""
        return {a.buffer for s in self.kernel.sites() for a in s.block.writes}

    @cached_property
    def asynchronous(self) -> bool:
        """Whether copies may be under way at a barrier."""
        loops = (x for s in self.kernel.sites() for x in s.loops)
        return bool(self.dialect.asynchronous) and any(in_step(x) for x in loops)

    @cached_property
    def on_the_way(self) -> set[Buffer]:
        """What fetches for later steps read."""
        fetching = (s for s in self.kernel.sites() if any(in_step(x) for x in s.loops))
        return {a.buffer for s in fetching for a in s.block.reads}

    @cached_property
    def by_groups(self) -> bool:
        """Whether warpgroups multiply what others have written to shared memory."""
        return bool(self.swizzled)

    def stays(self, v: Vectors, start: Affine, condition: Expr | None, source: Access) -> bool:
        """Whether the lanes of a copy are neighbours at their source, and there under a condition
        that is the same for all."""
        extents = {**self.extents, v.loop.var: v.loop.extent}
        place = next(a for a in v.block.reads if a.buffer is source.buffer)
        if not is_vector(place, v.block, v.loop, v.width, extents, self.dialect):
            return False
        blocks = [block_at(v.block, v.loop.var, start + lane) for lane in range(v.width)]
        texts = {self.exprs(b).text(c)[0] for b in blocks if (c := condition_of(b)) is not None}
        return condition is None or len(texts) == 1

    def padded(self, v: Vectors, first: Exprs, condition: Expr, source: Access) -> None:
        """A vector of what is there, of zeros where that does not exist."""
        target = first.block.writes[0]
        kind, pointer = self.vector(target.buffer, v.width, False)
        result = self.fresh("result")
        self.emit(f"{kind} {result};")
        self.emit(" = ".join(f"{result}.{x}" for x in "xyzw"[: v.width]) + " = 0;")
        _, constant = self.vector(source.buffer, v.width, True)
        with self.inside(f"if ({first.text(condition)[0]})"):
            self.emit(f"{result} = *({constant})&{self.element(first, source)};")
        self.emit(f"*({pointer})&{self.element(first, target)} = {result};")

    def copy(self, name: str, exprs: Exprs, condition: Expr | None, source: Access) -> None:
        """Begin a copy that the helper `name` makes."""
        places = (exprs.block.writes[0], source)
        args = [f"&{self.element(exprs, a)}" for a in places]
        if condition is None:
            self.emit(f"{self.helpers.asynchronous(name)}({', '.join(args)});")
            return
        args.append(exprs.text(condition)[0])
        self.emit(f"{self.helpers.asynchronous(name + '_where')}({', '.join(args)});")

    def asynchronous_copy(self, block: Block, width: int) -> str:
        """The helper by which a copy of `width` elements goes from global to shared memory while
        its thread goes on; empty where it does not. What is fetched for the next step may: a
        barrier stands between, before which everything is waited for."""
        copied = copied_by(block)
        if not (self.asynchronous and self.steps_wait and self.fetching) or copied is None:
            return ""
        source, target = copied[1].buffer, block.writes[0].buffer
        nbytes = width * dtypes.itemsize(target.dtype)
        fits = source.dtype == target.dtype and target.scope == "shared" and nbytes in (4, 8, 16)
        if target in self.on_the_way:  # read in the same step, before its group is waited for
            return ""
        if not fits or source in self.written or source not in self.kernel.params:
            return ""
        return f"copy_{nbytes}"


def fetched_in(nodes: Sequence[Node]) -> tuple[int, int, int]:
    """Of the body of a loop of steps: (the first node that fetches for a later step, the last one,
    between how many buffers that alternates); (-1, -1, 0) if none does."""
    found = [n for n, x in enumerate(nodes) if isinstance(x, For) and in_step(x)]
    if not found:
        return -1, -1, 0
    copies = max(int(copies_of(s.block)) for n in found for s in sites(nodes[n]))
    return found[0], found[-1], copies


def in_step(loop: For) -> bool:
    """Whether a loop fetches for the next step, inside of this one."""
    return bool(loop.annotation(AHEAD) == IN_STEP)


def block_at(block: Block, v: Var, value: Affine) -> Block:
    """The block in one iteration of the loop over `v`."""
    return substitute_loops(block, {v: value})

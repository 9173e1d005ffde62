"""Reductions as C: one accumulator in a register, and threads that combine theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from autosched.codegen.gpu.exprs import Exprs, Load
from autosched.codegen.gpu.reduce import Chain, way_across
from autosched.codegen.gpu.vectors import guarded, is_vector, moves_apart
from autosched.codegen.gpu.writer import Writer
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr
from autosched.tir.nodes import Block, For, Predicate
from autosched.tir.simplify import substitute_loops


class ReductionWriter(Writer):
    """Writes chains (`reduce.py`)."""

    def chain(self, chain: Chain) -> None:
        block, exprs = chain.block, self.exprs(chain.block)
        reducer = block.reducer
        assert reducer is not None
        outside = self.left(chain.outside())
        if chain.lanes:
            accs = self.accumulate(chain, exprs, outside, list(reducer.identity))
            self.across(chain, exprs, accs, outside)
            return
        with self.inside(self.when(outside)):
            start: list[Expr] | None = list(reducer.identity) if block.init else None
            self.active += outside
            accs = self.accumulate(chain, exprs, [], start)
            for a, acc in zip(block.writes, accs, strict=True):
                self.store(exprs, a, acc)
            del self.active[len(self.active) - len(outside) :]

    def accumulate(
        self,
        chain: Chain,
        exprs: Exprs,
        outside: Sequence[Predicate],
        start: Sequence[Expr] | None,
    ) -> list[str]:
        """The names of the accumulators, after all points of this thread. They begin with `start`,
        or with what is stored."""
        block = chain.block
        accs = [self.fresh("acc") for _ in block.writes]
        for n, (a, acc) in enumerate(zip(block.writes, accs, strict=True)):
            kind = self.dialect.value_type(a.buffer.dtype)
            value = self.load(exprs, a) if start is None else exprs.text(start[n])[0]
            self.emit(f"{kind} {acc} = {value};")
        with self.inside(self.when(outside)):
            self.active += outside
            loops = unrolled(chain.loops) if chain.lanes else chain.loops
            lanes = self.lanes_of_vector(chain)
            with self.loops(loops[:-1] if lanes else loops, waits=False):
                if lanes:
                    self.add_vector(chain, accs, lanes)
                else:
                    exprs = self.exprs(block)
                    with self.inside(self.when(self.left(chain.inside()))):
                        self.update(accs, self.combined(block, exprs, accs), block)
            del self.active[len(self.active) - len(outside) :]
        return accs

    def lanes_of_vector(self, chain: Chain) -> tuple[int, ...]:
        """Numbers of the reads that are a vector over the innermost loop of a chain across threads;
        empty if that is no loop over the neighbours of one."""
        block = chain.block
        last = chain.loops[-1] if chain.loops and chain.lanes else None
        if last is None or last.kind != "unrolled" or int(last.extent) not in (2, 4):
            return ()
        extents = {**self.extents, **{x.var: x.extent for x in chain.loops}}
        if moves_apart(block, last, int(last.extent)):
            return ()
        hidden = guarded(block)
        return tuple(
            n
            for n, a in enumerate(block.reads)
            if n not in hidden
            and a.buffer.scope == "global"
            and a.buffer.dtype in ("float32", "int32")
            and is_vector(a, block, last, int(last.extent), extents, self.dialect)
        )

    def add_vector(self, chain: Chain, accs: list[str], lanes: tuple[int, ...]) -> None:
        """Load a vector of each of the reads `lanes`, and add its elements one after the other."""
        last = chain.loops[-1]
        width = int(last.extent)
        blocks = [substitute_loops(chain.block, {last.var: Affine(n)}) for n in range(width)]
        first = self.exprs(blocks[0])
        inside = replace(chain, block=blocks[0]).inside()
        with self.inside(self.when(self.left(inside))):
            names = {}
            for n in lanes:
                buffer = blocks[0].reads[n].buffer
                kind, pointer = self.vector(buffer, width, True)
                names[n] = self.fresh(f"{buffer.name}_vec")
                place = self.element(first, blocks[0].reads[n])
                self.emit(f"const {kind} {names[n]} = *({pointer})&{place};")
            for block, part in zip(blocks, "xyzw", strict=False):
                texts = {id(block.reads[n]): f"{name}.{part}" for n, name in names.items()}
                exprs = Exprs(block, self.dialect, self.forms, self.loading(block, texts))
                self.update(accs, self.combined(block, exprs, accs), block)

    def loading(self, block: Block, texts: Mapping[int, str]) -> Load:
        """How reads of a block become text, `texts` having those of some accesses by id."""
        exprs = self.exprs(block)
        return lambda a: texts.get(id(a)) or self.load(exprs, a)

    def across(
        self, chain: Chain, exprs: Exprs, accs: list[str], outside: Sequence[Predicate]
    ) -> None:
        """Combine the threads' accumulators and let the first of them store the result."""
        kernel = self.kernel
        lanes = [kernel.axes[n] for n in chain.lanes]
        others = [
            x for n, x in kernel.axes.items() if n.startswith("thread") and n not in chain.lanes
        ]
        count = prod(int(x.extent) for x in lanes)
        lane, group = number_of(lanes), number_of(others)
        groups = prod(int(x.extent) for x in others)
        way = way_across(chain, kernel, self.warp)
        if way == "tree":
            accs = self.tree(chain, accs, lane, group, count, groups)
        else:
            self.shuffle(chain, accs, min(count, self.warp))
            if way == "warps":
                self.warps(chain, exprs, accs, lane, group, count // self.warp, groups)
        first = [Predicate(Affine.of(x.var), 1) for x in lanes]
        with self.inside(self.when([*outside, *first])):
            if chain.block.init:
                results = list(accs)
            else:
                old = [self.load(exprs, a) for a in chain.block.writes]
                results = self.combine(chain.block, old, accs)
            self.assign(chain.block, exprs, results)

    def exchange(self, chain: Chain, count: int) -> list[str]:
        """Arrays in shared memory through which accumulators go."""
        names = []
        for a in chain.block.writes:
            names.append(self.fresh("exchange"))
            kind = self.dialect.value_type(a.buffer.dtype)
            self.scratch.append(f"  {self.dialect.shared} {kind} {names[-1]}[{count}];")
        return names

    def tree(
        self, chain: Chain, accs: list[str], lane: Affine, group: Affine, count: int, groups: int
    ) -> list[str]:
        arrays = self.exchange(chain, count * groups)
        at = self.forms.text(group * count + lane)[0]
        number = self.forms.text(lane)[0]
        for array, acc in zip(arrays, accs, strict=True):
            self.emit(f"{array}[{at}] = {acc};")
        half = 1 << ((count - 1).bit_length() - 1)
        s = self.fresh("s")
        with self.inside(f"for (int {s} = {half}; {s} > 0; {s} >>= 1)"):
            self.emit(self.dialect.barrier(self.kernel.memories))
            short = "" if count == 2 * half else f" && {number} + {s} < {count}"
            with self.inside(f"if ({number} < {s}{short})"):
                mine = [f"{x}[{at}]" for x in arrays]
                values = self.combine(chain.block, mine, [f"{x}[{at} + {s}]" for x in arrays])
                self.update(mine, values, chain.block)
        self.taken.discard(s)
        return [f"{x}[{at}]" for x in arrays]

    def shuffle(self, chain: Chain, accs: list[str], width: int) -> None:
        s = self.fresh("s")
        with self.inside(f"for (int {s} = {width // 2}; {s} > 0; {s} >>= 1)"):
            others = []
            for a, acc in zip(chain.block.writes, accs, strict=True):
                others.append(self.fresh("other"))
                kind = self.dialect.value_type(a.buffer.dtype)
                self.emit(
                    f"const {kind} {others[-1]} = "
                    f"({kind})__shfl_down_sync(0xffffffffu, {acc}, {s}, {width});"
                )
            self.update(accs, self.combine(chain.block, accs, others), chain.block)
        self.taken.discard(s)

    def warps(
        self,
        chain: Chain,
        exprs: Exprs,
        accs: list[str],
        lane: Affine,
        group: Affine,
        count: int,
        groups: int,
    ) -> None:
        """Combine the results of `count` warps: the first of them takes these over."""
        assert chain.block.reducer is not None
        arrays = self.exchange(chain, count * groups)
        number = self.forms.text(lane)[0]
        base = self.forms.text(group * count)[0] if groups > 1 else ""
        plus = f"{base} + " if base else ""
        with self.inside(f"if ({number} % {self.warp} == 0)"):
            for array, acc in zip(arrays, accs, strict=True):
                self.emit(f"{array}[{plus}{number} / {self.warp}] = {acc};")
        self.emit(self.dialect.barrier(self.kernel.memories))
        for array, acc, e in zip(arrays, accs, chain.block.reducer.identity, strict=True):
            neutral = exprs.text(e)[0]
            self.emit(f"{acc} = {number} < {count} ? {array}[{plus}{number}] : {neutral};")
        self.shuffle(chain, accs, count)


MOST_VECTORS = 16
"""Rounds of a thread's loop over a row up to which they are written out: what it has loaded is
then in registers, and is not loaded again for what follows."""


def unrolled(loops: Sequence[For]) -> tuple[For, ...]:
    """`loops` over a thread's part of a row, unrolled where it is a short one."""
    rounds = prod(int(x.extent) for x in loops if x.kind == "serial")
    if rounds > MOST_VECTORS:
        return tuple(loops)
    return tuple(replace(x, kind="unrolled") if x.kind == "serial" else x for x in loops)


def number_of(axes: Sequence[For]) -> Affine:
    """One number for the values of several axes, the first fastest."""
    out, step = Affine(0), 1
    for x in axes:
        out = out + Affine.of(x.var, step)
        step *= int(x.extent)
    return out

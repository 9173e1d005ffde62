"""The compute DAG: what a program computes, seen as blocks and the buffers between them.

    dag = ComputeDAG(te.create_prim_func([A, B, C, out]))
    print(dag)              # A = PLACEHOLDER [1024, 1024] …
    dag.flop_ct             # 2148532224.0
    dag.info("matmul").needs_multi_level_tiling

Everything is read off the blocks' own axes, so that it holds however the loops around them stand.
The sketch rules ask this class and nothing else about the computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int, same_int, sometimes
from autosched.tir.canonical import block_index, workload_key
from autosched.tir.dag_text import dag_text
from autosched.tir.expr import Call, Expr, Slot, Var, walk
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Iter,
    PrimFunc,
    buffers_of,
    inputs_of,
    outputs_of,
    sites,
)
from autosched.tir.opaque import opaque_blocks
from autosched.tir.operations import OPS
from autosched.tir.scatter import deciding

if TYPE_CHECKING:
    from autosched.schedule.schedule import Schedule
    from autosched.schedule.trace import Trace

EXPENSIVE = frozenset(
    name
    for name, row in OPS.items()
    if row.cost == "math" and name not in ("floor", "ceil", "round", "trunc")
)
"""Operations worth more than a load and a store: a block that has one is not inlined everywhere."""


@dataclass(frozen=True, eq=False)
class ReadInfo:
    """How a block reads one of its inputs.

    `missing` are the block's axes longer than 1 along which the element read stays the same;
    `reuse`, the product of their extents, counts the uses of each element.
    `elementwise`: the indices are the block's spatial axes, in the order of its output.
    `injective`: each index is an axis plus a constant or a constant, and no axis comes twice, so
    that each point reads an element of its own (a transposition, a slice).
    `ordered`: injective, with the axes in the order of the output and none left out in between.
    """

    access: Access
    missing: tuple[Iter, ...]
    reuse: Int
    affine: bool
    elementwise: bool
    injective: bool
    ordered: bool


@dataclass(frozen=True, eq=False)
class BlockInfo:
    """What the sketch rules ask about one block.

    `is_injective`: no reduction, and every read is injective. `is_elementwise`: no reduction, and
    every read of more than one element is elementwise. `is_inlineable`: no reduction, no output,
    its only writer, so consumers may compute it themselves; `is_strictly_inlineable`: and that
    costs them nothing (no expensive operation, no branch, reads in order).
    `needs_multi_level_tiling`: two reads, or one of a reduction, are reused along a spatial axis.
    `flop`: see `ComputeDAG.flop_ct`. `points`: number of points of its axes.
    """

    block: Block
    reads: tuple[ReadInfo, ...]
    is_output: bool
    is_reduction: bool
    is_injective: bool
    is_elementwise: bool
    is_inlineable: bool
    is_strictly_inlineable: bool
    has_expensive_op: bool
    has_branch: bool
    needs_multi_level_tiling: bool
    points: Int

    @cached_property
    def flop(self) -> float:
        """Float operations. Raises Undecided where that depends on symbolic sizes."""
        return _block_flop(self.block)

    @property
    def name(self) -> str:
        """Name of the block."""
        return self.block.name

    @property
    def spatial(self) -> tuple[Iter, ...]:
        """Spatial axes."""
        return tuple(i for i in self.block.iters if i.kind == "spatial")

    @property
    def reduce(self) -> tuple[Iter, ...]:
        """Reduction axes."""
        return tuple(i for i in self.block.iters if i.kind == "reduce")

    @property
    def bytes_accessed(self) -> int:
        """Bytes of the buffers that it reads and writes, each counted once and in full."""
        accesses = (*self.block.reads, *self.block.writes)
        return sum(_bytes(b) for b in dict.fromkeys(a.buffer for a in accesses))


class ComputeDAG:
    """Blocks of `func` with their producers, consumers and analysis.

    `func` may be scheduled; block names must be unique. A list of tensors stands for the function
    that `te.create_prim_func` makes of it. Raises VerifyError if names are not unique.
    """

    def __init__(self, func: PrimFunc | Sequence[Any]) -> None:
        if isinstance(func, (list, tuple)):
            from autosched.te.prim_func import create_prim_func

            func = create_prim_func(func)
        if not isinstance(func, PrimFunc):
            raise ScheduleError(
                f"a ComputeDAG is of a function, or a list of tensors, found {shown(func)}; that "
                "of a workload key is SearchTask(workload_key=…).compute_dag"
            )
        for block in opaque_blocks(func):
            raise ScheduleError(
                f"{func.name} has the opaque block {block.name}, of which it is not known what it "
                "computes; there is no DAG and no space of such a function"
            )
        self.func = func
        self.blocks: tuple[Block, ...] = tuple(s.block for s in sites(func))
        self.index: dict[str, int] = block_index(func)
        """Block name -> canonical index."""
        self.inputs: tuple[Buffer, ...] = tuple(inputs_of(func))
        self.outputs: tuple[Buffer, ...] = tuple(outputs_of(func))
        self._by_name = {b.name: b for b in self.blocks}
        self._info: dict[str, BlockInfo] = {}

    def __str__(self) -> str:
        return dag_text(self.func)

    @cached_property
    def workload_key(self) -> str:
        """Key of the computation; see `autosched.tir.canonical`."""
        return workload_key(self.func)

    def apply_steps_from_state(
        self, state: Trace, layout_rewrite: object = None
    ) -> tuple[Schedule, tuple[Buffer, ...]]:
        """The schedule of a state, `inp.state` of a record, and the parameters of its function.
        `layout_rewrite` changes nothing: `at.build` rewrites layouts. Raises ScheduleError where
        it is the state of another computation."""
        schedule = state.apply(self.func)
        return schedule, schedule.func.params

    def print_python_code_from_state(self, state: Trace) -> str:
        """A function of Python that does the steps of a state to a fresh `Schedule`."""
        return state.as_python()

    def block(self, name: str | Block) -> Block:
        """The block of this name. Raises ScheduleError, listing the blocks there are."""
        if isinstance(name, Block):
            name = name.name
        found = self._by_name.get(name)
        if found is None:
            raise ScheduleError(
                f"no block named {name!r} in {self.func.name}; it has {', '.join(self._by_name)}"
            )
        return found

    def info(self, block: str | Block) -> BlockInfo:
        """Analysis of one block."""
        found = self.block(block)
        if found.name not in self._info:
            self._info[found.name] = self._analyse(found)
        return self._info[found.name]

    def producers(self, block: str | Block) -> tuple[Block, ...]:
        """Blocks that write what `block` reads, in the order of its reads."""
        mine = self.block(block)
        found = [w for a in mine.reads for w in self.writers(a.buffer) if w is not mine]
        return tuple(dict.fromkeys(found))

    def consumers(self, block: str | Block) -> tuple[Block, ...]:
        """Blocks that read what `block` writes, in program order."""
        mine = self.block(block)
        written = {a.buffer for a in mine.writes}
        return tuple(
            b for b in self.blocks if b is not mine and any(a.buffer in written for a in b.reads)
        )

    def writers(self, buffer: Buffer) -> tuple[Block, ...]:
        """Blocks that write `buffer`, in program order; none for an input."""
        return self._writers.get(buffer, ())

    @cached_property
    def _writers(self) -> dict[Buffer, tuple[Block, ...]]:
        out: dict[Buffer, tuple[Block, ...]] = {}
        for b in self.blocks:
            for buffer in dict.fromkeys(a.buffer for a in b.writes):
                out[buffer] = (*out.get(buffer, ()), b)
        return out

    def elementwise_consumer(self, block: str | Block) -> Block | None:
        """The only consumer of `block`, if all that it writes is read there elementwise alone.

        It then has the same spatial axes and can be computed tile by tile with `block`. None if
        `block` is an output: its result is needed in full anyhow, by someone else too.
        """
        mine = self.block(block)
        consumers = self.consumers(mine)
        if len(consumers) != 1 or self.info(mine).is_output:
            return None
        consumer = self.info(consumers[0])
        written = {a.buffer for a in mine.writes}
        reads = [r for r in consumer.reads if r.access.buffer in written]
        shape = [i.extent for i in consumer.spatial]
        same_axes = all(list(b.shape) == shape for b in written)
        if consumer.is_reduction or not same_axes or not all(r.elementwise for r in reads):
            return None
        return consumer.block

    def elementwise_chain(self, block: str | Block) -> tuple[Block, ...]:
        """The consumers that follow `block` one by one, each the only and elementwise one."""
        chain: list[Block] = []
        following = self.elementwise_consumer(block)
        while following is not None:
            chain.append(following)
            following = self.elementwise_consumer(following)
        return tuple(chain)

    def common_outer_axes(self, producer: str | Block, consumer: str | Block) -> int:
        """How many leading spatial axes of `producer` are axes of `consumer` in the same places.

        Along all paths from one to the other; those axes can be shared by computing both in the
        same loops (a row of softmax). 0 if `consumer` does not depend on `producer`.
        """
        first, last = self.block(producer), self.block(consumer)
        best: dict[str, int | None] = {}

        def through(block: Block) -> int | None:
            """Axes of `block` shared with `first`; None if it does not depend on it."""
            if block is first:
                return len(self.info(block).spatial)
            if block.name not in best:
                found: list[int] = []
                for r in self.info(block).reads:
                    for writer in self.writers(r.access.buffer):
                        shared = None if writer is block else through(writer)
                        if shared is not None:
                            found.append(min(shared, self._leading(writer, block, r.access)))
                best[block.name] = min(found) if found else None
            return best[block.name]

        return 0 if first is last else through(last) or 0

    def _leading(self, writer: Block, reader: Block, access: Access) -> int:
        """Leading indices that are the same spatial axis, of the same extent, on both sides."""
        target = next(a for a in writer.writes if a.buffer is access.buffer)
        pairs = zip(
            self.info(writer).spatial, target.indices, self.info(reader).spatial, access.indices,
            strict=False,
        )  # fmt: skip
        count = 0
        for w_axis, w_index, r_axis, r_index in pairs:
            same_place = _is_var(w_index, w_axis.var) and _is_var(r_index, r_axis.var)
            if not same_place or not same_int(w_axis.extent, r_axis.extent):
                break
            count += 1
        return count

    @cached_property
    def flop_ct(self) -> float:
        """Float operations of one run, in FLOP.

        An attribute "FLOP" of the function, or of a block, overrides the count. Otherwise each
        point of a block's axes counts 1 for each addition, subtraction, multiplication, division,
        comparison, minimum, maximum and call of a mathematical function, reducer included, so that
        a multiply-add is 2. Of a selection only the condition and the dearer side count. Casts,
        boolean and index arithmetic are free; arithmetic on integer *data* counts like floats.
        """
        stated = self.func.attr("FLOP")
        if stated is not None:
            return float(stated)
        return sum(self.info(b).flop for b in self.blocks)

    @cached_property
    def bytes_touched(self) -> int:
        """Bytes that any schedule must move: inputs and outputs, each once."""
        used = set(buffers_of(self.func))
        return sum(_bytes(b) for b in self.func.params if b in used)

    @property
    def arithmetic_intensity(self) -> float:
        """FLOP per byte touched."""
        return self.flop_ct / max(self.bytes_touched, 1)

    def _analyse(self, block: Block) -> BlockInfo:
        spatial = tuple(i for i in block.iters if i.kind == "spatial")
        reads = tuple(_read_info(block, a, spatial) for a in block.reads)
        reduces = block.reducer is not None
        output = any(a.buffer is b for a in block.writes for b in self.outputs)
        branch = any(
            isinstance(e, Call) and e.op in ("select", "if_then_else") for e in calls(block)
        )
        expensive = any(e.op in EXPENSIVE for e in calls(block))
        injective = not reduces and all(r.injective for r in reads)
        written_once = all(len(self.writers(a.buffer)) == 1 for a in block.writes)
        inlineable = not reduces and not output and written_once
        missing = sum(any(i.kind == "spatial" for i in r.missing) for r in reads)
        return BlockInfo(
            block=block,
            reads=reads,
            is_output=output,
            is_reduction=reduces,
            is_injective=injective,
            is_elementwise=not reduces
            and all(r.elementwise or same_int(_elements(r.access.buffer), 1) for r in reads),
            is_inlineable=inlineable,
            is_strictly_inlineable=inlineable
            and not branch
            and not expensive
            and all(r.ordered for r in reads),
            has_expensive_op=expensive,
            has_branch=branch,
            needs_multi_level_tiling=missing >= 2 or (missing >= 1 and reduces),
            points=_product(i.extent for i in block.iters),
        )


def _read_info(block: Block, access: Access, spatial: tuple[Iter, ...]) -> ReadInfo:
    used: set[Var] = set()
    for index in access.indices:
        used |= deciding(index, block.reads)
    missing = tuple(i for i in block.iters if sometimes(i.extent > 1) and i.var not in used)
    axes = [_axis_of(index) for index in access.indices]
    found = [v for v in axes if isinstance(v, Var)]
    injective = all(v is not None for v in axes) and len(found) == len(set(found))
    order = [n for v in found for n, i in enumerate(spatial) if i.var is v]
    return ReadInfo(
        access=access,
        missing=missing,
        reuse=_product(i.extent for i in missing),
        affine=all(isinstance(i, Affine) for i in access.indices),
        elementwise=len(access.indices) == len(spatial)
        and all(_is_var(x, i.var) for x, i in zip(access.indices, spatial, strict=True)),
        injective=injective,
        ordered=injective and order == sorted(order),
    )


def _is_var(index: Affine | Expr, var: Var) -> bool:
    return isinstance(index, Affine) and index.single_var() is var


def _axis_of(index: Affine | Expr) -> Var | int | None:
    """The axis of `axis + constant`, 0 for a constant, None for all else."""
    if not isinstance(index, Affine):
        return None
    if index.is_const():
        return 0
    return (index + -index.const).single_var()


def calls(block: Block) -> Iterator[Call]:
    """Every operation of a block, those of its reducer included."""
    combine = block.reducer.combine if block.reducer is not None else ()
    for root in (*block.body, *combine):
        for e in walk(root):
            if isinstance(e, Call):
                yield e


def _product(numbers: Iterable[Int]) -> Int:
    out: Int = 1
    for n in numbers:
        out = out * n
    return out


def _elements(b: Buffer) -> Int:
    return _product(b.shape)


def _bytes(b: Buffer) -> int:
    return int(_elements(b)) * dtypes.itemsize(b.dtype)


def _block_flop(block: Block) -> float:
    stated = block.annotation("FLOP")
    if stated is not None:
        return float(stated)
    per_point = sum(_flop(e)[0] for e in block.body)
    if block.reducer is not None:
        per_point += sum(
            _flop(e, data=set(block.reducer.lhs + block.reducer.rhs))[0]
            for e in block.reducer.combine
        )
    return float(per_point * int(_product(i.extent for i in block.iters)))


def _flop(e: Expr, data: frozenset[Var] | set[Var] = frozenset()) -> tuple[int, bool]:
    """(operations, whether the value depends on data); index arithmetic depends on axes alone."""
    if not isinstance(e, Call):
        return 0, isinstance(e, Slot) or dtypes.is_float(e.dtype) or e in data
    counts, on_data = zip(*(_flop(a, data) for a in e.args), strict=True)
    cost = OPS[e.op].cost
    if cost == "select":
        return counts[0] + max(counts[1:]), any(on_data)
    mine = int(cost in ("addsub", "mul", "div", "cmp", "math") and any(on_data))
    return sum(counts) + mine, any(on_data)

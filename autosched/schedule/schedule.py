"""`Schedule`: one function, transformed by primitives that are remembered as a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from autosched.checks import instance, number, shown
from autosched.errors import ScheduleError
from autosched.integers import plain
from autosched.schedule import annotate as _annotate
from autosched.schedule import (
    axes,
    cache,
    inline,
    kinds,
    lookback,
    loops,
    more,
    query,
    reduction,
    scan,
    state,
)
from autosched.schedule.compute import compute_at
from autosched.schedule.handles import (
    BlockRV,
    Factor,
    LoopRV,
    index_of,
    mapped,
    text_of,
)
from autosched.schedule.index_map import IndexMap, layout_of
from autosched.schedule.keywords import predecessors_keywords
from autosched.schedule.layout import Layout, accessed_buffer, transform_layout
from autosched.schedule.named import blocks_by_name
from autosched.schedule.pad_axis import pad_axis
from autosched.schedule.population import candidate
from autosched.schedule.recorder import Recorder
from autosched.schedule.replay import replay
from autosched.schedule.reverse import reverse_compute_at
from autosched.schedule.tensorize import intrin_name, tensorize
from autosched.schedule.trace import Trace
from autosched.tir.affine import Int
from autosched.tir.intrin import TensorIntrin
from autosched.tir.module import IRModule
from autosched.tir.nodes import Block, For, PrimFunc, path_to, site_of


@predecessors_keywords
@blocks_by_name
class Schedule(Recorder):
    """A function under transformation.

    `func` is the current program (immutable: keep it to go back), `mod` the module with it in
    place, `trace` the steps so far. Every primitive raises ScheduleError, and changes nothing,
    where it would change the result.

    Methods that take a block take its name as well, which stands for `get_block(name)`.
    Raises VerifyError for a function that breaks a rule of the loop IR.

    Args:
        target: a PrimFunc, or a module, of which `main` is scheduled.
        decisions: for each `Decision` passed as a factor its value: an int, or an int64 array of
            shape (N,), which makes this the schedule of N candidates at once.
        seed: of the choices that `sample_perfect_tile` and its like make.
    """

    get_output_blocks = more.get_output_blocks
    blockize = more.blockize
    add_unit_loop = more.add_unit_loop
    reorder_block_iter_var = more.reorder_block_iter_var
    merge = more.merge
    loop_partition = more.loop_partition
    decompose_padding = more.decompose_padding
    pad_einsum = more.pad_einsum
    pad_read = more.pad_read
    cache_index = more.cache_index
    cache_inplace = more.cache_inplace
    reindex = more.reindex
    reindex_cache_read = more.reindex_cache_read
    reindex_cache_write = more.reindex_cache_write
    rolling_buffer = more.rolling_buffer
    transform_block_layout = more.transform_block_layout
    auto_tensorize = more.auto_tensorize
    sample_perfect_tile = more.sample_perfect_tile
    sample_categorical = more.sample_categorical
    sample_compute_location = more.sample_compute_location
    seed = state.seed
    fork_seed = state.fork_seed
    work_on = state.work_on
    enter_postproc = state.enter_postproc
    annotate = state.annotate
    unannotate = state.unannotate

    def __init__(
        self,
        target: PrimFunc | IRModule,
        decisions: Mapping[str, Int] | None = None,
        seed: int | None = None,
    ) -> None:
        if isinstance(target, IRModule):
            super().__init__(target.main, decisions)
            self._name = next(n for n, f in target.functions.items() if f is self.func)
            self._mod = target
        elif isinstance(target, PrimFunc):
            super().__init__(target, decisions)
            self._name = target.name
            self._mod = IRModule.of(target)
        else:
            raise ScheduleError(
                f"a Schedule is made from a PrimFunc or an IRModule; found {type(target).__name__}"
            )
        self.random = state.random_of("the seed of a Schedule", seed)
        """What makes the choices of `sample_perfect_tile` and its like."""

    @property
    def mod(self) -> IRModule:
        """The module with the function as it is now."""
        return self._mod.with_function(self._name, self.func)

    def show(self) -> None:
        """Print the program as script, in colour on a terminal (of a population, candidate 0)."""
        candidate(self.func, 0).show()

    def copy(self) -> Schedule:
        """An independent schedule in the same state; the handles made so far work on both."""
        new = Schedule(self._mod, self.decisions)
        new.func, new._name = self.func, self._name
        new._steps, new._things = list(self._steps), dict(self._things)
        new.has_units = self.has_units
        new.random.setstate(self.random.getstate())
        return new

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Schedule:
        return self.copy()  # programs do not change, and handles keep their meaning

    @overload
    def get(self, rv: BlockRV | str) -> Block: ...
    @overload
    def get(self, rv: LoopRV) -> For: ...
    def get(self, rv: BlockRV | LoopRV | str) -> Block | For:
        """The block or loop that a handle stands for now. Raises ScheduleError if it is gone."""
        place = self._place(rv)
        if isinstance(place, str):
            return site_of(self.func, place).block
        return path_to(self.func, place)[-1]

    def replay(self, trace: Trace) -> None:
        """Do the steps of `trace` on top. Raises ScheduleError, naming the step that fails."""
        replay(self, trace)

    # Queries

    def get_block(self, name: str) -> BlockRV:
        """The block called `name`, or the nest that blockize gave this name; "root" is the whole
        function, of which `get_child_blocks`, `get_loops` and annotations can be asked."""
        name = text_of(name, "get_block: the name")
        if name != query.ROOT:
            self._place(name)
        (b,) = self._out("get_block", (name,), [name])
        return b

    def get_blocks(self) -> tuple[BlockRV, ...]:
        """All blocks, in program order."""
        return self._out("get_blocks", (), query.block_names(self.func))

    def get_loops(self, block: BlockRV | str) -> tuple[LoopRV, ...]:
        """The loops around a block, outermost first."""
        place = None if self._is_root(block) else self._place(block)
        if place is None:
            loops: tuple[For, ...] = ()
        elif isinstance(place, str):
            loops = site_of(self.func, place).loops
        else:
            loops = path_to(self.func, place)[:-1]
        return self._outs("get_loops", (block,), [x.var for x in loops])

    def get_child_blocks(self, place: BlockRV | LoopRV | str) -> tuple[BlockRV, ...]:
        """The blocks below a loop or in the root block, in program order (another block has
        none)."""
        if self._is_root(place):
            names = query.block_names(self.func)
        else:
            at = self._place(place)
            names = [] if isinstance(at, str) else query.child_blocks(self.func, at)
        return self._out("get_child_blocks", (place,), names)

    def get_producers(self, block: BlockRV | str) -> tuple[BlockRV, ...]:
        """The blocks that write what a block reads, in program order."""
        return self._out("get_producers", (block,), query.producers(self.func, self._block(block)))

    def get_consumers(self, block: BlockRV | str) -> tuple[BlockRV, ...]:
        """The blocks that read what a block writes, in program order."""
        return self._out("get_consumers", (block,), query.consumers(self.func, self._block(block)))

    # Loops

    def split(self, loop: LoopRV, factors: Sequence[Factor]) -> tuple[LoopRV, ...]:
        """Replace a loop by a nest, outermost first; see `loops.split`."""
        if not isinstance(factors, (tuple, list, np.ndarray)):
            raise ScheduleError(
                f"split: expected a list of factors, such as [None, {factors!r}], found {factors!r}"
            )
        self.func, out = loops.split(self.func, self._loop(loop), [self._int(f) for f in factors])
        return self._outs("split", (loop,), out, factors=tuple(factors))

    def split_axis(self, block: BlockRV | str, axis: int, factor: int) -> tuple[LoopRV, ...]:
        """Make two axes of one, with a loop each; see `axes.split_axis`."""
        axis = index_of(axis, "split_axis: axis")
        factor = index_of(factor, "split_axis: factor")
        self.func, *out = axes.split_axis(self.func, self._block(block), axis, factor)
        return self._outs("split_axis", (block, axis, factor), out)

    def reorder(self, *order: LoopRV) -> None:
        """Permute loops of one nest; see `loops.reorder`."""
        self.func = loops.reorder(self.func, *map(self._loop, order))
        self._record("reorder", order)

    def fuse(self, *chain: LoopRV) -> LoopRV:
        """Make one loop of directly nested ones; see `loops.fuse`."""
        self.func, fused = loops.fuse(self.func, *map(self._loop, chain))
        return self._outs("fuse", chain, [fused])[0]

    def parallel(self, loop: LoopRV) -> None:
        """Divide the iterations over threads; see `kinds.parallel`."""
        self.func = kinds.parallel(self.func, self._loop(loop))
        self._record("parallel", (loop,))

    def vectorize(self, loop: LoopRV) -> None:
        """Run the iterations as vector lanes; see `kinds.vectorize`."""
        self.func = kinds.vectorize(self.func, self._loop(loop))
        self._record("vectorize", (loop,))

    def unroll(self, loop: LoopRV) -> None:
        """Copy the body for each iteration; see `kinds.unroll`."""
        self.func = kinds.unroll(self.func, self._loop(loop))
        self._record("unroll", (loop,))

    def bind(self, loop: LoopRV, thread: str) -> None:
        """Bind to a GPU axis; see `kinds.bind`."""
        thread = text_of(thread, "bind: the thread axis")
        self.func = kinds.bind(self.func, self._loop(loop), thread)
        self._record("bind", (loop, thread))

    # Where blocks are computed

    def compute_at(self, block: BlockRV | str, loop: LoopRV) -> None:
        """Compute a producer inside a loop of its consumers; see `compute.compute_at`."""
        self.func = compute_at(self.func, self._block(block), self._loop(loop))
        self._record("compute_at", (block, loop))

    def reverse_compute_at(self, block: BlockRV | str, loop: LoopRV) -> None:
        """Compute a consumer inside a loop of its producers; see `reverse.reverse_compute_at`."""
        self.func = reverse_compute_at(self.func, self._block(block), self._loop(loop))
        self._record("reverse_compute_at", (block, loop))

    def compute_inline(self, block: BlockRV | str) -> None:
        """Put a producer's expression into its consumers; see `inline.compute_inline`."""
        self.func = inline.compute_inline(self.func, self._block(block))
        self._record("compute_inline", (block,))

    def reverse_compute_inline(self, block: BlockRV | str) -> None:
        """Put a consumer's expression into its producer; see `inline.reverse_compute_inline`."""
        self.func = inline.reverse_compute_inline(self.func, self._block(block))
        self._record("reverse_compute_inline", (block,))

    # Copies

    def cache_read(
        self,
        block: BlockRV | str,
        buffer: int | str,
        scope: str = "local",
        layout: Layout | IndexMap | None = None,
        consumers: Sequence[BlockRV | str] = (),
    ) -> BlockRV:
        """Read through a copy, maybe in a packed layout; see `cache.cache_read`."""
        name = self._block(block)
        buffer = (
            str(buffer) if isinstance(buffer, str) else index_of(buffer, "cache_read: the buffer")
        )
        scope = text_of(scope, "cache_read: scope")
        if not isinstance(consumers, (list, tuple)):
            raise ScheduleError(
                f"cache_read: consumers is {shown(consumers)}; expected a list of blocks"
            )
        if callable(layout):
            shape = cache.read_buffer(self.get(block), buffer, "cache_read").shape
            layout = layout_of(layout, shape, "cache_read")
        dims = None if layout is None else self._value(layout)
        others = [self._block(b) for b in consumers]
        self.func, name = cache.cache_read(self.func, name, buffer, scope, dims, others)
        recorded: dict[str, Any] = {"scope": scope}
        if layout is not None:
            recorded["layout"] = layout
        if consumers:
            recorded["consumers"] = tuple(consumers)
        (b,) = self._out("cache_read", (block, buffer), [name], **recorded)
        return b

    def cache_write(
        self,
        block: BlockRV | str,
        index: int | str | Sequence[int | str] = 0,
        scope: str = "local",
    ) -> BlockRV:
        """Write through a copy; see `cache.cache_write`. `index`: of the write, or its buffer; of
        several, a list."""
        numbers: int | tuple[int, ...]
        if isinstance(index, (list, tuple)):
            numbers = tuple(self._written(block, n, "cache_write") for n in index)
        else:
            numbers = self._written(block, index, "cache_write")
        scope = text_of(scope, "cache_write: scope")
        self.func, name = cache.cache_write(self.func, self._block(block), numbers, scope)
        (b,) = self._out("cache_write", (block, numbers), [name], scope=scope)
        return b

    def transform_layout(
        self,
        block: BlockRV | str,
        buffer: Sequence[str | int] | str,
        index_map: Layout | IndexMap,
        pad_value: float | None = None,
        parameters: bool = False,
    ) -> None:
        """Store an intermediate in another layout; see `layout.transform_layout`. A function of the
        indices is kept in the trace as the layout that it states."""
        what, buffer = "transform_layout", mapped(buffer, plain)
        if callable(index_map):
            shape = accessed_buffer(self.get(block), buffer, what).shape
            index_map = layout_of(index_map, shape, what)
        dims = self._value(index_map)
        if pad_value is not None:
            number("transform_layout: pad_value", pad_value, ScheduleError)
            pad_value = plain(pad_value)
        instance(f"{what}: parameters", parameters, bool, "True or False", ScheduleError)
        name = self._block(block)
        self.func = transform_layout(self.func, name, buffer, dims, pad_value, parameters)
        kept: dict[str, Any] = {} if pad_value is None else {"pad_value": pad_value}
        if parameters:
            kept["parameters"] = True
        self._record("transform_layout", (block, buffer, index_map), kept)

    def pad_axis(self, loop: LoopRV, multiple: int) -> tuple[BlockRV, ...]:
        """Let an axis run on to a multiple, over zeros; see `pad_axis.pad_axis`. Returns the blocks
        that copy what is read along it."""
        multiple = index_of(multiple, "pad_axis: multiple")
        self.func, names = pad_axis(self.func, self._loop(loop), multiple)
        return self._out("pad_axis", (loop, multiple), names)

    # Reductions

    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Make a reduction loop an axis of partial results; see `reduction.rfactor`."""
        factor_axis = index_of(factor_axis, "rfactor: factor_axis")
        self.func, name = reduction.rfactor(self.func, self._loop(loop), factor_axis)
        (b,) = self._out("rfactor", (loop,), [name], factor_axis=factor_axis)
        return b

    def decompose_reduction(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Initialise in a block of its own; see `reduction.decompose_reduction`."""
        self.func, name = reduction.decompose_reduction(
            self.func, self._block(block), self._loop(loop)
        )
        (b,) = self._out("decompose_reduction", (block, loop), [name])
        return b

    def parallel_scan(self, block: BlockRV | str, factor: Factor) -> tuple[BlockRV, BlockRV]:
        """Compute a recurrence that combines in chunks; see `scan.parallel_scan`. Returns the
        blocks that combine chunks and that carry from chunk to chunk."""
        steps = self._number(factor, "factor")
        self.func, *names = scan.parallel_scan(self.func, self._block(block), steps)
        total, carry = self._out("parallel_scan", (block, factor), names)
        return total, carry

    def single_pass_scan(
        self, block: BlockRV | str, rows: Factor, groups: Factor, columns: Factor
    ) -> tuple[LoopRV, ...]:
        """Compute a recurrence that combines in one pass over memory, on a GPU; see
        `lookback.single_pass_scan`. Returns its loops."""
        given = {"rows": rows, "groups": groups, "columns": columns}
        numbers = [self._number(value, name) for name, value in given.items()]
        self.func, made = lookback.single_pass_scan(self.func, self._block(block), *numbers)
        return self._outs("single_pass_scan", (block, rows, groups, columns), made)

    def tensorize(self, place: BlockRV | LoopRV | str, intrin: TensorIntrin | str) -> None:
        """Let an intrinsic, by name or as it is, do a loop nest; see `tensorize.tensorize`."""
        name = intrin_name(intrin, "tensorize")
        self.func = tensorize(self.func, self._place(place), name)
        self._record("tensorize", (place, name))

    # Facts

    def set_scope(self, block: BlockRV | str, index: int | str, scope: str) -> None:
        """Change where a written intermediate lives; see `annotate.set_scope`. `index`: of the
        write, or its buffer."""
        index = self._written(block, index, "set_scope")
        scope = text_of(scope, "set_scope: scope")
        self.func = _annotate.set_scope(self.func, self._block(block), index, scope)
        self._record("set_scope", (block, index, scope))

    def storage_align(
        self,
        block: BlockRV | str,
        buffer_index: int | str,
        axis: int,
        factor: Factor,
        offset: Factor = 0,
    ) -> None:
        """Choose the stride of a written intermediate; see `annotate.storage_align`.
        `buffer_index`: of the write, or its buffer."""
        numbers = self._number(factor, "factor"), self._number(offset, "offset")
        buffer_index = self._written(block, buffer_index, "storage_align")
        axis = index_of(axis, "storage_align: axis")
        self.func = _annotate.storage_align(
            self.func, self._block(block), buffer_index, axis, *numbers
        )
        self._record("storage_align", (block, buffer_index, axis, factor, offset))

    def double_buffer(self, block: BlockRV | str, copies: Factor = None) -> None:
        """Let what a block shares alternate between buffers; see `annotate.double_buffer`."""
        number = None if copies is None else self._number(copies, "copies")
        self.func = _annotate.double_buffer(self.func, self._block(block), number)
        self._record("double_buffer", (block,) if copies is None else (block, copies))

"""A model that is built for the sizes of its calls."""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autosched.checks import instance, unmasked
from autosched.errors import ArgumentError, AutoschedError
from autosched.graph.dynamic.families import LEAST, Family, Shapes, families
from autosched.graph.dynamic.lengths import Grid, Lengths
from autosched.graph.dynamic.padded import Cut, Padding, Reading
from autosched.graph.dynamic.returned import Returned, write_zeros
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Array
from autosched.graph.model import CompiledModel
from autosched.graph.onnx_import import OpenModel
from autosched.graph.onnx_import.scope import Origins
from autosched.tir.module import IRModule

logger = logging.getLogger(__name__)

REMEMBERED = 32
"""Sizes of the last exact builds, which new ones are compared with."""

TRIED = 2
"""Families that a call may be built for: each takes readings of the model, and some sizes move
together by chance."""

Compiled = Callable[[IRModule], CompiledModel]


@dataclass(frozen=True, eq=False)
class Bucket:
    """A model for the lengths of a family from the least of a grid up to its capacity."""

    model: CompiledModel
    module: IRModule
    family: Family
    grid: Grid
    cuts: tuple[Cut, ...]
    inputs: dict[int, Array] = field(default_factory=dict)
    """The padded inputs of the last call, by number: fresh pages take longer than the copy."""
    returned: Returned = field(default_factory=Returned)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serves(self, lengths: Lengths) -> bool:
        """Whether the lengths of the family may be these."""
        return all(
            low <= n <= high
            for low, n, high in zip(self.grid.least, lengths, self.grid.capacity, strict=True)
        )

    @cached_property
    def elements(self) -> int:
        """Of the inputs with their padding."""
        return sum(map(math.prod, self.family.shapes(self.grid.capacity)))

    def run(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The results, cut to the lengths."""
        lengths = self.family.lengths(tuple(a.shape for a in arrays))
        assert lengths is not None
        with self.lock:
            given = [self._padded(n, a) for n, a in enumerate(arrays)]
            results = self.model(*given, *map(np.asarray, lengths))
            return tuple(self._cut(*x, lengths) for x in zip(results, self.cuts, strict=True))

    def _cut(self, whole: Array, cut: Cut, lengths: Lengths) -> Array:
        """A result without its padding."""
        found = cut(whole, lengths)
        self.returned.add(whole, found, cut.zero)
        return found

    def __str__(self) -> str:
        pairs = zip(self.grid.least, self.grid.capacity, strict=True)
        return "lengths " + " and ".join(f"{low} to {high}" for low, high in pairs)

    def _padded(self, n: int, array: Array) -> Array:
        """Input n with zeros up to its shape at the capacity."""
        shape = self.model.inputs[n].shape
        assert shape is not None
        if array.shape == shape:
            return array
        whole = self.returned.whole(array, shape)
        if whole is not None:
            return whole
        kept = self.inputs.get(n)
        if kept is None or kept.dtype != array.dtype:
            self.inputs[n] = kept = np.zeros(shape, array.dtype)
        write_zeros(kept, array.shape)
        kept[tuple(slice(size) for size in array.shape)] = array
        return kept


class DynamicModel:
    """An ONNX model whose open sizes are those of each call.

    Sizes that are new are built when they come. Where a third call differs from two before by
    lengths only (another number of tokens, one more position in a cache, a batch), each of which
    has a third value, the model is built once for all lengths up to a capacity: inputs are padded
    with zeros, and what operators must not see of the padding is masked. A model that cannot be
    padded, such as one with a strided convolution along the length, is built for each length;
    `refused` says why.

    `graph.build_dynamic` makes one. A call raises Unsupported for what cannot be compiled, and
    ArgumentError for inputs that do not fit. Calls from several threads wait for each other while
    one builds.
    """

    def __init__(self, model: OpenModel, compiled: Compiled, kept: int) -> None:
        """`compiled` builds a module; `kept` builds of each kind are kept, those that were called
        last."""
        self.inputs, self.kept = model.inputs, kept
        self.refused: dict[tuple[Family, Lengths], str] = {}
        """Why no build is made for all lengths up to a capacity."""
        self._open, self._compiled = model, compiled
        self._exact: OrderedDict[Shapes, tuple[CompiledModel, IRModule]] = OrderedDict()
        self._buckets: OrderedDict[tuple[Family, Lengths], Bucket] = OrderedDict()
        self._seen: deque[Shapes] = deque(maxlen=REMEMBERED)
        self._lock = threading.RLock()

    def __call__(self, *inputs: Any) -> tuple[Array, ...]:
        """The outputs for these inputs, in order."""
        if len(inputs) != len(self.inputs):
            raise ArgumentError(
                f"the model takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), found "
                f"{len(inputs)}"
            )
        for name, x in zip(self.inputs, inputs, strict=True):
            unmasked(f"input {name}", x, ArgumentError)
        arrays = [np.asarray(x) for x in inputs]
        shapes = tuple(a.shape for a in arrays)
        with self._lock:
            model = self._model(shapes)
        return model(*arrays) if isinstance(model, CompiledModel) else model.run(arrays)

    def run(self, inputs: Mapping[str, Any]) -> tuple[Array, ...]:
        """The same, by names."""
        instance("inputs", inputs, Mapping, "arrays by the names of inputs", ArgumentError)
        if set(inputs) != set(self.inputs):
            raise ArgumentError(
                f"the model takes the inputs {', '.join(self.inputs)}; found "
                f"{', '.join(map(str, inputs)) or 'none'}"
            )
        return self(*(inputs[n] for n in self.inputs))

    @property
    def builds(self) -> tuple[str, ...]:
        """What is built, a line each, those that were called last at the end."""
        exact = [f"sizes {_text(self.inputs, s)}" for s in self._exact]
        return (*exact, *(
            f"{b} of {_text(self.inputs, b.family.shapes(b.grid.capacity))}"
            for b in self._buckets.values()
        ))  # fmt: skip

    @property
    def modules(self) -> tuple[IRModule, ...]:
        """What is built, in the order of `builds`: `graph.tune` takes them."""
        exact = (module for _, module in self._exact.values())
        return (*exact, *(b.module for b in self._buckets.values()))

    def _model(self, shapes: Shapes) -> CompiledModel | Bucket:
        if shapes in self._exact:
            self._exact.move_to_end(shapes)
            return self._exact[shapes][0]
        known = {b.family: b.family.lengths(shapes) for b in self._buckets.values()}
        fit = {f: lengths for f, lengths in known.items() if lengths is not None}
        serving = [
            (b.elements, key)
            for key, b in self._buckets.items()
            if b.family in fit and b.serves(fit[b.family])
        ]
        if serving:
            _, key = min(serving, key=lambda s: s[0])
            self._buckets.move_to_end(key)
            return self._buckets[key]
        longest = sorted(fit, key=lambda f: -f.count)
        for family in (*longest, *families(shapes, self._seen)[:TRIED]):
            made = self._bucket(family, shapes)
            if made is not None:
                return made
        module = self._open.module(self._named(shapes))
        model = self._compiled(module)
        self._exact[shapes] = model, module
        self._seen.append(shapes)
        while len(self._exact) > self.kept:
            self._exact.popitem(last=False)
        return model

    def _bucket(self, family: Family, shapes: Shapes) -> Bucket | None:
        """The build for all lengths around those of these shapes; None where the model cannot be
        padded."""
        lengths = family.lengths(shapes)
        ranges = None if lengths is None else family.ranges(lengths)
        if lengths is None or ranges is None:
            return None
        least, capacity = (tuple(r[n] for r in ranges) for n in (0, 1))
        key = family, capacity
        if key in self.refused or key in self._buckets:
            return None
        try:
            capacity, first = self._longest(lengths, capacity, family)
            if any(high - low < LEAST for low, high in zip(least, capacity, strict=True)):
                raise Unsupported(f"the model takes lengths up to {_listed(capacity)}")
            grid = Grid(capacity, least)
            readings = [first, *(self._read(p, family) for p in grid.points[1:])]
            function, cuts = Padding(grid, readings).function()
            module = IRModule({}, {"main": function})
            model = self._compiled(module)
        except AutoschedError as e:
            logger.info(
                "no build for all lengths up to %s: %s; each is built", _listed(capacity), e
            )
            self.refused[key] = str(e)
            return None
        made = Bucket(model, module, family, grid, cuts)
        self._buckets[key] = made
        while len(self._buckets) > self.kept:
            self._buckets.popitem(last=False)
        return made

    def _longest(
        self, lengths: Lengths, capacity: Lengths, family: Family
    ) -> tuple[Lengths, Reading]:
        """The model at the capacity; where it does not take that, as its positions end before, at
        the longest lengths from `lengths` on that it takes, one after the other."""
        try:
            return capacity, self._read(capacity, family)
        except Unsupported:
            found = self._read(lengths, family)
        for n, beyond in enumerate(capacity):
            low, high = lengths[n], beyond + 1
            while high - low > 1:
                middle = (low + high) // 2
                tried = (*lengths[:n], middle, *lengths[n + 1 :])
                try:
                    found, low = self._read(tried, family), middle
                except Unsupported:
                    high = middle
            lengths = (*lengths[:n], low, *lengths[n + 1 :])
        return lengths, found

    def _read(self, lengths: Lengths, family: Family) -> Reading:
        origins: Origins = {}
        module = self._open.module(self._named(family.shapes(lengths)), origins)
        main: Any = module.graphs["main"]
        return Reading.of(main, origins)

    def _named(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return dict(zip(self.inputs, shapes, strict=True))


def _listed(lengths: Lengths) -> str:
    return " and ".join(map(str, lengths))


def _text(names: Sequence[str], shapes: Shapes) -> str:
    found = [f"{n}={','.join(map(str, s))}" for n, s in zip(names, shapes, strict=True)]
    return " ".join(found[:4]) + (" ..." if len(found) > 4 else "")

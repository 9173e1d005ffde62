"""A model that is built for the sizes of its calls."""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autosched.checks import instance, unmasked
from autosched.errors import ArgumentError, AutoschedError
from autosched.graph.dynamic.families import LEAST, Family, Shapes, families
from autosched.graph.dynamic.lengths import Grid, Lengths
from autosched.graph.dynamic.padded import Cut, Padding, Reading
from autosched.graph.dynamic.returned import Returned, write_zeros
from autosched.graph.errors import Unsupported
from autosched.graph.executor import checked
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

MORE = 16
"""Times the elements that a build may compute before another is made."""
REFUSALS = 2
"""Ranges of lengths for which a model is not padded, before others of the same axes are not tried
any more; each that it is padded for adds one."""

Key = tuple[Family, Grid]
Compiled = Callable[[IRModule], CompiledModel]


@dataclass(frozen=True, eq=False)
class Bucket:
    """A model for the lengths of a family from the least of a grid up to its capacity."""

    model: CompiledModel
    module: IRModule
    family: Family
    asked: Grid
    """The range that was to be served."""
    grid: Grid
    """The part of it that the model takes."""
    coarse: bool
    """Whether it serves all lengths up to the capacity."""
    cuts: tuple[Cut, ...]
    inputs: dict[int, Array] = field(default_factory=dict)
    """The padded inputs of the last call, by number: fresh pages take longer than the copy."""
    returned: Returned = field(default_factory=Returned)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serves(self, lengths: Lengths | None) -> bool:
        """Whether the lengths of the family may be these."""
        return lengths is not None and all(
            low <= n <= high
            for low, n, high in zip(self.grid.least, lengths, self.grid.capacity, strict=True)
        )

    @functools.cached_property
    def elements(self) -> int:
        """Of the inputs with their padding."""
        return self.family.elements(self.grid.capacity)

    def suits(self, lengths: Lengths) -> bool:
        """Whether little more is computed than in the build for these lengths only."""
        own = self.family.grid(lengths) if self.coarse else None
        if own is None:
            return True
        return self.elements <= MORE * self.family.elements(own.capacity)

    def run(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The results, cut to the lengths. Raises ArgumentError, with the shapes without padding,
        for inputs of other dtypes."""
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
        by = f" times {self.family.unit}" if self.family.unit > 1 else ""
        return "lengths " + " and ".join(f"{low} to {high}{by}" for low, high in pairs)

    def _padded(self, n: int, array: Array) -> Array:
        """Input n with zeros up to its shape at the capacity."""
        param = self.model.inputs[n]
        shape = param.shape
        assert shape is not None
        if array.dtype.name != param.dtype:
            array = checked(param.name, array, array.shape, param.dtype)
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
    padded, such as one whose sizes are remainders of the length, is built for each length;
    `refused` says why.

    `graph.build_dynamic` makes one. A call raises Unsupported for what cannot be compiled, and
    ArgumentError for inputs that do not fit. Calls from several threads wait for each other while
    one builds.
    """

    def __init__(self, model: OpenModel, compiled: Compiled, kept: int) -> None:
        """`compiled` builds a module; `kept` builds of each kind are kept, those that were called
        last."""
        self.inputs, self.kept = model.inputs, kept
        self.refused: dict[Key, str] = {}
        """Why no build is made for ranges of lengths, those that were tried last."""
        self._open, self._compiled = model, compiled
        self._exact: OrderedDict[Shapes, tuple[CompiledModel, IRModule]] = OrderedDict()
        self._buckets: list[Bucket] = []
        """Those that were called last at the end."""
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
            for b in self._buckets
        ))  # fmt: skip

    @property
    def modules(self) -> tuple[IRModule, ...]:
        """What is built, in the order of `builds`: `graph.tune` takes them."""
        exact = (module for _, module in self._exact.values())
        return (*exact, *(b.module for b in self._buckets))

    def _model(self, shapes: Shapes) -> CompiledModel | Bucket:
        if shapes in self._exact:
            self._exact.move_to_end(shapes)
            return self._exact[shapes][0]
        known = {id(b.family): b.family for b in self._buckets}
        lengths = {key: family.lengths(shapes) for key, family in known.items()}
        fit = {key: found for key, found in lengths.items() if found is not None}
        serving = [b for b in self._buckets if b.serves(fit.get(id(b.family)))]
        bucket = min(serving, key=lambda b: b.elements, default=None)
        if bucket is not None and bucket.suits(fit[id(bucket.family)]):
            return self._called(bucket)
        longest = sorted((known[key] for key in fit), key=lambda f: -f.count)
        others = families(shapes, self._seen)[:TRIED] if bucket is None else ()
        refused: dict[Key, str] = {}
        for family in dict.fromkeys((*longest, *others)):
            made = self._bucket(family, shapes, refused)
            if made is None and (unit := self._unit(family, shapes)) > 1:
                made = self._bucket(family.in_units(shapes, unit), shapes, refused)
            if made is not None:
                return made
        if bucket is not None:
            self._refuse(refused)
            return self._called(bucket)
        module = self._open.module(self._named(shapes))
        self._refuse(refused)
        model = self._compiled(module)
        self._exact[shapes] = model, module
        self._seen.append(shapes)
        while len(self._exact) > self.kept:
            self._exact.popitem(last=False)
        return model

    def _called(self, bucket: Bucket) -> Bucket:
        self._buckets.remove(bucket)
        self._buckets.append(bucket)
        return bucket

    def _bucket(self, family: Family, shapes: Shapes, refused: dict[Key, str]) -> Bucket | None:
        """The build for all lengths around those of these shapes; None where the model cannot be
        padded, which `refused` says then."""
        lengths = family.lengths(shapes)
        if lengths is None:
            return None
        many = len(self._buckets) * family.count >= self.kept
        for coarse in (True, False) if many else (False,):
            # Coarse ranges hold more thresholds, for which a model may be refused.
            grid = family.grid(lengths, coarse)
            if grid is None or not self._may_make(family, grid):
                continue
            try:
                made = self._made(family, lengths, grid, coarse)
            except AutoschedError as e:
                refused[family, grid] = str(e).partition("\n")[0]
                continue
            self._buckets.append(made)
            del self._buckets[: -self.kept]
            return made
        return None

    def _unit(self, family: Family, shapes: Shapes) -> int:
        """The least number of elements by which the model takes longer lengths, or the most by
        which those that were seen differ where it takes each: remainders are the same then. 1
        where there is none."""
        lengths = family.lengths(shapes)
        if lengths is None or family.unit > 1 or not family.units():
            return 1
        for unit in (1, *family.units()):
            try:
                self._read(family, tuple(n + unit for n in lengths))
            except Unsupported:
                continue
            return unit if unit > 1 else family.units()[-1]
        return 1

    def _may_make(self, family: Family, grid: Grid) -> bool:
        """Whether a build may be made: not where one was made or refused, nor where those of other
        lengths of the same axes were refused."""
        key = family.axes, family.unit
        same = [b for b in self._buckets if (b.family.axes, b.family.unit) == key]
        if (family, grid) in self.refused or any(
            b.family == family and b.asked == grid for b in same
        ):
            return False
        refusals = sum((f.axes, f.unit) == key for f, _ in self.refused)
        return refusals < REFUSALS + len(same)

    def _refuse(self, refused: Mapping[Key, str]) -> None:
        """Notes what was refused for shapes that the model takes."""
        for (family, grid), why in refused.items():
            text = _listed(grid.capacity)
            logger.info("no build for all lengths up to %s: %s; each is built", text, why)
            self.refused[family, grid] = why
        while len(self.refused) > REMEMBERED:
            del self.refused[next(iter(self.refused))]

    def _made(self, family: Family, lengths: Lengths, asked: Grid, coarse: bool) -> Bucket:
        """The build for the part of a range around these lengths that the model takes. Raises
        Unsupported where it cannot be padded."""
        read = functools.cache(functools.partial(self._read, family))
        grid = Grid(
            _nearest(asked.capacity, lengths, read),
            _nearest(asked.least, lengths, read),
            unit=family.unit,
        )
        if any(high - low < LEAST for low, high in zip(grid.least, grid.capacity, strict=True)):
            raise Unsupported(
                f"the model takes lengths from {_listed(grid.least)} to {_listed(grid.capacity)}"
            )
        padding = Padding(grid, [read(p) for p in grid.points])
        function, cuts = padding.function()
        if padding.period > 1:  # two numbers of windows may be the same at these lengths by chance
            grid = replace(grid, period=padding.period)
            function, cuts = Padding(grid, [read(p) for p in grid.points]).function()
        module = IRModule({}, {"main": function})
        return Bucket(self._compiled(module), module, family, asked, grid, coarse, cuts)

    def _read(self, family: Family, lengths: Lengths) -> Reading:
        origins = Origins()
        module = self._open.module(self._named(family.shapes(lengths)), origins)
        main: Any = module.graphs["main"]
        return Reading.of(main, origins)

    def _named(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return dict(zip(self.inputs, shapes, strict=True))


def _nearest(bound: Lengths, lengths: Lengths, read: Callable[[Lengths], Reading]) -> Lengths:
    """A bound that the model takes: its positions may end before, or its windows be longer. Where
    it does not take that, the nearest to it from `lengths` on, one length after the other. Raises
    Unsupported where it does not take these."""
    try:
        read(bound)
        return bound
    except Unsupported:
        read(lengths)
    for n, end in enumerate(bound):
        way = 1 if end > lengths[n] else -1
        near, far = 0, abs(end - lengths[n]) + 1
        while far - near > 1:
            middle = (near + far) // 2
            try:
                read((*lengths[:n], lengths[n] + way * middle, *lengths[n + 1 :]))
                near = middle
            except Unsupported:
                far = middle
        lengths = (*lengths[:n], lengths[n] + way * near, *lengths[n + 1 :])
    return lengths


def _listed(lengths: Lengths) -> str:
    return " and ".join(map(str, lengths))


def _text(names: Sequence[str], shapes: Shapes) -> str:
    found = [f"{n}={','.join(map(str, s))}" for n, s in zip(names, shapes, strict=True)]
    return " ".join(found[:4]) + (" ..." if len(found) > 4 else "")

"""A model that is built for the sizes of its calls."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.checks import instance, unmasked
from autosched.errors import ArgumentError, AutoschedError
from autosched.graph.dynamic.padded import Ends, Padding, Reading
from autosched.graph.dynamic.returned import Returned, write_zeros
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Array
from autosched.graph.model import CompiledModel
from autosched.graph.onnx_import import OpenModel
from autosched.graph.onnx_import.scope import Origins
from autosched.tir.module import IRModule

logger = logging.getLogger(__name__)

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of the inputs, in order."""
Axes = tuple[tuple[int, int], ...]
"""(input, axis), in order."""

CAPACITIES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
"""Sizes that padded axes are given, the longest of a model's: each costs a build, and up to half
of what is computed is padding."""
EXACT = 2
"""Builds for sizes that differ in a length only, before one is made for all lengths."""
REMEMBERED = 64
"""Sizes of the last exact builds, which new ones are compared with."""
LEAST = 2
"""The least length that is padded: axes of one element may be broadcast."""


Compiled = Callable[[IRModule], CompiledModel]


@dataclass(frozen=True)
class Family:
    """Shapes that differ by a number that is added to the sizes of some axes. `more`: by how many
    elements each of these is longer than the shortest."""

    axes: Axes
    more: tuple[int, ...]
    others: Shapes
    """The shapes with 0 at these axes."""

    def shapes(self, length: int) -> Shapes:
        """Shapes whose shortest axis has `length` elements."""
        out = [list(s) for s in self.others]
        for (n, axis), more in zip(self.axes, self.more, strict=True):
            out[n][axis] = length + more
        return tuple(tuple(s) for s in out)

    def length(self, shapes: Shapes) -> int:
        """The size of the shortest axis."""
        return min(shapes[n][axis] for n, axis in self.axes)


def family_of(a: Shapes, b: Shapes) -> Family | None:
    """The family of two shapes; None where they differ otherwise."""
    axes: list[tuple[int, int]] = []
    steps = set()
    for n, (x, y) in enumerate(zip(a, b, strict=True)):
        if len(x) != len(y):
            return None
        for axis, (k, m) in enumerate(zip(x, y, strict=True)):
            if k != m:
                axes.append((n, axis))
                steps.add(k - m)
    if len(steps) != 1:
        return None
    shortest = min(a[n][axis] for n, axis in axes)
    others = [list(s) for s in a]
    for n, axis in axes:
        others[n][axis] = 0
    more = tuple(a[n][axis] - shortest for n, axis in axes)
    return Family(tuple(axes), more, tuple(tuple(s) for s in others))


@dataclass(frozen=True)
class Bucket:
    """A model for all lengths of a family from `least` to `capacity`."""

    model: CompiledModel
    module: IRModule
    family: Family
    least: int
    capacity: int
    ends: tuple[Ends, ...]
    inputs: dict[int, Array] = field(default_factory=dict)
    """The padded inputs of the last call, by number: fresh pages take longer than the copy."""
    returned: Returned = field(default_factory=Returned)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The results, cut to the length."""
        length = self.family.length(tuple(a.shape for a in arrays))
        with self.lock:
            given = [self._padded(n, a) for n, a in enumerate(arrays)]
            results = self.model(*given, np.asarray(length))
            return tuple(self._cut(*x, length) for x in zip(results, self.ends, strict=True))

    def _cut(self, whole: Array, ends: Ends, length: int) -> Array:
        """A result without its padding."""
        cut = whole[tuple(slice(None if e is None else length + e) for e in ends.ends)]
        self.returned.add(whole, cut, ends.zero)
        return cut

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

    Sizes that are new are built when they come. Where a third call differs from two before by a
    length only (another number of tokens, one more position in a cache), the model is built once
    for all lengths up to a capacity: inputs are padded with zeros, and what operators must not see
    of the padding is masked. A model that cannot be padded, such as one with a strided convolution
    along the length, is built for each length; `refused` says why.

    `graph.build_dynamic` makes one. A call raises Unsupported for what cannot be compiled, and
    ArgumentError for inputs that do not fit. Calls from several threads wait for each other while
    one builds.
    """

    def __init__(self, model: OpenModel, compiled: Compiled, kept: int) -> None:
        """`compiled` builds a module; `kept` builds of each kind are kept, those that were called
        last."""
        self.inputs, self.kept = model.inputs, kept
        self.refused: dict[tuple[Family, int], str] = {}
        """Why no build is made for all lengths up to a capacity."""
        self._open, self._compiled = model, compiled
        self._exact: OrderedDict[Shapes, tuple[CompiledModel, IRModule]] = OrderedDict()
        self._buckets: OrderedDict[tuple[Family, int], Bucket] = OrderedDict()
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
            f"lengths {b.least} to {b.capacity} of "
            f"{_text(self.inputs, b.family.shapes(b.capacity))}"
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
        for key, bucket in reversed(self._buckets.items()):
            at = bucket.family.length(shapes) if _fits(bucket.family, shapes) else 0
            if bucket.least <= at <= bucket.capacity:
                self._buckets.move_to_end(key)
                return bucket
        family = self._family(shapes)
        made = None if family is None else self._bucket(family, shapes)
        if made is not None:
            return made
        module = self._open.module(self._named(shapes))
        model = self._compiled(module)
        self._exact[shapes] = model, module
        self._seen.append(shapes)
        while len(self._exact) > self.kept:
            self._exact.popitem(last=False)
        return model

    def _family(self, shapes: Shapes) -> Family | None:
        """The family of sizes that two builds before belong to."""
        counts: dict[Family, int] = {}
        for other in self._seen:
            found = family_of(shapes, other) if len(other) == len(shapes) else None
            if found is not None:
                counts[found] = counts.get(found, 0) + 1
        common = [f for f, n in counts.items() if n >= EXACT]
        return max(common, key=lambda f: counts[f]) if common else None

    def _bucket(self, family: Family, shapes: Shapes) -> Bucket | None:
        """The build for all lengths around that of these shapes; None where the model cannot be
        padded."""
        length, more = family.length(shapes), max(family.more)
        sizes = [n for n in CAPACITIES if n >= length + more]
        if not sizes or length < LEAST:
            return None
        capacity = sizes[0] - more
        below = [n for n in CAPACITIES if n < sizes[0]]
        least = max(LEAST, below[-1] - more + 1) if below else LEAST
        key = family, capacity
        if capacity - least < LEAST or key in self.refused or key in self._buckets:
            return None
        try:
            first = self._longest(length, capacity, family)
            capacity = first.length
            if capacity - least < LEAST:
                raise Unsupported(f"the model takes lengths up to {capacity}")
            second, third = (self._read(n, family) for n in (capacity - 1, least))
            function, ends = Padding((first, second, third)).function()
            module = IRModule({}, {"main": function})
            model = self._compiled(module)
        except AutoschedError as e:
            logger.info("no build for all lengths up to %d: %s; each is built", capacity, e)
            self.refused[key] = str(e)
            return None
        made = Bucket(model, module, family, least, capacity, ends)
        self._buckets[key] = made
        while len(self._buckets) > self.kept:
            self._buckets.popitem(last=False)
        return made

    def _longest(self, length: int, capacity: int, family: Family) -> Reading:
        """The model at the capacity; where it does not take that, as its positions end before, at
        the longest length from `length` on that it takes."""
        try:
            return self._read(capacity, family)
        except Unsupported:
            found, beyond = self._read(length, family), capacity
        while beyond - found.length > 1:
            middle = (found.length + beyond) // 2
            try:
                found = self._read(middle, family)
            except Unsupported:
                beyond = middle
        return found

    def _read(self, length: int, family: Family) -> Reading:
        origins: Origins = {}
        module = self._open.module(self._named(family.shapes(length)), origins)
        main: Any = module.graphs["main"]
        return Reading.of(length, main, origins)

    def _named(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return dict(zip(self.inputs, shapes, strict=True))


def _fits(family: Family, shapes: Shapes) -> bool:
    if tuple(map(len, shapes)) != tuple(map(len, family.others)):
        return False
    return family.shapes(family.length(shapes)) == shapes


def _text(names: Sequence[str], shapes: Shapes) -> str:
    found = [f"{n}={','.join(map(str, s))}" for n, s in zip(names, shapes, strict=True)]
    return " ".join(found[:4]) + (" ..." if len(found) > 4 else "")

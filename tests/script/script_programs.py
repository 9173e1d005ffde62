"""Random programs of the loop IR, known as data: printed as scripts, and evaluated in plain Python.

The evaluation shares nothing with the project: it prints each program a second time, as Python over
dictionaries from indices to values, and executes that. It therefore also tells programs that are
wrong: those that leave a buffer, read what is not written, or depend on the order of their points.
Values are whole numbers that every dtype in use holds exactly; integers wrap around as theirs do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from program_exprs import INTS, SYMBOL, Buf, E, limits, load, walk, whole


@dataclass(frozen=True, eq=False)
class Loop:
    name: str
    extent: int


@dataclass(frozen=True, eq=False)
class Axis:
    """An axis of a block; `binding` is made of its loops."""

    name: str
    extent: int
    kind: str
    binding: E


@dataclass(frozen=True, eq=False)
class Store:
    buf: Buf
    at: tuple[E, ...]
    value: E

    def target(self) -> E:
        return load(self.buf, *self.at)


COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@dataclass(frozen=True, eq=False)
class Stage:
    """One loop nest around one block. `reducers` has one a store; "argmax" stands for both of a
    pair. `init`: whether the block initialises what it accumulates in."""

    name: str
    loops: tuple[Loop, ...]
    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]
    where: E | None = None
    reducers: tuple[str, ...] = ()
    init: bool = True

    def script(self) -> Iterator[str]:
        names = ", ".join(x.name for x in self.loops)
        extents = ", ".join(str(x.extent) for x in self.loops)
        pad = "    "
        if self.loops:
            yield f"{pad}for {names} in T.grid({extents}):"
            pad += "    "
        yield f'{pad}with T.block("{self.name}"):'
        pad += "    "
        for a in self.axes:
            kind = {"S": "spatial", "R": "reduce", "Q": "sequential"}[a.kind]
            yield f"{pad}{a.name} = T.axis.{kind}({a.extent}, {a.binding.script()})"
        if self.where is not None:
            yield f"{pad}T.where({self.where.script()})"
        if self.reducers and self.init:
            yield f"{pad}with T.init():"
            for store, neutral in zip(self.stores, self.identities(), strict=True):
                yield f"{pad}    {store.target().script()} = {_number(neutral, store.buf.dtype)}"
        if self.reducers == ("argmax",):
            at, top = self.stores
            yield f"{pad}old_at = {at.target().script()}"
            yield f"{pad}old = {top.target().script()}"
            yield f"{pad}new_at = {at.value.script()}"
            yield f"{pad}new = {top.value.script()}"
            yield f"{pad}first = old > new or old == new and old_at < new_at"
            yield f"{pad}{at.target().script()} = T.select(first, old_at, new_at)"
            yield f"{pad}{top.target().script()} = T.select(first, old, new)"
            return
        for n, store in enumerate(self.stores):
            target, value = store.target().script(), store.value.script()
            if self.reducers:
                op = COMBINE[self.reducers[n]]
                if op in ("max", "min"):
                    value = f"T.{op}({target}, {value})"
                else:
                    value = f"{target} {SYMBOL[op]} {value}"
            yield f"{pad}{target} = {value}"

    def scatters(self) -> bool:
        """Whether the element that a reduction writes depends on a reduction axis, or on data."""
        reduced = {a.name for a in self.axes if a.kind == "R"}
        return bool(self.reducers) and any(
            x.op == "load" or (x.op == "axis" and x.args[0] in reduced)
            for s in self.stores
            for e in s.at
            for x in walk(e)
        )

    def identities(self) -> list[Any]:
        """Neutral elements, one a store."""
        if self.reducers == ("argmax",):
            return [limits(self.stores[0].buf.dtype)[1], _least(self.stores[1].buf.dtype)]
        return [identity(r, s.buf.dtype) for r, s in zip(self.reducers, self.stores, strict=True)]

    def python(self) -> Iterator[str]:
        pad = "    "
        ordered = {
            x.args[0] for a in self.axes if a.kind != "S" for x in walk(a.binding) if x.op == "axis"
        }
        for x in self.loops:
            steps = f"range({x.extent})" if x.name in ordered else f"steps({x.extent})"
            yield f"{pad}for {x.name} in {steps}:"
            pad += "    "
        if self.where is not None:
            yield f"{pad}if not {self.where.python()}: continue"
        for a in self.axes:
            yield f"{pad}{a.name} = {a.binding.python()}"
            yield f"{pad}if not 0 <= {a.name} < {a.extent}: raise OutOfRange"
        keys = [
            f"({', '.join(x.python() for x in s.at)}{',' if s.at else ''})" for s in self.stores
        ]
        for n, (store, key) in enumerate(zip(self.stores, keys, strict=True)):
            yield f"{pad}k{n} = {key}"
            yield f"{pad}if k{n} not in {store.buf.name}: raise OutOfRange"
        if self.reducers and self.init:
            first = " and ".join(f"{a.name} == 0" for a in self.axes if a.kind == "R") or "True"
            yield f"{pad}if {first}:"
            for n, neutral in enumerate(self.identities()):
                text = neutral if isinstance(neutral, int) else f"float('{neutral}')"
                yield f"{pad}    {self.stores[n].buf.name}[k{n}] = {text}"
        for n, store in enumerate(self.stores):
            yield f"{pad}x{n} = {store.value.python()}"
        if self.reducers == ("argmax",):
            at, top = (f"{s.buf.name}[k{n}]" for n, s in enumerate(self.stores))
            yield f"{pad}if not ({top} > x1 or {top} == x1 and {at} < x0):"
            yield f"{pad}    {at}, {top} = x0, x1"
            return
        for n, store in enumerate(self.stores):
            value = f"x{n}"
            if self.reducers:
                old = E(
                    "axis", (f"{store.buf.name}[k{n}]",), store.buf.dtype, *limits(store.buf.dtype)
                )
                new = E("axis", (value,), store.buf.dtype, store.value.low, store.value.high)
                op = COMBINE[self.reducers[n]]
                value = E(op, (old, new), store.buf.dtype, 0, 0).python()
            yield f"{pad}{store.buf.name}[k{n}] = {value}"
            if not self.reducers:
                yield f"{pad}note({store.buf.name!r}, k{n}, x{n}, {self.name!r})"


def _least(dtype: str) -> Any:
    return limits(dtype)[0] if dtype in INTS else "-inf"


def identity(reducer: str, dtype: str) -> Any:
    if reducer in ("sum", "prod"):
        return 0 if reducer == "sum" else 1
    if reducer == "max":
        return _least(dtype)
    return limits(dtype)[1] if dtype in INTS else "inf"


def _least_input(dtype: str) -> Any:
    return np.dtype(dtype).type(0 if dtype == "uint8" else -3)


def _number(value: Any, dtype: str) -> str:
    return f'T.{dtype}("{value}")' if isinstance(value, str) else f"T.{dtype}({value})"


class OutOfRangeError(Exception):
    """An access outside its buffer."""


class DuplicateError(Exception):
    """Two points of one block write different values to one element."""


class _Nothing:
    """What stands where nothing has been written: any use but passing it on is a TypeError."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("not written")

    __hash__ = None  # type: ignore[assignment]


NOTHING = _Nothing()


@dataclass(frozen=True, eq=False)
class Program:
    """Parameters in order, intermediates, and the nests in order."""

    params: tuple[Buf, ...]
    inner: tuple[Buf, ...]
    stages: tuple[Stage, ...]
    kinds: tuple[str, ...] = ()

    def script(self) -> str:
        hints = ", ".join(
            f'{b.name}: T.Buffer(({"".join(f"{n}, " for n in b.shape)}), "{b.dtype}")'
            for b in self.params
        )
        lines = ["@T.prim_func", f"def main({hints}):"]
        for b in self.inner:
            shape = "".join(f"{n}, " for n in b.shape)
            lines.append(f'    {b.name} = T.alloc_buffer(({shape}), "{b.dtype}")')
        for s in self.stages:
            lines += s.script()
        return "\n".join(lines) + "\n"

    def outputs(self) -> list[Buf]:
        """Parameters that some stage writes."""
        written = {store.buf.name for s in self.stages for store in s.stores}
        return [b for b in self.params if b.name in written]

    @property
    def is_spoiled(self) -> bool:
        return any(k.startswith("spoiled") for k in self.kinds)

    def scatters(self) -> bool:
        """Whether a reduction moves its element."""
        return any(s.scatters() for s in self.stages)

    def arrays(self, seed: int) -> list[np.ndarray]:
        """Random inputs and poisoned outputs. Inputs that hold indices have extreme values too."""
        rng = np.random.default_rng(seed)
        outputs = self.outputs()
        out = []
        for b in self.params:
            if b in outputs:
                filler = limits(b.dtype)[1] if b.dtype in INTS else np.nan
                out.append(np.full(b.shape, filler, b.dtype))
            elif b.role == "index":
                least, most = limits(b.dtype)
                small = rng.integers(max(least, -9), 12, b.shape).astype(b.dtype)
                wide = rng.integers(least, most, b.shape, dtype=b.dtype, endpoint=True)
                out.append(np.where(rng.integers(0, 4, b.shape) == 0, wide, small))
            else:
                out.append(rng.integers(0, 5, b.shape).astype(b.dtype) + _least_input(b.dtype))
        return out

    def evaluate(self, arrays: Sequence[np.ndarray], backwards: bool = False) -> list[np.ndarray]:
        """The arrays after the program; loops of spatial axes alone run backwards if asked to.

        Raises OutOfRangeError, DuplicateError, and TypeError where a value is used that nothing has
        written. What is left unwritten keeps what it held.
        """
        memory: dict[str, dict[tuple[int, ...], Any]] = {}
        outputs = self.outputs()
        for b, a in zip(self.params, arrays, strict=True):
            places = itertools.product(*map(range, b.shape))
            values = itertools.repeat(NOTHING) if b in outputs else a.reshape(-1).tolist()
            memory[b.name] = dict(zip(places, values))  # noqa: B905
        for b in self.inner:
            memory[b.name] = dict.fromkeys(itertools.product(*map(range, b.shape)), NOTHING)
        seen: dict[tuple[str, str, tuple[int, ...]], Any] = {}

        def note(name: str, key: tuple[int, ...], value: Any, stage: str) -> None:
            if seen.setdefault((stage, name, key), value) != value:
                raise DuplicateError(f"{stage}: {name}{list(key)}")

        names: dict[str, Any] = {
            "OutOfRange": OutOfRangeError,
            "steps": (lambda n: range(n - 1, -1, -1)) if backwards else range,
            "note": note,
            "whole": whole,
        }
        exec(self.code(), names)
        try:
            names["main"](*memory.values())
        except KeyError as e:
            raise OutOfRangeError(str(e)) from e
        out = []
        for b, a in zip(self.params, arrays, strict=True):
            if b in outputs:
                flat = a.reshape(-1).tolist()
                found = memory[b.name].values()
                new = [y if x is NOTHING else x for x, y in zip(found, flat, strict=True)]
                a = np.array(new, b.dtype).reshape(b.shape)
            out.append(a)
        return out

    def code(self) -> Any:
        """The program as Python over dictionaries."""
        names = ", ".join(b.name for b in (*self.params, *self.inner))
        lines = [f"def main({names}):"]
        for s in self.stages:
            if not s.loops:
                body = list(replace(s, loops=(Loop("_", 1),)).python())
            else:
                body = list(s.python())
            lines += body
        return compile("\n".join(lines), "<program>", "exec")

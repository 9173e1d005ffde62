"""What a build produces: object code and what is needed to call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autosched.codegen.formula import Extent, evaluate
from autosched.tir.extern import Extern
from autosched.tir.nodes import PrimFunc, outputs_of


@dataclass(frozen=True)
class Param:
    """One argument of a kernel: a C-contiguous array. `written` marks outputs."""

    name: str
    shape: tuple[Any, ...]
    """An `Extent` a dimension: Python ints where constant."""
    dtype: str
    written: bool


def params_of(func: PrimFunc) -> tuple[Param, ...]:
    """The arguments of a kernel made from `func`, whose shapes are numbers."""
    written = {id(b) for b in outputs_of(func)}
    return tuple(
        Param(b.name, tuple(int(n) for n in b.shape), b.dtype, id(b) in written)
        for b in func.params
    )


@dataclass(frozen=True)
class SizeParam:
    """A symbolic size, which is `(shape[dim] of params[param] - offset) / scale`, exactly.

    `offset` is a formula of the sizes before this one.
    """

    name: str
    param: int
    dim: int
    scale: int = 1
    offset: Extent = 0


@dataclass(frozen=True)
class KernelInfo:
    """How to call `void entry(ptr args, ptr workspace, i32 threads)`.

    `args` points to 8-byte cells: one data pointer a parameter, in order, then one int64 a symbolic
    size. `workspace` is 64-byte aligned and at least `workspace_bytes + threads * thread_bytes`
    long; with sizes, these are formulas. `parallel` tells whether the code calls
    `autosched_parallel_for`. `name`: of the function that it was made from, where `entry` is not.
    `messages`: what may stop a call, each with a place for the index that was outside; after a call
    the first two int64 of the workspace are the number of one, from 1, or 0, and that index.
    `externs`: C functions that the code calls.
    """

    entry: str
    params: tuple[Param, ...]
    workspace_bytes: Any = 0
    thread_bytes: Any = 0
    parallel: bool = False
    sizes: tuple[SizeParam, ...] = ()
    name: str = ""
    messages: tuple[str, ...] = ()
    externs: tuple[Extern, ...] = ()

    @property
    def title(self) -> str:
        """What messages call it: the name of the function that it was made from."""
        return self.name or self.entry

    def at(self, sizes: Mapping[str, int]) -> KernelInfo:
        """The same kernel for given sizes: all numbers constant, `sizes` dropped."""
        return replace(
            self,
            params=tuple(
                replace(p, shape=tuple(evaluate(n, sizes) for n in p.shape)) for p in self.params
            ),
            workspace_bytes=evaluate(self.workspace_bytes, sizes),
            thread_bytes=evaluate(self.thread_bytes, sizes),
            sizes=(),
        )

    @property
    def needs_workspace(self) -> bool:
        """Whether there is any scratch memory."""
        return bool(self.workspace_bytes != 0 or self.thread_bytes != 0)

    def solve(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The sizes that arrays of these shapes have, by name; whether all shapes agree is not
        looked at. Raises ValueError for a size that is none, IndexError for a missing dimension.
        """
        found: dict[str, int] = {}
        for s in self.sizes:
            rest = shapes[s.param][s.dim] - evaluate(s.offset, found)
            if rest < s.scale or rest % s.scale:
                raise ValueError(f"{s.name} from {self.params[s.param].name}.shape[{s.dim}]")
            found[s.name] = rest // s.scale
        return found


@dataclass(frozen=True)
class Artifact:
    """An object file (relocatable, position independent) and its entry. Picklable.

    `prepare` holds, by the number of a parameter that takes a pre-transformed weight, the code that
    makes it: its parameters are the weight and the argument (see `lowering/layout_rewrite.py`).
    """

    code: bytes
    info: KernelInfo
    target: str
    prepare: tuple[tuple[int, Artifact], ...] = ()

    @property
    def given(self) -> tuple[Param, ...]:
        """The parameters with the weights as they are before they are prepared."""
        first = {n: artifact.info.params[0] for n, artifact in self.prepare}
        return tuple(first.get(n, p) for n, p in enumerate(self.info.params))

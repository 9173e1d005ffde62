"""Teams of threads in the interpreter: between two waits, one thread after the other, in any order.

If a wait is missing, some order of the threads gives another result than the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.llvm.phases import Waits, chain_of, has_parallel, units
from autosched.tir import interp
from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.nodes import Buffer, For, Node, PrimFunc, buffers_of, map_blocks, sites
from autosched.tir.simplify import substitute_loops

Array = npt.NDArray[Any]


class Interleaved:
    """Runs a lowered program whose teams have `threads` threads; `order` picks who goes first."""

    def __init__(
        self, func: PrimFunc, arrays: Sequence[Array], threads: int, order: np.random.Generator
    ) -> None:
        self.func, self.threads, self.order = func, threads, order
        memory = {id(b): a for b, a in zip(func.params, arrays, strict=True)}
        self.buffers: list[Buffer] = list(func.params)
        for b in buffers_of(func):
            if id(b) not in memory:
                shape = tuple(int(n) for n in b.shape)
                memory[id(b)] = np.full(shape, interp.poison(b.dtype), b.dtype)
                self.buffers.append(b)
        self.arrays = [memory[id(b)] for b in self.buffers]
        self.blocks = {id(s.block): s for s in sites(func)}
        self.pending: list[list[tuple[Node, ...]]] = [[] for _ in range(threads)]
        self.waits = 0

    def run(self) -> None:
        """Execute the program."""
        for node in self.func.body:
            if isinstance(node, For) and node.kind == "serial" and has_parallel(node):
                self.where = Waits(node, self.blocks)
                self._loop(node, {})
                self._wait()
            else:
                self._execute((node,))

    def _loop(self, loop: For, env: dict[Var, Affine]) -> None:
        for n in range(int(loop.extent)):
            inside = {**env, loop.var: Affine(n)}
            for unit in units(loop.body):
                first = unit[0]
                if isinstance(first, For) and first.kind != "parallel" and has_parallel(first):
                    self._loop(first, inside)
                    continue
                if unit in self.where:
                    self.waits += 1
                    self._wait()
                if isinstance(first, For) and first.kind == "parallel":
                    self._share(first, inside)
                else:
                    self.pending[0].append(_at(unit, inside))

    def _share(self, loop: For, env: dict[Var, Affine]) -> None:
        chain = chain_of(loop)
        total = prod(int(x.extent) for x in chain)
        for rank in range(self.threads):
            for flat in range(rank * total // self.threads, (rank + 1) * total // self.threads):
                inside, rest = dict(env), flat
                for x in reversed(chain):
                    inside[x.var] = Affine(rest % int(x.extent))
                    rest //= int(x.extent)
                self.pending[rank].append(_at(chain[-1].body, inside))

    def _wait(self) -> None:
        for rank in self.order.permutation(self.threads):
            for nodes in self.pending[rank]:
                self._execute(nodes)
            self.pending[rank] = []

    def _execute(self, nodes: tuple[Node, ...]) -> None:
        interp.run(replace(self.func, params=tuple(self.buffers), body=nodes), self.arrays)


def _at(nodes: Sequence[Node], values: dict[Var, Affine]) -> tuple[Node, ...]:
    return tuple(map_blocks(n, lambda b: substitute_loops(b, values)) for n in nodes)

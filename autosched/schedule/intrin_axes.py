"""Which loops of a block an intrinsic's are: what auto_tensorize tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from autosched.schedule.check import refuse
from autosched.tir.affine import Affine, Extents
from autosched.tir.expr import Var
from autosched.tir.intrin import TensorIntrin, operands
from autosched.tir.nodes import Access, Block, For, Site
from autosched.tir.printer import format_expr
from autosched.tir.reducers import known_name


@dataclass(frozen=True)
class _Role:
    """What a loop is to a block: the kind of its axis, and the operands that it moves through."""

    kind: str
    moves: frozenset[str]

    def __str__(self) -> str:
        return f"{self.kind}, moving through {', '.join(sorted(self.moves)) or 'nothing'}"


def ways(site: Site, intrin: TensorIntrin, what: str) -> Iterator[tuple[int, ...]]:
    """For each loop of the meaning the number of the loop of `site` that stands for it: the last
    one, and others where it is not taken. Raises ScheduleError, saying what lacks."""
    block, model = site.block, intrin.block
    result = model.writes[0].buffer.name
    theirs = {a.buffer.name: a for a in model.reads} | {result: model.writes[0]}
    wanted = _roles(model, theirs, intrin.loops, {})
    refusal, fits = "", False
    for reads in operands(intrin, block):
        mine = {name: block.reads[n] for name, n in reads.items()} | {result: block.writes[0]}
        roles = _roles(block, mine, site.loops, site.extents())
        fitting = [
            [n for n in reversed(range(len(roles))) if _fits(site.loops[n], roles[n], x, role)]
            for x, role in zip(intrin.loops, wanted, strict=True)
        ]
        lacking = next((n for n, found in enumerate(fitting) if not found), None)
        if lacking is None:
            fits = True
            yield from (way for way in product(*fitting) if len(set(way)) == len(way))
        else:
            refusal = refusal or _lacking(intrin.loops[lacking], wanted[lacking], site, roles)
    if not fits and not refusal:
        refuse(f"{what}: expected a block of {_value(model)}; found {_value(block)}", block)
    if not fits:
        refuse(f"{what}: {refusal}", block)


def _value(block: Block) -> str:
    """What a block computes, for a message."""
    reducer = "" if block.reducer is None else f"{known_name(block.reducer) or 'a reducer'} of "
    value = ", ".join(map(format_expr, block.body))
    types = ", ".join(a.buffer.dtype for a in (*block.reads, *block.writes))
    return f"{reducer}{value} (operands and results of {types})"


def _roles(
    block: Block, accesses: Mapping[str, Access], loops: Sequence[For], extents: Extents
) -> list[_Role | None]:
    """The roles of loops; None of one that is no axis by itself."""
    kinds = {
        form.single_var(): it.kind for it, form in zip(block.iters, block.bindings, strict=True)
    }
    moves: dict[Var, set[str]] = {x.var: set() for x in loops}
    for name, access in accesses.items():
        for index in access.indices:
            if isinstance(index, Affine):
                for v in index.substitute(block.values(), extents).variables():
                    if v in moves:
                        moves[v].add(name)
    return [_Role(kinds[x.var], frozenset(moves[x.var])) if x.var in kinds else None for x in loops]


def _fits(loop: For, role: _Role | None, model: For, wanted: _Role | None) -> bool:
    whole = isinstance(loop.extent, int) and loop.extent % int(model.extent) == 0
    return whole and loop.kind == "serial" and role is not None and role == wanted


def _lacking(model: For, wanted: _Role | None, site: Site, roles: Sequence[_Role | None]) -> str:
    have = "; ".join(
        f"{x.var.name} of {x.extent} is {role or 'no axis by itself'}"
        for x, role in zip(site.loops, roles, strict=True)
    )
    return (
        f"no loop stands for {model.var.name}: expected a serial one, {wanted}, whose extent is a "
        f"multiple of {model.extent} (pad_einsum makes it one); the loops are: {have}"
    )

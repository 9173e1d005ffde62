"""A loop nest replaced by a function that computes the same: the second form of tensorize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autosched.schedule.body import rewrite_block
from autosched.schedule.check import bare_axes, refuse
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import block_names, unique_name
from autosched.tir.affine import Affine, Extents, Int
from autosched.tir.expr import Expr, Slot, Var
from autosched.tir.intrin import Match
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Index,
    Iter,
    IterKind,
    Node,
    Predicate,
    PrimFunc,
    Site,
    replace_node,
    sites,
)


def implemented(func: PrimFunc, site: Site, found: Match, made: PrimFunc) -> PrimFunc:
    """`func` with the nest of `found` replaced by the body of `made`, over the elements that the
    nest accesses. Raises ScheduleError where the nest initialises, or stands at places that a block
    of `made` cannot."""
    return _Implementation(func, site, found, made).result()


@dataclass(frozen=True)
class _Operand:
    """What a parameter stands for: an access of the nest, as forms over loops, and the loop that
    moves along each dimension of the parameter."""

    buffer: Buffer
    forms: tuple[Affine, ...]
    loops: tuple[Var, ...]


class _Implementation:
    def __init__(self, func: PrimFunc, site: Site, found: Match, made: PrimFunc) -> None:
        self.func, self.site, self.found, self.made = func, site, found, made
        self.what = f"tensorize({site.block.name}) as {found.intrin.name}"
        block = site.block
        if block.reducer is not None and block.init:
            refuse(
                f"{self.what}: the block initialises what it accumulates in; decompose_reduction "
                "first",
                block,
            )
        self.inner = {x.var for x in found.loops}
        self.operands = self._operands()
        used = {v for o in self.operands.values() for f in o.forms for v in f.variables()}
        self.outer = [x for x in site.loops if x.var in used - self.inner]
        self.kinds = {x.var: self._kind(x.var) for x in self.outer}
        self.taken = block_names(func) - {block.name}
        self.private: dict[Buffer, Buffer] = {}

    def _operands(self) -> dict[int, _Operand]:
        """For each parameter (by id of the buffer of `made`) what it stands for."""
        intrin = self.found.intrin
        model = next(sites(intrin.meaning))
        mine = {m.var: x.var for m, x in zip(intrin.loops, self.found.loops, strict=True)}
        values, extents = self.site.block.values(), self.site.extents()
        out: dict[int, _Operand] = {}
        for theirs, stands in zip(intrin.meaning.params, self.made.params, strict=True):
            every = (*model.block.reads, *model.block.writes)
            access = next((a for a in every if a.buffer is theirs), None)
            if access is None:
                refuse(f"{self.what}: its meaning does not access {theirs.name}")
            axes = bare_axes(model.block, access)
            if axes is None:
                refuse(f"{self.what}: its meaning accesses {theirs.name} by more than axes")
            bound = [model.block.values()[v].single_var() for v in axes]
            loops = [mine[v] for v in bound if v is not None]
            if len(loops) != len(axes):
                refuse(f"{self.what}: the axes of its meaning are not loops by themselves")
            is_write = any(a.buffer is theirs for a in model.block.writes)
            actual = self.found.write if is_write else self.found.operands[theirs.name]
            forms = []
            for index in actual.indices:
                assert isinstance(index, Affine)
                forms.append(index.substitute(values, extents))
            out[id(stands)] = _Operand(actual.buffer, tuple(forms), tuple(loops))
        return out

    def _kind(self, loop: Var) -> IterKind:
        """The kind of the axes that a loop around the nest runs over."""
        block = self.site.block
        found = {
            it.kind for it, b in zip(block.iters, block.bindings, strict=True) if b.uses([loop])
        }
        if len(found) != 1:
            refuse(f"{self.what}: loop {loop.name} runs over axes of different kinds", block)
        return found.pop()

    def result(self) -> PrimFunc:
        body = tuple(self._node(node, {}) for node in self.made.body)
        changed = replace_node(self.func, self.found.loops[0], body)
        check_kinds(changed, self.func)
        return changed

    def _node(self, node: Node, loops: Mapping[Var, Var]) -> Node:
        if isinstance(node, Block):
            return self._block(node, loops)
        var = Var(node.var.name)
        body = tuple(self._node(child, {**loops, node.var: var}) for child in node.body)
        return For(var, node.extent, body, node.kind, node.thread, node.annotations)

    def _block(self, block: Block, loops: Mapping[Var, Var]) -> Block:
        """A block of the implementation, over its own axes and those of the loops around."""
        is_result = any(id(a.buffer) in self.operands for a in block.writes)
        if block.reducer is None and {a.buffer for a in block.reads} & {
            a.buffer for a in block.writes
        }:
            refuse(f"{self.what}: {block.name} reads what it writes and is no reduction", block)
        fresh = {it.var: Var(it.var.name) for it in block.iters}
        around = {x.var: Var(f"v{x.var.name}") for x in self.outer}
        extents: dict[Var, Int] = {fresh[it.var]: it.extent for it in block.iters}
        extents.update({around[x.var]: x.extent for x in self.outer})
        axes = {old: Affine.of(new) for old, new in fresh.items()}
        reads, writes, body = rewrite_block(block, axes, extents)
        iters = [Iter(fresh[it.var], it.extent, it.kind) for it in block.iters]
        iters += [
            Iter(around[x.var], x.extent, self.kinds[x.var] if is_result else "spatial")
            for x in self.outer
        ]
        renamed = {old: Affine.of(new) for old, new in loops.items()}
        bindings = [b.substitute(renamed) for b in block.bindings]
        bindings += [Affine.of(x.var) for x in self.outer]
        predicates = [Predicate(p.form.substitute(renamed), p.bound) for p in block.predicates]
        predicates += [p for p in self.site.block.predicates if not p.form.uses(self.inner)]
        name = self.site.block.name if is_result else f"{self.site.block.name}_{block.name}"
        name = unique_name(self.taken, name)
        self.taken.add(name)
        return replace(
            block,
            name=name,
            iters=tuple(iters),
            bindings=tuple(bindings),
            predicates=tuple(predicates),
            reads=tuple(self._access(a, around, extents) for a in reads),
            writes=tuple(self._access(a, around, extents) for a in writes),
            body=body,
        )

    def _access(self, access: Access, around: Mapping[Var, Var], extents: Extents) -> Access:
        operand = self.operands.get(id(access.buffer))
        outside = {v: Affine.of(axis) for v, axis in around.items()}
        if operand is None:
            own: tuple[Index, ...] = tuple(outside[x.var] for x in self.outer)
            return Access(self._own(access.buffer), (*own, *access.indices))
        values = dict(outside)
        for loop, index in zip(operand.loops, access.indices, strict=True):
            if not isinstance(index, Affine):
                assert isinstance(index, (Expr, Slot))
                refuse(f"{self.what}: an index of {access.buffer.name} is not affine")
            values[loop] = index
        return Access(operand.buffer, tuple(f.substitute(values, extents) for f in operand.forms))

    def _own(self, buffer: Buffer) -> Buffer:
        """The buffer of the program for an intermediate: one for each point of the loops around."""
        if buffer not in self.private:
            shape = (*(x.extent for x in self.outer), *buffer.shape)
            name = f"{self.site.block.name}_{buffer.name}"
            self.private[buffer] = replace(buffer, name=name, shape=shape, align=())
        return self.private[buffer]

"""Primitives on padding: decompose_padding, pad_einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.schedule.check import bare_axes, names, refuse
from autosched.schedule.conflicts import blocks_between, check_alone
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import (
    block_names,
    child_with,
    children,
    full,
    guards_of,
    insert,
    mirror,
    nest,
    unique_name,
)
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Call, Const, Expr, Slot, Var, const, walk
from autosched.tir.forms import read_form
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Iter,
    Predicate,
    PrimFunc,
    Site,
    replace_node,
    site_of,
    sites,
)
from autosched.tir.printer import format_expr
from autosched.tir.reducers import known_name

CONTRARY = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def decompose_padding(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, str]:
    """Write the padding in a block of its own, just before a loop; what is left is a copy of the
    inner part. (TVM decompose_padding.)

    Args:
        block: one that writes `if_then_else(condition, value, constant)`, its axes being the
            indices of what it writes.
        loop: a loop around the block.

    Returns the new program and the name of the block that writes the constant everywhere.

    Legality: the condition is one or several comparisons, joined by `and`, of sums of axes; no
    other block inside the loop accesses what is written.

    rewrite:
        for i in T.serial(10):                      for i in T.serial(10):
            with T.block("P"):                          with T.block("P_pad"):
                P[vi] = if_then_else(       ->              P[vi] = 0.0
                    1 <= vi and vi < 9,             for i in T.serial(10):
                    A[vi - 1], 0.0)                     with T.block("P"):
                                                            T.where(1 <= i and i < 9)
                                                            P[vi] = A[vi - 1]
    """
    what = f"decompose_padding({block})"
    site = site_of(func, block)
    old = site.block
    depth = next((n for n, x in enumerate(site.loops) if x.var is loop), None)
    if depth is None:
        refuse(f"{what}: loop {loop.name} is not around the block")
    value = old.body[0]
    is_choice = isinstance(value, Call) and value.op in ("if_then_else", "select")
    if len(old.body) != 1 or old.reducer is not None or not is_choice:
        refuse(
            f"{what}: expected a block that writes if_then_else(condition, value, constant)", old
        )
    assert isinstance(value, Call)
    condition, inner, padding = value.args
    if not isinstance(padding, Const):
        refuse(f"{what}: what is written outside of the condition is no constant", old)
    axes = bare_axes(old, old.writes[0])
    if axes is None or {it.var for it in old.iters} != set(axes):
        refuse(f"{what}: the axes are not the indices of what is written", old)
    if any(it.kind != "spatial" for it in old.iters):
        refuse(f"{what}: an axis is visited in order", old)
    bounds = comparisons(condition, what)
    check_alone(site, blocks_between(func, site, depth), what, readers=True)
    inside = [x.var for x in site.loops[depth:] if not any(b.uses([x.var]) for b in old.bindings)]
    if inside:
        refuse(f"{what}: loops {names(inside)} visit the same elements again", old)
    values, extents = old.values(), site.extents()
    predicates = [Predicate(f.substitute(values, extents), n) for f, n in bounds]
    copy = replace(old, body=(inner,), predicates=(*old.predicates, *predicates))
    copy = _without_unread(copy)
    fresh = {it.var: Var(it.var.name) for it in old.iters}
    name = unique_name(block_names(func), f"{block}_pad")
    fill = Block(
        name,
        tuple(replace(it, var=fresh[it.var]) for it in old.iters),
        (),
        (),
        (),
        (Access(old.writes[0].buffer, tuple(Affine.of(fresh[v]) for v in axes)),),
        (padding,),
    )
    changed = replace_node(func, old, (copy,))
    parent = site.loops[depth - 1].var if depth else None
    position = child_with(children(changed, parent), [copy])[0]
    node = mirror(site, depth, fill, {new: v for v, new in fresh.items()})
    result = insert(changed, parent, position, node)
    check_kinds(result, func)
    return result, name


def comparisons(condition: Expr, what: str, holds: bool = True) -> list[tuple[Affine, Int]]:
    """A condition (with `holds` False, its contrary) as `form < bound`, each of sums of axes."""
    if isinstance(condition, Call):
        op, args = condition.op, condition.args
        if op == "not":
            return comparisons(args[0], what, not holds)
        if op == ("and" if holds else "or"):
            return [x for part in args for x in comparisons(part, what, holds)]
        forms = [read_form(x) for x in args] if op in CONTRARY else []
        if forms and all(f is not None for f in forms):
            op = op if holds else CONTRARY[op]
            low, high = forms if op in ("lt", "le") else reversed(forms)
            assert low is not None
            assert high is not None
            form = low - high
            extra = 1 if op in ("le", "ge") else 0
            return [(form - form.const, extra - form.const)]
    text = format_expr(condition)
    raise ScheduleError(f"{what}: {text} is no comparison of sums of axes, nor several with `and`")


def _without_unread(block: Block) -> Block:
    """`block` without reads that only its condition had."""
    used = {x.index for e in block.body for x in walk(e) if isinstance(x, Slot)}
    for access in block.reads:
        for index in access.indices:
            if not isinstance(index, Affine):
                used |= {x.index for x in walk(index) if isinstance(x, Slot)}
    if len(used) == len(block.reads):
        return block
    raise ScheduleError(f"decompose_padding({block.name}): the condition reads elements")


def pad_einsum(func: PrimFunc, block: str, padding: Sequence[int]) -> tuple[PrimFunc, str]:
    """Compute a sum of products over axes rounded up, on copies of its inputs that are padded with
    zeros; what is not padding is copied to the output. (TVM pad_einsum.)

    Args:
        block: a sum whose every index is an axis by itself, in loops of its own, not split.
        padding: for each axis a number of which its extent becomes a multiple; 1 keeps it.

    Returns the new program and the name of the block that copies the result; the blocks that pad
    are named `A_pad`.

    Legality: the value is a product with a factor from each input, and a reduction axis that is
    padded indexes all of them, so that padding adds nothing; inputs are read once; extents are
    constants.

    rewrite: ([4, 4, 4]; of extents 5, 6, 7)
        with T.block("C"):              with T.block("A_pad"):
            C[vi, vj] += A[vi, vk]          A_pad[v0, v1] = if_then_else(..., A[v0, v1], 0.0)
              * B[vk, vj]           ->  with T.block("C"):
                                            C_pad[vi, vj] += A_pad[vi, vk] * B_pad[vk, vj]
                                        with T.block("C_crop"):
                                            C[v0, v1] = C_pad[v0, v1]
    """
    what = f"pad_einsum({block})"
    site = site_of(func, block)
    old = site.block
    _check_einsum(func, site, what)
    if len(padding) != len(old.iters) or any(p < 1 for p in padding):
        refuse(f"{what}: expected {len(old.iters)} numbers from 1 up; found {list(padding)}")
    grown: dict[Var, int] = {}
    for it, p in zip(old.iters, padding, strict=True):
        if not isinstance(it.extent, int):
            refuse(f"{what}: axis {it.var.name} has extent {it.extent}; expected a constant")
        grown[it.var] = -(-it.extent // p) * p
    extents = {it.var: int(it.extent) for it in old.iters}
    taken = block_names(func)
    before: list[Block] = []
    reads: list[Access] = []
    for access in old.reads:
        axes = bare_axes(old, access)
        assert axes is not None
        pad = _grown(access.buffer, axes, grown, taken)
        before.append(_padded_copy(access.buffer, pad, [extents[v] for v in axes]))
        reads.append(Access(pad, access.indices))
    (write,) = old.writes
    axes = bare_axes(old, write)
    assert axes is not None
    for it in old.iters:
        everywhere = all(it.var in (bare_axes(old, a) or ()) for a in old.reads)
        if it.kind == "reduce" and grown[it.var] != it.extent and not everywhere:
            refuse(
                f"{what}: axis {it.var.name} does not index every input, so that padding would be "
                "multiplied by elements, which may be infinite"
            )
    others = [x for x in _factors(old.body[0]) if not isinstance(x, Slot)]
    more = any(it.kind == "reduce" and grown[it.var] != it.extent for it in old.iters)
    if more and any(not isinstance(x, Const) or not math.isfinite(x.value) for x in others):
        refuse(
            f"{what}: a factor that is no element of an input may not be finite where there is "
            "padding, and 0 times it is not 0",
            old,
        )
    result = _grown(write.buffer, axes, grown, taken)
    name = unique_name(taken, f"{block}_crop")
    crop = _crop(write.buffer, result, name, [extents[v] for v in axes])
    update = replace(
        old,
        iters=tuple(replace(it, extent=grown[it.var]) for it in old.iters),
        bindings=(),
        reads=tuple(reads),
        writes=(Access(result, write.indices),),
    )
    nodes = [nest(b, full(b), (), {}) for b in (*before, update, crop)]
    changed = replace_node(func, site.loops[0], tuple(nodes))
    check_kinds(changed, func)
    return changed, crop.name


def _check_einsum(func: PrimFunc, site: Site, what: str) -> None:
    block = site.block
    factors = _factors(block.body[0])
    used = sorted(x.index for x in factors if isinstance(x, Slot))
    is_sum = block.reducer is not None and known_name(block.reducer) == "sum" and block.init
    if not is_sum or len(block.writes) != 1 or used != list(range(len(block.reads))):
        refuse(f"{what}: expected a sum of products with a factor from each input, once", block)
    if any(bare_axes(block, a) is None for a in (*block.reads, *block.writes)):
        refuse(f"{what}: an index is not an axis by itself", block)
    loops = [b.single_var() for b in block.bindings]
    if (
        any(v is None for v in loops)
        or len(set(loops)) != len(site.loops)
        or guards_of(site)
        or block.predicates
    ):
        refuse(f"{what}: each axis has one loop of its own, not split", block)
    if not site.loops or any(x.kind != "serial" or x.annotations for x in site.loops):
        refuse(f"{what}: the loops are plain and serial", block)
    if sum(site.loops[0] in s.loops for s in sites(func)) != 1:
        refuse(f"{what}: other blocks stand in its loops", block)


def _factors(e: Expr) -> list[Expr]:
    """The factors of a product; of an operand that is converted, what is."""
    if isinstance(e, Call) and e.op == "mul":
        return [x for arg in e.args for x in _factors(arg)]
    if isinstance(e, Call) and e.op == "cast":
        return _factors(e.args[0])
    return [e]


def _grown(old: Buffer, axes: Sequence[Var], grown: dict[Var, int], taken: set[str]) -> Buffer:
    name = unique_name(taken, f"{old.name}_pad")
    taken.add(name)
    return Buffer(name, tuple(grown[v] for v in axes), old.dtype)


def _padded_copy(old: Buffer, new: Buffer, extents: Sequence[int]) -> Block:
    """Copies the first elements of `old`, as many as are read, to `new`, with zeros beyond."""
    axes = [Var(f"v{n}") for n in range(len(new.shape))]
    value: Expr = Slot(0, old.dtype)
    conditions = [v < n for v, n, m in zip(axes, extents, new.shape, strict=True) if n != m]
    for c in reversed(conditions):
        value = Call("if_then_else", (c, value, const(0, old.dtype)), old.dtype)
    at = tuple(Affine.of(v) for v in axes)
    iters = tuple(Iter(v, n) for v, n in zip(axes, new.shape, strict=True))
    return Block(new.name, iters, (), (), (Access(old, at),), (Access(new, at),), (value,))


def _crop(old: Buffer, new: Buffer, name: str, extents: Sequence[int]) -> Block:
    """Copies the elements of `old` that were computed from `new`; the others are another's."""
    axes = [Var(f"v{n}") for n in range(len(old.shape))]
    at = tuple(Affine.of(v) for v in axes)
    iters = tuple(Iter(v, n) for v, n in zip(axes, extents, strict=True))
    value = (Slot(0, old.dtype),)
    return Block(name, iters, (), (), (Access(new, at),), (Access(old, at),), value)

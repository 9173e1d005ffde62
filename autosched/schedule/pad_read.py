"""The primitive that gives padding written inside an expression a stage of its own: pad_read."""

from __future__ import annotations

from dataclasses import replace

from autosched.schedule.cache import read_buffer, unused_name
from autosched.schedule.check import check_one_program, refuse
from autosched.schedule.compute import check_available
from autosched.schedule.kinds import check_kinds
from autosched.schedule.padding import comparisons
from autosched.schedule.place import full, insert, nest
from autosched.tir.affine import Affine, Int, always
from autosched.tir.expr import Call, Const, Expr, Slot, Var, call, const, rewrite, same, walk
from autosched.tir.nodes import Access, Block, Buffer, Iter, PrimFunc, Site, replace_node, site_of
from autosched.tir.verify_bounds import loop_facts

CHOICES = ("if_then_else", "select")


def pad_read(func: PrimFunc, block: str, buffer: int | str) -> tuple[PrimFunc, str]:
    """Let a block read, where it chooses between an element and a constant by the element's place,
    from a copy that holds the constants too. (TVM has none; it is the inverse of inlining padding.)

    Args:
        buffer: which read of the block, by number or by the buffer's name.

    Returns the new program and the name of the block that pads.

    Legality: the choice is `if_then_else(condition, value, constant)`, the value one of the element
    and constants alone; the condition is one or several comparisons, joined by `and`, of an index
    of the element (or a multiple) with a number, and keeps it inside the buffer; all that writes
    the buffer stands in nests before. A condition around a product pads nothing: where it does not
    hold, zero times an infinite factor would be added.

    rewrite:
                                            for i in T.serial(10):
                                                with T.block("A_pad"):
                                                    A_pad[v0] = if_then_else(1 <= v0
        with T.block("C"):                              and v0 < 9, A[v0 - 1], 0.0)
            C[vi] += if_then_else(      ->  with T.block("C"):
              1 <= vi + vk and vi + vk < 9,     C[vi] += A_pad[vi + vk] * W[vk]
              A[vi + vk - 1], 0.0) * W[vk]
    """
    what = f"pad_read({block})"
    site = site_of(func, block)
    old = site.block
    read = read_buffer(old, buffer, what)
    numbers = [n for n, a in enumerate(old.reads) if a.buffer is read]
    if isinstance(buffer, int):
        numbers = [buffer]
    found = next(((n, c) for n in numbers if (c := chosen(old, n)) is not None), None)
    if found is None:
        refuse(
            f"{what}: {read.name} is not read in if_then_else(condition, value, constant), the "
            "value being of its element alone",
            old,
        )
    number, choice = found
    parts = _as_choice(choice)
    assert parts is not None
    conditions, value, padding = _flat(parts)
    access = old.reads[number]
    ranges = _ranges(func, site, access, conditions, what)
    name = unused_name(func, f"{read.name}_pad")
    axes = tuple(Var(f"v{n}") for n in range(len(ranges)))
    shape = tuple(high - low + 1 for low, high, _, _ in ranges)
    pad = Buffer(name, shape, choice.dtype)
    copier = _copier(name, pad, axes, ranges, Access(read, access.indices), value, padding)
    at = []
    for index, (low, *_) in zip(access.indices, ranges, strict=True):
        assert isinstance(index, Affine)
        at.append(index - low)
    changed = replace_node(func, old, (_through(old, choice, Access(pad, tuple(at))),))
    top = site.loops[0] if site.loops else old
    here = next(n for n, node in enumerate(func.body) if node is top)
    check_available(changed, Site(copier, ()), None, here, what)
    result = insert(changed, None, here, nest(copier, full(copier), (), {}))
    check_kinds(result, func)
    return result, name


def chosen(block: Block, read: int) -> Call | None:
    """The outermost choice between a value of read number `read` alone and a constant."""
    for e in (x for body in block.body for x in walk(body)):
        choice = _as_choice(e)
        if choice is not None:
            leaves = [x for x in walk(_flat(choice)[1]) if isinstance(x, (Slot, Var))]
            if leaves and all(isinstance(x, Slot) and x.index == read for x in leaves):
                assert isinstance(e, Call)
                return e
    return None


def _as_choice(e: Expr) -> tuple[Expr, Expr, Const] | None:
    """(condition, value, constant) of a choice, whichever way round it is written."""
    if not isinstance(e, Call) or e.op not in CHOICES:
        return None
    condition, value, other = e.args
    if isinstance(other, Const):
        return condition, value, other
    if isinstance(value, Const):
        return Call("not", (condition,), "bool"), other, value
    return None


def _flat(choice: tuple[Expr, Expr, Const]) -> tuple[list[Expr], Expr, Const]:
    """The conditions of choices in each other, the value inside of all, and what they are else."""
    condition, value, padding = choice
    inner = _as_choice(value)
    if inner is None or not same(inner[2], padding):
        return [condition], value, padding
    conditions, value, _ = _flat(inner)
    return [condition, *conditions], value, padding


def _ranges(
    func: PrimFunc, site: Site, access: Access, conditions: list[Expr], what: str
) -> list[tuple[Int, Int, Int, Int]]:
    """For each index the least and largest that it reaches, and the least and largest for which
    the conditions hold, all inclusive."""
    block = site.block
    extents = {it.var: it.extent for it in block.iters}
    bounds = [b for c in conditions for b in comparisons(c, what)]
    out: list[tuple[Int, Int, Int, Int]] = []
    used: set[int] = set()
    for n, (index, size) in enumerate(zip(access.indices, access.buffer.shape, strict=True)):
        if not isinstance(index, Affine):
            refuse(f"{what}: an index of {access.buffer.name} is no sum of axes", block)
        mine = [(at, k, b) for at, (f, b) in enumerate(bounds) if (k := _multiple(f, index))]
        used |= {at for at, _, _ in mine}
        low, high = index.span(extents)
        numbers = (low, high, size, index.const, *(b for _, _, b in mine))
        if not all(isinstance(x, int) for x in numbers):
            if mine:
                refuse(f"{what}: sizes that are padded are constants", block)
            last = size - 1
            out.append((0, last, 0, last))
            continue
        least, most = low, high
        for _, k, bound in mine:  # k * (index - const) < bound
            if k > 0:
                most = min(most, index.const + (bound - 1) // k)
            else:
                least = max(least, index.const + -bound // -k + 1)
        if not mine and not (low >= 0 and high < size):
            # Something else keeps the index inside, and the copy takes all of it: a predicate, but
            # no condition on another index, which is gone then.
            check_one_program(func, what)
            facts = loop_facts(site)
            if not facts.inside(facts.linear(index), size):
                refuse(
                    f"{what}: index {n} of {access.buffer.name} reaches {low} to {high}, kept "
                    f"inside by a condition on another; expected one on it, or 0 to {size - 1}",
                    block,
                )
            low = least = 0
            high = most = size - 1
        if least < 0 or most >= size or least > most:
            refuse(
                f"{what}: the condition lets an index of {access.buffer.name} be {least} to {most}"
                f"; expected some of 0 to {size - 1}",
                block,
            )
        out.append((low, high, least, most))
    if len(used) < len(bounds):
        refuse(f"{what}: a condition is not on one index of {access.buffer.name}", block)
    return out


def _multiple(form: Affine, index: Affine) -> int:
    """The number that `index`, without its constant, is to be multiplied with to give `form`; 0
    where there is none."""
    moved = index - index.const
    for atom, c in form.terms:
        for other, d in moved.terms:
            if isinstance(c, int) and isinstance(d, int) and d and c % d == 0:
                k = c // d
                if Affine.of(atom, c).same(Affine.of(other, c)) and form.same(moved * k):
                    return k
    return 0


def _copier(
    name: str,
    pad: Buffer,
    axes: tuple[Var, ...],
    ranges: list[tuple[Int, Int, Int, Int]],
    source: Access,
    value: Expr,
    padding: Expr,
) -> Block:
    """The block that writes the padded copy: `value` of the element where the conditions hold."""
    conditions: list[Expr] = []
    at = []
    for v, (low, high, least, most) in zip(axes, ranges, strict=True):
        at.append(Affine.of(v) + low)
        # Numbers that are no ints are those of a dimension without conditions.
        if isinstance(least, int) and isinstance(low, int) and least > low:
            conditions.append(const(least - low) <= v)
        if isinstance(most, int) and isinstance(low, int) and always(most < high):
            conditions.append(v < most - low + 1)

    def element(e: Expr) -> Expr | None:
        return Slot(0, e.dtype) if isinstance(e, Slot) else None

    body = rewrite(value, element)
    if conditions:
        holds = conditions[0]
        for c in conditions[1:]:
            holds = call("and", holds, c)
        body = Call("if_then_else", (holds, body, padding), pad.dtype)
    iters = tuple(Iter(v, n) for v, n in zip(axes, pad.shape, strict=True))
    write = Access(pad, tuple(Affine.of(v) for v in axes))
    return Block(name, iters, (), (), (Access(source.buffer, tuple(at)),), (write,), (body,))


def _through(block: Block, choice: Call, access: Access) -> Block:
    """The block with its choices that are like `choice` made reads of the copy, and without reads
    that only they had."""
    reads = [*block.reads, access]

    def renewed(e: Expr) -> Expr | None:
        if isinstance(e, Call) and same(e, choice):
            return Slot(len(block.reads), choice.dtype)
        return None

    body = [rewrite(e, renewed) for e in block.body]
    accesses = (*reads, *block.writes)
    indices = [i for a in accesses for i in a.indices if isinstance(i, Expr)]
    used = {x.index for e in (*body, *indices) for x in walk(e) if isinstance(x, Slot)}
    kept = [n for n in range(len(reads)) if n in used]
    # The copy takes the place of what it was made of, so that reads keep the order they had.
    gone = [n for n in range(len(block.reads)) if n not in used]
    if gone:
        kept.sort(key=lambda n: gone[0] if n == len(block.reads) else n)
    place = {n: new for new, n in enumerate(kept)}

    def numbered(e: Expr) -> Expr | None:
        return Slot(place[e.index], e.dtype) if isinstance(e, Slot) else None

    def index(i: Affine | Expr) -> Affine | Expr:
        return i if isinstance(i, Affine) else rewrite(i, numbered)

    def renumbered(a: Access) -> Access:
        return replace(a, indices=tuple(index(i) for i in a.indices))

    return replace(
        block,
        reads=tuple(renumbered(reads[n]) for n in kept),
        writes=tuple(map(renumbered, block.writes)),
        body=tuple(rewrite(e, numbered) for e in body),
    )

"""Rules on the order of writes and reads, and on what is written in full. See `verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from autosched.tir.affine import Affine, Digit, Extents, same_int
from autosched.tir.expr import Call, Expr, Slot, Var
from autosched.tir.faults import READS, WRITES, Fault
from autosched.tir.in_order import in_order
from autosched.tir.linear import DigitKey, Key, Linear, without
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Index,
    PrimFunc,
    Site,
    kind_vars,
    sites,
)
from autosched.tir.numbers import specialize
from autosched.tir.printer import Names, format_access
from autosched.tir.prove import Facts
from autosched.tir.region import placements
from autosched.tir.verify_bounds import loop_facts
from autosched.tir.verify_races import homes_of


def order(func: PrimFunc) -> Iterator[Fault]:
    """Nothing is read before it is written, or written again after it was read; of what a block or
    one after it writes only elements of earlier steps of a sequential axis are read."""
    params = set(func.params)
    every = list(sites(func))
    homes = placements(func)
    writers: dict[Buffer, list[int]] = {}
    for place, site in enumerate(every):
        for b in dict.fromkeys(a.buffer for a in site.block.writes):
            writers.setdefault(b, []).append(place)
    for place, site in enumerate(every):
        block = site.block
        for read in block.reads:
            b = read.buffer
            private = homes.get(b, ())
            wrong = _read_fault(every, place, read, writers.get(b, []), b in params, private)
            if wrong is not None:
                yield wrong
                break
        if block.reducer is not None and not block.init:
            for b in dict.fromkeys(a.buffer for a in block.writes):
                if writers[b][0] >= place:
                    says = f"accumulates in {b.name}, which no block before it initialises"
                    yield Fault(block, f"block {block.name!r} {says}", WRITES)


def _read_fault(
    every: list[Site],
    place: int,
    read: Access,
    writing: list[int],
    is_param: bool,
    private: Sequence[For],
) -> Fault | None:
    """What is wrong with a read by the block at `place`, whose buffer is written at `writing`."""
    site = every[place]
    block, name = site.block, read.buffer.name
    reads = f"block {block.name!r} reads {name}"
    if not writing:
        return None if is_param else Fault(block, f"{reads}, which nothing writes", READS)
    for w in writing:
        writer = every[w]
        recurrent = any(it.kind == "sequential" for it in writer.block.iters)
        if (w < place or writer.block is block) and not recurrent:
            if w == place:
                only = "only a reduction or a sequential axis may accumulate in place"
                return Fault(block, f"{reads}, which it writes; {only}", READS)
            continue
        for write in writer.block.writes:
            if write.buffer is not read.buffer:
                continue
            if not in_order(writer, write, site, read, w < place, private):
                return _late(block, writer.block, read, writing[0] == w and not is_param)
    return None


def _late(block: Block, writer: Block, read: Access, is_first: bool) -> Fault:
    name = read.buffer.name
    reads = f"block {block.name!r} reads {name}"
    if any(it.kind == "sequential" for it in writer.iters) and (
        writer is block or any(it.kind == "sequential" for it in block.iters)
    ):
        index = format_access(read, Names(), block.reads)
        return Fault(
            block,
            f"block {block.name!r} reads {index}, which is not provably of an earlier step than "
            f"the one in which block {writer.name!r} writes it; a sequential axis reads steps "
            "before its own",
            READS,
        )
    if is_first:
        return Fault(block, f"{reads} before block {writer.name!r} writes it", READS)
    says = f"writes {name} after block {block.name!r} has read it"
    message = f"block {writer.name!r} {says}; give each result a buffer of its own"
    return Fault(writer, message, WRITES)


def reaches(func: PrimFunc) -> Iterator[Fault]:
    """An iteration of the loops in which an intermediate lives has written what it reads of it.

    A fault is certain: the reader runs at all its points, and one lies outside all that is written.
    """
    return at_instance(func, _reaches)


def at_instance(func: PrimFunc, rule: Callable[[PrimFunc], Iterator[Fault]]) -> Iterator[Fault]:
    """A rule whose faults are certain, of a program for all sizes checked at one of them."""
    if not func.sizes:
        yield from rule(func)
        return
    sizes = {v.name: 1009 + 4 * k for k, v in enumerate(func.sizes)}
    blocks = {s.block.name: s.block for s in sites(func)}
    where = ", ".join(f"{name} = {n}" for name, n in sizes.items())
    for fault in rule(specialize(func, sizes)):
        node = blocks[fault.node.name] if isinstance(fault.node, Block) else None
        yield Fault(node, f"{fault.message} (with {where})", fault.mark)


def _reaches(func: PrimFunc) -> Iterator[Fault]:
    params = set(func.params)
    every = list(sites(func))
    if all(a.buffer in params for site in every for a in site.block.reads):
        return
    homes = homes_of(func)
    writers = _Writers(every)
    for site in every:
        block = site.block
        # A copy may take along what nobody needs, and so nobody computes.
        if block.predicates or (_copies(block) and block.writes[0].buffer not in params):
            continue
        if all(a.buffer in params for a in block.reads):
            continue
        facts = writers.facts(site)
        for k in sorted({k for e in block.body for k in unguarded(e)}):
            access = block.reads[k]
            if access.buffer in params:
                continue
            fixed: set[Key] = {id(x.var) for x in homes[access.buffer]}
            for n, index in enumerate(access.indices):
                if not isinstance(index, Affine):
                    continue
                form = facts.linear(index)
                written = _written(writers, homes, access.buffer, n, form)
                if written is None or any(isinstance(key, DigitKey) for key in form.terms):
                    continue
                low, high = facts.span(without(form, fixed))
                if low < written[0] or high > written[1]:
                    where = " of one iteration" if fixed else ""
                    yield Fault(
                        block,
                        f"block {block.name!r} reads {access.buffer.name} at {low}..{high}{where} "
                        f"in dimension {n}, where {written[0]}..{written[1]} is written",
                        READS,
                    )
                    break
            else:
                yield from _left_out(writers, site, access, fixed)


def _copies(block: Block) -> bool:
    """Whether the block only passes elements on."""
    return block.reducer is None and all(isinstance(e, Slot) for e in block.body)


def _source(copy: Block, n: int, facts: Facts, written: Linear) -> Buffer | None:
    """What a copy of one buffer reads, if in dimension `n` it reads where it writes."""
    if len(copy.reads) != 1:
        return None
    (read,) = copy.reads
    index = read.indices[n] if n < len(read.indices) else None
    same = isinstance(index, Affine) and facts.linear(index) == written
    return read.buffer if same else None


def _left_out(writers: _Writers, site: Site, read: Access, fixed: set[Key]) -> Iterator[Fault]:
    """Whether one iteration of the `fixed` loops reads more elements than it writes."""
    b = read.buffer
    least = _fewest(site, writers.facts(site), read, fixed)
    most = sum(_most(other, access, fixed) for other, access in writers.of(b))
    if most < least:
        where = " in one iteration" if fixed else ""
        yield Fault(
            site.block,
            f"block {site.block.name!r} reads {least} elements of {b.name}{where}, of which only "
            f"{most} are written",
            READS,
        )


def _fewest(site: Site, facts: Facts, access: Access, fixed: set[Key]) -> int:
    """A number of elements that the access surely names: all its points are reached."""
    used = set(fixed)
    loops: set[Key] = {id(x.var) for x in site.loops}
    count = 1
    for index in access.indices:
        if not isinstance(index, Affine):
            continue
        terms = facts.linear(index).terms
        if not terms.keys() <= loops:
            continue
        # Variables that move an earlier dimension stand still here.
        moving = [x for x in site.loops if id(x.var) in terms and id(x.var) not in used]
        values, span = 1, 0
        for c, extent in sorted((abs(terms[id(x.var)]), int(x.extent)) for x in moving):
            if c > span:
                values *= extent
            elif values == span + 1:  # every value so far: runs that overlap
                values += c * (extent - 1)
            else:
                values += extent - 1
            span += c * (extent - 1)
        used |= {id(x.var) for x in moving}
        count *= values
    return count


def _most(site: Site, access: Access, fixed: set[Key]) -> int:
    """A number of elements that the access names at most."""
    block, extents = site.block, site.extents()
    still = {x.var for x in site.loops if id(x.var) in fixed}
    axes = block.values()
    moving: set[Var] = set()
    count = 1
    for n, index in zip(access.buffer.shape, access.indices, strict=True):
        if not isinstance(index, Affine):
            moving |= {x.var for x in site.loops} - still
            count *= int(n)
            continue
        form = index.substitute(axes, extents)
        moving |= set(form.variables()) - still
        rest = form.split([v for v in form.variables() if v not in still])[1]
        low, high = rest.span(extents)
        values = 1
        for atom, _ in rest.terms:
            first, last = Affine(0, ((atom, 1),)).span(extents)
            values *= int(last) - int(first) + 1
        count *= min(int(high) - int(low) + 1, values)
    return min(count, prod(int(x.extent) for x in site.loops if x.var in moving))


def unguarded(e: Expr) -> Iterator[int]:
    """Slots that are read whatever conditions hold."""
    if isinstance(e, Slot):
        yield e.index
    elif isinstance(e, Call):
        for a in e.args[:1] if e.op == "if_then_else" else e.args:
            yield from unguarded(a)


class _Writers:
    """Who writes which buffer, and what the loops around each tell."""

    def __init__(self, every: list[Site]) -> None:
        self._found: dict[Buffer, list[tuple[Site, Access]]] = {}
        self._facts: dict[int, Facts] = {}
        for site in every:
            for access in site.block.writes:
                self._found.setdefault(access.buffer, []).append((site, access))

    def of(self, buffer: Buffer) -> list[tuple[Site, Access]]:
        """The blocks that write `buffer`, with the access, in program order."""
        return self._found.get(buffer, [])

    def facts(self, site: Site) -> Facts:
        """`loop_facts`, made once."""
        found = self._facts.get(id(site))
        if found is None:
            found = self._facts[id(site)] = loop_facts(site)
        return found


def _written(
    writers: _Writers,
    homes: dict[Buffer, tuple[For, ...]],
    buffer: Buffer,
    n: int,
    form: Linear,
    through: tuple[Buffer, ...] = (),
) -> tuple[int, int] | None:
    """What all writers together may write of dimension `n`, from where the part of `form` is that
    the loops in which the buffer lives decide; None where that cannot be compared. A copy (but of
    what was copied `through`) writes no more than was written of what it reads."""
    fixed: set[Key] = {id(x.var) for x in homes[buffer]}
    start = {k: c for k, c in form.terms.items() if k in fixed}
    low, high = _FAR, -_FAR
    for site, access in writers.of(buffer):
        index = access.indices[n]
        if not isinstance(index, Affine):
            return None
        facts = writers.facts(site)
        theirs = facts.linear(index)
        if {k: c for k, c in theirs.terms.items() if k in fixed} != start:
            return None
        span = facts.span(without(theirs, fixed))
        if _copies(site.block) and not fixed:
            source = _source(site.block, n, facts, theirs)
            known = source is None or source in (buffer, *through) or homes[source]
            if source is not None and not known:
                found = _written(writers, homes, source, n, theirs, (*through, buffer))
                if found is not None and found[0] <= found[1]:  # else it is an input
                    span = max(span[0], found[0]), min(span[1], found[1])
        low, high = min(low, span[0]), max(high, span[1])
    return low, high


_FAR = 1 << 80


def combined(func: PrimFunc) -> Iterator[Fault]:
    """A reduction combines each of its points once: of the loops from its outermost reduction loop
    on, none leaves all axes as they are while it moves."""
    for site in sites(func):
        block = site.block
        if block.reducer is None:
            continue
        reduced = kind_vars(block, "reduce")
        first = next((n for n, x in enumerate(site.loops) if x.var in reduced), None)
        for loop in () if first is None else site.loops[first:]:
            if any(p.form.uses((loop.var,)) for p in block.predicates):
                continue
            if _repeats(loop, block):
                yield Fault(
                    block,
                    f"block {block.name!r} combines the same points in several iterations of the "
                    f"loop {loop.var.name!r}, which is inside its reduction; axes must tell all "
                    "iterations of such a loop apart",
                )


def _repeats(loop: For, block: Block) -> bool:
    """Whether all axes are the same in some two iterations of a loop, the others standing still."""
    values = 1
    for binding in block.bindings:
        for atom, _ in binding.terms:
            if atom is loop.var:
                return False
            if isinstance(atom, Digit) and atom.base.uses((loop.var,)):
                if not isinstance(loop.extent, int) or atom.base.single_var() is not loop.var:
                    return False
                low, high = Affine(0, ((atom, 1),)).span({loop.var: loop.extent})
                if not isinstance(low, int) or not isinstance(high, int):
                    return False
                values *= high - low + 1
    return not same_int(loop.extent, values) and (
        values == 1 or (isinstance(loop.extent, int) and values < loop.extent)
    )


def outputs(func: PrimFunc) -> Iterator[Fault]:
    """Some parameter is written, and no element of one is provably left out."""
    return at_instance(func, _outputs)


def _outputs(func: PrimFunc) -> Iterator[Fault]:
    reach: dict[Buffer, list[tuple[int, int]]] = {}
    points: dict[Buffer, int] = {}
    last: dict[Buffer, Block] = {}
    for site in sites(func):
        facts = loop_facts(site) if site.block.predicates else None
        values, extents = site.block.values(), site.extents()
        count = prod(int(loop.extent) for loop in site.loops)
        for access in site.block.writes:
            b = access.buffer
            spans = [
                _span(i, int(n), values, extents, facts)
                for i, n in zip(access.indices, b.shape, strict=True)
            ]
            if b in reach:
                spans = [
                    (min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(reach[b], spans, strict=True)
                ]
            reach[b] = spans
            points[b] = points.get(b, 0) + count
            last[b] = site.block
    written = [b for b in func.params if b in reach]
    if not written:
        yield Fault(None, f"{func.name} writes none of its parameters, so it computes nothing")
    for b in written:
        for n, ((low, high), size) in enumerate(zip(reach[b], b.shape, strict=True)):
            if low > 0 or high < size - 1:
                yield Fault(
                    last[b],
                    f"output {b.name} is written at {max(low, 0)}..{high} of dimension {n}, "
                    f"which has {size} elements",
                    WRITES,
                )
                break
        else:
            elements = prod(int(n) for n in b.shape)
            if points[b] < elements:
                yield Fault(
                    last[b],
                    f"output {b.name} has {elements} elements and only {points[b]} are written",
                    WRITES,
                )


def _span(
    index: Index, size: int, values: dict[Var, Affine], extents: Extents, facts: Facts | None
) -> tuple[int, int]:
    if not isinstance(index, Affine):
        return 0, size - 1
    if facts is not None:
        return facts.span(facts.linear(index))
    low, high = index.substitute(values, extents).span(extents)
    return int(low), int(high)

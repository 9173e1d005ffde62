"""Where the threads of a block wait for each other.

Two accesses of one element by different threads, one of them a write, are separated by a barrier.
Barriers stand between the statements of loop bodies, outside of every predicate, so all threads
come to them; each as late as it can, before the first statement that meets one since the last
barrier, and as far outside as it can. A conflict of an iteration with the next needs one barrier in
the loop's body: of its places the one is taken that leaves fewest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.codegen.gpu.kernel import THREADS, Kernel
from autosched.codegen.gpu.reduce import Chain, chain_at, chains_of, lanes_of, way_across
from autosched.codegen.gpu.touch import meet
from autosched.errors import CodegenError
from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, Buffer, For, Node, Predicate, Site
from autosched.tir.touch import Touch, touches_of

_Still = tuple[Var, ...]


@dataclass(frozen=True, eq=False)
class _Flow:
    """What a part of a kernel touches before its first barrier (`entry`) and after its last
    (`exit`); without a barrier both are everything."""

    entry: tuple[Touch, ...] = ()
    exit: tuple[Touch, ...] = ()
    barrier: bool = False


def place_barriers(kernel: Kernel, warp: int) -> Kernel:
    """`kernel` with its barriers. `warp`: how many threads exchange values without any."""
    placing = _Barriers(kernel, warp)
    placing.sequence(kernel.body, (), tuple(kernel.axes.values()))
    # A barrier ends what is pending in every memory, whichever was the reason for it.
    memories = _memories(kernel).union(*placing.found.values())
    return replace(kernel, barriers=dict.fromkeys(placing.found, memories), memories=memories)


def _memories(kernel: Kernel) -> frozenset[str]:
    """Those through which threads may meet: shared memory, and global memory where the kernel
    touches again what it writes."""
    own = {*kernel.shared, *kernel.local}
    touches = [t for s in kernel.sites() for t in touches_of(s) if t.buffer not in own]
    again = any(
        w.written and any(t.buffer is w.buffer and t is not w for t in touches) for w in touches
    )
    across = any(chain.lanes for chain in chains_of(kernel))
    return frozenset(
        m for m, used in (("shared", kernel.shared or across), ("global", again)) if used
    )


class _Barriers:
    def __init__(self, kernel: Kernel, warp: int) -> None:
        self.kernel, self.warp = kernel, warp
        self.threads = [x for n, x in kernel.axes.items() if n in THREADS]
        self.blocks = tuple(x.var for n, x in kernel.axes.items() if n not in THREADS)
        self.private = set(kernel.local)
        self.found: dict[int, frozenset[str]] = {}
        self.starts: set[int] = set()
        """First statements of loops whose body begins with a barrier for the next iteration."""
        self.known: dict[tuple[int, int, _Still], bool] = {}
        self.flows: dict[int, _Flow] = {}
        self.later: dict[tuple[int, int], Touch] = {}

    # Conflicts

    def conflicts(
        self, first: Sequence[Touch], second: Sequence[Touch], still: _Still
    ) -> frozenset[str]:
        """The memories through which a thread in `first` and another in `second` meet, while the
        loops `still` stand still."""
        out = set()
        for a in first:
            for b in second:
                if a.buffer is b.buffer and (a.written or b.written) and self.meets(a, b, still):
                    out.add(a.buffer.scope)
        return frozenset(out)

    def meets(self, a: Touch, b: Touch, still: _Still) -> bool:
        key = (id(a), id(b), still)
        if key not in self.known:
            self.known[key] = meet(a, b, (*self.blocks, *still), self.threads)[0]
        return self.known[key]

    def after(self, touch: Touch, loop: For) -> Touch:
        """The same access one iteration of `loop` later."""
        key = (id(touch), id(loop))
        if key not in self.later:
            self.later[key] = touch.shifted(loop)
        return self.later[key]

    # Flow

    def sequence(self, nodes: Sequence[Node], still: _Still, around: tuple[For, ...]) -> _Flow:
        """Barriers between `nodes`, which run one after the other."""
        flows = [self.node(x, still, around) for x in nodes]
        entry: tuple[Touch, ...] = ()
        pending: tuple[Touch, ...] = ()
        closed = False
        for node, flow in zip(nodes, flows, strict=True):
            memories = self.conflicts(pending, flow.entry, still)
            if memories:
                self.before(node, memories)
                pending, closed = (), True
            if not closed:
                entry += flow.entry
            pending = flow.exit if flow.barrier else pending + flow.exit
            closed = closed or flow.barrier
        return _Flow(entry, pending, closed)

    def before(self, node: Node, memories: frozenset[str]) -> None:
        """A barrier before `node`: that of its loop's body, where it begins with one."""
        first = id(node.body[0]) if isinstance(node, For) else 0
        if first in self.starts:
            self.found[first] |= memories
        else:
            self.found[id(node)] = memories

    def node(self, node: Node, still: _Still, around: tuple[For, ...]) -> _Flow:
        """The flow of one node, whose own barriers are placed when it is first asked for."""
        if id(node) not in self.flows:
            self.flows[id(node)] = self.placed(node, still, around)
        return self.flows[id(node)]

    def placed(self, node: Node, still: _Still, around: tuple[For, ...]) -> _Flow:
        chain = chain_at(node, self.kernel.axes)
        if chain is not None and chain.lanes:
            return self.across(chain, (*around, *chain.loops))
        if chain is not None:
            return self.leaf(Site(chain.block, (*around, *chain.loops)))
        if isinstance(node, Block):
            return self.leaf(Site(node, around))
        inside = (*still, node.var)
        flow = self.sequence(node.body, inside, (*around, node))
        if node.extent == 1:
            return flow
        if flow.barrier:
            # That barrier is also between an iteration and any but the next one.
            entry = [self.after(t, node) for t in flow.entry]
            memories = self.conflicts(flow.exit, entry, inside)
        else:
            memories = self.conflicts(flow.exit, flow.entry, still)
        if not memories:
            return flow
        if self.turned(node, inside, still, (*around, node)):
            return self.flow_of(node.body, inside, (*around, node))
        # In the first iteration it serves what came before the loop: a condition that spared it
        # there would cost more, and some compilers the right results.
        self.found[id(node.body[0])] = memories
        self.starts.add(id(node.body[0]))
        return _Flow(flow.entry, flow.exit, True)

    def turned(self, loop: For, inside: _Still, still: _Still, around: tuple[For, ...]) -> bool:
        """Move the barriers of a loop's body so that they serve the next iteration as well, if that
        takes no more of them."""
        flows = [self.node(x, inside, around) for x in loop.body]
        have = [n for n, x in enumerate(loop.body) if id(x) in self.found]
        for start in range(1, len(flows)):
            places = self.round(flows, start, inside, still)
            if places is not None and len(places) <= len(have):
                for n in have:
                    del self.found[id(loop.body[n])]
                for n, memories in places.items():
                    self.found[id(loop.body[n])] = memories
                return True
        return False

    def round(
        self, flows: Sequence[_Flow], start: int, inside: _Still, still: _Still
    ) -> dict[int, frozenset[str]] | None:
        """Barriers of a body that is run again and again, the first before statement `start`; None
        if that one is of no use."""
        n = len(flows)
        places: dict[int, frozenset[str]] = {}
        now: tuple[Touch, ...] = ()
        last: tuple[Touch, ...] = ()
        for turn in range(n):
            at = (start + turn) % n
            if at == 0:
                last, now = now, ()
            memories = self.conflicts(now, flows[at].entry, inside)
            memories |= self.conflicts(last, flows[at].entry, still)
            if memories:
                places[at] = memories
                now = last = ()
            if flows[at].barrier:
                now = last = ()
            now += flows[at].exit
        memories = self.conflicts(now, flows[start].entry, inside)
        memories |= self.conflicts(last, flows[start].entry, still)
        if not memories:
            return None
        return {**places, start: memories}

    def flow_of(self, nodes: Sequence[Node], still: _Still, around: tuple[For, ...]) -> _Flow:
        """The flow of `nodes` with the barriers that there are."""
        entry: tuple[Touch, ...] = ()
        pending: tuple[Touch, ...] = ()
        closed = False
        for x in nodes:
            flow = self.node(x, still, around)
            if id(x) in self.found:
                pending, closed = (), True
            if not closed:
                entry += flow.entry
            pending = flow.exit if flow.barrier else pending + flow.exit
            closed = closed or flow.barrier
        return _Flow(entry, pending, closed)

    # Statements

    def leaf(self, site: Site) -> _Flow:
        """A statement with no barrier inside."""
        shared = self.visible(touches_of(site))
        return _Flow(shared, shared)

    def visible(self, touches: Sequence[Touch]) -> tuple[Touch, ...]:
        """Those of memory that threads share."""
        return tuple(t for t in touches if t.buffer not in self.private)

    def across(self, chain: Chain, loops: tuple[For, ...]) -> _Flow:
        """A reduction across threads: all read, and leave their results for others; one writes."""
        block = chain.block
        lanes = [self.kernel.axes[n] for n in chain.lanes]
        first = [Predicate(Affine.of(x.var), 1) for x in lanes]
        stored = replace(block, predicates=(*chain.outside(), *first))
        everyone, one = Site(block, loops), Site(stored, loops)
        reads = self.visible([t for t in touches_of(everyone) if not t.written])
        writes = self.visible([t for t in touches_of(one) if t.written])
        if way_across(chain, self.kernel, self.warp) == "shuffle":
            return _Flow((*reads, *writes), (*reads, *writes))
        # Of the memory in between no element is any thread's own.
        scratch = Buffer("scratch", (), "int8", "shared")
        left = Touch(Access(scratch, ()), everyone, True)
        return _Flow((*reads, left), (*writes, left), True)


def check_races(kernel: Kernel) -> None:
    """Raise CodegenError if two threads may write one element in one statement, or if a block of
    threads touches what another one writes: no barrier orders these."""
    blocks = [x for n, x in kernel.axes.items() if n not in THREADS]
    loose = {v for c in chains_of(kernel) for x in c.loops for v in (x.var,)}
    every = [(site, touches_of(site)) for site in kernel.sites()]
    for site, touches in every:
        lanes = lanes_of(site.block, kernel.axes)
        threads = [x for n, x in kernel.axes.items() if n in THREADS and n not in lanes]
        still = [x.var for x in blocks]
        still += [x.var for x in site.loops if x.thread is None and x.var not in loose]
        for w in touches:
            if not w.written or w.buffer in kernel.local:
                continue
            for other in touches:
                # What lanes read before one of them writes is read by then.
                if other.written or not lanes:
                    _refuse_meeting(kernel, w, other, still, threads, "threads")
    own = {*kernel.local, *kernel.shared}
    outside = [t for _, touches in every for t in touches if t.buffer not in own]
    for w in (t for t in outside if t.written):
        for other in outside:
            _refuse_meeting(kernel, w, other, (), blocks, "blocks")


def _refuse_meeting(
    kernel: Kernel, w: Touch, other: Touch, still: Sequence[Var], axes: Sequence[For], what: str
) -> None:
    met, where = meet(w, other, still, axes)
    if not met:
        return
    verb = "write" if other.written else "read"
    name, block, theirs = w.buffer.name, w.site.block.name, other.site.block.name
    moving = [x for x in axes if x.extent != 1]
    if where is None:
        raise CodegenError(
            f"kernel {kernel.name}: {theirs} may {verb} elements of {name} that another of the "
            f"{what} writes in {block}; bind loops whose iterations write elements of their own"
        )
    place = f"{name}[{', '.join(map(str, where.element))}]"
    first, second = (_thread(moving, point) for point in (where.first, where.second))
    if other is w:
        raise CodegenError(
            f"kernel {kernel.name}: {what} ({first}) and ({second}) both write {place} in {block}"
        )
    raise CodegenError(
        f"kernel {kernel.name}: of {what}, ({first}) writes {place} in {block} and ({second}) "
        f"{verb}s it in {theirs}; nothing orders them: give both the same {what}, or a root nest "
        "each"
    )


def _thread(axes: Sequence[For], point: Sequence[int]) -> str:
    return ", ".join(f"{x.thread}={n}" for x, n in zip(axes, point, strict=True))

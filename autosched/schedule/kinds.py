"""Primitives that say how a loop runs: parallel, vectorize, unroll, bind; and their legality."""

from __future__ import annotations

from dataclasses import replace

from autosched.schedule.check import (
    accesses,
    contained,
    joined,
    loop_vars,
    ordered_vars,
    refuse,
    require,
    required,
)
from autosched.schedule.combining import does_combine
from autosched.schedule.conflicts import conflicts, together
from autosched.schedule.recurrence import (
    earlier_step,
    is_step,
    same_axes,
    same_iteration,
    steps_outside,
)
from autosched.tir.affine import always
from autosched.tir.annotations import SINGLE_PASS
from autosched.tir.apart import Condition, injective, iterations_apart, settled
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY, TensorIntrin, match
from autosched.tir.nodes import (
    THREADS,
    Access,
    Buffer,
    For,
    Node,
    PrimFunc,
    Site,
    buffers_of,
    chained,
    kind_vars,
    loops_of,
    path_to,
    replace_node,
    sites,
)
from autosched.tir.region import Region
from autosched.tir.scatter import scatters
from autosched.tir.size import Size


def parallel(func: PrimFunc, loop: Var) -> PrimFunc:
    """Divide the iterations of a loop over threads. (TVM parallel, Halide parallel.)

    Legality: no reduce or sequential axis below uses the loop; iterations write different elements,
    or elements that no one outside the loop accesses; none reads what another writes, and no two
    blocks access elements of one another's iterations.

    rewrite:
        for i in T.serial(8):  ->  for i in T.parallel(8):
    """
    return _set_kind(func, loop, "parallel")


def vectorize(func: PrimFunc, loop: Var) -> PrimFunc:
    """Run the iterations of a loop as lanes of vectors. (TVM vectorize, Halide vectorize.)

    Any extent: lowering cuts it into vectors and masks the tail. On a loop of a reduction axis the
    lanes accumulate by themselves and are combined at the end.

    Legality: only unrolled loops below; no sequential axis uses the loop; on a reduction axis
    exactly one block below, with a reducer; else as for `parallel`.

    rewrite:
        for j in T.serial(16):  ->  for j in T.vectorized(16):
    """
    return _set_kind(func, loop, "vectorized")


def unroll(func: PrimFunc, loop: Var) -> PrimFunc:
    """Copy the body of a loop for each iteration. (TVM unroll, Halide unroll.)

    Legality: the extent is no symbolic size; the order of the iterations stays.

    rewrite:
        for i in T.serial(4):  ->  for i in T.unroll(4):
    """
    node = path_to(func, loop)[-1]
    if isinstance(node.extent, Size):
        refuse(
            f"unroll: loop {loop.name} has the symbolic extent {node.extent}, of which there are "
            "no copies to make; split it by a constant and unroll the inner loop",
            node,
        )
    return _set_kind(func, loop, "unrolled")


def bind(func: PrimFunc, loop: Var, thread: str) -> PrimFunc:
    """Bind a loop to a GPU axis. (TVM bind, Halide gpu_blocks and gpu_threads.)

    Args:
        thread: blockIdx, threadIdx or vthread with .x, .y or .z.

    A threadIdx loop may stand below another one bound to the same axis: the work inside is shared
    out anew (cooperative fetching). Directly nested loops that blocks below use may all be bound to
    one axis, outermost first: together they are one iteration space, as if fused. A reduction loop
    may be bound to threadIdx; its partial results are then combined across threads.

    Legality: as for `parallel`, but for blocks with a reducer that reduce over a threadIdx loop,
    whose results nothing in it accesses, and for steps that are handed on (`single_pass_scan`);
    below two loops bound to one axis that are not directly nested no block uses the outer one.

    rewrite:
        for i in T.serial(8):  ->  for i in T.thread_binding(8, thread="blockIdx.x"):
    """
    if thread not in THREADS:
        refuse(f"bind: no thread axis {thread!r}; expected one of {', '.join(THREADS)}")
    *around, node = path_to(func, loop)
    for other in around:
        if other.thread == thread:
            check_shared_out(other, node, thread)
    return _set_kind(func, loop, "thread", thread)


def check_shared_out(outer: For, inner: For, thread: str) -> None:
    """Raise ScheduleError unless the two loops, bound to one axis, are parts of one iteration
    space, or what stands in `inner` is the same work in each iteration of `outer`: only then
    threads may share it out."""
    if chained(outer, inner):
        return
    for site in sites(inner):
        block = site.block
        forms = [*block.bindings, *(p.form for p in block.predicates)]
        if not thread.startswith("threadIdx") or any(f.uses([outer.var]) for f in forms):
            refuse(
                f"bind: loop {outer.var.name} around {inner.var.name} is bound to {thread} already"
                + (f", and {block.name} uses it" if thread.startswith("threadIdx") else ""),
                outer,
            )


def _set_kind(func: PrimFunc, loop: Var, kind: str, thread: str | None = None) -> PrimFunc:
    node = path_to(func, loop)[-1]
    if node.kind != "serial":
        refuse(
            f"loop {loop.name} is {node.kind} already; expected a serial loop to make {kind}", node
        )
    if node.annotation(KEY) is not None:
        refuse(f"loop {loop.name} is done by an intrinsic ({node.annotation(KEY)})", node)
    changed = replace(node, kind=kind, thread=thread)
    check_loop(func, node, kind, thread)
    result = replace_node(func, node, (changed,))
    for outer in path_to(result, loop)[:-1]:
        if outer.kind == "vectorized" and kind != "unrolled":
            refuse(
                f"loop {outer.var.name} is vectorized; only unrolled loops may stand below it",
                outer,
            )
    return result


def check_kinds(func: PrimFunc, before: PrimFunc) -> None:
    """Raise ScheduleError if a primitive that made `func` of `before` left a loop's kind illegal,
    or a nest that an intrinsic does computing something else.

    What is legal in a root nest depends on the nest, and on who else accesses what it writes: nests
    that are as before are not looked at again unless a changed one does.
    """
    old = {id(node) for node in before.body}
    touched = {id(b) for node in func.body if id(node) not in old for b in buffers_of(node)}
    for node in func.body:
        if id(node) not in old or any(
            id(a.buffer) in touched for s in sites(node) for a in s.block.writes
        ):
            _check_nest(func, node)


def _check_nest(func: PrimFunc, root: Node) -> None:
    nest = replace(func, body=(root,))
    for site in sites(root):
        marks = [loop.annotation(KEY) for loop in site.loops if loop.annotation(KEY) is not None]
        if marks:
            intrin = TensorIntrin.get(marks[0])
            match(site, intrin)
            if len(marks) != len(intrin.loops) or site.loops[-1].annotation(KEY) is None:
                refuse(f"the loops done by {marks[0]} around {site.block.name} are torn apart")
    for node in loops_of(nest):
        if node.kind not in ("serial", "unrolled"):
            check_loop(func, node, node.kind, node.thread)


def check_loop(func: PrimFunc, node: For, kind: str, thread: str | None = None) -> None:
    """Raise ScheduleError if `node` may not be a loop of `kind`, or bound to `thread`."""
    if kind in ("serial", "unrolled"):
        return
    everything = list(sites(func))
    below = [s for s in everything if any(x is node for x in s.loops)]
    name = node.var.name
    if kind == "thread" and _hands_on(below, node):
        return
    made = "bound to a thread" if kind == "thread" else kind
    combining: list[Site] = []
    for site in below:
        block = site.block
        if node.var in kind_vars(block, "sequential"):
            refuse(
                f"loop {name} runs over a sequential axis of {block.name}, whose steps go in "
                f"order; it cannot be {made}: move an independent loop outside of it, or run one "
                f"inside it {made}",
                node,
            )
    if kind == "vectorized":
        for loop in loops_of(PrimFunc("", (), node.body)):
            if loop.kind != "unrolled":
                refuse(
                    f"vectorize: loop {name} has the {loop.kind} loop {loop.var.name} below; "
                    "only blocks and unrolled loops may stand there: reorder, or unroll "
                    f"{loop.var.name} first",
                    node,
                )
    for site in below:
        block = site.block
        if node.var in ordered_vars(block):
            if scatters(block) and (kind != "vectorized" or len(below) > 1):
                require(
                    iterations_apart(site, node),
                    f"iterations of loop {name} may combine into the same element of "
                    f"{block.writes[0].buffer.name} in {block.name}, which moves with a reduction "
                    f"axis; it cannot be {made}: give each part of the loop a result of its own, "
                    "by one more dimension of the buffer, and add these up in a block after it",
                )
                continue
            if kind != "vectorized" and not (thread or "").startswith("threadIdx"):
                refuse(
                    f"loop {name} runs over a reduction axis of {block.name}; it cannot be {made}: "
                    f"use rfactor to make partial results",
                    node,
                )
            if block.reducer is None or (kind == "vectorized" and len(below) > 1):
                verb, held = (
                    ("vectorize", "one block") if kind == "vectorized" else ("bind", "blocks")
                )
                refuse(
                    f"{verb}: the reduction loop {name} must hold {held}, with a reducer",
                    node,
                )
            combining.append(site)
    if combining:
        _check_totals(below, combining, node)
    if len(combining) < len(below):
        _check_iterations(func, everything, below, combining, node, kind)


def _check_totals(below: list[Site], combining: list[Site], node: For) -> None:
    """Nothing in a loop accesses what blocks combine over its iterations: it is there after it."""
    for site in combining:
        for access in site.block.writes:
            for other in below:
                if other is not site and accesses(other.block, access.buffer):
                    refuse(
                        f"bind: {site.block.name} reduces over loop {node.var.name}, and "
                        f"{other.block.name} in the loop accesses {access.buffer.name}, which is "
                        f"complete only after it: compute {other.block.name} outside of the loop",
                        node,
                    )


def _hands_on(below: list[Site], node: For) -> bool:
    """Whether a loop runs over steps of one block that hands on what tiles of them come to."""
    if len(below) != 1 or not below[0].block.annotation(SINGLE_PASS):
        return False
    block = below[0].block
    return node.var in kind_vars(block, "sequential") and does_combine(block)


def _check_iterations(
    func: PrimFunc,
    everything: list[Site],
    below: list[Site],
    combining: list[Site],
    node: For,
    kind: str,
) -> None:
    """Iterations of `node` write elements of their own and read none of another iteration, but for
    what the blocks `combining` combine over them."""
    inside = {id(s.block) for s in below}
    outside = [s for s in everything if id(s.block) not in inside]
    done: set[int] = set()
    for site in (s for s in below if s not in combining):
        for access in site.block.writes:
            buffer = access.buffer
            # Lanes of a vector share what lies inside their loop.
            private = (
                kind != "vectorized"
                and not any(b is buffer for b in func.params)
                and not any(accesses(s.block, buffer) for s in outside)
            )
            if not private:
                require(
                    iterations_apart(site, node),
                    f"iterations of loop {node.var.name} may write the same elements of "
                    f"{buffer.name} in {site.block.name}; it cannot be {kind}",
                )
            if id(buffer) not in done:
                done.add(id(buffer))
                _check_flow(below, node, buffer, kind)
                if not private:
                    _check_meetings(below, node, buffer, kind)


def _check_flow(below: list[Site], node: For, buffer: Buffer, kind: str) -> None:
    """Every read of `buffer` below lies in what the same iteration writes."""
    readers = [(s, a) for s in below for a in s.block.reads if a.buffer is buffer]
    writers = [(s, a) for s in below for a in s.block.writes if a.buffer is buffer]
    if not readers:
        return
    written = joined([_region(s, a, node) for s, a in writers])
    extents = {v: n for s, _ in (*readers, *writers) for v, n in s.extents().items()}
    for site, access in readers:
        if all(_apart(site, access, s, a, node) for s, a in writers):
            continue
        region = _region(site, access, node)
        ok: Condition = False
        for w in written:
            ok = ok | contained(region, w, buffer.shape, extents)
        require(
            ok,
            f"{site.block.name} may read elements of {buffer.name} that another iteration of loop "
            f"{node.var.name} writes; it cannot be {kind}",
        )


def _check_meetings(below: list[Site], node: For, buffer: Buffer, kind: str) -> None:
    """No iteration of `node` writes elements of `buffer` that another block accesses in another
    one."""
    for (left, x), (right, y) in conflicts(below, buffer):
        place = next(k for k, loop in enumerate(left.loops) if loop is node)
        fixed = loop_vars(left.loops[:place])
        for (s, a), (t, b) in (((left, x), (right, y)), ((right, y), (left, x))):
            # What `t` touches, `s` writes in the same iteration, and in no other.
            inside = loop_vars(s.loops[place + 1 :])
            if a not in s.block.writes or not always(settled(s, a, [node.var], inside)):
                continue
            extents = {**s.extents(), **t.extents()}
            if always(contained(_region(t, b, node), _region(s, a, node), buffer.shape, extents)):
                break
        else:
            if _apart(left, x, right, y, node) or _apart(right, y, left, x, node):
                continue
            if not together((left, x), (right, y), [node.var], fixed):
                refuse(
                    f"{left.block.name} and {right.block.name} may access the same elements of "
                    f"{buffer.name} in different iterations of loop {node.var.name}; it cannot be "
                    f"{kind}",
                    node,
                )


def _apart(reader: Site, read: Access, writer: Site, write: Access, node: For) -> bool:
    """Whether a step reads nothing that another iteration of `node` writes: elements of earlier
    steps of loops outside it, or of its own iteration alone."""
    if not is_step(reader.block) or not is_step(writer.block):
        return False
    place = next(n for n, x in enumerate(writer.loops) if x.var is node.var)
    inner = loop_vars(writer.loops[place:])
    if steps_outside(writer.block, inner) and earlier_step(reader.block, read, writer.block):
        return True
    outside = loop_vars(writer.loops[:place])
    if same_iteration(reader, read, writer, write, [node.var], outside):
        return True
    if reader.block is not writer.block:
        return False
    # In chunks of a recurrence the axes tell the chunk, and these the iteration.
    block = reader.block
    axes = same_axes(block, read, write)
    forms = [b for it, b in zip(block.iters, block.bindings, strict=True) if it.var in axes]
    used = [v for v in inner if v is node.var or any(f.uses([v]) for f in forms)]
    return always(injective(forms, used, writer.extents()))


def _region(site: Site, access: Access, node: For) -> Region:
    n = next(k for k, x in enumerate(site.loops) if x is node)
    inner = loop_vars(site.loops[n + 1 :])
    return required(access, site.block.values(), site.extents(), inner, site.block.predicates)

"""Where the intermediates of a kernel live: in a thread, in a block's shared memory, or outside.

What is declared "local", "shared" or "shared.dyn" is that. Any other buffer that a kernel has for
itself, those of a warp among them, is local if every thread reads only what it wrote, else shared.
A local array holds what one thread touches: it is shrunk to that region, which begins at a form of
the thread, and to every n-th element where only these are touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from autosched.codegen.gpu.kernel import THREADS, Kernel
from autosched.codegen.gpu.touch import meet
from autosched.errors import CodegenError
from autosched.tir.affine import Affine
from autosched.tir.nodes import Access, Block, Buffer, Site, map_blocks
from autosched.tir.region import Region, touched
from autosched.tir.scope import SHARED
from autosched.tir.touch import touches_of


@dataclass(frozen=True, eq=False)
class _Moved:
    buffer: Buffer
    region: Region | None
    steps: tuple[int, ...] = ()
    """Of a local array: the distance of elements that are touched, in each dimension."""


def place_buffers(
    kernel: Kernel, allocs: Sequence[Buffer], own: frozenset[Buffer] = frozenset()
) -> Kernel:
    """`kernel` with `allocs`, the buffers that lived in its loops, as shared and local arrays;
    those in `own` each thread has for itself.

    Raises CodegenError where a local array would hold what another thread reads.
    """
    sites = list(kernel.sites())
    moved: dict[Buffer, _Moved] = {}
    for b in allocs:
        users = [s for s in sites if _uses(s.block, b)]
        if not users:
            continue
        private = None if b in own else _is_private(kernel, b, users)
        if b.scope == "local" and private is not None:
            raise CodegenError(
                f"{b.name} is local, but {private}; give it the scope 'shared', or bind the loops "
                "around both blocks alike"
            )
        if b.scope in SHARED or private is not None:
            moved[b] = _Moved(replace(b, scope="shared"), None)
        else:
            moved[b] = _local(kernel, b, users)
    body = tuple(map_blocks(node, lambda x: _rewritten(x, moved)) for node in kernel.body)
    made = [m.buffer for m in moved.values()]
    return replace(
        kernel,
        body=body,
        shared=tuple(b for b in made if b.scope == "shared"),
        local=tuple(b for b in made if b.scope == "local"),
    )


def _uses(block: Block, b: Buffer) -> bool:
    return any(a.buffer is b for a in (*block.reads, *block.writes))


def _is_private(kernel: Kernel, b: Buffer, users: Sequence[Site]) -> str | None:
    """None if no thread touches what another one writes; else which blocks do."""
    threads = [kernel.axes[n] for n in THREADS if n in kernel.axes]
    still = [x.var for n, x in kernel.axes.items() if n not in THREADS]
    touches = [t for s in users for t in touches_of(s) if t.buffer is b]
    for w in touches:
        # A reduction across threads ends in one of them.
        if w.written and _across(w.site, kernel):
            return f"{w.site.block.name} makes it across threads"
    for w in (t for t in touches if t.written):
        for other in touches:
            if not w.used & {x.var for x in threads} and b.scope == "local":
                continue  # every thread writes its own
            if meet(w, other, still, threads)[0]:
                return (
                    f"{other.site.block.name} may {'write' if other.written else 'read'} elements "
                    f"that another thread writes in {w.site.block.name}"
                )
    return None


def _across(site: Site, kernel: Kernel) -> bool:
    variables = [x.var for n, x in kernel.axes.items() if n in THREADS]
    return site.block.reducer is not None and any(
        it.kind == "reduce" and form.uses(variables)
        for it, form in zip(site.block.iters, site.block.bindings, strict=True)
    )


def _local(kernel: Kernel, b: Buffer, users: Sequence[Site]) -> _Moved:
    axes = {x.var for x in kernel.axes.values()}
    inner = [x.var for s in users for x in s.loops if x.var not in axes]
    region = touched(b, users, inner)
    assert region is not None
    steps = [0] * len(region)
    for site in users:
        for access in (*site.block.reads, *site.block.writes):
            if access.buffer is b:
                for n, step in enumerate(_steps(access, site.block, region)):
                    steps[n] = gcd(steps[n], step)
    steps = [max(1, step) for step in steps]
    shape = tuple((i.width - 1) // step + 1 for i, step in zip(region, steps, strict=True))
    align = b.align if shape == b.shape else ()
    return _Moved(replace(b, shape=shape, scope="local", align=align), region, tuple(steps))


def _steps(access: Access, block: Block, region: Region) -> Iterator[int]:
    """What every index of an access within the region is a multiple of."""
    values = block.values()
    for index, part in zip(access.indices, region, strict=True):
        if not isinstance(index, Affine):
            yield 1
            continue
        form = index.substitute(values) - part.start
        yield gcd(int(form.const), *(int(c) for _, c in form.terms))


def _rewritten(block: Block, moved: dict[Buffer, _Moved]) -> Block:
    values = block.values()

    def access(a: Access) -> Access:
        found = moved.get(a.buffer)
        if found is None:
            return a
        if found.region is None:
            return Access(found.buffer, a.indices)
        indices = tuple(
            _divided(i.substitute(values) - part.start, step) if isinstance(i, Affine) else i
            for i, part, step in zip(a.indices, found.region, found.steps, strict=True)
        )
        return Access(found.buffer, indices)

    return replace(
        block,
        reads=tuple(access(a) for a in block.reads),
        writes=tuple(access(a) for a in block.writes),
    )


def _divided(form: Affine, step: int) -> Affine:
    """`form / step`, exactly."""
    return Affine(form.const // step, tuple((a, c // step) for a, c in form.terms))

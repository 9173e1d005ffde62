"""From a lowered function to kernels: one launch for each root nest, in order.

Virtual threads go inside, bound loops become threads, intermediates get their memory, reductions
their first values, and the threads of a block the barriers between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from autosched.codegen.gpu.barriers import check_races, place_barriers
from autosched.codegen.gpu.double import double_buffers
from autosched.codegen.gpu.kernel import (
    BLOCKS,
    Kernel,
    Limits,
    buffer_bytes,
    check_intrinsic,
    check_limits,
    shared_offsets,
    sites_in,
)
from autosched.codegen.gpu.lookback import (
    is_single_pass,
    lookback_of,
    resetting,
    shared_bytes,
    without_state,
)
from autosched.codegen.gpu.overhang import unguarded
from autosched.codegen.gpu.reduce import decompose, exchange_bytes
from autosched.codegen.gpu.scopes import place_buffers
from autosched.codegen.gpu.threads import Threaded, thread
from autosched.codegen.gpu.virtual import sink_virtual
from autosched.errors import CodegenError
from autosched.tir.affine import Affine
from autosched.tir.nodes import Access, Block, Buffer, For, Node, PrimFunc, buffers_of, map_blocks
from autosched.tir.scope import SHARED


@dataclass(frozen=True, eq=False)
class Program:
    """The launches of a function, and the buffers in global memory that they pass on."""

    func: PrimFunc
    kernels: tuple[Kernel, ...]
    workspaces: tuple[Buffer, ...]


def kernels_of(func: PrimFunc, limits: Limits) -> Program:
    """The kernels of a lowered function for devices of these limits.

    Raises CodegenError for symbolic sizes, races, and what the limits do not allow.
    """
    if func.sizes:
        names = ", ".join(v.name for v in func.sizes)
        raise CodegenError(
            f"{func.name} has the symbolic sizes {names}; GPU code is made for constant sizes: "
            "use func.specialize(...)"
        )
    for b in func.allocs:
        if b.scope != "global":
            raise CodegenError(
                f"{b.name} has the scope {b.scope!r} and is used outside of any one loop; compute "
                "it at a loop of its consumer that is bound, or inside of one"
            )
    for site in sites_in(func.body, ()):
        check_intrinsic(site, limits)
    kernels: list[Kernel] = []
    spaces: list[Buffer] = []
    for n, root in enumerate(func.body):
        name = re.sub(r"\W", "_", f"{func.name}_kernel{n if len(func.body) > 1 else ''}")
        if is_single_pass(root):
            made, words = _scanning(func, root, name, limits)
            kernels += made
            spaces.append(words)
            continue
        kernel, own = _kernel(func, root, name, limits)
        kernels.append(kernel)
        spaces += own
    used = {b for k in kernels for b in k.params}
    return Program(func, tuple(kernels), (*(b for b in func.allocs if b in used), *spaces))


def _scanning(func: PrimFunc, root: Node, name: str, limits: Limits) -> tuple[list[Kernel], Buffer]:
    """The kernels of a scan in a single pass, and its workspace."""
    look = lookback_of(root)
    reset, _ = _kernel(func, resetting(look, min(256, limits.max_threads)), f"{name}_reset", limits)
    threaded = thread((root,))
    kernel = Kernel(name, threaded.body, threaded.axes, lookback=look)
    check_races(replace(kernel, body=without_state(kernel.body, look)))
    used = buffers_of(replace(func, body=kernel.body))
    order = [b for b in func.params if b in used] + [b for b in used if b not in func.params]
    kernel = replace(kernel, params=(*order, look.words))
    check_limits(kernel, limits, shared_bytes(look, prod(kernel.block)))
    return [reset, kernel], look.words


def _kernel(func: PrimFunc, root: Node, name: str, limits: Limits) -> tuple[Kernel, list[Buffer]]:
    """One kernel and the workspaces that are for its blocks alone."""
    sunk, allocs = sink_virtual(root)
    doubled = [double_buffers(node) for node in sunk]
    nodes = tuple(x for some, _ in doubled for x in some)
    allocs = (*allocs, *(b for _, around in doubled for b in around))
    threaded = thread(nodes, allocs)
    kernel, allocs = _of_warps(Kernel(name, threaded.body, threaded.axes), threaded)
    kernel = place_buffers(kernel, allocs, threaded.own)
    asked = {b.name for b in threaded.allocs if b.scope in SHARED}
    kernel, own = _spilled(kernel, asked, limits)
    kernel = decompose(unguarded(kernel))
    check_races(kernel)
    kernel = place_barriers(kernel, limits.warp)
    mine = {*kernel.shared, *kernel.local}
    used = [b for b in buffers_of(replace(func, body=kernel.body)) if b not in mine]
    order = [b for b in func.params if b in used] + [b for b in used if b not in func.params]
    kernel = replace(kernel, params=tuple(order))
    exchanged = exchange_bytes(kernel, limits.warp)
    check_limits(kernel, limits, exchanged)
    shared = {b.name for b in kernel.shared}
    dynamic = any(b.scope == SHARED[1] and b.name in shared for b in threaded.allocs)
    most = limits.static_bytes
    if most is not None and (dynamic or kernel.shared_bytes + exchanged > most):
        kernel = replace(kernel, dynamic_bytes=shared_offsets(kernel)[-1])
        check_limits(kernel, limits, exchanged + kernel.dynamic_bytes - kernel.shared_bytes)
    return kernel, own


def _spilled(kernel: Kernel, asked: set[str], limits: Limits) -> tuple[Kernel, list[Buffer]]:
    """What a block shares, was not asked to be in shared memory and does not fit there, in a
    workspace with a part for each block."""
    own: list[Buffer] = []
    for b in sorted(kernel.shared, key=buffer_bytes, reverse=True):
        if kernel.shared_bytes <= limits.shared_bytes:
            break
        if b.name in asked:
            continue
        axes = [kernel.axes[n] for n in BLOCKS if n in kernel.axes]
        kernel, place = _apart(kernel, b, axes, "global")
        kernel = replace(kernel, shared=tuple(x for x in kernel.shared if x is not b))
        own.append(place)
    return kernel, own


def _of_warps(kernel: Kernel, threaded: Threaded) -> tuple[Kernel, tuple[Buffer, ...]]:
    """`kernel` with a part for each warp of what is one of a warp, and its buffers."""
    made = {}
    for b, axes in threaded.warps.items():
        kernel, made[b] = _apart(kernel, b, axes, b.scope)
    return kernel, tuple(made.get(b, b) for b in threaded.allocs)


def _apart(kernel: Kernel, b: Buffer, axes: Sequence[For], scope: str) -> tuple[Kernel, Buffer]:
    """`kernel` with a buffer that has a part for each iteration of the `axes`, and that buffer."""
    place = replace(
        b,
        shape=(*(x.extent for x in axes), *b.shape),
        align=tuple((n + len(axes), f, o) for n, f, o in b.align),
        scope=scope,
    )
    index = tuple(Affine.of(x.var) for x in axes)
    return replace(kernel, body=_moved(kernel.body, b, place, index)), place


def _moved(
    nodes: Sequence[Node], old: Buffer, new: Buffer, index: tuple[Affine, ...]
) -> tuple[Node, ...]:
    """`nodes` with `old` replaced by that part of `new` which `index` names."""

    def access(a: Access) -> Access:
        return Access(new, (*index, *a.indices)) if a.buffer is old else a

    def block(b: Block) -> Block:
        return replace(
            b,
            reads=tuple(access(a) for a in b.reads),
            writes=tuple(access(a) for a in b.writes),
        )

    return tuple(map_blocks(node, block) for node in nodes)

"""Primitives that attach facts: annotate, unannotate, set_scope, storage_align, double_buffer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autosched.schedule.check import refuse, require, show
from autosched.schedule.kinds import check_kinds
from autosched.tir.affine import Int
from autosched.tir.annotations import (
    BLOCKIZE,
    DOUBLE_BUFFER,
    MOST_COPIES,
    annotation_fault,
    is_copies,
)
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Annotations,
    Block,
    Buffer,
    For,
    PrimFunc,
    map_func,
    path_to,
    replace_node,
    site_of,
)
from autosched.tir.region import home, users_of
from autosched.tir.scope import SCOPES, SHARED

STEPS = ("serial", "unrolled")
"""Kinds of loops whose iterations come one after the other."""


def annotate(func: PrimFunc, place: str | Var, key: str, value: Any) -> PrimFunc:
    """Attach a key and a value to a block (by name) or a loop, in place of an older value.
    (TVM annotate, Ansor pragma.)

    Args:
        key: one of `tir.annotations.KEYS`, of the place's kind; or any other, which is kept and
            means nothing.

    Legality: the value is of the key's kind; a free key resembles none of `KEYS`, and its value is
    a literal.

    rewrite:
        with T.block("b"):  ->  with T.block("b"):
                                    T.block_attr({'streaming': True})
    """
    if not isinstance(key, str) or not key:
        refuse(f"annotate: a key is a text; found {key!r}")
    if key == BLOCKIZE:
        refuse("annotate: blockize names a nest, after a check of it")
    node = _node(func, place)
    fault = annotation_fault(key, value, "block" if isinstance(node, Block) else "loop")
    if fault is not None:
        refuse(f"annotate: {fault}")
    return replace_node(func, node, (with_annotations(node, {key: value}),))


def unannotate(func: PrimFunc, place: str | Var, key: str) -> PrimFunc:
    """Remove an annotation of a block (by name) or a loop. (TVM unannotate.)

    Legality: the key is there.

    rewrite:
        T.block_attr({'streaming': True})  ->
    """
    node = _node(func, place)
    left = dict(node.annotations)
    if key not in left:
        have = ", ".join(left) or "none"
        refuse(f"unannotate: no annotation {key!r} there; it has {have}")
    del left[key]
    return replace_node(func, node, (replace(node, annotations=tuple(left.items())),))


def set_scope(func: PrimFunc, block: str, index: int, scope: str) -> PrimFunc:
    """Change where the buffer of write `index` of a block lives. (TVM set_scope.)

    Args:
        scope: "global", "local" (one a thread), "shared" or "shared.dyn" (one a GPU thread block),
            or "warp" (one of the threads along threadIdx.x).

    Legality: the buffer is an intermediate.

    rewrite:
        B = T.alloc_buffer((16,), "float32")
        ->
        B = T.alloc_buffer((16,), "float32", scope="local")
    """
    if scope not in SCOPES:
        refuse(f"set_scope: no scope {scope!r}; expected one of {', '.join(SCOPES)}")
    old = written_intermediate(func, block, index, f"set_scope({block})")
    return replace_buffer(func, old, replace(old, scope=scope))


def storage_align(
    func: PrimFunc, block: str, buffer_index: int, axis: int, factor: Int, offset: Int
) -> PrimFunc:
    """Give a dimension of an intermediate a stride that is `offset` more than a multiple of
    `factor`, in elements. (TVM storage_align, Halide align_storage.)

    Rows whose distance is a power of two fall into the same sets of a cache; a walk down a column
    of such rows then misses although little is touched.

    Args:
        buffer_index: which write of the block.
        axis: a dimension other than the last; negative counts from the end.
        factor, offset: the stride, as small as possible, is `offset` modulo `factor`. Factor 1 is
            dense, whatever the offset: so one decision says whether rows are padded.

    Legality: the buffer is an intermediate; `0 <= offset < factor`, or the factor is 1; no
    intrinsic needs it dense.
    Results cannot change.

    rewrite: (axis 0, factor 32, offset 1: rows of 65 elements, of which 64 are used)
        B = T.alloc_buffer((64, 64), "float32")
        ->
        B = T.alloc_buffer((64, 64), "float32", align=((0, 32, 1),))
    """
    what = f"storage_align({block})"
    old = written_intermediate(func, block, buffer_index, what)
    rank = len(old.shape)
    place = axis + rank if axis < 0 else axis
    if not 0 <= place < rank - 1:
        refuse(
            f"{what}: {old.name} has {rank} dimensions; axis is one before the last, whose stride "
            f"is 1; found {axis}"
        )
    require(factor >= 1, f"{what}: factor is at least 1; found {show(factor)}")
    require(
        (offset >= 0) & ((offset < factor) | (factor == 1)),
        f"{what}: offset is from 0 to factor - 1; found {show(offset)} of {show(factor)}",
    )
    kept = [a for a in old.align if a[0] != place]
    align = tuple(sorted([*kept, (place, factor, offset % factor)], key=lambda a: a[0]))
    result = replace_buffer(func, old, replace(old, align=align))
    check_kinds(result, func)
    return result


def double_buffer(func: PrimFunc, block: str, copies: Int | None = None) -> PrimFunc:
    """Let what a block writes to shared memory alternate between buffers, step by step of the
    loop that it is computed in. (TVM double_buffer, software_pipeline_stage.)

    The threads of a GPU block then write the elements of the next step while others still read
    those of this one: of the two barriers that a step takes, one goes. Each buffer takes shared
    memory of its own. A loop of one step has nothing to alternate, and keeps one buffer.

    Args:
        copies: how many buffers, 2 to 8; None for two. What is fetched is for the step after the
            next where there are 3, and so on: memory has longer to answer (a pipeline of so many
            stages).

    Legality: the block writes one intermediate, which is shared; a serial or unrolled loop is
    around all blocks that access it. Results cannot change.

    rewrite:
        with T.block("A_shared"):  ->  with T.block("A_shared"):
                                           T.block_attr({'double_buffer': True})
    """
    what = f"double_buffer({block})"
    buffer = written_intermediate(func, block, 0, what)
    node = site_of(func, block).block
    if len(node.writes) != 1 or buffer.scope not in SHARED:
        refuse(
            f"{what}: a block that writes one buffer of shared memory has two; {block} writes "
            f"{', '.join(f'{a.buffer.name} ({a.buffer.scope})' for a in node.writes)}"
        )
    around = home(buffer, users_of(func, buffer))
    if not any(x.kind in STEPS for x in around):
        refuse(
            f"{what}: no serial loop holds all that accesses {buffer.name}, so there are no steps "
            "between which buffers could alternate; compute the block at such a loop first",
            around[-1] if around else None,
        )
    if copies is not None and not is_copies(copies):
        refuse(f"{what}: expected 2 to {MOST_COPIES} copies, found {copies}")
    # A number stays one, two as well: a candidate alone is then that of a population.
    value = True if copies is None else copies
    return replace_node(func, node, (with_annotations(node, {DOUBLE_BUFFER: value}),))


def written_intermediate(func: PrimFunc, block: str, index: int, what: str) -> Buffer:
    """The buffer of write `index` of a block; refused if it is an argument of the function."""
    writes = site_of(func, block).block.writes
    if not 0 <= index < len(writes):
        refuse(f"{what}: the block has {len(writes)} writes; found index {index}")
    buffer = writes[index].buffer
    if any(b is buffer for b in func.params):
        refuse(f"{what}: {buffer.name} is an argument of {func.name}; expected an intermediate")
    return buffer


def replace_buffer(func: PrimFunc, old: Buffer, new: Buffer) -> PrimFunc:
    """`func` with every access of `old` made one of `new`, which has the same rank."""

    def change(access: Access) -> Access:
        return replace(access, buffer=new) if access.buffer is old else access

    def visit(block: Block) -> Block:
        reads, writes = tuple(map(change, block.reads)), tuple(map(change, block.writes))
        pairs = zip((*reads, *writes), (*block.reads, *block.writes), strict=True)
        if all(x is y for x, y in pairs):
            return block
        return replace(block, reads=reads, writes=writes)

    return map_func(func, visit)


def _node(func: PrimFunc, place: str | Var) -> Block | For:
    return site_of(func, place).block if isinstance(place, str) else path_to(func, place)[-1]


def with_annotations(node: Block | For, added: dict[str, Any]) -> Block | For:
    """`node` with annotations added, in place of older values."""
    items: Annotations = tuple(sorted({**dict(node.annotations), **added}.items()))
    return replace(node, annotations=items)

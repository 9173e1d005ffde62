"""Primitives that attach facts: annotate, unannotate, set_scope."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autosched.schedule.check import refuse
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

SCOPES = ("global", "local", "shared")


def annotate(func: PrimFunc, place: str | Var, key: str, value: Any) -> PrimFunc:
    """Attach a key and a value to a block (by name) or a loop, in place of an older value.
    (TVM annotate, Ansor pragma.)

    Legality: always; what a key means is up to who reads it.

    rewrite:
        with T.block("b"):  ->  with T.block("b"):
                                    T.block_attr({'streaming': True})
    """
    if not isinstance(key, str) or not key:
        refuse(f"annotate: a key is a text; found {key!r}")
    node = _node(func, place)
    return replace_node(func, node, (_with(node, {**dict(node.annotations), key: value}),))


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
    return replace_node(func, node, (_with(node, left),))


def set_scope(func: PrimFunc, block: str, index: int, scope: str) -> PrimFunc:
    """Change where the buffer of write `index` of a block lives. (TVM set_scope.)

    Args:
        scope: "global", "local" (one a thread) or "shared" (one a GPU thread block).

    Legality: the buffer is an intermediate.

    rewrite:
        B = T.alloc_buffer((16,), "float32")
        ->
        B = T.alloc_buffer((16,), "float32", scope="local")
    """
    if scope not in SCOPES:
        refuse(f"set_scope: no scope {scope!r}; expected one of {', '.join(SCOPES)}")
    writes = site_of(func, block).block.writes
    if not 0 <= index < len(writes):
        refuse(f"set_scope: block {block} has {len(writes)} writes; found index {index}")
    old = writes[index].buffer
    if any(b is old for b in func.params):
        refuse(
            f"set_scope: {old.name} is an argument of {func.name}; only intermediates have a scope"
        )
    return replace_buffer(func, old, replace(old, scope=scope))


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


def _with(node: Block | For, annotations: dict[str, Any]) -> Block | For:
    items: Annotations = tuple(sorted(annotations.items()))
    return replace(node, annotations=items)

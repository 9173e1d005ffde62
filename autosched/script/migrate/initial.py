"""What a block around others initialises, given to the block inside that accumulates.

A blockized reduction sets a tile of elements at the first tile of its reduction axes, in loops of
its own. That is what the block inside does at the first point of all reduction axes, if both write
the same elements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import names_in, replaced


@dataclass(frozen=True)
class _Found:
    """A store of the old text: the innermost block around it, the element in terms of loops, and
    the extents of the loops around it."""

    block: ast.With | None
    store: ast.Assign | ast.AugAssign
    element: ast.expr
    extents: dict[str, str]


def taken_over(
    init: Sequence[ast.stmt], rest: Sequence[ast.stmt]
) -> tuple[ast.With, ast.expr] | None:
    """The block among `rest` that can set the elements itself, and to what; None if `init` does
    more, or something else."""
    first = list(_stores(init, None, {}, {}))
    if len(first) != 1 or not isinstance(first[0].store, ast.Assign):
        return None
    value, element = first[0].store.value, first[0].element
    if any(isinstance(x, (ast.Subscript, ast.If)) for x in ast.walk(value)) or _has_if(init):
        return None
    assert isinstance(element, ast.Subscript)
    buffer = ast.unparse(element.value)
    after = [
        x
        for x in _stores(rest, None, {}, {})
        if isinstance(x.element, ast.Subscript) and ast.unparse(x.element.value) == buffer
    ]
    if len(after) != 1 or after[0].block is None or _has_if(rest):
        return None
    block = after[0].block
    if _has_init(block) or _normal(first[0]) != _normal(after[0]):
        return None
    if sum(1 for _ in _stores(block.body, block, {}, {})) != 1 or names_in(value) - {"T"}:
        return None
    return block, value


def _normal(found: _Found) -> tuple[str, tuple[str, ...]]:
    """The element with its loops named in the order in which they stand in it, and their
    extents."""
    order = [
        x.id
        for x in ast.walk(ast.parse(ast.unparse(found.element), mode="eval"))
        if isinstance(x, ast.Name) and x.id in found.extents
    ]
    loops = list(dict.fromkeys(order))
    names: dict[str, ast.expr] = {v: ast.Name(f"loop{n}", ast.Load()) for n, v in enumerate(loops)}
    return ast.unparse(replaced(found.element, names)), tuple(found.extents[v] for v in loops)


def _has_if(nodes: Sequence[ast.stmt]) -> bool:
    return any(
        isinstance(x, ast.If) or (isinstance(x, ast.Call) and called(x.func) == "where")
        for n in nodes
        for x in ast.walk(n)
    )


def _has_init(block: ast.With) -> bool:
    return any(isinstance(x, ast.Call) and called(x.func) == "init" for x in ast.walk(block))


def _stores(
    nodes: Sequence[ast.stmt],
    block: ast.With | None,
    extents: dict[str, str],
    axes: dict[str, ast.expr],
) -> Iterator[_Found]:
    for s in nodes:
        if isinstance(s, ast.For) and isinstance(s.iter, ast.Call):
            inner = dict(extents)
            targets = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
            many = called(s.iter.func) == "grid" and len(s.iter.args) == len(targets)
            texts = [ast.unparse(x) for x in s.iter.args]
            for n, t in enumerate(targets):
                text = texts[n] if many else ", ".join(texts).removeprefix("0, ")
                inner[ast.unparse(t)] = text
            yield from _stores(s.body, block, inner, axes)
        elif isinstance(s, ast.With):
            node = s.items[0].context_expr
            is_block = isinstance(node, ast.Call) and called(node.func) in ("block", "sblock")
            yield from _stores(s.body, s if is_block else block, extents, dict(axes))
        elif isinstance(s, ast.If):
            yield from _stores([*s.body, *s.orelse], block, extents, axes)
        elif isinstance(s, (ast.Assign, ast.AugAssign)):
            target = s.targets[0] if isinstance(s, ast.Assign) else s.target
            function = called(s.value.func) if isinstance(s.value, ast.Call) else None
            if function is not None and function.startswith("axis."):
                _bind(axes, target, s.value)  # type: ignore[arg-type]
            elif isinstance(target, ast.Subscript):
                yield _Found(block, s, replaced(target, axes), extents)


def _bind(axes: dict[str, ast.expr], target: ast.expr, node: ast.Call) -> None:
    if called(node.func) != "axis.remap":
        if isinstance(target, ast.Name) and len(node.args) == 2:
            axes[target.id] = replaced(node.args[1], axes)
        return
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    loops = node.args[1].elts if isinstance(node.args[1], (ast.List, ast.Tuple)) else []
    for t, loop in zip(targets, loops, strict=False):
        if isinstance(t, ast.Name):
            axes[t.id] = replaced(loop, axes)

"""Layout rewrite of weights whose layout is free.

A schedule that packs such a weight once, in a nest of its own at the root, has a *transform stage*
(`cache_read` with a layout makes one). `split` moves these stages out: the kernel then takes the
packed weight as its parameter, and each stage is a function of its own that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from autosched.errors import WorkloadError
from autosched.tir.admit import derived
from autosched.tir.nodes import Access, Block, Buffer, For, PrimFunc, map_func, sites
from autosched.tir.opaque import has_opaque

OPTION = "layout_rewrite"
"""Function attribute: the number of the option that the function is tuned and built under."""


class LayoutRewriteOption(IntEnum):
    """What may be done with the weights that `layout_free_placeholders` names."""

    NO_REWRITE = 0
    """They are read as they are, or packed by each thread; no sketch has a transform stage."""
    INSERT_TRANSFORM_STAGE = 1
    """A transform stage may be part of the kernel, and of its time. The default."""
    REWRITE_FOR_PRE_TRANSFORMED = 2
    """Transform stages leave the kernel, which takes what `prepare` returns, and is timed so."""


@dataclass(frozen=True, eq=False)
class Transform:
    """A stage that can leave the kernel: `node` computes `packed` from the parameter `weight`."""

    weight: Buffer
    packed: Buffer
    node: For


def option_of(func: PrimFunc) -> LayoutRewriteOption:
    """The option of a function. Raises WorkloadError if the attribute is no option."""
    value = func.attr(OPTION, LayoutRewriteOption.INSERT_TRANSFORM_STAGE)
    try:
        return LayoutRewriteOption(value)
    except ValueError as e:
        raise WorkloadError(
            f"attribute {OPTION} of {func.name} is {value!r}; expected 0, 1 or 2, the numbers of "
            "LayoutRewriteOption"
        ) from e


def with_option(func: PrimFunc, option: LayoutRewriteOption) -> PrimFunc:
    """`func` under an option; without an attribute for the default, so that it stays as it was."""
    attrs = {k: v for k, v in func.attrs if k != OPTION}
    if option is not LayoutRewriteOption.INSERT_TRANSFORM_STAGE:
        attrs[OPTION] = int(option)
    return derived(replace(func, attrs=tuple(sorted(attrs.items()))), func)


def transforms(func: PrimFunc) -> list[Transform]:
    """The stages that can leave a scheduled function, in program order.

    Such a stage stands at the root, reads a layout-free parameter and nothing else, and is the only
    one to read it, and the only one to write its result, which is an intermediate. A function with
    opaque blocks has none.
    """
    if has_opaque(func):
        return []
    free = set(func.attr("layout_free", ()))
    params = {id(b): b for b in func.params}
    readers: dict[int, int] = {}
    writers: dict[int, int] = {}
    for site in sites(func):
        for counts, accesses in ((readers, site.block.reads), (writers, site.block.writes)):
            for key in {id(a.buffer) for a in accesses}:
                counts[key] = counts.get(key, 0) + 1
    found = []
    for node in func.body:
        blocks = [s.block for s in sites(node)]
        if not isinstance(node, For) or len(blocks) != 1 or len(blocks[0].writes) != 1:
            continue
        read = {id(a.buffer): a.buffer for a in blocks[0].reads}
        packed = blocks[0].writes[0].buffer
        if len(read) != 1 or id(packed) in params or packed.align or writers[id(packed)] != 1:
            continue
        (weight,) = read.values()
        if id(weight) in params and weight.name in free and readers[id(weight)] == 1:
            found.append(Transform(weight, packed, node))
    return found


def split(func: PrimFunc) -> tuple[PrimFunc, Mapping[str, PrimFunc]]:
    """The kernel without its transform stages, and a function for each weight that had one.

    The kernel's parameter keeps the weight's name and has the shape of the packed weight. The
    functions take the weight and the packed weight, which they write; what they leave unwritten,
    padding, the kernel does not use.
    """
    moved = transforms(func)
    if not moved:
        return func, {}
    new = {id(t.packed): Buffer(t.weight.name, t.packed.shape, t.packed.dtype) for t in moved}
    by_weight = {id(t.weight): new[id(t.packed)] for t in moved}

    def block(b: Block) -> Block:
        return replace(b, reads=tuple(map(access, b.reads)), writes=tuple(map(access, b.writes)))

    def access(a: Access) -> Access:
        return Access(new[id(a.buffer)], a.indices) if id(a.buffer) in new else a

    gone = {id(t.node) for t in moved}
    kernel = replace(
        func,
        params=tuple(by_weight.get(id(b), b) for b in func.params),
        body=tuple(node for node in func.body if id(node) not in gone),
        allocs=tuple(b for b in func.allocs if id(b) not in new),
    )
    prepare = {
        t.weight.name: PrimFunc(
            f"{func.name}_prepare_{t.weight.name}", (t.weight, t.packed), (t.node,)
        )
        for t in moved
    }
    return map_func(kernel, block), prepare

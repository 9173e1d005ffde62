"""tensorize: a loop nest done by an intrinsic of the target."""

from __future__ import annotations

from dataclasses import replace

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.schedule.annotate import with_annotations
from autosched.schedule.check import refuse
from autosched.schedule.implement import implemented
from autosched.tir.annotations import UNTENSORIZED
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY, TensorIntrin, match
from autosched.tir.nodes import Block, Node, PrimFunc, path_to, replace_node, site_of, sites


def tensorize(func: PrimFunc, place: str | Var, intrin: str) -> PrimFunc:
    """Let an intrinsic do a loop nest. (TVM tensorize.)

    An implementation that is a function takes the place of the loops; the block that writes the
    result keeps the name. Else the loops stay, marked; the code generator matches them again after
    lowering and writes the intrinsic in their place, with its accumulators in registers below
    unrolled and serial loops of a reduction. Building raises CodegenError on a target without the
    features that it needs.

    Args:
        place: the outermost loop of the nest; or a block (by name), whose innermost loops are it.
        intrin: the name of a `TensorIntrin`.

    Legality: the loops are serial, without annotations and nested directly, with the extents of the
    intrinsic's meaning; the block computes what its block does; its accesses move through memory as
    there; no predicate of the block depends on the loops. Where a function takes their place, the
    block initialises nothing (decompose_reduction before). Population: the same for all candidates.

    rewrite: (dot_16x4_u8s8s32_vnni)
        for j, k in T.grid(16, 4):          for j in T.serial(16, annotations={'tensorize': …}):
            with T.block("C"):        ->        for k in T.serial(4, annotations={'tensorize': …}):
                C[vj] += A[vk] * B[vj, vk]          with T.block("C"): …
    """
    found = TensorIntrin.get(intrin)
    if isinstance(place, str):
        site = site_of(func, place)
        nest = site.loops[-len(found.loops) :]
    else:
        top = path_to(func, place)[-1]
        below = list(sites(top))
        if len(below) != 1:
            refuse(
                f"tensorize: expected one block below loop {place.name}; found {len(below)}", top
            )
        site = site_of(func, below[0].block.name)
        nest = site.loops[-len(below[0].loops) :]
        if len(nest) != len(found.loops):
            refuse(
                f"tensorize: {intrin} is a nest of {len(found.loops)} loops; found {len(nest)} "
                f"from {place.name} inwards",
                top,
            )
    for loop in nest:
        if any(key in UNTENSORIZED or key == KEY for key, _ in loop.annotations):
            refuse(f"tensorize: loop {loop.var.name} is annotated already", nest[0])
    matched = match(site, found)
    if isinstance(found.implementation, PrimFunc):
        return implemented(func, site, matched, found.implementation)
    node: Node = site.block
    for loop in reversed(nest):
        node = with_annotations(replace(loop, body=(node,)), {KEY: intrin})
    return replace_node(func, nest[0], (node,))


def accumulates_in_init(block: Block, intrin: TensorIntrin) -> bool:
    """Whether a function would accumulate in what the block initialises itself: decompose_reduction
    comes before."""
    by_function = isinstance(intrin.implementation, PrimFunc)
    return by_function and block.reducer is not None and block.init


def intrin_name(intrin: TensorIntrin | str, what: str) -> str:
    """The name of a registered intrinsic, given by name or as what `register` returned."""
    if isinstance(intrin, TensorIntrin):
        if TensorIntrin.get(intrin.name) is not intrin:
            raise ScheduleError(
                f"{what}: {intrin.name!r} is registered as another intrinsic; pass what "
                "TensorIntrin.register or TensorIntrin.get returned"
            )
        return intrin.name
    if not isinstance(intrin, str):
        raise ScheduleError(
            f"{what}: expected an intrinsic that TensorIntrin.register made, or its name; found "
            f"{shown(intrin)}"
        )
    return TensorIntrin.get(intrin).name

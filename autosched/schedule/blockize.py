"""blockize: a loop nest that has a name, and is one unit to the primitives around it.

Blocks hold no blocks here. A nest that TVM would make a block of is a loop with the annotation
`blockize`, the name of the unit; it holds one block, whose axes keep their bindings, so that
nothing of what is computed changes.
"""

from __future__ import annotations

from typing import NoReturn

from autosched.errors import ScheduleError
from autosched.schedule.annotate import with_annotations
from autosched.schedule.check import loop_vars, names, refuse
from autosched.schedule.place import block_names, unique_name
from autosched.tir.annotations import BLOCKIZE
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY
from autosched.tir.nodes import Block, For, PrimFunc, loops_of, path_to, replace_node, sites


def blockize(func: PrimFunc, loop: Var) -> tuple[PrimFunc, str]:
    """Make one unit of a loop nest, under the name of its block and `_o`. (TVM blockize.)

    `get_loops` of the unit are the loops around it, `tensorize` takes it as its nest, `annotate`
    its outermost loop; to primitives that take a block it is the block inside. Loops inside may
    change among themselves, loops around as well; a primitive that would move one from one side to
    the other, or the block out of them, is refused.

    Args:
        loop: the outermost loop of the nest.

    Returns the new program and the name of the unit.

    Legality: one block stands below the loop, which is no unit yet and is not done by an intrinsic;
    no binding has a digit of loops inside and around at once, and no predicate is on both, so that
    all iterations around run the same nest. Results cannot change.

    rewrite:
        for i, k in T.grid(16, 4):          for i in T.serial(16, annotations={'blockize': 'C_o'}):
            with T.block("C"):        ->        for k in T.serial(4):
                                                    with T.block("C"):
    """
    what = f"blockize({loop.name})"
    top = path_to(func, loop)[-1]
    below = list(sites(top))
    if len(below) != 1:
        found = ", ".join(s.block.name for s in below)
        refuse(f"{what}: a unit holds one block; below the loop stand {found}", top)
    marks = [k for k, _ in top.annotations if k in (BLOCKIZE, KEY)]
    if marks:
        refuse(f"{what}: the loop is annotated {marks[0]} already", top)
    inner = loop_vars(below[0].loops)
    _check_divided(below[0].block, inner, what)
    name = unique_name(block_names(func) | set(units_of(func)), f"{below[0].block.name}_o")
    return replace_node(func, top, (with_annotations(top, {BLOCKIZE: name}),)), name


def _check_divided(block: Block, inner: list[Var], what: str) -> None:
    """The unit runs the same nest wherever it is."""
    for axis, form in zip(block.iters, block.bindings, strict=True):
        mixed = form.split(inner)[1]
        if any(v not in inner for v in mixed.variables()):
            refuse(
                f"{what}: axis {axis.var.name} of {block.name} takes digits of loops inside and "
                f"around at once; fuse and split so that they are loops of one side ({form})",
                block,
            )
    for p in block.predicates:
        used = set(p.form.variables())
        if used & set(inner) and used - set(inner):
            refuse(
                f"{what}: a predicate of {block.name} is on loops inside and around, "
                f"{names(p.form.variables())}: the last unit would be a smaller one; choose "
                "factors that divide, or pad_axis first",
                block,
            )


def units_of(func: PrimFunc) -> dict[str, For]:
    """The units, by name. Raises ScheduleError where two nests have one name."""
    out: dict[str, For] = {}
    for loop in loops_of(func):
        name = loop.annotation(BLOCKIZE)
        if name is None:
            continue
        if name in out:
            refuse(f"two nests are units of the name {name!r}; unannotate one", loop)
        out[name] = loop
    return out


def unit_block(unit: For) -> str:
    """The name of the block of a unit. Raises ScheduleError if there are others by now."""
    found = [s.block.name for s in sites(unit)]
    if len(found) != 1:
        refuse(f"unit {unit.annotation(BLOCKIZE)!r} holds the blocks {', '.join(found)}", unit)
    return found[0]


def require_units(old: PrimFunc, new: PrimFunc) -> None:
    """Raise ScheduleError if `new`, made of `old`, has a loop on the other side of a unit's
    boundary, or the block of a unit in other loops."""
    after = units_of(new)
    for name, unit in units_of(old).items():
        if name not in after:
            _check_gone(new, unit, name)
            continue
        mine, now = _loops_below(unit), _loops_below(after[name])
        before = set(loop_vars(path_to(old, unit.var)[:-1]))
        around = loop_vars(path_to(new, after[name].var)[:-1])
        moved = [v for v in around if v in mine] + [v for v in now if v in before]
        if moved:
            _refuse(name, f"move loop {names(moved)} across its boundary")


def _loops_below(unit: For) -> dict[Var, None]:
    """The loops of a unit, its outermost included."""
    return {x.var: None for s in sites(unit) for x in s.loops}


def _check_gone(new: PrimFunc, unit: For, name: str) -> None:
    """A unit goes by unannotate, where an intrinsic's function takes its place, and with its block;
    else what has its axes is its block in other loops."""
    axes = {id(it.var) for s in sites(unit) for it in s.block.iters}
    kept = any(id(it.var) in axes for s in sites(new) for it in s.block.iters)
    if kept and all(x.var is not unit.var for x in loops_of(new)):
        _refuse(name, "take its nest apart")


def _refuse(name: str, how: str) -> NoReturn:
    raise ScheduleError(
        f"{name!r} is a blockized nest; this would {how}. Do it before blockize, or unannotate the "
        f"unit's {BLOCKIZE!r} first"
    )

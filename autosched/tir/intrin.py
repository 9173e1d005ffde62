"""Tensor intrinsics: what a machine instruction computes, and how it is done.

The meaning is a function of the loop IR: one nest of loops around one block, over small buffers.
The implementation is LLVM IR: a straight-line function of the operands, each the elements of one
buffer in row-major order as a vector. A schedule marks a loop nest that computes the same
(`Schedule.tensorize`); the nest stays in the program, so that its meaning never depends on the
implementation, and the code generator writes the implementation in its place.

Or the implementation is a function of the loop IR as well, over the same parameters: then it takes
the place of the nest in the program. Or it is an instruction of a GPU's warp (`WarpCode`), and the
meaning what one of its threads makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Union

from autosched.checks import instance, listed, text
from autosched.errors import ScheduleError
from autosched.tir.affine import Affine, Extents, always, same_int
from autosched.tir.annotations import UNTENSORIZED
from autosched.tir.dtypes import itemsize
from autosched.tir.expr import Call, Const, Expr, Slot, Var, walk
from autosched.tir.expr import same as same_expr
from autosched.tir.intrin_check import compare
from autosched.tir.intrin_code import Implementation, WarpCode, check_tiles, parse
from autosched.tir.nodes import Access, Block, Buffer, For, PrimFunc, Site, sites, strides
from autosched.tir.printer import format_expr
from autosched.tir.reducers import known_name

KEY = "tensorize"
"""The annotation of the loops of a marked nest: the intrinsic's name."""
_COMMUTATIVE = ("add", "mul", "min", "max")


@dataclass(frozen=True, eq=False)
class TensorIntrin:
    """A registered intrinsic. `features` are those of `Target.features` that it needs."""

    name: str
    meaning: PrimFunc
    implementation: Union[Implementation, PrimFunc, WarpCode]
    features: frozenset[str]

    @staticmethod
    def register(
        name: str,
        meaning: Union[PrimFunc, str],
        implementation: Union[str, PrimFunc, WarpCode],
        features: tuple[str, ...] = (),
    ) -> TensorIntrin:
        """Make an intrinsic known by name, in this process.

        Args:
            meaning: a function (or its script; te.create_prim_func makes one too) of one nest of
                serial loops of extent 2 or more, around one block that writes one element. A
                reduction is one of sum, prod, max, min; it accumulates in what is there, whether
                it initialises or not.
            implementation: LLVM IR, `define <16 x i32> @f(<4 x i8> %A, …) { … ret … }` in straight
                line, with one parameter for each buffer that is read, by its name, and, for a
                reduction, for the one accumulated in; what it returns is written. What it calls is
                declared before it. Element types are those of memory: i8, i16, i32, i64, float,
                double; bfloat16 is i16. Operands and result may all be x86_amx: tile registers,
                whose rows are the first dimension of a buffer (1 to 16 of up to 64 bytes), and may
                lie further apart than there. Or a function (or its script) over parameters of the
                same shapes and dtypes, in the same order, that computes the same: loops and blocks
                of any kind. It is tried on random arguments, and takes the place of the nest.
            features: what the target must have, by LLVM's names.

        Raises ScheduleError for what has not this form, or a name taken by another intrinsic.
        """
        name = text("the name of a tensor intrinsic", name, ScheduleError)
        if name in _REGISTRY:
            raise ScheduleError(f"tensor intrinsic {name!r} is registered already")
        _REGISTRY[name] = intrin_of(name, meaning, implementation, features)
        return _REGISTRY[name]

    @staticmethod
    def get(name: str) -> TensorIntrin:
        """The intrinsic of that name. Raises ScheduleError, listing those there are."""
        from autosched.codegen import intrinsics  # registers those that come along

        found = _REGISTRY.get(name) or intrinsics.made(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(sorted(_REGISTRY))
            raise ScheduleError(f"no tensor intrinsic {name!r}; known: {known}")
        return found

    @staticmethod
    def all() -> tuple[TensorIntrin, ...]:
        """All intrinsics that are registered, in the order in which they were."""
        import autosched.codegen.intrinsics  # noqa: F401  (registers those that come along)

        return tuple(_REGISTRY.values())

    @property
    def block(self) -> Block:
        """The block of the meaning."""
        return _nest_of(self.meaning, self.name)[1]

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops of the meaning, outermost first."""
        return _nest_of(self.meaning, self.name)[0]


_REGISTRY: dict[str, TensorIntrin] = {}


def intrin_of(
    name: str,
    meaning: Union[PrimFunc, str],
    implementation: Union[str, PrimFunc, WarpCode],
    features: tuple[str, ...],
) -> TensorIntrin:
    """What `TensorIntrin.register` makes known, checked. Raises ScheduleError."""
    if isinstance(meaning, str):
        from autosched.script import parse_func

        meaning = parse_func(meaning, check=False)
    what = f"tensor intrinsic {name!r}"
    expected_kind = "a function, or its script"
    instance(f"{what}: its meaning", meaning, PrimFunc, expected_kind, ScheduleError)
    listed(f"{what}: features", features, str, "text", ScheduleError)
    block = _nest_of(meaning, what)[1]
    if isinstance(implementation, str) and "prim_func" in implementation:
        from autosched.script import parse_func

        implementation = parse_func(implementation, check=False)
    if isinstance(implementation, PrimFunc):
        compare(meaning, block, implementation, what)
        return TensorIntrin(name, meaning, implementation, frozenset(features))
    if isinstance(implementation, WarpCode):
        return TensorIntrin(name, meaning, implementation, frozenset(features))
    expected_kind = "LLVM IR, or a function"
    instance(f"{what}: its implementation", implementation, str, expected_kind, ScheduleError)
    code = parse(implementation, what)
    expected = {f"%{a.buffer.name}" for a in block.reads}
    if block.reducer is not None:
        expected.add(f"%{block.writes[0].buffer.name}")
    if set(code.params) != expected:
        raise ScheduleError(
            f"{what}: the implementation takes {', '.join(code.params)}; its meaning needs "
            f"{', '.join(sorted(expected))}"
        )
    if code.tiles:
        check_tiles(block, what)
    return TensorIntrin(name, meaning, code, frozenset(features))


def elements(buffer: Buffer) -> int:
    """Elements of a buffer of a meaning: lanes of its operand."""
    return prod(int(n) for n in buffer.shape)


def _nest_of(func: PrimFunc, what: str) -> tuple[tuple[For, ...], Block]:
    """The loops and the block of a meaning. Raises ScheduleError if it is of another form."""
    found = list(sites(func))
    ok = len(found) == 1 and len(found[0].block.writes) == 1 and not found[0].block.predicates
    if not ok or not found[0].loops or any(len(x.body) != 1 for x in found[0].loops):
        raise ScheduleError(f"{what}: its meaning is one nest of loops around one block")
    loops, block = found[0].loops, found[0].block
    if any(x.kind != "serial" or int(x.extent) < 2 for x in loops):
        raise ScheduleError(f"{what}: the loops of its meaning are serial, of extent 2 or more")
    if block.reducer is not None and known_name(block.reducer) is None:
        raise ScheduleError(f"{what}: its meaning accumulates by sum, prod, max or min")
    if any(isinstance(x, Var) for x in walk(block.body[0])):
        raise ScheduleError(f"{what}: its meaning computes with elements only, not with axes")
    return loops, block


def warp_code(loop: For) -> WarpCode | None:
    """The instruction that the threads of a warp run in place of a loop, if one does."""
    name = loop.annotation(KEY)
    code = None if name is None else TensorIntrin.get(str(name)).implementation
    return code if isinstance(code, WarpCode) else None


@dataclass(frozen=True, eq=False)
class Match:
    """A loop nest that computes an intrinsic. `operands` maps buffers of the meaning, by name, to
    the accesses of `block` that stand for them; `write` is the one written."""

    intrin: TensorIntrin
    loops: tuple[For, ...]
    block: Block
    operands: Mapping[str, Access]
    write: Access


def match(site: Site, intrin: TensorIntrin) -> Match:
    """The innermost loops of `site` as the intrinsic.

    They are serial, each the only child of the one before, with the extents of the meaning; the
    block does the same to its elements; what it accesses lies in memory as in the meaning's dense
    buffers; and no predicate skips any of it. Raises ScheduleError: what was expected, what found.
    """
    wanted, meaning = _nest_of(intrin.meaning, intrin.name)
    what = f"tensorize({site.block.name}) as {intrin.name}"
    loops, block = site.loops[-len(wanted) :], site.block
    extents = site.extents()
    sizes = [x.extent for x in loops]
    if len(loops) != len(wanted) or not all(
        same_int(a, b.extent) for a, b in zip(sizes, wanted, strict=True)
    ):
        raise ScheduleError(
            f"{what}: expected loops of extents {[int(x.extent) for x in wanted]}, found "
            f"{[x.extent for x in loops]}; split and reorder first"
        )
    for loop in loops:
        notes = dict(loop.annotations)
        others = bool(notes.keys() & UNTENSORIZED) or notes.get(KEY, intrin.name) != intrin.name
        if loop.kind != "serial" or others or len(loop.body) != 1:
            raise ScheduleError(
                f"{what}: loop {loop.var.name} is not a plain serial loop with one child"
            )
    inner = {loop.var: model.var for loop, model in zip(loops, wanted, strict=True)}
    for p in block.predicates:
        if p.form.uses(inner) and not always(p.form.span(extents)[1] < p.bound):
            raise ScheduleError(
                f"{what}: a predicate of the block depends on the loops; expected whole tiles: "
                "choose factors that divide, or pad"
            )
    _check_kinds(block, meaning, inner, what)
    names = [r and known_name(r) for r in (block.reducer, meaning.reducer)]
    if names[0] != names[1] or len(block.writes) != 1:
        raise ScheduleError(
            f"{what}: expected a block that accumulates by {names[1]}, found {names[0]}"
        )
    # A function and a warp access single elements, wherever they lie.
    fits = _fit(intrin.implementation)
    if not fits(block.writes[0], block, meaning.writes[0], meaning, inner, extents):
        raise ScheduleError(f"{what}: {_layout(block.writes[0], meaning.writes[0])}")
    wrong = ""
    for slots in _unify(meaning.body[0], block.body[0], {}):
        pairs = [(meaning.reads[m], block.reads[b]) for m, b in slots.items()]
        odd = [(a, m) for m, a in pairs if not fits(a, block, m, meaning, inner, extents)]
        if not odd:
            operands = {m.buffer.name: a for m, a in pairs}
            return Match(intrin, loops, block, operands, block.writes[0])
        wrong = wrong or _layout(*odd[0])
    if not wrong:
        found, expected = (format_expr(b.body[0]) for b in (block, meaning))
        wrong = f"expected the value {expected} of each element, found {found}"
    raise ScheduleError(f"{what}: {wrong}")


def _fit(code: Union[Implementation, PrimFunc, WarpCode]) -> Callable[..., bool]:
    """What is asked of the place of an operand."""
    if isinstance(code, (PrimFunc, WarpCode)):
        return _same_loops
    return _same_rows if code.tiles else _same_place


def _check_kinds(block: Block, meaning: Block, inner: Mapping[Var, Var], what: str) -> None:
    for loop, model in inner.items():
        found, expected = (
            {it.kind for it, f in zip(b.iters, b.bindings, strict=True) if f.uses([v])}
            for b, v in ((block, loop), (meaning, model))
        )
        if found != expected:
            raise ScheduleError(
                f"{what}: loop {loop.name} runs over {' and '.join(sorted(found)) or 'no'} axes; "
                f"expected {' and '.join(sorted(expected))}"
            )


def _layout(access: Access, model: Access) -> str:
    shape = ", ".join(str(n) for n in model.buffer.shape)
    return (
        f"the elements of {access.buffer.name} do not lie in memory as those of "
        f"{model.buffer.name}: expected a dense ({shape}) of {model.buffer.dtype}; reorder the "
        "loops, or change its layout with cache_read or transform_layout"
    )


def _same_place(
    access: Access,
    block: Block,
    model: Access,
    meaning: Block,
    inner: Mapping[Var, Var],
    extents: Extents,
    rows: frozenset[Var] = frozenset(),
) -> bool:
    """Whether the loops move through the buffer as they do through the meaning's. Those that stand
    for `rows` may move forward by any constant."""
    if access.buffer.dtype != model.buffer.dtype:
        return False
    form = _offset(access, block, extents)
    wanted = _offset(model, meaning, {})
    if form is None or wanted is None:
        return False
    moved = form.split(inner)[1]
    if any(not isinstance(atom, Var) for atom, _ in moved.terms):
        return False
    for mine, theirs in inner.items():
        step = moved.coefficient(mine)
        if theirs in rows:
            if not isinstance(step, int) or step < 1:
                return False
        elif not same_int(step, wanted.coefficient(theirs)):
            return False
    return True


def _same_rows(
    access: Access,
    block: Block,
    model: Access,
    meaning: Block,
    inner: Mapping[Var, Var],
    extents: Extents,
) -> bool:
    """The same of a tile, whose rows are the first dimension of the meaning's buffer."""
    first = model.indices[0]
    assert isinstance(first, Affine)  # `check_tiles`
    rows = frozenset(first.substitute(meaning.values(), {}).variables())
    return _same_place(access, block, model, meaning, inner, extents, rows)


def pitch(access: Access, block: Block, row: Var, extents: Extents) -> int:
    """Bytes from one row of a tile to the next, of an access that `match` has found."""
    form = _offset(access, block, extents)
    step = form.coefficient(row) if form is not None else None
    assert isinstance(step, int)  # or `_same_rows` does not hold
    return step * itemsize(access.buffer.dtype)


def _same_loops(
    access: Access,
    block: Block,
    model: Access,
    meaning: Block,
    inner: Mapping[Var, Var],
    extents: Extents,
) -> bool:
    """Whether the loops that move through the buffer are those that move through the meaning's."""
    if access.buffer.dtype != model.buffer.dtype:
        return False
    moving: list[set[Var]] = []
    for a, b, n in ((access, block, extents), (model, meaning, {})):
        if not all(isinstance(i, Affine) for i in a.indices):
            return False
        forms = [i.substitute(b.values(), n) for i in a.indices if isinstance(i, Affine)]
        moving.append({v for f in forms for v in f.variables()})
    return {theirs for mine, theirs in inner.items() if mine in moving[0]} == moving[1]


def _offset(access: Access, block: Block, extents: Extents) -> Affine | None:
    """Elements from the buffer's start, over loops."""
    total = Affine(0)
    steps = strides(access.buffer.shape, access.buffer.align)
    for index, step in zip(access.indices, steps, strict=True):
        if not isinstance(index, Affine):
            return None
        total = total + index.substitute(block.values(), extents) * step
    return total


def operands(intrin: TensorIntrin, block: Block) -> Iterator[Mapping[str, int]]:
    """Ways in which a block computes what the intrinsic's does from elements of the same dtypes,
    wherever these lie: numbers of its reads by the names of the meaning's buffers."""
    model = intrin.block
    names = [b.reducer and known_name(b.reducer) for b in (block, model)]
    written = [[a.buffer.dtype for a in b.writes] for b in (block, model)]
    if names[0] != names[1] or written[0] != written[1] or len(block.body) != 1:
        return
    for slots in _unify(model.body[0], block.body[0], {}):
        yield {model.reads[m].buffer.name: b for m, b in slots.items()}


def _unify(a: Expr, b: Expr, slots: dict[int, int]) -> Iterator[dict[int, int]]:
    """Ways to take the slots of `a` for slots of `b` that make the two equal."""
    if isinstance(a, Slot) and isinstance(b, Slot):
        if a.dtype == b.dtype and slots.get(a.index, b.index) == b.index:
            yield {**slots, a.index: b.index}
    elif isinstance(a, Call) and isinstance(b, Call):
        if (a.op, a.dtype, len(a.args)) != (b.op, b.dtype, len(b.args)):
            return
        yield from _unify_all(a.args, b.args, slots)
        if a.op in _COMMUTATIVE:
            yield from _unify_all(a.args, b.args[::-1], slots)
    elif isinstance(a, Const) and same_expr(a, b):
        yield slots


def _unify_all(
    a: tuple[Expr, ...], b: tuple[Expr, ...], slots: dict[int, int]
) -> Iterator[dict[int, int]]:
    if not a:
        yield slots
        return
    for first in _unify(a[0], b[0], slots):
        yield from _unify_all(a[1:], b[1:], first)

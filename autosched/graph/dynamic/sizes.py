"""Arithmetic of sizes that the readings do not tell.

A model of one length is read at three. Sums, products and parts of sizes are functions of the
length that are known from these. Remainders, quotients, roundings and comparisons may agree at all
three and differ between: 64, 63 and 33 are no multiples of 5, and 40 is.

A number of windows, or another quotient, is followed as long as it grows by nothing or by one
number for each element of a length (`steps`): one that is affine at the readings then is between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from autosched.graph import ops
from autosched.graph.dynamic.counts import Atoms, Counts, Forms, is_quotient, step_of
from autosched.graph.dynamic.lengths import End, Grid
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Array, Atom, Call, Const, Var, type_of
from autosched.graph.onnx_import.scope import Origins
from autosched.graph.types import TensorType

Sizes = tuple[tuple[Call, Const], ...]
"""Calls, and what they made."""
Given = Mapping[int, tuple[Call, tuple[Atom | None, ...]]]
"""Calls by id, and their arguments before constants became attributes."""
Calls = Sequence[tuple[Call, Const]]
"""A call in each reading, and what it made."""

ROUNDED = frozenset({"Cast", "Ceil", "Floor", "Round", "Trunc"})
WATCHED = frozenset({"Div", "Equal", "Mod", *ROUNDED})
OF_SHAPES = frozenset({"Shape", "Size"})
JOINED = frozenset({"And", "Or", "Xor"})
"""Of two comparisons, each of which holds on one side of a size."""
PICKED = frozenset({
    "Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"
})  # fmt: skip
"""Operators whose results are elements of what is followed, or constants."""
OTHER = 0
"""How much a value grows by that is not followed: no integer may be computed from it, nor what a
branch may be taken by."""


def watched(origins: Origins) -> Sizes:
    """The calls of an import on sizes, and those on numbers and rows of them that are watched, in
    its order."""
    found = []
    sizes = set[int]()
    for call, _, made in origins.made.values():
        if call.callee in OF_SHAPES or any(id(a) in sizes for a in call.args):
            sizes.add(id(made))
        elif not _is_watched(call, made):
            continue
        found.append((call, made))
    return tuple(found)


def _is_watched(call: Call, made: Const) -> bool:
    if call.callee not in WATCHED or len(made.type.known) > 1:
        return False
    given = call.args[0]
    if call.callee not in ROUNDED:
        return not (call.callee == "Div" and _kind(given) == "f")
    return _kind(given) == "f" and (call.callee != "Cast" or "int" in str(call.attr("to")))


def _kind(atom: object) -> str:
    return atom.value.dtype.kind if isinstance(atom, Const) else ""


def check_sizes(
    counts: Counts,
    degrees: dict[int, int | None],
    readings: Sequence[Sizes],
    shape: Callable[[Atoms], Forms],
) -> None:
    """Note what the sizes in the readings, at the points of the grid, follow from (`shape` says it
    of the axes of a value), and the degrees of constants (`Told`) that are known by it. Raises
    Unsupported for a result that the readings do not tell."""
    grid = counts.grid
    names = {tuple(call.callee for call, _ in sizes) for sizes in readings}
    if len(names) != 1:
        raise Unsupported("other operators on sizes at other lengths")
    steps: dict[int, int] = {}
    for calls in zip(*readings, strict=True):
        call, made = calls[0]
        if _counted(counts, calls, shape):
            forms = counts.known[id(made)].ravel()
            varies = any(isinstance(f, End) for f in forms)
            degrees[id(made)] = 1 if varies else 0
            if any(map(is_quotient, forms)):
                steps[id(made)], degrees[id(made)] = step_of(forms), None
            continue
        step = _step(grid, calls, [steps.get(id(a)) for a in call.args])
        kind = made.value.dtype.kind
        if step == OTHER and (kind in "iu" or (kind == "b" and made.value.size == 1)):
            raise Unsupported(f"{call.callee} of a number of windows")
        if step is not None:
            steps[id(made)], degrees[id(made)] = step, None


def check_given(counts: Counts, readings: Sequence[Given], sizes: Sequence[Sizes]) -> None:
    """Raises Unsupported for sizes and places that operators are given, and that are computed from
    `sizes`, what each reading computed, in a way that the readings do not tell."""
    if len(set(map(len, readings))) != 1:
        raise Unsupported("other operators at other lengths")
    made = {id(calls[0][1]): calls for calls in zip(*sizes, strict=True)}
    for calls in zip(*(given.values() for given in readings), strict=True):
        name = str(calls[0][0].callee)
        names = ops.find(name).static
        for n, atoms in enumerate(zip(*(args for _, args in calls), strict=False)):
            if n in names and not _is_told(counts, made, atoms):
                raise Unsupported(
                    f"{name}: {names[n]} depends on the length in a way that the readings do not "
                    "tell"
                )


def _is_told(counts: Counts, made: Mapping[int, Calls], atoms: Atoms) -> bool:
    """Whether constants are counted, of a known degree, or products of such ones."""
    if not all(isinstance(a, Const) for a in atoms) or counts.degree(atoms) is not None:
        return True
    forms = counts.of(atoms)
    if forms is not None and all(f is not None for f in forms.ravel()):
        return True
    calls = made.get(id(atoms[0]), ())
    name = str(calls[0][0].callee) if calls else ""
    if name in OF_SHAPES:  # axes are followed on their own
        return True
    args = list(zip(*(call.args for call, _ in calls), strict=True))
    if name in PICKED - {"Concat"}:
        places = [counts.of(a) for a in args[1:]]
        fixed = all(f is not None and all(isinstance(x, int) for x in f.ravel()) for f in places)
        return fixed and _is_told(counts, made, args[0])
    return name in {"Mul", "Concat"} and all(_is_told(counts, made, a) for a in args)


def _counted(counts: Counts, calls: Calls, shape: Callable[[Atoms], Forms]) -> bool:
    """Whether what calls make of sizes is known exactly, which is noted then."""
    call, made = calls[0]
    if call.callee == "Shape":
        forms = shape([c.args[0] for c, _ in calls])[call.attr("start", 0) : call.attr("end")]
        return counts.keep(made, forms, [const.value for _, const in calls])
    args = zip(*(c.args for c, _ in calls), strict=True)
    return counts.note(calls, [counts.of(atoms) for atoms in args])


def _step(grid: Grid, calls: Calls, steps: Sequence[int | None]) -> int | None:
    """What the elements of a result grow by, or not, where they do not grow by whole elements;
    None for those that the readings tell. Raises Unsupported for what they do not tell."""
    name = str(calls[0][0].callee)
    made = [const.value for _, const in calls]
    if name in OF_SHAPES:
        rows = list(zip(*(_shape(call.args[0]) for call, _ in calls), strict=True))
        known = all(grid.affine(sizes) is not None for sizes in rows)
        return None if known else 1 if name == "Shape" else OTHER
    args = [[a.value for a in _constants(call)] for call, _ in calls]
    if all(s is None for s in steps):
        if name in JOINED and made[0].size == 1 and not _grow(args):
            raise Unsupported(f"{name} of comparisons of a size")
        if not _is_watched(*calls[0]) or _grow(args) or _known(grid, name, args, made):
            return None
        if name == "Div" and _is_quotient(grid, args):
            return 1
        raise Unsupported(f"{name} of a size is no multiple of the length and a number")
    alike = len({tuple(x for x in call.attrs if x[0] != "shape") for call, _ in calls}) == 1
    found = _followed(name, args, steps) if alike else OTHER
    same = found != OTHER and all(m.shape == made[0].shape for m in made)
    return None if same and made[0].dtype.kind in "iu" and grid.affine(made) is not None else found


def _followed(name: str, args: Sequence[Sequence[Array]], steps: Sequence[int | None]) -> int:
    """The same of what is computed from such."""
    given = [s for s in steps if s is not None]
    others = [a for a, s in zip(zip(*args, strict=True), steps, strict=True) if s is None]
    fixed = all(b.shape == a[0].shape and (b == a[0]).all() for a in others for b in a)
    if OTHER in given or not (name == "Concat" or fixed):
        return OTHER
    if name == "Concat" or (name in PICKED and steps[0] is not None):
        return max(given)
    if len(given) > 1 or name not in ("Add", "Div", "Max", "Min", "Mul", "Sub"):
        return OTHER
    (by, *_), step = others[0], given[0]
    if name == "Mul":
        return step * int(np.abs(by).max()) if by.size == 1 else OTHER
    if name == "Div":
        whole = args[0][0].dtype.kind in "iu" and all((a[0] >= 0).all() for a in args)
        return 1 if whole and steps[0] is not None and (by >= step).all() else OTHER
    return step if name in ("Add", "Sub") or step == 1 else OTHER


def _is_quotient(grid: Grid, args: Sequence[Sequence[Array]]) -> bool:
    """Whether it grows by nothing or by 1."""
    by = args[0][1]
    if any(a[0].shape != args[0][0].shape or (a[0] < 0).any() for a in args):
        return False
    same = all(a[1].shape == by.shape and (a[1] == by).all() for a in args)
    found = grid.affine([a[0] for a in args])
    return same and found is not None and all(
        ((s >= 0) & (s <= by)).all() for s in found.steps
    )  # fmt: skip


def _shape(atom: object) -> tuple[int, ...]:
    t = type_of(atom) if isinstance(atom, Const | Var) else None
    if not isinstance(t, TensorType) or not t.is_static:
        raise Unsupported("a size of a value whose shape is not known")
    return tuple(int(n) for n in t.known)


def _constants(call: Call) -> Iterator[Const]:
    return (a for a in call.args if isinstance(a, Const))


def _grow(args: Sequence[Sequence[Array]]) -> bool:
    """Whether the arguments are the same, or rows that the longer ones begin with."""
    for a, *others in zip(*args, strict=True):
        for shorter in others:
            if shorter.ndim != a.ndim or not np.array_equal(
                a[: len(shorter)] if a.ndim else a, shorter
            ):
                return False
    return True


def _known(grid: Grid, name: str, args: Sequence[Sequence[Array]], made: Sequence[Array]) -> bool:
    if any(a.shape != b.shape for others in args[1:] for a, b in zip(args[0], others, strict=True)):
        return False
    given = [a[0] for a in args]
    if name in ROUNDED:
        return all((x == y).all() for x, y in zip(given, made, strict=True)) and grid.multiple(
            made, 1
        )
    if name == "Equal":
        # Affine differences do not pass 0 between corners of one sign.
        less = [_wide(x) - _wide(y) for x, y in args]
        signs = [np.sign(d) for d in less]
        if less[0].dtype.kind == "f" or any((s != signs[0]).any() for s in signs[1:]):
            return False
        return grid.affine(less) is not None
    by = args[0][1]
    same = by.all() and all((others[1] == by).all() for others in args)
    return bool(same) and grid.multiple(given, np.broadcast_to(by, given[0].shape))


def _wide(a: Array) -> Array:
    return a.astype(np.float64 if a.dtype.kind == "f" else np.int64)

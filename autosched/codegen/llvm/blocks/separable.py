"""Sums of products with constant matrices, such as the transforms of a Winograd convolution:

    out[i, j] = sum over k, l of element[k, l] * first[i, k] * second[j, l]

by one matrix after the other, each a few sums of which what rows have in common is computed once.
Term by term a 6 x 6 tile takes 448 multiply-adds; this way it takes 144 operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import isfinite
from typing import TYPE_CHECKING

from autosched.codegen.llvm.blocks.find_tile import Tile
from autosched.codegen.llvm.blocks.points import Points
from autosched.codegen.llvm.blocks.tile import TileWriter
from autosched.codegen.llvm.index import chunks, lanes_of
from autosched.codegen.llvm.memory import Guard
from autosched.codegen.llvm.types import Value, literal, splat, suffix
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Expr, Slot, Var, walk
from autosched.tir.nodes import For
from autosched.tir.scatter import axes_of

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter

Terms = tuple[tuple[int, Fraction], ...]
"""A sum of variables, by number, times constants."""


def tile_writer(f: FunctionWriter, tile: Tile) -> TileWriter:
    """What writes a register tile."""
    matrices = _matrices(f, tile)
    return TileWriter(f, tile) if matrices is None else SeparableWriter(f, tile, matrices)


@dataclass(frozen=True)
class Matrix:
    """A constant factor of the sum: `row` and `column` are loops over results and over terms."""

    numbers: list[list[Fraction]]
    row: For
    column: For


@dataclass(frozen=True)
class Sums:
    """Linear forms over as many variables as the matrix has columns. `shared[n]` is the sum that
    variable `columns + n` stands for, `rows` are the forms."""

    columns: int
    shared: tuple[Terms, ...]
    rows: tuple[Terms, ...]

    @staticmethod
    def of(matrix: list[list[Fraction]]) -> Sums:
        """The rows of a matrix: a pair of variables that stands in two rows or more, in one
        proportion, becomes a variable, as long as there is one."""
        rows = [{n: c for n, c in enumerate(row) if c} for row in matrix]
        shared: list[Terms] = []
        columns = len(matrix[0])
        while True:
            pairs = Counter(p for row in rows for p in _pairs(row))
            best, count = max(pairs.items(), key=lambda p: p[1], default=(None, 0))
            if best is None or count < 2:
                return Sums(columns, tuple(shared), tuple(tuple(row.items()) for row in rows))
            one, other, ratio = best
            made = columns + len(shared)
            having = [row for row in rows if best in _pairs(row)]
            if ratio == -1 and all(row[one] < 0 for row in having):
                one, other = other, one  # so that a sum begins without a product
            shared.append(((one, Fraction(1)), (other, ratio)))
            for row in having:
                row[made] = row.pop(one)
                del row[other]


def _pairs(row: Mapping[int, Fraction]) -> Iterator[tuple[int, int, Fraction]]:
    """Pairs of variables of a row: the second is a whole number of times the first."""
    for a, b in combinations(row, 2):
        one, other = (a, b) if (row[b] / row[a]).denominator == 1 else (b, a)
        ratio = row[other] / row[one]
        if ratio.denominator == 1:
            yield one, other, ratio


def _matrices(f: FunctionWriter, tile: Tile) -> list[Matrix] | None:
    """The constant factors of the sum that a tile computes, if each has a loop of results and a
    loop of terms for itself, and these are all loops over terms; else None."""
    block, points = tile.block, f.points(tile.block)
    if not points.factors or tile.tensor is not None or len(block.writes) != 1:
        return None
    dtype = block.writes[0].buffer.dtype
    if not (dtypes.is_int(dtype) or dtype in ("float32", "float64")):
        return None
    loops = {loop.var: loop for loop in tile.loops if loop.kind == "unrolled"}
    axes = {it.var: binding for it, binding in zip(block.iters, block.bindings, strict=True)}
    found: list[Matrix] = []
    for factor in points.factors:
        over = {v for x in walk(factor) if isinstance(x, Var) for v in _plain(axes.get(x), x)}
        rows = [loops[v] for v in over if v in loops and v not in tile.reduce]
        columns = [loops[v] for v in over if v in loops and v in tile.reduce]
        if len(over) != 2 or len(rows) != 1 or len(columns) != 1:
            return None
        numbers = _numbers(f, points, factor, rows[0], columns[0])
        if numbers is None:
            return None
        found.append(Matrix(numbers, rows[0], columns[0]))
    used = [loop.var for m in found for loop in (m.row, m.column)]
    if len(set(used)) != len(used) or not tile.reduce <= set(used):
        return None
    pending = f.pending(block)
    rows_used = [m.row.var for m in found]
    element = _element(block.body[0])
    if element is None or any(p.form.uses(used) for p in pending):
        return None
    moved = (axes[x] for x in axes_of(element, block.reads) if x in axes)
    return None if any(form.uses(rows_used) for form in moved) else found


def _numbers(
    f: FunctionWriter, points: Points, factor: Expr, row: For, column: For
) -> list[list[Fraction]] | None:
    """The matrix that a factor is; None where some element is no finite number that is known."""
    env = f.index.env
    found: list[list[Fraction]] = []
    for i in range(int(row.extent)):
        found.append([])
        for k in range(int(column.extent)):
            env[row.var], env[column.var] = i, k
            value = points.constants.value(factor)
            if value is not None and isfinite(value.value):
                found[-1].append(Fraction(value.value))
    del env[row.var], env[column.var]
    return found if all(len(r) == int(column.extent) for r in found) else None


def _plain(form: Affine | None, var: Var) -> tuple[Var, ...]:
    """The loop that an axis is; of no single one, the axis, which is no loop of a tile."""
    found = None if form is None else form.single_var()
    return (var if found is None else found,)


def _element(body: Expr) -> Expr | None:
    """The only factor of a product that is no constant matrix."""
    if isinstance(body, Call) and body.op == "mul":
        found = [e for e in body.args if any(isinstance(x, Slot) for x in walk(e))]
        return _element(found[0]) if len(found) == 1 else None
    return body


class SeparableWriter(TileWriter):
    """Writes a register tile whose sum is taken matrix by matrix."""

    def __init__(self, f: FunctionWriter, tile: Tile, matrices: list[Matrix]) -> None:
        super().__init__(f, tile)
        self.matrices = matrices
        element = _element(self.block.body[0])
        assert element is not None  # `_matrices` has asked
        self.element = element

    def _loops(self, level: int) -> None:
        """All of the loops: for each place besides the rows of the matrices, its sums."""
        f, rows = self.f, {m.row.var for m in self.matrices}
        others = [loop for loop in self.unrolled if loop.var not in rows]
        sums = [Sums.of(m.numbers) for m in self.matrices]
        for values in product(*(range(int(loop.extent)) for loop in others)):
            f.index.env.update(zip((loop.var for loop in others), values, strict=True))
            if self.vector is None:
                self._sums(sums)
                continue
            for offset, width, active in chunks(int(self.vector.extent), self.width):
                f.index.env[self.vector.var] = offset
                f.index.lanes = lanes_of(self.vector.var, width, active)
                self._sums(sums)
        f.index.lanes = None

    def _sums(self, sums: list[Sums]) -> None:
        """The sums of one place, added to its accumulators."""
        env = self.f.index.env
        columns, rows = (
            [getattr(m, side).var for m in self.matrices] for side in ("column", "row")
        )
        env.update(dict.fromkeys([*columns, *rows], 0))
        first = self.points.at_start()
        lanes = self._lanes(self.f.index.lanes)
        values: dict[tuple[int, ...], Value] = {}
        for at in product(*map(_used, sums)):
            env.update(zip(columns, at, strict=True))
            element = self.points.scalars.evaluate(self.element, Guard())
            values[at] = self.f.index.widen(element, lanes)
        for n, forms in enumerate(sums):
            values = self._along(n, forms, values)
        for at, value in values.items():
            env.update(zip(rows, at, strict=True))
            ((name, *_), *_) = self.accumulators[self._key()]
            if first is not True:
                old = Value(
                    self.f.b.inst(f"load {value.type}, ptr {name}"), value.dtype, value.lanes
                )
                (value,) = self.points.combine(self.reducer, [old], [value])
            self.f.b.do(f"store {value.type} {value.ref}, ptr {name}")

    def _along(
        self, n: int, sums: Sums, values: Mapping[tuple[int, ...], Value]
    ) -> dict[tuple[int, ...], Value]:
        """The sums along the n-th index, which numbers rows of the matrix from then on; rows of 0
        are left out."""
        made: dict[tuple[int, ...], Value] = {}
        for rest in dict.fromkeys((at[:n], at[n + 1 :]) for at in values):
            before, after = rest
            known = {k: values[*before, k, *after] for k in _used(sums)}
            for terms in sums.shared:
                known[sums.columns + len(known) - len(_used(sums))] = self._sum(terms, known)
            for i, terms in enumerate(sums.rows):
                if terms:
                    made[*before, i, *after] = self._sum(terms, known)
        return made

    def _sum(self, terms: Terms, values: Mapping[int, Value]) -> Value:
        """The value of a form."""
        one, *others = sorted(terms, key=lambda term: term[1] != 1)
        found = values[one[0]] if one[1] == 1 else self._scaled(values[one[0]], one[1])
        for n, c in others:
            found = self._plus(found, values[n], c)
        return found

    def _scaled(self, x: Value, c: Fraction) -> Value:
        op = "mul" if dtypes.is_int(x.dtype) else "fmul"
        return Value(self.f.b.op(f"{op} {x.type} {x.ref}, {_number(c, x)}"), x.dtype, x.lanes)

    def _plus(self, total: Value, x: Value, c: Fraction) -> Value:
        """total + x * c: of floats rounded once."""
        b, f = self.f.b, "" if dtypes.is_int(x.dtype) else "f"
        if abs(c) == 1:
            op = "add" if c > 0 else "sub"
            ref = b.op(f"{f}{op} {x.type} {total.ref}, {x.ref}")
        elif f:
            name = f"llvm.{self.points.fused}.{suffix(x.dtype, x.lanes)}"
            b.declare(name, f"{x.type} @{name}({x.type}, {x.type}, {x.type})")
            ref = b.op(
                f"call {x.type} @{name}({x.type} {x.ref}, {x.type} {_number(c, x)}, "
                f"{x.type} {total.ref})"
            )
        else:
            ref = b.op(f"add {x.type} {total.ref}, {self._scaled(x, c).ref}")
        return Value(ref, x.dtype, x.lanes)


def _used(sums: Sums) -> list[int]:
    """Columns that are not 0 everywhere."""
    forms = (*sums.shared, *sums.rows)
    return sorted({n for terms in forms for n, _ in terms if n < sums.columns})


def _number(c: Fraction, x: Value) -> str:
    """A constant in all lanes."""
    value = int(c) if dtypes.is_int(x.dtype) else float(c)
    return splat(literal(value, x.dtype), x.dtype, x.lanes)

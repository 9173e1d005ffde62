"""Nests that four warps do together on tensor cores (`codegen/warp_intrinsics.py`): `wgmma`.

As `mma.py`, but for operands that the instruction reads from shared memory itself, and for all
columns of the unrolled loop along them at once. Both lie there in rows of 128 bytes, eight of which
are a matrix: a descriptor says where the first one begins, and how far the next ones are. Which
dimension a row runs along shows in the accesses: the terms, or the columns (`_trans`). So that
eight pieces of 16 bytes are in different banks, such arrays are swizzled (`writer.py`).

The instructions run while the threads go on: these begin to fetch for a later step, and wait then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from math import prod

from autosched.codegen.gpu.digits import Extents, simpler
from autosched.codegen.gpu.mma import LANE, Products, ProductWriter, place_of
from autosched.codegen.gpu.vectors import is_multiple
from autosched.codegen.warp_intrinsics import (
    COLUMNS,
    GROUP,
    LANE_COLUMNS,
    LANE_ROWS,
    MOST_COLUMNS,
    ROW_BYTES,
    group_columns,
)
from autosched.errors import CodegenError
from autosched.tir.affine import Affine, Digit, always
from autosched.tir.dtypes import itemsize
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, For, Predicate
from autosched.tir.simplify import substitute_loops

WARPS = "threadIdx.y"
"""The axis of warps; four neighbours are a warpgroup."""


EIGHT = 8
"""Rows of a matrix, and pieces of 16 bytes in one of its rows."""


@dataclass(frozen=True)
class _Matrices:
    """Elements from a matrix to the next one along its rows (`leading`) and across (`stride`);
    whether its rows run along the results."""

    leading: int
    stride: int
    trans: bool


class GroupWriter(ProductWriter):
    """Writes nests of products of warpgroups."""

    def group_products(self, p: Products) -> None:
        """One instruction for each iteration of the loops around but that along the columns."""
        block = p.found.block
        self.extents |= {x.var: x.extent for x in (*p.around, *p.found.loops)}
        lane = self.lane_of(p)
        warps = self.kernel.axes.get(WARPS)
        if warps is None or int(warps.extent) % GROUP:
            raise CodegenError(
                f"{block.name} is done by warpgroups, whose {GROUP} warps are neighbours along "
                f"{WARPS}; found {1 if warps is None else warps.extent} warps: bind a loop of "
                f"{GROUP} iterations along the rows to it, inside of all others"
            )
        inner = takewhile(
            lambda x: self.moves(p, "B", x) and not self.moves(p, "A", x), reversed(p.around)
        )
        columns = tuple(inner)[::-1]
        count = COLUMNS * prod(int(x.extent) for x in columns)
        kind = p.found.intrin.name.rsplit("_", 1)[1]
        if not group_columns(kind, count):
            raise CodegenError(
                f"{block.name}: a product of a warpgroup has up to {MOST_COLUMNS} columns, in the "
                f"innermost loops around it, of bytes a multiple of {2 * COLUMNS} where more than "
                f"{4 * COLUMNS}; found {count}"
            )
        left, right = self.matrices_of(p, "A", columns), self.matrices_of(p, "B", columns)
        asked = self.left(block.predicates)
        fixed = {lane, *(x.var for x in (*p.found.loops, *columns))}
        # Of all conditions: those around may be asked already.
        if any(q.form.uses(fixed) or self.parts_group(q) for q in block.predicates):
            raise CodegenError(
                f"{block.name}: some threads of a warpgroup have no part in a product; expected "
                "whole tiles: pad the axes (pad_axis) before they are split, and take no more "
                "columns than there are"
            )
        outer = p.around[: len(p.around) - len(columns)]
        own = [q for q in asked if q.form.uses([x.var for x in outer])]
        with self.inside(self.when([q for q in asked if q not in own])):
            self.emit(f"{self.helpers.warp('wgmma_fence')}();")
            with self.loops(outer), self.inside(self.when(own)):
                self.group_product(p, columns, count, (left, right))
            self.emit(f"{self.helpers.warp('wgmma_commit')}();")
            if not self.go_on:
                self.emit(f"{self.helpers.warp('wgmma_wait_0')}();")

    def parts_group(self, q: Predicate) -> bool:
        """Whether a condition may hold for some warps of a warpgroup alone."""
        warps = self.kernel.axes[WARPS]
        w, v = Var("w"), Var("v")
        extents = {**self.extents, w: GROUP, v: int(warps.extent) // GROUP}
        number = Affine.of(v, GROUP) + Affine.of(w)
        form = simpler(q.form.substitute({warps.var: number}, extents), extents)
        return form.uses([w])

    def moves(self, p: Products, name: str, loop: For) -> bool:
        """Whether a loop moves an operand."""
        form = place_of(p.found.operands[name], p.found.block, self.extents)
        return form is None or form.uses([loop.var])

    def matrices_of(self, p: Products, name: str, columns: Sequence[For]) -> _Matrices:
        """How an operand lies. Raises CodegenError where no descriptor says so."""
        block, access = p.found.block, p.found.operands[name]
        rows, pair, terms = (x.var for x in p.found.loops)
        size = ROW_BYTES // itemsize(access.buffer.dtype)
        g, t, w, v, high, low = (Var(x) for x in ("g", "t", "w", "v", "high", "low"))
        groups = int(self.kernel.axes[WARPS].extent) // GROUP
        values = {
            self.kernel.axes[LANE].var: Affine.of(g, LANE_COLUMNS) + Affine.of(t),
            self.kernel.axes[WARPS].var: Affine.of(v, GROUP) + Affine.of(w),
            terms: Affine.of(high, size) + Affine.of(low),
        }
        extents = {**self.extents, g: LANE_ROWS, t: LANE_COLUMNS, w: GROUP, v: groups}
        extents |= {high: 2, low: size}
        changed = substitute_loops(block, values)
        form = place_of(self.same(access, block, changed), changed, extents)
        mine = (g, t, w, high, low, rows, pair, *(x.var for x in columns))
        if form is not None and access.buffer.scope == "shared":
            found = [form.coefficient(x) for x in mine]
            for x, step in zip(mine, found, strict=True):
                form = form - Affine.of(x, step) if step != 0 else form
            row, one = EIGHT * size, EIGHT * EIGHT * size  # elements of a row, and of a matrix
            by_terms = [size, 1]
            if name == "A":
                fits = found == [row, 0, 2 * one, *by_terms, one, 0, *(0 for _ in columns)]
                trans, leading = False, 0
            else:
                many = _steps_of(columns, one)
                fits = found == [0, 2 * row, 0, *by_terms, 0, row, *many]
                trans, leading = not fits, 0
                if trans and size == EIGHT:
                    # Panels of eight times eight columns, where there is more than one.
                    many = _steps_of(columns[-1:], size)
                    leading = int(found[7]) if len(columns) > 1 else 0
                    panels = [leading] if len(columns) > 1 else []
                    fits = found == [0, 2, 0, one, row, 0, 1, *panels, *many]
                    fits = fits and all(int(x.extent) <= EIGHT for x in columns[-1:])
                    fits = fits and (not panels or (leading > 0 and columns[-1].extent == EIGHT))
            if fits and not form.uses(mine) and _is_aligned(form, size, extents):
                return _Matrices(leading, one, trans)
        raise CodegenError(
            f"{block.name}: {access.buffer.name} does not lie in shared memory as products of "
            f"warpgroups read it; expected rows of {EIGHT * ROW_BYTES} bytes along the terms (or, "
            "of halves, along the columns) that follow one another: cache_read with a layout that "
            f"has the last dimension cut by {EIGHT * size}, such as [[1, {EIGHT * size}], [0], "
            f"[1, 1, {EIGHT * size}]], and whole rows in each step"
        )

    def same(self, access: Access, block: Block, changed: Block) -> Access:
        """What has become of an access."""
        (here,) = (n for n, a in enumerate(block.reads) if a is access)
        return changed.reads[here]

    def group_product(
        self,
        p: Products,
        columns: Sequence[For],
        count: int,
        matrices: Sequence[_Matrices],
    ) -> None:
        """One instruction."""
        block, (rows, pair, terms) = p.found.block, p.found.loops
        results = []
        for point in product(*(range(int(x.extent)) for x in columns)):
            for i in range(2):
                for j in range(2):
                    at = {rows.var: Affine(i), pair.var: Affine(j), terms.var: Affine(0)}
                    at |= {x.var: Affine(n) for x, n in zip(columns, point, strict=True)}
                    exprs = self.exprs(substitute_loops(block, at))
                    results.append(self.element(exprs, exprs.block.writes[0]))
        warp = self.kernel.axes[WARPS].var
        first = {x.var: Affine(0) for x in p.found.loops}
        first |= {self.kernel.axes[LANE].var: Affine(0)}
        first[warp] = Affine.of(Digit(Affine.of(warp), GROUP, None), GROUP)
        first |= {x.var: Affine(0) for x in columns}
        exprs = self.exprs(substitute_loops(block, first))
        places = []
        for name, m in zip("AB", matrices, strict=True):
            access = p.found.operands[name]
            size = itemsize(access.buffer.dtype)
            place = self.plain_element(exprs, self.same(access, block, exprs.block))
            make = self.helpers.warp("matrix_descriptor")
            places.append(f"{make}(&{place}, {m.leading * size}, {m.stride * size})")
        self.first_values(p, results)
        if block.init:  # the instruction reads registers as they were at the last fence
            self.emit(f"{self.helpers.warp('wgmma_fence')}();")
        kind = p.found.intrin.name.rsplit("_", 1)[1]
        name = f"wgmma_m64n{count}k{p.code.terms}_{kind}{'_trans' if matrices[1].trans else ''}"
        self.emit(f"{self.helpers.warp(name)}({', '.join([*results, *places])});")


def _steps_of(columns: Sequence[For], step: int) -> list[int]:
    """Of loops that number columns in turn, by 8, the last one fastest: how far each moves."""
    found: list[int] = []
    for x in reversed(columns):
        found.insert(0, step)
        step *= int(x.extent)
    return found


def _is_aligned(form: Affine, size: int, extents: Extents) -> bool:
    """Whether products begin at whole pieces of rows: with a matrix, or with one of its rows' later
    terms."""
    one = EIGHT * EIGHT * size
    inside = Affine(form.const % one)
    for atom, c in form.terms:
        if not is_multiple(atom, c, one):
            inside = inside + Affine.of(atom, c)
    low, high = inside.span(extents)
    whole = always(inside.const % size == 0)
    whole = whole and all(is_multiple(atom, c, size) for atom, c in inside.terms)
    return whole and always(low >= 0) and always(high < EIGHT * size)

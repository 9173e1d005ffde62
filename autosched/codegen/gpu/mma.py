"""Nests that the 32 threads of a warp do together on tensor cores (`codegen/warp_intrinsics.py`).

As scheduled, each thread makes 2 by 2 results of a product from operands in shared memory, which is
what `mma.sync` gives it. Here the nest becomes that instruction: each thread loads its part of both
operands (a fragment) into registers, once for all products that stand in unrolled loops around and
use it, then the warp multiplies. Rows of 16 bytes in shared memory are loaded by `ldmatrix`, to
which each thread gives the place of one row; anything else goes by element.

That the threads are those of the instruction is a property of the accesses, which is checked: the
left operand does not move with the thread's column, nor the right one with its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.codegen.gpu.copies import CopyWriter
from autosched.codegen.gpu.digits import Extents, simpler
from autosched.codegen.gpu.kernel import Kernel
from autosched.codegen.gpu.reduce import is_first
from autosched.codegen.gpu.vectors import is_multiple, offset_of
from autosched.codegen.warp_intrinsics import LANE_COLUMNS, LANE_ROWS, ROW_BYTES
from autosched.errors import CodegenError, ScheduleError
from autosched.target.gpu import WARP
from autosched.tir.affine import Affine, Digit, always
from autosched.tir.dtypes import itemsize
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY, Match, TensorIntrin, match, warp_code
from autosched.tir.intrin_code import WarpCode
from autosched.tir.nodes import Access, Block, For, Node, Predicate, kind_vars, sites
from autosched.tir.simplify import substitute_loops

LANE = "threadIdx.x"
"""The axis whose 32 iterations are the threads of a warp."""


@dataclass(frozen=True, eq=False)
class Products:
    """A nest of an instruction, and the unrolled spatial loops `around` that hold it alone."""

    around: tuple[For, ...]
    found: Match

    @property
    def code(self) -> WarpCode:
        """The instruction."""
        code = self.found.intrin.implementation
        assert isinstance(code, WarpCode)  # or `products_at` does not find it
        return code


def products_at(node: Node, kernel: Kernel) -> Products | None:
    """The products that begin at `node`, of a kernel; None if none do.

    Raises CodegenError if a marked nest does not compute what its intrinsic does.
    """
    around: list[For] = []
    while isinstance(node, For) and node.annotation(KEY) is None:
        if node.kind != "unrolled" or len(node.body) != 1:
            return None
        around.append(node)
        node = node.body[0]
    if not isinstance(node, For):
        return None
    code = warp_code(node)
    if code is None:
        return None
    site, *others = sites(node)
    if others:
        raise CodegenError(
            f"loop {node.var.name} is marked as the intrinsic {node.annotation(KEY)}; expected a "
            f"nest of one block, found {', '.join(s.block.name for s in (site, *others))}"
        )
    if code.warps == 1 and any(x.var in kind_vars(site.block, "reduce") for x in around):
        return None  # of which each step loads fragments of its own
    whole = next(s for s in kernel.sites() if s.block is site.block)
    try:
        found = match(whole, TensorIntrin.get(str(node.annotation(KEY))))
    except ScheduleError as e:
        raise CodegenError(f"loop {node.var.name} is marked as an intrinsic: {e}") from e
    return Products(tuple(around), found)


class ProductWriter(CopyWriter):
    """Writes nests of products."""

    def products(self, p: Products) -> None:
        """Fragments of both operands, then the products of all `around`."""
        block, rows, columns, terms = p.found.block, *p.found.loops
        self.extents |= {x.var: x.extent for x in (*p.around, *p.found.loops)}
        left, right = (p.found.operands[name] for name in "AB")
        lane = self.lane_of(p)
        self.check_lanes(p, lane)
        asked = self.left(block.predicates)
        # Of all conditions: those around may be asked already.
        if any(q.form.uses({lane, *(x.var for x in p.found.loops)}) for q in block.predicates):
            raise CodegenError(
                f"{block.name}: some threads of a warp have no part in a product; expected whole "
                "tiles: pad the axes (pad_axis) before they are split"
            )
        own = [q for q in asked if q.form.uses([x.var for x in p.around])]
        with self.inside(self.when([q for q in asked if q not in own])):
            first = self.fragments(p, left, _Side(rows.var, columns.var, terms.var), 2, own)
            second = self.fragments(p, right, _Side(columns.var, rows.var, terms.var), 1, own)
            with self.loops(p.around), self.inside(self.when(own)):
                self.product(p, first, second)

    def lane_of(self, p: Products) -> Var:
        """The variable of the threads of a warp. Raises CodegenError if there are no 32."""
        axis = self.kernel.axes.get(LANE)
        if axis is None or axis.extent != WARP:
            raise CodegenError(
                f"{p.found.block.name} is done by warps, whose {WARP} threads are those of {LANE}; "
                f"found {1 if axis is None else axis.extent}: bind loops of {LANE_ROWS} by "
                f"{LANE_COLUMNS} iterations, along the rows and the columns, to it, and warps to "
                "threadIdx.y"
            )
        return axis.var

    def check_lanes(self, p: Products, lane: Var) -> None:
        """Raise CodegenError unless thread 4 * g + t has rows by g and columns by t."""
        rows, columns, _ = (x.var for x in p.found.loops)
        g, t = Var("g"), Var("t")
        block = substitute_loops(p.found.block, {lane: Affine.of(g, LANE_COLUMNS) + Affine.of(t)})
        extents = {**self.extents, g: LANE_ROWS, t: LANE_COLUMNS}
        number = {id(a): n for n, a in enumerate(p.found.block.reads)}
        for name, strange in (("A", (t, columns)), ("B", (g, rows))):
            access = p.found.operands[name]
            if access.buffer.scope != "shared":
                raise CodegenError(
                    f"{block.name}: {access.buffer.name} is in {access.buffer.scope} memory; "
                    "expected operands of products that warps do together in shared memory: "
                    "cache_read it, at a loop around the threads of the warp's products"
                )
            form = place_of(block.reads[number[id(access)]], block, extents)
            if form is None or form.uses(strange):
                side, other = ("rows", "columns") if name == "A" else ("columns", "rows")
                raise CodegenError(
                    f"{block.name}: expected thread 4 * g + t of a warp to have the {side} of "
                    f"{access.buffer.name} by {'g' if name == 'A' else 't'} alone, since all "
                    f"{other} share them: bind a loop of {LANE_ROWS} along the rows, then one of "
                    f"{LANE_COLUMNS} along the columns, to {LANE}"
                )
        written = place_of(block.writes[0], block, extents)
        if written is None or written.uses((g, t)) or block.writes[0].buffer.scope != "local":
            raise CodegenError(
                f"{block.name}: results of products that warps do together are local, 2 by 2 a "
                f"thread; {block.writes[0].buffer.name} is not: transform_layout, so that rows and "
                "columns of threads are dimensions of their own"
            )

    # Fragments

    def fragments(
        self, p: Products, access: Access, side: _Side, count: int, own: Sequence[Predicate]
    ) -> _Fragments:
        """Load what the thread gives to all products: `count` times 2 registers for each iteration
        of the loops around that move the operand, of those that exist (`own`)."""
        block = p.found.block
        form = place_of(access, block, self.extents)
        assert form is not None  # `check_lanes`
        loops = tuple(x for x in p.around if form.uses([x.var]))
        number, step = Affine(0), 2 * count
        for x in reversed(loops):
            number, step = number + Affine.of(x.var, step), step * int(x.extent)
        name = self.fresh(f"{access.buffer.name}_fragment")
        self.emit(f"unsigned int {name}[{step}];")
        made = _Fragments(name, number)
        others = [x.var for x in p.around if x not in loops]
        asked = [q for q in own if not q.form.uses(others)]
        row = ROW_BYTES // itemsize(access.buffer.dtype)
        if self.is_row(access, block, side.term, row):
            self.matrices(made, access, block, loops, self.rows_of(side, row, count), count, asked)
        elif count == 1 and row == 8 and self.is_turned(access, block, side):
            lane = Affine.of(self.kernel.axes[LANE].var)
            places = {
                self.kernel.axes[LANE].var: Affine(0),
                side.own: Affine(0),
                side.term: Affine.of(Digit(lane, 1, 16)),
            }
            self.matrices(made, access, block, loops, places, count, asked, "_trans")
        else:
            self.by_element(made, access, block, loops, side, count, asked)
        return made

    def is_row(self, access: Access, block: Block, v: Var, width: int) -> bool:
        """Whether iterations of the loop over `v` are neighbours, `width` at a time, that begin
        where `ldmatrix` may."""
        form = place_of(access, block, self.extents)
        if form is None or form.coefficient(v) != 1:
            return False
        rest = form - Affine.of(v)
        whole = all(is_multiple(atom, c, width) for atom, c in rest.terms)
        return not rest.uses([v]) and always(rest.const % width == 0) and whole

    def is_turned(self, access: Access, block: Block, side: _Side) -> bool:
        """Whether the 8 columns of a product are neighbours: rows of the matrix that is loaded are
        terms then."""
        t = Var("t")
        at = substitute_loops(block, {self.kernel.axes[LANE].var: Affine.of(t)})
        (here,) = (n for n, a in enumerate(block.reads) if a is access)
        form = place_of(at.reads[here], at, {**self.extents, t: LANE_COLUMNS})
        if form is None or (form.coefficient(t), form.coefficient(side.own)) != (2, 1):
            return False
        rest = form - Affine.of(t, 2) - Affine.of(side.own)
        whole = all(is_multiple(atom, c, 8) for atom, c in rest.terms)
        return not rest.uses([t, side.own]) and always(rest.const % 8 == 0) and whole

    def rows_of(self, side: _Side, row: int, count: int) -> dict[Var, Affine]:
        """Where the row lies whose place a thread gives to `ldmatrix`: thread 8 * m + n that of row
        n of matrix m."""
        lane = self.kernel.axes[LANE].var
        n, m = Affine.of(Digit(Affine.of(lane), 1, 8)), Affine.of(Digit(Affine.of(lane), 8, 2))
        zero = Affine(0)
        if count == 2:  # of the left operand: rows g and g + 8, then the second half of the terms
            last = Affine.of(Digit(Affine.of(lane), 16, None)) * row
            return {lane: n * LANE_COLUMNS, side.own: m, side.other: zero, side.term: last}
        column = Affine.of(Digit(Affine.of(lane), 1, 2))
        pair = Affine.of(Digit(Affine.of(lane), 2, 4))
        return {lane: pair, side.own: column, side.other: zero, side.term: m * row}

    def matrices(
        self,
        made: _Fragments,
        access: Access,
        block: Block,
        loops: tuple[For, ...],
        places: Mapping[Var, Affine],
        count: int,
        asked: Sequence[Predicate],
        suffix: str = "",
    ) -> None:
        """`ldmatrix` of 4 matrices at a time, or of the two that there are."""
        pairs = count == 1 and bool(loops) and int(loops[-1].extent) % 2 == 0
        pairs = pairs and not any(q.form.uses([loops[-1].var]) for q in asked)
        values, number = dict(places), made.number
        if pairs:
            half = For(Var(loops[-1].var.name), int(loops[-1].extent) // 2, (), "unrolled")
            last = Digit(Affine.of(self.kernel.axes[LANE].var), 16, None)
            values[loops[-1].var] = Affine.of(half.var, 2) + Affine.of(last)
            number = number.substitute({loops[-1].var: Affine.of(half.var, 2)})
            loops = (*loops[:-1], half)
        with self.loops(loops), self.inside(self.when(asked)):
            exprs = self.exprs(substitute_loops(block, values))
            (here,) = (n for n, a in enumerate(block.reads) if a is access)
            place = self.element(exprs, exprs.block.reads[here])
            helper = f"ldmatrix_x{4 if pairs or count == 2 else 2}{suffix}"
            to = f"&{made.name}[{self.forms.text(number)[0]}]"
            self.emit(f"{self.helpers.warp(helper)}({to}, &{place});")

    def by_element(
        self,
        made: _Fragments,
        access: Access,
        block: Block,
        loops: tuple[For, ...],
        side: _Side,
        count: int,
        asked: Sequence[Predicate],
    ) -> None:
        """Registers put together of single elements, the lowest bits first."""
        lane = Affine.of(self.kernel.axes[LANE].var)
        size = itemsize(access.buffer.dtype)
        each, row = 4 // size, ROW_BYTES // size
        mine = Affine.of(Digit(lane, 1, LANE_COLUMNS)) * each
        # The right operand's column of a fragment is numbered by g.
        whose = {}
        if count == 1:
            whose = {
                self.kernel.axes[LANE].var: Affine.of(Digit(lane, 8, None)),
                side.own: Affine.of(Digit(lane, 4, 2)),
            }
        (here,) = (n for n, a in enumerate(block.reads) if a is access)
        unsigned = "unsigned short" if size == 2 else "unsigned char"
        with self.loops(loops), self.inside(self.when(asked)):
            for register in range(2 * count):
                own, half = (register % 2, register // 2) if count == 2 else (0, register)
                parts = []
                for e in range(each):
                    values = {side.term: mine + half * row + e, side.other: Affine(0)}
                    values |= whose if count == 1 else {side.own: Affine(own)}
                    exprs = self.exprs(substitute_loops(block, values))
                    text = (
                        f"(unsigned int)({unsigned}){self.element(exprs, exprs.block.reads[here])}"
                    )
                    parts.append(f"{text} << {8 * size * e}" if e else text)
                to = f"{made.name}[{self.forms.text(made.number + register)[0]}]"
                self.emit(f"{to} = {' | '.join(parts)};")

    # The product

    def product(self, p: Products, first: _Fragments, second: _Fragments) -> None:
        """One instruction."""
        block, (rows, columns, terms) = p.found.block, p.found.loops
        results = []
        for i in range(2):
            for j in range(2):
                at = {rows.var: Affine(i), columns.var: Affine(j), terms.var: Affine(0)}
                exprs = self.exprs(substitute_loops(block, at))
                results.append(self.element(exprs, exprs.block.writes[0]))
        self.first_values(p, results)
        left, right = (f"&{f.name}[{self.forms.text(f.number)[0]}]" for f in (first, second))
        name = self.helpers.warp(p.found.intrin.name)
        self.emit(f"{name}({', '.join(results)}, {left}, {right});")

    def first_values(self, p: Products, results: Sequence[str]) -> None:
        """Zeros, where the first term of the sums is among those of a product."""
        if not p.found.block.init:
            return
        start = substitute_loops(p.found.block, {x.var: Affine(0) for x in p.found.loops})
        conditions = [f"{self.forms.text(f)[0]} == 0" for f in is_first(start)]
        with self.inside(f"if ({' && '.join(conditions)})" if conditions else ""):
            self.emit(" = ".join(results) + " = 0;")


def place_of(access: Access, block: Block, extents: Extents) -> Affine | None:
    """Elements from the start of the buffer, over loops; None if data decide."""
    form = offset_of(access, block, extents)
    return None if form is None else simpler(form, extents)


@dataclass(frozen=True)
class _Fragments:
    """Registers of an operand, and the number of the first of one product."""

    name: str
    number: Affine


@dataclass(frozen=True)
class _Side:
    """Loops of the nest: along an operand's own results, along the other's, and over the terms."""

    own: Var
    other: Var
    term: Var

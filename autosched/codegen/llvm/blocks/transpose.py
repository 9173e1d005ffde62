"""Copies that turn rows into columns: squares of elements, transposed in registers.

    for d: vectorized for j: out[.., d, j] = f(in[.., j, d])

One vector over j would gather its lanes from as many rows, an element of each. Here a square is
read as vectors along d, one a row, its lanes change places, and it is stored as vectors along j:
every line of memory is touched once, however far apart the rows lie (rows a power of two apart
fall on the same few places of a cache). Packing an operand that lies across the panel is such a
copy.

Of at most four columns that fill the rows of the result, such as the channels of an image, the rows
read are interleaved instead, and stored as one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.codegen.llvm.index import lanes_of
from autosched.codegen.llvm.memory import Guard
from autosched.codegen.llvm.types import Value
from autosched.tir.affine import Affine, same_int
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, For, Node, strides
from autosched.tir.size import Size

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter

MAX_SIDE = 16
"""Rows of a square: no more vectors than there are registers."""
SQUARES = 4
"""Squares beside each other before the next rows: memory is read in longer stretches."""
MAX_INTERLEAVED = 4
"""Vectors that are stored as one, element by element in turn."""


@dataclass(frozen=True)
class Transposition:
    """A loop whose neighbouring iterations read neighbours, what stands between, and the vectorised
    loop whose neighbouring iterations write neighbours."""

    along: For
    between: tuple[For, ...]
    across: For
    block: Block


def find_transposition(node: For, f: FunctionWriter) -> Transposition | None:
    """The transposing copy that starts at `node`, if one does that is worth it."""
    loops: list[For] = []
    inner: Node = node
    while isinstance(inner, For):
        if len(inner.body) != 1 or inner.allocs or isinstance(inner.extent, Size):
            return None
        if inner.kind not in ("serial", "unrolled", "vectorized"):
            return None
        loops.append(inner)
        inner = inner.body[0]
    along, *between, across = loops if len(loops) > 1 else (node, node)
    if not isinstance(inner, Block) or across.kind != "vectorized":
        return None
    if any(loop.kind == "vectorized" for loop in loops[:-1]) or not _elementwise(inner, f):
        return None
    side = _side(inner, f)
    points = f.points(inner)
    written = points.over_loops(inner.writes[0])
    if side < 4 or 2 * int(along.extent) < side or _step(written, across.var) != 1:
        return None
    if 2 * int(across.extent) < side and not _fills_rows(written, along, across):
        return None
    reads = [points.over_loops(a) for a in inner.reads]
    if any(_step(a, along.var) not in (0, 1) for a in reads):
        return None
    turned = any(_step(a, along.var) == 1 and _step(a, across.var) == -1 for a in reads)
    return Transposition(along, tuple(between), across, inner) if turned else None


def _elementwise(block: Block, f: FunctionWriter) -> bool:
    """Whether points are independent of each other and have one result that lanes can hold."""
    if block.reducer is not None or len(block.writes) != 1 or id(block) in f.carried:
        return False
    target = block.writes[0].buffer
    if target.dtype == "bool" or any(a.buffer is target for a in block.reads):
        return False
    return all(it.kind == "spatial" for it in block.iters)


def _side(block: Block, f: FunctionWriter) -> int:
    return min(f.width(block), MAX_SIDE)


def _step(access: Access, var: Var) -> int | None:
    """How far an iteration moves an access: 0 not at all, 1 to the next element, -1 farther; None
    if that depends. Dimensions of one element are none."""
    forms = [i for i in access.indices if isinstance(i, Affine)]
    if len(forms) != len(access.indices):
        return None
    forms = [i for i, n in zip(forms, access.buffer.shape, strict=True) if not same_int(n, 1)]
    if not forms:
        return 0
    *outer, last = forms
    if any(i.uses([var]) for i in outer):
        return None if last.uses([var]) else -1
    if not last.uses([var]):
        return 0
    plain = sum(v is var for v in last.variables()) == 1 and last.coefficient(var) == 1
    return 1 if plain else None


def _fills_rows(written: Access, along: For, across: For) -> bool:
    """Whether iterations of `across` write whole rows, and those of `along` rows in order: rows of
    a last dimension, or parts of one that follow each other."""
    count = int(across.extent)
    if not 1 < count <= MAX_INTERLEAVED:
        return False
    forms = [i for i in written.indices if isinstance(i, Affine)]
    if len(forms) != len(written.indices):
        return False
    *rows, last = forms
    if last.uses([along.var]):
        alone = not any(i.uses([along.var]) for i in rows)
        return alone and last.coefficient(along.var) == count
    if not rows or last.single_var() is not across.var:
        return False
    apart = strides(written.buffer.shape, written.buffer.align)[-2]
    step = rows[-1].coefficient(along.var) if rows[-1].uses([along.var]) else 0
    return step == 1 and same_int(apart, count)


class TransposeWriter:
    """Writes one transposing copy."""

    def __init__(self, f: FunctionWriter, found: Transposition) -> None:
        self.f, self.found, self.side = f, found, _side(found.block, f)
        self.points = f.points(found.block)
        written = self.points.over_loops(found.block.writes[0])
        self.interleaves = _fills_rows(written, found.along, found.across)

    def write(self) -> None:
        """Stretches of `SQUARES` squares along the rows, so that what is read of a row lies
        together; in one of them squares along the columns. What is left of both is masked."""
        along, squares = self.found.along, 1 if self.interleaves else SQUARES
        wide = squares * self.side
        whole, rest = divmod(int(along.extent), wide)
        self._counted(along, whole, wide, 0, lambda: self._between(0, squares, 0))
        if rest:
            self.f.index.env[along.var] = whole * wide
            self._between(0, *divmod(rest, self.side))
        self.f.index.env.pop(along.var, None)

    def _counted(
        self, loop: For, count: int, step: int, start: int | str, body: Callable[[], None]
    ) -> None:
        """`body` at so many steps of a loop from `start` on."""
        f, counter = self.f, Var(f"{loop.var.name}_square")

        def inside() -> None:
            at = f.index.env[counter]
            if isinstance(at, int) and isinstance(start, int):
                f.index.env[loop.var] = start + at * step
            else:
                far = at * step if isinstance(at, int) else f.b.op(f"mul nsw i64 {at}, {step}")
                f.index.env[loop.var] = f.b.op(f"add nsw i64 {start}, {far}") if start else far
            body()

        f.loop(counter, 0, count, inside)

    def _between(self, level: int, squares: int, rest: int) -> None:
        """The loops between, around so many squares of each stretch of rows and what is left."""
        between = self.found.between
        if level < len(between):
            loop, extent = between[level], int(between[level].extent)
            self.f.loop(loop.var, 0, extent, lambda: self._between(level + 1, squares, rest))
            return
        across, side, env = self.found.across, self.side, self.f.index.env
        whole, left = divmod(int(across.extent), side)
        start = env[self.found.along.var]
        self._counted(across, whole, side, 0, lambda: self._stretch(start, squares, rest, side))
        if left:
            env[across.var] = whole * side
            self._stretch(start, squares, rest, left)
        env.pop(across.var, None)

    def _stretch(self, start: int | str, squares: int, rest: int, count: int) -> None:
        """Squares of `count` rows one after the other, and what is left of the rows."""
        along, side = self.found.along, self.side
        self._counted(along, squares, side, start, lambda: self._square(side, count))
        if rest:
            self.f.index.env[along.var] = self._plus(start, squares * side)
            self._square(rest, count)
        self.f.index.env[along.var] = start

    def _square(self, depth: int, count: int) -> None:
        """`count` rows of `depth` elements, from where the loops stand."""
        env, along, across = self.f.index.env, self.found.along.var, self.found.across.var
        start, first = env[along], env[across]
        rows: list[Value | None] = []
        for n in range(count):
            env[across] = self._plus(first, n)
            rows.append(self._row(depth))
        env[across] = first
        whole = [v for v in rows if v is not None]
        if self.interleaves and depth == self.side and len(whole) == int(self.found.across.extent):
            if all(self._is_real(self._plus(first, n)) for n in range(count)):
                env[across] = first
                self._interleave(whole)
                return
            env[across] = first
        width = 1 << (count - 1).bit_length()
        columns = self._transposed(rows)
        for n in range(depth):
            env[along] = self._plus(start, n)
            self._store(columns[n], width, count)
        env[along] = start

    def _is_real(self, row: int | str) -> bool:
        """Whether all elements of a row's stretch are real, whatever the loops around do."""
        f = self.f
        f.index.env[self.found.across.var] = row
        f.index.lanes = lanes_of(self.found.along.var, self.side, self.side)
        found = self.points.guard(f.pending(self.found.block)) == Guard()
        f.index.lanes = None
        return found

    def _interleave(self, rows: Sequence[Value]) -> None:
        """Store the first element of each row, then the second of each, and so on."""
        count, b = len(rows), self.f.b
        kind, wide = rows[0].type, Value("poison", rows[0].dtype, 2 * self.side).type
        joined = ", ".join(f"i32 {n}" for n in range(2 * self.side))
        refs = [v.ref for v in rows] + ["poison"] * (MAX_INTERLEAVED - count)
        pairs = [
            b.op(f"shufflevector {kind} {x}, {kind} {y}, <{2 * self.side} x i32> <{joined}>")
            for x, y in (refs[:2], refs[2:])
        ]
        lanes = count * self.side
        order = ", ".join(f"i32 {n % count * self.side + n // count}" for n in range(lanes))
        ref = b.op(f"shufflevector {wide} {pairs[0]}, {wide} {pairs[1]}, <{lanes} x i32> <{order}>")
        access = self.found.block.writes[0]
        offset = self.points.offset(access, Guard())
        self.f.memory.store_run(access.buffer, offset, Value(ref, rows[0].dtype, lanes))

    def _plus(self, base: int | str, n: int) -> int | str:
        if isinstance(base, int):
            return base + n
        return self.f.b.op(f"add nsw i64 {base}, {n}") if n else base

    def _row(self, depth: int) -> Value | None:
        """One row's values, None where there is no such row."""
        f = self.f
        f.index.lanes = lanes_of(self.found.along.var, self.side, depth)
        guard = self.points.guard(f.pending(self.found.block))
        value = None
        if guard.scalar != "false":
            value = self.points.scalars.evaluate(self.found.block.body[0], guard)
            value = f.index.widen(value, self.side)
        f.index.lanes = None
        return value

    def _store(self, column: Value, width: int, count: int) -> None:
        f = self.f
        f.index.lanes = lanes_of(self.found.across.var, width, count)
        guard = self.points.guard(f.pending(self.found.block))
        value = self._lowest(column, width)
        if guard.scalar is None:
            f.store(self.points, [value], guard)
        else:
            f.branch(guard.scalar, lambda: f.store(self.points, [value], Guard(None, guard.mask)))
        f.index.lanes = None

    def _lowest(self, value: Value, width: int) -> Value:
        if width == value.lanes:
            return value
        picked = ", ".join(f"i32 {n}" for n in range(width))
        if width == 1:
            ref = self.f.b.op(f"extractelement {value.type} {value.ref}, i64 0")
        else:
            ref = self.f.b.op(
                f"shufflevector {value.type} {value.ref}, {value.type} poison, "
                f"<{width} x i32> <{picked}>"
            )
        return Value(ref, value.dtype, width)

    def _transposed(self, rows: Sequence[Value | None]) -> list[Value]:
        """The columns of a square: blocks of half the side change places, then of a quarter, …
        (J. O. Eklundh, A fast computer method for matrix transposing, 1972)."""
        side = self.side
        dtype = next((v.dtype for v in rows if v is not None), self._dtype)
        kind = Value("poison", dtype, side).type
        refs = [v.ref if v is not None else "poison" for v in rows]
        refs += ["poison"] * (side - len(refs))
        half = side // 2
        while half:
            low = ", ".join(f"i32 {n if not n & half else side + n - half}" for n in range(side))
            high = ", ".join(f"i32 {n + half if not n & half else side + n}" for n in range(side))
            for n in range(side):
                if not n & half:
                    a, b = refs[n], refs[n + half]
                    refs[n], refs[n + half] = (
                        self.f.b.op(
                            f"shufflevector {kind} {a}, {kind} {b}, <{side} x i32> <{order}>"
                        )
                        for order in (low, high)
                    )
            half //= 2
        return [Value(ref, dtype, side) for ref in refs]

    @property
    def _dtype(self) -> str:
        return self.found.block.writes[0].buffer.dtype

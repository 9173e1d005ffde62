"""The loop IR: functions over buffers, loops, and blocks with spatial and reduction axes.

A `PrimFunc` is a tree of `For` loops with `Block` leaves. A block states one elementary
computation over its own axes (`iters`); the loops around it say in which order the points are
visited, through `bindings` (axis = affine form of the loop variables) and `predicates` (points of
the loop nest that are skipped). Primitives therefore rewrite loops, bindings and predicates, never
a body. Nodes are immutable and compare by identity.

Extents, coefficients and bounds are `Int`: in a population they are arrays, one number a candidate;
in a program for all sizes they may be symbolic (`tir/size.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Union

from autosched.checks import instance, mapping
from autosched.errors import ArgumentError, ScheduleError
from autosched.tir.affine import Affine, Int, same_int
from autosched.tir.expr import Expr, Var
from autosched.tir.extern import Extern
from autosched.tir.shown import Shown
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar

IterKind = Literal["spatial", "reduce", "sequential"]
"""`sequential` axes must be visited in order (recurrences)."""
LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread")
THREADS = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz")
"""GPU axes that loops of kind "thread" are bound to."""
Index = Union[Affine, Expr]
"""One index of an access: affine in the block's axes, or any int64 expression (an index read from
a buffer, say), which analysis takes to reach the whole dimension."""
Annotations = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """A row-major array in memory. `scope`: "global", "local" for a per-thread scratch, "shared"
    for one a GPU thread block, and others (`scope.py`).

    `align` holds (axis, factor, offset), sorted by axis: the stride of `axis`, in elements, is the
    smallest that fits with `stride % factor == offset`. Without, the array is dense. It is a wish
    of the program, not a number, since lowering shrinks intermediates; only they may have it.
    """

    name: str
    shape: tuple[Int, ...]
    dtype: str
    scope: str = "global"
    align: tuple[tuple[int, Int, Int], ...] = ()

    def __repr__(self) -> str:
        return f"Buffer({self.name}, {self.shape}, {self.dtype}, {self.scope})"


def strides(shape: Sequence[Any], align: Sequence[tuple[int, Any, Any]] = ()) -> list[Any]:
    """Elements from one index to the next, for each dimension; of ints or arrays."""
    out: list[Any] = []
    step: Any = 1
    for axis in reversed(range(len(shape))):
        for aligned, factor, offset in align:
            if aligned == axis:
                step = step + (offset - step) % factor
        out.append(step)
        step = step * shape[axis]
    return out[::-1]


def allocated(shape: Sequence[Any], align: Sequence[tuple[int, Any, Any]] = ()) -> Any:
    """Elements in memory of a buffer of this shape and alignment."""
    return strides(shape, align)[0] * shape[0] if shape else 1


@dataclass(frozen=True, eq=False, slots=True)
class Access:
    """One element of a buffer, named by one index a dimension."""

    buffer: Buffer
    indices: tuple[Index, ...]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Element(Expr):
    """The value of an element, in expressions of a routine (`tir/routine.py`)."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Pointer(Expr):
    """The memory of a buffer, as an argument of a C function; of the buffer's dtype."""

    buffer: Buffer
    dtype: str


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ExternCall(Expr):
    """The value of a call of a C function, in expressions of a routine."""

    function: Extern
    indices: tuple[Expr, ...]
    """The arguments; called so for `expr.children`."""
    dtype: str


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Foreign(Expr):
    """The value of a block that does something else than compute an expression; a subclass defines
    how it prints and runs (`tir/opaque.py`). Abstract by NotImplementedError: with `abc` each
    isinstance of the passes, which ask every block, would go through Python."""

    dtype: str

    def text(self, names: Any, depth: int) -> list[str]:
        """Lines of its statements, `depth` deep; `names` are the printer's."""
        raise NotImplementedError

    def run(self, block: Block, memory: Mapping[int, Any]) -> None:
        """Do what `block` does on `memory`, which maps buffers (by id) to arrays."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, slots=True)
class Iter:
    """An axis of a block: the variable runs over [0, extent)."""

    var: Var
    extent: Int
    kind: IterKind = "spatial"


@dataclass(frozen=True, eq=False, slots=True)
class Predicate:
    """The condition `form < bound` over loop variables. (`x >= 0` is `-x < 1`.)"""

    form: Affine
    bound: Int


@dataclass(frozen=True, eq=False, slots=True)
class Reducer:
    """A commutative, associative combination of tuples.

    `combine[n]` computes element n from the variables `lhs` (accumulated) and `rhs` (new);
    `identity[n]` is a constant with combine(identity, x) == x.
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    combine: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """One elementary computation over the axes `iters`.

    For each point: `writes[n] = body[n]` or, with a reducer, `writes[n] = combine(writes,
    body)[n]`. Bodies are expressions over the axes' variables and over `Slot(k)`, the value of
    `reads[k]`. With a reducer and `init`, the element is set to the identity at the first point of
    the reduction axes (all of them 0); without `init`, an earlier block has initialised it.
    `annotations` are sorted by key; keys that mean something are in `tir.annotations`.
    """

    name: str
    iters: tuple[Iter, ...]
    bindings: tuple[Affine, ...]
    predicates: tuple[Predicate, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    body: tuple[Expr, ...]
    reducer: Reducer | None = None
    init: bool = True
    annotations: Annotations = ()

    @property
    def is_reduction(self) -> bool:
        """Whether points combine into elements."""
        return self.reducer is not None

    def values(self) -> dict[Var, Affine]:
        """Axis variable -> its binding."""
        return {i.var: b for i, b in zip(self.iters, self.bindings, strict=True)}

    def annotation(self, key: str, default: Any = None) -> Any:
        """Value of an annotation."""
        return dict(self.annotations).get(key, default)


def foreign(node: Node) -> Foreign | None:
    """What a block does, where that is no expression; None for every other block, and loops."""
    value = node.body[0] if isinstance(node, Block) and node.body else None
    return value if isinstance(value, Foreign) else None


def chained(outer: For, inner: For) -> bool:
    """Whether `inner`, bound to the axis that `outer` is bound to, continues its iteration space:
    nothing but loops bound to that axis stands between, and blocks below use both, or `outer` has
    one iteration."""
    node: Node = outer
    while node is not inner:
        if not isinstance(node, For) or len(node.body) != 1 or node.thread != outer.thread:
            return False
        (node,) = node.body
    return same_int(outer.extent, 1) or any(
        form.uses([outer.var])
        for s in sites(inner)
        for form in (*s.block.bindings, *(p.form for p in s.block.predicates))
    )


def kind_vars(block: Block, kind: IterKind) -> set[Var]:
    """Loop variables in the bindings of the axes of one kind."""
    return {
        v
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind == kind
        for v in b.variables()
    }


@dataclass(frozen=True, eq=False, slots=True)
class For:
    """A loop: `var` in [0, extent). `allocs` are buffers that live for one iteration (lowered
    form)."""

    var: Var
    extent: Int
    body: tuple[Node, ...]
    kind: str = "serial"
    thread: str | None = None
    annotations: Annotations = ()
    allocs: tuple[Buffer, ...] = ()

    def annotation(self, key: str, default: Any = None) -> Any:
        """Value of an annotation."""
        return dict(self.annotations).get(key, default)


Node = Union[For, Block]
CONSTANT_AXES = "auto_scheduler_simplify_const_tensor_indices"
"""Block annotation: the names of the loops, as the user gave them, whose axes index constant
matrices, as in the transforms of a Winograd convolution. It also says that terms with a constant
factor 0 may be left out, which differs only where the other factor is NaN or infinite."""


@dataclass(frozen=True, eq=False, slots=True)
class PrimFunc(Shown):
    """A function over buffers. `params` are its arguments in call order, inputs and outputs; every
    other buffer in the body is an intermediate. `allocs` places intermediates (lowered form
    only)."""

    name: str
    params: tuple[Buffer, ...]
    body: tuple[Node, ...]
    attrs: Annotations = ()
    allocs: tuple[Buffer, ...] = field(default=())
    admitted: bool = field(default=False, init=False, repr=False)
    """Whether the rules of the loop IR are known to hold; only `tir/admit.py` says so. What
    `replace` makes is not admitted."""

    def script(self) -> str:
        """The function as script text."""
        from autosched.tir.printer import script

        return script(self)

    def same(self, other: PrimFunc) -> bool:
        """Whether both are structurally equal: the names of variables do not count. `==` is
        identity."""
        from autosched.tir.equal import same_func

        instance("same: the other", other, PrimFunc, "a PrimFunc", ScheduleError)
        return same_func(self, other)

    def attr(self, key: str, default: Any = None) -> Any:
        """Value of an attribute."""
        return dict(self.attrs).get(key, default) if isinstance(key, str) else default

    @property
    def sizes(self) -> tuple[SizeVar, ...]:
        """The symbolic sizes, in the order in which they appear in the parameters' shapes."""
        extents = (n for b in self.params for n in b.shape if isinstance(n, Size))
        return tuple(dict.fromkeys(v for n in extents for v in n.variables()))

    def specialize(self, sizes: Mapping[str, int] | None = None, **named: int) -> PrimFunc:
        """The function with symbolic sizes, by name, made constants: `func.specialize(n=1024)`.

        Raises ArgumentError for a name that is no size of the function and a value below 1.
        """
        from autosched.tir.admit import derived
        from autosched.tir.numbers import specialize

        given = mapping("sizes", sizes, "a mapping from names to numbers", ArgumentError)
        return derived(specialize(self, {**given, **named}), self)

    def __str__(self) -> str:
        return self.script()


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """A block and the loops around it, outermost first."""

    block: Block
    loops: tuple[For, ...]

    def extents(self) -> dict[Var, Int]:
        """Loop variable -> extent."""
        return {loop.var: loop.extent for loop in self.loops}


def sites(root: PrimFunc | For | Block) -> Iterator[Site]:
    """Every block below `root` in program order; `loops` starts at `root` if that is a loop."""

    stack: list[tuple[Node, tuple[For, ...]]]
    stack = [(node, ()) for node in reversed(root.body if isinstance(root, PrimFunc) else (root,))]
    while stack:
        node, loops = stack.pop()
        if isinstance(node, Block):
            yield Site(node, loops)
        else:
            inside = (*loops, node)
            stack += [(child, inside) for child in reversed(node.body)]


def site_of(func: PrimFunc, name: str) -> Site:
    """The block called `name`. Raises ScheduleError, listing the blocks there are."""
    for site in sites(func):
        if site.block.name == name:
            return site
    known = ", ".join(s.block.name for s in sites(func))
    raise ScheduleError(f"no block named {name!r} in {func.name}; it has {known}")


def loops_of(func: PrimFunc) -> Iterator[For]:
    """Every loop, parents first, in program order."""

    def visit(nodes: tuple[Node, ...]) -> Iterator[For]:
        for node in nodes:
            if isinstance(node, For):
                yield node
                yield from visit(node.body)

    yield from visit(func.body)


def path_to(func: PrimFunc, var: Var) -> tuple[For, ...]:
    """The loops from the outermost down to the one over `var`, itself included."""

    def visit(nodes: tuple[Node, ...], path: tuple[For, ...]) -> tuple[For, ...] | None:
        for node in nodes:
            if isinstance(node, For):
                here = (*path, node)
                if node.var is var:
                    return here
                found = visit(node.body, here)
                if found is not None:
                    return found
        return None

    found = visit(func.body, ())
    if found is None:
        raise ScheduleError(f"loop {var.name} is not in {func.name} any more")
    return found


def replace_node(func: PrimFunc, old: Node, new: tuple[Node, ...]) -> PrimFunc:
    """`func` with the node `old` (by identity) replaced by zero or more nodes.

    A loop left without a body is removed as well.
    """
    found = False

    def visit(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        nonlocal found
        out: list[Node] = []
        for node in nodes:
            if node is old:
                found = True
                out.extend(new)
            elif isinstance(node, For) and not found:
                body = visit(node.body)
                if found:
                    if body:
                        out.append(replace(node, body=body))
                else:
                    out.append(node)
            else:
                out.append(node)
        return tuple(out)

    body = visit(func.body)
    if not found:
        raise ScheduleError(f"the node to replace is not in {func.name}")
    return replace(func, body=body)


def map_blocks(node: Node, change: Callable[[Block], Block]) -> Node:
    """`node` with every block below it changed; shares what stays the same."""
    if isinstance(node, Block):
        return change(node)
    body = tuple(map_blocks(child, change) for child in node.body)
    if all(a is b for a, b in zip(body, node.body, strict=True)):
        return node
    return replace(node, body=body)


def map_func(func: PrimFunc, change: Callable[[Block], Block]) -> PrimFunc:
    """`func` with every block changed."""
    return replace(func, body=tuple(map_blocks(node, change) for node in func.body))


def buffers_of(root: PrimFunc | For | Block) -> list[Buffer]:
    """Every buffer accessed below `root`, in order of first appearance (writes of a block last)."""
    seen: dict[int, Buffer] = {}
    for site in sites(root):
        for access in (*site.block.reads, *site.block.writes):
            seen.setdefault(id(access.buffer), access.buffer)
    return list(seen.values())


def writers_of(func: PrimFunc, buffer: Buffer) -> list[Site]:
    """Blocks that write `buffer`, in program order."""
    return [s for s in sites(func) if any(a.buffer is buffer for a in s.block.writes)]


def readers_of(func: PrimFunc, buffer: Buffer) -> list[Site]:
    """Blocks that read `buffer`, in program order."""
    return [s for s in sites(func) if any(a.buffer is buffer for a in s.block.reads)]


def outputs_of(func: PrimFunc) -> list[Buffer]:
    """Parameters that some block writes."""
    written = {id(a.buffer) for s in sites(func) for a in s.block.writes}
    return [b for b in func.params if id(b) in written]


def inputs_of(func: PrimFunc) -> list[Buffer]:
    """Parameters that no block writes."""
    written = {id(a.buffer) for s in sites(func) for a in s.block.writes}
    return [b for b in func.params if id(b) not in written]

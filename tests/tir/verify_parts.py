"""What the programs of verify_illegal.py and verify_legal.py are put together from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from verify_programs import Copy, of

from autosched.script import parse_func
from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.height import MAX_HEIGHT
from autosched.tir.nodes import Access, Buffer, For, Iter, PrimFunc, Reducer
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


@dataclass(frozen=True)
class Illegal:
    """A program that breaks `rule` alone, or also those of which it is one case; `says` is a part
    of the message."""

    rule: str
    says: str
    make: Callable[[], PrimFunc]
    also: frozenset[str] = frozenset()


def text(body: str, *params: str, inner: str = "") -> Callable[[], PrimFunc]:
    """A program over A, B and more vectors of 16 floats, of the lines of its body."""
    described = {x.partition(":")[0]: x for x in ("A", "B", *params)}
    hints = ", ".join(
        x if ":" in x else f'{x}: T.Buffer((16,), "float32")' for x in described.values()
    )
    lines = [*inner.strip().splitlines(), *body.strip("\n").splitlines()]
    whole = f"@T.prim_func\ndef main({hints}):\n" + "\n".join(f"    {x}" for x in lines) + "\n"
    return lambda: parse_func(whole, check=False)


def block(
    store: str, loops: str = "i", grid: str = "16", axes: str = "v = T.axis.spatial(16, i)",
    name: str = "b", where: str = "", kind: str = "",
) -> str:  # fmt: skip
    """A nest around one block; `axes` and `store` are lines, joined by semicolons."""
    head = f"for {loops} in T.{kind}({grid}):" if kind else f"for {loops} in T.grid({grid}):"
    inside = [*axes.split("; "), *([f"T.where({where})"] if where else []), *store.split("; ")]
    return "\n".join([head, f'    with T.block("{name}"):', *(f"        {x}" for x in inside if x)])


def below(head: str, *nests: str) -> str:
    """Nests inside a loop."""
    return "\n".join([head, *(f"    {x}" for nest in nests for x in nest.splitlines())])


def total(element: str, read: str) -> str:
    """The statements of a sum."""
    return f"with T.init(): {element} = T.float32(0); {element} = {element} + A[{read}]"


def both(loop: str, first: str, second: str) -> str:
    """Two blocks, c and d, over one loop of 16."""
    nests = [
        f'with T.block("{name}"):\n    v = T.axis.spatial(16, i)\n    {store}'
        for name, store in (("c", first), ("d", second))
    ]
    return below(loop, *nests)


COPY = block("B[v] = A[v]")


def copy_with(**fields: object) -> Callable[[], PrimFunc]:
    def make() -> PrimFunc:
        return Copy().with_block(**fields)

    return make


def of_copy(change: Callable[[Copy], PrimFunc]) -> Callable[[], PrimFunc]:
    return lambda: change(Copy())


def deep(p: Copy) -> PrimFunc:
    body: Expr = Slot(0, "float32")
    for _ in range(MAX_HEIGHT):
        body = Call("neg", (body,), "float32")
    return p.with_block(body=(body,))


def reducer_program(**fields: object) -> Callable[[], PrimFunc]:
    """A copy that is a sum over nothing, with parts of its reducer replaced."""

    def make() -> PrimFunc:
        x, y = Var("x", "float32"), Var("y", "float32")
        zero = (Const(0.0, "float32"),)
        sound = Reducer("sum", (x,), (y,), (ex.call("add", x, y),), zero)
        changed = {k: f(x, y) if callable(f) else f for k, f in fields.items()}
        return Copy().with_block(reducer=replace(sound, **changed))

    return make


def buffer_program(**fields: object) -> Callable[[], PrimFunc]:
    def make() -> PrimFunc:
        p = Copy()
        p.A = replace(p.A, **fields)
        return p.with_block(reads=(Access(p.A, (of(p.vi),)),))

    return make


def inner_program(**fields: object) -> Callable[[], PrimFunc]:
    """A copy through an intermediate of two dimensions."""

    def make() -> PrimFunc:
        p, q = Copy(), Copy()
        t = replace(Buffer("T", (16, 1), "float32"), **fields)
        one = replace(p.block, name="one", writes=(Access(t, (of(p.vi), Affine(0))),))
        two = replace(q.block, reads=(Access(t, (of(q.vi), Affine(0))),))
        two = replace(two, writes=(Access(p.B, (of(q.vi),)),))
        return p.func(replace(p.loop, body=(one,)), replace(q.loop, body=(two,)))

    return make


def placed(p: Copy, elsewhere: bool) -> PrimFunc:
    """A lowered program whose intermediate is used where it does not live, or lives nowhere."""
    q, t = Copy(), Buffer("T", (16,), "float32")
    one = replace(p.block, name="one", writes=(Access(t, (of(p.vi),)),))
    two = replace(q.block, reads=(Access(t, (of(q.vi),)),), writes=(Access(p.B, (of(q.vi),)),))
    other = Buffer("U", (16,), "float32")
    first = replace(p.loop, body=(one,), allocs=(t if elsewhere else other,))
    return p.func(first, replace(q.loop, body=(two,)))


def _sized(p: Copy, shape: tuple[object, ...], extent: object) -> PrimFunc:
    """A copy of a symbolic number of elements."""
    a, b = (Buffer(name, shape, "float32") for name in "AB")
    block = replace(
        p.block, iters=(Iter(p.vi, extent),), reads=(Access(a, (of(p.vi),)),),
        writes=(Access(b, (of(p.vi),)),),
    )  # fmt: skip
    return PrimFunc("main", (a, b), (replace(p.loop, extent=extent, body=(block,)),))


def two_sizes_of_one_name(p: Copy) -> PrimFunc:
    n, m = Size.of(SizeVar("n")), Size.of(SizeVar("n"))
    found = _sized(p, (n,), n)
    return replace(found, params=(*found.params, Buffer("C", (m,), "float32")))


def unsolved(p: Copy) -> PrimFunc:
    n, m = Size.of(SizeVar("n")), Size.of(SizeVar("m"))
    found = _sized(p, (n,), n)
    q = Copy()
    inner = Buffer("T", (m,), "float32")
    block = replace(q.block, name="t", writes=(Access(inner, (of(q.vi),)),))
    return replace(
        found,
        params=(*found.params, q.A),
        body=(*found.body, replace(q.loop, body=(block,))),
    )


def sized_value(p: Copy) -> PrimFunc:
    """A size that no shape tells stands in a value."""
    return p.with_block(body=(ex.cast(SizeVar("m"), "float32"),))


def again(p: Copy) -> PrimFunc:
    q = Copy()
    other = Buffer("C", (16,), "float32")
    block = replace(
        q.block, reads=(Access(p.A, (of(q.vi),)),), writes=(Access(other, (of(q.vi),)),)
    )
    return p.func(p.loop, replace(q.loop, body=(block,)), params=(p.A, p.B, other))


def float_index(p: Copy) -> PrimFunc:
    return p.with_block(reads=(Access(p.A, (ex.cast(p.vi, "int32"),)),))


def axis_of_a_loop(p: Copy) -> PrimFunc:
    return p.with_block(
        iters=(Iter(p.i, 16),),
        reads=(Access(p.A, (of(p.i),)),),
        writes=(Access(p.B, (of(p.i),)),),
    )


def reads_a_buffer(p: Copy) -> PrimFunc:
    x, y = Var("x", "float32"), Var("y", "float32")
    combine = (ex.call("add", x, Slot(0, "float32")),)
    return p.with_block(reducer=Reducer("r", (x,), (y,), combine, (Const(0.0, "float32"),)))


STEP = """
for t in T.serial(15):
    with T.block("step"):
        v = T.axis.sequential(15, t)
        B[v + 1] = B[{read}] + A[v]
"""
START = block("B[0] = A[0]", "z", "1", "w = T.axis.spatial(1, z)", "start")
THROUGH = 'C = T.alloc_buffer((16,), "float32")'
LONGER = 'C = T.alloc_buffer((17,), "float32")'
SUMS = "v = T.axis.spatial(4, i); k = T.axis.reduce(4, {})"
FUSED = "v = T.axis.spatial(4, n // 4); k = T.axis.reduce(4, n % 4)"
FOUR = 'B: T.Buffer((4,), "float32")'
INDICES = 'I: T.Buffer((16,), "int64")'
SQUARE = 'C: T.Buffer((4, 4), "float32")'
RING = (
    block("S[0, v] = A[v]", name="start")
    + """
for t in T.serial(15):
    for i in T.parallel(16):
        with T.block("step"):
            v = T.axis.sequential(15, t)
            w = T.axis.spatial(16, i)
            S[(v + 1) % 2, w] = S[v % 2, 15 - w] + A[w]
"""
    + block("B[v] = S[1, v]", name="end")
)
C_FIRST = block("C[v] = A[v]", name="c")


def aligned_param(p: Copy) -> PrimFunc:
    a = Buffer("A", (16, 1), "float32", align=((0, 4, 0),))
    return p.func(
        replace(p.loop, body=(replace(p.block, reads=(Access(a, (of(p.vi), Affine(0))),)),)),
        params=(a, p.B),
    )


def half(p: Copy) -> PrimFunc:
    """Of `2 n` elements, `n` are written."""
    n = Size.of(SizeVar("n"))
    found = _sized(p, (n,), n)
    (loop,) = found.body
    b = Buffer("B", (n * 2,), "float32")
    assert isinstance(loop, For)
    (old,) = loop.body
    new = replace(old, writes=(Access(b, old.writes[0].indices),))
    return PrimFunc("main", (found.params[0], b), (replace(loop, body=(new,)),))


def steps_program(p: Copy) -> PrimFunc:
    """A recurrence of `n - 1` steps, which may be none."""
    return parse_func(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for z in T.serial(1):
        with T.block("start"):
            w = T.axis.spatial(1, z)
            B[0] = A[0]
    for t in T.serial(n - 1):
        with T.block("step"):
            v = T.axis.sequential(n - 1, t)
            B[v + 1] = B[v] + A[v + 1]
""",
        check=False,
    )


def beyond_program(p: Copy) -> PrimFunc:
    """Of `n + 1` elements, the last is read and not written."""
    n = Size.of(SizeVar("n"))
    found, q = _sized(p, (n,), n), Copy()
    a, b = found.params
    t = Buffer("T", (n + 1,), "float32")
    one = replace(
        p.block, name="one", iters=(Iter(p.vi, n),), reads=(Access(a, (of(p.vi),)),),
        writes=(Access(t, (of(p.vi),)),),
    )  # fmt: skip
    two = replace(
        q.block, name="two", iters=(Iter(q.vi, n),), reads=(Access(t, (of(q.vi, 1, 1),)),),
        writes=(Access(b, (of(q.vi),)),),
    )  # fmt: skip
    return PrimFunc("main", (a, b), (For(p.i, n, (one,)), For(q.i, n, (two,))))


def begun_apart() -> PrimFunc:
    """Two blocks whose element tells the iteration, of loops whose sizes are sums of quotients."""
    return parse_func(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for o, i in T.grid(2, (n + 5) // 6 + (n + 2) // 3):
        with T.block("zero"):
            v = T.axis.spatial(n, o * ((n + 5) // 6 + (n + 2) // 3) + i)
            T.where(o * ((n + 5) // 6 + (n + 2) // 3) + i < n)
            B[v] = 0.0
        for j in T.serial(4):
            with T.block("sum"):
                v = T.axis.spatial(n, o * ((n + 5) // 6 + (n + 2) // 3) + i)
                k = T.axis.reduce(4, j)
                T.where(o * ((n + 5) // 6 + (n + 2) // 3) + i < n)
                B[v] += A[v, k]
""",
        check=False,
    )

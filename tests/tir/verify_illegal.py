"""The smallest programs that break one rule of the verifier each, and in one way each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from verify_programs import Copy, bits, of, placeholder

from autosched.script import parse_func
from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, Var
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


def _deep(p: Copy) -> PrimFunc:
    body: Expr = Slot(0, "float32")
    for _ in range(ex.MAX_HEIGHT):
        body = Call("neg", (body,), "float32")
    return p.with_block(body=(body,))


def _reducer(**fields: object) -> Callable[[], PrimFunc]:
    """A copy that is a sum over nothing, with parts of its reducer replaced."""

    def make() -> PrimFunc:
        x, y = Var("x", "float32"), Var("y", "float32")
        zero = (Const(0.0, "float32"),)
        sound = Reducer("sum", (x,), (y,), (ex.call("add", x, y),), zero)
        changed = {k: f(x, y) if callable(f) else f for k, f in fields.items()}
        return Copy().with_block(reducer=replace(sound, **changed))

    return make


def _buffer(**fields: object) -> Callable[[], PrimFunc]:
    def make() -> PrimFunc:
        p = Copy()
        p.A = replace(p.A, **fields)
        return p.with_block(reads=(Access(p.A, (of(p.vi),)),))

    return make


def _inner(**fields: object) -> Callable[[], PrimFunc]:
    """A copy through an intermediate of two dimensions."""

    def make() -> PrimFunc:
        p, q = Copy(), Copy()
        t = replace(Buffer("T", (16, 1), "float32"), **fields)
        one = replace(p.block, name="one", writes=(Access(t, (of(p.vi), Affine(0))),))
        two = replace(q.block, reads=(Access(t, (of(q.vi), Affine(0))),))
        two = replace(two, writes=(Access(p.B, (of(q.vi),)),))
        return p.func(replace(p.loop, body=(one,)), replace(q.loop, body=(two,)))

    return make


def _placed(p: Copy, elsewhere: bool) -> PrimFunc:
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


def _two_sizes_of_one_name(p: Copy) -> PrimFunc:
    n, m = Size.of(SizeVar("n")), Size.of(SizeVar("n"))
    found = _sized(p, (n,), n)
    return replace(found, params=(*found.params, Buffer("C", (m,), "float32")))


def _unsolved(p: Copy) -> PrimFunc:
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


def _sized_value(p: Copy) -> PrimFunc:
    """A size that no shape tells stands in a value."""
    return p.with_block(body=(ex.cast(SizeVar("m"), "float32"),))


def _again(p: Copy) -> PrimFunc:
    q = Copy()
    other = Buffer("C", (16,), "float32")
    block = replace(
        q.block, reads=(Access(p.A, (of(q.vi),)),), writes=(Access(other, (of(q.vi),)),)
    )
    return p.func(p.loop, replace(q.loop, body=(block,)), params=(p.A, p.B, other))


def _float_index(p: Copy) -> PrimFunc:
    return p.with_block(reads=(Access(p.A, (ex.cast(p.vi, "int32"),)),))


def _axis_of_a_loop(p: Copy) -> PrimFunc:
    return p.with_block(
        iters=(Iter(p.i, 16),),
        reads=(Access(p.A, (of(p.i),)),),
        writes=(Access(p.B, (of(p.i),)),),
    )


def _reads_a_buffer(p: Copy) -> PrimFunc:
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


def _aligned_param(p: Copy) -> PrimFunc:
    a = Buffer("A", (16, 1), "float32", align=((0, 4, 0),))
    return p.func(
        replace(p.loop, body=(replace(p.block, reads=(Access(a, (of(p.vi), Affine(0))),)),)),
        params=(a, p.B),
    )


def _half(p: Copy) -> PrimFunc:
    """Of `2 n` elements, `n` are written."""
    n = Size.of(SizeVar("n"))
    found = _sized(p, (n,), n)
    (loop,) = found.body
    b = Buffer("B", (n * 2,), "float32")
    assert isinstance(loop, For)
    (old,) = loop.body
    new = replace(old, writes=(Access(b, old.writes[0].indices),))
    return PrimFunc("main", (found.params[0], b), (replace(loop, body=(new,)),))


def _steps(p: Copy) -> PrimFunc:
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


def _beyond(p: Copy) -> PrimFunc:
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


ILLEGAL: tuple[Illegal, ...] = (
    # Form
    Illegal("nodes", "has kind 'fast'", of_copy(lambda p: p.with_loop(kind="fast"))),
    Illegal("nodes", "has 1 axes and 0 bindings", copy_with(bindings=())),
    Illegal("nodes", "computes 0 values", copy_with(body=())),
    Illegal("nodes", "and 0 identities", _reducer(identity=())),
    Illegal("nodes", "no integer", copy_with(bindings=(Affine(np.zeros(3, np.int64)),))),
    Illegal(
        "nodes",
        "or modulus is below 1",
        of_copy(lambda p: p.with_block(bindings=(bits(of(p.i), 0),))),
    ),
    Illegal(
        "nodes", "no integer", of_copy(lambda p: p.with_block(bindings=(Affine(0, ((p.i, 1.0),)),)))
    ),
    Illegal(
        "nodes", "no integer", of_copy(lambda p: p.with_block(bindings=(bits(Affine(0.5), 2),)))
    ),
    Illegal("expressions", "nests more than", of_copy(_deep)),
    Illegal("expressions", "is no operation", copy_with(body=(Call("frob", (), "float32"),))),
    Illegal(
        "expressions",
        "gives 1 arguments to add",
        copy_with(body=(Call("add", (Slot(0, "float32"),), "float32"),)),
    ),
    Illegal("expressions", "uses slot 3 of 1 reads", copy_with(body=(Slot(3, "float32"),))),
    Illegal(
        "expressions",
        "for tensor expressions",
        of_copy(lambda p: p.with_block(body=(placeholder((16,))[0],))),
    ),
    Illegal(
        "expressions",
        "depends on its own value",
        of_copy(
            lambda p: p.with_block(
                reads=(p.block.reads[0], Access(Buffer("T", (16,), "int64"), (Slot(1, "int64"),)))
            )
        ),
    ),
    Illegal(
        "expressions",
        "depends on its own value",
        of_copy(
            lambda p: p.with_block(
                reads=(
                    p.block.reads[0],
                    Access(Buffer("T", (16,), "int64"), (Slot(2, "int64"),)),
                    Access(Buffer("U", (16,), "int64"), (Slot(1, "int64"),)),
                )
            )
        ),
    ),
    Illegal("sizes", "2 sizes are named 'n'", of_copy(_two_sizes_of_one_name)),
    Illegal("sizes", "loop 'i' has extent 0", of_copy(lambda p: p.with_loop(extent=0))),
    Illegal(
        "sizes", "loop 'e' has no body", of_copy(lambda p: p.func(For(Var("e"), 2, ()), p.loop))
    ),
    Illegal(
        "sizes", "is serial with thread axis", of_copy(lambda p: p.with_loop(thread="threadIdx.x"))
    ),
    Illegal(
        "sizes",
        "has thread axis 'moon.x'",
        of_copy(lambda p: p.with_loop(kind="thread", thread="moon.x")),
    ),
    Illegal(
        "sizes", "has kind 'odd'", of_copy(lambda p: p.with_block(iters=(Iter(p.vi, 16, "odd"),)))
    ),
    Illegal(
        "sizes", "axis vi has extent 0", of_copy(lambda p: p.with_block(iters=(Iter(p.vi, 0),)))
    ),
    Illegal("sizes", "'i' has extent True", of_copy(lambda p: p.with_loop(extent=True))),
    Illegal("sizes", "m", of_copy(_unsolved)),
    Illegal("sizes", "m", of_copy(_sized_value)),
    Illegal("buffers", "has dtype 'float8'", _buffer(dtype="float8")),
    Illegal("buffers", "has shape (-1,)", _buffer(shape=(-1,))),
    Illegal("buffers", "has scope 'moon'", _buffer(scope="moon")),
    Illegal("buffers", "is declared 2 times", of_copy(lambda p: p.func(params=(p.A, p.B, p.A)))),
    Illegal("buffers", "is a parameter, which is dense", of_copy(_aligned_param)),
    Illegal("buffers", "offset from 0 to factor - 1", _inner(align=((0, 4, 4),))),
    Illegal("buffers", "no last axis", _inner(align=((1, 4, 0),))),
    Illegal(
        "attributes",
        "layout_free is ('Z',)",
        of_copy(lambda p: p.func(attrs=(("layout_free", ("Z",)),))),
    ),
    Illegal("attributes", "FLOP of main is -1", of_copy(lambda p: p.func(attrs=(("FLOP", -1),)))),
    Illegal(
        "attributes",
        "a loop has no key 'ahead'",
        of_copy(lambda p: p.with_loop(annotations=(("ahead", 1),))),
    ),
    Illegal(
        "attributes", "a block has no key 'streamin'", copy_with(annotations=(("streamin", 1),))
    ),
    Illegal("names", "another block is named 'copy'", of_copy(_again)),
    Illegal(
        "names",
        "gives 2 indices to A",
        of_copy(lambda p: p.with_block(reads=(Access(p.A, (of(p.vi), of(p.vi))),))),
    ),
    # Meaning
    Illegal("scopes", "belongs to two loops", of_copy(lambda p: p.func(For(p.i, 1, (p.loop,))))),
    Illegal("scopes", "variables of their own", of_copy(_axis_of_a_loop)),
    Illegal("scopes", "the binding of vi uses w", copy_with(bindings=(of(Var("w")),))),
    Illegal("placement", "neither a parameter nor allocated", of_copy(lambda p: _placed(p, False))),
    Illegal("placement", "outside the loop that allocates it", of_copy(lambda p: _placed(p, True))),
    Illegal("types", "slot 0 has dtype float64", copy_with(body=(Slot(0, "float64"),))),
    Illegal(
        "types",
        "dtype 'int7' is unknown",
        copy_with(body=(Call("cast", (Const(1, "int7"),), "float32"),)),
    ),
    Illegal(
        "types",
        "a cast to the unknown dtype",
        copy_with(body=(Call("cast", (Call("cast", (Slot(0, "float32"),), "int7"),), "float32"),)),
    ),
    Illegal(
        "types",
        "different dtypes",
        copy_with(body=(Call("add", (Slot(0, "float32"), Const(1, "int32")), "float32"),)),
    ),
    Illegal(
        "types",
        "lt has dtype float32; expected bool",
        copy_with(body=(Call("lt", (Slot(0, "float32"),) * 2, "float32"),)),
    ),
    Illegal("types", "an index of A has dtype int32", of_copy(_float_index)),
    Illegal("types", "writes int8 to B", copy_with(body=(ex.cast(Slot(0, "float32"), "int8"),))),
    Illegal("types", "reads a buffer", of_copy(_reads_a_buffer)),
    Illegal(
        "types",
        "reducer 'sum' uses c",
        _reducer(combine=lambda x, y: (ex.call("add", x, Var("c", "float32")),)),
    ),
    Illegal(
        "types",
        "identity of reducer 'sum' uses c",
        _reducer(identity=lambda x, y: (Var("c", "float32"),)),
    ),
    Illegal(
        "types",
        "computes float32, float64",
        _reducer(identity=lambda x, y: (Const(0.0, "float64"),)),
    ),
    # Proofs
    Illegal(
        "magnitudes",
        "may reach beyond 2**62",
        of_copy(
            lambda p: p.with_block(reads=(Access(p.A, (bits(of(p.vi, 1 << 61), 1 << 61, 16),)),))
        ),
    ),
    Illegal(
        "domains",
        "which reaches 0..15 and is not provably in [0, 8)",
        text(block("B[v] = A[v]", axes="v = T.axis.spatial(8, i)"), 'B: T.Buffer((8,), "float32")'),
    ),
    Illegal(
        "domains",
        "which reaches -1..14 and is not provably in [0, 16)",
        text(
            COPY + "\n" + block("C[v] = A[v]", axes="v = T.axis.spatial(16, i - 1)", name="c"),
            inner=THROUGH,
        ),
    ),
    Illegal(
        "bounds",
        "writes C[v + 1]: index 0",
        text(COPY + "\n" + block("C[v + 1] = A[v]", name="c"), inner=THROUGH),
    ),
    Illegal("bounds", "reads A[v + 1]: index 0", text(block("B[v] = A[v + 1]"))),
    Illegal(
        "bounds", "reads I[v + 1]", text(block("B[v] = A[T.max(T.min(I[v + 1], 15), 0)]"), INDICES)
    ),
    Illegal("bounds", "reads A[I[v]]", text(block("B[v] = A[I[v]]"), INDICES)),
    Illegal(
        "bounds", "reads A[v + 1]", text(block("B[v] = T.if_then_else(A[v + 1] > 0.0, A[v], 0.0)"))
    ),
    Illegal("bounds", "reads A[v + 1]", text(block("B[v] = T.if_then_else(v > 0, A[v + 1], 0.0)"))),
    Illegal(
        "bounds", "reads A[v + 1]", text(block("B[v] = T.if_then_else(v < 15, 0.0, A[v + 1])"))
    ),
    Illegal("bounds", "reads A[v + 1]", text(block("B[v] = T.exp(A[v + 1])"))),
    Illegal(
        "bounds",
        "reads I[k + 1]",
        text(
            block("B[v] = 0.0")
            + "\n"
            + block(
                "B[I[k + 1] % 16] = B[I[k + 1] % 16] + A[k]",
                "j",
                "16",
                "k = T.axis.reduce(16, j)",
                "h",
            ),
            INDICES,
        ),
    ),
    Illegal(
        "order",
        "accumulates in B, which no block before it initialises",
        text(
            block(
                "B[v] = B[v] + A[k]",
                "i, j",
                "16, 4",
                "v = T.axis.spatial(16, i); k = T.axis.reduce(4, j)",
            )
        ),
    ),
    Illegal(
        "order",
        "reads C, which nothing writes",
        text(block("B[v] = T.if_then_else(A[v] > 0.0, C[v], A[v])"), inner=THROUGH),
    ),
    Illegal(
        "order",
        "only a reduction or a sequential axis may accumulate",
        text(COPY + "\n" + block("B[v] = A[v] * B[v] * B[v]", name="c")),
    ),
    Illegal(
        "order",
        "before block 'c' writes it",
        text(block("B[v] = C[v]", name="d") + "\n" + C_FIRST, inner=THROUGH),
    ),
    Illegal(
        "order",
        "writes C after block 'd' has read it",
        text(
            C_FIRST + "\n" + block("B[v] = C[v]", name="d") + "\n" + block("C[v] = A[v]", name="e"),
            "C",
        ),
    ),
    Illegal("order", "not provably of an earlier step", text(START + STEP.format(read="v + 1"))),
    Illegal(
        "reaches",
        "reads C at 1..16 in dimension 0, where 0..15",
        text(C_FIRST + "\n" + block("B[v] = C[v + 1]", name="d"), inner=LONGER),
    ),
    Illegal(
        "reaches",
        "block 'd' reads C at 1..16",
        text(
            C_FIRST
            + "\n"
            + block("D[v] = C[v + 1] * 2.0", name="d")
            + "\n"
            + block("B[v] = D[v]", name="e"),
            inner=LONGER + "\n" + 'D = T.alloc_buffer((16,), "float32")',
        ),
    ),
    Illegal(
        "reaches",
        "of which only 8 are written",
        text(
            block("C[v * 2 + v // 7] = A[v]", "i", "8", "v = T.axis.spatial(8, i)", "c")
            + "\n"
            + block("B[v] = C[v]", name="d"),
            inner=THROUGH,
        ),
    ),
    Illegal(
        "reaches",
        "of one iteration in dimension 0",
        text(both("for i in range(16):", "C[v + 1] = A[v]", "B[v] = C[v]"), inner=LONGER),
        also=frozenset({"by_then"}),
    ),
    Illegal(
        "by_then",
        "in the iteration i = 0 it is C[15], which no block has written by then in that iteration "
        "of the loops they share",
        text(both("for i in range(16):", "C[v] = A[v]", "B[v] = C[15 - v]"), inner=THROUGH),
    ),
    Illegal(
        "by_then",
        "in the iteration i = 1 it is C[0]",
        text(both("for i in range(16):", "C[v] = A[v]", "B[v] = C[v // 2]"), inner=THROUGH),
    ),
    Illegal(
        "by_then",
        "in the iteration i = 0 it is C[1], which no block has written by then in that iteration;",
        text(both("for i in range(16):", "C[v] = A[v]", "B[v] = C[(v + 1) % 16]"), "C"),
    ),
    Illegal("reaches", "(with n = ", of_copy(_beyond)),
    Illegal(
        "distinct",
        "writes B[v // 2]",
        text(block("B[v // 2] = A[v]"), 'B: T.Buffer((8,), "float32")'),
    ),
    Illegal(
        "distinct",
        "each would set the element anew",
        text(
            block(
                total("B[v // 2]", "k"),
                "i, j",
                "8, 4",
                "v = T.axis.spatial(8, i); k = T.axis.reduce(4, j)",
            ),
            FOUR,
        ),
    ),
    Illegal(
        "overwritten",
        "may write one element of B in different iterations of i",
        text(both("for i in T.serial(16):", "B[v] = A[v]", "B[15 - v] = A[v]")),
    ),
    Illegal(
        "covered",
        "does not provably count up from 0",
        text(block(total("B[v]", "k"), "i, j", "4, 4", SUMS.format("3 - j")), FOUR),
    ),
    Illegal(
        "covered",
        "does not provably count up from 0",
        text(block(total("B[v]", "k"), "i, j", "4, 4", SUMS.format("(j + 1) % 4")), FOUR),
    ),
    Illegal(
        "covered",
        "which leaves out values",
        text(block(total("B[v]", "k"), "i, j", "4, 2", SUMS.format("j * 3")), FOUR),
    ),
    Illegal(
        "covered",
        "which begins at 1",
        text(block(total("B[v]", "k"), "i, j", "4, 3", SUMS.format("j + 1")), FOUR),
    ),
    Illegal(
        "covered",
        "takes 2 of its 4 values",
        text(block(total("B[v]", "k"), "i, j", "4, 2", SUMS.format("j")), FOUR),
    ),
    Illegal(
        "covered",
        "another axis is bound to j too",
        text(
            block(
                total("B[v]", "k"),
                "i, j",
                "1, 4",
                "v = T.axis.spatial(4, j); k = T.axis.reduce(4, j)",
            ),
            FOUR,
        ),
    ),
    Illegal(
        "covered",
        "another axis is bound to j too",
        text(
            block(
                total("B[v]", "k"),
                "i, j",
                "1, 4",
                "k = T.axis.reduce(4, j); v = T.axis.spatial(4, j)",
            ),
            FOUR,
        ),
    ),
    Illegal(
        "covered",
        "another axis is bound to j too",
        text(
            block(
                total("B[v]", "k"),
                "i, j",
                "1, 8",
                "v = T.axis.spatial(4, j // 2); k = T.axis.reduce(4, j % 4)",
            ),
            FOUR,
        ),
    ),
    Illegal(
        "covered",
        "may skip the first point",
        text(block(total("B[v]", "k"), "i, j", "4, 4", SUMS.format("j"), where="j > 0"), FOUR),
    ),
    Illegal(
        "covered",
        "may skip the first point",
        text(block(total("B[v]", "k"), "n", "16", FUSED, where="n % 8 // 2 < 1"), FOUR),
    ),
    Illegal(
        "initial",
        "so that its init sets only the element of the first point",
        text(block(total("B[k // 4]", "k"), "i", "16", "k = T.axis.reduce(16, i)"), FOUR),
    ),
    Illegal(
        "combined",
        "in several iterations of the loop 'z'",
        text(block(total("B[v]", "k"), "i, j, z", "4, 4, 3", SUMS.format("j")), FOUR),
    ),
    Illegal(
        "combined",
        "in several iterations of the loop 'j'",
        text(block(total("B[v]", "k"), "i, j, z", "4, 8, 1", SUMS.format("j // 2")), FOUR),
    ),
    Illegal("outputs", "writes none of its parameters", text(C_FIRST, inner=THROUGH)),
    Illegal(
        "outputs",
        "is written at 0..7 of dimension 0",
        text(block("B[v] = A[v]", "i", "8", "v = T.axis.spatial(8, i)")),
    ),
    Illegal(
        "outputs",
        "has 16 elements and only 2 are written",
        text(block("B[v * 15] = A[v]", "i", "2", "v = T.axis.spatial(2, i)")),
    ),
    Illegal("outputs", "(with n = ", of_copy(_half)),
    Illegal(
        "races", "may write the same element of B", text(below("for z in T.parallel(4):", COPY))
    ),
    Illegal(
        "races",
        "may write the same element of B",
        text(
            below(
                "for i in T.serial(4):",
                block(total("B[v]", "k"), "j", "4", SUMS.format("j"), kind="parallel"),
            ),
            FOUR,
        ),
    ),
    Illegal(
        "races", "may write the same element of B", text(below("for z in T.vectorized(4):", COPY))
    ),
    Illegal(
        "races",
        "may write the same element of B",
        text(
            below(
                "for o in T.parallel(5):",
                block(
                    "B[v] = A[v]",
                    "i",
                    "4",
                    "v = T.axis.spatial(16, o * 3 + i)",
                    where="o * 3 + i < 16",
                ),
            )
        ),
    ),
    Illegal(
        "races",
        "block 'd' may read elements of C that another iteration",
        text(both("for i in T.parallel(16):", "C[v] = A[v]", "B[v] = C[v // 2]"), "C"),
    ),
    Illegal(
        "races",
        "block 'd' may write elements of B that another iteration",
        text(both("for i in T.vectorized(16):", "B[v] = A[v]", "B[15 - v] = A[v]")),
        frozenset({"overwritten"}),
    ),
)
"""One for each way to break a rule, in the order of the rules."""

LEGAL: tuple[Callable[[], PrimFunc], ...] = (
    # An output holds what earlier iterations wrote.
    text(both("for i in range(16):", "C[v] = A[v]", "B[v] = C[v // 2]"), "C"),
    lambda: Copy().func(),
    text(COPY),
    text(C_FIRST + "\n" + block("B[v] = C[v]", name="d"), inner=THROUGH),
    # A copy takes along what nothing needs.
    text(
        C_FIRST
        + "\n"
        + block("D[v] = C[v]", "i", "17", "v = T.axis.spatial(17, i)", "d")
        + "\n"
        + block("B[v] = D[v]", name="e"),
        inner=LONGER + "\n" + 'D = T.alloc_buffer((17,), "float32")',
    ),
    text(START + STEP.format(read="v")),
    of_copy(_steps),
    text(block(total("B[v]", "k"), "i, j", "4, 4", SUMS.format("j")), FOUR),
    text(block(total("B[v]", "k"), "n", "16", FUSED, where="n % 4 // 2 < 1"), FOUR),
    text(
        block(
            total("B[v]", "k"),
            "i, o, n",
            "4, 2, 3",
            SUMS.format("o * 3 + n"),
            where="o * 3 + n < 4",
        ),
        FOUR,
    ),
    text(
        block(
            total("B[v]", "k"),
            "i, j",
            "1, 16",
            "v = T.axis.spatial(4, j // 4); k = T.axis.reduce(4, j % 4)",
        ),
        FOUR,
    ),
    # Points that are too many to enumerate.
    text(
        block(
            total("B[v, w]", "k"),
            "i, j, n",
            "2, 200000, 2",
            "w = T.axis.spatial(2, i); v = T.axis.spatial(100000, (j * 2 + n) // 4); "
            "k = T.axis.reduce(4, (j * 2 + n) % 4)",
            where="j * 2 + n + i < 500000",
        ),
        'B: T.Buffer((100000, 2), "float32")',
    ),
    text(
        block(
            total("B[v, w]", "k % 16"),
            "h, i, o, n",
            "2, 4, 2, 300000",
            "w = T.axis.spatial(2, h); v = T.axis.spatial(4, i); "
            "k = T.axis.reduce(600000, o * 300000 + n)",
            where="o * 300000 + n + h < 700000",
        ),
        'B: T.Buffer((4, 2), "float32")',
    ),
    text(below("for z in T.parallel(1):", COPY)),
    text(below("for z in T.parallel(4):", block("B[v] = A[v]", where="z < 1"))),
    text(block("B[v] = A[15 - v]", kind="parallel")),
    text(block("B[v // 4, (v + 1) % 4] = A[v]", kind="parallel"), 'B: T.Buffer((4, 4), "float32")'),
    text(
        below(
            "for i in T.serial(4):",
            block(total("B[v]", "k"), "j", "4", SUMS.format("j"), kind="vectorized"),
        ),
        FOUR,
    ),
    text(both("for i in T.parallel(16):", "C[v] = A[v]", "B[v] = C[v]"), "C"),
    text(both("for i in T.parallel(16):", "C[v] = A[v]", "B[v] = C[v]"), inner=THROUGH),
    text(
        both("for i in T.parallel(16):", "C[v // 4, v % 4] = A[v]", "B[v] = C[v // 4, v % 4]"),
        SQUARE,
    ),
    text(
        below(
            "for i in T.parallel(8):",
            *(
                f'with T.block("{n}"):\n    v = T.axis.spatial(8, i)\n    {s}'
                for n, s in (("c", "B[v] = A[v]"), ("d", "B[v + 8] = A[v]"))
            ),
        )
    ),
    text(block("B[v * 5 % 16] = A[v]")),  # apart, as their points show
    text(RING, inner='S = T.alloc_buffer((2, 16), "float32")'),
)
"""Legal programs that are near to those."""

"""Programs with opaque blocks: illegal ones, one for each way to break a rule on them, and legal
ones beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from verify_parts import THROUGH, Illegal, block, text

from autosched.tir.affine import Affine
from autosched.tir.expr import Const, Var
from autosched.tir.extern import Extern
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Element,
    ExternCall,
    For,
    Node,
    Pointer,
    Predicate,
    PrimFunc,
)
from autosched.tir.opaque import Whole, opaque_block, opaque_of
from autosched.tir.routine import Evaluate, Routine, Store
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


def rows(
    store: str = "C[i] = A[i]", reads: str = "A", writes: str = "C", name: str = "rows"
) -> str:
    """An opaque block of one statement in a loop of 16."""
    lines = (
        f'with T.opaque("{name}"):',
        *([f"    T.reads({reads})"] if reads else []),
        f"    T.writes({writes})",
        "    for i in range(16):",
        f"        {store}",
    )
    return "\n".join(lines)


def lines(*parts: str) -> str:
    return "\n".join(parts)


LAST = block("B[v] = C[v]", name="last")
SOUND = text(lines(rows(), LAST), inner=THROUGH)
"""An opaque block from A to C, and a nest from there to B."""


def changed(change: Callable[[Block], Node]) -> Callable[[], PrimFunc]:
    """`SOUND` with another node for its opaque block."""

    def make() -> PrimFunc:
        func = SOUND()
        first, *rest = func.body
        assert isinstance(first, Block)
        return replace(func, body=(change(first), *rest))

    return make


def ran_on(change: Callable[[Routine, Buffer, Buffer], Block]) -> Callable[[], PrimFunc]:
    """`SOUND` with an opaque block made of the routine and the buffers of its own."""

    def make(first: Block) -> Node:
        found = opaque_of(first)
        assert found is not None
        a, c = found.buffers
        return change(found.routine, a, c)

    return changed(make)


def of_a_size() -> PrimFunc:
    """`SOUND` with one more parameter, of a symbolic size."""
    func = SOUND()
    more = Buffer("N", (Size.of(SizeVar("n")),), "float32")
    return replace(func, params=(*func.params, more))


def _with_params(routine: Routine, *params: Buffer) -> Routine:
    return replace(routine, params=params)


def _ill_typed(routine: Routine) -> Routine:
    _, c = routine.params
    target = Element(c, (Const(0, "int64"),), c.dtype)
    return replace(routine, body=(Store(target, Const(1.0, "float64")), *routine.body))


def _calls_c(routine: Routine) -> Routine:
    """A routine that gives its buffers to a C function, which uses them, and does nothing else."""
    a, c = routine.params
    function = Extern("copy", "", ("float32*", "float32*"), "")
    call = ExternCall(function, (Pointer(a, a.dtype), Pointer(c, c.dtype)), function.returns)
    return replace(routine, body=(Evaluate(call),))


SPARE = Buffer("D", (16,), "float32")
SHORT = Buffer("C", (8,), "float32")
WIDE = Buffer("C", (16,), "float64")
GAPS = Buffer("C", (16,), "float32", align=((0, 4, 0),))

ILLEGAL_OPAQUE: tuple[Illegal, ...] = (
    Illegal("opaque", "'rows' stands in a loop", changed(lambda b: For(Var("z"), 2, (b,)))),
    Illegal(
        "opaque",
        "'rows' has a predicate",
        changed(lambda b: replace(b, predicates=(Predicate(Affine(0), 1),))),
    ),
    Illegal("opaque", "stands in a function of symbolic sizes", of_a_size),
    Illegal(
        "opaque",
        "'rows' runs on other buffers than it reads and writes",
        changed(lambda b: replace(b, reads=(*b.reads, Access(SPARE, (Whole(),))))),
    ),
    Illegal(
        "opaque",
        "'rows' runs on other buffers than it reads and writes",
        ran_on(
            lambda r, a, c: opaque_block(
                _with_params(r, *r.params, replace(SPARE)), (a, c, a), (a,), (c,)
            )
        ),
    ),
    Illegal(
        "opaque",
        "'rows' runs on other buffers than it reads and writes",
        ran_on(lambda r, a, c: opaque_block(r, (a, c), (SPARE,), (c,))),
    ),
    Illegal(
        "opaque", "'rows' lists a buffer twice", changed(lambda b: replace(b, reads=b.reads * 2))
    ),
    Illegal(
        "opaque",
        "'rows' lists a buffer twice",
        ran_on(lambda r, a, c: opaque_block(r, (a, c), (a,), (c, c))),
    ),
    Illegal(
        "opaque",
        "do not fit; expected float32[16], float32[16]",
        ran_on(lambda r, a, c: opaque_block(r, (a, SHORT), (a,), (SHORT,))),
    ),
    Illegal(
        "opaque",
        "do not fit; expected float32[16], float32[16]",
        ran_on(lambda r, a, c: opaque_block(r, (a, WIDE), (a,), (WIDE,))),
    ),
    Illegal(
        "opaque",
        "runs on C, which is not dense in global memory",
        text(
            lines(rows(), LAST),
            inner='C = T.alloc_buffer((16,), "float32", scope="local")',
        ),
    ),
    Illegal(
        "opaque",
        "runs on C, which is not dense in global memory",
        ran_on(lambda r, a, c: opaque_block(r, (a, GAPS), (a,), (GAPS,))),
    ),
    Illegal(
        "opaque",
        "breaks a rule: routine rows: float64 is stored into C",
        ran_on(lambda r, a, c: opaque_block(_ill_typed(r), (a, c), (a,), (c,))),
    ),
    Illegal(
        "opaque",
        "'rows' stores to A, which T.writes does not list",
        text(
            lines(rows("C[i] = A[i]; A[i] = 0.0".replace("; ", "\n        ")), LAST), inner=THROUGH
        ),
    ),
    Illegal(
        "opaque",
        "'rows' does not use A, which it lists",
        text(lines(rows("C[i] = 1.0"), LAST), inner=THROUGH),
    ),
    Illegal(
        "opaque",
        "2 blocks are named 'last'",
        text(lines(rows(name="last"), LAST), inner=THROUGH),
    ),
    Illegal(
        "opaque",
        "2 blocks are named 'rows'",
        text(lines(rows(), rows("B[i] = C[i]", "C", "B")), inner=THROUGH),
    ),
    Illegal(
        "crossing",
        "block 'rows' reads C, which nothing before it writes",
        text(lines(rows("B[i] = C[i]", "C", "B"), block("C[v] = A[v]", name="c")), inner=THROUGH),
    ),
    Illegal(
        "crossing",
        "block 'rows' reads C, which nothing before it writes",
        text(lines(rows("C[i] += A[i]", "A, C"), LAST), inner=THROUGH),
    ),
    Illegal(
        "crossing",
        "block 'last' reads C, which nothing before it writes",
        text(lines(LAST, rows()), inner=THROUGH),
    ),
)

LEGAL_OPAQUE: tuple[Callable[[], PrimFunc], ...] = (
    SOUND,
    ran_on(lambda r, a, c: opaque_block(_calls_c(r), (a, c), (a,), (c,))),
    # Beside each other, and with names of their own.
    text(lines(rows(), rows("B[i] = C[i]", "C", "B", "more")), inner=THROUGH),
    # In place, of a buffer that a nest or a caller has written.
    text(lines(block("C[v] = A[v]", name="c"), rows("C[i] += A[i]", "A, C"), LAST), inner=THROUGH),
    text(rows("B[i] += A[i]", "A, B", "B")),
    text(rows("B[i] = 1.0", "", "B")),
    # What only a nest of its own reads is written there.
    text(
        lines(rows("B[i] = A[i]", "A", "B"), block("C[v] = A[v]", name="c"), block("D[v] = C[v]")),
        "D",
        inner=THROUGH,
    ),
    # A nest that writes no parameter of the function.
    text(lines(rows("B[i] = A[i]", "A", "B"), block("C[v] = A[v]", name="c")), inner=THROUGH),
)

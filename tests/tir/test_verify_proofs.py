"""The verifier: faults that need a proof, of bounds, order, reach and races."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verify_programs import Copy, bits, fails, of, placeholder

from autosched import te
from autosched.errors import VerifyError
from autosched.script import parse_func
from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Iter,
    Node,
    Predicate,
    PrimFunc,
    Reducer,
)
from autosched.tir.verify import verify


def test_bounds_show_the_lines():
    p = Copy()
    text = fails(p.with_block(reads=(Access(p.A, (of(p.vi, 1, 1),)),)))
    assert text == (
        "main breaks a rule of the loop IR\n"
        "bounds: block 'copy' reads A[vi + 1]: index 0, vi + 1, reaches 1..16 and is not provably "
        "in [0, 16)\n"
        "        for i in T.serial(16):\n"
        '            with T.block("copy"):\n'
        "                vi = T.axis.spatial(16, i)\n"
        "  >             T.reads(A[vi + 1])\n"
        "                T.writes(B[vi])\n"
        "                B[vi] = A[vi + 1]"
    )


def test_bounds_of_writes():
    p = Copy()
    fails(p.with_block(writes=(Access(p.B, (of(p.vi, 2),)),)), "writes B[vi * 2]: index 0")


def chain(first: Access, second: Access, p: Copy) -> tuple[Node, Node]:
    """Two nests: p's block writing `first`, and one that reads `second` into B."""
    one = replace(p.loop, body=(replace(p.block, name="one", writes=(first,)),))
    j, vj = Var("j"), Var("vj")
    index = tuple(i.substitute({p.vi: of(vj)}) for i in second.indices if isinstance(i, Affine))
    block = replace(
        p.block, name="two", iters=(Iter(vj, 16),), bindings=(of(j),),
        reads=(Access(second.buffer, index),), writes=(Access(p.B, (of(vj),)),),
    )  # fmt: skip
    return one, For(j, 16, (block,))


def test_order():
    p = Copy()
    t = Buffer("T", (16,), "float32")
    access = Access(t, (of(p.vi),))
    one, two = chain(access, access, p)
    verify(p.func(one, two))
    fails(p.func(two, one), "order: block 'two' reads T before block 'one' writes it")
    fails(p.func(two), "order: block 'two' reads T, which nothing writes")
    fails(p.with_block(writes=p.block.reads), "order: block 'copy' reads A, which it writes")
    q = Copy()
    late = replace(
        q.loop, body=(replace(q.block, name="late", writes=(Access(p.A, (of(q.vi),)),)),)
    )
    fails(
        p.func(p.loop, late, params=(p.A, p.B, q.A)),
        "order: block 'late' writes A after block 'copy' has read it",
    )


def test_sequential_axes_may_read_what_they_write():
    p, t, vt = Copy(), Var("t"), Var("vt")
    state = Buffer("state", (9, 16), "float32")
    init = replace(p.block, name="init", writes=(Access(state, (Affine(0), of(p.vi))),))
    q = Copy()
    step = Block(
        "step", (Iter(vt, 8, "sequential"), Iter(q.vi, 16)), (of(t), of(q.i)), (),
        (Access(state, (of(vt), of(q.vi))),), (Access(state, (of(vt, 1, 1), of(q.vi))),),
        (Slot(0, "float32"),),
    )  # fmt: skip
    body = (replace(p.loop, body=(init,)), For(t, 8, (For(q.i, 16, (step,)),)))
    verify(PrimFunc("scan", (p.A, state), body))


def test_accumulating_needs_a_start():
    p, a, b = Copy(), Var("a", "float32"), Var("b", "float32")
    total = Reducer("sum", (a,), (b,), (a + b,), (Const(0.0, "float32"),))
    verify(p.with_block(reducer=total))
    fails(p.with_block(reducer=total, init=False), "order: block 'copy' accumulates in B")


def test_what_is_read_was_written():
    p = Copy()
    t = Buffer("T", (20,), "float32")
    one, two = chain(Access(t, (of(p.vi),)), Access(t, (of(p.vi, 1, 2),)), p)
    fails(p.func(one, two), "reaches: block 'two' reads T at 2..17 in dimension 0, where 0..15 is")


def test_an_iteration_reads_what_it_wrote_itself():
    p, o = Copy(), Var("o")
    t = Buffer("T", (17,), "float32")
    v1, v2 = Var("v1"), Var("v2")
    one = replace(
        p.block, name="one", iters=(Iter(v1, 16),), bindings=(of(o),),
        reads=(Access(p.A, (of(v1),)),), writes=(Access(t, (of(v1, 1, 1),)),),
    )  # fmt: skip

    def two(shift: int) -> Block:
        return replace(
            p.block, name="two", iters=(Iter(v2, 16),), bindings=(of(o),),
            reads=(Access(t, (of(v2, 1, shift),)),), writes=(Access(p.B, (of(v2),)),),
        )  # fmt: skip

    verify(p.func(For(o, 16, (one, two(1)))))
    fails(p.func(For(o, 16, (one, two(0)))), "reads T at 0..0 of one iteration in dimension 0")


def test_outputs():
    p = Copy()
    fails(p.func(params=(p.A,)), "outputs: main writes none of its parameters")
    half = replace(p.block, iters=(Iter(p.vi, 8),))
    fails(
        p.func(replace(p.loop, extent=8, body=(half,))),
        "outputs: output B is written at 0..7 of dimension 0, which has 16 elements",
    )
    square = Buffer("B", (16, 16), "float32")
    diagonal = replace(p.block, writes=(Access(square, (of(p.vi), of(p.vi))),))
    fails(
        p.func(replace(p.loop, body=(diagonal,)), params=(p.A, square)),
        "outputs: output B has 256 elements and only 16 are written",
    )


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_races_of_writes(kind):
    p = Copy()
    verify(p.with_loop(kind=kind))
    o = Var("o")
    again = For(o, 4, (p.loop,), kind)
    fails(
        p.func(again), f"races: iterations of the {kind} loop 'o' may write the same element of B"
    )
    overlap = replace(
        p.block, bindings=(of(o, 3) + of(p.i),), predicates=(Predicate(of(o, 3) + of(p.i), 16),)
    )
    fails(p.func(For(o, 5, (For(p.i, 4, (overlap,)),), kind)), "races: ")
    apart = replace(overlap, bindings=(of(o, 4) + of(p.i),), predicates=())
    verify(p.func(For(o, 4, (For(p.i, 4, (apart,)),), kind)))


def test_fused_parallel_loops():
    f, x, y = Var("f"), Var("x"), Var("y")
    a, b = Buffer("A", (6, 10), "float32"), Buffer("B", (6, 10), "float32")
    index = (of(x), of(y))

    def fused(div: int, mod: int) -> PrimFunc:
        block = Block(
            "copy", (Iter(x, 6), Iter(y, 10)), (bits(of(f), div), bits(of(f), 1, mod)), (),
            (Access(a, index),), (Access(b, index),), (Slot(0, "float32"),),
        )  # fmt: skip
        return PrimFunc("main", (a, b), (For(f, 60, (block,), "parallel"),))

    verify(fused(10, 10))
    fails(fused(10, 9), "races: iterations of the parallel loop 'f' may write")


def test_races_of_reductions():
    A, k = placeholder((8, 4)), te.reduce_axis((0, 4), name="k")
    func = te.create_prim_func([A, te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="C")])
    outer = func.body[0]
    assert isinstance(outer, For)
    inner = outer.body[0]
    assert isinstance(inner, For)

    def with_inner(kind: str) -> PrimFunc:
        return replace(func, body=(replace(outer, body=(replace(inner, kind=kind),)),))

    verify(with_inner("vectorized"))
    verify(with_inner("unrolled"))
    fails(with_inner("parallel"), "may write the same element of C")


def test_races_between_blocks():
    p = Copy()
    t, q = Buffer("T", (16,), "float32"), Copy()
    v2 = Var("v2")
    one = replace(p.block, name="one", writes=(Access(t, (of(p.vi),)),))

    def both(shift: int) -> PrimFunc:
        two = replace(
            p.block, name="two", iters=(Iter(v2, 16),),
            reads=(Access(t, (of(v2, -1, shift),)),), writes=(Access(p.B, (of(v2),)),),
        )  # fmt: skip
        # T is an output, so that the iterations share it.
        return PrimFunc("main", (p.A, p.B, t), (For(p.i, 16, (one, two), "parallel"),))

    fails(both(15), "races: block 'two' may read elements of T that another iteration")
    same = replace(
        q.block, name="two", bindings=(of(p.i),),
        reads=(Access(t, (of(q.vi),)),), writes=(Access(p.B, (of(q.vi),)),),
    )  # fmt: skip
    verify(PrimFunc("main", (p.A, p.B, t), (For(p.i, 16, (one, same), "parallel"),)))


def test_all_faults_of_a_group_are_listed():
    p = Copy()
    text = fails(
        p.with_block(
            reads=(Access(p.A, (of(p.vi, 1, 1),)),), writes=(Access(p.B, (of(p.vi, 1, -1),)),)
        )
    )
    assert "breaks 3 rules" in text
    assert text.count("bounds: ") == 2
    assert text.count("outputs: ") == 1


def test_many_guards_do_not_stall_the_proof():
    p = Copy()
    several = [Var(f"w{n}") for n in range(6)]
    guard: Expr = ex.const(True)
    for n in range(60):
        form = of(several[n % 6], n + 1) + of(several[(n + 1) % 6], -n)
        guard = ex.call("and", guard, form.to_expr() < 3 * n + 4)
    iters = (Iter(p.vi, 16), *(Iter(v, 5) for v in several))
    loops = [Var(f"l{n}") for n in range(6)]
    body = Call("if_then_else", (guard, Slot(0, "float32"), Const(0.0, "float32")), "float32")
    node: Node = replace(
        p.block,
        iters=iters,
        bindings=(of(p.i), *(of(x) for x in loops)),
        reads=(Access(p.A, (of(p.vi, 1) + of(several[0]),)),),
        body=(body,),
    )
    for x in loops:
        node = For(x, 5, (node,))
    fails(p.func(replace(p.loop, body=(node,))), "bounds: ")


@st.composite
def parallel_programs(draw):
    """A loop nest over (a, b, c), the outermost parallel, that writes a (6, 6) buffer somehow."""
    loops = [Var(n) for n in "abc"]
    extents = dict(zip(loops, draw(st.tuples(*[st.integers(1, 4)] * 3)), strict=True))
    total = Affine(draw(st.integers(0, 2)))
    for v in loops:
        total = total + of(v) * draw(st.integers(0, 4))

    def axis() -> Affine:
        if draw(st.booleans()):
            return bits(total, draw(st.integers(1, 5)), draw(st.sampled_from([None, 2, 3, 4])))
        out = Affine(0)
        for v in loops:
            out = out + of(v) * draw(st.integers(0, 4))
        return out

    return extents, (axis(), axis())


@settings(max_examples=300, deadline=None)
@given(parallel_programs())
def test_no_race_is_overlooked(program):
    extents, forms = program
    x, y = Var("x"), Var("y")
    sizes = tuple(f.span(extents)[1] + 1 for f in forms)
    a, b = Buffer("A", sizes, "float32"), Buffer("B", sizes, "float32")
    index = (of(x), of(y))
    node: Node = Block(
        "copy", tuple(Iter(v, n) for v, n in zip((x, y), sizes, strict=True)), forms, (),
        (Access(a, index),), (Access(b, index),), (Slot(0, "float32"),),
    )  # fmt: skip
    for n, (v, extent) in reversed(list(enumerate(extents.items()))):
        node = For(v, extent, (node,), "parallel" if n == 0 else "serial")
    owner: dict[tuple[int, ...], int] = {}
    clash = False
    for point in product(*(range(n) for n in extents.values())):
        element = tuple(int(f.evaluate(dict(zip(extents, point, strict=True)))) for f in forms)
        clash |= owner.setdefault(element, point[0]) != point[0]
    if clash:
        with pytest.raises(VerifyError, match="races: "):
            verify(PrimFunc("main", (a, b), (node,)))


def test_iterations_are_apart_by_digits_of_their_number():
    """Whatever order the prover looks at forms in."""
    parse_func(
        """
@T.prim_func
def main(B: T.Buffer((9, 7), "int64"), T0: T.Buffer((63, 1), "int64")):
    for ax0 in T.parallel(63):
        for ax1 in T.serial(1):
            with T.block("T0"):
                v0 = T.axis.spatial(63, ax0)
                v1 = T.axis.spatial(1, ax1)
                T.reads(B[(v0 + v1) // 7, (v0 + v1) % 7])
                T.writes(T0[(v0 + v1) // 7 * 7 + (v0 + v1) % 7, 0])
                T0[(v0 + v1) // 7 * 7 + (v0 + v1) % 7, 0] = B[(v0 + v1) // 7, (v0 + v1) % 7]
"""
    )


ROTATED = """
@T.prim_func
def main(A: T.Buffer((12,), "int64"), B: T.Buffer((12,), "int64")):
    for i in T.parallel({count}):
        with T.block("B"):
            v = T.axis.spatial({count}, i)
            B[(v + 3) % {mod}{more}] = A[v]
    for i in range(12):
        with T.block("C"):
            v = T.axis.spatial(12, i)
            B[v] = A[v]
"""


def test_rotations_are_apart():
    """Of numbers that are less than 12 apart, remainders by 12 tell them apart."""
    parse_func(ROTATED.format(count=12, mod=12, more=""))
    verify(parse_func(ROTATED.format(count=5, mod=7, more=" + 5"), check=False))
    for text in (
        ROTATED.format(count=12, mod=11, more=""),
        ROTATED.format(count=8, mod=7, more=""),
    ):
        with pytest.raises(VerifyError, match="may write the same element of B"):
            verify(parse_func(text, check=False))

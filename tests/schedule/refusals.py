"""What primitives refuse of loops: programs, steps, and parts of the messages."""

from __future__ import annotations

from collections.abc import Callable

from schedule_programs import (
    add_one,
    matmul,
    squared,
)

from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.script import parse_func
from autosched.tir.affine import Affine
from autosched.tir.expr import Const, Slot, Var
from autosched.tir.nodes import Access, Block, Buffer, For, Iter, PrimFunc


def loops(s: Schedule, name: str) -> tuple[LoopRV, ...]:
    return s.get_loops(s.get_block(name))


def scan() -> PrimFunc:
    """h[t, j] = h[t - 1, 0] + X[t, j]: each step reads another column of the step before."""
    x, h = Buffer("X", (4, 3), "int64"), Buffer("h", (5, 3), "int64")
    t, j, vt, vj = Var("t"), Var("j"), Var("vt"), Var("vj")
    block = Block(
        "step",
        (Iter(vt, 4, "sequential"), Iter(vj, 3)),
        (Affine.of(t), Affine.of(j)),
        (),
        (
            Access(h, (Affine.of(vt), Affine(0))),
            Access(x, (Affine.of(vt), Affine.of(vj))),
        ),
        (Access(h, (Affine.of(vt) + 1, Affine.of(vj))),),
        (Slot(0, "int64") + Slot(1, "int64"),),
    )
    i, vi = Var("i"), Var("vi")
    row = (Access(h, (Affine(0), Affine.of(vi))),)
    start = Block("start", (Iter(vi, 3),), (Affine.of(i),), (), (), row, (Const(0, "int64"),))
    steps = For(t, 4, (For(j, 3, (block,)),))
    return PrimFunc("main", (x, h), (For(i, 3, (start,)), steps))


def summed_backwards() -> PrimFunc:
    """B, filled from its last column on; S = sum(B, axis=1)."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((4, 16), "float32"), S: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4, 16), "float32")
    for j, i in T.grid(16, 4):
        with T.block("B"):
            vj, vi = T.axis.remap("SS", [j, i])
            B[vi, 15 - vj] = A[vi, 15 - vj] + 1.0
    for i, k in T.grid(4, 16):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0.0
            S[vi] += B[vi, vk]
""")


def summed_out_of_order(s: Schedule) -> None:
    """The sum of exponentials where every second one comes first, in some rows not the first."""
    outer, inner = s.split(s.fuse(*loops(s, "e")), [None, 2])
    s.reorder(inner, outer)
    s.reverse_compute_at(s.get_block("total"), outer)


def redundant(s: Schedule) -> None:
    """The row's total is computed again for each j: it must be initialised as often."""
    _, j = loops(s, "out")
    s.compute_at(s.get_block("total"), j)
    s.decompose_reduction(s.get_block("total"), j)


def two_levels(s: Schedule) -> None:
    i, _, k = loops(s, "C")
    k0, k1 = s.split(k, [None, 4])
    s.decompose_reduction(s.get_block("C"), k0)
    s.reorder(i, k1)


Case = tuple[Callable[[], PrimFunc], Callable[[Schedule], object], str]
"""A program, steps of which the last is refused, and a part of its message."""

OF_LOOPS: dict[str, Case] = {
    "no block": (add_one, lambda s: s.get_block("D"), "no block named 'D' in main; it has B, C"),
    "made-up handle": (add_one, lambda s: s.get_loops(BlockRV(7)), "a block of this schedule"),
    "foreign block": (
        add_one,
        lambda s: [s.get_block("B"), s.get_loops(Schedule(add_one()).get_block("B"))],
        "expected a block of this schedule; found b0, a block of another schedule",
    ),
    "foreign loop": (
        add_one,
        lambda s: [loops(s, "B"), s.split(loops(Schedule(add_one()), "B")[0], [None, 2])],
        "expected a loop of this schedule; found l1, a loop of another schedule",
    ),
    "name for loop": (
        add_one,
        lambda s: s.split("i", [None, 2]),  # type: ignore[arg-type]
        "expected a loop of this schedule; found 'i'; take handles from get_block and get_loops",
    ),
    "unknown key": (
        add_one,
        lambda s: s.annotate(s.get_block("B"), "steaming", True),
        "a block has no key 'steaming'; did you mean 'streaming'?",
    ),
    "key of a loop": (
        add_one,
        lambda s: s.annotate(s.get_block("B"), "chunk", 4),
        "a block has no key 'chunk' (it is one of a loop)",
    ),
    "value of a key": (
        add_one,
        lambda s: s.annotate(loops(s, "B")[0], "chunk", 0),
        "chunk is iterations of a parallel loop handed out at a time; found 0",
    ),
    "loop for block": (
        add_one,
        lambda s: s.compute_at(loops(s, "C")[0], loops(s, "C")[0]),  # type: ignore[arg-type]
        "expected a block of this schedule; found l1, a loop",
    ),
    "gone": (
        add_one,
        lambda s: [s.split(x, [None, 2]) for x in loops(s, "B") * 2],
        "loop i is not in main any more",
    ),
    "no factors": (add_one, lambda s: s.split(loops(s, "B")[0], []), "at least one factor"),
    "two None": (add_one, lambda s: s.split(loops(s, "B")[0], [None, None]), "found 2"),
    "split axis, no axis": (
        add_one,
        lambda s: s.split_axis(s.get_block("B"), 1, 4),
        "the block's axes are 0 to 0",
    ),
    "split axis, no divisor": (
        add_one,
        lambda s: s.split_axis(s.get_block("B"), 0, 3),
        "expected a divisor of the extent 16 of axis vi, not 1; found 3",
    ),
    "split axis, by one": (
        add_one,
        lambda s: s.split_axis(s.get_block("B"), 0, 1),
        "expected a divisor of the extent 16 of axis vi, not 1; found 1",
    ),
    "split axis, by more than all": (
        add_one,
        lambda s: s.split_axis(s.get_block("B"), 0, 32),
        "expected a divisor of the extent 16 of axis vi, not 1; found 32",
    ),
    "split axis, split loop": (
        add_one,
        lambda s: [s.split(loops(s, "B")[0], [None, 4]), s.split_axis(s.get_block("B"), 0, 4)],
        "axis vi is not visited by a loop of its own",
    ),
    "split axis, shared loop": (
        add_one,
        lambda s: [
            s.reverse_compute_at(s.get_block("C"), loops(s, "B")[0]),
            s.split_axis(s.get_block("B"), 0, 4),
        ],
        "also runs block C",
    ),
    "split axis, time": (
        scan,
        lambda s: s.split_axis(s.get_block("step"), 0, 2),
        "axis vt is visited in order",
    ),
    "short": (add_one, lambda s: s.split(loops(s, "B")[0], [3, 5]), "cover 15 iterations"),
    "zero": (add_one, lambda s: s.split(loops(s, "B")[0], [None, 0]), "must be at least 1"),
    "text": (add_one, lambda s: s.split(loops(s, "B")[0], ["4", 4]), "a factor is an int"),
    "split parallel": (
        add_one,
        lambda s: [f(loops(s, "B")[0]) for f in (s.parallel, lambda x: s.split(x, [None, 2]))],
        "takes serial loops without annotations; i is parallel",
    ),
    "undecided": (
        add_one,
        lambda s: s.split(loops(s, "B")[0], [None, Decision("x")]),
        "decision 'x' has no value",
    ),
    "reorder twice": (matmul, lambda s: s.reorder(loops(s, "C")[0], loops(s, "C")[0]), "twice"),
    "reorder two nests": (
        add_one,
        lambda s: s.reorder(loops(s, "B")[0], loops(s, "C")[0]),
        "takes loops of one nest",
    ),
    "reorder branch": (matmul, two_levels, "nothing may stand between the loops"),
    "reorder recurrence": (
        scan,
        lambda s: s.reorder(*reversed(loops(s, "step"))),
        "step reads other elements of h than its own iteration of j wrote",
    ),
    "reverse of a decomposed reduction": (
        squared,
        lambda s: [
            s.decompose_reduction(s.get_block("P"), loops(s, "P")[0]),
            s.reverse_compute_at(s.get_block("Q"), loops(s, "P")[1]),
        ],
        "its producers write different regions along axis vq",
    ),
    "reorder mixed": (
        matmul,
        lambda s: s.reorder(
            *reversed(s.split(s.fuse(*loops(s, "C")[1:]), [None, 3])),
        ),
        "run over spatial and reduction axes at once; reorder before fusing them",
    ),
    "fuse order": (matmul, lambda s: s.fuse(*reversed(loops(s, "C"))), "directly nested loops"),
    "parallel reduction": (
        matmul,
        lambda s: s.parallel(loops(s, "C")[2]),
        "loop k runs over a reduction axis of C; it cannot be parallel: use rfactor",
    ),
    "parallel recurrence": (
        scan,
        lambda s: s.parallel(loops(s, "step")[0]),
        "sequential axis of step",
    ),
    "vectorize outer": (
        matmul,
        lambda s: s.vectorize(loops(s, "C")[0]),
        "loop i has the serial loop j below",
    ),
    "kind twice": (
        add_one,
        lambda s: [s.parallel(loops(s, "B")[0]), s.unroll(loops(s, "B")[0])],
        "loop i is parallel already",
    ),
    "thread name": (add_one, lambda s: s.bind(loops(s, "B")[0], "warp"), "no thread axis 'warp'"),
    "thread twice": (
        matmul,
        lambda s: [
            s.bind(x, "blockIdx.x")
            for x in (loops(s, "C")[0], s.split(loops(s, "C")[1], [None, 2])[1])
        ],
        "is bound to blockIdx.x already",
    ),
}

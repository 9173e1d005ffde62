"""Programs that are legal and near to illegal ones."""

from __future__ import annotations

from collections.abc import Callable

from verify_parts import (
    C_FIRST,
    COPY,
    FOUR,
    FUSED,
    LONGER,
    RING,
    SQUARE,
    START,
    STEP,
    SUMS,
    THROUGH,
    begun_apart,
    below,
    block,
    both,
    of_copy,
    steps_program,
    text,
    total,
)
from verify_programs import Copy

from autosched.tir.nodes import PrimFunc

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
    # A swizzled store, of more points than are gone through.
    text(
        COPY
        + "\n"
        + block(
            total("C[v, (v + w) % 64]", "k"),
            "i, j, n",
            "128, 64, 2",
            "v = T.axis.spatial(128, i); w = T.axis.spatial(64, j); k = T.axis.reduce(2, n)",
            "c",
        ),
        'C: T.Buffer((128, 64), "float32")',
    ),
    text(START + STEP.format(read="v")),
    of_copy(steps_program),
    text(block(total("B[v]", "k"), "i, j", "4, 4", SUMS.format("j")), FOUR),
    text(block(total("B[v]", "k"), "n", "16", FUSED, where="n % 4 // 2 < 1"), FOUR),
    # A condition on a digit of the reduced one, of too many points to enumerate.
    text(
        block(
            total("B[v]", "k % 16"),
            "n",
            "1200000",
            "v = T.axis.spatial(2, n // 600000); k = T.axis.reduce(600000, n % 600000)",
            where="n % 600000 // 300000 < 1",
        ),
        'B: T.Buffer((2,), "float32")',
    ),
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
    begun_apart,
)

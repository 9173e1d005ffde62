"""The smallest programs that break one rule of the verifier each, and in one way each."""

from __future__ import annotations

from verify_illegal_forms import ILLEGAL_FORMS
from verify_parts import (
    C_FIRST,
    COPY,
    FOUR,
    FUSED,
    INDICES,
    LONGER,
    START,
    STEP,
    SUMS,
    THROUGH,
    Illegal,
    below,
    beyond_program,
    block,
    both,
    half,
    of_copy,
    text,
    total,
)
from verify_programs import bits, of

from autosched.tir.nodes import Access

ILLEGAL: tuple[Illegal, ...] = (
    *ILLEGAL_FORMS,
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
    Illegal("reaches", "(with n = ", of_copy(beyond_program)),
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
        text(block(total("B[v]", "k"), "n", "16", FUSED, where="(n + 2) % 4 < 2"), FOUR),
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
    Illegal("outputs", "(with n = ", of_copy(half)),
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

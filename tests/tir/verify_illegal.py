"""The smallest programs that break one rule of the verifier each, and in one way each."""

from __future__ import annotations

import numpy as np
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
    again,
    aligned_param,
    axis_of_a_loop,
    below,
    beyond_program,
    block,
    both,
    buffer_program,
    copy_with,
    deep,
    float_index,
    half,
    inner_program,
    of_copy,
    placed,
    reads_a_buffer,
    reducer_program,
    sized_value,
    text,
    total,
    two_sizes_of_one_name,
    unsolved,
)
from verify_programs import bits, of, placeholder

from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Slot, Var
from autosched.tir.nodes import Access, Buffer, For, Iter

ILLEGAL: tuple[Illegal, ...] = (
    # Form
    Illegal("nodes", "has kind 'fast'", of_copy(lambda p: p.with_loop(kind="fast"))),
    Illegal("nodes", "has 1 axes and 0 bindings", copy_with(bindings=())),
    Illegal("nodes", "computes 0 values", copy_with(body=())),
    Illegal("nodes", "and 0 identities", reducer_program(identity=())),
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
    Illegal("expressions", "nests more than", of_copy(deep)),
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
    Illegal("sizes", "2 sizes are named 'n'", of_copy(two_sizes_of_one_name)),
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
    Illegal("sizes", "m", of_copy(unsolved)),
    Illegal("sizes", "m", of_copy(sized_value)),
    Illegal("buffers", "has dtype 'float8'", buffer_program(dtype="float8")),
    Illegal("buffers", "has shape (-1,)", buffer_program(shape=(-1,))),
    Illegal("buffers", "has scope 'moon'", buffer_program(scope="moon")),
    Illegal("buffers", "is declared 2 times", of_copy(lambda p: p.func(params=(p.A, p.B, p.A)))),
    Illegal("buffers", "is a parameter, which is dense", of_copy(aligned_param)),
    Illegal("buffers", "offset from 0 to factor - 1", inner_program(align=((0, 4, 4),))),
    Illegal("buffers", "no last axis", inner_program(align=((1, 4, 0),))),
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
    Illegal("names", "another block is named 'copy'", of_copy(again)),
    Illegal(
        "names",
        "gives 2 indices to A",
        of_copy(lambda p: p.with_block(reads=(Access(p.A, (of(p.vi), of(p.vi))),))),
    ),
    # Meaning
    Illegal("scopes", "belongs to two loops", of_copy(lambda p: p.func(For(p.i, 1, (p.loop,))))),
    Illegal("scopes", "variables of their own", of_copy(axis_of_a_loop)),
    Illegal("scopes", "the binding of vi uses w", copy_with(bindings=(of(Var("w")),))),
    Illegal("placement", "neither a parameter nor allocated", of_copy(lambda p: placed(p, False))),
    Illegal("placement", "outside the loop that allocates it", of_copy(lambda p: placed(p, True))),
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
    Illegal("types", "an index of A has dtype int32", of_copy(float_index)),
    Illegal("types", "writes int8 to B", copy_with(body=(ex.cast(Slot(0, "float32"), "int8"),))),
    Illegal("types", "reads a buffer", of_copy(reads_a_buffer)),
    Illegal(
        "types",
        "reducer 'sum' uses c",
        reducer_program(combine=lambda x, y: (ex.call("add", x, Var("c", "float32")),)),
    ),
    Illegal(
        "types",
        "identity of reducer 'sum' uses c",
        reducer_program(identity=lambda x, y: (Var("c", "float32"),)),
    ),
    Illegal(
        "types",
        "computes float32, float64",
        reducer_program(identity=lambda x, y: (Const(0.0, "float64"),)),
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

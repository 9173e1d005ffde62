"""The smallest programs that break one rule of form or meaning each, and in one way each."""

from __future__ import annotations

import numpy as np
from verify_parts import (
    Illegal,
    again,
    aligned_param,
    axis_of_a_loop,
    buffer_program,
    copy_with,
    deep,
    float_index,
    inner_program,
    of_copy,
    placed,
    reads_a_buffer,
    reducer_program,
    sized_value,
    two_sizes_of_one_name,
    unsolved,
)
from verify_programs import bits, of, placeholder

from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Slot, Var
from autosched.tir.nodes import Access, Buffer, For, Iter

ILLEGAL_FORMS: tuple[Illegal, ...] = (
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
    *(
        Illegal(
            "types",
            f"the bits of float32 are reinterpreted as {dtype}",
            copy_with(
                body=(
                    Call("cast", (Call("reinterpret", (Slot(0, "float32"),), dtype),), "float32"),
                )
            ),
        )
        for dtype in ("float64", "int7")
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
)

"""A program in parts that tests of the verifier replace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autosched import te
from autosched.errors import VerifyError
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Iter,
    Node,
    PrimFunc,
)
from autosched.tir.verify import verify


def of(v: Var, c: int = 1, const: int = 0) -> Affine:
    return Affine.of(v, c) + const


def bits(base: Affine, div: int, mod: int | None = None) -> Affine:
    return Affine.of(Digit(base, div, mod))


class Copy:
    """`B[i] = A[i]` over 16 elements, in parts that tests replace."""

    def __init__(self) -> None:
        self.A, self.B = Buffer("A", (16,), "float32"), Buffer("B", (16,), "float32")
        self.i, self.vi = Var("i"), Var("vi")
        self.block = Block(
            name="copy",
            iters=(Iter(self.vi, 16),),
            bindings=(of(self.i),),
            predicates=(),
            reads=(Access(self.A, (of(self.vi),)),),
            writes=(Access(self.B, (of(self.vi),)),),
            body=(Slot(0, "float32"),),
        )
        self.loop = For(self.i, 16, (self.block,))

    def func(self, *body: Node, **fields: object) -> PrimFunc:
        nodes = body or (self.loop,)
        return replace(PrimFunc("main", (self.A, self.B), nodes), **fields)

    def with_block(self, **fields: object) -> PrimFunc:
        return self.func(replace(self.loop, body=(replace(self.block, **fields),)))

    def with_loop(self, **fields: object) -> PrimFunc:
        return self.func(replace(self.loop, **fields))


def fails(func: PrimFunc, *parts: str) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(func)
    text = str(caught.value)
    for part in parts:
        assert part in text
    return text


def placeholder(shape, name="A", dtype="float32"):
    return te.placeholder(shape, name=name, dtype=dtype)

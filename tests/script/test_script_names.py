"""Names of any text come back as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from roundtrip import check, check_all

from autosched import te
from autosched.tir.affine import Affine
from autosched.tir.expr import Slot, Var
from autosched.tir.nodes import Access, Block, Buffer, For, Iter, PrimFunc

# -- names


@pytest.mark.parametrize(
    "name",
    [
        "T",
        "lambda",
        "in",
        "None",
        "a b",
        "1st",
        "é",
        "ﬁ",
        "x²",
        "名前",
        "",
        'q"uo\\te',
        "\n",
        "a.b",
    ],
)
def test_names(name: str) -> None:
    a = Buffer(name, (4,), "float32")
    i, v = Var(name), Var(name)
    block = Block(
        name or "b", (Iter(v, 4),), (Affine.of(i),), (), (Access(a, (Affine.of(v),)),),
        (Access(b := Buffer("B", (4,), "float32"), (Affine.of(v),)),), (Slot(0, "float32"),),
    )  # fmt: skip
    func = PrimFunc("main", (a, b), (For(i, 4, (block,)),), (("layout_free", (name,)),))
    found = check(func)
    assert found.params[0].name == name
    check(replace(func, name="lambda"))
    check(replace(func, name="a b"))


def test_one_name_for_many_things() -> None:
    x = te.placeholder((4, 4), name="i")
    func = te.create_prim_func([x, te.compute((4, 4), lambda i, j: x[i, j], name="vi")])
    check_all(func)

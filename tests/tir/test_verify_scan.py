"""The verifier on recurrences: only elements of earlier steps are read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.errors import VerifyError
from autosched.script import parse
from autosched.tir import interp
from autosched.tir.affine import Affine
from autosched.tir.expr import Slot, Var
from autosched.tir.nodes import Access, Block, Buffer, For, Iter, PrimFunc
from autosched.tir.verify import verify

TEXT = """
@T.prim_func
def main(X: T.Buffer((8, 4), "float32"), S: T.Buffer((8, 4), "float32")):
    for i in T.serial(4):
        with T.block("first"):
            vi = T.axis.spatial(4, i)
            S[0, vi] = X[0, vi]
    for {loops}:
        with T.block("step"):
            vt, vi = T.axis.remap("{kinds}", [t, i])
            S[vt + 1, vi] = S[{row}, {column}] + X[vt + 1, vi]
"""
TI, IT = "t, i in T.grid(7, 4)", "i, t in T.grid(4, 7)"


def text(loops: str = TI, kinds: str = "QS", row: str = "vt", column: str = "vi") -> str:
    return TEXT.format(loops=loops, kinds=kinds, row=row, column=column)


@pytest.mark.parametrize(
    "given",
    [
        text(),
        text(IT),
        text(column="3 - vi"),
        text(row="vt // 2"),
        text(IT, row="vt // 2"),
        text(row="0"),
        text(row="vt - vt % 2"),
    ],
)
def test_earlier_steps_may_be_read(given):
    parse(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (text(row="vt + 1"), r"reads S\[vt \+ 1, vi\], which is not provably of an earlier step"),
        (text(row="T.min(vt + 2, 7)"), "not provably of an earlier step"),
        (text(row="7 - vt"), "not provably of an earlier step"),
        (text(row="vt + vi // 4 + 1"), "not provably of an earlier step"),
        # An order of the steps is not one of the columns.
        (text(IT, column="3 - vi"), "not provably of an earlier step"),
        (text(IT, column="(vi + 3) % 4"), "not provably of an earlier step"),
        (text(kinds="SS"), "only a reduction or a sequential axis may accumulate in place"),
    ],
)
def test_other_steps_may_not(given, message):
    with pytest.raises(VerifyError, match=message):
        parse(given)


STAGES = """
@T.prim_func
def main(X: T.Buffer((8, 4), "float32"), S: T.Buffer((8, 4), "float32")):
    M = T.alloc_buffer((7, 4), "float32")
    for i in T.serial(4):
        with T.block("first"):
            vi = T.axis.spatial(4, i)
            S[0, vi] = X[0, vi]
    for t in T.serial(7):
        for i in T.serial(4):
            with T.block("stage"):
                vt, vi = T.axis.remap("{kinds}", [t, i])
                M[vt, vi] = S[{row}, 3 - vi] * T.float32(2)
        for i in T.serial(4):
            with T.block("step"):
                vt, vi = T.axis.remap("QS", [t, i])
                S[vt + 1, vi] = M[{stage}, vi] + X[vt + 1, vi]
"""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, None),
        ({"row": "vt + 1"}, "block 'stage' reads"),
        ({"kinds": "SS"}, "block 'step' writes S after block 'stage' has read it"),
        ({"stage": "T.min(vt + 1, 6)"}, "block 'step' reads"),
        ({"stage": "6 - vt"}, "block 'step' reads"),
    ],
)
def test_stages(values, message):
    given = STAGES.format(**{"kinds": "QS", "row": "vt", "stage": "vt", **values})
    if message is None:
        parse(given)
    else:
        with pytest.raises(VerifyError, match=message):
            parse(given)


@pytest.mark.parametrize(
    ("rows", "row", "good"), [(2, "vt % 2", True), (1, "vt % 1", False), (2, "(vt + 1) % 2", False)]
)
def test_rings(rows, row, good):
    """An intermediate whose rows are kept modulo their number: not read after being replaced."""
    given = f"""
@T.prim_func
def main(X: T.Buffer((8, 4), "float32"), Y: T.Buffer((8, 4), "float32")):
    S = T.alloc_buffer(({rows}, 4), "float32")
    for i in T.serial(4):
        with T.block("first"):
            vi = T.axis.spatial(4, i)
            S[0, vi] = X[0, vi]
    for t in T.serial(8):
        for i in T.serial(4):
            with T.block("step"):
                vt, vi = T.axis.remap("QS", [t, i])
                S[(vt + 1) % {rows}, vi] = S[{row}, 3 - vi] + X[vt, vi]
        for i in T.serial(4):
            with T.block("copy"):
                vt, vi = T.axis.remap("QS", [t, i])
                Y[vt, vi] = S[(vt + 1) % {rows}, vi]
"""
    if good:
        parse(given)
    else:
        with pytest.raises(VerifyError, match="not provably of an earlier step"):
            parse(given)


@pytest.mark.parametrize(
    ("outer", "inner", "column"),
    [
        ("t in T.serial(7)", "i in T.parallel(4)", "3 - vi"),
        ("t in T.serial(7)", "i in T.vectorized(4)", "3 - vi"),
        ("i in T.parallel(4)", "t in T.serial(7)", "vi"),
    ],
)
def test_iterations_of_a_step_do_not_race(outer, inner, column):
    """Other columns of the step before, or the same column of any step."""
    head, body = text(column=column).split("    for t, i in T.grid(7, 4):\n")
    body = "".join(f"    {line}\n" for line in body.splitlines())
    parse(f"{head}    for {outer}:\n        for {inner}:\n{body}")


def recurrence(order: int, back: int, shift: int, size: tuple[int, int], split: int) -> PrimFunc:
    """S[t + 1, i] = S[t + 1 - back, i + shift] in some order of loops, all rows given that are
    not written."""
    steps, width = size
    rows, columns = steps + 8, width + 4
    x = Buffer("X", (rows, columns), "float32")
    s = Buffer("S", (rows, columns), "float32")
    a, b, va, vb = Var("a"), Var("b"), Var("va"), Var("vb")
    of = Affine.of
    copy = Block(
        "given", (Iter(va, rows), Iter(vb, columns)), (of(a), of(b)), (),
        (Access(x, (of(va), of(vb))),), (Access(s, (of(va), of(vb))),), (Slot(0, "float32"),),
    )  # fmt: skip
    t0, t1, i, vt, vi = Var("t0"), Var("t1"), Var("i"), Var("vt"), Var("vi")
    binding = of(t0, split) + of(t1)
    step = Block(
        "step", (Iter(vt, -(-steps // split) * split, "sequential"), Iter(vi, width)),
        (binding, of(i)), (), (Access(s, (of(vt) + (4 - back), of(vi) + (2 + shift))),),
        (Access(s, (of(vt) + 4, of(vi) + 2)),), (Slot(0, "float32") + 1.0,),
    )  # fmt: skip
    loops = {0: (t0, t1, i), 1: (i, t0, t1), 2: (t0, i, t1), 3: (t1, t0, i)}[order]
    extents = {t0: -(-steps // split), t1: split, i: width}
    node: For | Block = step
    for v in reversed(loops):
        node = For(v, extents[v], (node,))
    body = (For(a, rows, (For(b, columns, (copy,)),)), node)
    return PrimFunc("main", (x, s), body)


@settings(max_examples=150, deadline=None, database=None)
@given(
    st.integers(0, 3),
    st.integers(-2, 3),
    st.integers(-2, 2),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(1, 3),
)
def test_what_is_accepted_means_the_same_in_the_order_of_steps(order, back, shift, size, split):
    """Each element is computed from what the steps before it, in order of time, have left."""
    func = recurrence(order, back, shift, size, split)
    try:
        verify(func)
    except VerifyError:
        # In order of time, and from earlier steps only, nothing may be refused.
        assert back <= 0 or order != 0
        return
    steps = -(-size[0] // split) * split
    x = np.random.default_rng(0).uniform(-1, 1, func.params[0].shape).astype("float32")
    found = np.full_like(x, np.nan)
    interp.run(func, [x, found])
    want = x.copy()
    for t in range(steps):
        row = want[t + 4 - back].copy()
        for i in range(size[1]):
            want[t + 4, i + 2] = row[i + 2 + shift] + 1
    np.testing.assert_array_equal(found, want)

"""create_prim_func: names, order, slots, attributes, and the text of what comes out."""

from __future__ import annotations

from autosched import te
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr
from autosched.tir.nodes import outputs_of, sites

MATMUL_ADD = """\
@T.prim_func
def main(A: T.Buffer((4, 5), "float32"), B: T.Buffer((5, 6), "float32"), \
C: T.Buffer((4, 6), "float32"), out: T.Buffer((4, 6), "float32")):
    T.func_attr({'layout_free': ('B',)})
    matmul = T.alloc_buffer((4, 6), "float32")
    for i, j, k in T.grid(4, 6, 5):
        with T.block("matmul"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(6, j)
            vk = T.axis.reduce(5, k)
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(matmul[vi, vj])
            with T.init():
                matmul[vi, vj] = T.float32(0.0)
            matmul[vi, vj] = matmul[vi, vj] + (A[vi, vk] * B[vk, vj])
    for i_1, j_1 in T.grid(4, 6):
        with T.block("out"):
            vi_1 = T.axis.spatial(4, i_1)
            vj_1 = T.axis.spatial(6, j_1)
            T.reads(matmul[vi_1, vj_1], C[vi_1, vj_1])
            T.writes(out[vi_1, vj_1])
            out[vi_1, vj_1] = matmul[vi_1, vj_1] + C[vi_1, vj_1]
"""


def test_text() -> None:
    A = te.placeholder((4, 5), name="A")
    B = te.placeholder((5, 6), name="B")
    C = te.placeholder((4, 6), name="C")
    k = te.reduce_axis((0, 5), name="k")
    matmul = te.compute(
        (4, 6),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},
    )
    out = te.compute((4, 6), lambda i, j: matmul[i, j] + C[i, j], name="out")
    assert te.create_prim_func([A, B, C, out]).script() == MATMUL_ADD


def test_parameters_keep_their_order() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")
    C = te.compute((4,), lambda i: B[i] + 1, name="C")
    unused = te.placeholder((3,), name="unused")
    func = te.create_prim_func([C, unused, A], name="f")
    assert func.name == "f"
    assert [b.name for b in func.params] == ["C", "unused", "A"]
    assert [s.block.name for s in sites(func)] == ["B", "C"]
    func = te.create_prim_func([C, A, B])
    assert [s.block.name for s in sites(func)] == ["B", "C"]
    assert [b.name for b in outputs_of(func)] == ["C", "B"]


def test_producers_come_first_in_order_of_use() -> None:
    A = te.placeholder((4,), name="A")
    left = te.compute((4,), lambda i: A[i] + 1, name="left")
    right = te.compute((4,), lambda i: A[i] * 2, name="right")
    join = te.compute((4,), lambda i: right[i] - left[i], name="join")
    end = te.compute((4,), lambda i: join[i] + left[i], name="end")
    func = te.create_prim_func([A, end])
    assert [s.block.name for s in sites(func)] == ["right", "left", "join", "end"]


def test_a_chain_deeper_than_recursion() -> None:
    t = te.placeholder((2,), name="A")
    first = t
    for _ in range(1500):
        t = te.compute((2,), lambda i, t=t: t[i] + 1)
    func = te.create_prim_func([first, t])
    names = [s.block.name for s in sites(func)]
    assert len(names) == len(set(names)) == 1500


def test_equal_accesses_share_a_slot() -> None:
    A = te.placeholder((8, 8), name="A")
    B = te.compute(
        (4, 4), lambda i, j: A[i, j] * A[i, j] + A[j, i] + A[j + 0, i] + A[i + 1, j], name="B"
    )
    (site,) = sites(te.create_prim_func([A, B]))
    assert len(site.block.reads) == 3


def test_indices_are_affine_where_they_can_be() -> None:
    A = te.placeholder((64,), name="A")
    I = te.placeholder((8,), name="I", dtype="int32")  # noqa: E741
    B = te.compute(
        (8,),
        lambda i: A[i // 4 * 8 + i % 4] + A[(i * 8 + 3) // 8] + A[te.wrap_index(I[i], 64)],
        name="B",
    )
    (site,) = sites(te.create_prim_func([A, I, B]))
    digits, whole, index, data = (a.indices[0] for a in site.block.reads)
    assert isinstance(digits, Affine)
    assert isinstance(whole, Affine)
    assert whole.single_var() is site.block.iters[0].var
    assert isinstance(index, Affine)
    assert isinstance(data, Expr)


def test_attributes() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute(
        (4,), lambda i: A[i] + 1, name="B", attrs={"FLOP": 5, "auto_scheduler_hint": "x", "mine": 1}
    )
    C = te.compute((4,), lambda i: B[i] + 1, name="C")
    func = te.create_prim_func([A, C])
    first, second = sites(func)
    assert first.block.annotations == (("FLOP", 5), ("auto_scheduler_hint", "x"))
    assert second.block.annotations == ()
    assert func.attrs == ()
    assert te.create_prim_func([A, B]).attr("FLOP") == 5


def test_names_not_given_are_numbered() -> None:
    A, B = te.placeholder((4,)), te.placeholder((4,))
    C = te.compute((4,), lambda i: A[i] + B[i])
    D = te.compute((4,), lambda i: C[i] + 1)
    r, s = te.reduce_axis((0, 4)), te.reduce_axis((0, 4))
    E = te.compute((), lambda: te.sum(D[r] * C[s], axis=[r, s]), name="E")
    func = te.create_prim_func([A, B, E])
    assert [b.name for b in func.params] == ["placeholder", "placeholder_1", "E"]
    blocks = [x.block for x in sites(func)]
    assert {b.name for b in blocks} == {"compute", "compute_1", "E"}
    assert [i.var.name for i in blocks[-1].iters] == ["vrv", "vrv_1"]


def test_a_computation_without_axes() -> None:
    one = te.compute((), lambda: te.const(1.5), name="one")
    func = te.create_prim_func([one])
    (site,) = sites(func)
    assert site.loops == ()
    assert site.block.iters == ()

"""The compute DAG: its printed form, FLOP counts, and what sketch rules ask of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autosched import te
from autosched.dag import ComputeDAG
from autosched.errors import ScheduleError
from autosched.tir.canonical import workload_key
from autosched.tir.dag_text import dag_text
from autosched.tir.nodes import PrimFunc, map_func


def dag(*tensors) -> ComputeDAG:
    return ComputeDAG(te.create_prim_func(list(tensors)))


def matmul_add(n=1024, dtype="float32", attrs=None) -> ComputeDAG:
    A, B, C = (te.placeholder((n, n), name=s, dtype=dtype) for s in "ABC")
    k = te.reduce_axis((0, n), name="k")
    matmul = te.compute(
        (n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul", attrs=attrs or {}
    )
    out = te.compute((n, n), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return dag(A, B, C, out)


def softmax(n=64, m=48) -> ComputeDAG:
    A = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="k2")
    top = te.compute((n,), lambda i: te.max(A[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(A[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")
    return dag(A, out)


def conv_relu(h=56, c=64, o=32) -> ComputeDAG:
    X = te.placeholder((h, h, c), name="X")
    W = te.placeholder((3, 3, c, o), name="W")
    pad = te.compute(
        (h + 2, h + 2, c),
        lambda y, x, z: te.if_then_else(
            te.all(y >= 1, y < h + 1, x >= 1, x < h + 1), X[y - 1, x - 1, z], 0.0
        ),
        name="pad",
    )
    ky, kx, kc = (te.reduce_axis((0, n), name=s) for n, s in ((3, "ky"), (3, "kx"), (c, "kc")))
    conv = te.compute(
        (h, h, o),
        lambda y, x, z: te.sum(pad[y + ky, x + kx, kc] * W[ky, kx, kc, z], axis=[ky, kx, kc]),
        name="conv",
    )
    bias = te.placeholder((o,), name="bias")
    shifted = te.compute((h, h, o), lambda y, x, z: conv[y, x, z] + bias[z], name="shifted")
    out = te.compute(
        (h, h, o),
        lambda y, x, z: te.select(shifted[y, x, z] > 0, shifted[y, x, z], 0.0),
        name="out",
    )
    return dag(X, W, bias, out)


def test_printed_form_of_matmul():
    assert str(matmul_add()) == (
        "A = PLACEHOLDER [1024, 1024]\n"
        "B = PLACEHOLDER [1024, 1024]\n"
        "matmul(i, j) += (A[i, k]*B[k, j])\n"
        "C = PLACEHOLDER [1024, 1024]\n"
        "out(i, j) = (matmul[i, j] + C[i, j])"
    )


def test_printed_form_of_softmax():
    assert str(softmax()) == (
        "A = PLACEHOLDER [64, 48]\n"
        "top(i) max= A[i, k]\n"
        "e(i, j) = tir.exp((A[i, j] - top[i]))\n"
        "total(i) += e[i, k2]\n"
        "out(i, j) = (e[i, j]/total[i])"
    )


def test_printed_form_of_conv():
    assert str(conv_relu()) == (
        "X = PLACEHOLDER [56, 56, 64]\n"
        "pad(y, x, z) = tir.if_then_else(((((y >= 1) && (y < 57)) && (x >= 1)) && (x < 57)), "
        "X[(y - 1), (x - 1), z], 0f)\n"
        "W = PLACEHOLDER [3, 3, 64, 32]\n"
        "conv(y, x, z) += (pad[(y + ky), (x + kx), kc]*W[ky, kx, kc, z])\n"
        "bias = PLACEHOLDER [32]\n"
        "shifted(y, x, z) = (conv[y, x, z] + bias[z])\n"
        "out(y, x, z) = select((shifted[y, x, z] > 0f), shifted[y, x, z], 0f)"
    )


def test_printed_form_of_reducers():
    A = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    assert str(dag(A, te.compute((4,), lambda i: te.min(A[i, k], axis=k), name="low"))).endswith(
        "low(i) min= A[i, k]"
    )
    assert str(dag(A, te.compute((4,), lambda i: te.prod(A[i, k], axis=k), name="all"))).endswith(
        "all(i) *= A[i, k]"
    )
    far = te.comm_reducer(
        lambda x, y: te.select(te.abs(x) >= te.abs(y), x, y), lambda dtype: te.const(0, dtype)
    )
    assert str(dag(A, te.compute((4,), lambda i: far(A[i, k], axis=k), name="far"))).endswith(
        "far(i) select((tir.abs(lhs) >= tir.abs(rhs)), lhs, rhs)= A[i, k]"
    )


def test_printed_form_of_several_outputs():
    A = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.select(x[1] >= y[1], x[1], y[1])),
        lambda s, t: (te.const(0, s), te.min_value(t)),
    )
    s, m = te.compute((4,), lambda i: both((A[i, k], A[i, k] * 2.0), axis=k), name="both")
    out = te.compute((4,), lambda i: s[i] + m[i], name="out")
    combine = "((lhs_0 + rhs_0), select((lhs_1 >= rhs_1), lhs_1, rhs_1))="
    assert str(dag(A, out)) == (
        "A = PLACEHOLDER [4, 6]\n"
        f"both.v0(i) {combine} (A[i, k], (A[i, k]*2f))\n"
        f"both.v1(i) {combine} (A[i, k], (A[i, k]*2f))\n"
        "out(i) = (both.v0[i] + both.v1[i])"
    )


def test_long_lines_are_cut():
    A = te.placeholder((4,), name="A")

    def long(i):
        value = A[i]
        for n in range(60):
            value = value + float(n)
        return value

    graph = dag(A, te.compute((4,), long, name="out"))
    line = str(graph).splitlines()[1]
    assert " ..(OMITTED).. " in line
    assert len(line) == 215
    assert len(dag_text(graph.func, width=None).splitlines()[1]) > 256


def test_the_printed_form_stays_when_loops_change():
    graph = matmul_add(16)
    parts = map_func(graph.func, lambda b: replace(b, annotations=(("x", 1),)))
    assert str(ComputeDAG(parts)) == str(graph)


@pytest.mark.parametrize(
    ("graph", "flop"),
    [
        (matmul_add(1024), 2 * 1024**3 + 1024**2),
        (softmax(64, 48), 5 * 64 * 48),  # max, subtract, exp, sum, divide
        (conv_relu(56, 64, 32), 56 * 56 * 32 * (2 * 9 * 64 + 2)),  # bias and comparison
    ],
    ids=["matmul", "softmax", "conv"],
)
def test_flop(graph, flop):
    assert graph.flop_ct == flop


def test_flop_of_integer_data_counts_and_indices_do_not():
    assert matmul_add(8, "int32").flop_ct == 2 * 8**3 + 8**2
    A = te.placeholder((12,), name="A")
    moved = te.compute((12,), lambda i: A[(i * 5 + 1) % 12], name="moved")
    ramp = te.compute((12,), lambda i: moved[i] + te.cast(i * 2 + 1, "float32"), name="ramp")
    assert dag(A, ramp).flop_ct == 12


def test_flop_stated_by_the_user():
    graph = matmul_add(8, attrs={"FLOP": 100})
    assert graph.flop_ct == 100 + 64
    assert ComputeDAG(replace(graph.func, attrs=(("FLOP", 7),))).flop_ct == 7


def test_bytes_and_intensity():
    graph = matmul_add(64)
    assert graph.bytes_touched == 4 * 64 * 64 * 4
    assert graph.arithmetic_intensity == graph.flop_ct / graph.bytes_touched
    assert graph.info("matmul").bytes_accessed == 3 * 64 * 64 * 4


def test_producers_and_consumers():
    graph = softmax()
    assert [b.name for b in graph.producers("out")] == ["e", "total"]
    assert [b.name for b in graph.consumers("e")] == ["total", "out"]
    assert graph.producers("top") == ()
    assert graph.consumers("out") == ()
    assert [b.name for b in graph.inputs] == ["A"]
    assert [b.name for b in graph.outputs] == ["out"]
    with pytest.raises(ScheduleError, match="no block named 'nope' in main; it has top, e, total"):
        graph.info("nope")


def test_reuse():
    info = matmul_add(16).info("matmul")
    a, b = info.reads
    assert [i.var.name for i in a.missing] == ["vj"]
    assert (a.reuse, b.reuse) == (16, 16)
    assert not a.elementwise
    assert info.points == 16**3
    assert len(info.spatial) == 2
    assert len(info.reduce) == 1


def flags(graph: ComputeDAG, name: str) -> set[str]:
    info = graph.info(name)
    return {
        flag.removeprefix("is_")
        for flag in (
            "is_output", "is_reduction", "is_injective", "is_elementwise", "is_inlineable",
            "is_strictly_inlineable", "has_expensive_op", "has_branch", "needs_multi_level_tiling",
        )
        if getattr(info, flag)
    }  # fmt: skip


def test_flags_of_conv():
    graph = conv_relu()
    assert flags(graph, "pad") == {"injective", "inlineable", "has_branch"}
    assert flags(graph, "conv") == {"reduction", "needs_multi_level_tiling"}
    assert flags(graph, "shifted") == {"injective", "inlineable", "strictly_inlineable"}
    assert flags(graph, "out") == {"output", "injective", "elementwise", "has_branch"}


def test_flags_of_softmax():
    graph = softmax()
    assert flags(graph, "top") == {"reduction"}
    assert flags(graph, "e") == {"injective", "inlineable", "has_expensive_op"}
    assert flags(graph, "total") == {"reduction"}


def test_transposed_and_repeated_axes_are_not_strictly_inlineable():
    A = te.placeholder((4, 4), name="A")
    turned = te.compute((4, 4), lambda i, j: A[j, i] * 2.0, name="turned")
    diagonal = te.compute((4, 4), lambda i, j: turned[i, i] + turned[i, j], name="diagonal")
    out = te.compute((4, 4), lambda i, j: diagonal[i, j] + 1.0, name="out")
    graph = dag(A, out)
    assert flags(graph, "turned") == {"injective", "inlineable"}
    assert flags(graph, "diagonal") == {"inlineable"}


def test_outer_product_needs_tiling_without_a_reduction():
    a, b = te.placeholder((8,), name="a"), te.placeholder((8,), name="b")
    graph = dag(a, b, te.compute((8, 8), lambda i, j: a[i] * b[j], name="outer"))
    assert "needs_multi_level_tiling" in flags(graph, "outer")


def test_depthwise_reads_count_as_reuse():
    X, W = te.placeholder((6, 6, 4), name="X"), te.placeholder((3, 3, 4), name="W")
    ky, kx = te.reduce_axis((0, 3), name="ky"), te.reduce_axis((0, 3), name="kx")
    out = te.compute(
        (4, 4, 4),
        lambda y, x, c: te.sum(X[y + ky, x + kx, c] * W[ky, kx, c], axis=[ky, kx]),
        name="out",
    )
    assert "needs_multi_level_tiling" in flags(dag(X, W, out), "out")


def test_elementwise_chains():
    graph = conv_relu()
    assert [b.name for b in graph.elementwise_chain("conv")] == ["shifted", "out"]
    assert graph.elementwise_chain("pad") == ()
    assert graph.elementwise_chain("out") == ()
    assert softmax().elementwise_chain("e") == ()  # two consumers
    assert [b.name for b in matmul_add(8).elementwise_chain("matmul")] == ["out"]


def test_common_outer_axes():
    graph = softmax()
    for name in ("top", "e", "total"):
        assert graph.common_outer_axes(name, "out") == 1
    assert graph.common_outer_axes("out", "top") == 0
    assert graph.common_outer_axes("out", "out") == 0
    assert conv_relu().common_outer_axes("conv", "out") == 3
    assert conv_relu().common_outer_axes("pad", "conv") == 0


def test_keys_and_index():
    graph = softmax()
    assert graph.workload_key == workload_key(graph.func)
    assert graph.index == {"top": 0, "e": 1, "total": 2, "out": 3}
    assert isinstance(graph.func, PrimFunc)

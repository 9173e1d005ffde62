"""Schedules of one primitive each, and a few whole ones, whose texts are golden."""

from __future__ import annotations

from collections.abc import Callable

from scan_programs import cumsum
from schedule_programs import (
    add_one,
    argmax,
    grouped,
    matmul,
    matmul_add,
    padded_conv,
    padded_inside,
    row_sum,
    softmax,
    tile_matmul,
    windows,
)
from tensor_programs import dot_matmul, tile

from autosched.codegen.intrinsics import VNNI
from autosched.schedule import Schedule
from autosched.tir.nodes import PrimFunc


def split(s: Schedule) -> None:
    (i,) = s.get_loops(s.get_block("B"))
    s.split(i, [None, 4])


def split_tail(s: Schedule) -> None:
    (i,) = s.get_loops(s.get_block("B"))
    s.split(i, [None, 3, 2])


def split_axis(s: Schedule) -> None:
    block = s.get_block("C")
    outer, inner = s.split_axis(block, 1, 3)
    s.parallel(outer)
    s.reorder(s.get_loops(block)[-1], inner)
    s.reverse_compute_at(s.get_block("D"), outer)


def split_axis_whole(s: Schedule) -> None:
    """A tile of all points: a loop of one iteration around it."""
    one, all_of_it = s.split_axis(s.get_block("C"), 1, 6)
    s.reorder(one, s.get_loops(s.get_block("C"))[0], all_of_it)


def reorder(s: Schedule) -> None:
    i, j, k = s.get_loops(s.get_block("C"))
    s.reorder(k, i, j)


def fuse(s: Schedule) -> None:
    i, j, _ = s.get_loops(s.get_block("C"))
    s.fuse(i, j)


def kinds(s: Schedule) -> None:
    i, j, k = s.get_loops(s.get_block("C"))
    s.reorder(i, k, j)
    s.parallel(i)
    s.unroll(k)
    s.vectorize(j)


def vectorize_reduction(s: Schedule) -> None:
    s.vectorize(s.get_loops(s.get_block("S"))[-1])


def bind(s: Schedule) -> None:
    i, j, _ = s.get_loops(s.get_block("C"))
    s.bind(i, "blockIdx.x")
    s.bind(j, "threadIdx.x")


def compute_at(s: Schedule) -> None:
    (i,) = s.get_loops(s.get_block("C"))
    i0, _ = s.split(i, [None, 4])
    s.compute_at(s.get_block("B"), i0)


def compute_at_halo(s: Schedule) -> None:
    conv = s.get_block("conv")
    i, *_ = s.get_loops(conv)
    i0, _ = s.split(i, [None, 4])
    s.compute_at(s.get_block("pad"), i0)


def compute_at_reduction(s: Schedule) -> None:
    i, j = s.get_loops(s.get_block("out"))
    j0, _ = s.split(j, [None, 4])
    s.reorder(j0, i)
    s.compute_at(s.get_block("matmul"), j0)


def reverse_compute_at(s: Schedule) -> None:
    i, j, _ = s.get_loops(s.get_block("matmul"))
    i0, i1 = s.split(i, [None, 4])
    j0, j1 = s.split(j, [None, 3])
    s.reorder(i0, j0, i1, j1)
    s.reverse_compute_at(s.get_block("out"), j0)


def reverse_compute_at_carried(s: Schedule) -> None:
    """The sum of the exponentials goes on from piece to piece of a row."""
    i, _ = s.get_loops(s.get_block("out"))
    for name in ("total", "e", "top"):
        s.compute_at(s.get_block(name), i)
    piece, _ = s.split(s.get_loops(s.get_block("e"))[-1], [None, 3])
    s.reverse_compute_at(s.get_block("total"), piece)
    s.parallel(i)


def compute_inline(s: Schedule) -> None:
    s.compute_inline(s.get_block("pad"))


def reverse_compute_inline(s: Schedule) -> None:
    s.reverse_compute_inline(s.get_block("C"))


def cache_read(s: Schedule) -> None:
    copy = s.cache_read(s.get_block("C"), "A")
    s.compute_at(copy, s.get_loops(s.get_block("C"))[1])


def cache_read_packed(s: Schedule) -> None:
    s.cache_read(s.get_block("C"), 1, "global", [[1, 4], 0, [1, 1, 4]])


def cache_write(s: Schedule) -> None:
    block = s.get_block("C")
    copy = s.cache_write(block)
    s.reverse_compute_at(copy, s.get_loops(block)[1])


def rfactor(s: Schedule) -> None:
    _, k = s.get_loops(s.get_block("S"))
    _, k1 = s.split(k, [None, 4])
    s.rfactor(k1)


def rfactor_guarded(s: Schedule) -> None:
    """More partial results than terms: those without one are the identity."""
    _, k = s.get_loops(s.get_block("S"))
    s.rfactor(s.split(k, [None, 16])[1])


def rfactor_tuple(s: Schedule) -> None:
    _, k = s.get_loops(s.get_block("best"))
    k0, _ = s.split(k, [None, 4])
    s.rfactor(k0, factor_axis=1)


def decompose_reduction(s: Schedule) -> None:
    block = s.get_block("C")
    _, j, k = s.get_loops(block)
    j0, j1 = s.split(j, [None, 5])
    s.reorder(j0, k, j1)
    s.decompose_reduction(block, k)


def annotate(s: Schedule) -> None:
    block = s.get_block("C")
    s.annotate(block, "streaming", True)
    s.annotate(block, "auto_scheduler_hint", 1)
    s.unannotate(block, "auto_scheduler_hint")
    s.annotate(s.get_loops(block)[0], "chunk", 4)
    s.set_scope(s.get_block("B"), 0, "local")


def storage_align(s: Schedule) -> None:
    """The window of padded rows, whose columns are read, gets rows of an odd length."""
    i, *_ = s.get_loops(s.get_block("conv"))
    i0, _ = s.split(i, [None, 4])
    s.compute_at(s.get_block("pad"), i0)
    s.storage_align(s.get_block("pad"), 0, 0, 32, 1)


def double_buffer(s: Schedule) -> None:
    """A tile of the first factor for each step of four."""
    block = s.get_block("C")
    i, j, k = s.get_loops(block)
    k0, _ = s.split(k, [None, 4])
    s.reorder(k0, i, j)
    copy = s.cache_read(block, "A", "shared")
    s.compute_at(copy, k0)
    s.double_buffer(copy)


def transform_layout(s: Schedule) -> None:
    """Panels of four rows, in place of the rows."""
    s.transform_layout(s.get_block("C"), ("read", 0), lambda i: (i // 4, i % 4))


def transform_layout_swizzled(s: Schedule) -> None:
    i, j, k = s.get_loops("matmul")
    s.reorder(i, k, j)
    s.vectorize(j)
    s.transform_layout("matmul", "matmul", lambda i, j: (i, (i + j) % 8))
    s.cache_read("matmul", "A", "local", [0, [1, 1, 3, [0, 2]]])


def transform_layout_fused(s: Schedule) -> None:
    """One dimension of all elements, cut into vectors."""
    block = s.get_block("matmul")
    s.transform_layout(block, "matmul", lambda i, j: ((i * 7 + j) // 8, (i * 7 + j) % 8))


def transform_layout_padded(s: Schedule) -> None:
    """The copy of B holds zeros where its panels overhang."""
    copy = s.cache_read(s.get_block("matmul"), "B")
    s.transform_layout(copy, ("write", 0), [[1, 4], [0, 2], [1, 1, 4], [0, 1, 2]], pad_value=0)
    i, _, _ = s.get_loops(s.get_block("matmul"))
    s.parallel(i)


def pad_axis(s: Schedule) -> None:
    """Terms in fours, columns in eights: both operands are copied, the result is wider."""
    block = s.get_block("matmul")
    _, j, k = s.get_loops(block)
    s.pad_axis(k, 4)
    s.pad_axis(j, 8)


def pad_axis_of_windows(s: Schedule) -> None:
    """Of a part of an index: what is read is longer by two elements for each more."""
    s.pad_axis(s.get_loops(s.get_block("C"))[0], 4)


def parallel_scan(s: Schedule) -> None:
    """Chunks of four of twelve steps, in parallel."""
    step = s.get_block("step")
    total, _ = s.parallel_scan(step, 4)
    for block in (total, step):
        s.parallel(s.get_loops(block)[0])


def single_pass_scan(s: Schedule) -> None:
    """Tiles of six of twelve steps: two threads along them, three steps each."""
    s.single_pass_scan(s.get_block("step"), 3, 2, 2)


def tensorize(s: Schedule) -> None:
    """Twelve rows in register tiles of eight, the last one half empty."""
    tile(s, VNNI, rows=8, panels=1)


def blockize(s: Schedule) -> None:
    i, j, k = s.get_loops("C")
    j0, j1 = s.split(j, [None, 5])
    k0, k1 = s.split(k, [None, 4])
    s.reorder(i, j0, k0, j1, k1)
    unit = s.blockize(j1)
    s.decompose_reduction(unit, k0)
    s.parallel(s.get_loops(unit)[0])


def add_unit_loop(s: Schedule) -> None:
    s.bind(s.add_unit_loop(s.get_loops("B")[0]), "blockIdx.x")
    s.add_unit_loop("B")


def reorder_block_iter_var(s: Schedule) -> None:
    s.reorder_block_iter_var("C", [2, 0, 1])


def merge(s: Schedule) -> None:
    s.decompose_reduction("matmul", s.get_loops("matmul")[0])
    s.merge(s.get_loops("matmul_init")[1], s.get_loops("matmul")[1], s.get_loops("out")[1])


def loop_partition(s: Schedule) -> None:
    s.loop_partition(s.get_loops("C")[0], [1, 2])


def decompose_padding(s: Schedule) -> None:
    (name,) = [s.get(b).name for b in s.get_blocks() if "if_then_else" in repr(s.get(b).body)]
    s.decompose_padding(name, s.get_loops(name)[0])


def pad_einsum(s: Schedule) -> None:
    s.pad_einsum("C", [4, 4, 4])


def pad_read(s: Schedule) -> None:
    s.pad_read("C", "A")


def rolling_buffer(s: Schedule) -> None:
    s.compute_at("pad", s.get_loops("conv")[0])
    s.rolling_buffer("pad")


def cache_index(s: Schedule) -> None:
    s.cache_index("C", "local")


def cache_inplace(s: Schedule) -> None:
    s.decompose_reduction("C", s.get_loops("C")[2])
    s.cache_inplace("C", "C", "local")


def reindex(s: Schedule) -> None:
    s.reindex("C", ("read", 0))
    s.reindex("C", ("write", 0))


def reindex_cache(s: Schedule) -> None:
    s.reindex_cache_read("C", 0, "local", lambda i, j, k: (k, i, j // 3, j % 3))
    s.reindex_cache_write("C", "C", "local", lambda i, j, k: (j, i))


def transform_block_layout(s: Schedule) -> None:
    s.transform_block_layout("C", lambda i, j, k: (i * 6 + j, k // 2, k % 2))


def rows(s: Schedule) -> None:
    """Softmax a row at a time."""
    i, _ = s.get_loops(s.get_block("out"))
    for name in ("total", "e", "top"):
        s.compute_at(s.get_block(name), i)
    s.parallel(i)
    s.vectorize(s.get_loops(s.get_block("e"))[-1])
    s.vectorize(s.get_loops(s.get_block("total"))[-1])


def rows_reverse(s: Schedule) -> None:
    """The same from the other end."""
    i, _ = s.get_loops(s.get_block("top"))
    i0, _ = s.split(i, [None, 4])
    for name in ("e", "total", "out"):
        s.reverse_compute_at(s.get_block(name), i0)
    s.parallel(i0)


def fused_tiles(s: Schedule) -> None:
    """Outer tile loops fused into one parallel loop, packing and epilogue inside."""
    b, o = s.get_block("matmul"), s.get_block("out")
    i, j, k = s.get_loops(b)
    i0, i1 = s.split(i, [None, 4])
    j0, j1 = s.split(j, [None, 8])
    s.reorder(i0, j0, k, i1, j1)
    packed = s.cache_read(b, "B", "local", [[1, 4], 0, [1, 1, 4]])
    outer = s.fuse(i0, j0)
    s.compute_at(packed, outer)
    s.reverse_compute_at(o, outer)
    s.parallel(outer)
    s.vectorize(j1)


def sketch(s: Schedule) -> None:
    s.decisions = {"i1": 1, "i2": 2, "i3": 3, "j1": 2, "j2": 1, "j3": 4, "k1": 5}
    tile_matmul(s)


CASES: dict[str, tuple[PrimFunc, Callable[[Schedule], None]]] = {
    "split": (add_one(), split),
    "split_tail": (add_one(13), split_tail),
    "split_axis": (grouped(), split_axis),
    "split_axis_whole": (grouped(), split_axis_whole),
    "reorder": (matmul(4, 5, 3), reorder),
    "fuse": (matmul(4, 5, 3), fuse),
    "kinds": (matmul(4, 5, 3), kinds),
    "vectorize_reduction": (row_sum(3, 7), vectorize_reduction),
    "bind": (matmul(4, 5, 3), bind),
    "compute_at": (add_one(18), compute_at),
    "compute_at_halo": (padded_conv(), compute_at_halo),
    "compute_at_reduction": (matmul_add(5, 7, 3), compute_at_reduction),
    "reverse_compute_at": (matmul_add(9, 7, 3), reverse_compute_at),
    "reverse_compute_at_carried": (softmax(), reverse_compute_at_carried),
    "compute_inline": (padded_conv(), compute_inline),
    "reverse_compute_inline": (add_one(), reverse_compute_inline),
    "cache_read": (matmul(4, 5, 3), cache_read),
    "cache_read_packed": (matmul(4, 10, 3), cache_read_packed),
    "cache_write": (matmul(4, 5, 3), cache_write),
    "rfactor": (row_sum(3, 10), rfactor),
    "rfactor_guarded": (row_sum(3, 10), rfactor_guarded),
    "rfactor_tuple": (argmax(), rfactor_tuple),
    "decompose_reduction": (matmul(4, 7, 3), decompose_reduction),
    "annotate": (add_one(), annotate),
    "storage_align": (padded_conv(), storage_align),
    "double_buffer": (matmul(4, 5, 8), double_buffer),
    "transform_layout": (add_one(18), transform_layout),
    "transform_layout_swizzled": (matmul_add(5, 8, 3), transform_layout_swizzled),
    "transform_layout_fused": (matmul_add(5, 7, 3), transform_layout_fused),
    "transform_layout_padded": (matmul_add(5, 7, 3), transform_layout_padded),
    "pad_axis": (matmul_add(5, 7, 3), pad_axis),
    "pad_axis_of_windows": (windows(), pad_axis_of_windows),
    "parallel_scan": (cumsum(13, 3, "int32"), parallel_scan),
    "single_pass_scan": (cumsum(13, 3, "int32"), single_pass_scan),
    "tensorize": (dot_matmul(VNNI, 12, 32, 8), tensorize),
    "blockize": (matmul(4, 10, 8), blockize),
    "add_unit_loop": (add_one(), add_unit_loop),
    "reorder_block_iter_var": (matmul(4, 5, 3), reorder_block_iter_var),
    "merge": (matmul_add(4, 5, 3), merge),
    "loop_partition": (matmul(4, 5, 3), loop_partition),
    "decompose_padding": (padded_conv(), decompose_padding),
    "pad_einsum": (matmul(4, 5, 3), pad_einsum),
    "pad_read": (padded_inside(), pad_read),
    "rolling_buffer": (padded_conv(), rolling_buffer),
    "cache_index": (grouped(), cache_index),
    "cache_inplace": (matmul(4, 5, 3), cache_inplace),
    "reindex": (grouped(), reindex),
    "reindex_cache": (grouped(), reindex_cache),
    "transform_block_layout": (matmul(4, 6, 4), transform_block_layout),
    "rows": (softmax(), rows),
    "rows_reverse": (softmax(), rows_reverse),
    "fused_tiles": (matmul_add(10, 20, 3), fused_tiles),
    "sketch": (matmul_add(11, 13, 7), sketch),
}

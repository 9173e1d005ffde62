"""Right programs that proofs once refused, and wrong ones beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from verify_programs import fails

from autosched import te
from autosched.errors import VerifyError
from autosched.schedule import Schedule
from autosched.script.parser import parse_func
from autosched.tir.nodes import PrimFunc, sites
from autosched.tir.verify import verify


def chain() -> PrimFunc:
    a = te.placeholder((9, 6), name="A")
    b = te.compute((9, 6), lambda i, j: a[i, j] + 1.0, name="B")
    return te.create_prim_func([a, te.compute((9, 6), lambda i, j: b[i, j] * 2.0, name="C")])


def test_a_loop_of_one_iteration_inside_a_parallel_one() -> None:
    """Its predicate keeps the inner part below what its loop reaches."""
    sch = Schedule(chain())
    outer, inner = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 2])
    sch.parallel(outer)
    verify(sch.func)
    sch.split(inner, [None, 4])
    verify(sch.func)
    block = next(s.block for s in sites(sch.func) if s.block.name == "B")
    loose = replace(block, predicates=tuple(p for p in block.predicates if p.bound == 9))
    assert len(loose.predicates) == len(block.predicates) - 1 == 1
    fails(_with(sch.func, block, loose), "may write the same element of B")


def _with(func: PrimFunc, old: object, new: object) -> PrimFunc:
    def change(nodes: tuple) -> tuple:  # type: ignore[type-arg]
        return tuple(
            new if n is old else replace(n, body=change(n.body)) if hasattr(n, "var") else n
            for n in nodes
        )

    return replace(func, body=change(func.body))


def test_a_copy_takes_along_padding_that_nobody_reads() -> None:
    sch = Schedule(chain())
    sch.transform_layout(sch.get_block("B"), ("write", 0), [[1, 8], 0, [1, 1, 8]])
    sch.cache_read(sch.get_block("C"), 0)
    verify(sch.func)
    reader = next(s.block for s in sites(sch.func) if s.block.name == "C")
    (read,) = reader.reads
    beyond = replace(reader, reads=(replace(read, indices=(*read.indices[:-1], _last(read))),))
    fails(_with(sch.func, reader, beyond), "reads B_local at 2..7 in dimension 2, where 0..5 is")


def _last(read: object) -> object:
    return read.indices[-1] + 2  # type: ignore[attr-defined]


TOTAL = """
@T.prim_func
def main(A: T.Buffer((4,)), C: T.Buffer((4,))):
    s = T.alloc_buffer((), "float32")
    for i in range(4):
        {0}
        {1}
"""
SUM = """for k in range(4):
            with T.block("s"):
                vk = T.axis.reduce(4, k)
                with T.init():
                    s[()] = 0.0
                s[()] = s[()] + A[vk]"""
READER = """with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = A[vi] - s[()]"""


def test_a_buffer_without_dimensions_in_a_shared_nest() -> None:
    """Its only element has an empty index."""
    verify(parse_func(TOTAL.format(SUM, READER)))
    with pytest.raises(VerifyError, match=r"by_then: block 'C' reads s\[\(\)\] before it is"):
        parse_func(TOTAL.format(READER, SUM))

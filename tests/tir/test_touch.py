"""Numbers of rows: which points touch one element."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.errors import VerifyError
from autosched.script import parse
from autosched.tir.touch import numbered


@pytest.mark.parametrize("far", [7, 2**40, 2**62], ids=["near", "far", "beyond 64 bits"])
def test_equal_rows_have_one_number(far: int) -> None:
    rows = np.array([[0, far, 3], [1, 0, 3], [0, far, 3], [far, 0, -far]], dtype=np.int64)
    found = numbered(rows)
    assert found[0] == found[2]
    assert len(set(found.tolist())) == 3


def test_an_element_far_beyond_its_buffer_is_refused_with_a_reason() -> None:
    """A damaged script: the index's digits do not fit 64 bits once they are put together."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4, 7), "float32")):
    for i, j_0 in T.grid(4, 2):
        for j_1 in T.serial(5):
            with T.block("C_init"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(7, j_0 * 5 + j_1)
                T.where(j_0 * 5 + j_1 < 7)
                T.reads()
                T.writes(C[vi, vj])
                C[vi, vj] = T.float32(0.0)
        for k, j_1_1 in T.grid(3, 5):
            with T.block("C"):
                vi_1 = T.axis.spatial(4, i)
                vj_1 = T.axis.spatial(7, j_0 * 4611686018427387904 + j_1_1)
                vk = T.axis.reduce(3, k)
                T.where(j_0 * 5 + j_1_1 < 7)
                T.reads(A[vi_1, vk])
                T.writes(C[vi_1, vj_1])
                C[vi_1, vj_1] = C[vi_1, vj_1] + A[vi_1, vk]
"""
    with pytest.raises(VerifyError, match="not provably in"):
        parse(text)

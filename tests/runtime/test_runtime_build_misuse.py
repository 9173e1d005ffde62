"""`at.build` with arguments in the wrong places."""

from __future__ import annotations

import pytest

import autosched as at
from autosched import ops, te
from autosched.errors import ArgumentError


@pytest.mark.parametrize("target", ["llvm", at.Target("llvm")])
def test_a_target_in_the_place_of_the_parameters(target: str | at.Target) -> None:
    func = te.create_prim_func(ops.matmul(4, 4, 4))
    with pytest.raises(ArgumentError, match=r"found 'llvm.*given by name: build\(program, target"):
        at.build(func, target)  # type: ignore[call-overload]

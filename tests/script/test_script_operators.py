"""Script text of the operator library parses back to itself: as written, scheduled, lowered."""

from __future__ import annotations

import pytest

from autosched.errors import ScriptError
from autosched.lowering.lower import lower
from autosched.script import parse
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.workloads import prim_func_of

WORKLOADS = [
    ("matmul", (5, 7, 9)),
    ("matmul_bias_gelu", (4, 5, 6)),
    ("conv2d", (6, 6, 4, 4, 3, 1, 1)),
    ("conv1d", (8, 3, 4, 3, 2, 1)),
    ("depthwise_conv2d", (6, 6, 4, 3, 1, 1)),
    ("max_pool2d", (6, 6, 4, 3, 2, 1)),
    ("softmax", (5, 19)),
    ("layer_norm", (4, 11)),
    ("argmax", (4, 9)),
]


@pytest.mark.parametrize(("name", "args"), WORKLOADS)
def test_operators_round_trip(name: str, args: tuple[int, ...]) -> None:
    func = prim_func_of(name, args)
    scheduled = default_schedule(func, Target("llvm")).func
    for program in (func, scheduled, lower(scheduled)):
        assert parse(program.script()).script() == program.script()


def test_other_python_is_refused() -> None:
    with pytest.raises(ScriptError):
        parse("import os\nos.system('true')\n")

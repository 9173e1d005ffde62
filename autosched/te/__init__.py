"""Tensor expressions: what to compute, without any order.

A = te.placeholder((N, L), name="A")
k = te.reduce_axis((0, L), name="k")
C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
func = te.create_prim_func([A, B, C])
s = te.create_schedule(C.op)
"""

from autosched.te.compute import compute
from autosched.te.intrinsics import (
    abs,
    all,
    any,
    cast,
    ceil,
    const,
    cos,
    erf,
    exp,
    floor,
    floordiv,
    floormod,
    if_then_else,
    log,
    logical_not,
    max_value,
    min_value,
    pow,
    power,
    round,
    rsqrt,
    select,
    sigmoid,
    sin,
    sqrt,
    tanh,
)
from autosched.te.prim_func import create_prim_func
from autosched.te.reduction import Reduce, comm_reducer, max, min, prod, sum
from autosched.te.scan import scan
from autosched.te.stage.schedule import StageSchedule, create_schedule
from autosched.te.stage.stage import Stage
from autosched.te.stage.thread import ThreadAxis, thread_axis
from autosched.te.tensor import (
    ComputeOp,
    IterVar,
    PlaceholderOp,
    ScanOp,
    Tensor,
    TensorRead,
    placeholder,
    reduce_axis,
    var,
)

__all__ = [
    "ComputeOp",
    "IterVar",
    "PlaceholderOp",
    "Reduce",
    "ScanOp",
    "Stage",
    "StageSchedule",
    "Tensor",
    "TensorRead",
    "ThreadAxis",
    "abs",
    "all",
    "any",
    "cast",
    "ceil",
    "comm_reducer",
    "compute",
    "const",
    "cos",
    "create_prim_func",
    "create_schedule",
    "erf",
    "exp",
    "floor",
    "floordiv",
    "floormod",
    "if_then_else",
    "log",
    "logical_not",
    "max",
    "max_value",
    "min",
    "min_value",
    "placeholder",
    "pow",
    "power",
    "prod",
    "reduce_axis",
    "round",
    "rsqrt",
    "scan",
    "select",
    "sigmoid",
    "sin",
    "sqrt",
    "sum",
    "tanh",
    "thread_axis",
    "var",
]

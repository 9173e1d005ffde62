"""The operator library: workloads known by name, on the command line and over the wire; and every
operator as a function from tensors to tensors.

ops.matmul(64, 64, 64) is a workload, [A, B, C]; ops.matmul(A, B) a tensor, ops.relu(A) another.
`autosched.ops.tensors` says where operators on tensors are defined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.ops.convolution import (
    conv1d,
    conv2d,
    conv2d_bias_relu,
    conv2d_bn_relu,
    conv2d_capsule,
    conv3d,
    depthwise_conv2d,
    max_pool2d,
)
from autosched.ops.linear import (
    batch_matmul,
    matmul,
    matmul_add,
    matmul_bias_gelu,
    transpose_batch_matmul,
    transpose_batch_matmul_softmax,
    two_matmuls,
)
from autosched.ops.mixed import conv2d_mixed, matmul_mixed
from autosched.ops.pointwise import mul_add_relu
from autosched.ops.recurrent import cumsum, ema, gru, lstm, rnn
from autosched.ops.registry import OPERATORS, Operator, get
from autosched.ops.rows import argmax, layer_norm, norm, softmax
from autosched.ops.transposed import conv2d_transpose
from autosched.ops.winograd import winograd_conv2d, winograd_weight


def __getattr__(name: str) -> Callable[..., Any]:
    if not name.startswith("_"):
        # Not before it is asked for: the graph level is written with parts of this package.
        from autosched.ops.tensors import function

        found = function(name)
        if found is not None:
            return found
    raise AttributeError(f"no operator is called ops.{name}; dir(autosched.ops) lists them")


def __dir__() -> list[str]:
    from autosched.ops.tensors import names

    return sorted({*globals(), *names()})


__all__ = [
    "OPERATORS",
    "Operator",
    "argmax",
    "batch_matmul",
    "conv1d",
    "conv2d",
    "conv2d_bias_relu",
    "conv2d_bn_relu",
    "conv2d_capsule",
    "conv2d_mixed",
    "conv2d_transpose",
    "conv3d",
    "cumsum",
    "depthwise_conv2d",
    "ema",
    "get",
    "gru",
    "layer_norm",
    "lstm",
    "matmul",
    "matmul_add",
    "matmul_bias_gelu",
    "matmul_mixed",
    "max_pool2d",
    "mul_add_relu",
    "norm",
    "rnn",
    "softmax",
    "transpose_batch_matmul",
    "transpose_batch_matmul_softmax",
    "two_matmuls",
    "winograd_conv2d",
    "winograd_weight",
]

"""The operator library: workloads known by name, on the command line and over the wire."""

from autosched.ops.conv import (
    conv1d,
    conv2d,
    conv2d_bias_relu,
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
)
from autosched.ops.recurrent import cumsum, ema, gru, lstm, rnn
from autosched.ops.registry import OPERATORS, Operator, get
from autosched.ops.rows import argmax, layer_norm, norm, softmax

__all__ = [
    "OPERATORS",
    "Operator",
    "argmax",
    "batch_matmul",
    "conv1d",
    "conv2d",
    "conv2d_bias_relu",
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
    "max_pool2d",
    "norm",
    "rnn",
    "softmax",
    "transpose_batch_matmul",
]

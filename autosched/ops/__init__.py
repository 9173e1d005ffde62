"""The operator library: workloads known by name, on the command line and over the wire."""

from autosched.ops.conv import (
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
from autosched.ops.pointwise import mul_add_relu
from autosched.ops.recurrent import cumsum, ema, gru, lstm, rnn
from autosched.ops.registry import OPERATORS, Operator, get
from autosched.ops.rows import argmax, layer_norm, norm, softmax
from autosched.ops.transposed import conv2d_transpose
from autosched.ops.winograd import winograd_conv2d, winograd_weight

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

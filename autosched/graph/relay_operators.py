"""Operators of the predecessor's text format, and what they are here."""

from __future__ import annotations

from typing import Any

LEVELS: tuple[dict[str, str], ...] = (
    {"==": "Equal", "!=": "Equal", "<": "Less", "<=": "LessOrEqual", ">": "Greater",
     ">=": "GreaterOrEqual"},
    {"+": "Add", "-": "Sub"},
    {"*": "Mul", "/": "Div"},
)  # fmt: skip
PLAIN = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow",
    "maximum": "Max", "minimum": "Min", "equal": "Equal", "less": "Less", "greater": "Greater",
    "less_equal": "LessOrEqual", "greater_equal": "GreaterOrEqual", "logical_and": "And",
    "logical_or": "Or", "logical_not": "Not", "negative": "Neg", "exp": "Exp", "log": "Log",
    "sqrt": "Sqrt", "abs": "Abs", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf",
    "nn.relu": "Relu", "where": "Where", "nn.batch_flatten": "Flatten", "nn.matmul": "MatMul",
}  # fmt: skip
"""Operators without attributes, by the operator here."""
OTHERS = {"nn.bias_add": "Add", "bias_add": "Add", "dense": "Gemm", "concatenate": "Concat"}
"""Operators that errors in our own text translate."""
RENAMED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "nn.dense": ("Gemm", {"units": "", "out_dtype": ""}, {"transB": 1}),
    "nn.softmax": ("Softmax", {"axis": "axis"}, {}),
    "reshape": ("Reshape", {"newshape": "shape"}, {}),
    "transpose": ("Transpose", {"axes": "perm"}, {}),
    "sum": ("ReduceSum", {"axis": "axes", "keepdims": "keepdims"}, {"keepdims": 0}),
    "mean": ("ReduceMean", {"axis": "axes", "keepdims": "keepdims"}, {"keepdims": 0}),
    "cast": ("Cast", {"dtype": "to"}, {}),
    "nn.conv2d": (
        "Conv",
        {"strides": "strides", "padding": "pads", "dilation": "dilations", "groups": "group",
         "kernel_size": "", "channels": "", "out_dtype": ""},
        {},
    ),
}  # fmt: skip
"""Operators with attributes: the operator here, the names of attributes ("" is left out), and what
is given besides."""

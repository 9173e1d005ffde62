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
    "sqrt": "Sqrt", "abs": "Abs", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "sign": "Sign", "sin": "Sin", "cos": "Cos", "copy": "Identity", "floor_mod": "Mod",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "nn.relu": "Relu", "where": "Where",
    "nn.batch_flatten": "Flatten", "tan": "Tan", "atan": "Atan", "asin": "Asin", "acos": "Acos",
    "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh",
    "logical_xor": "Xor", "isnan": "IsNaN", "isinf": "IsInf", "stop_gradient": "Identity",
    "annotation.stop_fusion": "Identity", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot",
}  # fmt: skip
"""Operators without attributes, by the operator here."""
OTHERS = {
    "nn.bias_add": "Add", "bias_add": "Add", "concatenate": "Concat", "nn.conv2d": "Conv",
    "conv2d": "Conv", "nn.max_pool2d": "MaxPool", "nn.avg_pool2d": "AveragePool", "split": "Split",
    "nn.batch_norm": "BatchNormalization", "nn.layer_norm": "LayerNormalization",
    "expand_dims": "Unsqueeze", "nn.dense": "Gemm", "dense": "Gemm", "nn.prelu": "PRelu",
    "take": "Gather", "nn.matmul": "MatMul", "nn.pad": "Pad", "strided_slice": "Slice",
}  # fmt: skip
"""Operators that errors in our own text translate."""
IDLE = {"reverse": 0, "allowzero": 0}
"""Attributes that mean nothing with these values, the usual ones, and are not read with others."""
RENAMED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "nn.softmax": ("Softmax", {"axis": "axis"}, {}),
    "transpose": ("Transpose", {"axes": "perm"}, {}),
    "sum": ("ReduceSum", {"axis": "axes", "keepdims": "keepdims"}, {"keepdims": 0}),
    "mean": ("ReduceMean", {"axis": "axes", "keepdims": "keepdims"}, {"keepdims": 0}),
    "max": ("ReduceMax", {"axis": "axes", "keepdims": "keepdims"}, {"keepdims": 0}),
    "min": ("ReduceMin", {"axis": "axes", "keepdims": "keepdims"}, {"keepdims": 0}),
    "prod": ("ReduceProd", {"axis": "axes", "keepdims": "keepdims"}, {"keepdims": 0}),
    "squeeze": ("Squeeze", {"axis": "axes"}, {}),
    "left_shift": ("BitShift", {}, {"direction": "LEFT"}),
    "right_shift": ("BitShift", {}, {"direction": "RIGHT"}),
    "mod": ("Mod", {}, {"fmod": 1}),
    "trunc_mod": ("Mod", {}, {"fmod": 1}),
    "gather": ("GatherElements", {"axis": "axis"}, {}),
    "broadcast_to": ("Expand", {"shape": "shape", "dtype": ""}, {}),
    "nn.leaky_relu": ("LeakyRelu", {"alpha": "alpha"}, {"alpha": 0.25}),
    "nn.depth_to_space": ("DepthToSpace", {"block_size": "blocksize", "mode": "mode"}, {}),
    "nn.space_to_depth": ("SpaceToDepth", {"block_size": "blocksize"}, {}),
    "nn.lrn": (
        "LRN",
        {"size": "size", "alpha": "alpha", "beta": "beta", "bias": "bias"},
        {"size": 5, "alpha": 1e-5, "bias": 2.0},
    ),
    "nn.log_softmax": ("LogSoftmax", {"axis": "axis"}, {}),
    "cast": ("Cast", {"dtype": "to"}, {}),
}  # fmt: skip
"""Operators with attributes: the operator here, the names of attributes ("" is left out), and what
is given besides."""

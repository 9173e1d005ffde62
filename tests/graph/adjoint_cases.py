"""Calls of operators whose adjoints are tested, and operators that pass nothing back."""

from __future__ import annotations

import numpy as np


class Positive(tuple):
    """The shape of an input between 0.5 and 1.5."""


class Unit(tuple):
    """The shape of an input between -0.9 and 0.9."""


class Above(tuple):
    """The shape of an input between 1.1 and 2.1."""


def ints(*values):
    return np.array(values, "int64")


X = (2, 3, 4)
IMAGE = (1, 2, 5, 5)
GRID = np.linspace(-0.8, 0.9, 24).reshape(1, 3, 4, 2)
BOXES = np.array([[0.3, 0.2, 4.1, 3.7], [-1.2, 2.3, 7.7, 5.1]])
PLACES = np.array([[[[0, 3], [10, 14]]]])
_PLAIN = """
Abs Asinh Atan Celu Cos Cosh Elu Erf Exp Flatten Gelu HardSigmoid HardSwish Identity LeakyRelu
LogSoftmax LpNormalization Mish Neg ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin
ReduceSum ReduceSumSquare Relu Selu Sigmoid Sin Sinh Softmax Softplus Softsign Tan Tanh
ThresholdedRelu Transpose
"""
_PAIRS = "Add Max Mean Min Mul Sub Sum"
# Operator -> [(inputs, attributes, results)]: a shape is a parameter, an array a constant.
CASES = {
    **{n: [([X], {}, 1)] for n in _PLAIN.split()},
    **{n: [([Positive(X)], {}, 1)] for n in ["Log", "Reciprocal", "Sqrt", "ReduceLogSum"]},
    **{n: [([Unit(X)], {}, 1)] for n in ["Acos", "Asin", "Atanh"]},
    "Acosh": [([Above(X)], {}, 1)],
    "ReduceProd": [([X], {"axes": (1, 2)}, 1)],
    **{
        n: [([X, X], {}, 1), ([X, (4,)], {}, 1)]
        for n in ["Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum"]
    },
    "Div": [([X, Positive((3, 1))], {}, 1)],
    "Pow": [([Positive(X), X], {}, 1), ([X, np.array(2.0)], {}, 1), ([X, np.array(3.0)], {}, 1)],
    "PRelu": [([X, Positive((4,))], {}, 1)],
    "Mod": [([X, Above(X)], {"fmod": 1}, 1)],
    "Cast": [([X], {"to": "float64"}, 1)],
    "CastLike": [([X, np.zeros(1)], {}, 1)],
    "Clip": [([X, np.array(-0.5), np.array(0.5)], {}, 1)],
    "Where": [([np.arange(24).reshape(X) % 3 == 0, X, X], {}, 1)],
    "MatMul": [
        ([(2, 3), (3, 4)], {}, 1),
        ([(2, 2, 3), (3, 4)], {}, 1),
        ([(3,), (3, 4)], {}, 1),
        ([(3, 1, 2, 3), (2, 3, 4)], {}, 1),
    ],
    "Gemm": [([(3, 2), (4, 3), (4,)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, 1)],
    "Einsum": [
        ([(2, 3), (3, 4)], {"equation": "ij,jk->ki"}, 1),
        ([(2, 3, 4), (2, 5, 4)], {"equation": "bij,bkj->bik"}, 1),
        ([(3, 3)], {"equation": "ii->i"}, 1),
        ([(2, 3), (3, 4), (4, 2)], {"equation": "ij,jk,kl->il"}, 1),
        ([(2, 3), (4, 2)], {"equation": "ij,kl->il"}, 1),
    ],
    "autosched.MatMulPacked4": [
        ([(2, 7), np.arange(12, dtype="uint8").reshape(2, 2, 3) * 21, (2, 3)], {}, 1)
    ],
    "DequantizeLinear": [
        ([np.array([3, -2, 5], "int8"), ()], {}, 1),
        ([np.arange(6, dtype="int8").reshape(2, 3), (3,), np.array([1, 0, 2], "int8")], {}, 1),
    ],
    "OneHot": [([ints(2, 0, 1, 2), np.array(3), (2,)], {"axis": 0}, 1)],
    "Concat": [([(2, 3), (2, 2)], {"axis": 1}, 1)],
    "Split": [([(2, 6)], {"axis": 1}, 2)],
    "Slice": [([(4, 7), ints(1), ints(6), ints(1), ints(2)], {}, 1)],
    "Pad": [
        ([(2, 3), ints(1, 0, 2, 1)], {}, 1),
        ([(2, 4), ints(0, 1, 0, 1)], {"mode": "reflect"}, 1),
    ],
    "Expand": [([(3, 1), ints(2, 3, 4)], {}, 1)],
    "Tile": [([(2, 3), ints(2, 2)], {}, 1)],
    "Reshape": [([X, ints(4, 6)], {}, 1)],
    "Squeeze": [([(2, 1, 3), ints(1)], {}, 1)],
    "Unsqueeze": [([(2, 3), ints(1)], {}, 1)],
    "Gather": [([(5, 3), ints(0, 2, 2)], {}, 1)],
    "GatherElements": [([(3, 3), np.array([[0, 1, 2], [2, 2, 0]])], {}, 1)],
    "GatherND": [([(3, 4), np.array([[0, 1], [2, 2]])], {}, 1)],
    "DepthToSpace": [([(1, 8, 2, 3)], {"blocksize": 2}, 1)],
    "SpaceToDepth": [([(1, 2, 4, 6)], {"blocksize": 2}, 1)],
    "CumSum": [([X, ints(1)], {}, 1), ([X, ints(2)], {"exclusive": 1, "reverse": 1}, 1)],
    "CumProd": [([(2, 3), ints(1)], {}, 1)],
    "Trilu": [([(3, 4)], {}, 1)],
    "Conv": [
        ([IMAGE, (3, 2, 3, 3), (3,)], {"strides": (2, 2), "pads": (1, 1, 1, 1)}, 1),
        ([IMAGE, (4, 1, 2, 2)], {"group": 2, "dilations": (2, 1)}, 1),
        ([IMAGE, (2, 1, 3, 3)], {"group": 2, "auto_pad": "SAME_UPPER", "strides": (2, 2)}, 1),
        ([(2, 3, 8), (4, 3, 3)], {}, 1),
        ([(1, 2, 4, 4, 4), (2, 2, 2, 2, 2)], {"strides": (2, 1, 2)}, 1),
    ],
    "ConvTranspose": [
        ([(1, 2, 3, 3), (2, 3, 3, 3)], {"strides": (2, 2), "pads": (1, 0, 1, 0)}, 1),
        ([(1, 2, 3, 3), (2, 1, 2, 2)], {"group": 2, "strides": (2, 2), "output_shape": (8, 8)}, 1),
    ],
    "MaxPool": [
        ([IMAGE], {"kernel_shape": (2, 2), "pads": (1, 1, 0, 0), "strides": (2, 2)}, 1),
        ([IMAGE], {"kernel_shape": (3, 3), "dilations": (2, 1), "ceil_mode": 1}, 1),
    ],
    "AveragePool": [
        ([IMAGE], {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, 1),
        ([(1, 2, 7)], {"kernel_shape": (3,), "ceil_mode": 1, "count_include_pad": 1}, 1),
    ],
    "LpPool": [([IMAGE], {"kernel_shape": (2, 2)}, 1)],
    "GlobalAveragePool": [([IMAGE], {}, 1)],
    "GlobalMaxPool": [([IMAGE], {}, 1)],
    "GlobalLpPool": [([IMAGE], {}, 1)],
    "BatchNormalization": [
        ([IMAGE, (2,), (2,), (2,), Positive((2,))], {}, 1),
        ([IMAGE, (2,), (2,), (2,), Positive((2,))], {"training_mode": 1}, 1),
    ],
    "InstanceNormalization": [([IMAGE, (2,), (2,)], {}, 1)],
    "LayerNormalization": [([X, (4,), (4,)], {}, 3), ([X, (3, 4), (3, 4)], {"axis": 1}, 1)],
    "RMSNormalization": [([X, (4,)], {}, 1)],
    "GroupNormalization": [([(1, 4, 3, 3), (4,), (4,)], {"num_groups": 2}, 1)],
    "LRN": [([(1, 4, 2, 2)], {"size": 3, "alpha": 0.5}, 1)],
    "Resize": [
        ([(1, 1, 3, 4), None, np.array([1.0, 1, 2, 2], "float32")], {"mode": "linear"}, 1),
        ([(1, 1, 4, 4), None, None, ints(1, 1, 7, 6)], {"mode": "cubic"}, 1),
        ([(1, 1, 4, 4), None, None, ints(1, 1, 8, 8)], {"mode": "nearest"}, 1),
    ],
    # What NumPy computes, by the rules of reverse_host.
    "Compress": [
        ([(3, 4), np.array([True, False, True])], {"axis": 0}, 1),
        ([(3, 4), np.array([False, True, True, True])], {"axis": -1}, 1),
        ([(3, 4), np.arange(12) % 3 == 0], {}, 1),
    ],
    "DFT": [
        ([(2, 5, 2)], {}, 1),
        ([(2, 5, 1), ints(7)[0]], {}, 1),
        ([(2, 6, 1), ints(4)[0]], {"onesided": 1}, 1),
        ([(2, 5, 1), None, ints(0)[0]], {"onesided": 1}, 1),
        ([(2, 5, 2), ints(3)[0]], {"inverse": 1}, 1),
        ([(2, 5, 2)], {"inverse": 1, "onesided": 1}, 1),
        ([(2, 3, 2), ints(7)[0]], {"inverse": 1, "onesided": 1}, 1),
    ],
    "DeformConv": [
        ([(1, 2, 5, 5), (2, 2, 2, 2), (1, 8, 4, 4)], {}, 1),
        (
            [(2, 4, 5, 4), (2, 2, 2, 2), (2, 16, 3, 2), (2,), (2, 8, 3, 2)],
            {"group": 2, "offset_group": 2, "strides": (2, 2), "pads": (1, 1, 1, 0)},
            1,
        ),
    ],
    "Det": [([(2, 3, 3)], {}, 1), ([(1, 1)], {}, 1)],
    "GridSample": [
        ([(2, 3, 4, 5), Unit((2, 3, 2, 2))], {}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"align_corners": 1}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"padding_mode": "border"}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"padding_mode": "reflection"}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"padding_mode": "reflection", "align_corners": 1}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"mode": "nearest"}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"mode": "cubic"}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"mode": "cubic", "padding_mode": "reflection"}, 1),
        ([(1, 2, 4, 5), (1, 3, 4, 2)], {"mode": "cubic", "padding_mode": "border"}, 1),
        ([(1, 2, 3, 4, 2), (1, 2, 2, 3, 3)], {}, 1),
    ],
    "Col2Im": [
        ([(1, 8, 9), ints(4, 4), ints(2, 2)], {}, 1),
        (
            [(2, 8, 4), ints(4, 4), ints(2, 2)],
            {"strides": (2, 2), "dilations": (2, 2), "pads": (0, 1, 1, 0)},
            1,
        ),
    ],
    "MaxUnpool": [
        ([(1, 1, 2, 2), PLACES], {"kernel_shape": (2, 2), "strides": (2, 2)}, 1),
        ([(1, 1, 2, 2), PLACES, ints(1, 1, 5, 5)], {"kernel_shape": (2, 2), "strides": (2, 2)}, 1),
    ],
    "ReverseSequence": [([(4, 2, 3), ints(2, 4)], {}, 1)],
    "RoiAlign": [
        ([(2, 3, 6, 7), BOXES, ints(0, 1)], {"output_height": 2, "output_width": 3}, 1),
        ([(2, 3, 6, 7), BOXES, ints(1, 1)], {"output_height": 2, "mode": "max"}, 1),
        *(
            (
                [(2, 2, 6, 6), Above((3, 4)), ints(0, 1, 1)],
                {"output_height": 2, "sampling_ratio": 2, "spatial_scale": 2.5, **more},
                1,
            )
            for more in (
                {},
                {"coordinate_transformation_mode": "output_half_pixel"},
                {"mode": "max", "output_width": 2},
            )
        ),
    ],
    "STFT": [
        ([(2, 11, 1), np.array(3), (4,)], {}, 1),
        ([(2, 11), np.array(2), (3,), np.array(5)], {}, 1),
        ([(1, 9, 2), np.array(4), None, np.array(4)], {"onesided": 0}, 1),
        ([(1, 9, 2), np.array(2), (4,)], {"onesided": 0}, 1),
    ],
    "autosched.HostAdjoint": [
        ([(1, 2, 3, 4), (1, 2, 4, 5), GRID], {"of": "GridSample", "wrt": 0}, 1),
        (
            [(2, 3, 2, 2), (2, 3, 6, 7), BOXES, ints(0, 1)],
            {
                "of": "RoiAlign",
                "wrt": 0,
                "attrs": (("output_height", 2), ("output_width", 2), ("sampling_ratio", 2)),
            },
            1,
        ),
        (
            [(1, 3, 4, 4), np.ones((1, 2, 5, 5)), (3, 2, 2, 2), np.ones((1, 8, 4, 4)) / 3],
            {"of": "DeformConv", "wrt": 1},
            1,
        ),
    ],
    "Scatter": [([(3, 3), np.array([[0, 1, 2], [2, 0, 1]]), (2, 3)], {}, 1)],
    "ScatterElements": [
        ([(3, 3), np.array([[0, 1, 2], [2, 0, 1]]), (2, 3)], {}, 1),
        ([(3, 3), np.array([[0, 1, 2], [2, 1, 1]]), (2, 3)], {"reduction": "add", "axis": 1}, 1),
        ([(3, 3), np.array([[0, 1, 2], [2, 1, 1]]), (2, 3)], {"reduction": "max"}, 1),
        ([(3,), ints(0, 2, 2), (3,)], {"reduction": "mul"}, 1),
        ([(2,), ints(0, 1, 1, 1), np.array([2.0, 0, 4, 0])], {"reduction": "mul"}, 1),
    ],
    "ScatterND": [
        ([(4, 3), np.array([[0], [2]]), (2, 3)], {}, 1),
        ([(4, 3), np.array([[0, 1], [0, 1], [3, 2]]), (3,)], {"reduction": "add"}, 1),
        ([(4, 3), np.array([[0], [2]]), (2, 3)], {"reduction": "min"}, 1),
    ],
    "TensorScatter": [
        ([(2, 2, 5, 3), (2, 2, 2, 3), ints(1, 3)], {}, 1),
        ([(2, 2, 5, 3), (2, 2, 2, 3), ints(1, 4)], {"mode": "circular"}, 1),
    ],
    "TopK": [([(3, 5), ints(2)], {}, 1), ([(3, 5), ints(2)], {"axis": 0, "largest": 0}, 1)],
    # T, B, I = 3, 1, 2, H = 2; the larger ones are in the long test.
    "RNN": [
        ([(3, 1, 2), (2, 2, 2), (2, 2, 2)], {"hidden_size": 2, "direction": "bidirectional"}, 2)
    ],
    "GRU": [([(3, 1, 2), (1, 6, 2), (1, 6, 2)], {"hidden_size": 2}, 1)],
    "autosched.GRU": [([(3, 1, 2), (1, 6, 2), (1, 4, 2), (1, 2, 2)], {"hidden_size": 2}, 1)],
    "LSTM": [([(3, 1, 2), (1, 8, 2), (1, 8, 2)], {"hidden_size": 2}, 3)],
    "autosched.LSTM": [
        (
            [(3, 1, 2), (1, 8, 2), np.arange(-8, 8, dtype="i1").reshape(1, 8, 2), (1, 8)],
            {"hidden_size": 2},
            3,
        )
    ],
    "Adjoint": [([X, X], {"of": "Tanh", "wrt": 0, "inputs": 1}, 1)],
}
FLAT = {"Ceil", "Floor", "Hardmax", "Round", "Sign"}
"""Whose derivative is zero: what they pass back is."""
RECURRENT = [
    ("RNN", [(4, 2, 3), (1, 2, 3), (1, 2, 2), (1, 4), None, (1, 2, 2)],
        {"hidden_size": 2, "direction": "reverse"}, 2),
    ("GRU", [(4, 2, 3), (1, 6, 3), (1, 6, 2), (1, 12), None, (1, 2, 2)],
        {"hidden_size": 2, "linear_before_reset": 1, "direction": "reverse"}, 1),
    ("LSTM", [(3, 2, 3), (1, 8, 3), (1, 8, 2), (1, 16), np.array([3, 2], "int32"), (1, 2, 2),
        (1, 2, 2), (1, 6)], {"hidden_size": 2}, 3),
]  # fmt: skip
"""With biases, sequences of several lengths, states to begin with and peepholes."""
CONVERTED = {"RoundBfloat16"}
"""Whose steps differences see, and which pass on what comes back, as conversions do."""
DISCRETE = {
    # Integers or conditions on one side: nothing is passed back.
    "And", "ArgMax", "ArgMin", "ConstantOfShape", "ConvInteger", "Equal",
    "EyeLike", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual",
    "autosched.ConvSums", "autosched.Lookup", "autosched.MatMulSums", "autosched.QuantizeRows",
    "MatMulInteger", "Not", "Or", "QuantizeLinear",
    "Range", "Shape", "Size", "Xor",
}  # fmt: skip

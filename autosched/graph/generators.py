"""The code generators that come with the project: "blas", NumPy's products of matrices, and "cc",
C source of whatever operators a kernel can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autosched.codegen.c import source_of
from autosched.graph.builder import Value
from autosched.graph.external import external_codegen
from autosched.graph.external_c import CSource
from autosched.graph.infer import inference
from autosched.graph.ir import Call, Const, Function, Var, reads
from autosched.graph.lowering import lower
from autosched.graph.ops.registry import find
from autosched.graph.pattern import any, op
from autosched.graph.types import TensorType
from autosched.target import Target

Values = dict[int, Any]
FLOATS = frozenset({"float32", "float64"})


def _is_float(v: Value) -> bool:
    t = v.type
    return isinstance(t, TensorType) and t.dtype in FLOATS


PRODUCTS = [op("MatMul")(any, any).where(_is_float), op("Gemm")(any, any, ...).where(_is_float)]


@external_codegen("blas", patterns=PRODUCTS)
def blas(function: Function, target: Target) -> Callable[..., None]:
    """Products of matrices by the BLAS that NumPy was built with, its threads included."""
    params, results = function.params, function.body.results
    bindings = function.body.bindings
    fixed = {id(a): a.value for b in bindings for a in reads(b.value) if isinstance(a, Const)}

    def run(*arrays: Any) -> None:
        values: Values = {**fixed, **{id(p): x for p, x in zip(params, arrays, strict=False)}}
        outs = {id(r): x for r, x in zip(results, arrays[len(params) :], strict=True)}
        for b in bindings:
            assert isinstance(b.value, Call)
            key = id(b.vars[0])
            given = [None if a is None else values[id(a)] for a in b.value.args]
            values[key] = _product(b.value, given, outs.get(key))

    return run


def _product(call: Call, given: list[Any], out: Any) -> Any:
    """The result of MatMul or Gemm, in `out` where that is an array."""
    if call.callee == "MatMul":
        return np.matmul(given[0], given[1], out=out)
    attrs = {**find("Gemm").attributes, **dict(call.attrs)}
    a, b, c = (*given, None)[:3]
    made = np.matmul(a.T if attrs["transA"] else a, b.T if attrs["transB"] else b, out=out)
    if attrs["alpha"] != 1:
        made *= attrs["alpha"]
    if c is not None and attrs["beta"] != 0:
        made += c if attrs["beta"] == 1 else c * np.asarray(attrs["beta"], c.dtype)
    return made


IN_C = frozenset({"bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64",
                  "uint8"})  # fmt: skip


def _in_c(call: Call) -> bool:
    """Whether a kernel can hold an operator, and C has its types."""
    types = [a.type for a in call.args if isinstance(a, (Var, Const))]
    if not all(isinstance(t, TensorType) and t.is_static and t.dtype in IN_C for t in types):
        return False
    found = inference(call, 1)
    return found.kind not in ("host", "routine") and all(
        t.dtype in IN_C and t.elements for t in found.types
    )


@external_codegen("cc", patterns=[op(_in_c)])
def cc(function: Function, target: Target) -> CSource:
    """Plain C, by the compiler `cc`: loops as they are defined, unscheduled. It is there to be
    read, and for compilers that LLVM is none of; `model.export` links it with the model."""
    attrs = (("primitive", True),)
    made = source_of(lower(Function(function.name, function.params, function.body, attrs)))
    return CSource(made.text, made.helpers, made.workspace)

"""The graph level: models as functions of tensor operators, compiled and run.

    from autosched import graph
    mod = graph.from_onnx("resnet50.onnx")
    model = graph.build(mod)
    (y,) = model(x)

The graph level owns functions, control flow, constants and the order of kernels; what is computed
stays in te and below. Names are handed out on first use: importing this package loads neither onnx
nor LLVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.graph import nn as nn
    from autosched.graph import op as op
    from autosched.graph import passes as passes
    from autosched.graph import pattern as pattern
    from autosched.graph.builder import const as const
    from autosched.graph.builder import function as function
    from autosched.graph.builder import module as module
    from autosched.graph.builder import var as var
    from autosched.graph.data import DataType as DataType
    from autosched.graph.differentiate import gradient as gradient
    from autosched.graph.dynamic import DynamicModel as DynamicModel
    from autosched.graph.errors import ExternalError as ExternalError
    from autosched.graph.errors import Unsupported as Unsupported
    from autosched.graph.evaluator import evaluate as evaluate
    from autosched.graph.external import external_codegen as external_codegen
    from autosched.graph.external_c import CSource as CSource
    from autosched.graph.inference import check as check
    from autosched.graph.ir import Function as Function
    from autosched.graph.ir import constants as constants
    from autosched.graph.lowering import lower as lower
    from autosched.graph.model import CompiledModel as CompiledModel
    from autosched.graph.onnx_import import from_onnx as from_onnx
    from autosched.graph.onnx_import.skeleton import from_skeleton as from_skeleton
    from autosched.graph.onnx_import.skeleton import skeleton as skeleton
    from autosched.graph.passes.int8 import int8_products as int8_products
    from autosched.graph.passes.partial_eval import specialise as specialise
    from autosched.graph.program import CompiledProgram as CompiledProgram
    from autosched.graph.quantisation import QuantisedModel as QuantisedModel
    from autosched.graph.quantisation import quantise as quantise
    from autosched.graph.regions import partition as partition
    from autosched.graph.relay_text import from_relay as from_relay
    from autosched.graph.rewriter import rewrite as rewrite
    from autosched.graph.rewriter import rewrite_pass as rewrite_pass
    from autosched.graph.saved import load as load
    from autosched.graph.strategies import Strategy as Strategy
    from autosched.graph.strategies import strategy as strategy
    from autosched.graph.values import Tagged as Tagged
    from autosched.graph.values import from_list as from_list
    from autosched.graph.values import to_list as to_list
    from autosched.tuning.graph import build as build
    from autosched.tuning.graph import build_dynamic as build_dynamic
    from autosched.tuning.graph import build_program as build_program
    from autosched.tuning.report.model_result import TunedModel as TunedModel
    from autosched.tuning.run.model_tasks import extract_tasks as extract_tasks
    from autosched.tuning.run.model_tuning import tune as tune

_HOME = {
    "CSource": "autosched.graph.external_c",
    "CompiledModel": "autosched.graph.model",
    "CompiledProgram": "autosched.graph.program",
    "QuantisedModel": "autosched.graph.quantisation",
    "ExternalError": "autosched.graph.errors",
    "DataType": "autosched.graph.data",
    "DynamicModel": "autosched.graph.dynamic",
    "Strategy": "autosched.graph.strategies",
    "Function": "autosched.graph.ir",
    "Tagged": "autosched.graph.values",
    "TunedModel": "autosched.tuning.report.model_result",
    "Unsupported": "autosched.graph.errors",
    "build": "autosched.tuning.graph",
    "build_dynamic": "autosched.tuning.graph",
    "build_program": "autosched.tuning.graph",
    "check": "autosched.graph.inference",
    "const": "autosched.graph.builder",
    "constants": "autosched.graph.ir",
    "evaluate": "autosched.graph.evaluator",
    "external_codegen": "autosched.graph.external",
    "extract_tasks": "autosched.tuning.run.model_tasks",
    "from_list": "autosched.graph.values",
    "from_onnx": "autosched.graph.onnx_import",
    "from_relay": "autosched.graph.relay_text",
    "from_skeleton": "autosched.graph.onnx_import.skeleton",
    "function": "autosched.graph.builder",
    "int8_products": "autosched.graph.passes.int8",
    "load": "autosched.graph.saved",
    "gradient": "autosched.graph.differentiate",
    "lower": "autosched.graph.lowering",
    "module": "autosched.graph.builder",
    "quantise": "autosched.graph.quantisation",
    "partition": "autosched.graph.regions",
    "rewrite": "autosched.graph.rewriter",
    "rewrite_pass": "autosched.graph.rewriter",
    "skeleton": "autosched.graph.onnx_import.skeleton",
    "specialise": "autosched.graph.passes.partial_eval",
    "strategy": "autosched.graph.strategies",
    "to_list": "autosched.graph.values",
    "tune": "autosched.tuning.run.model_tuning",
    "var": "autosched.graph.builder",
}
"""Public name -> the module that defines it."""
_PARTS = ("nn", "op", "passes", "pattern")

__all__ = [*_HOME, *_PARTS]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value: object = getattr(import_module(_HOME[name]), name)
    elif name in _PARTS:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

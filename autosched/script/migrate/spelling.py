"""TVMScript's functions of values, and what they are called here."""

from __future__ import annotations

import ast

from autosched.tir.operations import OPS

OPERATORS = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "FloorDiv": "//", "FloorMod": "%",
    "add": "+", "subtract": "-", "sub": "-", "multiply": "*", "mul": "*",
    "div": "/", "divide": "/", "truncdiv": "/",
    "floordiv": "//", "floor_divide": "//", "indexdiv": "//",
    "floormod": "%", "indexmod": "%",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "shift_left": "<<", "left_shift": "<<", "shift_right": ">>", "right_shift": ">>",
    "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "equal": "==", "not_equal": "!=",
    "And": "and", "Or": "or", "logical_and": "and", "logical_or": "or",
}  # fmt: skip
"""Functions that are operators here."""
FUNCTIONS = {
    "Min": "min", "Max": "max", "min": "min", "max": "max", "minimum": "min", "maximum": "max",
    "fabs": "abs", "abs": "abs", "power": "pow", "pow": "pow", "nearbyint": "round",
    "round": "round", "negative": "neg", "bitwise_not": "bitwise_not", "invert": "bitwise_not",
    **{x: x for x in ("popcount", "clz", "copysign", "nextafter")},
    **{x: x for x, op in OPS.items() if op.cost == "math"},
}  # fmt: skip
"""Functions that are called so here."""
CHOICES = {"Select": "select", "Select_": "select", "if_then_else": "if_then_else",
           "select": "select", "where": "select"}  # fmt: skip
NOT = ("Not", "logical_not")
SAME = ("likely", "ret", "floordiv_", "bind")
"""Functions that give their argument."""
LOOPS = {
    "serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unroll": "unroll",
    "unrolled": "unroll", "thread_binding": "thread_binding",
}  # fmt: skip
AXES = {
    "spatial": "spatial", "S": "spatial", "reduce": "reduce", "R": "reduce",
    "opaque": "sequential", "O": "sequential", "scan": "sequential", "sequential": "sequential",
    "Q": "sequential",
}  # fmt: skip
"""Kinds of axes. Those of which TVM knows nothing are visited in order."""
OPAQUE = (
    "call_packed", "call_cpacked", "call_llvm_intrin",
    "call_llvm_pure_intrin", "call_intrin", "tvm_", "ptx_", "mma_", "cp_async", "evaluate_",
    "dma_", "assume", "vectorlow", "vectorhigh", "vectorcombine", "address_of",
    "start_profile_intrinsic", "end_profile_intrinsic", "anylist_", "make_filled_simdgroup_matrix",
    "simdgroup_",
)  # fmt: skip
"""How the names of calls begin of which nothing says what they read and write."""
SCOPES = {
    "": "global", "global": "global", "local": "local", "shared": "shared",
    "shared.dyn": "shared.dyn", "warp": "warp",
}  # fmt: skip
"""Scopes of buffers."""
MATCH_IGNORED = ("align", "offset_factor", "elem_offset", "buffer_type", "axis_separators", "name")
"""Arguments of T.match_buffer, T.Buffer and T.alloc_buffer that have no bearing on a dense array,
when they are constants."""


LEAST = {
    "launch_thread": 2, "env_thread": 1, "where": 1, "block_attr": 1, "sblock_attr": 1,
    "func_attr": 1, "preflattened_buffer": 1, "store": 3, "load": 3, "evaluate": 1,
    "likely": 1, "infinity": 1, "min_value": 1, "max_value": 1, "isnan": 1,
    "isinf": 1, "isfinite": 1, "nan": 1, "ldexp": 2, "fma": 3, "exp2": 1,
    "truncmod": 2, "Mod": 2, "floordiv_": 1, "axis.remap": 2,
    **dict.fromkeys(NOT, 1),
    **{f"axis.{kind}": 2 for kind in AXES},
}  # fmt: skip
"""Functions, and how many arguments they have by position, at least."""


def called(node: ast.expr) -> str | None:
    """`"axis.spatial"` for `T.axis.spatial`; None for what is no attribute of T."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "T" else None


def assigned(
    node: ast.AST, by: tuple[type[ast.stmt], ...] = (ast.Assign, ast.AugAssign, ast.AnnAssign)
) -> set[str]:
    """Names that statements of these kinds give a value."""
    targets: list[ast.expr] = []
    for s in ast.walk(node):
        if isinstance(s, by):
            assert isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign))
            targets += s.targets if isinstance(s, ast.Assign) else [s.target]
    return {x.id for x in targets if isinstance(x, ast.Name)}

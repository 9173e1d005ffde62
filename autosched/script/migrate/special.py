"""Functions of T that are more than an operation of the same arguments."""

from __future__ import annotations

import ast

from autosched.script.migrate.ranges import span
from autosched.script.migrate.spelling import NOT, SAME
from autosched.script.migrate.things import (
    FLOAT,
    INDEX,
    INT,
    Value,
    call,
    number,
    number_of,
    times,
)
from autosched.script.migrate.values import Special, Values, is_real
from autosched.tir import dtypes
from autosched.tir.extern import found


def _truncmod(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    (a, b), dtype = v.unified(node, *map(v.value, args))
    ends, by = span(a, v.state.extents), number_of(b)
    if ends is not None and ends[0] >= 0 and by is not None and by > 0:
        return Value(ast.BinOp(a, ast.Mod(), b), dtype)
    whole = ast.BinOp(v.toward_zero(a, b), ast.Mult(), b)
    return Value(ast.BinOp(a, ast.Sub(), whole), dtype)


def _multiply_shift(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    """`T.q_multiply_shift(x, y, q, s)`: x * y / 2 ** (q - s), rounded, in int64."""
    if len(args) != 4:
        raise v.state.error(node, "T.q_multiply_shift has four arguments")
    x, y = (v.of(e, "int64") for e in args[:2])
    q, s = (number_of(v.index(e)) for e in args[2:])
    if q is None or s is None or not 0 < q + max(-s, 0) < 62 or s > 31:
        raise v.state.error(node, "the shifts of T.q_multiply_shift are numbers")
    shift = q + max(-s, 0)
    product = ast.BinOp(times(x, 1 << max(s, 0)), ast.Mult(), y)
    total = ast.BinOp(product, ast.Add(), number(1 << (shift - 1)))
    return Value(call("cast", ast.BinOp(total, ast.RShift(), number(shift)),
                      ast.Constant("int32")), "int32")  # fmt: skip


def _load(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    """`T.load(dtype, A.data, i)`: an element of the memory of a buffer."""
    if len(args) != 3:
        raise v.state.error(node, "T.load under a condition")
    e = v.flat_element(node, args[1], args[2])
    if e.dtype != v.dtype(args[0]):
        raise v.state.error(node, f"the memory holds {e.dtype}")
    return e


def _undef(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    """`T.undef(dtype=...)` is any value: 0."""
    given = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
    kinds = [*args, *(given[k] for k in ("dtype",) if k in given)]
    if len(kinds) != 1:
        raise v.state.error(node, "T.undef has a dtype")
    dtype = v.dtype(kinds[0])
    zero = ast.Constant(False) if dtype == "bool" else number(0)
    return Value(call(dtype, zero), dtype)


def _not(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    return Value(ast.UnaryOp(ast.Not(), v.condition(args[0])), "bool")


def _same(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    return v.value(args[0])


def _infinity(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    dtype = v.dtype(args[0])
    return Value(call(dtype, ast.Constant("inf")), dtype)


def _nan(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    dtype = v.dtype(args[0])
    return Value(call(dtype, ast.Constant("nan")), dtype)


def _reinterpret(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    """`T.reinterpret(dtype, value)`, or with the dtype last, or as a keyword."""
    given = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
    both = [*args, *(given[k] for k in ("value", "dtype") if k in given)]
    if len(both) != 2:
        raise v.state.error(node, "T.reinterpret has a dtype and a value")
    to, value = both if isinstance(both[0], (ast.Constant, ast.Name)) else reversed(both)
    if isinstance(to, ast.Name) and not isinstance(v.state.names.get(to.id), str):
        to, value = value, to
    e = v.value(value)
    source = {FLOAT: "float32", INDEX: "int32", INT: "int32"}.get(e.dtype, e.dtype)
    dtype = v.dtype(to)
    if not dtypes.reinterprets(source, dtype):
        raise v.state.error(node, f"T.reinterpret of {source} as {dtype}, which has other bits")
    return Value(call("reinterpret", ast.Constant(dtype), v.converted(node, e, source)), dtype)


def _ldexp(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    """`T.ldexp(x, n)`: x * 2 ** n, by way of float64, which has more powers of two."""
    e = v.value(args[0])
    dtype = "float32" if e.dtype == FLOAT else e.dtype
    power = call("exp2", v.of(args[1], "float64"))
    wide = ast.BinOp(v.converted(node, e, "float64"), ast.Mult(), power)
    return Value(v.converted(node, Value(wide, "float64"), dtype), dtype)


def _lowest(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    dtype = v.dtype(args[0])
    return Value(call(dtype, _extreme(dtype, lowest=True)), dtype)


def _largest(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    dtype = v.dtype(args[0])
    return Value(call(dtype, _extreme(dtype, lowest=False)), dtype)


def _isnan(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    e = v.value(args[0])
    return Value(ast.Compare(e.node, [ast.NotEq()], [e.node]), "bool")


def _against_infinity(op: type[ast.cmpop]) -> Special:
    """A comparison of what a float is without its sign with infinity; of integers, with none."""

    def compared(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
        e = v.value(args[0])
        if not is_real(e.dtype):
            return Value(ast.Constant(op is ast.Lt), "bool")
        infinity = call("float32" if e.dtype == FLOAT else e.dtype, ast.Constant("inf"))
        return Value(ast.Compare(call("abs", e.node), [op()], [infinity]), "bool")

    return compared


def _fma(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    a, b, c = map(v.value, args)
    product = v.operation(node, ast.Mult(), a, b)
    return v.operation(node, ast.Add(), product, c)


def _exp2(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    e = v.value(args[0])
    return Value(call("pow", call(e.dtype, ast.Constant(2.0)), e.node), e.dtype)


def _extreme(dtype: str, lowest: bool) -> ast.expr:
    if dtypes.is_float(dtype):
        import numpy as np

        largest = float(np.finfo(dtypes.array_dtype(dtype)).max)
        node: ast.expr = ast.Constant(largest)
        return ast.UnaryOp(ast.USub(), node) if lowest else node
    return number(int(dtypes.minimum(dtype) if lowest else dtypes.maximum(dtype)))


def _extern(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    """`T.call_extern("f", …, dtype=)` and `T.call_extern(dtype, "f", …)` of a function that is
    registered, in routines."""
    texts = [x.value if isinstance(x, ast.Constant) else None for x in args[:2]]
    first = 1 if len(texts) > 1 and texts[0] in (*dtypes.DTYPES, "void", "handle", "") else 0
    title = texts[first] if first < len(texts) else None
    name = title if isinstance(title, str) else ""
    function = found(name) if v.is_routine else None
    if function is None:
        raise v.state.error(
            node,
            f"the C function {name} is opaque: nothing says what it reads and writes; routines "
            "call those that autosched.tir.extern.register knows",
        )
    given = args[first + 1 :]
    if len(given) != len(function.args):
        raise v.state.error(node, f"{name} takes ({', '.join(function.args)})")
    values = [
        v.memory(x) if kind.endswith("*") else v.of(x, kind)
        for x, kind in zip(given, function.args, strict=True)
    ]
    return Value(call("call_extern", ast.Constant(name), *values), function.returns)


def _let(v: Values, node: ast.expr, args: list[ast.expr]) -> Value:
    """`T.Let(x, value, body)` and `T.Let(body, where={x: value})`: the body with the value."""
    given = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
    where = given.get("where")
    if isinstance(where, ast.Dict) and len(args) == 1 and len(where.keys) == 1:
        args = [where.keys[0] or node, where.values[0], args[0]]
    if len(args) != 3 or not isinstance(args[0], ast.Name):
        raise v.state.error(node, "expected T.Let(x, value, body)")
    before = v.state.names.get(args[0].id)
    v.state.names[args[0].id] = v.value(args[1])
    body = v.value(args[2])
    v.state.names.pop(args[0].id)
    if before is not None:
        v.state.names[args[0].id] = before
    return body


SPECIAL: dict[str, Special] = {
    **dict.fromkeys(NOT, _not),
    **dict.fromkeys(SAME, _same),
    "infinity": _infinity,
    "nan": _nan,
    "reinterpret": _reinterpret,
    "ldexp": _ldexp,
    "min_value": _lowest,
    "max_value": _largest,
    "truncmod": _truncmod,
    "Mod": _truncmod,
    "isnan": _isnan,
    "isinf": _against_infinity(ast.Eq),
    "isfinite": _against_infinity(ast.Lt),
    "fma": _fma,
    "exp2": _exp2,
    "q_multiply_shift": _multiply_shift,
    "load": _load,
    "Let": _let,
    **dict.fromkeys(("call_extern", "call_pure_extern"), _extern),
    "undef": _undef,
}

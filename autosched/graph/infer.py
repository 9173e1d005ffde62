"""What follows from an operator's definition: types, what it may be fused with, values.

Nothing is declared: the definition runs on placeholders, and shape, dtype and kind are read off
the tensors that it returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from autosched import te
from autosched.dag import ComputeDAG, ReadInfo
from autosched.errors import AutoschedError
from autosched.graph import ops
from autosched.graph.conversion import Patterns, held
from autosched.graph.errors import Unsupported
from autosched.graph.higher import HIGHER
from autosched.graph.ir import Array, Atom, Call, Const, Var
from autosched.graph.ops.registry import Known, Operator, like_first
from autosched.graph.ops.shortcuts import shortcut
from autosched.graph.ops.tensors import TensorLike, View, computed, is_empty
from autosched.graph.spec import frozen
from autosched.graph.types import ANY, FuncType, TensorType, Type
from autosched.te.prim_func import topological
from autosched.te.tensor import PlaceholderOp, Tensor
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Var as IndexVar
from autosched.tir.expr import walk
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import has_opaque

Kind = Literal["view", "pointwise", "map", "reduction", "anchor", "routine", "host"]
"""What an operator is to fusion.

view: an index map, which computes nothing. pointwise: each element of the result from the elements
at the same place of its inputs, which may be broadcast. map: no reduction, elements from anywhere
(a concatenation, a gather). reduction: one reduction without reuse. anchor: a product, a
convolution, or several stages. host: computed in NumPy between kernels.
"""


SHOWN = 8
"""Arguments whose types errors name."""


@dataclass(frozen=True)
class Inference:
    """Types of the results; `kind`; `reads`, the numbers of the inputs that any result reads;
    `positional`: an element depends on where it stands, not only on what it is read from."""

    types: tuple[TensorType, ...]
    kind: Kind
    reads: frozenset[int]
    expensive: bool = False
    positional: bool = False


def is_normal(op: Operator, attrs: Mapping[str, Any]) -> bool:
    """Whether static inputs are attributes already, so that what follows them has moved up."""
    return any(name in attrs for name in op.static.values())


def split_static(
    op: Operator, args: Sequence[Atom | None], attrs: Mapping[str, Any]
) -> tuple[list[Atom | None], dict[str, Any]] | None:
    """Arguments and attributes of a call, its static inputs become attributes; None where one of
    them is no constant."""
    if is_normal(op, attrs):
        return list(args), dict(attrs)
    left: list[Atom | None] = []
    found = dict(attrs)
    for n, a in enumerate(args):
        if n not in op.static:
            left.append(a)
        elif isinstance(a, Const):
            found[op.static[n]] = frozen(a.value.tolist())
        elif a is not None:
            return None
    while left and left[-1] is None:
        left.pop()
    return left, found


def infer(call: Call, outputs: int) -> tuple[Type, ...]:
    """Types of the results of a call of an operator. Raises Unsupported, naming the operator."""
    if call.callee in HIGHER:
        return _higher(call, outputs)
    return inference(call, outputs).types


def _higher(call: Call, outputs: int) -> tuple[Type, ...]:
    """Types of what a function value makes over and over: states keep theirs, if it does; what is
    scanned has a shape where it is known how often."""
    loop = call.callee == "Loop"
    f = call.args[2 if loop else 0]
    t = f.type if isinstance(f, Var) else None
    if not isinstance(t, FuncType):
        raise Unsupported(f"{call.callee} takes a function, found {t}")
    skip = 2 if loop else 0
    states = len(t.params) - (2 if loop else int(call.attr("num_scan_inputs", 0)))
    if len(t.results) < states + (1 if loop else 0):
        raise Unsupported(
            f"the function of {call.callee} gives {len(t.results)} values; expected "
            f"{'a condition and ' if loop else ''}{states} states, as -> (type, type, ...) says"
        )
    before, after = t.params[skip : skip + states], t.results[1 if loop else 0 :]
    found: list[Type] = [a if a == b else ANY for a, b in zip(before, after, strict=False)]
    turns = call.attr("turns")
    for shape, dtype in call.attr("parts", ()) if loop else ():
        known = turns is not None and shape is not None
        found.append(TensorType((turns, *shape) if known else None, dtype))
    return tuple([*found, *([ANY] * outputs)][:outputs])


def inference(call: Call, outputs: int) -> Inference:
    """All that is known of a call of an operator. Raises Unsupported, naming the operator."""
    assert isinstance(call.callee, str)
    if call.callee in HIGHER:
        return Inference((ANY,) * outputs, "host", frozenset(range(len(call.args))))
    op = ops.find(call.callee)
    types: list[TensorType | None] = []
    for a in call.args:
        t = None if a is None else a.type if isinstance(a, (Var, Const)) else ANY
        if t is not None and not isinstance(t, TensorType):
            raise Unsupported(f"{call.callee} takes tensors, found a value of type {t}")
        types.append(t)
    dynamic = any(t is not None and t.shape is None for t in types)
    unknown = not is_normal(op, dict(call.attrs)) and any(
        n < len(call.args) and call.args[n] is not None for n in op.static
    )
    if op.kernel is not None and not dynamic:
        try:
            return _infer_call(call, types, outputs)
        except Unsupported:
            pass  # NumPy computes it, or says what is wrong
    if op.is_host or dynamic or unknown:
        stated = _stated(op, call, types) if dynamic else None
        found = stated if dynamic or not op.is_host else _host_types(op, call)
        given = found if found is not None and len(found) >= outputs else (ANY,) * outputs
        return Inference(given[:outputs], "host", frozenset(range(len(types))))
    return _infer_call(call, types, outputs)


def _infer_call(call: Call, types: Sequence[TensorType | None], outputs: int) -> Inference:
    literals = tuple(_literal(a) for a in call.args)
    return _infer(str(call.callee), tuple(types), literals, call.attrs, outputs)


def _stated(
    op: Operator, call: Call, types: Sequence[TensorType | None]
) -> tuple[TensorType, ...] | None:
    """The type of the result of a Reshape that says all of it: where the input has another number
    of elements, running it is an error. Of a Gather the dtype; that of what is written to, however
    many updates there are."""
    if op.result is like_first and types and types[0] is not None and types[0].is_static:
        return (types[0],)
    shape = call.attr("shape")
    t = call.args[0].type if call.args and isinstance(call.args[0], Var) else None
    if not isinstance(t, TensorType) or not t.dtype:
        return None
    if call.callee == "Gather":
        return (TensorType(None, t.dtype),)
    if call.callee != "Reshape":
        return None
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n > 0 for n in shape):
        return None
    return (TensorType(shape, t.dtype),)


def _host_types(op: Operator, call: Call) -> tuple[TensorType, ...] | None:
    """Types of the results of a host operator, where its inputs tell them."""
    known: list[Known | None] = []
    for a in call.args:
        if a is None:
            known.append(None)
            continue
        t = a.type if isinstance(a, (Var, Const)) else None
        if not isinstance(t, TensorType) or not t.is_static:
            return None
        value = a.array if isinstance(a, Const) else None
        known.append(Known(tuple(map(int, t.known)), t.dtype, value))
    if op.result is None:
        return None
    try:
        found = op.result(*known, **dict(call.attrs))
        if found is None or any(n < 0 for shape, _ in found for n in shape):
            return None
        return tuple(TensorType(tuple(map(int, shape)), dtype) for shape, dtype in found)
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError):
        return None  # a malformed call; what is wrong with it the operator says when it runs


def _literal(a: Atom | None) -> tuple[Any] | None:
    """The value of a constant of one element, in a tuple."""
    if isinstance(a, Const) and a.array is not None and a.array.size == 1 and not is_text(a.array):
        return (a.number,)
    return None


def is_text(array: Array) -> bool:
    """Whether an array has no numbers."""
    return array.dtype.kind not in "biuf"


@lru_cache(maxsize=4096)
def _infer(
    name: str,
    types: tuple[TensorType | None, ...],
    literals: tuple[tuple[Any] | None, ...],
    attrs: tuple[tuple[str, Any], ...],
    outputs: int,
) -> Inference:
    try:
        inputs = [
            None if t is None else tensor_of(t, literal, f"x{n}")
            for n, (t, literal) in enumerate(zip(types, literals, strict=True))
        ]
        results = define(name, inputs, dict(attrs), outputs)
        result_types = tuple(TensorType(tuple(r.shape), r.dtype) for r in results)
        for t in result_types:
            if any(isinstance(n, int) and n < 0 for n in t.known):
                raise Unsupported(f"the result would have the shape {t.shape}")
        kind, reads, expensive, positional = _kind(inputs, results)
    except Unsupported as e:
        raise e if str(e).startswith(name) else Unsupported(f"{name}: {e}") from e
    except (AutoschedError, TypeError, ValueError, IndexError, ZeroDivisionError) as e:
        shapes = ", ".join(str(t) for t in types[:SHOWN])
        rest = f", and {len(types) - SHOWN} more" if len(types) > SHOWN else ""
        raise Unsupported(f"{name}({shapes}{rest}): {e}") from e
    return Inference(result_types, kind, reads, expensive, positional)


def tensor_of(t: TensorType, literal: tuple[Any] | None, name: str) -> TensorLike:
    """A placeholder, or a number known now."""
    if literal is not None or is_empty(t.known):
        value = te.const(0 if literal is None else literal[0], t.dtype)
        return View(t.known, t.dtype, lambda *at: value, name)
    return te.placeholder(t.known, t.dtype, name)


def define(
    name: str,
    inputs: Sequence[TensorLike | None],
    attrs: Mapping[str, Any],
    outputs: int,
    compute: Callable[..., Any] | None = None,
) -> tuple[TensorLike, ...]:
    """The tensors that an operator's definition, or another one of it, makes of tensors."""
    op = ops.find(name)
    definition = compute or op.compute or op.kernel
    if definition is None:
        raise Unsupported(f"{name} is computed on the host only")
    given = dict(attrs)
    unknown = [k for k in given if k not in op.attributes]
    if unknown:
        raise Unsupported(f"{name} has no attribute {unknown[0]}")
    if "outputs" in op.attributes:
        given["outputs"] = outputs
    if compute is None:
        _check_inputs(op, len(inputs), given)
    made = definition(*inputs, **given)
    results = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if len(results) < outputs:
        raise Unsupported(f"{name} has {len(results)} results, expected {outputs}")
    return results[:outputs]


def _check_inputs(op: Operator, found: int, attrs: Mapping[str, Any]) -> None:
    """The number of inputs, and attributes that have no default."""
    least, most = op.counts
    if found < least or (most is not None and found > most):
        wanted = f"{least} or more" if most is None else str(least)
        wanted = f"{least} to {most}" if most not in (None, least) else wanted
        raise Unsupported(f"{op.name} takes {wanted} values, found {found}")
    empty = inspect.Parameter.empty
    missing = [k for k, v in op.attributes.items() if v is empty and k not in attrs]
    if missing:
        raise Unsupported(f"{op.name} needs the attribute {missing[0]}")


def prim_func_of(
    inputs: Sequence[TensorLike | None], outputs: Sequence[Tensor], name: str
) -> tuple[PrimFunc, list[int]]:
    """The function of the inputs that are read and of the outputs; the numbers of those inputs."""
    used = {id(op) for op in topological([t.op for t in outputs])}
    reads = [n for n, t in enumerate(inputs) if isinstance(t, Tensor) and id(t.op) in used]
    params = [t for n in reads for t in [inputs[n]] if isinstance(t, Tensor)]
    return te.create_prim_func([*params, *outputs], name), reads


def _kind(
    inputs: Sequence[TensorLike | None], results: Sequence[TensorLike]
) -> tuple[Kind, frozenset[int], bool, bool]:
    results = [r for r in results if not is_empty(r.shape)]
    if not results:
        return "view", frozenset(), False, False
    every = [computed(r) for r in results]
    seen: dict[int, Tensor] = {}
    for t in every:
        if not isinstance(t.op, PlaceholderOp):
            seen.setdefault(id(t), t)
    func, reads = prim_func_of(inputs, list(seen.values()), "main")
    if has_opaque(func):
        return "routine", frozenset(reads), True, True
    from_inputs = all(isinstance(x.op, PlaceholderOp) for t in every for x in t.op.input_tensors)
    if from_inputs and all(isinstance(r, View) and r.base is None for r in results):
        return "view", frozenset(reads), False, False
    dag = ComputeDAG(func)
    infos = [dag.info(b) for b in dag.blocks]
    expensive = any(i.has_expensive_op for i in infos)
    positional = any(isinstance(e, IndexVar) for b in dag.blocks for x in b.body for e in walk(x))
    kind: Kind = "anchor"
    if len(infos) == 1 and infos[0].is_reduction:
        kind = "anchor" if infos[0].needs_multi_level_tiling else "reduction"
    elif not any(i.is_reduction for i in infos):
        ordered = all(r.ordered and _in_place(r) for i in infos for r in i.reads)
        kind = "pointwise" if ordered and len(infos) == 1 else "map"
    elif sum(i.is_reduction for i in infos) == 1 and not any(
        i.needs_multi_level_tiling for i in infos
    ):
        kind = "reduction"
    return kind, frozenset(reads), expensive, positional


def _in_place(read: ReadInfo) -> bool:
    """Whether each index is an axis or a constant, without an offset."""
    indices = read.access.indices
    return all(
        isinstance(i, Affine) and (i.is_const() or i.single_var() is not None) for i in indices
    )


def evaluate_operator(
    name: str, arrays: Sequence[Array | None], attrs: Mapping[str, Any], outputs: int
) -> tuple[Array, ...]:
    """The results of an operator on arrays, by NumPy. Raises Unsupported."""
    op = ops.find(name)
    if op.host is not None:
        return _on_host(op, arrays, attrs, outputs)
    found = shortcut(op, arrays, attrs, outputs)
    return by_definition(op, arrays, attrs, outputs) if found is None else found


def by_definition(
    op: Operator, arrays: Sequence[Array | None], attrs: Mapping[str, Any], outputs: int
) -> tuple[Array, ...]:
    """What the definition of an operator computes of arrays. Raises Unsupported."""
    from autosched.tir.whole import reference

    name = op.name
    atoms = [None if a is None else Const(type_of_array(a), a) for a in arrays]
    split = split_static(op, atoms, attrs)
    assert split is not None
    left, given = split
    values = [a.value if isinstance(a, Const) else None for a in left]
    types = tuple(None if v is None else type_of_array(v) for v in values)
    literals = tuple(map(_literal, left))
    key = tuple(sorted((k, frozen(v)) for k, v in given.items()))
    try:
        made = _program(name, types, literals, key, outputs, repr((literals, key)))
        out = [np.empty(shape, dtypes.array_dtype(dtype)) for shape, dtype in made.results]
        if made.func is not None:
            used = [np.asarray(values[n], order="C") for n in made.reads]
            reference(made.func, [*used, *(a for a in out if a.size)], blas=True)
    except Unsupported as e:
        raise e if str(e).startswith(name) else Unsupported(f"{name}: {e}") from e
    except (AutoschedError, TypeError, ValueError, IndexError, ZeroDivisionError) as e:
        raise Unsupported(f"{name}: {e}") from e
    return tuple(held(a, dtype) for a, (_, dtype) in zip(out, made.results, strict=True))


class _Program(NamedTuple):
    """An operator as a loop function of those arguments that it reads; None where no result has
    elements."""

    results: tuple[tuple[tuple[int, ...], str], ...]
    func: PrimFunc | None
    reads: tuple[int, ...]


@lru_cache(maxsize=512)
def _program(
    name: str,
    types: tuple[TensorType | None, ...],
    literals: tuple[tuple[Any] | None, ...],
    attrs: tuple[tuple[str, Any], ...],
    outputs: int,
    text: str,
) -> _Program:
    """What computes an operator in NumPy: making it takes longer than a small call of it. `text`
    knows numbers apart that are equal: 0.0 and -0.0, 1 and True."""
    inputs = [
        None if t is None else tensor_of(t, literal, f"x{n}")
        for n, (t, literal) in enumerate(zip(types, literals, strict=True))
    ]
    defined = define(name, inputs, dict(attrs), outputs)
    results = tuple((tuple(map(int, t.shape)), t.dtype) for t in defined)
    full = [computed(t, copy=True) for t in defined if not is_empty(t.shape)]
    if not full:
        return _Program(results, None, ())
    func, reads = prim_func_of(inputs, full, "main")
    return _Program(results, func, tuple(reads))


def _on_host(
    op: Operator, arrays: Sequence[Array | None], attrs: Mapping[str, Any], outputs: int
) -> tuple[Array, ...]:
    assert op.host is not None
    unknown = [k for k in attrs if k not in op.attributes]
    if unknown:
        raise Unsupported(f"{op.name} has no attribute {unknown[0]}")
    if any(isinstance(a, Patterns) for a in arrays):
        raise Unsupported(f"{op.name} takes no bfloat16; cast what it is given to float32")
    try:
        with np.errstate(all="ignore"):
            made = op.host(*arrays, **attrs)
    except Unsupported as e:
        raise e if str(e).startswith(op.name) else Unsupported(f"{op.name}: {e}") from e
    except (TypeError, ValueError, IndexError, KeyError, ArithmeticError) as e:
        raise Unsupported(f"{op.name}: {e}") from e
    results = tuple(made) if isinstance(made, tuple) else (made,)
    if len(results) < outputs:
        raise Unsupported(f"{op.name} has {len(results)} results, expected {outputs}")
    return tuple(np.asarray(r) for r in results[:outputs])


def type_of_array(array: Array) -> TensorType:
    """The type of a NumPy array."""
    dtype = "bfloat16" if isinstance(array, Patterns) else array.dtype.name
    return TensorType(tuple(array.shape), dtype)

"""te.extern: tensors that a routine computes, or C functions do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from autosched.checks import mapping, shown
from autosched.errors import TensorExprError
from autosched.te.tensor import (
    ExternOp,
    Tensor,
    check_name,
    check_shape,
    check_tag,
)
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.extern import found
from autosched.tir.nodes import Block, Buffer, ExternCall, Pointer
from autosched.tir.opaque import opaque_block
from autosched.tir.routine import Evaluate, Routine


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[..., Any] | Routine,
    name: str | None = None,
    dtype: str | Sequence[str] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """The tensor of `shape` that `fcompute(ins, outs)` says how to compute, from whole tensors.

    `shape` may be a list of shapes, which gives a tuple of tensors; `dtype` is one or one each, by
    default that of the inputs. `fcompute` takes the lists of buffers and returns what runs: a
    `te.call_extern` of a C function, several in a list, or a routine (`@T.routine`) whose
    parameters are the inputs, then the outputs. A routine may stand in its place. Outputs are 0 at
    first.

    It runs as it is written: nothing of it is scheduled, and nothing moves across it. Indices of
    routines are tested where no proof keeps them inside; what C functions do is not.
    Raises TensorExprError, naming the computation, on everything that means nothing.
    """
    label = check_name("extern" if name is None else name, "an extern")
    many = isinstance(shape, list) or (
        isinstance(shape, tuple) and any(isinstance(n, (list, tuple)) for n in shape)
    )
    shapes = tuple(check_shape(s, f"extern {label}") for s in (shape if many else (shape,)))
    given = _inputs(inputs, label)
    kinds = _dtypes(dtype, given, len(shapes), label)
    check_tag(tag, f"extern {label}")
    for extents in (*shapes, *(t.shape for t in given)):
        if not all(isinstance(n, int) for n in extents):
            raise TensorExprError(
                f"extern {label} has the symbolic shape {extents}; a routine in a function has "
                "fixed sizes"
            )
    ins = [Buffer(t.name, t.shape, t.dtype) for t in given]
    names = [label if not many else f"{label}_v{n}" for n in range(len(shapes))]
    outs = [Buffer(n, s, d) for n, s, d in zip(names, shapes, kinds, strict=True)]
    routine = _routine(fcompute, ins, outs, label)
    kept = mapping(f"attrs of extern {label}", attrs, "a mapping from texts", TensorExprError)
    notes = MappingProxyType(dict(kept))
    op = ExternOp(label, given, shapes, kinds, routine, notes, tag, name is None)
    tensors = tuple(
        Tensor(n, s, d, op, k) for k, (n, s, d) in enumerate(zip(names, shapes, kinds, strict=True))
    )
    return tensors if many else tensors[0]


def call_extern(name: str, *args: Any) -> ExternCall:
    """In the function of te.extern: a call of a C function that `autosched.tir.extern.register`
    knows. A buffer stands for its memory. As in TVM, the dtype of the result may stand before the
    name: `te.call_extern("int32", "f", ins[0], outs[0])`. Raises TensorExprError for what does not
    fit."""
    dtype = ""
    if args and isinstance(args[0], str) and isinstance(name, str) and found(name) is None:
        dtype, name, args = name, args[0], args[1:]
    function = found(name) if isinstance(name, str) else None
    if function is None:
        raise TensorExprError(
            f"no C function {shown(name)} is registered; see autosched.tir.extern.register"
        )
    if dtype and function.returns and dtype != function.returns:
        raise TensorExprError(f"{name} returns {function.returns}, found {shown(dtype)} before it")
    if len(args) != len(function.args):
        raise TensorExprError(f"{name} takes ({', '.join(function.args)}), found {len(args)}")
    values: list[ex.Expr] = []
    for n, (arg, kind) in enumerate(zip(args, function.args, strict=True)):
        if isinstance(arg, Buffer):
            e: ex.Expr = Pointer(arg, arg.dtype)
        elif isinstance(arg, (int, float, bool)) and not kind.endswith("*"):
            e = ex.const(arg, kind)
        else:
            e = ex.as_expr(arg)
        known = f"{e.dtype}*" if isinstance(e, Pointer) else e.dtype
        if known != kind:
            raise TensorExprError(f"argument {n} of {name} is {kind}, found {known}")
        values.append(e)
    return ExternCall(function, tuple(values), function.returns)


def extern_block(op: ExternOp, label: str, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Block:
    """The opaque block of a computation."""
    routine, buffers = replace(op.routine, name=label), [*ins, *outs]
    return opaque_block(routine, buffers, ins, outs, sets_all=op.sets_all)


def _inputs(inputs: Any, label: str) -> tuple[Tensor, ...]:
    given = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(given, (list, tuple)) or not all(isinstance(t, Tensor) for t in given):
        raise TensorExprError(f"the inputs of extern {label} are {inputs!r}; expected tensors")
    for n, t in enumerate(given):
        if any(t is u or (t.op is u.op and t.value_index == u.value_index) for u in given[:n]):
            raise TensorExprError(f"extern {label} takes {t.name} twice; once is enough")
    return tuple(given)


def _dtypes(dtype: Any, inputs: Sequence[Tensor], count: int, label: str) -> tuple[str, ...]:
    if dtype is None:
        kinds = {t.dtype for t in inputs}
        if len(kinds) != 1:
            raise TensorExprError(
                f"extern {label} has inputs of {', '.join(sorted(kinds)) or 'no dtype'}; say which "
                "dtype it has"
            )
        dtype = kinds.pop()
    found_dtypes = tuple(dtype) if isinstance(dtype, (list, tuple)) else (dtype,) * count
    if len(found_dtypes) != count or not all(
        isinstance(d, str) and d in dtypes.DTYPES for d in found_dtypes
    ):
        raise TensorExprError(
            f"the dtype of extern {label} is {shown(dtype)}; expected one, or one for each of its "
            f"{count} tensors, of {', '.join(dtypes.DTYPES)}"
        )
    return found_dtypes


def _routine(fcompute: Any, ins: list[Buffer], outs: list[Buffer], label: str) -> Routine:
    """What `fcompute` says, over the buffers of the inputs and outputs."""
    if not isinstance(fcompute, Routine):
        if not callable(fcompute):
            raise TensorExprError(
                f"extern {label} expects a function of lists of buffers, found {fcompute!r}"
            )
        try:
            inspect.signature(fcompute).bind(ins, outs)
        except (TypeError, ValueError) as e:
            raise TensorExprError(
                f"extern {label} expects a function of two lists of buffers, the inputs and the "
                f"outputs; found {shown(fcompute)}: {e}"
            ) from e
        fcompute = fcompute(ins, outs)
    if isinstance(fcompute, Routine):
        wanted = [(b.shape, b.dtype) for b in (*ins, *outs)]
        if [(b.shape, b.dtype) for b in fcompute.params] != wanted:
            texts = (f"{d}[{', '.join(map(str, s))}]" for s, d in wanted)
            raise TensorExprError(
                f"routine {fcompute.name} of extern {label} has other parameters; expected the "
                f"inputs, then the outputs: {', '.join(texts)}"
            )
        return replace(fcompute, attrs=())
    calls = list(fcompute) if isinstance(fcompute, (list, tuple)) else [fcompute]
    if not calls or not all(isinstance(c, ExternCall) for c in calls):
        raise TensorExprError(
            f"the function of extern {label} returned {fcompute!r}; expected te.call_extern(…), a "
            "list of them, or a routine"
        )
    return Routine(label, (*ins, *outs), tuple(Evaluate(c) for c in calls))

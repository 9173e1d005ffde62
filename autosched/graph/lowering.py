"""From a primitive function of the graph level to a function of the loop IR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autosched import te
from autosched.checks import instance
from autosched.errors import AutoschedError, WorkloadError
from autosched.graph.errors import Unsupported
from autosched.graph.infer import define
from autosched.graph.ir import Array, Call, Const, Function, Global, tensor_type
from autosched.graph.joined import with_joined_axes
from autosched.graph.moved import with_few_axes
from autosched.graph.ops.tensors import TensorLike, View, computed, constant, stored, within
from autosched.graph.passes.layout import channels_last
from autosched.graph.rows import with_one_axis_of_rows
from autosched.graph.strategies import Implementation, anchor_of
from autosched.graph.types import TensorType
from autosched.te.tensor import Tensor
from autosched.tir.dtypes import array_dtype
from autosched.tir.nodes import PrimFunc


def lower(function: Function, implementation: Implementation | None = None) -> PrimFunc:
    """The function that computes a primitive function: its parameters are those of `function`,
    then its results, each stored as its type says; several axes of rows are one.

    `implementation` is that of its anchor; see `autosched.graph.strategies`.
    A weight's layout is free where every call gives a constant for it (attribute "constants").
    Raises WorkloadError for a function that is not primitive, Unsupported where te cannot say it.
    """
    instance("the function", function, Function, "a primitive function of a module", WorkloadError)
    if not function.is_primitive:
        raise WorkloadError(
            f"{function.name} is no primitive function; graph.passes.fuse makes primitive ones"
        )
    function = with_few_axes(with_joined_axes(with_one_axis_of_rows(function)))
    spatial = bool(function.attr("spatial"))
    layouts = {
        len(t.layout): t.layout
        for v in (*(function.params if spatial else ()), *function.body.results)
        for t in [tensor_type(v)]
        if t.layout and t.layout == channels_last(len(t.layout))
    }
    if spatial:
        layouts |= {r: channels_last(r) for r in (3, 4, 5) if r not in layouts}
    # Whatever the variables are called, equal functions have equal text.
    types = [tensor_type(p) for p in function.params]
    anchor = None if implementation is None else anchor_of(function)
    for n, prepare in transforms(function, implementation).items():
        kind = array_dtype(types[n].dtype)
        made = prepare(np.broadcast_to(np.zeros((), kind), [int(m) for m in types[n].known]))
        # Of bfloat16 it is given, and gives, bit patterns.
        dtype = types[n].dtype if made.dtype == kind else made.dtype.name
        types[n] = TensorType(made.shape, dtype)
    inputs = [te.placeholder(t.stored, t.dtype, f"p{n}") for n, t in enumerate(types)]
    values: dict[int, TensorLike] = {
        id(p): stored(x, t.layout) for p, x, t in zip(function.params, inputs, types, strict=True)
    }
    with within(layouts):
        for b in function.body.bindings:
            assert isinstance(b.value, Call)
            assert isinstance(b.value.callee, str)
            args = [
                None if a is None else values[id(a)] if id(a) in values else _number(a, function)
                for a in b.value.args
            ]
            try:
                attrs = dict(b.value.attrs)
                taken = implementation if b.value is anchor else None
                compute = None if taken is None else taken.compute
                results = define(b.value.callee, args, attrs, len(b.vars), compute)
            except Unsupported:
                raise
            except AutoschedError as e:
                raise Unsupported(f"{b.value.callee}: {e}") from e
            values.update({id(v): t for v, t in zip(b.vars, results, strict=True)})
    outputs: list[Tensor] = []
    for a in function.body.results:
        value = values[id(a)] if id(a) in values else _number(a, function)
        out = computed(value, tensor_type(a).layout)
        if any(out is o for o in outputs):
            out = computed(value, tensor_type(a).layout, copy=True)
        outputs.append(out)
    try:
        func = te.create_prim_func([*inputs, *outputs], function.name)
    except AutoschedError as e:
        raise Unsupported(f"{function.name}: {e}") from e
    return _with_free_weights(func, function)


def transforms(
    function: Function, implementation: Implementation | None
) -> dict[int, Callable[[Array], Array]]:
    """What an implementation does beforehand with constants, by the numbers of the parameters."""
    anchor = anchor_of(function)
    if implementation is None or anchor is None:
        return {}
    numbers = {id(p): n for n, p in enumerate(function.params)}
    return {numbers[id(anchor.args[n])]: f for n, f in implementation.prepare.items()}


def _with_free_weights(func: PrimFunc, function: Function) -> PrimFunc:
    """`func`, whose layouts are free for those weights alone that are constants."""
    constant_names = {func.params[n].name for n in function.attr("constants", ())}
    attrs = dict(func.attrs)
    free = tuple(n for n in attrs.pop("layout_free", ()) if n in constant_names)
    if free:
        attrs["layout_free"] = free
    return replace(func, attrs=tuple(sorted(attrs.items())))


def _number(a: object, function: Function) -> View:
    if isinstance(a, Const) and a.type.elements == 0:
        return constant(0, a.type.dtype, a.type.known)  # nothing reads it
    if isinstance(a, Const) and a.type.elements == 1:
        return constant(a.number, a.type.dtype, a.type.known)
    found = a.name if isinstance(a, Global) else "a constant of several elements"
    raise WorkloadError(
        f"{function.name} reads {found}; a primitive function reads parameters and numbers"
    )

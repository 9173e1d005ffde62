"""The derivative of one tensor by others, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.checks import instance, listed
from autosched.errors import TensorExprError
from autosched.te.adjoint import adjoint
from autosched.te.compute import compute
from autosched.te.tensor import Tensor
from autosched.tir import dtypes
from autosched.tir import expr as ex


def gradient(output: Tensor, inputs: Sequence[Tensor], head: Tensor | None = None) -> list[Tensor]:
    """The derivative of `output` by each of `inputs`, times `head`: tensors of the inputs' shapes.

    `head` is the derivative of what follows by the output, of the output's shape and dtype; it may
    be left out where the output has no dimensions. Inputs may be placeholders or computations.
    Of equal elements that are the largest (or least) each has an equal part where they are read as
    they are stored; where they are computed the first has all.
    Raises TensorExprError for another head, for tensors of integers, and where an operation on
    the way has no derivative.
    """
    instance("output", output, Tensor, "a tensor", TensorExprError)
    listed("inputs", inputs, Tensor, "tensor", TensorExprError)
    for t in (output, *inputs):
        if not dtypes.is_float(t.dtype):
            raise TensorExprError(f"{t.name} holds {t.dtype}; a derivative is one of floats")
    if head is None and output.shape:
        raise TensorExprError(
            f"gradient: {output.name} has the shape {output.shape}; give a head of that shape, or "
            "differentiate a tensor without dimensions"
        )
    if head is not None:
        instance("head", head, Tensor, "a tensor", TensorExprError)
        if (head.shape, head.dtype) != (output.shape, output.dtype):
            raise TensorExprError(
                f"gradient: head is {head.dtype}{list(head.shape)}; expected "
                f"{output.dtype}{list(output.shape)}, as {output.name}"
            )
    one = ex.const(1.0, output.dtype)
    found = []
    for t in inputs:
        made = adjoint([output], [(lambda: one) if head is None else head], t)
        if made is None or made is head:  # a head is an input as well, so the gradient is a copy
            zero = ex.const(0.0, t.dtype)
            made = compute(t.shape, lambda *at, m=made, z=zero: m[at] if m else z, f"{t.name}_grad")
        found.append(made)
    return found

"""Weights of two, four and eight bits as onnxruntime packs them: MatMulNBits and
GatherBlockQuantized of com.microsoft."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant
from autosched.graph.ir import Array, Atom, Const
from autosched.graph.ops.packed import PRODUCT, packed4

if TYPE_CHECKING:
    from autosched.graph.onnx_import.attention import Call
    from autosched.graph.onnx_import.upgrade import Old, Upgraded


def matmul_nbits(old: Old) -> Upgraded:
    """A product whose weights are numbers of `bits` bits in blocks along K.

    onnxruntime has them by rows of the transposed weight (N, blocks, bytes of a block), zero points
    packed likewise or as floats; here columns are neighbours. Those of four bits stay packed, with
    zero points as floats; others are dequantised. Products of float16 are computed in float32, bias
    included, and rounded once. Raises Unsupported for other numbers of bits, weights that are no
    constants, and an order of terms.
    """
    from autosched.graph.onnx_import.upgrade import Upgraded

    a, b, scales, zeros, order, bias = (*old.args, *[None] * 6)[:6]
    depth, columns = (int(old.attrs.pop(n, 0)) for n in ("K", "N"))
    bits, block = int(old.attrs.pop("bits", 4)), int(old.attrs.pop("block_size", 32))
    old.attrs.pop("accuracy_level", 0)  # what onnxruntime may round a to; here it is float32
    if bits not in (2, 4, 8) or block < 1 or block * bits % 8 or min(depth, columns) < 1:
        raise Unsupported(
            f"attributes bits, block_size, K, N are {bits}, {block}, {depth}, {columns}; expected "
            "2, 4 or 8 bits, a block of whole bytes and positive sizes"
        )
    if order is not None:
        raise Unsupported("the input g_idx, an order of terms, is not supported")
    blocks = -(-depth // block)
    numbers = _unpacked(_constant(b, "B", (columns, blocks, block * bits // 8)), bits)
    kind = old.type(0).dtype
    if kind not in ("float32", "float16"):
        raise Unsupported(f"the input A is {kind}; expected float32 or float16")
    if kind == "float16":
        a = old.one("Cast", [a], to="float32")
    scale = _constant(scales, "scales", (columns, blocks)).astype(np.float32)
    zero = None if zeros is None else _zeros(zeros, columns, blocks, bits)

    def after(y: Atom) -> Atom:
        if bias is not None:
            wide = bias if kind == "float32" else old.one("Cast", [bias], to="float32")
            y = old.one("Add", [y, wide])
        return y if kind == "float32" else old.one("Cast", [y], to=kind)

    if bits != 4:
        weight = _dequantised(numbers, scale, 1 << (bits - 1) if zero is None else zero)
        return Upgraded("MatMul", [a, constant(weight[:, :depth].T)], old.attrs, after)
    args: list[Atom | None] = [
        a,
        constant(packed4(numbers.reshape(columns, blocks * block).T, block)),
        constant(np.ascontiguousarray(scale.T)),
    ]
    if zero is not None:
        args.append(constant(np.ascontiguousarray(zero.T)))
    return Upgraded(PRODUCT, args, old.attrs, after)


def _dequantised(numbers: Array, scale: Array, zero: Array | int) -> Array:
    """The weight (columns, blocks * block) of numbers (columns, blocks, block)."""
    found = numbers.astype(np.float32)
    found -= np.asarray(zero, np.float32)[..., None]
    found *= scale[..., None]
    return found.reshape(len(found), -1)


def _constant(atom: Atom | None, name: str, shape: tuple[int, ...]) -> Array:
    """The array of a constant input, whose axes may have been fused."""
    if not isinstance(atom, Const) or atom.array is None:
        raise Unsupported(f"the input {name} is no constant; weights have to be known")
    if atom.array.size != np.prod(shape):
        raise Unsupported(f"the input {name} has the shape {atom.array.shape}; expected {shape}")
    return atom.array.reshape(shape)


def _unpacked(packed: Array, bits: int) -> Array:
    """The numbers in the last axis of bytes, that of the lowest bits first."""
    parts = np.stack([packed >> n & (1 << bits) - 1 for n in range(0, 8, bits)], -1)
    return parts.reshape(*packed.shape[:-1], packed.shape[-1] * 8 // bits)


def _zeros(atom: Atom, columns: int, blocks: int, bits: int) -> Array:
    """Zero points as floats (columns, blocks)."""
    if isinstance(atom, Const) and atom.type.dtype == "uint8":
        packed = _constant(atom, "zero_points", (columns, -(-blocks * bits // 8)))
        return _unpacked(packed, bits)[:, :blocks].astype(np.float32)
    return _constant(atom, "zero_points", (columns, blocks)).astype(np.float32)


def gather_quantized(call: Call) -> str:
    """Rows of a table whose numbers are quantised in blocks: they are taken as they are stored, and
    dequantised then. Bytes have 8 / `bits` numbers, along the last axis; those of int4 and uint4
    have one."""
    bits, block, across, along = (
        int(call.attrs.get(n, default))
        for n, default in (("bits", 4), ("block_size", 128), ("gather_axis", 0),
                           ("quantize_axis", 1))
    )  # fmt: skip
    shape = call.shape(0, "data")
    rank = len(shape)
    known = all(-rank <= axis < rank for axis in (across, along))
    if not known or across % rank == along % rank or bits not in (2, 4, 8) or block < 1:
        call.refuse(
            f"attributes bits, block_size, gather_axis, quantize_axis are {bits}, {block}, "
            f"{across}, {along} for data of {rank} axes; expected 2, 4 or 8 bits and two axes"
        )
    across, along = across % rank, along % rank
    blocks = call.shape(2, "scales", rank)[along]
    packed = 1
    if call.type(0, "data").dtype == "uint8" and along == rank - 1:
        fits = [n for n in {8 // bits, 1} if -(-shape[along] * n // block) == blocks]
        packed = max(fits, default=0)
        if len(fits) > 1 and shape[along] * packed % block:
            packed = 0  # bytes or numbers: both are part of a block
    if not packed or -(-shape[along] * packed // block) != blocks:
        call.refuse(f"the input scales has {blocks} blocks of {block} along axis {along}; the data "
                    f"has the shape {shape}, of {bits} bits each")  # fmt: skip
    is_bytes = packed == 8 // bits and call.type(0, "data").dtype == "uint8"
    at = along + len(call.shape(1, "indices")) - 1 if along > across else along
    text, zero = f"scale = Gather <axis = {across}> (s, i)\n", ""
    for name, n in (("x", 0), ("z", 3)) if call.given(3) else (("x", 0),):
        text += f"{name}_0 = Gather <axis = {across}> ({name}, i) {name}_1 = Cast <to = 6> "
        text += f"({name}_0)\n{_split(name, bits, packed, call.shape(n, name)[-1])}"
    if call.given(3):
        text += f"start = Constant <value_ints = [0]> () stop = Constant <value_ints = [{blocks}]>"
        text += f" ()\naxis = Constant <value_ints = [{at}]> () z_n = Slice(z_q, start, stop, axis)"
        zero = ", z_n"
    elif is_bytes:
        text += f"half = Constant <value = int32 {{{1 << (bits - 1)}}}> () sizes = Shape(scale)\n"
        text += "z_n = Expand(half, sizes)\n"
        zero = ", z_n"
    return (
        "GatherBlockQuantized <bits, block_size, gather_axis, quantize_axis> (x, i, s, z) => (y) {"
        f"{text}\ny = DequantizeLinear <axis = {at}, block_size = {block}> (x_q, scale{zero}) }}"
    )


def _split(name: str, bits: int, packed: int, size: int) -> str:
    """The numbers NAME_q in the last axis of `size` bytes NAME_1, that of the lowest bits first.
    They are parts of quotients, which kernels compute."""
    if packed == 1:
        return f"{name}_q = Identity({name}_1)\n"
    text = f"{name}_last = Constant <value_ints = [-1]> ()\n"
    text += f"{name}_unit = Constant <value = int32 {{{1 << bits}}}> ()\n"
    for n in range(packed):
        text += f"{name}_by{n} = Constant <value = int32 {{{1 << n * bits}}}> ()\n"
        text += f"{name}_down{n} = Div({name}_1, {name}_by{n})\n"
        text += f"{name}_low{n} = Mod({name}_down{n}, {name}_unit)\n"
        text += f"{name}_part{n} = Unsqueeze({name}_low{n}, {name}_last)\n"
    parts = ", ".join(f"{name}_part{n}" for n in range(packed))
    text += f"{name}_parts = Concat <axis = -1> ({parts})\n"
    text += f"{name}_front = Shape <end = -1> ({name}_1)\n"
    text += f"{name}_size = Constant <value_ints = [{size * packed}]> ()\n"
    text += f"{name}_shape = Concat <axis = 0> ({name}_front, {name}_size)\n"
    return text + f"{name}_q = Reshape({name}_parts, {name}_shape)\n"

"""Names of TVM's te that are none here."""

from __future__ import annotations

ABSENT = {
    "decl_tensor_intrin": "its function returns statements of TVM's builder; describe what the "
    "intrinsic computes by a te.compute and say how by a function, at.TensorIntrin.register(name, "
    "te.create_prim_func([a, b, c]), implementation), then s[C].tensorize(axis, name)",
    "hybrid": "write a function of loops in script, @T.prim_func or @T.routine, which te.extern "
    "takes for a tensor",
    "AXIS_SEPARATOR": "buffers have one block of memory; give s[T].transform_layout the dimensions",
}
"""Why, and what to do instead."""

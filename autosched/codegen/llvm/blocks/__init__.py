"""Blocks as LLVM IR: points, register tiles, tensor intrinsics, transposed copies."""

"""What CUDA and OpenCL call the same things, for the kernels of our own that measuring needs."""

from __future__ import annotations

from autosched.codegen.cuda import CUDA
from autosched.codegen.opencl import OPENCL


def words(kind: str, threads: int) -> dict[str, str]:
    """Fields of a kernel's text in the language `kind`, "cuda" or "opencl", for blocks of so many
    threads."""
    dialect = CUDA if kind == "cuda" else OPENCL
    to_bits, from_bits = dialect.bits
    return {
        "kernel": dialect.head("", threads, (threads, 1, 1)),
        "memory": "" if kind == "cuda" else "__global ",
        "shared": dialect.shared,
        "barrier": dialect.barrier(frozenset({"shared"})),
        "long": dialect.values["int64"],
        "bits": to_bits,
        "nan": f"{from_bits}(~0u)",
        "fma": dialect.math("fma", "float32"),
        "abs": dialect.math("abs", "float32"),
        "block": dialect.indices["blockIdx.x"],
        "thread": dialect.indices["threadIdx.x"],
    }

"""What CUDA and OpenCL call the same things, for the kernels of our own that measuring needs."""

from __future__ import annotations


def words(kind: str, threads: int) -> dict[str, str]:
    """Fields of a kernel's text in the language `kind`, "cuda" or "opencl", for blocks of so many
    threads."""
    if kind == "cuda":
        return {
            "kernel": f'extern "C" __global__ void __launch_bounds__({threads})',
            "memory": "",
            "shared": "__shared__",
            "barrier": "__syncthreads();",
            "long": "long long",
            "bits": "__float_as_uint",
            "block": "blockIdx.x",
            "thread": "threadIdx.x",
        }
    return {
        "kernel": f"__kernel __attribute__((reqd_work_group_size({threads}, 1, 1))) void",
        "memory": "__global ",
        "shared": "__local",
        "barrier": "barrier(CLK_LOCAL_MEM_FENCE);",
        "long": "long",
        "bits": "as_uint",
        "block": "get_group_id(0)",
        "thread": "get_local_id(0)",
    }

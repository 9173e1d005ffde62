"""The OpenCL C dialect of `c_source`."""

from __future__ import annotations

from autosched.codegen.gpu.dialect import Dialect

_HALF = """\
static inline float f16_load(ushort bits) { return vload_half(0, (const half *)&bits); }
static inline ushort f16_store(float value) {
  ushort bits;
  vstore_half_rte(value, 0, (half *)&bits);
  return bits;
}
static inline float f16_round(float value) { return f16_load(f16_store(value)); }
"""
_SPACES = {"global": "__global", "shared": "__local", "local": "__private"}
_FENCES = {"global": "CLK_GLOBAL_MEM_FENCE", "shared": "CLK_LOCAL_MEM_FENCE"}


def _pointer(kind: str, name: str, memory: str, constant: bool) -> str:
    return f"{_SPACES[memory]} {'const ' if constant else ''}{kind} *restrict {name}"


def _barrier(memories: frozenset[str]) -> str:
    return f"barrier({' | '.join(_FENCES[m] for m in sorted(memories, reverse=True))});"


def _math(op: str, dtype: str) -> str:
    return {"abs": "fabs", "round": "rint"}.get(op, op)


def _head(name: str, threads: int, block: tuple[int, int, int]) -> str:
    x, y, z = block
    return f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void {name}"


OPENCL = Dialect(
    name="OpenCL",
    prologue="#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n",
    helper="static inline",
    values={
        "float16": "float",
        "float32": "float",
        "float64": "double",
        "bfloat16": "ushort",
        "int8": "char",
        "int16": "short",
        "int32": "int",
        "int64": "long",
        "uint8": "uchar",
        "uint16": "ushort",
        "uint32": "uint",
        "uint64": "ulong",
        "bool": "bool",
    },
    stored={"float16": "ushort", "bool": "uchar"},
    indices={
        f"{kind}.{a}": f"{call}({n})"
        for kind, call in (("blockIdx", "get_group_id"), ("threadIdx", "get_local_id"))
        for n, a in enumerate("xyz")
    },
    shared="__local",
    align="__attribute__((aligned(16)))",
    head=_head,
    pointer=_pointer,
    vector_pointer=lambda kind, memory: f"{_SPACES[memory]} {kind} *",
    barrier=_barrier,
    math=_math,
    unsigned={"int32": "uint", "int64": "ulong"},
    infinity=lambda dtype: "INFINITY" if dtype != "float64" else "((double)INFINITY)",
    nan=lambda dtype: "NAN" if dtype != "float64" else "((double)NAN)",
    half=_HALF,
    bits=("as_uint", "as_float"),
    lanes=lambda kind: (4, 2),
    vector_name=lambda kind: kind,
    ticket="atomic_inc((volatile __global int *){0})",
    fence="mem_fence(CLK_GLOBAL_MEM_FENCE);",
)

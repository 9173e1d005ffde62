"""The CUDA dialect of `c_source`, and machine code from it by NVRTC."""

from __future__ import annotations

import ctypes
import importlib.metadata
from functools import cache
from typing import Any

from autosched.codegen.cuda_warp import warp_helper
from autosched.codegen.gpu.dialect import Dialect
from autosched.errors import BuildError
from autosched.tir.annotations import MOST_COPIES

_FLOAT = {
    "abs": "fabs",
    "round": "rint",
}
_UNSIGNED = {"int32": "unsigned int", "int64": "unsigned long long"}
_HALF = """\
__device__ __forceinline__ float f16_load(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ __forceinline__ unsigned short f16_store(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ __forceinline__ float f16_round(float value) { return f16_load(f16_store(value)); }
"""


def _copies() -> dict[str, str]:
    """Helpers `copy_16`, `copy_8` and `copy_4`, each also `_where` something exists, with zeros
    elsewhere, and `copied`."""
    found = {}
    for size, kind in ((16, "float4"), (8, "float2"), (4, "float")):
        mode = "cg" if size == 16 else "ca"
        for suffix, param, operand, source in (
            ("", "", ("", ""), f"*(const {kind} *)from"),
            (
                "_where",
                ", bool exists",
                (", %2", f', "r"(exists ? {size} : 0)'),
                f"exists ? *(const {kind} *)from : {kind}()",
            ),
        ):
            found[f"copy_{size}{suffix}"] = (
                f"__device__ __forceinline__ void copy_{size}{suffix}"
                f"(void *to, const void *from{param}) {{\n"
                "#if __CUDA_ARCH__ >= 800\n"
                f'  asm volatile("cp.async.{mode}.shared.global [%0], [%1], {size}{operand[0]};"\n'
                '               :: "r"((unsigned int)__cvta_generic_to_shared(to)),\n'
                f'                  "l"(__cvta_generic_to_global(from)){operand[1]} : "memory");\n'
                f"#else\n  *({kind} *)to = {source};\n#endif\n}}\n"
            )
    found["copied"] = (
        "__device__ __forceinline__ void copied() {\n"
        "#if __CUDA_ARCH__ >= 800\n"
        '  asm volatile("cp.async.wait_all;" ::: "memory");\n'
        "#endif\n}\n"
    )
    found["commit"] = (
        "__device__ __forceinline__ void commit() {\n"
        "#if __CUDA_ARCH__ >= 800\n"
        '  asm volatile("cp.async.commit_group;");\n'
        "#endif\n}\n"
    )
    for n in range(1, MOST_COPIES):
        found[f"copied_but_{n}"] = (
            f"__device__ __forceinline__ void copied_but_{n}() {{\n"
            "#if __CUDA_ARCH__ >= 800\n"
            f'  asm volatile("cp.async.wait_group {n};" ::: "memory");\n'
            "#endif\n}\n"
        )
    return found


def _math(op: str, dtype: str) -> str:
    name = _FLOAT.get(op, op)
    return name if dtype == "float64" else f"{name}f"


def _pointer(kind: str, name: str, memory: str, constant: bool) -> str:
    return f"{'const ' if constant else ''}{kind} *__restrict__ {name}"


def _infinity(dtype: str) -> str:
    if dtype == "float64":
        return "__longlong_as_double(0x7ff0000000000000LL)"
    return "__int_as_float(0x7f800000)"


def _nan(dtype: str) -> str:
    if dtype == "float64":
        return "__longlong_as_double(0x7ff8000000000000LL)"
    return "__int_as_float(0x7fc00000)"


_VECTORS = {
    "float": "float",
    "double": "double",
    "signed char": "char",
    "unsigned char": "uchar",
    "short": "short",
    "unsigned short": "ushort",
    "int": "int",
    "long long": "longlong",
}
"""What vector types are called, by the type of their elements."""


_COPIED = {"signed char": (16,), "unsigned char": (16,), "short": (8,), "unsigned short": (8,)}
"""Widths of vectors that have no type of their own, by the type of their elements."""


def _lanes(kind: str) -> tuple[int, ...]:
    return (2,) if kind in ("long long", "double") else (4, 2)


CUDA = Dialect(
    name="CUDA",
    prologue="",
    helper="__device__ __forceinline__",
    values={
        "float16": "float",
        "float32": "float",
        "float64": "double",
        "bfloat16": "unsigned short",
        "int8": "signed char",
        "int16": "short",
        "int32": "int",
        "int64": "long long",
        "uint8": "unsigned char",
        "uint16": "unsigned short",
        "uint32": "unsigned int",
        "uint64": "unsigned long long",
        "bool": "bool",
    },
    stored={"float16": "unsigned short", "bool": "unsigned char"},
    indices={f"{kind}.{a}": f"{kind}.{a}" for kind in ("blockIdx", "threadIdx") for a in "xyz"},
    shared="__shared__",
    align="__align__(16)",
    head=lambda name, threads, block: (
        f'extern "C" __global__ void __launch_bounds__({threads}) {name}'
    ),
    pointer=_pointer,
    vector_pointer=lambda kind, memory: f"{kind} *",
    barrier=lambda memories: "__syncthreads();",
    math=_math,
    unsigned=_UNSIGNED,
    infinity=_infinity,
    nan=_nan,
    half=_HALF,
    bits=("__float_as_uint", "__uint_as_float"),
    lanes=_lanes,
    copied_lanes=_COPIED,
    copied_vector="uint4",
    vector_name=lambda kind: _VECTORS[kind],
    ticket="atomicAdd((int *){0}, 1)",
    fence="__threadfence();",
    shuffle=True,
    asynchronous=_copies(),
    warp=warp_helper,
)


@cache
def _load_nvrtc() -> None:
    """Load the library of the package nvidia-cuda-nvrtc, so that the bindings find it wherever it
    is installed; where there is no such package they look for a toolkit.

    Its other half, the builtins, first: NVRTC 13.0 looks for that where the system has libraries,
    and takes one that is loaded.
    """
    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc") or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for start in ("libnvrtc-builtins.so", "libnvrtc.so"):
        for file in files:
            if file.name.startswith(start):
                ctypes.CDLL(str(file.locate()), ctypes.RTLD_GLOBAL)


def compile_cuda(source: str, arch: str) -> bytes:
    """Machine code (a cubin) for `arch`, such as sm_90. Needs no GPU and no driver.

    Raises BuildError with the compiler's log, or if the extra `cuda` is not installed.
    """
    nvrtc = _nvrtc()
    try:
        program = _done(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    except Exception as e:  # of the binding, which has no public root class
        raise BuildError(f"NVRTC cannot be loaded: {e}") from e
    try:
        options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * int(_done(nvrtc, nvrtc.nvrtcGetProgramLogSize(program)))
            _done(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
            text = log.rstrip(b"\0").decode(errors="replace").strip()
            raise BuildError(
                f"NVRTC refused the generated code for {arch} ({status.name}):\n{text}"
            )
        code = b" " * int(_done(nvrtc, nvrtc.nvrtcGetCUBINSize(program)))
        _done(nvrtc, nvrtc.nvrtcGetCUBIN(program, code))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return code


def _nvrtc() -> Any:
    """The binding, its library loaded. Raises BuildError if it is not installed."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as e:
        raise BuildError(
            "compiling CUDA needs NVRTC; install it with pip install 'autosched[cuda]'"
        ) from e
    _load_nvrtc()
    return nvrtc


def _done(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    """What a function of NVRTC gives after its status. Raises BuildError."""
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BuildError(f"NVRTC fails: {status.name}")
    return values[0] if values else None


def nvrtc_version() -> str:
    """Version of the compiler, such as "13.0". Raises BuildError if it is not installed."""
    nvrtc = _nvrtc()
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as e:  # the binding's errors have no public root class
        raise BuildError(f"NVRTC cannot be loaded: {e}") from e
    return f"{major}.{minor}"

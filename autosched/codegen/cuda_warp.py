"""CUDA's helpers of what the threads of a warp, or of four, do together."""

from __future__ import annotations

import re
from functools import cache

from autosched.codegen.warp_intrinsics import GROUP, KINDS, group_columns, name_of
from autosched.tir.intrin import TensorIntrin
from autosched.tir.intrin_code import WarpCode

_HEAD = "__device__ __forceinline__"
_GROUP = re.compile(r"wgmma_m64n(\d+)k\d+_(\w+?)(_trans)?")
_LOAD = re.compile(r"ldmatrix_x([24])(_trans)?")
_ORDER = {
    "wgmma_fence": "wgmma.fence.sync.aligned;",
    "wgmma_commit": "wgmma.commit_group.sync.aligned;",
    "wgmma_wait_0": "wgmma.wait_group.sync.aligned 0;",
    "proxy_fence": "fence.proxy.async.shared::cta;",
}
_DESCRIPTOR = f"""\
{_HEAD} unsigned long long matrix_descriptor(const void *from, int leading, int stride) {{
  unsigned long long at = __cvta_generic_to_shared(from);
  return (at & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16
    | (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}}
"""
"""Of rows of 128 bytes, swizzled (PTX ISA, "Matrix Descriptor Format"): `leading` and `stride` are
bytes from a matrix of 8 rows to the next, along its rows and across them."""


@cache
def warp_helper(name: str) -> str | None:
    """The definition of a helper; None if there is none of that name."""
    load, group = _LOAD.fullmatch(name), _GROUP.fullmatch(name)
    if load is not None:
        return _load(name, int(load[1]), load[2] or "")
    if group is not None and group[2] in KINDS:
        return _group(name, int(group[1]), group[2], bool(group[3]))
    if name in _ORDER:
        return f'{_HEAD} void {name}() {{\n  asm volatile("{_ORDER[name]}" ::: "memory");\n}}\n'
    if name == "matrix_descriptor":
        return _DESCRIPTOR
    if name in ("swizzled_1", "swizzled_2"):
        # The piece of 16 bytes of a row, xor the number of the row modulo 8.
        row, piece = (7, 4) if name == "swizzled_1" else (6, 3)
        return f"{_HEAD} int {name}(int at) {{ return at ^ (at >> {row} & 7) << {piece}; }}\n"
    kind = next((kind for kind in KINDS if name_of(kind) == name), None)
    return None if kind is None else _product(name, kind)


def _load(name: str, count: int, suffix: str) -> str:
    names = ", ".join(f"%{n}" for n in range(count))
    outputs = ", ".join(f'"=r"(to[{n}])' for n in range(count))
    return (
        f"{_HEAD} void {name}(unsigned int *to, const void *from) {{\n"
        f'  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{suffix.replace("_", ".")}'
        f'.shared.b16 {{{names}}}, [%{count}];"\n'
        f"               : {outputs}\n"
        '               : "r"((unsigned int)__cvta_generic_to_shared(from)));\n}\n'
    )


def _instruction(kind: str, warps: int) -> str:
    code = TensorIntrin.get(name_of(kind, warps)).implementation
    assert isinstance(code, WarpCode)  # as registered
    return code.instruction


def _results(kind: str, count: int) -> tuple[str, str]:
    """(parameters, operands of assembly) of so many results."""
    total, letter = ("float", "f") if KINDS[kind].total == "float32" else ("int", "r")
    params = ", ".join(f"{total} &c{n}" for n in range(count))
    return params, ", ".join(f'"+{letter}"(c{n})' for n in range(count))


def _product(name: str, kind: str) -> str:
    params, results = _results(kind, 4)
    return (
        f"{_HEAD} void {name}({params}, const unsigned int *a, const unsigned int *b) {{\n"
        f'  asm volatile("{_instruction(kind, 1)} '
        '{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"\n'
        f"      : {results}\n"
        '      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));\n}\n'
    )


def _group(name: str, columns: int, kind: str, trans: bool) -> str | None:
    """A product of a warpgroup, added to what is there."""
    if not group_columns(kind, columns):
        return None
    count = columns // 2
    params, results = _results(kind, count)
    names = ", ".join(f"%{n}" for n in range(count))
    # Of halves: both operands as they are, the left one by rows, the right one by columns or not.
    more = "" if KINDS[kind].total == "int32" else f", 1, 1, 0, {int(trans)}"
    instruction = _instruction(kind, GROUP).format(columns=columns)
    return (
        f"{_HEAD} void {name}({params}, unsigned long long a, unsigned long long b) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n'
        f'{instruction} {{{names}}}, %{count}, %{count + 1}, p{more};\\n}}\\n"\n'
        f"               : {results}\n"
        '               : "l"(a), "l"(b), "r"(1));\n}\n'
    )

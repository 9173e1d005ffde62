"""Programs as their authors write them in TVMScript: each form of the language once or more.

Each row: a name, the text of a function `main`, and, for programs that have no counterpart here,
a part of the error. Shapes and dtypes of the arguments stand in `ARGUMENTS`.
"""

from __future__ import annotations

HEAD = 'from tvm.script import tir as T\n\nN = 16\nDTYPE = "float32"\n\n'

BUFFERS = "A: T.Buffer((16, 16), 'float32'), B: T.Buffer((16, 16), 'float32')"

ACCEPTED: dict[str, str] = {
    "handles, remap, lists of regions": """
@T.prim_func
def main(a: T.handle, b: T.handle) -> None:
    T.func_attr({"global_symbol": "main", "tir.noalias": True})
    A = T.match_buffer(a, [16, 16], dtype="float32", elem_offset=0, align=64, offset_factor=1)
    B = T.match_buffer(b, (16, 16))
    C = T.alloc_buffer([16, 16])
    for i, j in T.grid(16, 16):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads([A[vi, vj]])
            T.writes([C[vi, vj]])
            C[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(16, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] + T.float32(1)
""",
    "blocks in blocks, regions": """
@T.prim_func
def main(A: T.Buffer[(16, 16), "float32"], B: T.Buffer[(16, 16), "float32"]) -> None:
    for i, j in T.grid(4, 4):
        with T.block("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
            T.writes(B[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
            for x, y in T.grid(4, 4):
                with T.block("inner"):
                    vx = T.axis.S(16, vi * 4 + x)
                    vy = T.axis.S(16, vj * 4 + y)
                    B[vx, vy] = A[vy, vx] + 1.0
""",
    "a blockized reduction with its own initialisation": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")) -> None:
    with T.block("root"):
        T.reads(A[0:16, 0:16])
        T.writes(B[0:16, 0:16])
        for i, j, k in T.grid(4, 4, 4):
            with T.block("outer"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    for x, y in T.grid(4, 4):
                        with T.block("first"):
                            vx, vy = T.axis.remap("SS", [x, y])
                            B[vi * 4 + vx, vj * 4 + vy] = T.float32(0)
                left = T.match_buffer(
                    A[vi * 4 : vi * 4 + 4, vk * 4 : vk * 4 + 4], (4, 4), offset_factor=1
                )
                for x, y, z in T.grid(4, 4, 4):
                    with T.block("update"):
                        vx, vy, vz = T.axis.remap("SSR", [x, y, z])
                        B[vi * 4 + vx, vj * 4 + vy] = (
                            B[vi * 4 + vx, vj * 4 + vy] + left[vx, vz] * A[vk * 4 + vz, vj * 4 + vy]
                        )
""",
    "stores without blocks": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i in range(16):
        for j in T.serial(0, 16):
            B[i, j] = 0.0
            for k in range(16):
                B[i, j] += A[i, k] * A[k, j]
""",
    "starts, steps and ends of loops": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("zero"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = 0.0
    for i in T.serial(1, 15, step=2):
        for j in T.serial(3, 9):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi - 1, vj + 1]
""",
    "triangles": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i in T.serial(16):
        for j in T.serial(i):
            with T.block("low"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + A[vj, vi]
    for i in T.serial(16):
        for j in T.serial(i, 16):
            with T.block():
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.if_then_else(vi == vj, 0.0, A[vi, vj], dtype="float32")
""",
    "a triangular sum": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        B[i, j] = T.float32(0)
    for i, j in T.grid(16, 16):
        for k in T.serial(j + 1):
            B[i, j] = B[i, j] + A[i, k]
""",
    "branches around blocks": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        if i < 4 or i > 10:
            with T.block("ends"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        else:
            with T.block("middle"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 3.0
""",
    "a choice on data": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        if A[i, j] > 0.5:
            B[i, j] = A[i, j]
        else:
            B[i, j] = A[j, i]
""",
    "a sum of what passes a condition on data": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        B[i, j] = 0.0
    for i, j, k in T.grid(16, 16, 16):
        if A[i, k] > 0.5:
            B[i, j] += A[k, j]
""",
    "ranges of axes, predicates": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i0, i1, j in T.grid(3, 6, 16):
        with T.block("b"):
            T.where(i0 * 6 + i1 < 16)
            vi = T.axis.S((0, 16), i0 * 6 + i1)
            vj = T.axis.spatial(16, j)
            B[vi, vj] = T.max(A[vi, vj], T.float32(0.25))
""",
    "conversions that TVM leaves unsaid": """
@T.prim_func
def main(A: T.Buffer((16, 16), "int32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            x = T.Select(vj < 8, 1.5, T.cast(vi, "float32"))
            B[vi, vj] = T.Cast("float32", A[vi, vj] + vi) + x
""",
    "an intermediate in each iteration": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i in T.serial(16):
        with T.block("row"):
            vi = T.axis.S(16, i)
            T.reads(A[vi, 0:16])
            T.writes(B[vi, 0:16])
            row = T.alloc_buffer((16,), "float32")
            for j in T.serial(16):
                with T.block("row"):
                    vj = T.axis.S(16, j)
                    row[vj] = A[vi, vj] * 2.0
            for j in T.serial(16):
                with T.block("b"):
                    vj = T.axis.S(16, j)
                    B[vi, vj] = row[15 - vj]
""",
    "memory and views of it": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    flat = T.Buffer((256,), data=A.data)
    memory = T.allocate([256], "float32", "global")
    part = T.decl_buffer((16, 16), data=memory)
    for i in T.parallel(16):
        for j in T.vectorized(16):
            part[i, j] = flat[i * 16 + j]
    for i, j in T.grid(16, 16):
        B[i, j] = part[j, i]
""",
    "captured numbers, names for values": """
@T.prim_func
def main(A: T.Buffer((N, N), DTYPE), B: T.Buffer((N, N), DTYPE)):
    for i, j in T.grid(N, N):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            x: T.float32 = A[vi, vj]
            y = x * x
            B[vi, vj] = y + x
""",
    "threads": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for bx in T.thread_binding(0, 4, thread="blockIdx.x"):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            for j in T.unroll(0, 16):
                with T.block("b"):
                    vi = T.axis.spatial(16, bx * 4 + tx)
                    vj = T.axis.spatial(16, j)
                    B[vi, vj] = A[vi, vj]
""",
    "a recurrence": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for j in T.serial(16):
        B[0, j] = A[0, j]
    for i in T.serial(1, 16):
        for j in T.serial(16):
            B[i, j] = B[i - 1, j] * 0.5 + A[i, j]
""",
    "a running maximum": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        B[i, j] = T.min_value("float32")
        for k in T.serial(16):
            B[i, j] = T.max(B[i, j], A[i, k] - A[j, k])
""",
    "the place of a maximum": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "int32"),
         at: T.Buffer((16,), "int32"), top: T.Buffer((16,), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("top"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                at[vi] = -1
                top[vi] = T.min_value("float32")
            where: T.int32 = T.Select(top[vi] >= A[vi, vj], at[vi], B[vi, vj])
            value: T.float32 = T.Select(top[vi] >= A[vi, vj], top[vi], A[vi, vj])
            at[vi] = where
            top[vi] = value
""",
    "attributes and annotations that are no literals": """
@T.prim_func(private=True)
def main(A: T.Buffer((T.int64(16), T.int64(16)), "float32"), B: T.Buffer((16, 16), "float32")):
    T.func_attr({"tir.noalias": T.bool(True), "target": T.target("llvm")})
    T.func_attr({"layout_free_buffers": [0]})
    for i, j in T.grid(T.int64(16), T.int64(16)):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.block_attr({"note": T.int64(16), "pragma_auto_unroll_max_step": 4})
            B[vi, vj] = A[T.truncdiv(vi, 2), T.truncmod(vj, 3)]
""",
    "numbers as parameters": """
@T.prim_func
def main(n: T.int32, x: T.float32,
         A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        B[i, j] = A[i, j] * x + T.Cast("float32", n)
""",
    "names that end with their branch": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        x = A[i, j]
        if i < 4:
            y = x + 1.0
            B[i, j] = y
        else:
            y = x * 2.0
            B[i, j] = y
""",
    "a scalar that is used up at once": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            t = T.alloc_buffer((1,), "float32")
            t[0] = A[vi, vj] + 1.0
            B[vi, vj] = t[0] * t[0]
""",
}

REFUSED: dict[str, tuple[str, str]] = {
    "a call of what is opaque": (
        """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i in T.serial(16):
        with T.block("b"):
            vi = T.axis.S(16, i)
            T.reads(A[vi, 0:16])
            T.writes(B[vi, 0:16])
            T.evaluate(T.call_extern("copy", A.data, B.data, dtype="int32"))
""",
        "opaque",
    ),
    "strides": (
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (16, 16), "float32", strides=[32, 1])
    B = T.match_buffer(b, (16, 16), "float32")
    for i, j in T.grid(16, 16):
        B[i, j] = A[i, j]
""",
        "dense",
    ),
    "a name that nothing defines": (
        """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        B[i, j] = A[i, j] * scale
""",
        "constants=",
    ),
}

"""Programs of TVMScript that become routines: each form that blocks cannot state.

Each row: a name, and the text of a function `main`, which `tvmscript_oracle` executes.
"""

from __future__ import annotations

ROUTINES: dict[str, str] = {
    "ranges read from memory": """
@T.prim_func
def main(
    first: T.Buffer[(9,), "int32"], x: T.Buffer[(64,), "float32"], y: T.Buffer[(8,), "float32"]
):
    for i in T.serial(8):
        with T.block("row"):
            vi = T.axis.S(8, i)
            y[vi] = 0.0
            for j in T.serial(0, first[vi + 1] - first[vi]):
                with T.block("entry"):
                    vj = T.axis.R(64, j + first[vi])
                    y[vi] = y[vi] + x[vj]
""",
    "while": """
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    low = T.alloc_buffer((), "int32")
    high = T.alloc_buffer((), "int32")
    for i in range(4):
        with T.block("search"):
            vi = T.axis.S(4, i)
            low[()] = 0
            high[()] = 8
            while low[()] < high[()]:
                middle = low[()] + (high[()] - low[()]) // 2
                if A[middle] < B[vi]:
                    low[()] = middle + 1
                else:
                    high[()] = middle
            C[vi] = low[()]
""",
    "changed in place": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("A"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(15, 16):
        A[i, j] = A[i + 1, j] - A[i, j]
""",
    "a value used after it was overwritten": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        B[i, j] = A[i, j]
        x = B[i, j]
        B[i, j] = 2.0
        if x > 0.5:
            B[j, i] = x
        else:
            A[i, j] = 0.0
""",
    "reductions from a start": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        for k in T.serial(i // 2, 16):
            with T.block("sum"):
                vi = T.axis.S(16, i)
                vk = T.axis.R((i // 2, 16), k)
                with T.init():
                    B[vi] = 1.0
                if A[vi, vk] > 0.25:
                    B[vi] = B[vi] + A[vi, vk]
        B[i] = B[i] / 2.0
""",
    "memory, and elements by their place in it": """
@T.prim_func
def main(A: T.Buffer((12, 8), "float32"), B: T.Buffer((12, 8), "float32")):
    for i in T.serial(0, 12):
        row = T.allocate([8], "float32", "global")
        for j in T.serial(0, 8):
            row[j] = T.load("float32", A.data, i * 8 + j) + 1.0
        for j in T.serial(0, 8):
            T.store(B.data, i * 8 + j, row[7 - j] * row[j])
        for j in T.serial(8):
            B.data[i * 8 + j] = B[i, j] - 1.0
""",
    "vectors": """
@T.prim_func
def main(a: T.handle, B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    A = T.match_buffer(a, (64,), "float32")
    for i in range(16):
        B[T.ramp(i * 4, 1, 4)] = A[T.ramp(i * 4, 1, 4)] * T.broadcast(A[i], 4) + C[0:4]
        B[i * 4 : i * 4 + 4] = B[i * 4 : i * 4 + 4] + T.broadcast(T.float32(1), 4)
        C.vstore([i * 4], A.vload([i * 4], "float32x4"))
        C[T.ramp(i, 16, 4)] = C[T.ramp(i, 16, 4)] + A[T.ramp(0, 2, 4)]
""",
    "views, regions of regions": """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((8, 8), "float32")):
    part = T.Buffer((4, 8), "float32", data=A.data, elem_offset=16)
    for i in range(4):
        with T.block():
            rows = T.match_buffer(B[i * 2 : i * 2 + 2, 0:8], (2, 8), offset_factor=1)
            for k in range(2):
                with T.block():
                    row = T.match_buffer(rows[k : k + 1, 0:8], (1, 8))
                    for j in range(8):
                        row[0, j] = row[0, j] + part[i, j]
                        part[i, j] = row[0, j]
""",
    "numbers, division to zero, fixed point": """
@T.prim_func
def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    K = T.allocate_const([5, -3, 7, 2], "int32", [4])
    for i in range(16):
        x: T.int32 = A[i] - 5
        B[i] = T.truncdiv(x, K[i % 4]) + T.truncmod(x, 3)
        B[i] = B[i] + T.q_multiply_shift(A[i] * 1000 - 3000, 1395864371, 31, -3, dtype="int32")
        A[i] = x
""",
    "scalars, let, attributes": """
@T.prim_func
def main(n: T.int32, x: T.float32, A: T.Buffer((16,), "float32")):
    T.attr("default", "device_id", 0)
    y = T.int32()
    with T.LetStmt(n + 2, var=y):
        A[y] = A[n] + x
        A[n] = A[y]
    for i in range(n):
        T.evaluate(T.assume(i < 16))
        if i >= 1 and A[i - 1] > 0.5 or i == n:
            A[i] = A[i] + T.undef(dtype="float32")
""",
    "buffers of one name in blocks beside each other": """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for i in range(8):
        with T.block():
            row = T.alloc_buffer((4,), "float32")
            x: T.float32 = A[i, 0]
            for j in range(4):
                row[j] = A[i, j] + x
            for j in range(4):
                A[i, j] = row[3 - j]
        with T.block():
            row = T.alloc_buffer((4,), "float32")
            x: T.float32 = A[i, 1]
            for j in range(4):
                row[j] = row[j] + A[i, j] * x
                B[i, j] = row[j] + B[i, j]
""",
    "threads in their own threads": """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(tx, 32)
    for i in T.thread_binding(0, 32, thread="threadIdx.x"):
        if i < 20:
            B[i] = A[31 - i]
""",
    "views of views, slices with steps, expressions that are named": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    flat = T.decl_buffer(data=A.data, shape=(256,), dtype="float32")
    part = T.decl_buffer(data=flat.data, shape=(8, 16), dtype="float32", elem_offset=128)
    for i in range(4):
        flat[i : i + 16 : 4] = T.broadcast(2.5, 4)
    for i, j in T.grid(8, 16):
        x = T.var("float32")
        B[i, j] = T.Let(x, part[i, j] + 1.0, x * x + B[i, j])
        part[i, j] = B[i, j] * T.float32(0.5)
""",
    "threads that are launched": """
@T.prim_func
def main(A: T.Buffer((16, 8), "float32"), B: T.Buffer((16, 8), "float32")):
    bx = T.env_thread("blockIdx.x")
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(bx, 4)
    T.launch_thread(tx, 4)
    row = T.allocate([8], "float32", "local")
    for j in range(8):
        row[j] = A[bx * 4 + tx, j] + 1.0
        row[j] = row[j] * row[j]
    for j in range(8):
        B[bx * 4 + tx, j] = row[7 - j]
""",
    "shared memory of one thread each": """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for tx in T.thread_binding(16, thread="threadIdx.x"):
        with T.block():
            S = T.alloc_buffer((2, 16), "float32", scope="shared")
            S[0, tx] = A[tx, 0]
            for i in range(15):
                S[(i + 1) % 2, tx] = A[tx, i + 1] + S[i % 2, tx]
                B[tx, i] = S[i % 2, tx]
            B[tx, 15] = S[1, tx]
""",
}
REFUSED_THREADS: dict[str, tuple[str, str]] = {
    "a sum in threads in their own threads": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32")):
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(tx, 32)
    for i in T.thread_binding(0, 32, thread="threadIdx.x"):
        A[i] = A[i] + 1.0
""",
        "two loops over threadIdx.x",
    ),
    "threads that are launched twice": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32")):
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(tx, 32)
    T.launch_thread(tx, 32)
    A[tx] = A[tx] + 1.0
""",
        "launched in its own threads",
    ),
    "elements of another thread": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        with T.block():
            S = T.alloc_buffer((32,), "float32", scope="shared")
            S[tx] = A[tx]
            B[tx] = S[31 - tx]
""",
        "a thread reads elements of S that others write",
    ),
    "shared memory of launched threads": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.allocate([32], "float32", "shared")
    S[tx] = A[tx]
    B[tx] = S[tx]
""",
        "shared by threads, which run together",
    ),
    "kept from one loop to the next": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    r = T.alloc_buffer((1,), "float32", scope="local")
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        r[0] = A[tx]
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        B[tx] = r[0]
""",
        "keeps r from one loop to another",
    ),
    "a barrier": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    B[tx] = A[tx]
    T.tvm_storage_sync("global")
    B[tx] = B[31 - tx]
""",
        "T.tvm_storage_sync is opaque",
    ),
    "a value that is returned": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32")):
    T.evaluate(T.ret(1))
""",
        "returns no value",
    ),
    "lanes that overlap": (
        """
@T.prim_func
def main(A: T.Buffer((32,), "float32")):
    A[0:8] = A[1:9]
""",
        "a region of a buffer is no value",
    ),
}

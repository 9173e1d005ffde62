"""Parts of a function as functions of their own, for other threads to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosched.codegen.llvm.function import FunctionWriter
from autosched.tir.nodes import Node, sites

if TYPE_CHECKING:
    from autosched.codegen.llvm.generate import ModuleWriter

Writer = type[FunctionWriter]


class Outline:
    """`@name.body(values…, i64 begin, i64 end, i32 thread)`, whose body `inside` writes.

    The values are what `outside` knows and `nodes` need: buffers, loop counters, the workspace. A
    buffer is declared `noalias` unless other threads write it while the function runs (`shared`).
    """

    def __init__(
        self,
        module: ModuleWriter,
        outside: FunctionWriter,
        nodes: Sequence[Node],
        writer: Writer = FunctionWriter,
        shared: bool = False,
    ) -> None:
        self.module, self.outside = module, outside
        self.name = f"{module.entry}.par{module.next_number()}"
        self.inside = inside = module.writer(
            writer, in_parallel=True, streaming=outside.streaming, done=set(outside.done)
        )
        blocks = [s.block for node in nodes for s in sites(node)]
        needed = {id(a.buffer) for b in blocks for a in (*b.reads, *b.writes)}
        self.written = {id(a.buffer): a.buffer for b in blocks for a in b.writes}
        pointer = "ptr" if shared else "ptr noalias"
        self.values: list[tuple[str, str]] = []
        self._arguments: list[str] = []
        for key, ref in outside.memory.pointers.items():
            if key in needed:
                inside.memory.pointers[key] = self._pass(pointer, ref, self._next)
        for v, value in outside.index.env.items():
            inside.index.env[v] = (
                value if isinstance(value, int) else self._pass("i64", value, self._next)
            )
        self._pass(pointer, "%workspace", "%workspace")
        for name in module.sized:
            self._pass("i64", name, name)
        for known in ("%begin", "%end", "%thread", "%thread_space"):
            inside.b.name(known, 0)

    @property
    def _next(self) -> str:
        return f"%c{len(self.values)}"

    def _pass(self, declared: str, ref: str, inner: str) -> str:
        self.values.append((declared.split()[0], ref))
        self._arguments.append(f"{declared} {inner}")
        return self.inside.b.name(inner, 0)

    def define(self) -> None:
        """Add the function to the module; `inside` has been written."""
        inside, sized = self.inside, self.module.sized
        inside.control.slots += [
            "  %thread64 = zext i32 %thread to i64",
            f"  %mine = mul nsw i64 %thread64, {'%each' if sized else '@@THREAD@@'}",
            f"  %offset = add nsw i64 %mine, {'%shared' if sized else '@@SHARED@@'}",
            "  %thread_space = getelementptr inbounds i8, ptr %workspace, i64 %offset",
        ]
        if inside.streaming and "86" in self.module.target.triple.split("-")[0]:
            self.module.declarations["sfence"] = "declare void @llvm.x86.sse.sfence()"
            inside.b.do("call void @llvm.x86.sse.sfence()")
        arguments = [*self._arguments, "i64 %begin", "i64 %end", "i32 %thread"]
        self.module.define(f"{self.name}.body", arguments, inside)

    def call(self, begin: str, end: str) -> None:
        """Call it from `outside`, which runs on the same thread."""
        values = ", ".join(f"{t} {ref}" for t, ref in self.values)
        self.outside.b.do(
            f"call void @{self.name}.body({values}, i64 {begin}, i64 {end}, i32 %thread)"
        )
        self._forget()

    def call_on_threads(self, function: str, arguments: str) -> None:
        """Call a function of the runtime that calls it; the values cross in an array of 8-byte
        cells."""
        b = self.outside.b
        context = self.outside.alloca(f"[{len(self.values)} x i64]", 8)
        loads, passed = [], []
        for n, (t, ref) in enumerate(self.values):
            cell = b.op(f"getelementptr inbounds i64, ptr {context}, i64 {n}")
            b.do(f"store {t} {ref}, ptr {cell}, align 8")
            loads.append(f"  %a{n} = getelementptr inbounds i64, ptr %context, i64 {n}")
            loads.append(f"  %v{n} = load {t}, ptr %a{n}, align 8")
            passed.append(f"{t} %v{n}")
        passed += ["i64 %begin", "i64 %end", "i32 %thread"]
        self.module.functions.append(
            "\n".join(
                [
                    f"define internal void @{self.name}"
                    "(ptr %context, i64 %begin, i64 %end, i32 %thread) #0 {",
                    "entry:",
                    *loads,
                    f"  call void @{self.name}.body({', '.join(passed)})",
                    "  ret void",
                    "}",
                ]
            )
        )
        self.module.calls_runtime = True
        b.do(f"call void @{function}(ptr @{self.name}, ptr {context}, {arguments})")
        self._forget()

    def _forget(self) -> None:
        for buffer in self.written.values():
            self.outside.memory.forget(buffer)

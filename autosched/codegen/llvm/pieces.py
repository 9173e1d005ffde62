"""LLVM IR of functions with opaque blocks: the code of the nests between them, that of the
routines, and an entry that calls one after the other.

The workspace of the whole begins with the status, if a routine may stop; then come the buffers that
several pieces use, then what one piece at a time needs.
"""

from __future__ import annotations

from typing import Any

from autosched.codegen.artifact import KernelInfo, params_of
from autosched.codegen.llvm.generate import Generated, generate
from autosched.codegen.llvm.routine import STATUS, generate_routine
from autosched.errors import BuildError, CodegenError
from autosched.lowering.lower import lower
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Int
from autosched.tir.nodes import Block, Buffer, PrimFunc, allocated
from autosched.tir.opaque import opaque_blocks, opaque_of, pieces, shared_buffers, starts_as_zero

ALIGNMENT = 64


def generate_pieces(func: PrimFunc, target: Target, entry: str = "autosched_kernel") -> Generated:
    """LLVM IR of a scheduled function with opaque blocks. Raises CodegenError."""
    if func.sizes:
        raise CodegenError(f"{func.name} has opaque blocks and symbolic sizes; specialize it")
    beside = {id(node) for node in func.body}
    for block in opaque_blocks(func):
        if id(block) not in beside:
            raise CodegenError(f"opaque block {block.name} stands in a loop")
    return _Driver(func, target, entry).write()


class _Driver:
    """Writes the entry that calls the pieces."""

    def __init__(self, func: PrimFunc, target: Target, entry: str) -> None:
        self.func, self.target, self.entry = func, target, entry
        self.lines: list[str] = []
        self.parts: list[Generated] = []
        self.messages: list[str] = []
        self.offsets: dict[int, int] = {}
        """Where buffers (by id) that pieces share begin in the workspace."""
        self.cells: dict[int, int] = {id(b): n for n, b in enumerate(func.params)}
        self.high = 0

    def write(self) -> Generated:
        """The whole module."""
        parts = pieces(self.func)
        made = [self._code(part, n) for n, part in enumerate(parts)]
        self.high = STATUS if any(g.info.messages for g in made) else 0
        for b in shared_buffers(self.func):
            self.offsets[id(b)] = self.high
            self.high += -(-_bytes(b) // ALIGNMENT) * ALIGNMENT
        if any(g.info.messages for g in made):
            self.lines.append("  store i64 0, ptr %workspace, align 8")
        self.lines.append(f"  %area = getelementptr i8, ptr %workspace, i64 {self.high}")
        for n, (part, g) in enumerate(zip(parts, made, strict=True)):
            if isinstance(part, Block):
                self._zero(part, n)
            self._call(part, g, n)
        return Generated(self._linked(made), self._info(made))

    def _code(self, part: PrimFunc | Block, n: int) -> Generated:
        """The code of one piece, under an entry of its own."""
        entry = f"{self.entry}_{n}"
        if isinstance(part, PrimFunc):
            return generate(lower(part), self.target, entry)
        found = opaque_of(part)
        assert found is not None
        return generate_routine(found.routine, self.target, entry)

    def _pointer(self, b: Buffer, name: str) -> str:
        """The memory of a buffer of the function, as the value `name`."""
        if id(b) in self.cells:
            at = f"getelementptr ptr, ptr %args, i64 {self.cells[id(b)]}"
            self.lines += [f"  {name}.at = {at}", f"  {name} = load ptr, ptr {name}.at, align 8"]
        else:
            at = f"getelementptr i8, ptr %workspace, i64 {self.offsets[id(b)]}"
            self.lines.append(f"  {name} = {at}")
        return name

    def _zero(self, block: Block, n: int) -> None:
        for k, b in enumerate(starts_as_zero(block)):
            p = self._pointer(b, f"%zero{n}.{k}")
            self.lines.append(
                f"  call void @llvm.memset.p0.i64(ptr {p}, i8 0, i64 {_bytes(b)}, i1 false)"
            )

    def _call(self, part: PrimFunc | Block, g: Generated, n: int) -> None:
        given = part.params if isinstance(part, PrimFunc) else _buffers(part)
        for k, b in enumerate(given):
            p = self._pointer(b, f"%b{n}.{k}")
            self.lines.append(f"  %cell{n}.{k} = getelementptr ptr, ptr %cells, i64 {k}")
            self.lines.append(f"  store ptr {p}, ptr %cell{n}.{k}, align 8")
        passed = "ptr %cells, ptr %area, i32 %threads"
        self.lines.append(f"  call void @{g.info.entry}({passed})")
        if g.info.messages:
            self._stop(n, len(self.messages))
            self.messages += g.info.messages

    def _stop(self, n: int, before: int) -> None:
        """Leave with the message of a routine that has stopped."""
        self.lines += [
            f"  %status{n} = load i64, ptr %area, align 8",
            f"  %stopped{n} = icmp ne i64 %status{n}, 0",
            f"  br i1 %stopped{n}, label %stop{n}, label %go{n}",
            f"stop{n}:",
            f"  %number{n} = add i64 %status{n}, {before}",
            f"  store i64 %number{n}, ptr %workspace, align 8",
            f"  %from{n} = getelementptr i64, ptr %area, i64 1",
            f"  %value{n} = load i64, ptr %from{n}, align 8",
            f"  %to{n} = getelementptr i64, ptr %workspace, i64 1",
            f"  store i64 %value{n}, ptr %to{n}, align 8",
            "  ret void",
            f"go{n}:",
        ]

    def _info(self, made: list[Generated]) -> KernelInfo:
        return KernelInfo(
            self.entry,
            params_of(self.func),
            self.high + max(int(g.info.workspace_bytes) for g in made),
            max(int(g.info.thread_bytes) for g in made),
            any(g.info.parallel for g in made),
            name=self.func.name,
            messages=tuple(self.messages),
            externs=tuple(dict.fromkeys(e for g in made for e in g.info.externs)),
        )

    def _linked(self, made: list[Generated]) -> str:
        """The entry and the pieces as one module; of these only their entries had names outside."""
        most = max(len(g.info.params) for g in made)
        declared = [f"declare void @{g.info.entry}(ptr, ptr, i32)" for g in made]
        text = "\n".join(
            [
                f'target triple = "{self.target.triple}"',
                *declared,
                "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
                f"define void @{self.entry}(ptr %args, ptr %workspace, i32 %threads) {{",
                "entry:",
                f"  %cells = alloca [{max(most, 1)} x ptr], align 8",
                *self.lines,
                "  ret void",
                "}",
            ]
        )
        return _one_module([text, *(g.ir for g in made)], [g.info.entry for g in made])


def _one_module(texts: list[str], inside: list[str]) -> str:
    """The modules as one; nothing outside sees the functions `inside` it."""
    import llvmlite.binding as llvm

    try:
        modules: list[Any] = [llvm.parse_assembly(text) for text in texts]
    except RuntimeError as e:
        raise BuildError(f"LLVM refuses the generated code: {e}") from e
    first, *others = modules
    for module in others:
        first.link_in(module)
    for name in inside:
        first.get_function(name).linkage = llvm.Linkage.internal
    return str(first)


def _buffers(block: Block) -> tuple[Buffer, ...]:
    found = opaque_of(block)
    assert found is not None
    return found.buffers


def _bytes(b: Buffer) -> int:
    count: Int = allocated(b.shape, b.align)
    return int(count) * dtypes.itemsize(b.dtype)

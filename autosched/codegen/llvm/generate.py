"""From a lowered program to the text of an LLVM module."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched.codegen.artifact import KernelInfo, Param, SizeParam
from autosched.codegen.formula import Extent
from autosched.codegen.llvm import permission
from autosched.codegen.llvm.blocks.find_tile import Tile
from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.function import FunctionWriter
from autosched.codegen.llvm.index import Indexer
from autosched.codegen.llvm.inplace import hosts
from autosched.codegen.llvm.outline import Outline
from autosched.codegen.llvm.parts import write_chain
from autosched.codegen.llvm.phases import chain_of
from autosched.codegen.llvm.runs import moved_by
from autosched.codegen.llvm.scratch import Scratch
from autosched.codegen.llvm.team import TeamWriter, iterations, most_threads
from autosched.errors import CodegenError
from autosched.lowering.lower import end_early
from autosched.target import Target
from autosched.tir.affine import Int
from autosched.tir.expr import Var, walk
from autosched.tir.nodes import Block, Buffer, For, Node, PrimFunc, Site, outputs_of, sites
from autosched.tir.opaque import refuse_opaque
from autosched.tir.printer import Names, format_expr
from autosched.tir.shapes import solve, unsolved_message
from autosched.tir.size import Size

_MULTIPLE = re.compile(r"mul nsw i64 \S+, (\d+)$")


@dataclass(frozen=True)
class Generated:
    """LLVM IR text and how to call what it defines."""

    ir: str
    info: KernelInfo


def generate(func: PrimFunc, target: Target, entry: str = "autosched_kernel") -> Generated:
    """LLVM IR of a lowered function (see `autosched.lowering.lower`).

    Raises CodegenError for what has no code here (thread bindings).
    """
    return ModuleWriter(as_written(func, target), target, entry).write()


def as_written(func: PrimFunc, target: Target) -> PrimFunc:
    """A lowered function as its code is written: whole vectors that hold nothing go. Idle lanes
    stay: reading a padded panel needs no mask."""
    return end_early(func, "vectorized", target.vector_bytes)


def check_halves(what: str, used: Collection[str], target: Target) -> None:
    """Raise CodegenError for float16 among the dtypes that `what` computes with, where the
    processor does not convert it: it is computed in float32, and no C runtime is sure to."""
    if "float16" in used and target.arch != "aarch64" and "f16c" not in target.features:
        raise CodegenError(
            f"{what} computes with float16, which {target.mcpu} cannot convert; "
            "use float32, or a CPU with the feature f16c"
        )


def _check_halves(block: Block, target: Target) -> None:
    used = {a.buffer.dtype for a in (*block.reads, *block.writes)}
    used |= {x.dtype for e in block.body for x in walk(e)}
    check_halves(f"block {block.name}", used, target)


class ModuleWriter:
    """Writes the module: the entry, the body and one function a parallel loop."""

    def __init__(
        self, func: PrimFunc, target: Target, entry: str, lines: Mapping[int, int] | None = None
    ) -> None:
        self.func, self.target, self.entry = func, target, entry
        self.lines = lines or {}
        """The line of the printed program at which a loop, its variable or a block (by id) begins;
        then instructions are marked by it (`listing`)."""
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.count = 0
        self.shared_scratch = Scratch()
        self.thread_scratch = Scratch()
        self.places: dict[int, Int] = {}
        """Where scratch buffers of symbolic sizes (by id) begin, behind the constant part."""
        sizes = func.sizes
        self.sizes = {v: f"%n{n}" for n, v in enumerate(sizes)}
        """Values of the symbolic sizes; every function has them as arguments of these names, and
        with them the bytes of scratch memory that all threads share and that each has."""
        self.sized = [*self.sizes.values(), "%shared", "%each"] if sizes else []
        self.names = Names()
        for v in sizes:
            self.names.of(v)
        self.calls_runtime = False
        self.tiles: dict[int, Tile | None] = {}
        """What register tile starts at a loop (by id)."""
        self.combining: dict[int, bool] = {}
        """Whether iterations of a vectorised loop (by id) may combine into one element."""
        self.hosts = hosts(func)
        """Where scratch buffers (by id) stand that take no memory of their own."""
        self.blocks: dict[int, Site] = {id(s.block): s for s in sites(func)}
        refuse_opaque(func, "this code")
        for site in self.blocks.values():
            for loop in site.loops:
                if loop.kind == "thread":
                    raise CodegenError(
                        f"loop {loop.var.name} is bound to {loop.thread}, which a CPU does not "
                        "have; build for a GPU target or leave the loop unbound"
                    )
            _check_halves(site.block, target)

    def next_number(self) -> int:
        """A number not used before in this module."""
        self.count += 1
        return self.count

    def place(self, in_parallel: bool, buffer: Buffer, size: Size) -> Int:
        """Where a scratch buffer of symbolic size begins, the same in every function."""
        if id(buffer) not in self.places:
            area = self.thread_scratch if in_parallel else self.shared_scratch
            self.places[id(buffer)] = area.take_symbolic(size)
        return self.places[id(buffer)]

    def writer(self, kind: type[FunctionWriter] = FunctionWriter, **options: Any) -> FunctionWriter:
        """The writer of a new function, which knows the sizes."""
        f = kind(self, self.target, self.blocks, **options)
        f.index.sizes = dict(self.sizes)
        for name in self.sized:
            f.b.name(name, 0)
        return f

    def multiple(self, f: FunctionWriter, name: str) -> int:
        """A number that divides the i64 value `name` (1 when nothing is known)."""
        found = _MULTIPLE.search(f.b.made_by.get(name, ""))
        return int(found.group(1)) if found else 1

    def write(self) -> Generated:
        """The whole module."""
        params = self.func.params
        streams = any(s.block.annotation("streaming", False) for s in self.blocks.values())
        self._body("body", streaming=False)
        if streams:
            self._body("stream", streaming=True)
        pointers = [f"%p{n}" for n in range(len(params))]
        lines = [
            f"define void @{self.entry}(ptr %args, ptr %workspace, i32 %threads) #0 {{",
            "entry:",
        ]
        if permission.SYMBOL in self.declarations:
            lines.append(f"  call void @{permission.SYMBOL}()")
        for n, name in enumerate(pointers):
            lines.append(f"  {name}.at = getelementptr inbounds ptr, ptr %args, i64 {n}")
            lines.append(f"  {name} = load ptr, ptr {name}.at, align 8")
        lines += self._entry_sizes(len(params))
        passed = ", ".join(
            [*(f"ptr {p}" for p in [*pointers, "%workspace"]), *(f"i64 {n}" for n in self.sized)]
        )
        if streams:
            # Stores past the caches need whole aligned vectors; NumPy aligns to 16 bytes only.
            written = {id(b) for b in outputs_of(self.func)}
            bits = "0"
            for name, b in zip(pointers, params, strict=True):
                if id(b) in written:
                    lines.append(f"  {name}.int = ptrtoint ptr {name} to i64")
                    lines.append(f"  {name}.or = or i64 {bits}, {name}.int")
                    bits = f"{name}.or"
            lines += [
                f"  %low = and i64 {bits}, {self.target.vector_bytes - 1}",
                "  %aligned = icmp eq i64 %low, 0",
                "  br i1 %aligned, label %fast, label %slow",
                "fast:",
                f"  call void @{self.entry}.stream({passed}, i32 %threads)",
                "  ret void",
                "slow:",
            ]
        lines += [f"  call void @{self.entry}.body({passed}, i32 %threads)", "  ret void", "}"]
        info = KernelInfo(
            self.entry,
            self._params(),
            self._extent(self.shared_scratch.total),
            self._extent(self.thread_scratch.total),
            self.calls_runtime,
            self._sizes(),
            self.func.name,
        )
        text = "\n\n".join([*self.functions, "\n".join(lines)])
        for area, mark in (
            (self.shared_scratch, "@@SHARED@@"),
            (self.thread_scratch, "@@THREAD@@"),
        ):
            text = text.replace(mark, str(area.high))
        head = f'target triple = "{self.target.triple}"\n'
        tail = "\n".join([*self.declarations.values(), self._attributes(), "!0 = !{i32 1}"])
        return Generated(f"{head}\n{text}\n\n{tail}\n", info)

    def _attributes(self) -> str:
        bits = self.target.vector_bytes * 8
        widths = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        return f"attributes #0 = {{ nounwind {widths} }}"

    def _params(self) -> tuple[Param, ...]:
        written = {id(b) for b in outputs_of(self.func)}
        return tuple(
            Param(b.name, tuple(map(self._extent, b.shape)), b.dtype, id(b) in written)
            for b in self.func.params
        )

    def _extent(self, n: Int) -> Extent:
        """A number of the kernel's description: an int, or a formula of the sizes' names."""
        return format_expr(n.to_expr(), self.names) if isinstance(n, Size) else int(n)

    def _sizes(self) -> tuple[SizeParam, ...]:
        """How the sizes follow from the shapes of the arguments."""
        solved, unsolved = solve(self.func)
        for v in unsolved:
            raise CodegenError(unsolved_message(self.func, v))
        return tuple(
            SizeParam(self.names.of(s.var), s.param, s.dim, s.scale, self._extent(s.offset))
            for s in solved
        )

    def _entry_sizes(self, first: int) -> list[str]:
        """Lines of the entry that load the sizes, from cell `first` of the arguments on, in the
        order of `_sizes`, and compute the bytes of scratch memory."""
        if not self.sizes:
            return []
        b = Builder(self.declarations)
        index = Indexer(b)
        index.sizes = dict(self.sizes)
        for n, s in enumerate(solve(self.func)[0]):
            name = b.name(self.sizes[s.var], 0)
            b.do(f"{name}.at = getelementptr inbounds i64, ptr %args, i64 {first + n}")
            b.do(f"{name} = load i64, ptr {name}.at, align 8")
        for name, area in (("%shared", self.shared_scratch), ("%each", self.thread_scratch)):
            b.do(f"{name} = add nsw i64 {index.number(area.total)}, 0")
        return b.text().splitlines()

    def _body(self, suffix: str, streaming: bool) -> None:
        f = self.writer(streaming=streaming)
        arguments = []
        for n, b in enumerate(self.func.params):
            f.memory.pointers[id(b)] = f.b.name(f"%p{n}", 0)
            arguments.append(f"ptr noalias %p{n}")
        for name in ("%workspace", "%threads"):
            f.b.name(name, 0)
        f.scratch(self.func.allocs, self.func.body)
        arguments += ["ptr noalias %workspace", *(f"i64 {n}" for n in self.sized), "i32 %threads"]
        self.define(f"{self.entry}.{suffix}", arguments, f)

    def define(self, name: str, arguments: list[str], f: FunctionWriter) -> None:
        """Add a function that `f` has written."""
        entry = "\n".join(["entry:", *f.control.slots])
        self.functions.append(
            f"define internal void @{name}({', '.join(arguments)}) #0 {{\n"
            f"{entry}\n{f.b.text()}\n  ret void\n}}"
        )

    def parallel(self, outside: FunctionWriter, loop: For) -> None:
        """A chain of parallel loops: one function over the flat iteration range, called by the
        runtime."""
        self.declarations["autosched_parallel_for"] = (
            "declare void @autosched_parallel_for(ptr, ptr, i64, i64, i32)"
        )
        total = outside.index.number(iterations(chain_of(loop)))
        chunk = int(loop.annotation("chunk", 0))
        self._iterations(outside, loop).call_on_threads(
            "autosched_parallel_for", f"i64 {total}, i64 {chunk}, i32 %threads"
        )

    def team(self, outside: FunctionWriter, loop: For) -> None:
        """A serial loop around parallel ones: one function that all threads run together."""
        self.declarations["autosched_parallel_team"] = (
            "declare void @autosched_parallel_team(ptr, ptr, i32)"
        )
        self.declarations["autosched_parallel_barrier"] = (
            "declare void @autosched_parallel_barrier(i64, i64)"
        )
        self.declarations["llvm.smin.i32"] = "declare i32 @llvm.smin.i32(i32, i32)"
        part = Outline(self, outside, (loop,), TeamWriter, shared=True)
        part.inside.node(loop)
        part.define()
        limit = most_threads(loop)
        most = "%threads"
        if limit is not None:
            most = outside.b.op(f"call i32 @llvm.smin.i32(i32 %threads, i32 {limit})")
        part.call_on_threads("autosched_parallel_team", f"i32 {most}")

    def share(self, outside: FunctionWriter, loop: For, begin: str, end: str) -> None:
        """One thread's iterations of a chain of parallel loops, in a team."""
        self._iterations(outside, loop).call(begin, end)

    def alone(self, outside: FunctionWriter, nodes: Sequence[Node]) -> None:
        """What one thread of a team does while the others wait."""
        part = Outline(self, outside, nodes)
        part.inside.scratch((), nodes)
        part.define()
        part.call("0", "0")

    def _iterations(self, outside: FunctionWriter, loop: For) -> Outline:
        """The function over a range of iterations of a chain of parallel loops."""
        part, chain, flat = Outline(self, outside, (loop,)), chain_of(loop), Var("flat")

        def body() -> None:
            self._decode(part.inside, flat, chain)
            part.inside.body(chain[-1])

        with part.inside.b.at(self.lines.get(id(loop))):
            if moved_by(loop) is None:
                part.inside.loop(flat, "%begin", "%end", body)
            else:
                write_chain(part.inside, chain, "%begin", "%end")
        part.define()
        return part

    def _decode(self, f: FunctionWriter, flat: Var, chain: Sequence[For]) -> None:
        """The counters of fused loops from the flat one."""
        value = f.index.env[flat]
        for loop in reversed(chain):
            n = f.index.number(loop.extent)
            if loop is chain[0]:
                f.index.env[loop.var] = value
            elif isinstance(value, int) and isinstance(n, int):
                f.index.env[loop.var] = value % n
                value //= n
            else:
                f.index.env[loop.var] = f.b.op(f"urem i64 {value}, {n}")
                value = f.b.op(f"udiv i64 {value}, {n}")

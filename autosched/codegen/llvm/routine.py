"""LLVM IR of routines: their statements as they stand, with a test before each access that is not
proved to be in bounds.

The first two words of the workspace say what stopped a call: the number of a message of
`KernelInfo.messages`, from 1, and the index that was outside. A parallel loop whose iterations are
apart is a function of its own, which threads call; the first of them that stops writes the words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from autosched.codegen.artifact import KernelInfo, Param, SizeParam
from autosched.codegen.formula import Extent
from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.control import Control
from autosched.codegen.llvm.generate import Generated, check_halves
from autosched.codegen.llvm.index import Indexer
from autosched.codegen.llvm.loop_notes import vectors
from autosched.codegen.llvm.memory import ALWAYS, Guard
from autosched.codegen.llvm.routine_parallel import outlined, sized
from autosched.codegen.llvm.scalar import Scalars
from autosched.codegen.llvm.scratch import Scratch
from autosched.codegen.llvm.types import Value, literal, memory_type, type_of
from autosched.errors import CodegenError
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Int
from autosched.tir.expr import Call, Const, Expr, Var, walk
from autosched.tir.nodes import Buffer, Element, ExternCall, Pointer, allocated, strides
from autosched.tir.parallel_loops import loops_apart
from autosched.tir.printer import Names, format_expr
from autosched.tir.routine import (
    MOST_ITERATIONS,
    Alloc,
    Assert,
    Evaluate,
    If,
    Let,
    Loop,
    Routine,
    Statement,
    Store,
    While,
    externs,
    statements_of,
    values_of,
    written,
)
from autosched.tir.run_routine import endless, outside
from autosched.tir.shapes import solve, unsolved_message
from autosched.tir.size import Size
from autosched.tir.verify_routine import unproved, verify_routine

PARALLEL = "autosched_parallel_for"
STATUS = 64
"""Bytes of the workspace before the buffers."""


def generate_routine(func: Routine, target: Target, entry: str = "autosched_kernel") -> Generated:
    """LLVM IR of a routine. Raises VerifyError, and CodegenError for what has no code here."""
    return _Writer(verify_routine(func), target, entry).write()


SHORT = 4
"""Iterations that fill no vector."""


class _Locals:
    """What variables of a routine mean: `scalar.Context`. Elements are no slots of a block."""

    def __init__(self, env: dict[int, Value]) -> None:
        self.env = env

    def slot(self, n: int, guard: Guard) -> Value:
        raise CodegenError(f"slot {n} of a block in a routine has no code")

    def slot_is_guarded(self, n: int) -> bool:
        return False

    def variable(self, var: Var) -> Value:
        return self.env[id(var)]

    def form(self, var: Var) -> None:
        return None

    def constant(self, e: Expr) -> None:
        return None


class _Values(Scalars):
    """Evaluates expressions with elements in them."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__(writer.b, Indexer(writer.b), writer.target, _Locals(writer.env))
        self.writer = writer

    def evaluate(self, e: Expr, guard: Guard = ALWAYS) -> Value:
        if isinstance(e, Element):
            return self.writer.load(e)
        if isinstance(e, ExternCall):
            return self.writer.call(e)
        return super().evaluate(e, guard)

    def _if_then_else(self, e: Call, guard: Guard) -> Value:
        """Of sides that read memory only the one that is taken is evaluated."""
        condition = self.evaluate(e.args[0])
        sides = e.args[1:]
        effects = (Element, ExternCall)
        if not any(isinstance(x, effects) for side in sides for x in walk(side)):
            return self.apply("select", [condition, *map(self.evaluate, sides)], e.dtype)
        slot = self.writer.slot(e.dtype)
        t = memory_type(e.dtype)

        def put(side: Expr) -> Callable[[], None]:
            def body() -> None:
                ref = self.writer.in_memory(self.evaluate(side))
                self.b.do(f"store {t} {ref}, ptr {slot}")

            return body

        self.writer.control.either(condition.ref, put(sides[0]), put(sides[1]))
        return self.writer.from_memory(self.b.inst(f"load {t}, ptr {slot}"), e.dtype)


class _Writer:
    """Writes one routine."""

    def __init__(self, func: Routine, target: Target, entry: str) -> None:
        self.func, self.target, self.entry = func, target, entry
        self.declarations: dict[str, str] = {}
        self.b = Builder(self.declarations)
        self.control = Control(self.b, partial(next, itertools.count(1)))
        self.messages: list[str] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self.scratch, self.thread_scratch = Scratch(), Scratch()
        self.space = "%workspace"
        """Where buffers of statements begin."""
        self.functions: list[str] = []
        """Those of parallel loops."""
        self.stops = 0
        """Places at which the call may stop."""
        self.apart = loops_apart(func)
        self.env: dict[int, Value] = {}
        self.pointers: dict[int, str] = {}
        self.tested = unproved(func)
        self.names = Names()
        self.values = _Values(self)
        self._check_halves()

    def _check_halves(self) -> None:
        found = {b.dtype for b in self.func.params}
        for s in statements_of(self.func.body):
            found |= {x.dtype for e in values_of(s) for x in walk(e)}
            found |= {s.buffer.dtype} if isinstance(s, Alloc) else set()
        check_halves(f"routine {self.func.name}", found, self.target)

    # -- the module

    def write(self) -> Generated:
        """The whole module."""
        params = self.func.params
        sizes = solve(self.func)
        for v in sizes[1]:
            raise CodegenError(unsolved_message(self.func, v))
        arguments = [f"ptr noalias %p{n}" for n in range(len(params))]
        arguments += ["ptr noalias %workspace", *(f"i64 %n{n}" for n in range(len(sizes[0])))]
        arguments.append("i32 %threads")
        for n, b in enumerate(params):
            self.pointers[id(b)] = self.b.name(f"%p{n}", 0)
        self.b.name("%workspace", 0)
        for n, s in enumerate(sizes[0]):
            self.env[id(s.var)] = Value(self.b.name(f"%n{n}", 0), dtypes.INDEX)
            self.names.of(s.var)
        self.scratch.take(STATUS)
        self.b.do("store i64 0, ptr %workspace, align 8")
        self.body(self.func.body)
        text = "\n".join(["entry:", *self.control.slots, self.b.text()])
        body = (
            f"define internal void @{self.entry}.body({', '.join(arguments)}) #0 {{\n"
            f"{text}\n  ret void\n}}"
        )
        info = KernelInfo(
            self.entry,
            self._params(),
            self.scratch.high,
            self.thread_scratch.high,
            bool(self.functions),
            sizes=tuple(
                SizeParam(self.names.of(s.var), s.param, s.dim, s.scale, self._extent(s.offset))
                for s in sizes[0]
            ),
            name=self.func.name,
            messages=tuple(self.messages),
            externs=externs(self.func),
        )
        bits = self.target.vector_bytes * 8
        widths = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        parts = [
            f'target triple = "{self.target.triple}"',
            body,
            *sized(self.functions, self.scratch.high, self.thread_scratch.high),
            self._entry(len(params), len(sizes[0])),
            *self.declarations.values(),
            f"attributes #0 = {{ nounwind {widths} }}",
        ]
        return Generated("\n\n".join(parts) + "\n", info)

    def _entry(self, params: int, sizes: int) -> str:
        lines = [f"define void @{self.entry}(ptr %args, ptr %workspace, i32 %threads) #0 {{"]
        for n in range(params + sizes):
            kind = "ptr" if n < params else "i64"
            lines.append(f"  %a{n}.at = getelementptr inbounds ptr, ptr %args, i64 {n}")
            lines.append(f"  %a{n} = load {kind}, ptr %a{n}.at, align 8")
        passed = [f"ptr %a{n}" for n in range(params)]
        passed += ["ptr %workspace", *(f"i64 %a{n}" for n in range(params, params + sizes))]
        passed.append("i32 %threads")
        lines += [f"  call void @{self.entry}.body({', '.join(passed)})", "  ret void", "}"]
        return "\n".join(lines)

    def _params(self) -> tuple[Param, ...]:
        stored = written(self.func.body)
        return tuple(
            Param(b.name, tuple(map(self._extent, b.shape)), b.dtype, id(b) in stored)
            for b in self.func.params
        )

    def _extent(self, n: Int) -> Extent:
        return format_expr(n.to_expr(), self.names) if isinstance(n, Size) else int(n)

    # -- structure

    def slot(self, dtype: str) -> str:
        """A stack slot for one value."""
        return self.control.slot(memory_type(dtype))

    def stop(self, condition: str, message: str, value: str, key: tuple[int, int]) -> None:
        """Leave the routine if the condition holds, with a message about a value."""
        if key not in self.numbers:
            self.messages.append(message)
            self.numbers[key] = len(self.messages)
        self.stops += 1
        n, b = self.control.number(), self.b
        b.do(f"br i1 {condition}, label %stop{n}, label %go{n}")
        self.control.start(f"stop{n}")
        b.do(
            f"%old{n} = cmpxchg ptr %workspace, i64 0, i64 {self.numbers[key]} "
            "monotonic monotonic, align 8"
        )
        b.do(f"%first{n} = extractvalue {{ i64, i1 }} %old{n}, 1")
        b.do(f"br i1 %first{n}, label %say{n}, label %leave{n}")
        self.control.start(f"say{n}")
        b.do(f"%word{n} = getelementptr inbounds i64, ptr %workspace, i64 1")
        b.do(f"store i64 {value}, ptr %word{n}, align 8")
        b.do(f"br label %leave{n}")
        self.control.start(f"leave{n}")
        b.do("ret void")
        self.control.start(f"go{n}")

    # -- statements

    def body(self, body: Sequence[Statement]) -> None:
        """Statements in order; the memory of their buffers is free after them."""
        top = self.scratch.top
        for s in body:
            self.statement(s)
        self.scratch.top = top

    def statement(self, s: Statement) -> None:
        """One statement."""
        if isinstance(s, Store):
            ref = self.in_memory(self.values.evaluate(s.value))
            t = memory_type(s.target.dtype)
            self.b.do(f"store {t} {ref}, ptr {self.address(s.target)}")
        elif isinstance(s, Let):
            self.env[id(s.var)] = self.values.evaluate(s.value)
        elif isinstance(s, Alloc):
            self.alloc(s.buffer)
        elif isinstance(s, Evaluate):
            self.values.evaluate(s.value)
        elif isinstance(s, Assert):
            wrong = self.b.op(f"xor i1 {self.values.evaluate(s.condition).ref}, true")
            text = s.message.replace("{", "{{").replace("}", "}}")
            self.stop(wrong, text, "0", (id(s), 0))
        elif isinstance(s, Loop) and id(s) in self.apart and self.space == "%workspace":
            self.parallel(s)
        elif isinstance(s, Loop):
            self.loop(s)
        elif isinstance(s, While):
            self.while_loop(s)
        else:
            self.choice(s)

    def choice(self, s: If) -> None:
        """`if` and `else`."""
        condition = self.values.evaluate(s.condition).ref
        if s.no:
            self.control.either(condition, lambda: self.body(s.yes), lambda: self.body(s.no))
        else:
            self.control.branch(condition, lambda: self.body(s.yes))

    def alloc(self, buffer: Buffer) -> None:
        """A buffer of zeros in the workspace."""
        count = int(allocated(buffer.shape, buffer.align)) * dtypes.itemsize(buffer.dtype)
        at = self.scratch.take(count)
        pointer = self.b.op(f"getelementptr inbounds i8, ptr {self.space}, i64 {at}")
        self.pointers[id(buffer)] = pointer
        name = "llvm.memset.p0.i64"
        self.b.declare(name, f"void @{name}(ptr, i8, i64, i1)")
        self.b.do(f"call void @{name}(ptr align 64 {pointer}, i8 0, i64 {count}, i1 false)")

    def loop(self, s: Loop) -> None:
        """A loop over numbers."""

        def body(counter: str) -> None:
            self.env[id(s.var)] = Value(counter, dtypes.INDEX)
            self.body(s.body)

        begin, end = (self.values.evaluate(e).ref for e in (s.begin, s.end))
        note = vectors(self.declarations) if s.kind == "vectorized" and not _is_short(s) else ""
        self.control.counted(begin, end, body, step=s.step, note=note)

    def parallel(self, s: Loop) -> None:
        """A loop whose iterations threads share."""
        begin, end = (self.values.evaluate(e).ref for e in (s.begin, s.end))
        before, b = self.stops, self.b
        name, values = outlined(self, s, begin)
        context = self.control.slot(f"[{len(values)} x i64]", 8)
        for k, (kind, ref) in enumerate(values):
            cell = b.op(f"getelementptr inbounds i64, ptr {context}, i64 {k}")
            b.do(f"store {kind} {ref}, ptr {cell}, align 8")
        total = b.larger(b.op(f"sub i64 {end}, {begin}"), 0)
        b.declare(PARALLEL, f"void @{PARALLEL}(ptr, ptr, i64, i64, i32)")
        b.do(f"call void @{PARALLEL}(ptr @{name}, ptr {context}, i64 {total}, i64 0, i32 %threads)")
        if self.stops > before:
            n, status = self.control.number(), b.inst("load i64, ptr %workspace, align 8")
            b.do(f"br i1 {b.op(f'icmp ne i64 {status}, 0')}, label %stop{n}, label %go{n}")
            self.control.start(f"stop{n}")
            b.do("ret void")
            self.control.start(f"go{n}")

    def while_loop(self, s: While) -> None:
        """A loop that a condition ends."""

        def body(counter: str) -> None:
            beyond = self.b.op(f"icmp uge i64 {counter}, {MOST_ITERATIONS}")
            self.stop(beyond, endless(), counter, (id(s), 0))
            self.body(s.body)

        self.control.repeated(lambda: self.values.evaluate(s.condition).ref, body)

    # -- elements

    def load(self, e: Element) -> Value:
        """The value of an element."""
        pointer = self.address(e)
        size = dtypes.itemsize(e.dtype)
        ref = self.b.inst(f"load {memory_type(e.dtype)}, ptr {pointer}, align {size}")
        return self.from_memory(ref, e.dtype)

    def call(self, e: ExternCall) -> Value:
        """The value of a call of a C function, which stays where it is."""
        args = []
        for x in e.indices:
            if isinstance(x, Pointer):
                args.append(f"ptr {self.pointers[id(x.buffer)]}")
            else:
                value = self.values.evaluate(x)
                args.append(f"{value.type} {_extended(value.dtype)}{value.ref}")
        function = e.function
        kinds = [
            "ptr" if k.endswith("*") else f"{type_of(k)} {_extended(k)}".strip()
            for k in function.args
        ]
        result = (
            f"{_extended(function.result)}{type_of(function.result)}" if function.result else "void"
        )
        self.b.declare(function.name, f"{result} @{function.name}({', '.join(kinds)})")
        text = f"call {result} @{function.name}({', '.join(args)})"
        if not function.result:
            self.b.do(text)
            return Value("0", e.dtype)
        return Value(self.b.inst(text), e.dtype)

    def from_memory(self, ref: str, dtype: str) -> Value:
        """What has been loaded, as a value."""
        if dtype == "bool":
            ref = self.b.op(f"icmp ne i8 {ref}, 0")
        return Value(ref, dtype)

    def in_memory(self, value: Value) -> str:
        """A value as it is stored."""
        if value.dtype != "bool":
            return value.ref
        if value.ref in ("true", "false"):
            return literal(value.ref == "true", "uint8")
        return self.b.op(f"zext i1 {value.ref} to i8")

    def address(self, e: Element) -> str:
        """Where an element is; tested where that is not proved."""
        b = self.b
        indices = [self.values.evaluate(i).ref for i in e.indices]
        for dim in self.tested.get(id(e), ()):
            extent = self.number(e.buffer.shape[dim])
            wrong = b.op(f"icmp uge i64 {indices[dim]}, {extent}")
            self.stop(wrong, outside(e, dim, "{}"), indices[dim], (id(e), dim))
        total = "0"
        if any(isinstance(n, Size) for n in e.buffer.shape):
            for ref, n in zip(indices, e.buffer.shape, strict=True):
                total = b.op(f"mul i64 {total}, {self.number(n)}")
                total = b.op(f"add i64 {total}, {ref}")
        else:
            for ref, step in zip(indices, strides(e.buffer.shape, e.buffer.align), strict=True):
                part = b.op(f"mul i64 {ref}, {step}") if step != 1 else ref
                total = b.op(f"add i64 {total}, {part}") if total != "0" else part
        t, base = memory_type(e.dtype), self.pointers[id(e.buffer)]
        return b.op(f"getelementptr {t}, ptr {base}, i64 {total}")

    def number(self, n: Int) -> str:
        """An extent as an i64."""
        return self.values.evaluate(n.to_expr()).ref if isinstance(n, Size) else str(int(n))


def _extended(dtype: str) -> str:
    """How C passes an integer that is narrower than an int."""
    if dtype not in ("int8", "int16", "uint8", "uint16"):
        return ""
    return "signext " if dtype in dtypes.SIGNED else "zeroext "


def _is_short(s: Loop) -> bool:
    """Whether a loop has too few iterations for a vector. LLVM unrolls it, and complains on
    standard error where it is told to make vectors of it."""
    ends = [e.value for e in (s.begin, s.end) if isinstance(e, Const)]
    return len(ends) == 2 and int(ends[1]) - int(ends[0]) < SHORT * s.step

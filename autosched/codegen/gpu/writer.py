"""`Writer`: a kernel's text as it grows: names, lines, loops, loads and stores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from autosched.codegen.c_names import MACRO
from autosched.codegen.gpu.dialect import Dialect
from autosched.codegen.gpu.double import AHEAD
from autosched.codegen.gpu.exprs import Exprs, Forms
from autosched.codegen.gpu.helpers import Helpers
from autosched.codegen.gpu.kernel import Kernel, swizzled_in
from autosched.codegen.gpu.reduce import chain_at
from autosched.tir import dtypes
from autosched.tir.affine import Int, same_int
from autosched.tir.expr import Call, Var, walk
from autosched.tir.nodes import Access, Block, Buffer, For, Node, Predicate, allocated
from autosched.tir.reducers import known_name

_WORDS = """
auto break case char const continue default do double else enum extern float for goto half if inline
int long register restrict return short signed sizeof static struct switch typedef union unsigned
void volatile while bool true false uchar ushort uint ulong size_t kernel global local constant
private barrier min max abs exp log sin cos floor ceil rint round sqrt rsqrt tanh erf fma pow fmod
fabs select clamp step sign mix dot cross length bx by bz tx ty tz class template this new delete
operator namespace asm read_only write_only y0 y1 yn j0 j1 jn image event sampler not and or xor
"""
_RESERVED = frozenset(_WORDS.split())


class Writer:
    """Lines of one kernel. `scratch` are declarations that go before them."""

    def __init__(self, kernel: Kernel, dialect: Dialect, helpers: Helpers, warp: int) -> None:
        self.kernel, self.dialect, self.helpers, self.warp = kernel, dialect, helpers, warp
        self.lines: list[str] = []
        self.depth = 1
        self.taken: set[str] = {*_RESERVED, *dialect.asynchronous, *dialect.reserved}
        self.vars: dict[Var, str] = {}
        self.extents: dict[Var, Int] = {}
        self.buffers: dict[Buffer, str] = {}
        self.active: list[Predicate] = []
        self.forms = Forms(self.vars, self.extents, helpers)
        self.scratch: list[str] = []
        self.settled: frozenset[Buffer] = frozenset()
        """Shared memory that all threads see as it will stay."""
        self.kept: dict[str, str] = {}
        """Names of values of it, by the text of the element."""
        self.steps_wait = False
        """Whether there is a barrier in each step of the loop around."""
        self.fetching = False
        """Whether what is written now is for the next step of a loop."""
        self.go_on = False
        """Whether products of warpgroups are waited for at the end of the nodes around."""
        self.ends = False
        """Whether what is written now is for a step within which a reduction ends."""

    def index_type(self) -> str:
        """int, or a type of 64 bits where elements are numbered beyond it."""
        most = max((int(allocated(b.shape, b.align)) for b in self.kernel.params), default=0)
        return "int" if most <= 1 << 31 else self.dialect.value_type("int64")

    def buffer(self, b: Buffer) -> str:
        if b not in self.buffers:
            self.buffers[b] = self.fresh(b.name)
        return self.buffers[b]

    def fresh(self, name: str) -> str:
        """A C identifier like `name` that nothing else has."""
        base = re.sub(r"\W", "_", name) or "v"
        if base[0].isdigit() or base[0] == "_" or MACRO.fullmatch(base):
            base = f"v{base}"
        out, n = base, 0
        while out in self.taken:
            n += 1
            out = f"{base}_{n}"
        self.taken.add(out)
        return out

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Braces after `head`; nothing where that is empty."""
        if not head:
            yield
            return
        self.emit(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.emit("}")

    def when(self, predicates: Sequence[Predicate]) -> str:
        """The head of a branch taken where `predicates` hold; empty without any."""
        return f"if ({self.forms.conditions(predicates)})" if predicates else ""

    def waits(self, node: Node) -> bool:
        """Whether threads wait for each other in `node`; not whether they do before it."""
        chain = chain_at(node, self.kernel.axes)
        if chain is not None:
            return bool(chain.lanes)
        return isinstance(node, For) and self.waits_between(node)

    def waits_between(self, loop: For) -> bool:
        """Whether there are barriers in the body of a loop."""
        return any(id(x) in self.kernel.barriers or self.waits(x) for x in loop.body)

    def is_active(self, p: Predicate) -> bool:
        return any(same_predicate(p, q) for q in self.active)

    def left(self, predicates: Sequence[Predicate]) -> list[Predicate]:
        """Those that nothing around has asked."""
        return [p for p in predicates if not self.is_active(p)]

    @contextmanager
    def loops(self, loops: Sequence[For], waits: bool = True) -> Iterator[None]:
        """`for` statements, one inside the other. `waits` is False where threads wait for each
        other only after them."""
        kind = self.index_type()
        for x in loops:
            self.vars[x.var], self.extents[x.var] = self.fresh(x.var.name), x.extent
            v = self.vars[x.var]
            # PoCL's work-item loops break where a loop with barriers is unrolled, or one that
            # fetches ahead under a condition.
            breaks = (waits and self.waits_between(x)) or (
                x.annotation(AHEAD) and not self.dialect.shuffle
            )
            if x.kind in ("unrolled", "vectorized") and not breaks:
                self.emit("#pragma unroll")
            self.emit(f"for ({kind} {v} = 0; {v} < {x.extent}; ++{v}) {{")
            self.depth += 1
        yield
        for x in reversed(loops):
            self.depth -= 1
            self.emit("}")
            self.taken.discard(self.vars[x.var])

    def exprs(self, block: Block, names: dict[Var, str] | None = None) -> Exprs:
        out = Exprs(block, self.dialect, self.forms, lambda a: self.load(out, a), names)
        return out

    def load(self, exprs: Exprs, a: Access) -> str:
        text = self.element(exprs, a)
        text = self.kept.get(text, text)
        if a.buffer.dtype == "float16":
            return f"{self.helpers.half('f16_load')}({text})"
        return text

    def element(self, exprs: Exprs, a: Access) -> str:
        if a.buffer in self.swizzled:
            turn = self.helpers.warp(f"swizzled_{dtypes.itemsize(a.buffer.dtype)}")
            return f"{self.buffer(a.buffer)}[{turn}({exprs.offset(a)})]"
        return self.plain_element(exprs, a)

    def plain_element(self, exprs: Exprs, a: Access) -> str:
        """Where an element is, in an array that is not swizzled."""
        return f"{self.buffer(a.buffer)}[{exprs.offset(a)}]"

    @cached_property
    def swizzled(self) -> frozenset[Buffer]:
        """Shared arrays that warpgroups multiply: of each row of 128 bytes the pieces of 16 are in
        another order, their number xor that of the row, modulo 8. All accesses have it so."""
        return swizzled_in(self.kernel)

    def vector(self, b: Buffer, width: int, constant: bool) -> tuple[str, str]:
        """The vector type of a buffer's elements, and a pointer to it."""
        stored = self.dialect.stored_type(b.dtype)
        kind = f"{self.dialect.vector_name(stored)}{width}"
        if width not in self.dialect.lanes(stored):
            kind = self.dialect.copied_vector
        memory = b.scope if b.scope in ("shared", "local") else "global"
        const = "const " if constant else ""
        return kind, self.dialect.vector_pointer(const + kind, memory)

    def store(self, exprs: Exprs, a: Access, value: str) -> None:
        if a.buffer.dtype == "float16":
            value = f"{self.helpers.half('f16_store')}({value})"
        self.emit(f"{self.element(exprs, a)} = {value};")

    def assign(self, block: Block, exprs: Exprs, values: Sequence[str]) -> None:
        """Store `values`, all of which are known before the first is stored."""
        if len(values) > 1:
            names = []
            for a, value in zip(block.writes, values, strict=True):
                names.append(self.fresh("value"))
                kind = self.dialect.value_type(a.buffer.dtype)
                self.emit(f"const {kind} {names[-1]} = {value};")
            values = names
        for a, value in zip(block.writes, values, strict=True):
            self.store(exprs, a, value)

    def combined(self, block: Block, exprs: Exprs, old: Sequence[str]) -> list[str]:
        """What `old` becomes with the values of the block's body; declares what is used twice."""
        reducer = block.reducer
        assert reducer is not None
        if known_name(reducer, commuted=True) == "sum" and block.body[0].dtype in (
            "float32",
            "float64",
        ):
            product = block.body[0]
            if isinstance(product, Call) and product.op == "mul":
                a, b = (exprs.text(x)[0] for x in product.args)
                return [f"{self.dialect.math('fma', product.dtype)}({a}, {b}, {old[0]})"]
        return self.combine(block, old, [exprs.text(e)[0] for e in block.body])

    def combine(self, block: Block, old: Sequence[str], new: Sequence[str]) -> list[str]:
        """The reducer on two tuples of texts."""
        reducer = block.reducer
        assert reducer is not None
        names: dict[Var, str] = {}
        for variables, texts in ((reducer.lhs, old), (reducer.rhs, new)):
            for v, text in zip(variables, texts, strict=True):
                if (
                    sum(e is v for c in reducer.combine for e in walk(c)) > 1
                    and not text.isidentifier()
                ):
                    name = self.fresh(v.name)
                    self.emit(f"const {self.dialect.value_type(v.dtype)} {name} = {text};")
                    text = name
                names[v] = text if re.fullmatch(r"\w+(\[[^\]]*\])?", text) else f"({text})"
        exprs = self.exprs(block, names)
        return [exprs.text(c)[0] for c in reducer.combine]

    def update(self, accs: Sequence[str], values: Sequence[str], block: Block) -> None:
        if len(accs) == 1:
            self.emit(f"{accs[0]} = {values[0]};")
            return
        names = []
        for a, value in zip(block.writes, values, strict=True):
            names.append(self.fresh("value"))
            self.emit(f"const {self.dialect.value_type(a.buffer.dtype)} {names[-1]} = {value};")
        for acc, name in zip(accs, names, strict=True):
            self.emit(f"{acc} = {name};")


def same_predicate(p: Predicate, q: Predicate) -> bool:
    """Whether two predicates are the same condition."""
    return p is q or (same_int(p.bound, q.bound) and p.form.same(q.form))

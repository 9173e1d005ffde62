"""Canonical text of a program and the keys made from it.

The text leaves out what a program does not mean: names of the function, of blocks, buffers and
variables, and the order in which independent top-level nests stand. The order and the dtypes and
shapes of parameters, attributes, annotations and everything computed stay in. Two programs with
one canonical text are the same program; the text has no other use, and nothing parses it.

Nests are put in the order of a depth-first walk from the outputs (in parameter order) through what
each nest reads (in the order of its accesses), producers first. So the order depends on the
computation alone, and a stored trace may name a block by its place in it (`block_index`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from autosched.errors import VerifyError
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.forms import tidy
from autosched.tir.from_expr import from_expr
from autosched.tir.nodes import (
    Access,
    Annotations,
    Block,
    Buffer,
    Index,
    Node,
    PrimFunc,
    Site,
    outputs_of,
    sites,
)
from autosched.tir.opaque import Opaque, Whole
from autosched.tir.operations import CONVERSIONS
from autosched.tir.routine import numbered_text
from autosched.tir.size import Quotient, Size
from autosched.tir.size_atoms import SizeVar

VERSION = "1"
"""Prefix of all keys. It changes with the form of the text, and old keys then name nothing."""
KEY_DIGITS = 24
"""96 bits: a chance of 1e-15 that two of a million workloads share a key."""

_KIND = {"spatial": "S", "reduce": "R", "sequential": "Q"}


def canonical_text(func: PrimFunc) -> str:
    """The text that all programs share which are `func` but for names and the order of nests."""
    return _Text(func, canonical_order(func)).text()


def workload_key(func: PrimFunc) -> str:
    """The key of a workload: `1-` and 24 hexadecimal digits, equal for equal programs."""
    return f"{VERSION}-{_digest(canonical_text(func))}"


def program_hash(func: PrimFunc) -> str:
    """Hash of one scheduled program: names are left out, the order of its parts is kept."""
    return f"{VERSION}-{_digest(_Text(func, func.body).text())}"


def of_this_version(name: str) -> bool:
    """Whether a key or a hash is one that this version makes; another's can be compared with none.
    The empty one, of what was never made, is."""
    return not name or name.startswith(f"{VERSION}-")


def block_order(func: PrimFunc) -> tuple[str, ...]:
    """Names of the blocks by canonical index."""
    return tuple(s.block.name for node in canonical_order(func) for s in sites(node))


def block_index(func: PrimFunc) -> dict[str, int]:
    """Canonical index of each block, by name.

    Raises VerifyError if two blocks bear one name.
    """
    order = block_order(func)
    out = {name: n for n, name in enumerate(order)}
    if len(out) != len(order):
        twice = sorted({name for name in order if order.count(name) > 1})
        raise VerifyError(
            f"{func.name} has several blocks named {', '.join(twice)}; names must be unique"
        )
    return out


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def canonical_order(func: PrimFunc) -> tuple[Node, ...]:
    """The top-level nests in canonical order, which every dependence between them respects."""
    return func.body if len(func.body) < 2 else _Order(func).nests()


class _Nest:
    """A top-level node with the buffers it touches, in order of first access."""

    def __init__(self, place: int, node: Node) -> None:
        self.place = place
        self.node = node
        blocks = [s.block for s in sites(node)]
        self.reads = list(dict.fromkeys(a.buffer for b in blocks for a in b.reads))
        self.writes = list(dict.fromkeys(a.buffer for b in blocks for a in b.writes))


class _Order:
    """The depth-first walk. Deep chains are common, so it keeps a stack of its own."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.all = [_Nest(n, node) for n, node in enumerate(func.body)]
        self.writers: dict[Buffer, list[_Nest]] = {}
        self.readers: dict[Buffer, list[_Nest]] = {}
        for nest in self.all:
            for b in nest.writes:
                self.writers.setdefault(b, []).append(nest)
            for b in nest.reads:
                self.readers.setdefault(b, []).append(nest)
        self.seen: set[int] = set()
        self.order: list[Node] = []
        self.hashes: list[str] = []

    def nests(self) -> tuple[Node, ...]:
        for buffer in outputs_of(self.func):
            for nest in self.writers[buffer]:
                self.visit(nest)
        # What is left reaches no output; its last links have no later reader.
        loose = [n for n in self.all if n.place not in self.seen and not self.is_read_later(n)]
        for nest in self.by_hash(loose):
            self.visit(nest)
        return tuple(self.order)

    def visit(self, nest: _Nest) -> None:
        if nest.place in self.seen:
            return
        self.seen.add(nest.place)
        stack = [(nest, self.before(nest))]
        while stack:
            current, rest = stack[-1]
            following = next((n for n in rest if n.place not in self.seen), None)
            if following is None:
                self.order.append(current.node)
                stack.pop()
            else:
                self.seen.add(following.place)
                stack.append((following, self.before(following)))

    def before(self, nest: _Nest) -> Iterator[_Nest]:
        """The nests that must run before `nest`, in an order that names and places do not touch."""
        for b in (*nest.reads, *nest.writes):
            yield from (w for w in self.writers.get(b, ()) if w.place < nest.place)
        # Readers of what this nest overwrites have no order among themselves.
        overwritten = {
            r.place: r for b in nest.writes for r in self.readers.get(b, ()) if r.place < nest.place
        }
        yield from self.by_hash([r for r in overwritten.values() if r.place not in self.seen])

    def is_read_later(self, nest: _Nest) -> bool:
        return any(r.place > nest.place for b in nest.writes for r in self.readers.get(b, ()))

    def by_hash(self, nests: list[_Nest]) -> list[_Nest]:
        """Sorted by a hash of what they compute, their producers included."""
        if len(nests) < 2:
            return nests
        for nest in self.all[len(self.hashes) :]:
            feeding = {
                w.place for b in nest.reads for w in self.writers.get(b, ()) if w.place < nest.place
            }
            text = _Text(self.func, (nest.node,)).text()
            below = sorted(self.hashes[n] for n in feeding)
            self.hashes.append(_digest("|".join([text, *below])))
        return sorted(nests, key=lambda n: self.hashes[n.place])


class _Text:
    """Writer of canonical text: names are replaced by kind and number in order of appearance."""

    def __init__(self, func: PrimFunc, order: Iterable[Node]) -> None:
        self.func = func
        self.order = tuple(order)
        self.names: dict[int, str] = {}
        self.counts: dict[str, int] = {}
        self.lines: list[str] = []

    def sites(self) -> Iterator[Site]:
        for node in self.order:
            yield from sites(node)

    def name(self, thing: Var | Buffer, prefix: str) -> str:
        found = self.names.get(id(thing))
        if found is None:
            n = self.counts.get(prefix, 0)
            self.counts[prefix] = n + 1
            found = self.names[id(thing)] = f"{prefix}{n}"
        return found

    def text(self) -> str:
        for var in self.func.sizes:  # numbered in order of appearance
            self.name(var, "n")
        for buffer in self.func.params:
            self.lines.append(f"param {self.name(buffer, 'p')} {self.type(buffer)}")
        written = {id(a.buffer) for s in self.sites() for a in s.block.writes}
        outputs = [self.names[id(b)] for b in self.func.params if id(b) in written]
        self.lines.append(f"outputs {' '.join(outputs)}")
        self.lines.append(f"attrs {self.func_attributes()}")
        self.allocs(self.func.allocs, 0)
        for node in self.order:
            self.node(node, 0)
        return "\n".join(self.lines) + "\n"

    def func_attributes(self) -> str:
        """Attributes that name parameters name them by position."""
        place = {b.name: n for n, b in enumerate(self.func.params)}
        attrs = dict(self.func.attrs)
        if "layout_free" in attrs:
            attrs["layout_free"] = sorted(
                (place.get(name, name) for name in attrs["layout_free"]), key=str
            )
        return _attributes(tuple(attrs.items()))

    def emit(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def allocs(self, buffers: tuple[Buffer, ...], depth: int) -> None:
        if buffers:
            for buffer in sorted(buffers, key=self.first_use):
                self.emit(depth, f"alloc {self.buffer(buffer)}")

    def first_use(self, buffer: Buffer) -> int:
        for n, site in enumerate(self.sites()):
            block = site.block
            for k, access in enumerate((*block.reads, *block.writes)):
                if access.buffer is buffer:
                    return n * 4096 + k
        return 1 << 62

    def node(self, node: Node, depth: int) -> None:
        if isinstance(node, Block):
            self.block(node, depth)
            return
        thread = "" if node.thread is None else f" {node.thread}"
        notes = f" {_attributes(node.annotations)}" if node.annotations else ""
        self.emit(
            depth,
            f"for {self.name(node.var, 'l')} {self.int(node.extent)} {node.kind}{thread}{notes}",
        )
        self.allocs(node.allocs, depth + 1)
        for child in node.body:
            self.node(child, depth + 1)

    def block(self, block: Block, depth: int) -> None:
        # Axes are local to their block, numbered by position.
        axes = []
        for n, it in enumerate(block.iters):
            self.names[id(it.var)] = f"x{n}"
            axes.append(f"x{n}:{_KIND[it.kind]}{self.int(it.extent)}")
        self.emit(depth, f"block {' '.join(axes)}")
        depth += 1
        if block.bindings:
            self.emit(depth, f"bind {'; '.join(self.affine(b) for b in block.bindings)}")
        for text in sorted(
            f"where {self.affine(p.form)} < {self.int(p.bound)}" for p in block.predicates
        ):
            self.emit(depth, text)
        for n, access in enumerate(block.reads):
            self.emit(depth, f"read s{n} {self.access(access)}")
        for access in block.writes:
            self.emit(depth, f"write {self.access(access)}")
        for e in block.body:
            self.emit(depth, f"value {self.expr(e)}")
        reducer = block.reducer
        if reducer is not None:
            for n, (lhs, rhs) in enumerate(zip(reducer.lhs, reducer.rhs, strict=True)):
                self.names[id(lhs)] = f"acc{n}"
                self.names[id(rhs)] = f"new{n}"
            for e, identity in zip(reducer.combine, reducer.identity, strict=True):
                self.emit(depth, f"combine {self.expr(e)} from {self.expr(identity)}")
            if not block.init:
                self.emit(depth, "no init")
        if block.annotations:
            self.emit(depth, f"notes {_attributes(block.annotations)}")

    def access(self, access: Access) -> str:
        return f"{self.buffer(access.buffer)}[{', '.join(self.index(i) for i in access.indices)}]"

    def buffer(self, buffer: Buffer) -> str:
        known = id(buffer) in self.names
        name = self.name(buffer, "t")
        return name if known else f"{name}={self.type(buffer)}"

    def type(self, buffer: Buffer) -> str:
        align = "".join(f"/{':'.join(map(self.int, a))}" for a in buffer.align)
        return f"{buffer.dtype}[{','.join(map(self.int, buffer.shape))}]@{buffer.scope}{align}"

    def int(self, value: Int) -> str:
        """A number; of a symbolic one its terms, in an order that names do not touch."""
        if not isinstance(value, Size):
            return str(int(value))
        terms = [
            "*".join(sorted(map(self.size_atom, monomial))) + f"*{c}" for monomial, c in value.terms
        ]
        return f"({'+'.join([*sorted(terms), str(value.const)])})"

    def size_atom(self, atom: SizeVar | Quotient) -> str:
        if isinstance(atom, Quotient):
            return f"{self.int(atom.base)}//{atom.div}"
        return self.name(atom, "n")

    def index(self, index: Index) -> str:
        return self.affine(index) if isinstance(index, Affine) else self.expr(index)

    def affine(self, form: Affine) -> str:
        form = tidy(form)
        terms = []
        for atom, c in form.terms:
            if isinstance(atom, Var):
                text = self.name(atom, "v")
            else:
                mod = "" if atom.mod is None else f"%{self.int(atom.mod)}"
                text = f"({self.affine(atom.base)})/{self.int(atom.div)}{mod}"
            terms.append(f"{self.int(c)}*{text}")
        terms.sort()
        if self.int(form.const) != "0" or not terms:
            terms.append(self.int(form.const))
        return "+".join(terms)

    def expr(self, e: Expr) -> str:
        if isinstance(e, Var):
            if isinstance(e, SizeVar):
                return self.name(e, "n")
            return self.name(e, "v") if e.dtype == "int64" else f"{self.name(e, 'v')}:{e.dtype}"
        if isinstance(e, Const):
            return f"{e.value!r}:{e.dtype}"
        if isinstance(e, Slot):
            return f"s{e.index}"
        if isinstance(e, Whole):
            return ":"
        if isinstance(e, Opaque):
            given = ", ".join(self.buffer(b) for b in e.buffers)
            return f"opaque({given}) {_digest(numbered_text(e.routine))}"
        if not isinstance(e, Call):
            raise VerifyError(f"{type(e).__name__} may not stand in a block's body: {e!r}")
        if e.dtype == "int64":
            form = from_expr(e)
            if form is not None:
                return f"<{self.affine(form)}>"
        inside = ", ".join(self.expr(a) for a in e.args)
        return f"{e.op}({inside}):{e.dtype}" if e.op in CONVERSIONS else f"{e.op}({inside})"


def _attributes(attrs: Annotations) -> str:
    """Attributes as JSON, sorted by key."""
    plain: dict[str, Any] = dict(attrs)
    try:
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=True)
    except TypeError as e:
        raise VerifyError(
            f"attributes {plain!r} cannot be part of a key: {e}; "
            "use strings, numbers, booleans, lists and dicts of them"
        ) from e

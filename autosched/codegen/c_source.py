"""Kernels as C source: one printer, whose languages differ by a `Dialect`.

The text follows the loop nest: a loop is a `for`, an accumulator a variable, a barrier a statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod

from autosched.codegen.gpu.across import unrolled
from autosched.codegen.gpu.carry import Carried, carried_by
from autosched.codegen.gpu.copies import block_at, fetched_in, in_step
from autosched.codegen.gpu.dialect import Dialect
from autosched.codegen.gpu.exprs import Exprs, wrap
from autosched.codegen.gpu.helpers import Helpers
from autosched.codegen.gpu.kernel import (
    BLOCKS,
    SHARED_ALIGN,
    SWIZZLE_ALIGN,
    Kernel,
    shared_offsets,
)
from autosched.codegen.gpu.lookback_text import LookbackWriter
from autosched.codegen.gpu.mma import products_at
from autosched.codegen.gpu.overhang import whole_of
from autosched.codegen.gpu.reduce import chain_at, is_first
from autosched.codegen.gpu.vectors import Vectors, copied_by, vectors_of
from autosched.codegen.gpu.writer import same_predicate
from autosched.tir.affine import Affine, Extents, Int, always
from autosched.tir.expr import Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Node,
    Predicate,
    allocated,
    kind_vars,
    sites,
)


def c_source(kernels: Sequence[Kernel], dialect: Dialect, warp: int) -> str:
    """The source of `kernels`, one after the other, and the helpers they call before them."""
    helpers = Helpers(dialect)
    texts = [_KernelText(k, dialect, helpers, warp).text() for k in kernels]
    uses_double = any("double" in t for t in (*texts, helpers.text))
    prologue = dialect.prologue if uses_double else ""
    return "\n".join(part for part in (prologue + helpers.text, *texts) if part)


class _KernelText(LookbackWriter):
    def text(self) -> str:
        """The whole kernel."""
        kernel, d = self.kernel, self.dialect
        look = kernel.lookback
        written = self.written | ({look.words} if look else set())
        params = ", ".join(
            d.pointer(d.stored_type(b.dtype), self.buffer(b), "global", b not in written)
            for b in kernel.params
        )
        head = f"{d.head(kernel.name, prod(kernel.block), kernel.block)}({params}) {{"
        wide = self.index_type()
        for name, axis in kernel.axes.items():
            self.vars[axis.var], self.extents[axis.var] = axis.var.name, axis.extent
            if look is None or name != BLOCKS[0]:
                self.emit(f"const {wide} {axis.var.name} = {d.indices[name]};")
        for line in self.arrays():
            self.emit(line)
        place = len(self.lines)
        if look is None:
            self.sequence(kernel.body)
        else:
            if BLOCKS[0] in kernel.axes:
                self.emit(f"const {wide} {kernel.axes[BLOCKS[0]].var.name} = {self.ticket()};")
            self.lookback(look)
        self.lines[place:place] = self.scratch
        return "\n".join([head, *self.lines, "}"]) + "\n"

    def arrays(self) -> list[str]:
        """Declarations of what a block shares and a thread has for itself."""
        kernel, d = self.kernel, self.dialect
        if not kernel.dynamic_bytes:
            return [self.array(b) for b in (*kernel.shared, *kernel.local)]
        name = self.fresh("shared")
        lines = [f"extern {d.shared} {self.align} unsigned char {name}[];"]
        for b, start in zip(kernel.shared, shared_offsets(kernel), strict=False):
            kind = d.stored_type(b.dtype)
            lines.append(f"{kind} *const {self.buffer(b)} = ({kind} *)({name} + {start});")
        return [*lines, *(self.array(b) for b in kernel.local)]

    @cached_property
    def align(self) -> str:
        """How arrays in shared memory are aligned."""
        if not self.swizzled:
            return self.dialect.align
        return self.dialect.align.replace(str(SHARED_ALIGN), str(SWIZZLE_ALIGN))

    def array(self, b: Buffer) -> str:
        d = self.dialect
        kind, count = d.stored_type(b.dtype), max(1, int(allocated(b.shape, b.align)))
        space = f"{d.shared} {self.align} " if b.scope == "shared" else ""
        return f"{space}{kind} {self.buffer(b)}[{count}];"

    def sequence(self, nodes: Sequence[Node]) -> None:
        """Nodes one after the other; those under the same conditions in one branch."""
        left = list(nodes)
        outermost = nodes is self.kernel.body
        outside = self.asynchronous and not self.fetching
        first, last, copies = fetched_in(nodes) if outside else (-1, -1, 0)
        # Products of warpgroups go on while what is fetched after them is asked for.
        before, self.go_on = self.go_on, first > 0
        while left:
            at = len(nodes) - len(left)
            if id(left[0]) in self.kernel.barriers:
                if self.asynchronous:
                    # Of the steps under way, that which is computed next has to be there: this
                    # one, whose successor a barrier among its computations serves as well; the
                    # next, after products before the fetches. Each step is a group of its own,
                    # once all of its fetches are asked for.
                    ahead = copies - 2
                    if first == 0:
                        ahead += at == last + 1
                    else:
                        ahead -= at > 0
                    name = f"copied_but_{ahead}" if ahead > 0 and copies > 2 else "copied"
                    self.emit(f"{self.helpers.asynchronous(name)}();")
                if self.by_groups:  # which read shared memory by a way of their own
                    self.emit(f"{self.helpers.warp('proxy_fence')}();")
                self.emit(self.dialect.barrier(self.kernel.barriers[id(left[0])]))
                if outermost:
                    self.settled = _final(self.kernel.body, left)
            if outermost:
                self.keep(left[0])
            asked, together = self.asked(left[0]), 1
            while together < len(left) and id(left[together]) not in self.kernel.barriers:
                if not asked or not _same_predicates(asked, self.asked(left[together])):
                    break
                together += 1
            branch = asked if together > 1 else []
            with self.inside(self.when(branch)):
                self.active += branch
                for node in left[:together]:
                    self.node(node)
                del self.active[len(self.active) - len(branch) :]
            if copies > 2 and at <= last < at + together:
                self.emit(f"{self.helpers.asynchronous('commit')}();")
            del left[:together]
        if self.go_on and self.by_groups:
            self.emit(f"{self.helpers.warp('wgmma_wait_0')}();")
        self.go_on = before

    def keep(self, node: Node) -> None:
        """Declare what a thread reads in `node` of shared memory that changes no more, always at
        one place: of all nodes that read it the first loads it, so that the compiler sees that what
        they make of it is the same."""
        axes = {x.var: x.extent for x in self.kernel.axes.values()}
        for site in sites(node):
            exprs = self.exprs(site.block)
            for a in site.block.reads:
                forms = [exprs.affine(i) for i in a.indices]
                if a.buffer not in self.settled or a.buffer.dtype != "float32":
                    continue
                # No condition is asked before: a thread that has no such element must not load it.
                if not all(
                    f is not None and set(f.variables()) <= set(axes) and _within(f, extent, axes)
                    for f, extent in zip(forms, a.buffer.shape, strict=True)
                ):
                    continue
                text = self.element(exprs, a)
                if text not in self.kept:
                    name = self.fresh(f"{a.buffer.name}_here")
                    self.emit(f"const {self.dialect.value_type('float32')} {name} = {text};")
                    self.kept[text] = name

    def asked(self, node: Node) -> list[Predicate]:
        """What is asked before anything of a node runs, and is not yet."""
        if isinstance(node, Block) and not self.waits(node):
            return self.left(node.predicates)
        return self.common(node)

    def node(self, node: Node) -> None:
        common = self.common(node)
        with self.inside(self.when(common)):
            self.active += common
            self.versions(node)
            del self.active[len(self.active) - len(common) :]

    def versions(self, node: Node) -> None:
        """A statement; where its terms may end within a step of the loops around, once for steps
        that are whole, in which nothing is asked, and once for the last."""
        asks = isinstance(node, For) and not self.ends and not self.waits(node)
        ending = list(self.ending(node)) if asks else []
        if not ending:
            self.statement(node)
            return
        with self.inside(self.when([whole for whole, _ in ending])):
            self.active += [p for _, p in ending]
            self.statement(node)
            del self.active[len(self.active) - len(ending) :]
        with self.inside("else"):
            self.ends = True
            self.statement(node)
            self.ends = False

    def ending(self, node: Node) -> Iterator[tuple[Predicate, Predicate]]:
        """(what holds where `p` does for all of a node, `p`) of the conditions on the terms of a
        reduction that are the same for all threads of a block."""
        (site, *others) = sites(node)
        if others or site.block.reducer is None:
            return
        threads = [x.var for n, x in self.kernel.axes.items() if n not in BLOCKS]
        for p in self.left(site.block.predicates):
            if p.form.uses(kind_vars(site.block, "reduce")) and not p.form.uses(threads):
                whole = whole_of(p, {x.var: x.extent for x in site.loops})
                if whole is not None and always(whole.form.span(self.extents)[0] < whole.bound):
                    yield whole, p

    def statement(self, node: Node) -> None:
        products = products_at(node, self.kernel)
        chain = chain_at(node, self.kernel.axes)
        if products is not None and products.code.warps > 1:
            self.group_products(products)
        elif products is not None:
            self.products(products)
        elif chain is not None:
            self.chain(chain)
        elif isinstance(node, Block):
            self.block(node)
        elif node.kind == "vectorized" and (v := self.vectors(node)) is not None:
            self.vectorized(v)
        elif not self.waits(node) and (
            c := carried_by(node, {**self.extents, node.var: node.extent})
        ):
            self.carried(c)
        else:
            before = self.steps_wait, self.fetching
            if in_step(node):
                self.fetching = True
            else:
                self.steps_wait = any(id(x) in self.kernel.barriers for x in node.body)
            with self.loops(unrolled([node]) if _holds_vector(node) else [node]):
                self.sequence(node.body)
            self.steps_wait, self.fetching = before

    def common(self, node: Node) -> list[Predicate]:
        """Predicates that all blocks below share and that no loop of `node` moves: asked once,
        where no barrier stands below."""
        if isinstance(node, Block) or self.waits(node):
            return []
        blocks = [s.block for s in sites(node)]
        moved = {x.var for s in sites(node) for x in s.loops}
        return [
            p
            for p in blocks[0].predicates
            if not p.form.uses(moved)
            and not self.is_active(p)
            and all(any(same_predicate(p, q) for q in b.predicates) for b in blocks[1:])
        ]

    def block(self, block: Block) -> None:
        exprs = self.exprs(block)
        with self.inside(self.when(self.left(block.predicates))):
            if block.reducer is None:
                copied = copied_by(block)
                if (
                    self.fetching
                    and copied is not None
                    and (name := self.asynchronous_copy(block, 1))
                ):
                    self.copy(name, exprs, *copied)
                    return
                self.assign(block, exprs, [exprs.text(e)[0] for e in block.body])
                return
            first = is_first(block)
            if block.init:
                terms = " && ".join(f"{wrap(self.forms.text(f), 36)} == 0" for f in first)
                with self.inside(f"if ({terms})" if terms else ""):
                    for a, e in zip(block.writes, block.reducer.identity, strict=True):
                        self.store(exprs, a, exprs.text(e)[0])
            old = [self.load(exprs, a) for a in block.writes]
            self.assign(block, exprs, self.combined(block, exprs, old))

    def carried(self, c: Carried) -> None:
        """Steps with their state in a register; whoever reads it later finds it in memory."""
        block, access = c.block, c.block.reads[c.read]
        always_asked = [p for p in block.predicates if not p.form.uses([c.loop.var])]
        with self.inside(self.when(self.left([*always_asked, *c.at_first()]))):
            self.active += always_asked
            state = self.fresh("state")
            before = self.exprs(block_at(block, c.loop.var, Affine(0)))
            first = self.load(before, before.block.reads[c.read])
            self.emit(f"{self.dialect.value_type(access.buffer.dtype)} {state} = {first};")
            with self.loops([c.loop]), self.inside(self.when(self.left(c.of_steps()))):
                exprs = Exprs(
                    block,
                    self.dialect,
                    self.forms,
                    lambda a: state if a is access else self.load(exprs, a),
                )
                self.emit(f"{state} = {exprs.text(block.body[0])[0]};")
                self.store(exprs, block.writes[0], state)
            del self.active[len(self.active) - len(always_asked) :]

    def vectors(self, loop: For) -> Vectors | None:
        extents = {**self.extents, loop.var: loop.extent}
        found = vectors_of(loop, extents, self.dialect, self.active)
        if found is None or found.width in self.dialect.lanes(
            self.dialect.stored_type(found.block.writes[0].buffer.dtype)
        ):
            return found
        copied = copied_by(found.block)
        assert copied is not None  # or it were no wider than what is computed with
        if self.stays(found, Affine(0), *copied):
            return found
        return vectors_of(loop, extents, self.dialect, self.active, copies=False)

    def vectorized(self, v: Vectors) -> None:
        """Loads and stores of `v.width` elements at once, the computation a lane at a time."""
        block = v.block
        always_asked = [p for p in block.predicates if not p.form.uses([v.loop.var])]
        with self.inside(self.when(self.left(always_asked))):
            pieces = int(v.loop.extent) // v.width
            outer = For(Var(v.loop.var.name), pieces, (), "unrolled")
            with self.loops([outer] if pieces > 1 else []):
                start = Affine.of(outer.var, v.width) if pieces > 1 else Affine(0)
                self.extents[outer.var] = pieces
                first = self.exprs(block_at(block, v.loop.var, start))
                # Neighbours exist together, so the first of them decides.
                both = zip(block.predicates, first.block.predicates, strict=True)
                mine = [at for p, at in both if p.form.uses([v.loop.var])]
                with self.inside(self.when(self.left(mine))):
                    self.vector_of(v, start, first)

    def vector_of(self, v: Vectors, start: Affine, first: Exprs) -> None:
        """One vector, from the lane at `start`, of which `first` has the expressions."""
        block = v.block
        loaded: dict[int, str] = {}
        copied = copied_by(first.block)
        if copied is not None and self.stays(v, start, *copied):
            before, self.fetching = self.fetching, self.fetching or in_step(v.loop)
            name = self.asynchronous_copy(block, v.width)
            self.fetching = before
            if name:
                self.copy(name, first, *copied)
                return
            if copied[0] is not None:
                self.padded(v, first, copied[0], copied[1])
                return
        for n in v.loads:
            loaded[n] = self.fresh(f"{block.reads[n].buffer.name}_vec")
            kind, pointer = self.vector(block.reads[n].buffer, v.width, True)
            place = self.element(first, first.block.reads[n])
            self.emit(f"const {kind} {loaded[n]} = *({pointer})&{place};")
        kind, pointer = self.vector(block.writes[0].buffer, v.width, False)
        place = f"*({pointer})&{self.element(first, first.block.writes[0])}"
        body = block.body[0]
        if isinstance(body, Slot) and body.index in loaded:
            self.emit(f"{place} = {loaded[body.index]};")
            return
        result = self.fresh("result")
        self.emit(f"{kind} {result};")
        for lane in range(v.width):
            self.lane(v, start + lane, lane, loaded, result)
        self.emit(f"{place} = {result};")

    def lane(self, v: Vectors, at: Affine, lane: int, loaded: dict[int, str], result: str) -> None:
        block = block_at(v.block, v.loop.var, at)
        part = "xyzw"[lane]
        by_access = {id(block.reads[n]): f"{name}.{part}" for n, name in loaded.items()}

        def load(a: Access) -> str:
            text = self.element(exprs, a)
            text = by_access.get(id(a)) or self.kept.get(text, text)
            return (
                f"{self.helpers.half('f16_load')}({text})" if a.buffer.dtype == "float16" else text
            )

        exprs = Exprs(block, self.dialect, self.forms, load)
        value = exprs.text(block.body[0])[0]
        if block.writes[0].buffer.dtype == "float16":
            value = f"{self.helpers.half('f16_store')}({value})"
        self.emit(f"{result}.{part} = {value};")


def _final(body: Sequence[Node], left: Sequence[Node]) -> frozenset[Buffer]:
    """Shared buffers that some of the nodes before `left` have written and none of these writes."""

    def written(nodes: Sequence[Node]) -> set[Buffer]:
        return {a.buffer for x in nodes for s in sites(x) for a in s.block.writes}

    before = written(body[: len(body) - len(left)])
    return frozenset(b for b in before - written(left) if b.scope == "shared")


def _within(form: Affine, extent: Int, extents: Extents) -> bool:
    """Whether an index lies in 0 to `extent` - 1, whatever the thread."""
    low, high = form.span(extents)
    return bool(always(low >= 0) and always(high < extent))


def _holds_vector(loop: For) -> bool:
    """Whether a loop goes over the vectors of a row."""
    (inner, *others) = loop.body
    return not others and isinstance(inner, For) and inner.kind == "vectorized"


def _same_predicates(some: Sequence[Predicate], others: Sequence[Predicate]) -> bool:
    return len(some) == len(others) and all(map(same_predicate, some, others))

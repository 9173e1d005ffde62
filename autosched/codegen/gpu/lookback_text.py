"""Scans in a single pass as C; see `lookback.py` for how they go."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from autosched.codegen.gpu.across import number_of
from autosched.codegen.gpu.copies import block_at
from autosched.codegen.gpu.kernel import BLOCKS, THREADS
from autosched.codegen.gpu.lookback import WINDOW, Lookback, column, parts
from autosched.codegen.gpu.wgmma import GroupWriter
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Var
from autosched.tir.nodes import Block, For, Predicate

ALONE, WITH_ALL = 1, 2
"""Marks: of what a tile comes to by itself, and with all before it."""


class LookbackWriter(GroupWriter):
    """Writes kernels that scan in a single pass."""

    def ticket(self) -> str:
        """The number of the block that this one is to be."""
        look = self.kernel.lookback
        assert look is not None
        name = self.fresh("ticket")
        self.scratch.append(f"  {self.dialect.shared} int {name};")
        threads = [x for n, x in self.kernel.axes.items() if n in THREADS]
        first = [Predicate(Affine.of(x.var), 1) for x in threads]
        with self.inside(self.when(first)):
            self.emit(f"{name} = {self.dialect.ticket.format(self.buffer(look.words))};")
        self.emit(self.dialect.barrier(frozenset({"shared"})))
        return name

    def lookback(self, look: Lookback) -> None:
        """The whole body."""
        loop, block = parts(self.kernel.body)
        loop = loop or For(Var("row"), 1, (), "unrolled")
        _Scan(self, look, loop, block).write()


class _Scan:
    """One kernel's body in the making."""

    def __init__(self, out: LookbackWriter, look: Lookback, loop: For, block: Block) -> None:
        self.out, self.look, self.loop, self.block = out, look, loop, block
        self.dtype = block.writes[0].buffer.dtype
        self.kind = out.dialect.value_type(self.dtype)
        self.neutral = out.exprs(block).text(look.found.reducer.identity[0])[0]
        self.of_rows = [block.predicates[n] for n in look.of_rows]
        self.exists = [p for n, p in enumerate(block.predicates) if n not in look.of_rows]
        axes = out.kernel.axes
        self.lane = number_of([axes[n] for n in look.lanes])
        self.lanes = prod(int(axes[n].extent) for n in look.lanes)
        self.tile = Affine(0)
        if look.tiles > 1:
            bx = Affine.of(axes[BLOCKS[0]].var)
            self.tile = bx if look.across == 1 else Affine.of(Digit(bx, look.across, None))

    def combined(self, a: str, b: str) -> str:
        """What two values come to."""
        x, y = Var("a", self.dtype), Var("b", self.dtype)
        exprs = self.out.exprs(self.block, {x: a, y: b})
        return exprs.text(ex.call(self.look.found.op, x, y))[0]

    def declare(self, name: str, value: str, constant: bool = True) -> str:
        """A new variable of the values' type."""
        name = self.out.fresh(name)
        self.out.emit(f"{'const ' if constant else ''}{self.kind} {name} = {value};")
        return name

    def write(self) -> None:
        """Rows into registers, what groups and tiles come to, rows out."""
        out, look = self.out, self.look
        rows = self.load()
        total = f"{rows}[{look.rows - 1}]"
        if look.groups == 1:
            before = self.declare("before", self.neutral, constant=False)
            with out.inside(out.when(self.exists)):
                self.walk(total, before)
            self.store(rows, before)
            return
        group = out.vars[out.kernel.axes[look.group].var]
        alone, everything = self.groups(total, group)
        handed = out.fresh("handed")
        out.scratch.append(f"  {out.dialect.shared} {self.kind} {handed}[{self.lanes}];")
        lane = out.forms.text(self.lane)[0]
        first = Predicate(Affine.of(out.kernel.axes[look.group].var), 1)
        with out.inside(out.when([first, *self.exists])):
            before = self.declare("before", self.neutral, constant=False)
            self.walk(everything, before)
            out.emit(f"{handed}[{lane}] = {before};")
        out.emit(out.dialect.barrier(frozenset({"shared"})))
        self.store(rows, self.declare("start", self.combined(f"{handed}[{lane}]", alone)))

    def load(self) -> str:
        """The thread's rows, each with those before it; the neutral value where there is none."""
        out, look = self.out, self.look
        rows = out.fresh("rows")
        out.emit(f"{self.kind} {rows}[{look.rows}];")
        for asked in self.cases():
            with out.loops([self.loop]):
                value = out.exprs(self.block).text(look.found.term)[0]
                if asked:
                    value = f"{out.forms.conditions(asked)} ? {value} : {self.neutral}"
                out.emit(f"{rows}[{out.vars[self.loop.var]}] = {value};")
        if look.rows > 1:
            r = out.fresh("r")
            out.emit("#pragma unroll")
            with out.inside(f"for (int {r} = 1; {r} < {look.rows}; ++{r})"):
                out.emit(f"{rows}[{r}] = {self.combined(f'{rows}[{r} - 1]', f'{rows}[{r}]')};")
            out.taken.discard(r)
        return rows

    def groups(self, total: str, group: str) -> tuple[str, str]:
        """(what the groups before this one come to, what all of them do)."""
        out, look = self.out, self.look
        totals, lane = out.fresh("totals"), out.forms.text(self.lane)[0]
        size = look.groups * self.lanes
        out.scratch.append(f"  {out.dialect.shared} {self.kind} {totals}[{size}];")

        def place(g: str) -> str:
            if self.lanes == 1:
                return f"{totals}[{g}]"
            return f"{totals}[{g} * {self.lanes} + {lane}]"

        out.emit(f"{place(group)} = {total};")
        out.emit(out.dialect.barrier(frozenset({"shared"})))
        alone = self.declare("groups_before", self.neutral, constant=False)
        everything = self.declare("all_groups", self.neutral, constant=False)
        g = out.fresh("g")
        with out.inside(f"for (int {g} = 0; {g} < {look.groups}; ++{g})"):
            value = self.declare("value", place(g))
            with out.inside(f"if ({g} < {group})"):
                out.emit(f"{alone} = {self.combined(alone, value)};")
            out.emit(f"{everything} = {self.combined(everything, value)};")
        out.taken.discard(g)
        return alone, everything

    def walk(self, total: str, before: str) -> None:
        """Find what stands before the tile, and hand on what it comes to."""
        out, look = self.out, self.look
        exprs = out.exprs(block_at(self.block, self.loop.var, Affine(0)))
        first = out.load(exprs, exprs.block.reads[look.found.state])
        if look.tiles == 1:
            out.emit(f"{before} = {first};")
            return
        tile = out.forms.text(self.tile)[0]
        number = out.fresh("tile")
        out.emit(f"const int {number} = {tile};")
        wide = out.index_type()
        mine = out.fresh("mine")
        here = out.forms.text(column(look, self.block) + 1)[0]
        out.emit(f"const {wide} {mine} = {here};")
        with out.inside(f"if ({number} == 0)"):
            out.emit(f"{before} = {first};")
        with out.inside("else"):
            self.hand_on(f"{mine} + ({wide}){number} * {look.columns}", total, ALONE)
            self.gather(number, mine, before)
        with out.inside(f"if ({number} + 1 < {look.tiles})"):
            both = self.declare("both", self.combined(before, total))
            self.hand_on(f"{mine} + ({wide}){number} * {look.columns}", both, WITH_ALL)

    def gather(self, tile: str, mine: str, before: str) -> None:
        """Combine what earlier tiles come to, up to one that is known with all before it."""
        out, look, d = self.out, self.look, self.out.dialect
        word = d.unsigned["int64"]
        words, mark, k, last, at = (out.fresh(n) for n in ("words", "mark", "k", "last", "at"))
        wide = out.index_type()
        volatile = d.vector_pointer(f"volatile {word}", "global")
        space = out.buffer(look.words)
        out.emit(f"int {mark} = 0;")
        step = f"{last} -= {WINDOW}"
        with out.inside(f"for (int {last} = {tile} - 1; {mark} != {WITH_ALL}; {step})"):
            out.emit(f"{word} {words}[{WINDOW}];")
            every = f"for (int {k} = 0; {k} < {WINDOW}; ++{k})"

            def place() -> str:
                return f"{mine} + ({wide})({last} > {k} ? {last} - {k} : 0) * {look.columns}"

            out.emit("#pragma unroll")
            with out.inside(every):
                out.emit(f"{words}[{k}] = *({volatile})({space} + {place()});")
            out.emit("#pragma unroll")
            with out.inside(every), out.inside(f"if ({mark} != {WITH_ALL})"):
                out.emit(f"const {wide} {at} = {place()};")
                with out.inside(f"while ((int){words}[{k}] == 0)"):
                    out.emit(f"{words}[{k}] = *({volatile})({space} + {at});")
                out.emit(f"{mark} = (int){words}[{k}];")
                value = self.declare("value", self.taken(f"{words}[{k}]", mark, at))
                out.emit(f"{before} = {self.combined(value, before)};")

    def hand_on(self, at: str, value: str, mark: int) -> None:
        """Let others see a value."""
        out, look, d = self.out, self.look, self.out.dialect
        word, space = d.unsigned["int64"], self.out.buffer(look.words)
        if look.packed:
            pointer = d.vector_pointer(f"volatile {word}", "global")
            out.emit(f"*({pointer})({space} + {at}) = ({word}){self.bits(value)} << 32 | {mark};")
            return
        values = d.vector_pointer(f"volatile {self.kind}", "global")
        marks = d.vector_pointer(f"volatile {word}", "global")
        apart = mark * look.tiles * look.columns
        out.emit(f"*({values})({space} + {apart} + {at}) = {value};")
        out.emit(d.fence)
        out.emit(f"*({marks})({space} + {at}) = {mark};")

    def taken(self, word: str, mark: str, at: str) -> str:
        """The value to a mark that has been seen."""
        out, look, d = self.out, self.look, self.out.dialect
        if look.packed:
            return self.value(f"({d.unsigned['int32']})({word} >> 32)")
        pointer = d.vector_pointer(f"volatile {self.kind}", "global")
        out.emit(d.fence)
        apart = f"({out.index_type()}){mark} * {look.tiles * look.columns}"
        return f"*({pointer})({out.buffer(look.words)} + {apart} + {at})"

    def bits(self, value: str) -> str:
        """A value as 32 bits."""
        d = self.out.dialect
        if self.kind == "float":
            return f"{d.bits[0]}({value})"
        return f"({d.unsigned['int32']})({value})"

    def value(self, bits: str) -> str:
        """A value of 32 bits."""
        return (
            f"{self.out.dialect.bits[1]}({bits})"
            if self.kind == "float"
            else f"({self.kind}){bits}"
        )

    def store(self, rows: str, before: str) -> None:
        """All rows, with what stands before them."""
        out = self.out
        for asked in self.cases():
            with out.loops([self.loop]), out.inside(out.when(asked)):
                exprs = out.exprs(self.block)
                row = f"{rows}[{out.vars[self.loop.var]}]"
                out.store(exprs, self.block.writes[0], self.combined(before, row))

    def cases(self) -> Iterator[list[Predicate]]:
        """What is asked of each row: nothing where all of a thread's exist, and so its loads and
        stores need no more than an offset each; elsewhere everything."""
        last = {self.loop.var: Affine(self.look.rows - 1)}
        all_rows = [Predicate(p.form.substitute(last, {}), p.bound) for p in self.of_rows]
        whole = [*self.exists, *all_rows]
        with self.out.inside(self.out.when(whole)):
            yield []
        if whole:
            with self.out.inside("else"):
                yield [*self.exists, *self.of_rows]

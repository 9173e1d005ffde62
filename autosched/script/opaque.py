"""`with T.opaque("name"):` a routine between the loop nests of a function, and nests that become
one."""

from __future__ import annotations

import ast
from typing import Any

from autosched.script.blocks import with_call
from autosched.script.exprs import called
from autosched.script.functions import FunctionReader
from autosched.script.literals import Arguments, dictionary
from autosched.script.nested import NestedReader, blocks_of, runs_in_order, used, with_name
from autosched.script.scope import Scope
from autosched.tir.nodes import Block, Buffer, Node, buffers_of
from autosched.tir.opaque import opaque_block
from autosched.tir.routine import Alloc, Routine, statements_of


class OpaqueReader(NestedReader):
    """Reads one opaque block."""

    def see(self, scope: Scope) -> OpaqueReader:
        """This reader, with the names of the function around."""
        self.scope = scope
        self.exprs = self.expressions(self.source, self.budget, scope)
        return self

    def nest(self, s: ast.stmt, before: list[Node], params: set[int]) -> Block:
        """A nest that runs in order as one opaque block, with the name of the first such in it, or
        of its first block.

        It reads what its statements read, but for intermediates that nothing before wrote, and
        keeps the elements that it does not store to, of parameters and of what was written before.
        """
        found = list(blocks_of(s))
        first = next((w for w in found if with_name(w) == "opaque"), found[0])
        body = self._statements([s], 0)
        reads, writes = used(body)
        inside = {id(a.buffer) for a in statements_of(body) if isinstance(a, Alloc)}
        known = params | {id(b) for node in before for b in buffers_of(node)}
        buffers = [b for b in dict.fromkeys((*reads, *writes)) if id(b) not in inside]
        read = {id(b) for b in (*reads, *writes) if id(b) in known}
        stored = {id(b) for b in writes}
        if not any(id(b) in stored for b in buffers):
            raise self.error(s, "the nest stores to no buffer of the function")
        taken = [b for b in buffers if id(b) in read or id(b) not in stored]
        left = [b for b in buffers if id(b) in stored]
        given = tuple(dict.fromkeys((*taken, *left)))
        return opaque_block(Routine(self.block_name(first), given, body), given, taken, left)

    def block(self, s: ast.With) -> Block:
        """The block of `with T.opaque(name):`."""
        call = with_call(s)
        assert call is not None
        name = self.block_name(s)
        lists: dict[str, list[Buffer]] = {}
        notes: dict[str, Any] = {}
        rest = [x for x in s.body if not self._directive(x, lists, notes)]
        if not lists.get("writes"):
            raise self.error(
                call, "an opaque block lists the buffers that it writes, T.writes(C), and reads"
            )
        reads, writes = lists.get("reads", []), lists["writes"]
        buffers = tuple(dict.fromkeys((*reads, *writes)))
        routine = Routine(name, buffers, self._statements(rest, 1))
        return opaque_block(routine, buffers, reads, writes, tuple(sorted(notes.items())))

    def _directive(
        self, s: ast.stmt, lists: dict[str, list[Buffer]], notes: dict[str, Any]
    ) -> bool:
        """Read `T.reads(A, B)`, `T.writes(C)` or `T.block_attr(…)`; False for a statement."""
        call = s.value if isinstance(s, ast.Expr) else None
        name = called(call.func) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or name not in ("reads", "writes", "block_attr"):
            return False
        args = Arguments(self.source, call, f"T.{name}")
        if name == "block_attr":
            notes |= dictionary(self.source, self.budget, args.need("attrs"), "annotations")
            args.done()
            return True
        if name in lists:
            raise self.error(call, f"T.{name} stands twice in one block")
        lists[name] = []
        for node in args.positional:
            thing = self.scope.names.get(node.id) if isinstance(node, ast.Name) else None
            if not isinstance(thing, Buffer):
                raise self.error(node, "expected the name of a buffer: an opaque block has it all")
            lists[name].append(thing)
        args.positional = []
        args.done()
        return True


class ProgramReader(FunctionReader):
    """Reads one function, opaque blocks included."""

    def _in_order(self, s: ast.stmt, before: list[Node]) -> Block | None:
        """A nest of nested blocks, or around opaque ones."""
        if with_name(s) == "opaque" or not runs_in_order(s):
            return None
        reader = OpaqueReader(self.source, self.budget, self.node).see(self.scope)
        block = reader.nest(s, before, {id(b) for b in self.params})
        self.source.remember(block, s)
        return block

    def _opaque(self, s: ast.With, depth: int) -> Block:
        """A routine over the function's buffers."""
        self._count(s)
        block = OpaqueReader(self.source, self.budget, self.node).see(self.scope).block(s)
        self.source.remember(block, s)
        return block

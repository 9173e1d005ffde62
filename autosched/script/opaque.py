"""`with T.opaque("name"):` a routine between the loop nests of a function."""

from __future__ import annotations

import ast
from typing import Any

from autosched.script.blocks import with_call
from autosched.script.exprs import called
from autosched.script.functions import FunctionReader
from autosched.script.literals import Arguments, dictionary, string
from autosched.script.routines import RoutineReader
from autosched.script.scope import Scope
from autosched.tir.nodes import Block, Buffer
from autosched.tir.opaque import opaque_block
from autosched.tir.routine import Routine


class OpaqueReader(RoutineReader):
    """Reads one opaque block."""

    def block(self, s: ast.With, scope: Scope) -> Block:
        """The block, whose statements see the names of the function around it."""
        self.scope = scope
        self.exprs = self.expressions(self.source, self.budget, scope)
        call = with_call(s)
        assert call is not None
        args = Arguments(self.source, call, "T.opaque")
        name = string(self.source, args.need("name"), "a block's name")
        args.done()
        if not name:
            raise self.error(call, "a block needs a name")
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

    def _opaque(self, s: ast.With, depth: int) -> Block:
        """A routine over the function's buffers."""
        self._count(s)
        if depth or self.conditions:
            raise self.error(
                s.items[0].context_expr,
                "an opaque block stands beside the loop nests, not in a loop or an `if`",
            )
        reader = OpaqueReader(self.source, self.budget, self.node)
        block = reader.block(s, self.scope)
        self.source.remember(block, s)
        return block

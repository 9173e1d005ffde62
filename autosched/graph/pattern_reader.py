"""Patterns of the cases of a match, as script text has them."""

from __future__ import annotations

import ast
from typing import Any

from autosched.graph.expressions import Block, ExpressionReader
from autosched.graph.ir import Pattern, Var
from autosched.graph.types import Hole
from autosched.script.source import Place


class PatternReader(ExpressionReader):
    """Reads patterns. A variable in one is a name of the case's block."""

    def clause(self, case: ast.match_case, block: Block) -> Pattern | Var | None:
        """The pattern of a case; its variables are names of the block."""
        if case.guard is not None:
            raise self.error(case.guard, "a case has no condition here")
        return self.pattern(case.pattern, block, set())

    def pattern(self, p: ast.pattern, block: Block, seen: set[str]) -> Pattern | Var | None:
        place: Any = p  # patterns have places as expressions do
        self.budget.spend(place)
        if isinstance(p, ast.MatchAs) and p.pattern is None:
            return None if p.name is None else self.captured(p.name, place, block, seen)
        if isinstance(p, ast.MatchClass) and isinstance(p.cls, ast.Name) and not p.kwd_attrs:
            name = p.cls.id
            if name not in self.constructors:
                have = ", ".join(self.constructors) or "none"
                raise self.error(place, f"no constructor is named {name}; there are {have}")
            if len(p.patterns) != self.constructors[name]:
                fields = self.constructors[name]
                raise self.error(
                    place, f"{name} has {fields} fields, found {len(p.patterns)} patterns"
                )
            made = Pattern(name, tuple(self.pattern(x, block, seen) for x in p.patterns))
        elif isinstance(p, ast.MatchSequence):
            made = Pattern("", tuple(self.pattern(x, block, seen) for x in p.patterns))
        else:
            raise self.error(place, "expected patterns such as Cons(x, _), (a, b), x or _")
        self.notes.put(made, place)
        return made

    def captured(self, name: str, place: Place, block: Block, seen: set[str]) -> Var:
        if name in self.constructors:
            raise self.error(place, f"{name} is a constructor; write {name}() in a pattern")
        if name in seen:
            raise self.error(place, f"a pattern has the variable {name} twice")
        seen.add(name)
        v = Var(name, Hole())
        self.notes.put(v, place)
        block.names[name] = v
        return v

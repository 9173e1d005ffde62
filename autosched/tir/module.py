"""Modules: the functions that are built, printed and scheduled together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from textwrap import indent
from types import MappingProxyType
from typing import Any

from autosched.checks import instance, shown
from autosched.errors import ScheduleError
from autosched.tir.admit import derived
from autosched.tir.nodes import PrimFunc
from autosched.tir.routine import Routine
from autosched.tir.shown import Shown


def _check_name(name: object) -> None:
    from autosched.tir.printer import function_name

    if isinstance(name, str) and name == function_name(name):
        return
    raise ScheduleError(
        f"IRModule: no function can be named {name!r} in script; expected an identifier that "
        "is no keyword of Python: IRModule({'my_name': f}) names it"
    )


class GraphFunction(ABC):
    """What a module knows of a function of the graph level; see `autosched.graph.ir`."""

    name: str

    @abstractmethod
    def script(self) -> str:
        """The function as script text."""

    @abstractmethod
    def same(self, other: GraphFunction) -> bool:
        """Whether both are structurally equal."""

    @abstractmethod
    def renamed(self, name: str) -> GraphFunction:
        """The same function under another name."""


@dataclass(frozen=True, eq=False)
class IRModule(Shown):
    """Functions by name, in the order given; immutable.

    `functions` are those of the loop IR, `graphs` those of the graph level, `routines` those that
    run as they are written (`tir/routine.py`), each under other names.

    `IRModule({"scale": f, "add": g})` names the functions; `IRModule.of(f, g)` keeps their names.
    A name is a Python identifier, as script needs it; only a function alone keeps whatever name it
    has. Raises ScheduleError on others, and on what is no function.
    """

    functions: Mapping[str, PrimFunc] = field(default_factory=dict)
    graphs: Mapping[str, GraphFunction] = field(default_factory=dict)
    routines: Mapping[str, Routine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.functions, Mapping):
            raise ScheduleError(
                "IRModule: expected a mapping from names to functions, found "
                f"{type(self.functions).__name__}; IRModule.of(f, g) takes functions"
            )
        for what, given in (("graphs", self.graphs), ("routines", self.routines)):
            instance(what, given, Mapping, "a mapping from names to functions", ScheduleError)
        for name, func in self.functions.items():
            if not isinstance(func, PrimFunc):
                raise ScheduleError(
                    f"IRModule: expected a PrimFunc for {name!r}, found {type(func).__name__}"
                )
            if len(self) > 1 or name != func.name:
                _check_name(name)
        named = {
            name: func if func.name == name else derived(replace(func, name=name), func)
            for name, func in self.functions.items()
        }
        for name, graph in self.graphs.items():
            if not isinstance(graph, GraphFunction):
                raise ScheduleError(
                    f"IRModule: expected a graph function for {name!r}, found "
                    f"{type(graph).__name__}"
                )
            if name in named:
                raise ScheduleError(
                    f"IRModule: {name!r} names a loop function and a graph function; rename one"
                )
            _check_name(name)
        if self.graphs and self.routines:
            raise ScheduleError(
                "IRModule: a module with functions of the graph level has no routines"
            )
        for name, routine in self.routines.items():
            if not isinstance(routine, Routine):
                raise ScheduleError(
                    f"IRModule: expected a routine for {name!r}, found {type(routine).__name__}"
                )
            if name in named or name in self.graphs:
                raise ScheduleError(f"IRModule: {name!r} names a routine and another function")
            _check_name(name)
        graphs = {n: g if g.name == n else g.renamed(n) for n, g in self.graphs.items()}
        routines = {n: r if r.name == n else replace(r, name=n) for n, r in self.routines.items()}
        object.__setattr__(self, "functions", MappingProxyType(named))
        object.__setattr__(self, "graphs", MappingProxyType(graphs))
        object.__setattr__(self, "routines", MappingProxyType(routines))

    @staticmethod
    def of(*funcs: PrimFunc | Routine) -> IRModule:
        """The module of these functions, under their own names.

        Raises ScheduleError if two have the same name.
        """
        for func in funcs:
            if not isinstance(func, (PrimFunc, Routine)):
                raise ScheduleError(f"IRModule.of: expected functions, found {type(func).__name__}")
        named = {func.name: func for func in funcs}
        if len(named) < len(funcs):
            names = [func.name for func in funcs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ScheduleError(
                f"two functions named {twice!r}; name them: IRModule({{'first': f, 'second': g}})"
            )
        return IRModule(
            {n: f for n, f in named.items() if isinstance(f, PrimFunc)},
            routines={n: f for n, f in named.items() if isinstance(f, Routine)},
        )

    def __getitem__(self, name: str) -> Any:
        """The function called `name`, a PrimFunc or a function of the graph level; "main" is also
        the only one there is. Raises ScheduleError, listing the functions there are."""
        known = isinstance(name, str)
        found: Any = None
        for kind in (self.functions, self.graphs, self.routines) if known else ():
            found = kind.get(name, found)
        alone = len(self.functions) == len(list(self)) == 1
        if found is None and known and name == "main" and alone:
            return self.main
        if found is None:
            have = ", ".join(self) or "none"
            raise ScheduleError(f"no function named {shown(name)} in the module; it has {have}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter((*self.functions, *self.graphs, *self.routines))

    def __len__(self) -> int:
        return len(self.functions) + len(self.graphs) + len(self.routines)

    @property
    def main(self) -> PrimFunc:
        """The loop function `main`, or the only one there is. Raises ScheduleError for a module of
        the graph level, which `autosched.graph.build` compiles."""
        if "main" not in self.functions and len(self.functions) == 1:
            return next(iter(self.functions.values()))
        if "main" in self.routines or (self.routines and not self.functions):
            raise ScheduleError(
                "the module has routines, which run as they are written: autosched.build(module) "
                "compiles them, and nothing schedules them"
            )
        if "main" in self.graphs:
            raise ScheduleError(
                "main is a function of the graph level; autosched.graph.build(module) compiles it"
            )
        found: PrimFunc = self["main"]
        return found

    def with_function(self, name: str, func: PrimFunc | GraphFunction | Routine) -> IRModule:
        """This module with one function replaced or added."""
        if not isinstance(name, str):
            raise ScheduleError(f"IRModule: no function can be named {shown(name)}")
        functions: dict[str, PrimFunc] = {n: f for n, f in self.functions.items() if n != name}
        graphs = {n: f for n, f in self.graphs.items() if n != name}
        routines = {n: f for n, f in self.routines.items() if n != name}
        if isinstance(func, PrimFunc):
            return IRModule({**self.functions, name: func}, graphs, routines)
        if isinstance(func, Routine):
            return IRModule(functions, graphs, {**self.routines, name: func})
        return IRModule(functions, {**self.graphs, name: func}, routines)

    def same(self, other: IRModule) -> bool:
        """Whether both have the same functions under the same names, in any order; see
        `PrimFunc.same`."""
        instance("same: the other", other, IRModule, "an IRModule", ScheduleError)
        return (
            self.functions.keys() == other.functions.keys()
            and self.graphs.keys() == other.graphs.keys()
            and all(func.same(other.functions[n]) for n, func in self.functions.items())
            and all(func.same(other.graphs[n]) for n, func in self.graphs.items())
            and self.routines.keys() == other.routines.keys()
            and all(func.same(other.routines[n]) for n, func in self.routines.items())
        )

    def script(self) -> str:
        """Script text: a class with the functions, which `autosched.script.parse` reads back."""
        graphs = [func.script() for func in self.graphs.values()]
        parts = [*graphs, *(func.script() for func in self.functions.values())]
        parts += [func.script() for func in self.routines.values()]
        body = indent("\n".join(parts) or "pass\n", "    ")
        return f"@{'G.module' if self.graphs else 'T.ir_module'}\nclass Module:\n{body}"

    def __str__(self) -> str:
        return self.script()

    def __reduce__(self) -> tuple[type[IRModule], tuple[dict[str, Any], ...]]:
        return IRModule, (dict(self.functions), dict(self.graphs), dict(self.routines))

"""Algebraic data types: constructors with fields.

@G.data("A")
class List:
    Cons: (A, List[A])
    Nil: ()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from autosched.errors import WorkloadError
from autosched.graph.types import DataRef, FuncType, Type, TypeVar, parts, tuple_text, with_parts
from autosched.tir.module import GraphFunction


@dataclass(frozen=True, eq=False)
class DataType(GraphFunction):
    """A data type of a module. `params` are its type parameters; `constructors` are names with the
    types of the fields, in which the type itself may stand."""

    name: str
    params: tuple[str, ...]
    constructors: tuple[tuple[str, tuple[Type, ...]], ...]

    def script(self) -> str:
        """The data type as script text."""
        given = f'("{", ".join(self.params)}")' if self.params else ""
        rows = "".join(
            f"    {name}: {tuple_text(tuple(map(str, fields)))}\n"
            for name, fields in self.constructors
        )
        return f"@G.data{given}\nclass {self.name}:\n{rows or '    pass' + chr(10)}"

    def same(self, other: GraphFunction) -> bool:
        """Whether both have the same constructors."""
        return (
            isinstance(other, DataType)
            and self.params == other.params
            and self.constructors == other.constructors
        )

    def renamed(self, name: str) -> DataType:
        """The same data type under another name."""

        def named(t: Type) -> Type:
            inside = [named(x) for x in parts(t)]
            if isinstance(t, DataRef) and t.name == self.name:
                return DataRef(name, tuple(inside))
            return with_parts(t, inside) if inside else t

        return DataType(
            name, self.params, tuple((n, tuple(map(named, fs))) for n, fs in self.constructors)
        )


class Constructor(NamedTuple):
    """A constructor with the data type that it is of, and its fields."""

    name: str
    data: DataType
    fields: tuple[Type, ...]

    @property
    def type(self) -> FuncType:
        """As a function of its fields, over the type parameters of the data type."""
        args = tuple(map(TypeVar, self.data.params))
        return FuncType(self.fields, (DataRef(self.data.name, args),))


def constructors(graphs: Mapping[str, GraphFunction]) -> dict[str, Constructor]:
    """Constructors by name. Raises WorkloadError where two have one name, or one has the name of a
    function."""
    found: dict[str, Constructor] = {}
    for data in graphs.values():
        if not isinstance(data, DataType):
            continue
        for name, fields in data.constructors:
            if name in found or name in graphs:
                other = found[name].data.name if name in found else "the module"
                raise WorkloadError(
                    f"the constructor {name} of {data.name} has the name of something in {other}; "
                    "rename one"
                )
            found[name] = Constructor(name, data, fields)
    return found

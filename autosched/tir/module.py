"""Modules: the functions that are built, printed and scheduled together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from textwrap import indent
from types import MappingProxyType

from autosched.errors import ScheduleError
from autosched.tir.nodes import PrimFunc


def _check_name(name: object) -> None:
    from autosched.tir.printer import function_name

    if isinstance(name, str) and name == function_name(name):
        return
    raise ScheduleError(
        f"IRModule: no function can be named {name!r} in script; expected an identifier that "
        "is no keyword of Python: IRModule({'my_name': f}) names it"
    )


@dataclass(frozen=True, eq=False)
class IRModule:
    """Functions by name, in the order given; immutable.

    `IRModule({"scale": f, "add": g})` names the functions; `IRModule.of(f, g)` keeps their names.
    A name is a Python identifier, as script needs it; only a function alone keeps whatever name it
    has. Raises ScheduleError on others, and on what is no function.
    """

    functions: Mapping[str, PrimFunc] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.functions, Mapping):
            raise ScheduleError(
                "IRModule: expected a mapping from names to functions, found "
                f"{type(self.functions).__name__}; IRModule.of(f, g) takes functions"
            )
        for name, func in self.functions.items():
            if not isinstance(func, PrimFunc):
                raise ScheduleError(
                    f"IRModule: expected a PrimFunc for {name!r}, found {type(func).__name__}"
                )
            if len(self.functions) > 1 or name != func.name:
                _check_name(name)
        named = {
            name: func if func.name == name else replace(func, name=name)
            for name, func in self.functions.items()
        }
        object.__setattr__(self, "functions", MappingProxyType(named))

    @staticmethod
    def of(*funcs: PrimFunc) -> IRModule:
        """The module of these functions, under their own names.

        Raises ScheduleError if two have the same name.
        """
        for func in funcs:
            if not isinstance(func, PrimFunc):
                raise ScheduleError(f"IRModule.of: expected functions, found {type(func).__name__}")
        named = {func.name: func for func in funcs}
        if len(named) < len(funcs):
            names = [func.name for func in funcs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ScheduleError(
                f"two functions named {twice!r}; name them: IRModule({{'first': f, 'second': g}})"
            )
        return IRModule(named)

    def __getitem__(self, name: str) -> PrimFunc:
        """The function called `name`. Raises ScheduleError, listing the functions there are."""
        if name not in self.functions:
            have = ", ".join(self.functions) or "none"
            raise ScheduleError(f"no function named {name!r} in the module; it has {have}")
        return self.functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    @property
    def main(self) -> PrimFunc:
        """The function `main`, or the only one there is."""
        if "main" not in self.functions and len(self.functions) == 1:
            return next(iter(self.functions.values()))
        return self["main"]

    def with_function(self, name: str, func: PrimFunc) -> IRModule:
        """This module with one function replaced or added."""
        return IRModule({**self.functions, name: func})

    def same(self, other: IRModule) -> bool:
        """Whether both have the same functions under the same names, in any order; see
        `PrimFunc.same`."""
        return self.functions.keys() == other.functions.keys() and all(
            func.same(other[name]) for name, func in self.functions.items()
        )

    def script(self) -> str:
        """Script text: a class with the functions, which `autosched.script.parse` reads back."""
        parts = [func.script() for func in self.functions.values()]
        body = indent("\n".join(parts) or "pass\n", "    ")
        return f"@T.ir_module\nclass Module:\n{body}"

    def __str__(self) -> str:
        return self.script()

    def __reduce__(self) -> tuple[type[IRModule], tuple[dict[str, PrimFunc]]]:
        return IRModule, (dict(self.functions),)

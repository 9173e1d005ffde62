"""Script text to programs: `parse`, and the decorators for functions in source files.

Text is read by Python's own parser and never executed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Union

import numpy as np

from autosched.checks import instance
from autosched.errors import ScriptError
from autosched.script.limits import LIMITS, Budget, Limits, scan
from autosched.script.opaque import ProgramReader
from autosched.script.routines import RoutineReader
from autosched.script.source import Source
from autosched.tir.admit import admitted
from autosched.tir.inequalities import deadline
from autosched.tir.module import GraphFunction, IRModule
from autosched.tir.nodes import PrimFunc
from autosched.tir.routine import Routine
from autosched.tir.verify_routine import verify_routine

_FUNCTION, _MODULE = ("prim_func", "T.prim_func"), ("ir_module", "T.ir_module", "I.ir_module")
_ROUTINE = ("routine", "T.routine")
_GRAPH = "G.module"
Program = Union[PrimFunc, Routine]
"""What a function of a text becomes."""


def parse(
    text: str,
    *,
    check: bool = True,
    limits: Limits = LIMITS,
    constants: Mapping[str, Any] | None = None,
) -> PrimFunc | Routine | IRModule:
    """The program that `text` is the script of: the inverse of `PrimFunc.script()`.

    One function gives a PrimFunc, or a Routine if it is decorated with `@T.routine`; several, or a
    class decorated with `ir_module`, an IRModule. Decorators are these and `@T.prim_func`; imports
    and docstrings may stand before them.
    A class decorated with `G.module` has functions of the graph level as well; `constants` gives
    its large constants, by the digests that stand in the text.
    With `check`, every function is verified, so that none with an access that is not provably in
    bounds gets further; pass False for a program that is only to be looked at.

    Raises ScriptError, showing line and column, for text that is no script or beyond `limits`, and
    VerifyError for a program that breaks a rule of the loop IR.
    """
    if not isinstance(text, str):
        raise ScriptError(f"a script is a string, found {type(text).__name__}")
    instance("check", check, bool, "True or False", ScriptError)
    instance("limits", limits, Limits, "script.Limits", ScriptError)
    source = Source(text)
    scan(source, limits)
    budget = Budget(source, limits)
    try:
        tree = _tree(source)
        read: dict[str, Program] = {}
        graphs: dict[str, GraphFunction] = {}
        is_module = False
        for s in tree.body:
            if isinstance(s, ast.ClassDef):
                is_module = True
                if read or len([x for x in tree.body if isinstance(x, ast.ClassDef)]) > 1:
                    raise source.error(s, "expected one module, or functions, not both")
                if [ast.unparse(d)[:20] for d in s.decorator_list] == [_GRAPH]:
                    graphs = _graphs(source, budget, s, read, constants or {})
                else:
                    _class(source, budget, s, read)
            elif isinstance(s, ast.FunctionDef):
                if is_module:
                    raise source.error(s, "expected one module, or functions, not both")
                _add(source, budget, s, read)
            elif not _is_prelude(s):
                raise source.error(s, "expected @T.prim_func and a function, or @ir_module")
        if not read and not is_module:
            raise source.error_at(
                1, 0, "the script has no function; expected @T.prim_func and `def`"
            )
        if check:
            with deadline(max(budget.seconds_left, 0.0)):
                for func in read.values():
                    if isinstance(func, Routine):
                        verify_routine(func)
                    else:
                        admitted(func, source.places)
    except (RecursionError, MemoryError) as e:  # MemoryError is what Python's parser says
        raise source.error_at(source.longest_line(), 0, "the script nests too deeply here") from e
    functions = list(read.values())
    if not is_module and len(functions) == 1:
        return functions[0]
    prims = {n: f for n, f in read.items() if isinstance(f, PrimFunc)}
    routines = {n: f for n, f in read.items() if isinstance(f, Routine)}
    return IRModule(prims, graphs, routines)


def parse_func(text: str, *, check: bool = True, limits: Limits = LIMITS) -> PrimFunc:
    """`parse` of the text of one function. Raises ScriptError if there are several."""
    found = parse(text, check=check, limits=limits)
    if isinstance(found, PrimFunc):
        return found
    if isinstance(found, Routine):
        raise ScriptError(f"{found.name} is a routine; expected a function of @T.prim_func")
    if len(found) != 1:
        raise ScriptError(f"expected one function, found {', '.join(found)}")
    return found.main


def parse_module(text: str, *, check: bool = True, limits: Limits = LIMITS) -> IRModule:
    """`parse` of any text, as a module."""
    found = parse(text, check=check, limits=limits)
    return found if isinstance(found, IRModule) else IRModule.of(found)


def prim_func(func: Union[Callable[..., Any], PrimFunc]) -> PrimFunc:
    """The decorated function as a program, read from its source file; it never runs.

    Numbers of the module and of the functions around it may stand in it by name.
    Raises ScriptError, naming file and line, and VerifyError, as `parse` does.
    """
    if isinstance(func, PrimFunc):
        return func
    source, node = _decorated_source(func, "prim_func")
    try:
        found = ProgramReader(source, Budget(source, LIMITS), node, _constants(func)).read()
        admitted(found, source.places)
    except RecursionError as e:
        raise ScriptError(f"{func.__name__} nests too deeply to be read") from e
    return found


def routine(func: Union[Callable[..., Any], Routine]) -> Routine:
    """The decorated function as a routine, read as `prim_func` reads a program."""
    if isinstance(func, Routine):
        return func
    source, node = _decorated_source(func, "routine")
    try:
        reader = RoutineReader(source, Budget(source, LIMITS), node, _constants(func))
        return verify_routine(reader.routine())
    except RecursionError as e:
        raise ScriptError(f"{func.__name__} nests too deeply to be read") from e


def _decorated_source(func: object, name: str) -> tuple[Source, ast.FunctionDef]:
    """The text of a function that a decorator is applied to, and its node."""
    if not inspect.isfunction(func):
        raise ScriptError(f"@{name} decorates a function, found {type(func).__name__}")
    source = _source_of(func)
    scan(source, LIMITS)
    body = _tree(source).body
    if len(body) != 1:  # Python 3.13 takes the text of `python -c` for that of any "<string>"
        raise ScriptError(
            f"the source of {func.__name__} cannot be read (other code stands in its place); "
            "use autosched.script.parse(text)"
        )
    (node,) = body
    if not isinstance(node, ast.FunctionDef):
        raise source.error(node, f"@{name} decorates a function written with `def`")
    return source, node


def ir_module(cls: type) -> IRModule:
    """The decorated class as a module of the functions in it, which are decorated by prim_func.

    Raises ScriptError if it has none.
    """
    instance("ir_module: what is decorated", cls, type, "a class", ScriptError)
    functions = {name: f for name, f in vars(cls).items() if isinstance(f, PrimFunc)}
    routines = {name: f for name, f in vars(cls).items() if isinstance(f, Routine)}
    if not functions and not routines:
        raise ScriptError(f"class {cls.__name__} has no function decorated with prim_func")
    return IRModule(functions, routines=routines)


def _tree(source: Source) -> ast.Module:
    try:
        return ast.parse(source.text)
    except SyntaxError as e:
        line, column = e.lineno or 1, max((e.offset or 1) - 1, 0)
        end = (e.end_offset or 1) - 1 if e.end_lineno == e.lineno else 0
        raise source.error_at(line, column, f"no Python syntax: {e.msg}", end) from e
    except UnicodeEncodeError as e:
        before = source.text[: e.start]
        column = e.start - (before.rfind("\n") + 1)
        line = before.count("\n") + 1
        raise source.error_at(line, column, "half a surrogate pair, which is no text") from e
    except ValueError as e:  # a NUL, for older versions of Python
        raise source.error_at(1, 0, f"the text is no Python: {e}") from e


def _is_prelude(s: ast.stmt) -> bool:
    """A docstring, or an import, which means nothing here."""
    if isinstance(s, ast.Expr):
        return isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)
    return isinstance(s, (ast.Import, ast.ImportFrom))


def _class(source: Source, budget: Budget, s: ast.ClassDef, read: dict[str, Program]) -> None:
    _decorated(source, s, _MODULE)
    if s.bases or s.keywords:
        raise source.error(s, "a module has no base classes")
    for n in s.body:
        if isinstance(n, ast.FunctionDef):
            _add(source, budget, n, read)
        elif not (_is_prelude(n) or isinstance(n, ast.Pass)):
            raise source.error(n, "expected @T.prim_func and a function")


def _graphs(
    source: Source,
    budget: Budget,
    s: ast.ClassDef,
    read: dict[str, Program],
    constants: Mapping[str, Any],
) -> dict[str, GraphFunction]:
    """The graph functions and data types of a module; its loop functions go into `read`."""
    from autosched.graph.reader import ModuleReader

    reader = ModuleReader(source, budget, constants)
    for n in s.body:
        decorators = n.decorator_list if isinstance(n, (ast.ClassDef, ast.FunctionDef)) else []
        decorator = ast.unparse(decorators[0])[:20] if decorators else ""
        if isinstance(n, ast.ImportFrom) and n.module == "prelude" and not n.level:
            reader.take(n)
        elif isinstance(n, ast.ClassDef) and decorator.startswith("G.data"):
            reader.declare(n)
        elif isinstance(n, ast.FunctionDef) and decorator.startswith("G.function"):
            if n.name in read:
                raise source.error(n, f"two definitions are named {n.name}")
            reader.declare(n)
        elif isinstance(n, ast.FunctionDef):
            if n.name in reader.nodes:
                raise source.error(n, f"two definitions are named {n.name}")
            _add(source, budget, n, read)
        elif not (_is_prelude(n) or isinstance(n, ast.Pass)):
            raise source.error(
                n, "expected @G.function or @T.prim_func and a function, or @G.data and a class"
            )
    return reader.finish()


def _add(source: Source, budget: Budget, s: ast.FunctionDef, read: dict[str, Program]) -> None:
    is_routine = [ast.unparse(d)[:20] in _ROUTINE for d in s.decorator_list] == [True]
    if not is_routine:
        _decorated(source, s, _FUNCTION)
    if s.name in read:
        raise source.error(s, f"two functions are named {s.name}")
    if is_routine:
        read[s.name] = RoutineReader(source, budget, s).routine()
    else:
        read[s.name] = ProgramReader(source, budget, s).read()


def _decorated(source: Source, s: ast.FunctionDef | ast.ClassDef, names: tuple[str, ...]) -> None:
    if len(s.decorator_list) != 1 or ast.unparse(s.decorator_list[0])[:20] not in names:
        place = s.decorator_list[-1] if s.decorator_list else s
        raise source.error(place, f"expected the decorator @{names[1]} and no other")


def _source_of(func: Callable[..., Any]) -> Source:
    try:
        lines, first = inspect.getsourcelines(func)
        file = inspect.getsourcefile(func) or ""
    except (OSError, TypeError) as e:
        raise ScriptError(
            f"the source of {func.__name__} cannot be read ({e}); use autosched.script.parse(text)"
        ) from e
    text = "".join(lines)
    moved = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip())
    return Source(moved, file, first, indent if moved != text else 0)


def _constants(func: Callable[..., Any]) -> dict[str, int | float]:
    """Numbers that the function may name: of its module, then of the functions around it."""
    code, cells = getattr(func, "__code__", None), getattr(func, "__closure__", None)
    found = dict(getattr(func, "__globals__", {}))
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    numbers = {k: _number(v) for k, v in found.items()}
    return {k: v for k, v in numbers.items() if v is not None}


def _number(value: object) -> int | float | None:
    """A number, or a scalar of NumPy that is an integer, as Python's own; None for what is none."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, float) else None

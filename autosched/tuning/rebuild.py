"""Python text that makes a task again: by name, by the source of its function, or from its file."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from autosched.ops import OPERATORS
from autosched.te import create_prim_func
from autosched.tir.canonical import workload_key

if TYPE_CHECKING:
    from autosched.tuning.task import SearchTask

_TAKEN = {"apply", "make_task", "at"}
"""Names that the printed module uses itself."""

_IMPORT = "import autosched as at"

_UNKNOWN = '''\
def make_task():
    """The workload was tuned as loop IR (shown above), not from a function that could be named."""
    raise SystemExit("return at.SearchTask(prim_func=...) of the workload from make_task")
'''


@dataclass(frozen=True)
class TaskSource:
    """Text of a module: its imports, and functions of which `make_task()` returns the task."""

    text: str
    imports: tuple[str, ...] = (_IMPORT,)


def task_source(task: SearchTask, target: str) -> TaskSource:
    """What makes `task`, with `target`, in a module that stands alone.

    An operator of the library is named. A function of the user's stands there as it was written if
    with its imports it gives the same workload, else the file that has it is named. Where neither
    can be, as for a bare PrimFunc, `make_task` says what to put there.
    """
    if task.func is None or task.args is None:
        return TaskSource(_UNKNOWN)
    name = getattr(task.func, "__name__", "")
    if OPERATORS.get(name) is task.func:
        return TaskSource(_make_task(_literal(name), task.args, target))
    source, imports = _source(task.func), _imports(task.func)
    if source is not None and _is_enough(source, imports, name, task.args, task.workload_key):
        text = f"{source}\n\n{_make_task(name, task.args, target)}"
        return TaskSource(text, tuple(dict.fromkeys((_IMPORT, *imports))))
    file = _file(task.func)
    if file is not None:
        return TaskSource(_make_task(_literal(f"{file}:{name}"), task.args, target))
    return TaskSource(_UNKNOWN)


def _make_task(func: str, args: tuple[Any, ...], target: str) -> str:
    return (
        "def make_task():\n"
        '    """The workload and the target that it was tuned for."""\n'
        f"    return at.SearchTask(func={func}, args={_literal(args)}, target={_literal(target)})\n"
    )


def _literal(value: Any) -> str:
    """Python text of an argument, strings in double quotes."""
    if isinstance(value, tuple):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _source(func: Callable[..., Any]) -> str | None:
    """The `def` of a function without its decorators, None if it cannot be had."""
    try:
        text = textwrap.dedent(inspect.getsource(func))
        (node,) = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.FunctionDef) or node.name in _TAKEN:
        return None
    return "\n".join(text.splitlines()[node.lineno - 1 :]) + "\n"


def _imports(func: Callable[..., Any]) -> list[str]:
    """Import statements for the modules that a function uses under global names."""
    code = getattr(func, "__code__", None)
    found = []
    for name in sorted(set(_names(code))) if code is not None else ():
        module = getattr(func, "__globals__", {}).get(name)
        if isinstance(module, ModuleType):
            package, _, last = module.__name__.rpartition(".")
            plain = f"from {package} import {last}" if package else f"import {last}"
            found.append(plain if name == last else f"{plain} as {name}")
    return found


def _names(code: CodeType) -> Iterator[str]:
    """Names that code, and the functions inside it, looks up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_enough(source: str, imports: list[str], name: str, args: tuple[Any, ...], key: str) -> bool:
    """Whether `source` and `imports` alone give the workload `key`."""
    names: dict[str, Any] = {}
    try:
        exec(compile("\n".join([*imports, _IMPORT, source]), f"<{name}>", "exec"), names)
        return workload_key(create_prim_func(names[name](*args))) == key
    except Exception:
        return False  # with its own module it works: it needs something else of that


def _file(func: Callable[..., Any]) -> Path | None:
    """The Python file that has `func` at its top, None if there is none."""
    if getattr(func, "__qualname__", "") != getattr(func, "__name__", None):
        return None
    try:
        file = inspect.getsourcefile(func)
    except TypeError:
        return None
    path = None if file is None else Path(file).absolute()
    return path if path is not None and path.is_file() else None

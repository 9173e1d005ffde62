"""Workloads: functions that make tensors from sizes, under names that records can keep."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, Union, overload

from autosched.checks import shown
from autosched.errors import WorkloadError
from autosched.integers import plain
from autosched.te import Tensor, create_prim_func
from autosched.tir.nodes import PrimFunc

WorkloadFunc = Callable[..., Sequence[Tensor]]
F = TypeVar("F", bound=WorkloadFunc)
FuncOrName = Union[WorkloadFunc, str]

_registered: dict[str, WorkloadFunc] = {}


@overload
def register_workload(func: F, *, name: str | None = ..., override: bool = ...) -> F: ...
@overload
def register_workload(func: str, f: F, *, override: bool = ...) -> F: ...
@overload
def register_workload(
    func: str | None = ..., *, name: str | None = ..., override: bool = ...
) -> Callable[[F], F]: ...
def register_workload(
    func: Any = None, f: Any = None, *, name: str | None = None, override: bool = False
) -> Any:
    """Register a function under its name, so that it can be named in a SearchTask.

    Used as `@register_workload`, `@register_workload(name="mine", override=True)`, or called as
    `register_workload(f, name="mine")` or `register_workload("mine", f)`. Returns the function.
    A name of the operator library may be taken: the registered function goes first.

    Raises WorkloadError if the name is taken, unless `override`.
    """
    if isinstance(func, str):
        if name is not None:
            raise WorkloadError(f"register_workload has two names: {func!r} and {name!r}")
        func, name = f, func

    def register(function: F) -> F:
        if not callable(function):
            raise WorkloadError(f"register_workload expects a function, found {function!r}")
        label = getattr(function, "__name__", "") if name is None else name
        if not isinstance(label, str):
            raise WorkloadError(f"the name of a workload is {shown(label)}; expected a text")
        if not label or label == "<lambda>":
            raise WorkloadError("a workload without a name of its own needs name=")
        if not label.isprintable():
            raise WorkloadError(f"the name of a workload is {label!r}; expected printable text")
        if _registered.get(label, function) is not function and not override:
            raise WorkloadError(
                f"a workload named {label!r} is registered already "
                f"({_place(_registered[label])}); pass override=True to replace it"
            )
        _registered[label] = function
        return function

    return register if func is None else register(func)


def _place(function: WorkloadFunc) -> str:
    module = getattr(function, "__module__", "?")
    return f"{module}.{getattr(function, '__qualname__', '?')}"


def get_workload(func_or_name: FuncOrName) -> WorkloadFunc:
    """The function itself, the registered one, that of a file ("file.py:function", see
    `load_function`), or the library's operator of that name.

    Raises WorkloadError, listing the known names.
    """
    if callable(func_or_name):
        return func_or_name
    if not isinstance(func_or_name, str):
        raise WorkloadError(f"expected a workload function or its name, found {func_or_name!r}")
    if ":" in func_or_name:
        return load_function(func_or_name)
    found = _registered.get(func_or_name)
    if found is not None:
        return found
    from autosched.ops import OPERATORS

    operator = OPERATORS.get(func_or_name)
    if operator is None:
        known = sorted({*_registered, *OPERATORS})
        near = difflib.get_close_matches(func_or_name[:80], known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise WorkloadError(
            f"no workload named {func_or_name!r}{hint}; known: {', '.join(known)}; "
            "a function of your own is named file.py:function"
        )
    return operator


def workload_name(func_or_name: FuncOrName) -> str:
    """The name under which a workload is printed and recorded."""
    if isinstance(func_or_name, str):
        return func_or_name
    for label, function in _registered.items():
        if function is func_or_name:
            return label
    return str(getattr(func_or_name, "__name__", "workload"))


DEEPEST = 16
"""Lists in lists that an argument may be."""


def check_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` as a tuple of ints, finite floats, strings, bools and tuples of these; lists become
    tuples.

    Raises WorkloadError on anything else: arguments are kept in records as JSON.
    """

    def check(value: Any, depth: int = 0) -> Any:
        if isinstance(value, (list, tuple)):
            if depth == DEEPEST:
                raise WorkloadError(
                    f"arguments of a workload are lists in lists up to {DEEPEST} deep; found a "
                    "deeper one"
                )
            return tuple(check(v, depth + 1) for v in value)
        value = plain(value)
        if isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value)):
            return value
        raise WorkloadError(
            f"argument {value!r} of a workload is a {type(value).__name__}; "
            "expected ints, finite floats, strings, bools or tuples of them"
        )

    if isinstance(args, (str, bytes)) or not isinstance(args, (list, tuple)):
        raise WorkloadError(f"arguments of a workload are {args!r}; expected a tuple")
    return tuple(check(a) for a in args)


def tensors_of(func_or_name: FuncOrName, args: Sequence[Any]) -> list[Tensor]:
    """The tensors, inputs and outputs, of a workload on `args`.

    Raises WorkloadError on an unknown name, on arguments that do not fit the signature, and if the
    function returns something else than tensors; what the function itself raises passes through.
    """
    function, name = get_workload(func_or_name), workload_name(func_or_name)
    values = check_args(args)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise WorkloadError(
            f"workload {name} does not say what it takes: {error}; wrap it in a function"
        ) from error
    try:
        bound = signature.bind(*values)
    except TypeError as error:
        raise WorkloadError(
            f"arguments {values!r} do not fit {name}{_shown(signature)}: {error}"
        ) from error
    _check_types(name, signature, bound)
    result = function(*values)
    if isinstance(result, Tensor):
        result = [result]
    if not isinstance(result, (list, tuple)) or not all(isinstance(t, Tensor) for t in result):
        raise WorkloadError(
            f"workload {name} returned {result!r}; expected a list of tensors, inputs and outputs"
        )
    return list(result)


def _shown(signature: inspect.Signature) -> str:
    """The signature without its annotations, which may be long."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(plain))


TYPES: dict[Any, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
}


def _check_types(name: str, signature: inspect.Signature, bound: inspect.BoundArguments) -> None:
    """Where the signature states a simple type, the argument must have it."""
    for argument, value in bound.arguments.items():
        stated = signature.parameters[argument].annotation
        stated = getattr(stated, "__name__", stated)
        wanted = TYPES.get(stated) if isinstance(stated, str) else None
        if (
            wanted is None
            or signature.parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL
        ):
            continue
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise WorkloadError(
                f"argument {argument} of {name}{_shown(signature)} is {value!r}; expected {stated}"
            )


def prim_func_of(func_or_name: FuncOrName, args: Sequence[Any]) -> PrimFunc:
    """The loop IR of a workload on `args`, not scheduled. Errors are those of `tensors_of` and
    of `te.create_prim_func`."""
    return create_prim_func(tensors_of(func_or_name, args))


def load_function(spec: str) -> WorkloadFunc:
    """The function `fn` of the Python file in `"path/to/file.py:fn"`, which is executed.

    Raises WorkloadError if the file or the function is not there, or if the file fails.
    """
    path_text, separator, name = spec.rpartition(":")
    if not separator or not path_text or not name.isidentifier():
        raise WorkloadError(f"{spec!r} does not name a function; expected file.py:function")
    path = Path(os.path.expanduser(path_text)).resolve()  # an unknown ~user stays
    if not path.is_file():
        raise WorkloadError(f"no file {path} (from {spec!r})")
    # The name must differ by path: two files called model.py are two modules.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    module_name = f"autosched_workload_{path.stem}_{digest}"
    module = sys.modules.get(module_name)
    if module is None:
        module = _load(module_name, path)
    function = getattr(module, name, None)
    if not callable(function):
        raise WorkloadError(f"{path} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def _load(module_name: str, path: Path) -> Any:
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise WorkloadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise WorkloadError(f"{path} failed: {type(error).__name__}: {error}") from error
    return module

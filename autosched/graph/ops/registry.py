"""The registry of operators: one definition each.

    @operator("Softmax")
    def softmax(x, *, axis=-1): ...         # tensors in, tensors out

The definition is all there is: parameters are the operator's inputs (None where one is left out)
and keyword-only parameters its attributes with their defaults. Shapes, dtypes, and what it may be
fused with are read off what it computes (`autosched.graph.infer`). Names are those of ONNX.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from autosched.errors import WorkloadError


class Known(NamedTuple):
    """What is known of an input before a host operator runs; `value` of constants only."""

    shape: tuple[int, ...]
    dtype: str
    value: Any = None


Results = Sequence[tuple[Sequence[int], str]]
"""Shape and dtype of each result."""


def like_first(x: Known, *others: Known | None, **attrs: Any) -> Results:
    """The type of the first input."""
    return [(x.shape, x.dtype)]


@dataclass(frozen=True, eq=False)
class Operator:
    """One row of the registry.

    `compute` is the definition. `static` are inputs that must be known when it is compiled, by
    position: they become attributes. A `host` operator computes in NumPy, on arrays, between
    kernels: its results are sized by data, or te cannot say it; a definition may have both.
    `spatial`: the axes of its data are N, C and positions, so that it wants them channels last.
    `result` gives shapes and dtypes of the results of a host operator from what is known of its
    inputs; without it they are known only when it has run, and so is all that follows.
    `kernel` is a definition by a routine (`ops/routines.py`), which compiled models run in place of
    NumPy; it raises Unsupported for what it has no form of.
    """

    name: str
    compute: Callable[..., Any] | None
    static: Mapping[int, str] = field(default_factory=dict)
    host: Callable[..., Any] | None = None
    spatial: bool = False
    result: Callable[..., Results | None] | None = None
    kernel: Callable[..., Any] | None = None

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Of the definition."""
        found = self.compute or self.host
        assert found is not None
        return inspect.signature(found).parameters

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes with their defaults; `inspect.Parameter.empty` where one is required."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        return {n: p.default for n, p in self.parameters.items() if p.kind is keyword}

    @cached_property
    def counts(self) -> tuple[int, int | None]:
        """The least and the greatest number of inputs; None: any."""
        plain = [p for p in self.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        several = any(p.kind is p.VAR_POSITIONAL for p in self.parameters.values())
        least = sum(p.default is p.empty for p in plain)
        return least, None if several else len(plain)

    @property
    def is_host(self) -> bool:
        """Whether it is computed between kernels, if no routine does."""
        return self.compute is None


OPERATORS: dict[str, Operator] = {}
"""Operators by ONNX's name; those of other domains as `domain.Name`."""
_BY_PYTHON_NAME: dict[str, str] = {}


def operator(
    name: str,
    static: Mapping[int, str] | None = None,
    host: Callable[..., Any] | None = None,
    spatial: bool = False,
    attrs_of: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the definition of an operator. The keyword-only parameters of `attrs_of`, to
    which a definition passes on what it does not name, are attributes, too."""

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        if attrs_of is not None:
            compute.__signature__ = _joined(compute, attrs_of)  # type: ignore[attr-defined]
        add(Operator(name, compute, dict(static or {}), host, spatial))
        return compute

    return register


def _joined(compute: Callable[..., Any], attrs_of: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a definition, its `**attrs` replaced by those of `attrs_of`."""
    own = inspect.signature(compute).parameters.values()
    named = {p.name: p for p in own if p.kind is not p.VAR_KEYWORD}
    others = inspect.signature(attrs_of).parameters.values()
    more = [p for p in others if p.kind is p.KEYWORD_ONLY and p.name not in named]
    return inspect.Signature([*named.values(), *more])


def host_operator(
    name: str,
    result: Callable[..., Results | None] | None = None,
    kernel: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: an operator that NumPy computes, on arrays. Between kernels, or, where there is
    a `kernel`, in the evaluator alone."""

    def register(host: Callable[..., Any]) -> Callable[..., Any]:
        add(Operator(name, None, {}, host, result=result, kernel=kernel))
        return host

    return register


def add(row: Operator) -> None:
    """Register a row. Raises WorkloadError if the name is taken."""
    if row.name in OPERATORS:
        raise WorkloadError(f"the operator {row.name} is defined twice")
    OPERATORS[row.name] = row
    _BY_PYTHON_NAME[python_name(row.name)] = row.name


_ONE_WORD = {"MatMul": "Matmul", "PRelu": "Prelu", "CumSum": "Cumsum", "ArgM": "Argm", "NaN": "nan"}


def python_name(name: str) -> str:
    """`global_average_pool` for `GlobalAveragePool`, `lstm` for `LSTM`; dots become underscores."""
    for written, meant in _ONE_WORD.items():
        name = name.replace(written, meant)
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    found = spaced.replace(".", "_").lower()
    return f"{found}_" if found in ("and", "or", "not", "if") else found


def named(python: str) -> Operator | None:
    """The operator that Python code calls so."""
    name = _BY_PYTHON_NAME.get(python)
    return None if name is None else OPERATORS[name]


def find(name: str) -> Operator:
    """The operator of a name. Raises WorkloadError with the nearest there are."""
    if name not in OPERATORS:
        import difflib

        near = ", ".join(difflib.get_close_matches(name, OPERATORS, 3, 0.5)) or "none like it"
        raise WorkloadError(f"no operator is named {name!r}; there is {near}")
    return OPERATORS[name]

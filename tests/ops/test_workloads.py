"""Registering and finding workloads, and every way of calling them wrongly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched import te, workloads
from autosched.errors import TensorExprError, WorkloadError
from autosched.workloads import (
    get_workload,
    load_function,
    prim_func_of,
    register_workload,
    tensors_of,
    workload_name,
)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "_registered", {})


def double(n: int, dtype: str = "float32") -> list[te.Tensor]:
    A = te.placeholder((n,), name="A", dtype=dtype)
    return [A, te.compute((n,), lambda i: A[i] + A[i], name="B")]


def test_ways_to_register() -> None:
    assert register_workload(double) is double
    assert register_workload(name="twice")(double) is double
    assert register_workload("again", double) is double
    assert register_workload(double, name="once_more") is double
    for name in ("double", "twice", "again", "once_more"):
        assert get_workload(name) is double
        assert [t.name for t in tensors_of(name, (3,))] == ["A", "B"]
    assert workload_name(double) == "double"
    assert workload_name("twice") == "twice"


def test_a_name_taken() -> None:
    register_workload(double)
    register_workload(double)  # the same function is no conflict

    def other(n: int) -> Any:
        return double(n)

    with pytest.raises(WorkloadError, match=r"named 'double' is registered already .*double"):
        register_workload(other, name="double")
    register_workload(other, name="double", override=True)
    assert get_workload("double") is other


def test_a_name_that_no_log_takes() -> None:
    with pytest.raises(WorkloadError, match=r"is 'a\\nb'; expected printable text"):
        register_workload(double, name="a\nb")


def test_a_registered_function_goes_before_the_library() -> None:
    register_workload(double, name="matmul")
    assert get_workload("matmul") is double


def test_library_names() -> None:
    assert [b.name for b in prim_func_of("matmul_add", (2, 3, 4)).params] == ["A", "B", "C", "out"]
    assert prim_func_of(double, [3]).params[0].shape == (3,)
    assert prim_func_of(double, (np.int64(3), "float64")).params[0].dtype == "float64"


def one_tensor(n: int) -> te.Tensor:
    return te.compute((n,), lambda i: te.const(1.0), name="ones")


def test_a_single_tensor_will_do() -> None:
    assert [b.name for b in prim_func_of(one_tensor, (3,)).params] == ["ones"]


@pytest.mark.parametrize(
    ("func", "args", "message"),
    [
        ("no_such", (), "no workload named 'no_such'; known: argmax, batch_matmul"),
        (3, (), "expected a workload function or its name, found 3"),
        ("matmul", (1, 2), "arguments (1, 2) do not fit matmul(N, L, M, dtype='float32')"),
        ("matmul", (1, 2, 3, "float32", 4), "too many positional arguments"),
        ("matmul", (1, 2, 3.5), "argument M of matmul(N, L, M, dtype='float32')"),
        ("matmul", (1, 2, True), "is True; expected int"),
        ("matmul", (1, 2, 3, 32), "is 32; expected str"),
        ("matmul", 3, "arguments of a workload are 3; expected a tuple"),
        ("matmul", (1, 2, object), "of a workload is a type; expected ints, finite floats"),
        ("matmul", (1, 2, None), "argument None of a workload is a NoneType"),
        ("matmul", (1, 2, float("nan")), "argument nan of a workload is a float"),
        (lambda n: n, (3,), "returned 3; expected a list of tensors"),
    ],
)
def test_refusals(func: Any, args: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(message)):
        tensors_of(func, args)


def test_refused_registrations() -> None:
    with pytest.raises(WorkloadError, match="a workload without a name"):
        register_workload(lambda n: double(n))
    with pytest.raises(WorkloadError, match="expects a function, found 3"):
        register_workload(3)  # type: ignore[call-overload]
    with pytest.raises(WorkloadError, match="two names: 'a' and 'b'"):
        register_workload("a", double, name="b")  # type: ignore[call-overload]


def test_errors_of_the_function_pass_through() -> None:
    with pytest.raises(TensorExprError, match="dtype of placeholder A is 'float31'"):
        tensors_of(double, (3, "float31"))


def test_functions_from_files(tmp_path: Path) -> None:
    path = tmp_path / "my model.py"
    path.write_text(
        "from autosched import te\n"
        "def f(n):\n"
        "    return [te.compute((n,), lambda i: te.const(2.0), name='twos')]\n"
        "value = 3\n"
    )
    f = load_function(f"{path}:f")
    assert load_function(f"{path}:f") is f
    assert [t.name for t in tensors_of(f, (2,))] == ["twos"]
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    for spec, message in [
        ("model.py", "'model.py' does not name a function; expected file.py:function"),
        (f"{tmp_path}/none.py:f", "no file"),
        (f"{path}:g", "has no function 'g'"),
        (f"{path}:value", "has no function 'value'"),
        (f"{broken}:f", "failed: ZeroDivisionError: division by zero"),
    ]:
        with pytest.raises(WorkloadError, match=re.escape(message)):
            load_function(spec)

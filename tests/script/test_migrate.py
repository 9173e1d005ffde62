"""TVMScript rewritten: what is made of a program computes what the program does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tvmscript_oracle import execute
from tvmscript_programs import ACCEPTED, HEAD, REFUSED

import autosched as at
from autosched.errors import ScriptError
from autosched.script import parse_func
from autosched.script.migrate import migrate
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, loops_of


def arguments(func: PrimFunc, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.random(b.shape).astype(b.dtype)
        if b.dtype.startswith("float")
        else rng.integers(0, 9, b.shape).astype(b.dtype)
        for b in func.params
    ]


def test_each_form_computes_what_it_does_there() -> None:
    for n, (name, text) in enumerate(ACCEPTED.items()):
        found = migrate(HEAD + text)
        assert not found.refused, f"{name}: {found.refused[0].error}\n{found.refused[0].text}"
        func = found.program()
        assert parse_func(func.script()).same(func), name
        given = arguments(func, n)
        expected, ours, built = ([a.copy() for a in given] for _ in range(3))
        execute(HEAD + text, expected)
        interp.run(func, ours)
        pairs = [(ours, "interpreter")]
        if not any(x.kind == "thread" for x in loops_of(func)):
            at.build(func, target="llvm")(*built)
            pairs.append((built, "llvm"))
        for results, where in pairs:
            for a, b in zip(results, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6, err_msg=f"{name}: {where}")


def test_what_has_no_counterpart_says_why() -> None:
    for name, (text, reason) in REFUSED.items():
        (found,) = migrate(HEAD + text).functions
        assert found.error is not None, f"{name}:\n{found.text}"
        assert reason in str(found.error), f"{name}: {found.error}"


def test_a_file_is_rewritten_function_by_function(tmp_path: Path) -> None:
    file = tmp_path / "programs.py"
    good, (bad, _) = ACCEPTED["triangles"], REFUSED["while"]
    file.write_text(HEAD + good + bad.replace("def main", "def other"))
    run = [sys.executable, "-m", "autosched.script.migrate", str(file), "-o", str(tmp_path / "out")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "main (line 8): rewritten" in done.stderr
    assert "other" in done.stderr
    assert "refused" in done.stderr
    func = parse_func((tmp_path / "out").read_text())
    assert [b.name for b in func.params] == ["A", "B"]


def test_constants_are_given_from_outside() -> None:
    text = HEAD + REFUSED["a name that nothing defines"][0]
    func = migrate(text, constants={"scale": 2.5}).program()
    given = [np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)]
    interp.run(func, given)
    assert (given[1] == 2.5).all()
    with pytest.raises(ScriptError, match="expected a number or a dtype"):
        migrate(text, constants={"scale": [1]})  # type: ignore[dict-item]


def test_text_that_is_no_python_is_refused() -> None:
    with pytest.raises(ScriptError, match="no Python syntax"):
        migrate("def f(:")

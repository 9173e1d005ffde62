"""Assembly is linked to the loop IR that it comes from, and is the code that is built."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched.codegen.build import generate_ir
from autosched.codegen.llvm import listing as module
from autosched.codegen.llvm.listing import listing
from autosched.sketch.default import default_schedule
from autosched.tir.nodes import PrimFunc


def scheduled(name: str, *args: int) -> tuple[at.SearchTask, PrimFunc]:
    task = at.SearchTask(name, args)
    return task, default_schedule(task.prim_func, task.target).func


@pytest.mark.parametrize(("name", "args"), [("matmul", (64, 64, 64)), ("softmax", (16, 64))])
@pytest.mark.parametrize("level", ["search", "full"])
def test_the_code_is_that_of_the_build_and_its_lines_have_sources(name, args, level):
    task, func = scheduled(name, *args)
    found = listing(func, task.target, level)
    assert found.linked
    script = found.script.splitlines()
    sources = [line.source for line in found.assembly if line.source is not None]
    assert len(sources) > len(found.assembly) / 3
    for source in set(sources):  # each is a loop or a block
        text = script[source - 1].strip()
        assert text.startswith(("for ", "with T.block(")), text
    built = at.build(func, target=task.target, level=level).assembly()
    for line in found.assembly:
        if not line.text.endswith(":"):
            assert line.text.split()[0] in built


def test_the_multiplications_come_from_the_block():
    task, func = scheduled("matmul", 64, 64, 64)
    found = listing(func, task.target)
    script = found.script.splitlines()
    products = [line for line in found.assembly if "fmadd" in line.text or "fmla" in line.text]
    assert products or not task.target.has_fma
    assert {script[line.source - 1].strip() for line in products if line.source} <= {
        'with T.block("C"):'
    }


def test_marks_stay_out_of_what_is_built():
    task, func = scheduled("matmul", 32, 32, 32)
    assert "!dbg" not in generate_ir(func, task.target).ir


def test_where_locations_change_the_code_nothing_is_linked(monkeypatch):
    """Here the instructions differ, since one is taken away."""
    task, func = scheduled("softmax", 8, 16)
    plain, code = [], module._code

    def without_last(text):
        found = code(text)
        plain.append(found)
        return found if len(plain) == 1 else found[:-1]

    monkeypatch.setattr(module, "_code", without_last)
    found = listing(func, task.target)
    assert not found.linked
    assert [line.source for line in found.assembly] == [None] * len(plain[0])
    assert np.all([line.text for line in found.assembly])

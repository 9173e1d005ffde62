"""Every public function, called with what is wrong for each argument in turn, accepts it or ends in
an error of this project that says something."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import doors_graph  # noqa: F401 - adds to the doors
import doors_language  # noqa: F401
import doors_running  # noqa: F401
import doors_schedule  # noqa: F401
import pytest
from doors import DOORS, Door
from wrong_values import WRONG

import autosched as at
from autosched import ir, ops, te
from autosched.errors import AutoschedError
from autosched.schedule import Trace
from autosched.tir.nodes import PrimFunc
from records import RecordError

OURS = (AutoschedError, RecordError)
SHORTEST = 10
"""Characters of a message."""

NOT_CALLED = {
    # Errors, options in an enum, and what a library hands out.
    "AutoschedError", "LayoutRewriteOption", "te.Tensor", "te.IterVar", "te.Reduce", "te.ScanOp",
    "te.ComputeOp", "te.PlaceholderOp", "te.TensorRead", "te.ThreadAxis", "te.Stage", "te.ExternOp",
    "ops.Operator", "te.StageSchedule", "ops.OPERATORS", "TensorIntrin",
    "IRModule.script", "PrimFunc.script",
    # Without arguments.
    "Schedule.copy", "Schedule.show", "Schedule.get_blocks", "Schedule.fork_seed",
    "Schedule.enter_postproc", "StageSchedule.normalize",
    "IRModule.main", "Trace.to_json", "Trace.decisions",
}  # fmt: skip


INNER = {
    # Questions that the stages of one schedule ask each other.
    "Stage.reduction_loop", "Stage.require_untouched",
    # Operators of the library that are tuned, and are not named in the documentation.
    "ops.ema", "ops.mul_add_relu", "ops.conv2d_bn_relu", "ops.transpose_batch_matmul_softmax",
    "ops.two_matmuls", "ops.winograd_conv2d", "ops.winograd_weight",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _in_a_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Some of the wrong values are names of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("walk"))
        yield


def places(door: Door) -> list[int | str]:
    """The arguments: those of the valid call, and those that it leaves out."""
    called, args, kwargs = door.make()
    found: list[int | str] = [*range(len(args)), *kwargs]
    try:
        signature = inspect.signature(called)
    except ValueError:  # a function of Python's own
        return found
    bound = signature.bind(*args, **kwargs).arguments
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return found + [
        p.name for p in signature.parameters.values() if p.name not in bound and p.kind in named
    ]


@pytest.mark.parametrize("name", DOORS)
def test_wrong_values_end_in_errors_that_say_so(name: str) -> None:
    door, wrong = DOORS[name], []
    for place in places(door):
        for what, make in WRONG.items():
            called, given, kwargs = door.make()
            args = list(given)
            if isinstance(place, int):
                args[place] = make()
            else:
                kwargs[place] = make()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of arrays
                    called(*args, **kwargs)
            except OURS as e:
                if len(str(e)) < SHORTEST:
                    wrong.append(f"argument {place}, {what}: says only {str(e)!r}")
            except Exception as e:
                wrong.append(f"argument {place}, {what}: {type(e).__name__}: {e}")
    assert not wrong, "\n".join(wrong)


def test_the_walk_goes_through_every_door() -> None:
    """What is public is called, or stands in the list of what is not."""
    public = {*at.__all__} - {"auto_scheduler", "graph", "ir", "ops", "passes", "te"}
    public |= {f"te.{n}" for n in te.__all__}
    public |= {f"ir.{n}" for n in ir.__all__}
    public |= {f"ops.{n}" for n in vars(ops) if n in getattr(ops, "OPERATORS", {})}
    for kind in (at.Schedule, at.IRModule, Trace, PrimFunc, te.Stage, te.StageSchedule):
        methods = [n for n, f in vars(kind).items() if callable(f) and not n.startswith("_")]
        public |= {f"{kind.__name__}.{n}" for n in methods}
    called = {name.partition(",")[0] for name in DOORS} | {
        name.replace("Schedule.trace.", "Trace.").partition(",")[0] for name in DOORS
    }
    assert sorted(public - called - NOT_CALLED - INNER) == []


def test_wrong_values_are_as_many_as_promised() -> None:
    assert len(WRONG) >= 30
    assert len(DOORS) >= 250

"""`SearchTask`: one workload on one target, and everything that can be asked of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Union

from autosched.checks import instance, shown, text
from autosched.dag import ComputeDAG
from autosched.errors import TuningError, WorkloadError
from autosched.lowering.layout_rewrite import LayoutRewriteOption, with_option
from autosched.target import Target
from autosched.target.hardware import HardwareParams
from autosched.tir.admit import admitted
from autosched.tir.canonical import canonical_text
from autosched.tir.canonical import workload_key as key_of
from autosched.tir.nodes import Buffer, PrimFunc
from autosched.tir.opaque import opaque_blocks
from autosched.tuning.best import RecordsLike, best_schedule
from autosched.tuning.options import TuningOptions, checked
from records import Workload

if TYPE_CHECKING:
    from autosched.schedule import Schedule
    from autosched.sketch.space import Space
    from autosched.tuning.policies import AnyPolicy
    from autosched.tuning.report.result import TuningResult
    from records import Record

PrintMode = Literal["schedule", "script", "llvm", "asm", "cuda", "opencl"]

_Source = tuple[Union[Callable[..., Any], None], Union[tuple[Any, ...], None], str, PrimFunc]
_made: dict[str, _Source] = {}
"""By workload key, what tasks were made of in this process."""


class SearchTask:
    """A workload to tune.

    Give `func` with `args`, `prim_func`, the `compute_dag` of one, or the `workload_key` of a task
    made before in this process; beside one of the others, a key says which workload it must be.
    A key of the predecessor, `'["matmul", 128, 128, 128]'`, names a registered workload or an
    operator.
    `func` is a function that returns tensors, a name under which one was registered, a name of the
    operator library, or "file.py:function". `target` is a Target or its text (default:
    `Target.current()`); "llvm" is this machine, its features recorded, and `hardware_params` are
    figures that replace the target's. `layout_rewrite_option` (default: INSERT_TRANSFORM_STAGE)
    says what may be done with weights whose layout is free; under another option the workload is
    another one, with a key and records of its own. `task_inputs` are arrays for inputs, by
    parameter name, that a local pool measures with in the place of random ones: real indices or
    masks. They hold for the workload in this process until others are given.

    Raises WorkloadError for a workload that does not exist, wrong arguments or symbolic sizes,
    VerifyError for a prim_func that breaks a rule of the loop IR, TargetError for the target,
    TuningError for options of another type; what the function itself raises passes through.
    """

    def __init__(
        self,
        func: Callable[..., Any] | str | None = None,
        args: Sequence[Any] = (),
        *,
        workload_key: str | None = None,
        prim_func: PrimFunc | None = None,
        compute_dag: ComputeDAG | None = None,
        target: Target | str | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: LayoutRewriteOption | None = None,
        task_inputs: Mapping[str, Any] | None = None,
        desc: str = "",
    ) -> None:
        from autosched.workloads import check_args, get_workload, prim_func_of, workload_name

        if compute_dag is not None:
            instance("compute_dag", compute_dag, ComputeDAG, "a ComputeDAG", TuningError)
            if prim_func is not None:
                raise WorkloadError("give the compute_dag or its prim_func, not both")
            prim_func = compute_dag.func

        if workload_key is not None:
            workload_key = text("workload_key", workload_key, WorkloadError)
        instance("desc", desc, str, "a text", TuningError)
        self.func: Callable[..., Any] | None = None
        self.args: tuple[Any, ...] | None = None
        if workload_key is not None and func is None and prim_func is None:
            self.func, self.args, self.name, self.prim_func = _of_key(workload_key, args)
            workload_key = None if workload_key.startswith("[") else workload_key
        elif func is not None and prim_func is None:
            self.func, self.args = get_workload(func), check_args(args)
            self.name = workload_name(func)
            self.prim_func = prim_func_of(func, self.args)
        elif prim_func is not None and func is None:
            if check_args(args):
                raise WorkloadError("args go with func; a prim_func takes none")
            if not isinstance(prim_func, PrimFunc):
                raise WorkloadError(
                    f"prim_func is a {type(prim_func).__name__}; expected a PrimFunc, such as "
                    "te.create_prim_func(tensors) gives"
                )
            self.prim_func, self.name = admitted(prim_func), prim_func.name
        else:
            found = "neither" if func is None else "both"
            raise WorkloadError(
                f"expected func with args, prim_func, or a workload_key; found {found}"
            )
        if self.prim_func.sizes:
            names = [v.name for v in self.prim_func.sizes]
            raise WorkloadError(
                f"{self.name} has the symbolic sizes {', '.join(names)}; a measurement is of one "
                "choice of them: tune for representative sizes, prim_func="
                f"func.specialize({', '.join(f'{n}=1024' for n in names)}), and apply the "
                "primitives found to the function for all sizes"
            )
        for block in opaque_blocks(self.prim_func):
            raise WorkloadError(
                f"{self.name} has the opaque block {block.name}, of which no candidate is known; "
                "tune what stands before and after it as functions of their own, and apply the "
                "primitives found by Schedule"
            )
        if layout_rewrite_option is not None:
            kind = f"one of {', '.join(map(str, LayoutRewriteOption))}"
            instance(
                "layout_rewrite_option",
                layout_rewrite_option,
                LayoutRewriteOption,
                kind,
                TuningError,
            )
            self.prim_func = with_option(self.prim_func, layout_rewrite_option)
        self.target = Target.current() if target is None else Target(target)
        if hardware_params is not None:
            instance(
                "hardware_params", hardware_params, HardwareParams, "HardwareParams", TuningError
            )
            self.target = hardware_params.applied(self.target)
        self.desc = desc or self.name
        self.compute_dag = ComputeDAG(self.prim_func)
        self.workload_key = key_of(self.prim_func)
        if workload_key not in (None, self.workload_key):
            raise WorkloadError(
                f"{self.title} is workload {self.workload_key}, not {workload_key}; leave the key "
                "out, or give the function, arguments and layout_rewrite_option that it belongs to"
            )
        if task_inputs is not None:
            from measure.verify.given import give_inputs

            give_inputs(self.workload_key, self.prim_func, task_inputs)
        _made[self.workload_key] = (self.func, self.args, self.name, self.prim_func)

    @property
    def title(self) -> str:
        """The workload as people write it: `softmax(64, 1000)`."""
        return self.name if self.args is None else f"{self.name}({', '.join(map(str, self.args))})"

    @property
    def workload(self) -> Workload:
        """The workload as it is recorded."""
        return Workload(
            key=self.workload_key,
            name=self.name,
            script=canonical_text(self.prim_func),
            text=self.prim_func.script(),
            args=None if self.args is None else list(self.args),
            flop=float(self.compute_dag.flop_ct),
        )

    @cached_property
    def space(self) -> Space:
        """All candidates: the sketches of the workload, and what is free in them."""
        from autosched.sketch.generate import generate_space

        return generate_space(self.prim_func, self.target)

    def tune(
        self, options: TuningOptions | None = None, search_policy: AnyPolicy = None
    ) -> TuningResult:
        """Search for the fastest program and return what was found. The seed is the options'.

        `search_policy` is a SketchPolicy, or the name of one: "default", "sketch.xgb",
        "sketch.random". Of an EmptyPolicy the baselines are measured, and no trial.

        Every measurement goes to the callbacks as it is made. Raises TuningError if not one
        candidate gave a right result, with the counts by status and the first error, and
        KeyboardInterrupt, with everything measured so far recorded, on Ctrl-C.
        """
        from autosched.tuning.policies import searching
        from autosched.tuning.pools import pool_of
        from autosched.tuning.run.session import Session

        options = checked(options)
        policy = searching(search_policy, self, options.seed)
        with pool_of(options, self.target) as pool:
            return Session(self, options, pool, policy).run(search=policy is not None)

    def apply_best(self, records: RecordsLike) -> tuple[Schedule, tuple[Buffer, ...]]:
        """Schedule and parameters of the best program that `records` holds for this task.

        `records`: a log file, a SQLite file, or a database URL. Raises RecordError, saying why, if
        there is none.
        """
        schedule, _ = self._best(records)
        return schedule, schedule.func.params

    def print_best(self, records: RecordsLike, print_mode: PrintMode = "schedule") -> str:
        """The best program as text: the equivalent Python schedule (a module that runs as it
        stands), the scheduled program as script, its LLVM IR or assembly, or, tuned for a GPU, its
        kernels as CUDA or OpenCL.

        Raises RecordError if there is no valid record, TuningError on an unknown mode and on one
        that programs for the target do not have.
        """
        from autosched.tuning.report.text import check_mode, program_text

        check_mode(print_mode)
        schedule, record = self._best(records)
        return program_text(self, schedule, record, print_mode)

    def _best(self, records: RecordsLike) -> tuple[Schedule, Record]:
        return best_schedule(self.prim_func, records, self.workload_key, str(self.target))


def task_of_key(key: str, target: str | None = None) -> SearchTask | None:
    """The workload of a key as a task of it was made before in this process, on `target` (default:
    `Target.current()`); None if none was. Raises TargetError."""
    return SearchTask(workload_key=key, target=target) if key in _made else None


def _of_key(key: str, args: Sequence[Any]) -> _Source:
    """What the task of this key was made of. Raises WorkloadError if there was none."""
    from autosched.workloads import check_args

    if check_args(args):
        raise WorkloadError("args go with func; a workload_key says them already")
    if key not in _made and key.startswith("["):
        return _of_name(key)
    if key not in _made:
        raise WorkloadError(
            f"no task with the workload key {key!r} was made in this process; give func with args, "
            "or prim_func. For a workload of a store: autosched.tuning.stored.stored_task"
        )
    return _made[key]


def _of_name(key: str) -> _Source:
    """What a key of the predecessor means, a name with arguments as JSON: the workload that is
    registered under the name, or the operator of the library. Raises WorkloadError."""
    from autosched.workloads import check_args, get_workload, prim_func_of

    try:
        found = json.loads(key)
    except (ValueError, RecursionError) as e:
        raise WorkloadError(f"the workload key {shown(key)} is no JSON: {e}") from e
    name, given = found[0] if found else None, found[1:]
    if not isinstance(name, str) or ":" in name:
        raise WorkloadError(
            f'the workload key {shown(key)} names no workload; expected ["name", arguments…]'
        )
    args = check_args(given)
    return get_workload(name), args, name, prim_func_of(name, args)

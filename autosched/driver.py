"""`lower` and `build`: from schedules to printed loop IR and to callable functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Union

from autosched.codegen.artifact import Artifact
from autosched.codegen.build import Level, generate_ir
from autosched.errors import ArgumentError, BuildError
from autosched.lowering import lower as lower_func
from autosched.target import Target
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc

if TYPE_CHECKING:
    import numpy as np

    from autosched.runtime.function import Function
    from autosched.schedule import Schedule
    from autosched.te import StageSchedule

    Buildable = Union[Schedule, StageSchedule, IRModule, PrimFunc]


def function_of(
    program: Buildable, args: Sequence[Any] | None = None, name: str | None = None
) -> PrimFunc:
    """The function that a schedule, a module or a function stands for.

    `args`, where given, must name its parameters in order (tensors or buffers); for a stage view
    they are its tensors and decide the parameters. `name` renames the function.
    Raises ArgumentError where they do not fit.
    """
    from autosched.schedule import Schedule
    from autosched.te import StageSchedule

    if isinstance(program, StageSchedule):
        return program.replay(args, name or "main").func
    if isinstance(program, Schedule):
        func = program.func
    elif isinstance(program, IRModule):
        func = program.main
    elif isinstance(program, PrimFunc):
        func = program
    else:
        raise ArgumentError(
            f"expected a schedule, an IRModule or a PrimFunc, found {type(program).__name__}"
        )
    if args is not None:
        expected = [b.name for b in func.params]
        found = [getattr(a, "name", repr(a)) for a in args]
        if expected != found:
            raise ArgumentError(f"args are {found}; {func.name} takes {expected}, in this order")
    return func if name is None else replace(func, name=name)


def lower(
    program: Buildable,
    args: Sequence[Any] | None = None,
    *,
    name: str | None = None,
    simple_mode: bool = True,
) -> PrimFunc:
    """The lowered loop IR of a scheduled program; `print` it to read it.

    Unit loops are gone, intermediates have their place and their final size. `args` of a stage
    view (`te.create_schedule`) are the parameters, in any order. `simple_mode` is there for those
    who know it from TVM: one function without a module around it is what there is anyway.
    """
    return lower_func(function_of(program, args, name))


class BuiltFunction:
    """A compiled function: call it with one NumPy array a parameter, outputs included.

    `source` is the generated LLVM IR, `artifact` the object code. Linking happens on the first
    call, so that a function built for another machine can be looked at here.
    """

    def __init__(self, artifact: Artifact, source: str, target: Target) -> None:
        self.artifact, self.source, self.target = artifact, source, target
        self._function: Function | None = None

    @property
    def function(self) -> Function:
        """The linked function. Raises BuildError if it was built for another machine."""
        if self._function is None:
            if not self.target.is_host:
                raise BuildError(
                    f"built for {self.target}, which is not this machine; nothing to call"
                )
            from autosched.runtime.function import Function

            self._function = Function(self.artifact)
        return self._function

    @property
    def args(self) -> tuple[Any, ...]:
        """The parameters: `.name`, `.shape`, `.dtype`, `.written`."""
        return self.artifact.info.params

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        self.function(*arrays)

    def time_evaluator(self, **options: Any) -> Any:
        """See `autosched.runtime.function.Function.time_evaluator`."""
        return self.function.time_evaluator(**options)

    def with_threads(self, threads: int) -> Function:
        """The same code on another number of threads."""
        return self.function.with_threads(threads)

    def assembly(self, level: Level = "full") -> str:
        """The machine code as assembly text."""
        from autosched.codegen.llvm.assemble import assembly

        return assembly(self.source, self.target, level)


def build(
    program: Buildable,
    args: Sequence[Any] | None = None,
    target: Target | str | None = None,
    *,
    name: str | None = None,
    level: Level = "full",
    compile_only: bool = False,
) -> BuiltFunction:
    """Compile a scheduled program for `target` (default: this machine).

    `args` of a stage view (`te.create_schedule`) are the parameters, in any order; `name` names the
    function. With `compile_only` nothing is linked, so `target` may be any machine. Raises
    ArgumentError, CodegenError or BuildError.
    """
    from autosched.codegen.llvm.assemble import compile_ir

    where = target if isinstance(target, Target) else Target(target or "llvm")
    generated = generate_ir(function_of(program, args, name), where)
    artifact = Artifact(compile_ir(generated.ir, where, level), generated.info, str(where))
    built = BuiltFunction(artifact, generated.ir, where)
    if not compile_only:
        built.function  # noqa: B018 - links now, so that errors show here
    return built

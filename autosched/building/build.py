"""`lower` and `build`: from schedules and modules to printed loop IR, to callable functions, and to
object files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, Union, get_args, overload

from autosched.building.dispatch import chosen
from autosched.building.timed import Timed
from autosched.checks import choice, instance, path_text, shown, text
from autosched.codegen.artifact import Artifact
from autosched.codegen.build import Level, generate_ir
from autosched.errors import ArgumentError, BuildError
from autosched.lowering.layout_rewrite import LayoutRewriteOption, option_of, split
from autosched.lowering.lower import lower as lower_func
from autosched.target import Target
from autosched.tir.admit import admitted, derived
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc
from autosched.tir.routine import Routine

if TYPE_CHECKING:
    import numpy as np

    from autosched.codegen.export import Exported
    from autosched.runtime.function import Function
    from autosched.schedule import Schedule
    from autosched.te import StageSchedule

    Buildable = Union[Schedule, StageSchedule, IRModule, PrimFunc, Routine]

PRE_TRANSFORMED = LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED


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

    if name is not None:
        name = text("name", name, ArgumentError)
    if isinstance(program, StageSchedule):
        return program.replay(args, name or "main").func
    if isinstance(program, Schedule):
        func = program.func
    elif isinstance(program, IRModule):
        func = admitted(program.main)
    elif isinstance(program, PrimFunc):
        func = admitted(program)
    elif isinstance(program, Routine):
        raise ArgumentError(
            f"{program.name} is a routine, which runs as it is written; build it, nothing of it is "
            "lowered or scheduled"
        )
    else:
        raise ArgumentError(
            f"expected a schedule, an IRModule or a PrimFunc, found {type(program).__name__}"
        )
    if args is not None:
        if not isinstance(args, (list, tuple)):
            raise ArgumentError(f"args is {shown(args)}; expected a list of tensors or buffers")
        expected = [b.name for b in func.params]
        found = [getattr(a, "name", shown(a)) for a in args]
        if expected != found:
            raise ArgumentError(f"args are {found}; {func.name} takes {expected}, in this order")
    return func if name is None else derived(replace(func, name=name), func)


@overload
def lower(
    program: Schedule | StageSchedule | PrimFunc,
    args: Sequence[Any] | None = None,
    *,
    name: str | None = None,
    simple_mode: bool = True,
) -> PrimFunc: ...
@overload
def lower(
    program: Buildable,
    args: Sequence[Any] | None = None,
    *,
    name: str | None = None,
    simple_mode: bool = True,
) -> PrimFunc | IRModule: ...
def lower(
    program: Buildable,
    args: Sequence[Any] | None = None,
    *,
    name: str | None = None,
    simple_mode: bool = True,
) -> PrimFunc | IRModule:
    """The lowered loop IR of a scheduled program; `print` it to read it.

    Unit loops are gone, intermediates have their place and their final size. Of a module with
    several functions all are lowered. `args` of a stage view (`te.create_schedule`) are the
    parameters, in any order. `simple_mode` is there for those who know it from TVM: one function
    without a module around it is what there is anyway.
    """
    if _has_several(program):
        _check_no_args(args)
        lowered = {name: _lowered(admitted(f)) for name, f in program.functions.items()}
        return IRModule(lowered, routines=program.routines)
    return _lowered(function_of(program, args, name))


def _lowered(func: PrimFunc) -> PrimFunc:
    return derived(lower_func(func), func)


def _has_several(program: Buildable) -> TypeGuard[IRModule]:
    return isinstance(program, IRModule) and len(program) > 1


def _check_no_args(args: Sequence[Any] | None) -> None:
    if args is not None:
        raise ArgumentError(
            "args names the parameters of one function; a module with several takes none"
        )


class BuiltFunction(Timed):
    """A compiled function: call it with one NumPy array a parameter, outputs included.

    `name` is that of the function, `source` the generated LLVM IR, `artifact` the object code.
    Linking happens on the first call, so that a function built for another machine can be looked
    at, and exported, here. `layout_free` names the weights that `prepare` takes, `preparers` has
    the functions that transform some of them; see `autosched.lowering.layout_rewrite`.
    """

    def __init__(
        self,
        name: str,
        artifact: Artifact,
        source: str,
        target: Target,
        level: Level = "full",
        layout_free: Sequence[str] = (),
        preparers: Mapping[str, BuiltFunction] | None = None,
    ) -> None:
        self.name, self.level = name, level
        self.artifact, self.source, self.target = artifact, source, target
        self.layout_free = tuple(layout_free)
        self.preparers = dict(preparers or {})
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
        if not self.preparers:
            self.function(*arrays)
            return
        try:
            self.function(*arrays)
        except ArgumentError as e:
            raise ArgumentError(
                f"{e} ({', '.join(self.preparers)}: as prepare() of this function returns it)"
            ) from e

    @overload
    def prepare(self, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]: ...
    @overload
    def prepare(
        self, weights: Mapping[str, np.ndarray[Any, Any]]
    ) -> dict[str, np.ndarray[Any, Any]]: ...
    def prepare(
        self, weights: np.ndarray[Any, Any] | Mapping[str, np.ndarray[Any, Any]]
    ) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
        """Layout-free weights as this function takes them: new arrays, in its layout.

        `weights`: the array, if one weight is layout-free, or arrays by the parameters' names;
        returned in the same form. What the schedule reads as it is comes back as it is.
        Raises ArgumentError for what is no layout-free weight, or does not fit.
        """
        if not isinstance(weights, Mapping):
            if len(self.layout_free) != 1:
                raise ArgumentError(
                    f"{self.name} has the layout-free weights ({', '.join(self.layout_free)}); "
                    "prepare takes them by name, {name: array}"
                )
            return self._prepare(self.layout_free[0], weights)
        return {name: self._prepare(name, array) for name, array in weights.items()}

    def _prepare(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        from autosched.runtime.arrays import empty

        if name not in self.layout_free:
            have = ", ".join(self.layout_free) or "none"
            raise ArgumentError(f"{name!r} is no layout-free weight of {self.name} (has {have})")
        if name not in self.preparers:
            return array
        preparer = self.preparers[name]
        out = empty(preparer.args[1].shape, preparer.args[1].dtype)
        out[...] = 0  # padding too: nobody is handed memory that holds something else
        preparer(array, out)
        return out

    def with_threads(self, threads: int) -> Function:
        """The same code on another number of threads."""
        return self.function.with_threads(threads)

    def get_source(self, fmt: str = "") -> str:
        """TVM's name of `source`, and with `fmt="asm"` of `assembly()`. Raises ArgumentError."""
        choice("fmt", fmt, ("", "ll", "asm"), ArgumentError)
        return self.assembly() if fmt == "asm" else self.source

    def assembly(self, level: Level | None = None) -> str:
        """The machine code as assembly text."""
        from autosched.codegen.llvm.assemble import assembly

        return assembly(self.source, self.target, level or self.level)

    def export(self, path: str | os.PathLike[str], *, prefix: str = "") -> Exported:
        """Write PATH.o and PATH.h: the function for C programs, with no Python in it, and those
        that prepare its weights, if any.

        In C it is called `prefix` + its name, or + the file's name if it is `main`. The header
        says how to link and call it. Raises ArgumentError or BuildError.
        """
        return _export(path, {f.name: f for f in (self, *self.preparers.values())}, prefix)

    def export_library(
        self, path: str | os.PathLike[str], *, prefix: str = "", cc: str = "cc"
    ) -> Path:
        """Write the shared library `path` (`x.so`), and beside it what `export` writes. Raises
        BuildError where there is no C compiler `cc` to link with."""
        return _export_library(path, self, prefix, cc)


class BuiltModule(Mapping[str, BuiltFunction]):
    """The compiled functions of a module, by name: `built["scale"](a, b)`."""

    def __init__(self, functions: Mapping[str, BuiltFunction]) -> None:
        self._functions = dict(functions)

    def __getitem__(self, name: str) -> BuiltFunction:
        if not isinstance(name, str) or name not in self._functions:
            have = ", ".join(self._functions)
            raise ArgumentError(f"no function named {name!r} in the module; it has {have}")
        return self._functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Refused, with the names there are: a module with several functions has no first one."""
        raise ArgumentError(
            f"the module has several functions; call one of them: built[{next(iter(self))!r}](...)"
        )

    def export(self, path: str | os.PathLike[str], *, prefix: str = "") -> Exported:
        """Write PATH.o and PATH.h with all functions; see `BuiltFunction.export`."""
        return _export(path, self._functions, prefix)

    def export_library(
        self, path: str | os.PathLike[str], *, prefix: str = "", cc: str = "cc"
    ) -> Path:
        """Write the shared library `path` with all functions; see `BuiltFunction`."""
        return _export_library(path, self, prefix, cc)


def _export_library(
    path: str | os.PathLike[str], built: BuiltFunction | BuiltModule, prefix: str, cc: str
) -> Path:
    from autosched.codegen.export.files import export_library

    place = Path(path_text("path", path, ArgumentError))
    return export_library(place, built.export(place.with_suffix(""), prefix=prefix), cc)


def _export(
    path: str | os.PathLike[str], functions: Mapping[str, BuiltFunction], prefix: str
) -> Exported:
    from autosched.codegen.export import export

    sources = {name: (f.source, f.artifact.info) for name, f in functions.items()}
    first = next(iter(functions.values()))
    return export(path, sources, first.target, first.level, prefix)


@overload
def build(
    program: Schedule | StageSchedule | PrimFunc | Routine,
    args: Sequence[Any] | None = None,
    target: Target | str | None = None,
    *,
    name: str | None = None,
    level: Level = "full",
    compile_only: bool = False,
    layout_rewrite: LayoutRewriteOption | None = None,
) -> BuiltFunction: ...
@overload
def build(
    program: Buildable,
    args: Sequence[Any] | None = None,
    target: Target | str | None = None,
    *,
    name: str | None = None,
    level: Level = "full",
    compile_only: bool = False,
    layout_rewrite: LayoutRewriteOption | None = None,
) -> BuiltFunction | BuiltModule: ...
def build(
    program: Buildable,
    args: Sequence[Any] | None = None,
    target: Target | str | None = None,
    *,
    name: str | None = None,
    level: Level = "full",
    compile_only: bool = False,
    layout_rewrite: LayoutRewriteOption | None = None,
) -> BuiltFunction | BuiltModule:
    """Compile a scheduled program for `target` (default: `Target.current()`, this machine unless
    within `with target:`).

    A schedule, a function, a routine, or a module with one gives a BuiltFunction; a module with
    several a BuiltModule, which has one of each name. For a GPU it is a `BuiltGPUFunction`, with
    symbolic sizes a `SizedGPUFunction`, which compiles when it is called. `args` of a stage view
    (`te.create_schedule`) are the parameters, in any order; `name` names the function. With
    `compile_only` nothing is linked, so `target` may be any machine.

    `layout_rewrite` (default: the option of the task that the program is from) says what becomes of
    weights with a free layout that the schedule packs once: with REWRITE_FOR_PRE_TRANSFORMED the
    function takes them as its `prepare` returns them. Within `ApplyHistoryBest` the best recorded
    program of a function is built in its place. Raises VerifyError for a
    program that breaks a rule of the loop IR, ArgumentError, CodegenError or BuildError.
    """
    if isinstance(args, (str, Target)):
        raise ArgumentError(
            f"args are the parameters of a stage view, found {str(args)!r}; a target is given by "
            "name: build(program, target=...)"
        )
    where = Target.current() if target is None else Target(target)
    level = choice("level", level, get_args(Level), ArgumentError)  # type: ignore[assignment]
    instance("compile_only", compile_only, bool, "True or False", ArgumentError)
    kinds = (LayoutRewriteOption, type(None))
    instance("layout_rewrite", layout_rewrite, kinds, "a LayoutRewriteOption", ArgumentError)
    program = _chosen(program, where)
    if _has_several(program):
        _check_no_args(args)
        built = {
            n: _build(admitted(f), where, level, compile_only, layout_rewrite)
            for n, f in program.functions.items()
        }
        routines = {
            n: _build_routine(r, where, level, compile_only) for n, r in program.routines.items()
        }
        return BuiltModule({**built, **routines})
    if isinstance(program, IRModule) and program.routines:
        (program,) = program.routines.values()
    if isinstance(program, Routine):
        _check_no_args(args)
        routine = program if name is None else replace(program, name=name)
        return _build_routine(routine, where, level, compile_only)
    func = function_of(program, args, name)
    return _build(func, where, level, compile_only, layout_rewrite)


def _build_routine(
    func: Routine, target: Target, level: Level, compile_only: bool
) -> BuiltFunction:
    from autosched.codegen.llvm.assemble import compile_ir
    from autosched.codegen.llvm.routine import generate_routine

    if target.is_gpu:
        raise BuildError(f"{func.name} is a routine, which runs on CPUs; found {target.kind}")
    generated = generate_routine(func, target)
    artifact = Artifact(compile_ir(generated.ir, target, level), generated.info, str(target))
    built = BuiltFunction(func.name, artifact, generated.ir, target, level)
    if not compile_only:
        built.function  # noqa: B018 - links now, so that errors show here
    return built


def _chosen(program: Buildable, target: Target) -> Buildable:
    """What `ApplyHistoryBest` has for the functions of a program; a schedule is a choice made."""
    if isinstance(program, PrimFunc):
        return chosen(program, target)
    if isinstance(program, IRModule):
        best = {n: chosen(f, target) for n, f in program.functions.items()}
        return IRModule(best, routines=program.routines)
    return program


def _build(
    func: PrimFunc,
    target: Target,
    level: Level,
    compile_only: bool,
    option: LayoutRewriteOption | None = None,
) -> BuiltFunction:
    if target.is_gpu:
        from autosched.building.gpu import build_gpu

        if (option_of(func) if option is None else option) is PRE_TRANSFORMED and split(func)[1]:
            raise BuildError(
                f"{func.name} packs weights before it is called (REWRITE_FOR_PRE_TRANSFORMED), "
                f"which there is for CPUs only; build it for {target.kind} with "
                "layout_rewrite=LayoutRewriteOption.INSERT_TRANSFORM_STAGE"
            )
        return build_gpu(func, target, compile_only)
    from autosched.codegen.llvm.assemble import compile_ir

    layout_free = func.attr("layout_free", ())
    preparers: dict[str, BuiltFunction] = {}
    if (option_of(func) if option is None else option) is PRE_TRANSFORMED:
        func, stages = split(func)
        preparers = {n: _build(f, target, level, compile_only) for n, f in stages.items()}
    generated = generate_ir(func, target)
    artifact = Artifact(compile_ir(generated.ir, target, level), generated.info, str(target))
    built = BuiltFunction(func.name, artifact, generated.ir, target, level, layout_free, preparers)
    if not compile_only:
        built.function  # noqa: B018 - links now, so that errors show here
    return built

"""Building: what runs in builder children. Compiling happens nowhere else.

`build` is the default builder. A user's own, named "module:function", has its first three arguments
and returns an Artifact, or (object file bytes, entry name) for a kernel without a workspace; for a
GPU a `codegen.gpu.generate.GPUArtifact`.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Real
from types import FunctionType
from typing import Any

from autosched.checks import listed, shown
from autosched.codegen.artifact import Artifact, KernelInfo, Param, params_of
from autosched.codegen.build import build_artifact
from autosched.codegen.cuda import compile_cuda
from autosched.codegen.gpu.generate import GPUArtifact, generate
from autosched.codegen.llvm.assemble import Level, compile_ir
from autosched.errors import BuildError, MeasureError
from autosched.integers import settle
from autosched.runtime import parallel
from autosched.runtime.call import time_calls
from autosched.runtime.link import link
from autosched.runtime.queue import QueueInfo
from autosched.schedule import Trace
from autosched.target import Target
from autosched.tir.admit import admitted
from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from measure.machine.kernel import poison_stack
from measure.machine.protocol import GPU, Code
from measure.process import process_state
from measure.process.containment import ending_children
from measure.process.protocol import Request, resolve
from measure.status import Status
from measure.timing.clock_probe import build_clock_probe

DEFAULT_BUILD_FUNC = "measure.local.build:build"
MOST_SECONDS = 1e6
"""Eleven days: the system waits for no more than 2**31 milliseconds."""


def check_times(options: Any, *names: str, zero: bool = False) -> None:
    """Raise MeasureError if these are no numbers above zero, or from `zero` up, and finite."""
    for name in names:
        value = getattr(options, name)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        # NaN is neither above nor below anything.
        if not (is_number and value <= MOST_SECONDS and (value > 0 or (zero and value == 0))):
            bound = "from 0" if zero else "above 0"
            raise MeasureError(
                f"{name} is {value!r}; expected a number {bound}, at most {MOST_SECONDS:g}"
            )


@dataclass(frozen=True)
class LocalBuilder:
    """How a local pool builds.

    `timeout`: seconds for one candidate. `n_parallel`: builder processes (None: the cores that this
    process may use). `build_func`: "default", or a builder (see this module) as "module:function",
    or that function itself, which other processes import. `memory_bytes`: address space that a
    builder may use. `pass_env`: environment variables that builders and runners get beyond the
    usual. Processes that a `build_func` leaves behind are ended when it returns. Raises
    MeasureError on values that mean nothing.
    """

    timeout: float = 15.0
    n_parallel: int | None = None
    build_func: str | Callable[..., Any] = DEFAULT_BUILD_FUNC
    memory_bytes: int = 8 << 30
    pass_env: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        settle(self, MeasureError, n_parallel=1, memory_bytes=1)
        check_times(self, "timeout")
        object.__setattr__(self, "build_func", _build_func(self.build_func))
        listed("pass_env", self.pass_env, str, "name of an environment variable", MeasureError)

    @property
    def is_default(self) -> bool:
        """Whether candidates are built by `measure.local.build.build`, which knows levels."""
        return self.build_func == DEFAULT_BUILD_FUNC


def _build_func(given: object) -> str:
    """A builder as "module:function". Raises MeasureError for what another process cannot import
    under that name."""
    if isinstance(given, str) and given == "default":
        return DEFAULT_BUILD_FUNC
    if isinstance(given, str):
        module, colon, function = given.partition(":")
        if colon and all(part.isidentifier() for part in (*module.split("."), function)):
            return str(given)
    elif isinstance(given, FunctionType):
        module, function = given.__module__, given.__name__
        if module != "__main__" and getattr(sys.modules.get(module), function, None) is given:
            return f"{module}:{function}"
    raise MeasureError(
        f'build_func is {shown(given)}; expected "default", "module:function", or a function that '
        "stands at the top of a module: builders are other processes, which import it"
    )


@dataclass(frozen=True)
class BuildReply:
    """What a builder child answers. Without an artifact, `status` and `error` say why. `seconds`:
    what it took, by the clock of who asked."""

    status: Status
    artifact: Code | None = None
    error: str = ""
    program_hash: str = ""
    seconds: float = 0.0


def build(
    func: PrimFunc,
    trace: Trace | None,
    target: Target,
    level: Level = "search",
    where: GPU | None = None,
) -> Code:
    """Replay `trace` on `func` (None: as it stands), lower, generate and compile; OpenCL with the
    driver of the device `where`.

    Raises VerifyError, ScheduleError if the trace does not fit, CodegenError, BuildError.
    """
    scheduled = admitted(func) if trace is None else trace.apply(func).func
    return _built(scheduled, target, level, where)


def _built(scheduled: PrimFunc, target: Target, level: Level, where: GPU | None) -> Code:
    if not target.is_gpu:
        return build_artifact(scheduled, target, level)
    return compiled(generate(scheduled, target), target, where or GPU(target.kind))


def compiled(kernels: GPUArtifact, target: Target, where: GPU) -> GPUArtifact:
    """The same with machine code: of CUDA by NVRTC, of OpenCL by the device's driver, so that
    nothing is compiled where candidates run. Raises BuildError."""
    if target.kind == "cuda":
        return replace(kernels, code=compile_cuda(kernels.source, target.mcpu))
    from autosched.runtime.opencl import open_queue

    queue = open_queue(where.index)
    queue.check(kernels)
    return replace(kernels, code=queue.compile(kernels.source))


@dataclass(frozen=True)
class Build(Request[BuildReply]):
    """Build one candidate; every failure becomes a status. `func_pickle` is the workload, `trace`
    None for it as it stands."""

    func_pickle: bytes
    trace: Trace | None
    target: Target
    level: Level
    build_func: str = DEFAULT_BUILD_FUNC
    where: GPU | None = None

    def answer(self, fds: Sequence[int]) -> BuildReply:
        trace, target = self.trace, self.target
        func = _load(self.func_pickle)
        try:
            scheduled = admitted(func) if trace is None else trace.apply(func).func
            name = program_hash(scheduled)
        except MemoryError:
            raise
        except Exception:  # of a candidate's trace, whatever it is: the record keeps it
            return BuildReply(Status.INSTANTIATION_ERROR, error=traceback.format_exc())
        try:
            if self.build_func == DEFAULT_BUILD_FUNC:
                artifact = _built(scheduled, target, self.level, self.where)
            else:
                # What it left at work would be at work while a candidate is timed.
                with ending_children():
                    made = resolve(self.build_func)(func, trace, target)
                artifact = as_artifact(made, func, target, self.build_func)
            _check_params(artifact, func)
        except MemoryError:
            raise
        except BaseException:  # a user's builder may call sys.exit()
            return BuildReply(Status.BUILD_ERROR, error=traceback.format_exc(), program_hash=name)
        return BuildReply(Status.OK, artifact, program_hash=name)


@dataclass(frozen=True)
class BuildProbe(Request[Code]):
    """Build the clock probe, of a processor for up to `threads` threads. Raises BuildError."""

    target: Target
    threads: int
    where: GPU | None = None
    info: QueueInfo | None = None

    def answer(self, fds: Sequence[int]) -> Code:
        if self.where is None or self.info is None:
            return build_clock_probe(self.target, self.threads)
        from measure.timing.gpu_clock_probe import gpu_clock_probe

        made = gpu_clock_probe(self.target, self.where.kind, self.info)
        return compiled(made, self.target, self.where)


def as_artifact(made: Any, func: PrimFunc, target: Target, build_func: str) -> Code:
    """What a builder returned, as an Artifact. Raises BuildError if it has neither form."""
    if isinstance(made, GPUArtifact if target.is_gpu else Artifact):
        return made
    match made:
        case (bytes() as code, str() as entry) if not target.is_gpu:
            return Artifact(code, KernelInfo(entry, params_of(func), parallel=True), str(target))
    expected = "a GPUArtifact" if target.is_gpu else "an Artifact or (object bytes, entry name)"
    raise BuildError(f"{build_func} returned {type(made).__name__}; expected {expected}")


def _check_params(artifact: Code, func: PrimFunc) -> None:
    """Code is called with the program's arguments, whoever made it."""
    found = [(p.shape, p.dtype, p.written) for p in artifact.given]
    if found != [(p.shape, p.dtype, p.written) for p in params_of(func)]:
        raise BuildError(
            f"the kernel {artifact.info.entry} has the arguments "
            f"{_signature(artifact.given)}; expected {_signature(params_of(func))}"
        )


def _signature(params: Sequence[Param]) -> str:
    return ", ".join(
        f"{p.dtype}[{', '.join(map(str, p.shape))}]{' (written)' if p.written else ''}"
        for p in params
    )


@lru_cache(maxsize=4)
def _load(func_pickle: bytes) -> PrimFunc:
    func = pickle.loads(func_pickle)
    if not isinstance(func, PrimFunc):
        raise BuildError(f"expected a PrimFunc to build, found {type(func).__name__}")
    return func


def code_key(artifact: Code) -> str:
    """Hash of the object code: equal for candidates that became the same machine code. Of a GPU's
    of what it was made from, and how it is launched: drivers' binaries differ each time."""
    if isinstance(artifact, GPUArtifact):
        made = (artifact.source, artifact.launches, artifact.workspaces)
        return hashlib.sha256(repr(made).encode()).hexdigest()
    return hashlib.sha256(artifact.code).hexdigest()


def warm() -> None:
    """In the template: load and make once what every child would load and make.

    The runtime's threads start with the first parallel loop, so there are none yet.
    """
    code = compile_ir("define void @warm(ptr, ptr, i32) {\n  ret void\n}\n", Target("llvm"))
    parallel.address()
    library = link(code, ("warm",))
    time_calls(library["warm"], 0, 0, 1, 1)
    poison_stack()
    process_state.load()

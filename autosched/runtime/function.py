"""Built functions: called on NumPy arrays without a copy, and timed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.errors import ArgumentError, TargetError
from autosched.integers import as_int
from autosched.runtime import parallel
from autosched.runtime.arguments import check_arguments
from autosched.runtime.arrays import empty
from autosched.runtime.call import make_call, time_calls, workspace_bytes
from autosched.runtime.link import link
from autosched.runtime.timing import Protocol, Timing, cells, ranges
from autosched.target import Target
from autosched.tir.extern import address

Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]
SHAPES_KEPT = 16
"""Of a kernel with symbolic sizes, calls that are kept prepared, each with its workspace."""


class Function:
    """A kernel in this process. `function(a, b, out)` reads and writes the arrays in place.

    Arrays must have exactly the parameters' shapes and dtypes, be C-contiguous and aligned to
    their elements; symbolic sizes are told from the shapes, which must agree; outputs must be
    writable and overlap no other argument (ArgumentError says which one does not fit, and what to
    do). The GIL is released during the call; calls from
    several Python threads at once are safe. The code is freed when the last reference goes.
    Raises TargetError if this machine cannot run the code, BuildError if it does not link.
    """

    def __init__(self, artifact: Artifact, *, threads: int | None = None) -> None:
        target = Target(artifact.target)
        missing = target.missing_here()
        if missing:
            raise TargetError(
                f"{artifact.info.title} is made for {artifact.target!r}; this machine lacks "
                f"{', '.join(missing)}; build it for Target('llvm')"
            )
        imports = parallel.imports() if artifact.info.parallel else {}
        imports |= {e.name: address(e) for e in artifact.info.externs}
        self._artifact = artifact
        self._library = link(artifact.code, (artifact.info.entry,), imports)
        self._set_threads(target.num_cores if threads is None else threads)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process links the code anew."""
        return _linked, (self._artifact, self._threads)

    def _set_threads(self, threads: int) -> None:
        count = as_int(threads)
        if count is None or not 1 <= count <= parallel.MAX_THREADS:
            raise ArgumentError(f"threads is {threads!r}; expected 1 to {parallel.MAX_THREADS}")
        self._threads = count
        self._starting = threading.Lock()
        self._calls: dict[Shapes, Callable[..., Any]] = {}
        self._call: Callable[..., Any] = self._sized if self.info.sizes else self._first_call
        if self.info.messages:
            self._call = _unusual

    @property
    def info(self) -> KernelInfo:
        """Parameters and workspace of the kernel."""
        return self._artifact.info

    @property
    def artifact(self) -> Artifact:
        """What this function was linked from."""
        return self._artifact

    @property
    def address(self) -> int:
        """Where the code is: `void entry(ptr args, ptr workspace, i32 threads)`, valid as long as
        this object lives; see `KernelInfo`."""
        return self._entry()

    @property
    def threads(self) -> int:
        """Number of threads that parallel loops use."""
        return self._threads

    def with_threads(self, threads: int) -> Function:
        """The same code with another number of threads and a workspace of its own."""
        other = object.__new__(Function)
        other._artifact, other._library = self._artifact, self._library
        other._set_threads(threads)
        return other

    def __call__(self, *arrays: Array) -> None:
        if self._call(*arrays) is not None:
            self._call_slowly(arrays)

    def __repr__(self) -> str:
        params = ", ".join(
            f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]{' out' if p.written else ''}"
            for p in self.info.params
        )
        return f"<Function {self.info.title}({params}), threads={self.threads}>"

    def _entry(self) -> int:
        return self._library[self.info.entry]

    def _first_call(self, *arrays: Array) -> Any:
        """Allocate the workspace, make the fast call, and call it."""
        with self._starting:
            if () not in self._calls:
                self._calls[()] = self._call = self._prepared(self.info, ())
        return self._call(*arrays)

    def _sized(self, *arrays: Array) -> Any:
        """A call of a kernel with symbolic sizes: the call for these shapes, made when they first
        come."""
        try:
            shapes = tuple([a.shape for a in arrays])
        except AttributeError:
            return NotImplemented  # what is no array is looked at slowly
        fast = self._calls.get(shapes)
        if fast is None:
            try:
                sizes = self.info.solve(shapes)
            except (ValueError, IndexError):
                return NotImplemented
            fast = self._prepared(self.info.at(sizes), tuple(sizes.values()))
            with self._starting:
                while len(self._calls) >= SHAPES_KEPT:
                    del self._calls[next(iter(self._calls))]
                self._calls[shapes] = fast
        return fast(*arrays)

    def _prepared(self, info: KernelInfo, sizes: tuple[int, ...]) -> Callable[..., Any]:
        """The fast call for one choice of sizes, with a workspace of its own."""
        scratch = self._scratch(info)
        keep = (self._library, scratch)
        return make_call(info, self._entry(), scratch.ctypes.data, self.threads, keep, sizes)

    def _scratch(self, info: KernelInfo) -> Array:
        """A new workspace. Raises ArgumentError if there is no memory for it."""
        count = workspace_bytes(info, self.threads)
        try:
            return empty(count, "uint8")
        except (MemoryError, ValueError) as e:  # ValueError: more than addresses reach
            raise ArgumentError(
                f"{info.title} needs a workspace of {count} bytes, which this machine does not "
                "give; use smaller arrays, fewer threads or smaller intermediates"
            ) from e

    def _call_slowly(self, arrays: tuple[Any, ...]) -> None:
        """Say what is wrong with the arguments, or run arguments that only look unusual."""
        self._timer(arrays)(1)

    def _timer(self, arguments: Sequence[Any], flush: bool = False) -> Callable[[int], float]:
        """A function of n: the seconds that n calls take, in a workspace of their own.

        Raises ArgumentError if an array does not fit.
        """
        arrays, sizes = check_arguments(self.info, arguments)
        scratch = self._scratch(self.info.at(sizes))
        args = cells(arrays, tuple(sizes.values()))
        lines = ranges(arrays) if flush else None

        def measure(number: int) -> float:
            nanoseconds = time_calls(
                self._entry(), args, scratch.ctypes.data, self.threads, number, lines
            )
            self._check_status(scratch)
            return nanoseconds * 1e-9

        return measure

    def _check_status(self, scratch: Array) -> None:
        """Raise ArgumentError if the last call was stopped; see `KernelInfo.messages`."""
        if not self.info.messages:
            return
        number, value = (int(x) for x in scratch[:16].view("int64"))
        if number:
            raise ArgumentError(
                f"{self.info.title} stopped: {self.info.messages[number - 1].format(value)}; "
                "what was stored before stays"
            )

    def native_seconds(self, *arrays: Array, number: int = 1) -> float:
        """Seconds that `number` calls take one after the other, measured in native code."""
        if number < 1:
            raise ArgumentError(f"number is {number}; expected 1 or more")
        return self._timer(arrays)(number)

    def time_evaluator(
        self,
        number: int = 1,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_ms: float = 0,
        flush_cache: bool = False,
    ) -> Callable[..., Timing]:
        """A function of the arrays that times this one: `repeat` means over `number` calls each.

        `number` is raised until a measurement takes `min_repeat_ms`. Between measurements the
        thread sleeps for `cooldown_ms`. With `flush_cache` the arguments are out of all caches
        before each call, which is not counted. The loop runs in native code; two calls warm up.
        Raises ArgumentError if an option makes no sense or an array does not fit.
        """
        protocol = Protocol(number, repeat, min_repeat_ms, cooldown_ms, flush_cache)

        def evaluate(*arrays: Array) -> Timing:
            return protocol.take(self._timer(arrays, flush_cache))

        return evaluate


def _unusual(*arrays: Array) -> Any:
    """The fast call of a kernel that has none, since what it says after a call is looked at."""
    return NotImplemented


def _linked(artifact: Artifact, threads: int) -> Function:
    return Function(artifact, threads=threads)

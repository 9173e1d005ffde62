"""What became of a candidate: a status and, where it ran, its times. A failure is a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from measure.timing.timing import Timing


class Status(StrEnum):
    """Outcome of one measurement. Compares and serialises as its text."""

    OK = "ok"
    """Built, ran, gave the right result, was timed."""
    INSTANTIATION_ERROR = "instantiation_error"
    """The trace could not be replayed on the program."""
    BUILD_ERROR = "build_error"
    """Lowering, code generation or the compiler failed or crashed."""
    BUILD_TIMEOUT = "build_timeout"
    RUNTIME_ERROR = "runtime_error"
    """The code crashed (the error names the signal), ended its process, or could not be loaded."""
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"
    """An output differs from the reference, or an input was changed."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """The code wrote next to one of its buffers."""
    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_LOST = "device_lost"
    """The measuring process went away for no fault of the candidate, after two more attempts."""
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class MeasureResult:
    """One measurement of one candidate, or of a finalist. Times are in seconds.

    `timing` is None unless the status is `ok`; its parts can be read here as well, `runs` being 0
    and `samples` empty where there is none. The `noise` of a candidate is at least the pool's noise
    figure: how far two times of equal programs lie apart, nine times in ten, by the last
    candidates. That of a finalist is at least how far two times of it would lie apart by its own
    blocks, and has nothing of the figure.

    `build_seconds`, `queue_seconds` (waiting for the device) and `run_wall_seconds` (all that the
    runner did: linking, verifying, timing; of which `verify_seconds`) are separate clocks.
    `error` is the full text; with `ok` it is empty, or says how a later block failed, and the noise
    is then at least 0.5; of the untransformed baseline also, of which outputs the interpreter
    recomputed nothing (`verify.independent`).
    `program_hash` names the scheduled program, empty if replay failed; `retries` counts the
    attempts that were lost with a device.
    """

    status: Status
    error: str = ""
    timing: Timing | None = None
    build_seconds: float = 0.0
    queue_seconds: float = 0.0
    run_wall_seconds: float = 0.0
    verify_seconds: float = 0.0
    program_hash: str = ""
    retries: int = 0

    @property
    def ok(self) -> bool:
        """Whether the candidate ran, was verified and was timed."""
        return self.status is Status.OK

    def failed(self, status: Status, error: str) -> MeasureResult:
        """This measurement with times that do not count any more."""
        return replace(self, status=status, error=error, timing=None)

    @property
    def seconds(self) -> float | None:
        return None if self.timing is None else self.timing.seconds

    @property
    def raw_seconds(self) -> float | None:
        return None if self.timing is None else self.timing.raw_seconds

    @property
    def spread(self) -> float | None:
        return None if self.timing is None else self.timing.spread

    @property
    def noise(self) -> float | None:
        return None if self.timing is None else self.timing.noise

    @property
    def runs(self) -> int:
        return 0 if self.timing is None else self.timing.runs

    @property
    def samples(self) -> tuple[float, ...]:
        return () if self.timing is None else self.timing.samples

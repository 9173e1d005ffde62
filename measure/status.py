"""What became of a candidate: a status and, where it ran, its times. A failure is a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


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
    """One measurement of one candidate. Times are in seconds.

    `seconds` is the estimate for one call: the lower quartile of the candidate's sample blocks,
    each without the drift of the clock (see `measure.timing.block`, `measure.timing.sampler`);
    `raw_seconds` is the minimum of all samples as read from the clock. `spread` is the
    interquartile range of the samples as a fraction of that. `noise` is the machine's unrest,
    as a fraction: the larger of what is known of the least disturbed block (the clock probe's
    interquartile range; how long even the best sample waited for a core, or how much slower a
    shared core was; 0.2 where the host had put the cores under different caches) and how far
    two times of equal programs lie apart, nine times in ten, by the last candidates.
    Differences below it say nothing. All four are None unless the status is `ok`. `runs` counts
    the timed calls; `samples` are seconds a call, of all blocks, drift not cancelled.

    `build_seconds`, `queue_seconds` (waiting for the device) and `run_wall_seconds` (all that the
    runner did: linking, verifying, timing; of which `verify_seconds`) are separate clocks.
    `started_at` and `finished_at` are Unix times. `error` is the full text; with `ok` it is empty,
    or says how a later block failed, and the noise is then at least 0.5; of the untransformed
    baseline also, of which outputs the interpreter recomputed nothing (`verify.independent`).
    `program_hash` names the scheduled program, empty if replay failed; `retries` counts the
    attempts that were lost with a device.
    """

    status: Status
    error: str = ""
    seconds: float | None = None
    raw_seconds: float | None = None
    spread: float | None = None
    noise: float | None = None
    runs: int = 0
    samples: tuple[float, ...] = ()
    build_seconds: float = 0.0
    queue_seconds: float = 0.0
    run_wall_seconds: float = 0.0
    verify_seconds: float = 0.0
    program_hash: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    retries: int = 0

    @property
    def ok(self) -> bool:
        """Whether the candidate ran, was verified and was timed."""
        return self.status is Status.OK

    def failed(self, status: Status, error: str) -> MeasureResult:
        """This measurement with times that do not count any more."""
        return replace(
            self,
            status=status,
            error=error,
            seconds=None,
            raw_seconds=None,
            spread=None,
            noise=None,
            runs=0,
            samples=(),
        )


@dataclass(frozen=True)
class Distribution:
    """Many timings of one finalist, its blocks interleaved with its rivals'. Times are in seconds.

    `seconds` is the estimate of one call, as in MeasureResult; `rounds` the
    estimate of each block alone. `level` is that of the build. With a
    status other than `ok` there are no times and `error` says why; with `ok` it is empty, or says
    how a later block failed.
    """

    status: Status
    error: str = ""
    seconds: float | None = None
    raw_seconds: float | None = None
    spread: float | None = None
    noise: float | None = None
    rounds: tuple[float, ...] = ()
    level: str = "search"
    runs: int = 0

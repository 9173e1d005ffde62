"""What `autosched tune` prints at its end."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from autosched.tuning.best import schedule_of
from autosched.tuning.report.progress import format_seconds
from autosched.tuning.report.text import program_text
from measure.phases import OTHER
from records import BASELINE, Record, open_records

if TYPE_CHECKING:
    from autosched.cli.rivals import Beside
    from autosched.tuning import SearchTask, TuningResult
    from autosched.tuning.pools import PoolAddress


class Report:
    """What a tuning run found, beside what the machine can do.

    `db` has the run's records. With `limits` the machine's peak and NumPy are timed now, if it is
    this machine that was measured.
    """

    def __init__(
        self, task: SearchTask, result: TuningResult, db: str, pool: PoolAddress, limits: bool
    ) -> None:
        self.task, self.result, self.db, self.pool = task, result, db, pool
        self.schedule = schedule_of(task.prim_func, result.best)
        self.record, self.faster = _stored(result.best, db)
        self.beside: Beside | None = None
        if limits and pool.is_local and not task.target.is_gpu:
            from autosched.cli.rivals import measure_beside

            self.beside = measure_beside(task, self.schedule)

    def as_json(self) -> dict[str, Any]:
        """The figures as one object; times in seconds."""
        r, beside = self.result, self.beside
        peak = None if beside is None else beside.peak
        return {
            "event": "result",
            "best_seconds": r.best_seconds,
            "gflops": r.gflops,
            "baseline_seconds": r.baseline_seconds,
            "untransformed_seconds": r.untransformed_seconds,
            "trials": r.trials,
            "statuses": r.statuses,
            "elapsed_s": r.elapsed_s,
            "phases": r.phases,
            "device_seconds": r.device_seconds,
            "share_of_peak": None if peak is None else r.gflops * 1e9 / peak,
            "numpy_ratio": None if beside is None else beside.numpy_ratio,
            "job_id": r.best.job_id,
            "record_id": self.record.id,
            "workload_key": self.task.workload_key,
            "target": r.best.target,
            "device": r.best.device,
            "records": self.db,
        }

    def as_text(self, form: str | None = None) -> str:
        """The figures for people; the program in a form of `program_text` after them, if any."""
        r, lines = self.result, []
        own = "" if r.best.kind != BASELINE else ": a baseline, which no trial beat"
        lines.append(f"best       {format_seconds(r.best_seconds)}, {r.gflops:.4g} GFLOP/s{own}")
        for what, seconds in (
            ("default schedule", r.baseline_seconds),
            ("untransformed program", r.untransformed_seconds),
        ):
            if seconds is not None:
                ratio = seconds / r.best_seconds
                lines.append(
                    f"baseline   {format_seconds(seconds)}, {ratio:.2f} x the best: {what}"
                )
        lines += self._beside()
        if self.pool.scheme == "replay":
            lines.append(f"pool       {self.pool.text}: these times are answers, nothing was run")
        errors = ", ".join(f"{n} {s}" for s, n in sorted(r.statuses.items())) or "none"
        lines.append(f"search     {r.trials} trials ({errors}) in {r.elapsed_s:.1f} s")
        lines.append(f"time       {_phases(r.phases)}")
        lines.append(f"records    {self.db}, workload {self.task.workload_key}")
        shown = self.task.target.kind if self.task.target.is_gpu else "llvm, asm"
        show = f"autosched show {self.record.id} --db {shlex.quote(self.db)} --as"
        lines.append(f"program    {show} schedule   (or script, {shown})")
        if self.faster is not None and self.faster.final_seconds is not None:
            time = format_seconds(self.faster.final_seconds)
            lines.append(f"           record {self.faster.id} there, of another run, took {time}")
        if form is not None:
            lines += ["", program_text(self.task, self.schedule, r.best, form)]
        return "\n".join(lines)

    def _beside(self) -> list[str]:
        beside, lines = self.beside, []
        if beside is not None and beside.peak is not None:
            share = self.result.gflops * 1e9 / beside.peak
            busy = " (something else ran while it was timed)" if share > 1 else ""
            lines.append(
                f"machine    {share:.1%} of the measured multiply-add peak, "
                f"{beside.peak / 1e9:.4g} GFLOP/s{busy}"
            )
        if beside is not None and beside.numpy_ratio is not None:
            lines.append(
                f"NumPy      {beside.numpy_ratio:.2f} x as fast as {beside.numpy_name}, same run"
            )
        return lines


def _phases(phases: dict[str, float]) -> str:
    """What took a hundredth of the time or more, the longest first; the rest together."""
    whole, found = sum(phases.values()), sorted(phases.items(), key=lambda x: -x[1])
    shown = [(name, s) for name, s in found if s >= 0.01 * whole and name != OTHER]
    rest = whole - sum(s for _, s in shown)
    return ", ".join(f"{name} {s:.1f} s" for name, s in [*shown, (OTHER, rest)])


def _stored(best: Record, db: str) -> tuple[Record, Record | None]:
    """`best` as it is stored, and the record of the workload that is handed out instead, if one is:
    of another job, and faster."""
    with open_records(db) as source:
        stored = next(r for r in source.records(job_id=best.job_id) if r.key == best.key)
        first = source.best(best.workload_key, best.target, best.device)
    return stored, None if first.job_id == stored.job_id else first

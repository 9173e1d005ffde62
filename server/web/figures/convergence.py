"""How one job got faster, or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from records.sql.trials import TrialPoint
from server.web.course import Baseline, Improvement
from server.web.figures.svg import (
    Scale,
    around,
    bottom_axis,
    element,
    figure,
    left_axis,
    path,
)
from server.web.render import count, seconds

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 34, 56
FAR = 3.0
"""A baseline so many times slower than all trials is left out of the range, as in the plot."""


@dataclass(frozen=True)
class Shown:
    """A job in the figure: its name, its trials or a sample of them, all that improved."""

    name: str
    trials: Sequence[TrialPoint]
    improvements: Sequence[Improvement]


def convergence(
    jobs: Sequence[Shown],
    baselines: Sequence[Baseline],
    first: int | None = None,
    last: int | None = None,
) -> Markup:
    """Trials and the best so far, by the number of the trial, from `first` to `last`; nothing but a
    sentence where no trial has a time, for there is no axis to be made of nothing."""
    begin, end = first or 1, last or max((t.trial for j in jobs for t in j.trials), default=0)
    times = [t.seconds for job in jobs for t in job.trials if t.seconds and begin <= t.trial <= end]
    if not times:
        said = "No trial has a time yet."
        text = element("text", said, x=WIDTH / 2, y=40, text_anchor="middle")
        return figure(WIDTH, 80, said, [text])
    near = [b for b in baselines if b.seconds and b.seconds <= FAR * max(times)]
    low, high = around([*times, *(b.seconds for b in near if b.seconds)])
    x = Scale(begin - 0.5, end + 0.5, LEFT, WIDTH - RIGHT)
    y = Scale(low, high, HEIGHT - BOTTOM, TOP, log=True)
    marks = [count(round(value)) for value in x.ticks()]
    parts = bottom_axis(x, HEIGHT - BOTTOM, TOP, "trials", marks)
    parts += left_axis(y, LEFT, WIDTH - RIGHT, [seconds(value) for value in y.ticks()])
    for line in near:
        assert line.seconds is not None
        parts += _baseline(line.name, line.seconds, y)
    for number, job in enumerate(jobs):
        parts += _job(job, number, x, y, (begin, end))
    return figure(WIDTH, HEIGHT, _words(jobs), parts + _legend(jobs))


def _baseline(name: str, time: float, y: Scale) -> list[Markup]:
    place = y.at(time)
    line = element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=place, y2=place, class_="baseline")
    text = f"{name} {seconds(time)}"
    return [line, element("text", text, x=WIDTH - RIGHT, y=place - 5, text_anchor="end")]


def _job(job: Shown, number: int, x: Scale, y: Scale, among: tuple[int, int]) -> list[Markup]:
    begin, end = among
    parts = [
        element("circle", cx=x.at(t.trial), cy=y.at(t.seconds), r=2.2, class_=f"dot job{number}")
        for t in job.trials
        if t.seconds and begin <= t.trial <= end
    ]
    before = [p for p in job.improvements if p.trial <= begin][-1:]
    steps = [*before, *(p for p in job.improvements if begin < p.trial <= end)]
    line: list[tuple[float, float]] = []
    for point in steps:
        place = x.at(max(point.trial, begin))
        if line:
            line.append((place, line[-1][1]))
        line.append((place, y.at(min(max(point.seconds, y.low), y.high))))
    if line:
        reached = min(end, max((t.trial for t in job.trials), default=end))
        line.append((x.at(reached), line[-1][1]))
        parts.append(path(line, f"best job{number}"))
    return parts


def _legend(jobs: Sequence[Shown]) -> list[Markup]:
    parts = []
    place = float(LEFT)
    for number, job in enumerate(jobs):
        name = f"best so far of {job.name}" if len(jobs) > 1 else "best so far"
        parts.append(
            element("line", x1=place, x2=place + 22, y1=16, y2=16, class_=f"best job{number}")
        )
        parts.append(element("text", name[:60], x=place + 28, y=20))
        place += 60 + 7.2 * len(name[:60])
    return parts


def _words(jobs: Sequence[Shown]) -> str:
    """The figure in words."""
    said = []
    for job in jobs:
        if job.improvements:
            one, best = job.improvements[0], job.improvements[-1]
            said.append(
                f"{job.name}: from {seconds(one.seconds)} in trial {one.trial} to "
                f"{seconds(best.seconds)} in trial {best.trial}."
            )
        else:
            said.append(f"{job.name}: no trial has a time.")
    return " ".join(said)

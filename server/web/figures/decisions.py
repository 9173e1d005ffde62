"""Decisions against speed: what matters, and which values go with fast programs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from records.operations.listing import ListedTrial
from server.web.figures.svg import Scale, around, element, figure, path
from server.web.render import count, seconds

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 56, 92, 48, 26
AXES = 8
"""Decisions that are drawn, the most important ones."""
LINES = 400
FAST = 0.1
"""The part of the trials, the fastest, that stands out."""


@dataclass(frozen=True)
class Importance:
    """A decision: how much of the differences in (the logarithm of) the time goes with its value,
    from 0 to 1; how many values were tried; the value whose trials were fastest in the median."""

    name: str
    part: float
    values: int
    best: int | None
    best_seconds: float


def importances(trials: Sequence[ListedTrial]) -> list[Importance]:
    """The decisions of trials of one variant, the most important first.

    Epsilon squared of a one-way analysis of variance of log(seconds) by the decision's value
    (Kelley 1935): (SSB - (k - 1) MSW) / SST with k values, and no less than 0; it does not grow
    with the number of values alone, as the plain ratio SSB / SST does.
    """
    names = list(dict.fromkeys(name for trial in trials for name in trial.decisions))
    found = [_importance(name, trials) for name in names]
    return sorted(found, key=lambda one: (-one.part, names.index(one.name)))


def _importance(name: str, trials: Sequence[ListedTrial]) -> Importance:
    groups: defaultdict[int | None, list[float]] = defaultdict(list)
    for trial in trials:
        groups[trial.decisions.get(name)].append(_log(trial))
    best = min(groups, key=lambda value: sorted(groups[value])[len(groups[value]) // 2])
    middle = sorted(groups[best])[len(groups[best]) // 2]
    part = explained(list(groups.values()))
    return Importance(name, part, len(groups), best, math.exp(middle))


def explained(groups: Sequence[Sequence[float]]) -> float:
    """Epsilon squared of groups of numbers; 0 where there are as many groups as numbers, or one."""
    everything = [value for group in groups for value in group]
    n, k = len(everything), len(groups)
    mean = math.fsum(everything) / n
    total = math.fsum((value - mean) ** 2 for value in everything)
    if k < 2 or n <= k or total <= 1e-12:
        return 0.0
    within = 0.0
    for group in groups:
        own = math.fsum(group) / len(group)
        within += math.fsum((value - own) ** 2 for value in group)
    noise = within / (n - k)
    return max(0.0, (total - within - (k - 1) * noise) / total)


def parallel(trials: Sequence[ListedTrial], order: Sequence[Importance]) -> Markup:
    """Parallel coordinates: an axis for each decision, the most important first, and the time; a
    line for each trial, the fastest tenth on top."""
    names = [one.name for one in order if one.values > 1][:AXES]
    times = [trial.seconds for trial in trials if trial.seconds]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    places = {name: LEFT + number * step for number, name in enumerate(names)}
    scales = {name: _values(name, trials) for name in names}
    low, high = around(times, 0.0)
    time = Scale(low, high, HEIGHT - BOTTOM, TOP, log=True)
    ranked = sorted(trials, key=_log)
    fast = max(1, round(len(ranked) * FAST))
    chosen = ranked[:fast] + ranked[fast :: max(1, -(-len(ranked) // LINES))]
    parts = []
    for number, trial in reversed(list(enumerate(chosen))):
        points = [(places[name], scales[name][trial.decisions.get(name)]) for name in names] + [
            (WIDTH - RIGHT, time.at(trial.seconds or low))
        ]
        parts.append(path(points, "trial fast" if number < fast else "trial"))
    for name in names:
        parts += _axis(name, places[name], scales[name])
    parts += _time_axis(time)
    return figure(WIDTH, HEIGHT, _words(trials, order, fast), parts)


def _values(name: str, trials: Sequence[ListedTrial]) -> dict[int | None, float]:
    """The heights of a decision's values: one step from each to the next, in order."""
    found = sorted(
        {trial.decisions.get(name) for trial in trials}, key=lambda v: (v is not None, v or 0)
    )
    scale = Scale(0, max(1, len(found) - 1), HEIGHT - BOTTOM, TOP)
    return {value: scale.at(number) for number, value in enumerate(found)}


def _axis(name: str, x: float, heights: Mapping[int | None, float]) -> list[Markup]:
    parts = [element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="axis")]
    parts.append(element("text", name, x=x, y=TOP - 26, text_anchor="middle", class_="name"))
    every = max(1, -(-len(heights) // 14))
    for number, (value, y) in enumerate(heights.items()):
        if number % every == 0:
            text = "none" if value is None else str(value)
            parts.append(element("text", text, x=x - 5, y=y + 4, text_anchor="end", class_="value"))
    return parts


def _time_axis(time: Scale) -> list[Markup]:
    x = WIDTH - RIGHT
    parts = [element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="axis")]
    parts.append(element("text", "time", x=x, y=TOP - 26, text_anchor="middle", class_="name"))
    for value in time.ticks():
        text = seconds(value)
        parts.append(element("text", text, x=x + 6, y=time.at(value) + 4, class_="value"))
    return parts


def _words(trials: Sequence[ListedTrial], order: Sequence[Importance], fast: int) -> str:
    first = order[0] if order else None
    what = f" Most goes with {first.name}." if first is not None and first.part > 0 else ""
    said = f"{count(len(trials))} trials by their decisions; the fastest {count(fast)} stand out."
    return said + what


def _log(trial: ListedTrial) -> float:
    return math.log(trial.seconds) if trial.seconds else math.inf

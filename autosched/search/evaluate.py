"""Analysing a whole population: replay and analysis a variant at a time, one by one where a step
has no array form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.errors import NotBatchable, ScheduleError
from autosched.search.analysis import Analysis, analyse
from autosched.sketch.decisions import Mask
from autosched.sketch.space import Population, Space
from autosched.tir.affine import IntArray


@dataclass(frozen=True)
class Group:
    """Candidates of one variant and their figures. `rows` index the population."""

    variant: int
    rows: IntArray
    analysis: Analysis


def analyse_population(space: Space, population: Population) -> list[Group]:
    """Figures of all candidates, in groups of one variant. Rows that no primitive accepts are in
    none."""
    return [g for v, rows in population.groups() for g in _groups(space, population, v, rows)]


def legal(space: Space, population: Population) -> Mask:
    """Which candidates replay and are worth building."""
    found: Mask = np.zeros(len(population), dtype=np.bool_)
    for group in analyse_population(space, population):
        found[group.rows] = group.analysis.valid
    return found


def _groups(space: Space, population: Population, variant: int, rows: IntArray) -> list[Group]:
    columns = space.decisions(variant, population, rows)
    try:
        func = space.replay(variant, columns)
        return [Group(variant, rows, analyse(func, space.target, len(rows)))]
    except NotBatchable:
        pass
    except ScheduleError:
        return []
    if len(rows) == 1:
        return _single(space, population, variant, rows)
    # Some rows differ in what a primitive sees: halves that agree stay batches.
    middle = len(rows) // 2
    order = rows[
        np.lexsort([population.values[rows, k] for k in range(population.values.shape[1])])
    ]
    return [
        g
        for part in (order[:middle], order[middle:])
        for g in _groups(space, population, variant, part)
    ]


def _single(space: Space, population: Population, variant: int, rows: IntArray) -> list[Group]:
    _, values = space.candidate(population, int(rows[0]))
    try:
        func = space.replay(variant, values)
    except ScheduleError:
        return []
    return [Group(variant, rows, analyse(func, space.target, 1))]

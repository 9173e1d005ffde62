"""What models are told of a candidate, computed by one tape: the roofline's prediction and the
features of its stores.

Result columns: seconds that the roofline predicts, whether the candidate is valid (1 or 0), then
the `RAW` figures that `summary` makes features of the whole program from. Rows: `features.WIDTH`
elements for each block, in program order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autosched.search.analysis import Analysis
from autosched.search.evaluate import Evaluator
from autosched.search.footprint import Floats, floats
from autosched.sketch.space import Space
from autosched.target import Target
from cost_model.features import store_features
from cost_model.roofline import roofline

RAW = 12


def evaluator_of(space: Space) -> Evaluator:
    """The evaluator that all models of a space share: its tapes are recorded once, and kept while
    the space is. A model is tuned in tens of spaces by turns."""
    found: Evaluator | None = space.kept.get(Evaluator)
    if found is None:
        made = Evaluator(space, lambda a: figures(a, space.target))
        found = space.kept.setdefault(Evaluator, made)
    return found


def figures(analysis: Analysis, target: Target) -> tuple[Sequence[Floats], Sequence[Floats]]:
    """(result columns, elements of a row)."""
    predicted = roofline(analysis, target)
    main = analysis.blocks[_main_block(analysis)]
    raw = [
        *predicted.parts,
        main.accumulators,
        main.live,
        (main.loads + main.wide) / main.copies,
        main.lanes,
        main.waste,
        analysis.packed_bytes + analysis.thread_bytes,
        main.iterations / np.maximum(main.entries, 1.0),
    ]
    rows = [x for store in store_features(analysis) for x in store]
    return [predicted.seconds, floats(analysis.valid), *raw], rows


def _main_block(analysis: Analysis) -> str:
    """The block that most of the work is in: of those that compute, the one with most axes."""

    def weight(n: int) -> tuple[bool, bool, int, float]:
        block = analysis.sites[n].site.block
        facts = analysis.facts[block.name]
        return facts.ops > 0.0, facts.is_reduction, len(block.iters), facts.ops

    return analysis.sites[max(range(len(analysis.sites)), key=weight)].site.block.name


def summary(seconds: Floats, raw: Floats) -> npt.NDArray[np.float64]:
    """Features of whole programs (N, RAW), in powers of two, from `raw` (RAW, N)."""
    shares = np.log2(raw[:5] / seconds + 2.0**-6)
    rest = [
        np.log2(np.maximum(raw[5], 1.0)),
        np.log2(np.maximum(raw[6], 1.0)),
        np.log2(raw[7] + 0.01),
        np.log2(np.maximum(raw[8], 1.0)),
        4.0 * np.log2(raw[9] + 1e-9),
        0.25 * np.log2(raw[10] + 1.0),
        0.5 * np.log2(np.maximum(raw[11], 1.0)),
    ]
    return np.concatenate([shares, np.stack(rest)]).T

"""Cost models as tuning uses them."""

from __future__ import annotations

from autosched.search.model import CostModel
from cost_model.analytic import AnalyticModel


def default_model(seed: int = 0) -> CostModel:
    """What guides a search that names no model."""
    return AnalyticModel()

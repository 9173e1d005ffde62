"""Models whose sizes are given by each call.

model     DynamicModel: builds for the sizes of a call, or for all lengths up to a capacity
padded    a model for all lengths of an axis up to a capacity
sizes     what of the arithmetic of sizes is the same function of the length everywhere
rules     how each operator is padded: moves those that move elements, sums those that combine them
"""

from __future__ import annotations

from autosched.graph.dynamic.model import DynamicModel

__all__ = ["DynamicModel"]

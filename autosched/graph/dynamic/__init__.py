"""Models whose sizes are given by each call.

model     DynamicModel: builds for the sizes of a call, or for all lengths up to a capacity
padded    a model for all lengths of an axis up to a capacity
rules     how each operator is padded
"""

from __future__ import annotations

from autosched.graph.dynamic.model import DynamicModel

__all__ = ["DynamicModel"]

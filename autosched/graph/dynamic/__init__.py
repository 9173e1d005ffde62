"""Models whose sizes are given by each call.

model     DynamicModel: builds for the sizes of a call, or for all lengths up to a capacity
families  shapes that differ by lengths only, and the capacities of their builds
padded    a model for all lengths of an axis, or of several, up to a capacity
lengths   the lengths at which a model is read, and numbers that follow from them
sizes     what of the arithmetic of sizes is the same function of the lengths everywhere
counts    integers computed from sizes, as exact functions of the lengths
told      which constants the readings tell; others are computed in each call
rules     how each operator is padded: moves those that move elements, reshape those that give them
          other axes, sums, windows and norms those that combine them, scaled those that make
          several of one
"""

from __future__ import annotations

from autosched.graph.dynamic.model import DynamicModel

__all__ = ["DynamicModel"]

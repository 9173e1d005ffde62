"""Scopes: in which memory a buffer lives, and so which threads have it together."""

from __future__ import annotations

SCOPES = ("global", "local", "shared", "shared.dyn", "warp")
SHARED = SCOPES[2:4]
"""Memory that the threads of a block have together. How much of the second there is a launch says,
of the first the source."""
WARP = SCOPES[4]
"""What the threads along threadIdx.x have together."""

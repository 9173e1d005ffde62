"""A builder's module that takes long to import."""

from __future__ import annotations

import time

from measure_doubles import SLOW_IMPORT, add, build_double

__all__ = ["add", "build_double"]

time.sleep(SLOW_IMPORT)

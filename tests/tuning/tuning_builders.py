"""Builders of a user's own, named "tuning_builders:function" in tests; they run in children."""

from __future__ import annotations

import os
import zlib
from typing import Any

from autosched.schedule import Trace
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from measure.build import build


def broken(func: PrimFunc, trace: Trace, target: Target) -> Any:
    raise RuntimeError("this builder builds nothing")


def exits(func: PrimFunc, trace: Trace, target: Target) -> Any:
    os._exit(3)


def untransformed(func: PrimFunc, trace: Trace, target: Target) -> Any:
    """Right, however slow: every candidate is the program as written."""
    return build(func, None, target)


def often_broken(func: PrimFunc, trace: Trace, target: Target) -> Any:
    """Fails on half of the candidates."""
    if zlib.crc32(trace.to_json().encode()) % 2:
        raise RuntimeError("not this one")
    return build(func, trace, target)

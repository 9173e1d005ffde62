"""Schedules: primitives that transform a program, and the traces that remember them."""

from __future__ import annotations

from autosched.schedule.handles import BlockRV, LoopRV
from autosched.schedule.schedule import Schedule
from autosched.schedule.trace import Decision, Ref, Step, Trace

__all__ = ["BlockRV", "Decision", "LoopRV", "Ref", "Schedule", "Step", "Trace"]

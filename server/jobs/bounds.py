"""What a program is held against: the limits of this machine, and what its workload moves.

A job's process notes both: it has the program at hand, and on the local pool it is on the device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from autosched.target.machine import copy_bandwidth, fma_peak
from autosched.tir import dtypes
from measure.local.lock import SlotLock
from records.operations import roofline
from records.operations.roofline import DeviceLimits, Traffic

if TYPE_CHECKING:
    from autosched.target import Target
    from autosched.tuning import SearchTask
    from records.store import Store
    from server.jobs.lease_writer import LeaseWriter


def note(writer: LeaseWriter, store: Store, task: SearchTask, device: str | None) -> None:
    """Stores what the task's workload moves and, where that is not known yet, what the processor of
    this machine can do, `device`; None: another one measures. The first job of a device takes a
    second longer, and so does one after jobs that were faster than the limits: what they were
    measured beside slowed them down, so of each the higher counts."""
    writer.patiently(partial(roofline.put_traffic, store, traffic(task)))
    if device is None or task.target.is_gpu:
        return
    known = roofline.limits_of(store, device)
    if known is not None and not roofline.exceeded(store, known):
        return
    found = limits_here(task.target, device)
    if known is not None:
        found = replace(
            found,
            flops=max(found.flops, known.flops),
            bytes_per_second=max(found.bytes_per_second, known.bytes_per_second),
        )
    writer.patiently(partial(roofline.put_limits, store, found))


def traffic(task: SearchTask) -> Traffic:
    """What a run has to read and write at least: every parameter once."""
    params = task.prim_func.params
    size = 0
    for param in params:
        elements = 1
        for extent in param.shape:
            elements *= int(extent)
        size += elements * dtypes.itemsize(param.dtype)
    kinds = {param.dtype for param in params}
    dtype = kinds.pop() if len(kinds) == 1 else None
    return Traffic(workload_key=task.workload_key, bytes=size, dtype=dtype)


def limits_here(target: Target, device: str) -> DeviceLimits:
    """What this machine does at best with all cores of the target, as `autosched doctor` measures
    it; nothing else of ours is timed meanwhile."""
    with SlotLock().timing():
        return DeviceLimits(
            device=device,
            flops=fma_peak(target, target.num_cores),
            bytes_per_second=copy_bandwidth(target, target.num_cores),
            cache_bytes=target.l3_bytes,
        )

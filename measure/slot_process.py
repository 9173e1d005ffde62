"""The Dask task of a batch.

Dask sends a task as the name of its function, so this name is part of what pools and workers agree
on; the process around it is `measure.cluster.slot_process`.
"""

from __future__ import annotations

from functools import partial

from distributed import get_worker

from measure.cluster.settings import EXTENSION
from measure.cluster.wire import JsonDict, explained


def run_batch(topic: str, request: JsonDict) -> None:
    """One batch, in a worker. Its messages go to `topic`; it returns nothing."""
    worker = get_worker()
    service = worker.extensions[EXTENSION].service
    try:
        service.run(request, partial(worker.log_event, topic))
    except BaseException as e:
        # Not every exception can be read where it arrives; its text can. And what an engine raises
        # to leave is no end of this process, whose exit status says something of its own.
        raise RuntimeError(explained(e)) from None

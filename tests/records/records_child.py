"""A process that writes records, and says after each batch that it is stored.

python records_child.py {store,log} PATH JOB COUNT BATCH
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from records_factory import WORKLOAD, trial, with_job

from records import JsonlWriter, Record, Store


def main(form: str, path: str, job_id: str, count: int, batch: int) -> None:
    write: Callable[[Sequence[Record]], object]
    if form == "store":
        write = with_job(Store(path), job_id).add_records
    else:
        writer = JsonlWriter(path)
        writer.write_workload(WORKLOAD)
        write = writer.write_records
    for start in range(0, count, batch):
        slots = range(start, start + batch)
        write([trial(n, job_id=job_id, error="x" * (n * 997 % 5000)) for n in slots])
        print(slots[-1], flush=True)


if __name__ == "__main__":
    form, path, job_id, count, batch = sys.argv[1:]
    main(form, path, job_id, int(count), int(batch))

"""`autosched records`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from typing import IO

from autosched.cli.common import add_db, at_least, filled
from autosched.cli.service import add_source, client_of
from autosched.cli.status import FAILED
from records import STATUSES, ImportReport, distill, export_jsonl, import_into, merge, open_records
from records.logs.exchange import write_entries

_EPILOG = """\
examples:
  autosched records export all.json --db autosched.db
  autosched records export - --db autosched.db --status ok | wc -l
  autosched records export all.json --server http://tuner:8000 --token-file token
  autosched records import all.json --db other.db
  autosched records verify --db other.db
  autosched records merge autosched.db all.json --into both.db
  autosched records distill autosched.db best.json
  autosched records repair --db other.db --dry-run

A store is a database: an SQLite file, or a server's by its URL. A log is a file of JSON lines.
Imported records (those merged into a store, too) are kept as such: they are handed out as the best,
or kept by distill, only once measured again here, which is what verify does.

Exit status: 0 done, also where some lines were refused; 1 failed, or no line could be used; with
repair, something is left to be done; 130 interrupted: what was taken in by then stays, and doing it
again takes the rest. A file that is to be written bears its name once it is whole.
"""


_FILTERS = {
    "workload-key": ("workload", "KEY"),
    "target": ("target", "TARGET"),
    "device": ("device fingerprint", "DEVICE"),
    "job-id": ("job", "ID"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    export = actions.add_parser("export", help="write records as JSON lines")
    export.add_argument("file", type=filled, help="new file to write; - for standard output")
    add_source(export)
    export.add_argument(
        "--status", choices=STATUSES, metavar="STATUS",
        help=f"only records of that status: {', '.join(STATUSES)}",
    )  # fmt: skip
    for name, what in _FILTERS.items():
        export.add_argument(
            f"--{name}", type=filled, metavar=what[1], help=f"only records of that {what[0]}"
        )
    take = actions.add_parser(
        "import", help="read JSON lines into a store; doing it again changes nothing"
    )
    take.add_argument("file", type=filled, help="log to read; - for standard input")
    add_source(take, "takes them", logs=False)
    join = actions.add_parser("merge", help="take several stores or logs into one")
    join.add_argument(
        "sources", type=filled, nargs="+", metavar="SOURCE", help="stores or logs to read"
    )
    join.add_argument(
        "--into", type=filled, required=True, metavar="URL", help="store or log to extend"
    )
    best = actions.add_parser(
        "distill", help="keep the best record of each workload, target and device"
    )
    best.add_argument("source", type=filled, help="store or log to read")
    best.add_argument("file", type=filled, help="new store or log to write")
    check = actions.add_parser(
        "verify", help="measure imported records of this machine again, and withdraw bad ones"
    )
    add_db(check, logs=False)
    check.add_argument("--workload-key", type=filled, metavar="KEY", help="only this workload")
    check.add_argument("--target", default="llvm", help="target of the records (default: llvm)")
    check.add_argument(
        "--top", type=at_least(1), default=8, metavar="N",
        help="trials of each workload to measure, fastest first (default: %(default)s)",
    )  # fmt: skip
    repair = actions.add_parser("repair", help="check a whole store, and put right what can be")
    add_db(repair, logs=False)
    repair.add_argument("--dry-run", action="store_true", help="say what is wrong, change nothing")


def run(options: argparse.Namespace) -> int:
    """Do it and say what was done, on standard error."""
    if options.action == "export":
        keys = ("workload_key", "target", "device", "status", "job_id")
        _export(options, {k: getattr(options, k) for k in keys})
    elif options.action == "import" and options.server is not None:
        return _report(options.file, _send(options))
    elif options.action == "import":
        from autosched.tuning.stored import checked

        log = sys.stdin.buffer if options.file == "-" else options.file
        return _report(options.file, import_into(options.db, log, checked))
    elif options.action == "merge":
        from autosched.tuning.stored import checked

        reports = merge(options.sources, options.into, checked)
        return max(map(_report, options.sources, reports))
    elif options.action == "verify":
        return _verify(options)
    elif options.action == "repair":
        return _repair(options)
    else:
        kept = distill(options.source, options.file)
        _say(f"{_counted(kept, 'record')} kept")
        if not kept:
            _say(
                "nothing there is ok and was measured here; for imported records, verify does that"
            )
    return 0


def _export(options: argparse.Namespace, filters: dict[str, str | None]) -> None:
    out = sys.stdout.buffer if options.file == "-" else options.file
    if options.server is None:
        with open_records(options.db) as source:
            count = export_jsonl(source, out, **filters)  # type: ignore[arg-type]
    else:
        from server.client.remote_records import exported

        with client_of(options) as client:
            client.probe()
            count = write_entries(out, exported(client, **filters))
    _say(f"{_counted(count, 'record')} written")


def _send(options: argparse.Namespace) -> ImportReport:
    """What the service made of the log. Raises what the client does, OSError for a file."""
    from server.client.remote_records import imported

    with ExitStack() as stack:
        log: IO[bytes]
        if options.file == "-":
            log = stack.enter_context(tempfile.TemporaryFile())  # it may have to be sent again
            while part := sys.stdin.buffer.read(1 << 16):
                log.write(part)
        else:
            log = stack.enter_context(open(options.file, "rb"))
        client = stack.enter_context(client_of(options))
        client.probe()
        return imported(client, log)


def _verify(options: argparse.Namespace) -> int:
    from autosched.target import Target
    from autosched.tuning.verify import verify
    from measure.local.pool import LocalPool
    from records.opening import open_store

    target = Target(options.target)
    with open_store(options.db, make=False) as store, LocalPool(target) as pool:
        report = verify(
            store, pool, str(target), key=options.workload_key, top=options.top,
            on_workload=lambda workload: _say(f"measuring {workload.name} ({workload.key})"),
        )  # fmt: skip
    for line in report.withdrawn:
        _say(f"withdrawn: {line}")
    for line in report.left:
        _say(f"left as it is: {line}")
    _say(f"{_counted(report.measured, 'record')} measured here, {len(report.withdrawn)} withdrawn")
    return 0


def _repair(options: argparse.Namespace) -> int:
    """0 if all is well now, 1 if something is left to be done."""
    from records import repair
    from records.opening import open_store

    with open_store(options.db, make=False) as store:
        report = repair(store, dry_run=options.dry_run)
    for line in report.repaired:
        _say(("to repair: " if options.dry_run else "repaired: ") + line)
    for line in report.faults:
        _say(f"fault: {line}")
    looked_at = [
        _counted(number, noun)
        for number, noun in (
            (report.records, "record"), (report.jobs, "job"), (report.traces, "trace")
        )
    ]  # fmt: skip
    _say(f"{', '.join(looked_at)} looked at")
    return FAILED if report.faults or (options.dry_run and report.repaired) else 0


def _report(source: str, report: ImportReport) -> int:
    """1 if there were lines, and none that could be used."""
    _say(f"{source}: {report.new} new, {report.known} known, {report.refused_count} refused")
    for reason, lines in report.by_reason().items():
        shown = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
        _say(f"  {_counted(len(lines), 'line')} ({shown}): {reason}")
    if more := report.refused_count - len(report.refused):
        _say(f"  and {_counted(more, 'line')} more")
    return FAILED if report.refused_count and not report.new + report.known else 0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _say(text: str) -> None:
    print(text, file=sys.stderr)

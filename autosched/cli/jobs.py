"""`autosched jobs`: the jobs of a service, from here."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.cli.common import at_least, filled, parse_value, positive_seconds, task_of
from autosched.cli.model import add_shape, refuse_model_options
from autosched.cli.service import DEFAULT_SERVER, SERVER, TOKEN, add_server, client_of
from autosched.cli.status import FAILED, INTERRUPTED
from autosched.cli.text import plain
from autosched.errors import AutoschedError
from autosched.tuning.report.progress import format_seconds

if TYPE_CHECKING:
    from server.client import Client
    from server.schemas import Job

STATES = (
    *("queued", "running", "pausing", "paused"),
    *("cancelling", "succeeded", "failed", "cancelled"),
)

_EPILOG = f"""\
examples:
  autosched jobs submit matmul_add 1024 1024 1024 --trials 256 --watch
  autosched jobs submit my_ops.py:attention 128 64 --server http://tuner:8000
  autosched jobs submit --script program.py
  autosched jobs submit resnet50.onnx --shape data=1,3,224,224 --trials 2000 --watch
  autosched jobs list --state running
  autosched jobs list --name resnet --tag nightly --since 2026-01-31
  autosched jobs watch 9f2c4e1a
  autosched jobs pause 9f2c4e1a
  autosched jobs resume 9f2c4e1a --trials 64
  autosched jobs clone 9f2c4e1a --seed 7 --watch
  autosched jobs cancel 9f2c4e1a 77d01b3c

The server is --server, or else {SERVER}, or else {DEFAULT_SERVER}. The token, where the server
asks for one, is in the file named by --token-file, or else in {TOKEN}.
Ctrl-C while a job is watched ends the watching, not the job.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    submit = actions.add_parser("submit", help="queue a job")
    _add_submission(submit)
    listing = actions.add_parser("list", help="the jobs, newest first")
    listing.add_argument("--state", choices=STATES, help="only these jobs")
    for name, text in (
        ("name", "part of the job's name, or its workload's"),
        ("tag", "a tag"),
        ("client", "whose they are"),
        ("device", "what they are measured on"),
    ):
        listing.add_argument(
            f"--{name}", type=filled, metavar="TEXT", help=f"only of these: {text}"
        )
    for name, text in (("since", "made on that day (UTC) or later"), ("until", "or earlier")):
        listing.add_argument(f"--{name}", type=_day, metavar="YYYY-MM-DD", help=text)
    listing.add_argument(
        "--limit", type=at_least(1), default=20, metavar="N",
        help="so many jobs at most (default: %(default)s)",
    )  # fmt: skip
    watching = actions.add_parser("watch", help="follow a job to its end")
    show = actions.add_parser("show", help="what is known of a job")
    cancel = actions.add_parser("cancel", help="end jobs; what was measured stays")
    clone = actions.add_parser("clone", help="queue another job like one, with another seed")
    clone.add_argument("--seed", type=at_least(0), metavar="N", help="default: that of ID and 1")
    delete = actions.add_parser("delete", help="remove a job that has ended, and its records")
    pause = actions.add_parser("pause", help="stop a job; resume lets it go on with what is left")
    resume = actions.add_parser(
        "resume", help="let a job that is paused or has ended go on where it was"
    )
    resume.add_argument(
        "--trials", type=at_least(0), default=0, metavar="N",
        help="so many trials more than before (default: 0, those that were left)",
    )  # fmt: skip
    short = "id of a job, or the first four or more characters that no other has"
    for action in (watching, show, pause, resume, clone, delete):
        action.add_argument("id", type=filled, metavar="ID", help=short)
    cancel.add_argument("ids", type=filled, metavar="ID", nargs="+", help=short)
    for action in (submit, resume, clone):
        action.add_argument("--watch", action="store_true", help="follow the job to its end")
    for action in (submit, listing, watching, show, cancel, pause, resume, clone, delete):
        add_server(action)
        action.add_argument("--json", action="store_true", help="JSON objects, one a line")


def _add_submission(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        nargs="?",
        help="an operator of the library (`autosched tune --help` lists them), "
        "file.py:function, which is made into script text here, or MODEL.onnx, whose weights stay "
        "here",
    )
    parser.add_argument("args", metavar="ARG", nargs="*", default=[], help="its arguments")
    parser.add_argument(
        "--script", type=filled, metavar="FILE", help="a program as script text; - for stdin"
    )
    add_shape(parser)
    parser.add_argument(
        "--target", default="llvm", help="what to compile for (default: the server's own device)"
    )
    positive = at_least(1)
    parser.add_argument(
        "--trials", type=positive, metavar="N",
        help="candidates, of a model in all (default: 64, for each kernel of a model)",
    )  # fmt: skip
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--priority", type=int, default=0, metavar="P",
        help="-100 to 100, among your own jobs; above 10 for admins (default: 0)",
    )  # fmt: skip
    parser.add_argument("--time-budget", type=positive_seconds, metavar="S", help="seconds")
    parser.add_argument("--early-stopping", type=positive, metavar="N", help="trials without gain")
    parser.add_argument("--per-round", type=positive, metavar="N", help="proposed at a time")
    parser.add_argument("--name", type=filled, metavar="TEXT", help="what the job is called")
    parser.add_argument(
        "--tag",
        type=filled,
        metavar="WORD",
        action="append",
        default=[],
        help="found by this; may be repeated",
    )
    parser.add_argument(
        "--key",
        type=filled,
        metavar="TEXT",
        help="names this submission: repeated, it makes no second job",
    )


def run(options: argparse.Namespace) -> int:
    """Do it and print what the service says."""
    with client_of(options) as client:
        if options.action != "submit":
            client.probe()  # what asks about jobs of a server does not wait for one to be started
        if options.action == "list":
            return _list(client, options)
        if options.action == "watch":
            return _watch(client, options.id, options)
        if options.action == "cancel":
            return _cancel(client, options)
        if options.action == "delete":
            client.delete(options.id)
            print(json.dumps({"deleted": options.id}) if options.json else f"{options.id} is gone")
            return 0
        if options.action == "submit":
            job = _submit(client, options)
        elif options.action == "show":
            job = client.job(options.id)
        elif options.action == "pause":
            job = client.pause(options.id)
        elif options.action == "clone":
            job = client.clone(options.id, options.seed)
        else:
            job = client.resume(options.id, options.trials)
        if not getattr(options, "watch", False):
            print(job.model_dump_json() if options.json else _described(job))
            return 0
        return _watch(client, job.id, options)


def _submit(client: Client, options: argparse.Namespace) -> Job:
    given = {
        "time_budget_s": options.time_budget,
        "early_stopping": options.early_stopping,
        "num_measures_per_round": options.per_round,
    }
    more: dict[str, Any] = {
        "target": options.target,
        "trials": options.trials,
        "seed": options.seed,
        "priority": options.priority,
        "key": options.key,
        "job_name": options.name,
        "tags": options.tag,
        "options": {name: value for name, value in given.items() if value is not None},
    }
    if (options.workload is None) == (options.script is None):
        raise AutoschedError("expected either a WORKLOAD or --script FILE")
    if options.script is not None:
        refuse_model_options(options, f"--script {options.script}")
        return client.submit(script=_script(options.script), **more)
    if options.workload.endswith(".onnx"):
        return _submit_model(client, options, more)
    refuse_model_options(options, options.workload)
    args = [parse_value(a) for a in options.args]
    if ":" in options.workload:  # the function stays here; what goes out is what it means
        task = task_of(options.workload, args, "llvm")
        return client.submit(script=task.prim_func.script(), **more)
    return client.submit(options.workload, args, **more)


def _script(file: str) -> str:
    """A program's text. Raises AutoschedError for what is none."""
    try:
        if file == "-":
            # As bytes: in the locale C the stream makes surrogates of what is no UTF-8.
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise AutoschedError(
            f"--script {file} is no text in UTF-8; expected a program as script text"
        ) from e


def _submit_model(client: Client, options: argparse.Namespace, more: dict[str, Any]) -> Job:
    from autosched.graph.onnx_import.skeleton import skeleton

    path = Path(options.workload)
    if options.args:
        raise AutoschedError("a model takes no arguments; see --shape")
    if not path.is_file():
        raise AutoschedError(f"there is no file {path}")
    data = skeleton(path, dict(options.shape))
    return client.submit(model=data, **{**more, "job_name": options.name or path.stem})


def _list(client: Client, options: argparse.Namespace) -> int:
    filters = {name: getattr(options, name) for name in ("name", "tag", "client", "device")}
    if options.since is not None:
        filters["created_after"] = options.since.isoformat()
    if options.until is not None:
        filters["created_before"] = (options.until + timedelta(days=1)).isoformat()
    found = client.jobs(options.state, **filters)
    for _, job in zip(range(options.limit), found, strict=False):
        print(job.model_dump_json() if options.json else _row(job))
    return 0


def _cancel(client: Client, options: argparse.Namespace) -> int:
    report = client.cancel_many(options.ids)
    for job in report.jobs:
        print(job.model_dump_json() if options.json else _described(job))
    for asked, why in report.refused.items():
        print(f"autosched jobs: {plain(f'{asked}: {why}')}", file=sys.stderr)
    return FAILED if report.refused else 0


def _day(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as e:
        raise argparse.ArgumentTypeError(
            f"expected a day such as 2026-01-31, found {text!r}"
        ) from e


def _watch(client: Client, job_id: str, options: argparse.Namespace) -> int:
    from autosched.cli.watch import watch

    try:
        return watch(client, job_id, options.json)
    except KeyboardInterrupt:
        where = f" --server {options.server}" if options.server else ""
        print(
            f"autosched jobs: no longer watching; the job goes on\n"
            f"  to follow it again: autosched jobs watch {job_id}{where}\n"
            f"  to end it:          autosched jobs cancel {job_id}{where}",
            file=sys.stderr,
        )
        return INTERRUPTED


def _title(job: Job) -> str:
    if job.name not in ("", job.workload_name):
        return job.name
    if job.workload_args is None:
        return job.workload_name
    return f"{job.workload_name}({', '.join(map(str, job.workload_args))})"


def _row(job: Job) -> str:
    best = "-" if job.best_seconds is None else format_seconds(job.best_seconds)
    trials = f"{job.trials_done}/{job.trials_requested}"
    when = f"{job.created_at:%Y-%m-%d %H:%M}"
    return plain(f"{job.id}  {job.state:<10} {trials:>11} {best:>9}  {when}  {_title(job)}")


def _described(job: Job) -> str:
    lines = [
        f"job {job.id} of {_title(job)} is {job.state}",
        f"  {job.trials_done} of {job.trials_requested} trials, on {job.target}",
    ]
    if job.queue_place is not None:
        lines.append(f"  number {job.queue_place} in the queue")
    if job.phase is not None:
        to_go = "" if job.eta_seconds is None else f", about {job.eta_seconds:.0f} s to go"
        lines.append(f"  {job.phase}, for {job.run_seconds:.0f} s so far{to_go}")
    if job.best_seconds is not None:
        speed = "" if job.gflops is None else f", {job.gflops:.4g} GFLOP/s"
        gain = "" if job.gain is None else f", {job.gain:.3g} times as fast as the baseline"
        lines.append(f"  best {format_seconds(job.best_seconds)}{speed}{gain}")
    if (model := job.model) is not None:
        times = [format_seconds(s) for s in (model.estimated_seconds, model.untuned_seconds)]
        lines.append(f"  a task of a model, whose kernels take {times[0]} of {times[1]} untuned")
        lines.append("  watch, pause, resume and cancel are for the whole model")
    if job.notice:
        lines.append(f"  {job.notice}")
    if job.error:
        lines.append(f"  {job.error}")
    return plain("\n".join(lines))

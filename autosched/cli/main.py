"""`autosched`: the parser of the command line and the one place that turns errors into messages."""

from __future__ import annotations

import argparse
import codecs
import io
import os
import re
import signal
import sys
from collections.abc import Container, Sequence
from importlib import import_module

from autosched.cli.parser import Parser, leaf
from autosched.cli.status import FAILED, INTERRUPTED, MISUSED, PIPE_CLOSED
from autosched.cli.text import plain
from autosched.errors import AutoschedError, MissingPackage
from autosched.extras import EXTRA_OF, missing

COMMANDS = {
    "tune": ("autosched.cli.tune", "search for the fastest program of a workload"),
    "best": ("autosched.cli.best", "the best program recorded for a workload"),
    "show": ("autosched.cli.show", "a record as text; a model's graph, groups, tasks or plan"),
    "bench": ("autosched.cli.bench", "time what is recorded, or a model, beside its baselines"),
    "compile": ("autosched.cli.compile", "compile an ONNX model into a folder"),
    "quantise": ("autosched.cli.quantise", "make the layers of an ONNX model ones of 8 bits"),
    "run": ("autosched.cli.run", "run a model on arrays in files"),
    "records": ("autosched.cli.records", "export, import, merge and distill records"),
    "jobs": ("autosched.cli.jobs", "jobs of a service: submit, list, watch, cancel, resume"),
    "scheduler": ("autosched.cli.scheduler", "the scheduler of a cluster of devices"),
    "worker": ("autosched.cli.worker", "serve this machine's devices to a cluster"),
    "workers": ("autosched.cli.workers", "workers of a service: list, drain, admit"),
    "cluster": ("autosched.cli.cluster", "certificates of a cluster, and who is in it"),
    "db": ("autosched.cli.db", "the version of a database of records: check, upgrade"),
    "serve": ("autosched.cli.serve", "the tuning service: HTTP and pages"),
    "token": ("autosched.cli.token", "tokens of the service: create, list, revoke"),
    "completion": ("autosched.cli.completion", "a script that completes commands in a shell"),
    "doctor": ("autosched.cli.doctor", "what this machine has, its limits and its noise"),
}
"""Command -> (module with `add_arguments` and `run`, one-line help)."""

_EPILOG = """\
examples:
  autosched tune matmul_add 1024 1024 1024 --trials 64
  autosched tune my_ops.py:attention 128 64 --trials 256 --db tuning.db
  autosched best matmul_add 1024 1024 1024 --as schedule
  autosched records export all.json --db autosched.db
  autosched compile resnet50.onnx -o resnet50/
  autosched run resnet50/ --input data=image.npy --output scores.npz

`autosched COMMAND --help` explains a command, `autosched tune --help` lists the operators.
exit status: 0 done, 1 failed (the reason is on standard error), 2 wrong usage, 130 interrupted
"""


def program() -> int:
    """The process of a command: `main`, where a second Ctrl-C ends what is left without a word,
    unless it is ignored from the start, as it is of a script's job in the background."""
    try:
        return main()
    except KeyboardInterrupt:  # while the first one was answered
        return INTERRUPTED
    finally:
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    _open_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _main(arguments)
    except SystemExit:  # argparse has printed help, the version or what is wrong
        if status := _flush(arguments[:1]):
            return status
        raise
    except OSError as e:  # what argparse prints
        return _unwritten(arguments[:1], e)
    except ModuleNotFoundError as e:
        package = (e.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        return _failed(arguments, missing("this command", package))
    except MissingPackage as e:  # before a command runs: its options come from the package
        return _failed(arguments, e)
    except KeyboardInterrupt:  # even while modules are loaded, which takes a while
        print(" ".join(["autosched", *arguments[:1]]) + ": interrupted", file=sys.stderr)
        return INTERRUPTED


_GONE = "the folder that it was started in is gone; change to another one"


def _failed(arguments: list[str], error: Exception) -> int:
    # An error may quote what others wrote: a record's, a compiler's, a service's.
    print(plain(" ".join(["autosched", *arguments[:1]]) + f": {error}"), file=sys.stderr)
    return FAILED


def _main(arguments: list[str]) -> int:
    called = next((a for a in arguments if not a.startswith("-")), "")
    parser = parser_of((called,))
    if not arguments:
        parser.print_help(sys.stderr)
        return MISUSED
    options, rest = parser.parse_known_args(arguments)
    if rest and hasattr(options, "args") and not any(a.startswith("-") for a in rest):
        options.args += rest  # sizes after an option: argparse takes ARG... but once
    elif rest:
        leaf(parser, arguments).error(f"unrecognized arguments: {' '.join(rest)}")
    return _run(options)


def _open_streams() -> None:
    """Open the standard streams that were closed from the start (`2>&-`): the first files and pipes
    to be opened would take their numbers, and children write there."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken: this one. Children are to have it, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The locale may lack what is printed, as the C locale does the µ of a time.
        codecs.register_error("autosched_json", _escaped)
        sys.stdout.reconfigure(errors="autosched_json")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""As JSON has it (`\u00b5`), which may be what is printed: `\xb5` is none there."""
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return re.sub("....", r"\\u\g<0>", lost.hex()), error.end


def parser_of(called: Container[str]) -> Parser:
    """The parser, with the arguments of those commands that are in `called`: only their modules
    are imported."""
    from autosched.version import __version__

    parser = Parser(
        prog="autosched",
        description="Find the fastest program for a tensor computation.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"autosched {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in called:
            import_module(module).add_arguments(sub)
    return parser


def _run(options: argparse.Namespace) -> int:
    from records import RecordError

    try:
        status: int = import_module(COMMANDS[options.command][0]).run(options)
        return _flush([options.command]) or status
    except BrokenPipeError as e:
        return _unwritten([options.command], e)
    except (AutoschedError, RecordError, OSError) as e:
        gone = isinstance(e, FileNotFoundError) and _is_gone()
        return _failed([options.command], AutoschedError(_GONE) if gone else e)


def _is_gone() -> bool:
    """Whether the folder that the command was started in was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _flush(command: list[str]) -> int:
    """Write what was printed; returns the exit status where that fails, else 0."""
    try:
        sys.stdout.flush()
    except OSError as e:
        return _unwritten(command, e)
    return 0


def _unwritten(command: list[str], error: OSError) -> int:
    """Let go of output that cannot be written: Python would try once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # The reader of the output may have ended (`| head`).
    return PIPE_CLOSED if isinstance(error, BrokenPipeError) else _failed(command, error)

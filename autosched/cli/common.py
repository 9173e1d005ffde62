"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.errors import AutoschedError, WorkloadError
from autosched.lowering.layout_rewrite import LayoutRewriteOption

if TYPE_CHECKING:
    from autosched.tuning import SearchTask

DEFAULT_DB = "autosched.db"
LAYOUTS = {
    "none": LayoutRewriteOption.NO_REWRITE,
    "insert": LayoutRewriteOption.INSERT_TRANSFORM_STAGE,
    "pre": LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED,
}
"""Words of --layout-rewrite."""
FORMS = ("schedule", "script", "llvm", "asm", "cuda", "opencl")


def add_workload(parser: argparse.ArgumentParser) -> None:
    """WORKLOAD ARGS… and --target; the help's end lists the operator library."""
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        help="an operator of the library (below), or file.py:function, a function of yours that "
        "returns tensors",
    )
    # With a default argparse does not claim that arguments are required.
    parser.add_argument(
        "args",
        metavar="ARG",
        nargs="*",
        default=[],
        help="the function's arguments: numbers, true, false, or text such as float64",
    )
    parser.add_argument(
        "--target",
        default="llvm",
        help='what to compile for, e.g. "llvm -mcpu=znver5 -num-cores=2"; default: this machine',
    )
    parser.add_argument(
        "--layout-rewrite",
        choices=tuple(LAYOUTS),
        help="weights whose layout is free (layout_free_placeholders) are read as they are (none), "
        "may be packed inside the kernel, in its time (insert; the default), or are packed "
        "beforehand by prepare() of the built function (pre). Each is a workload of its own",
    )
    parser.epilog = "\n".join([*filter(None, [parser.epilog]), _operators()])


def _operators() -> str:
    from autosched.ops import OPERATORS

    lines = ["operator library:"]
    for name, function in sorted(OPERATORS.items()):
        arguments = [
            p.name if p.default is p.empty else f"{p.name}={p.default}"
            for p in inspect.signature(function).parameters.values()
        ]
        lines.append(f"  {name} {' '.join(arguments)}")
    lines += [
        "of a convolution: sizes, CI and CO channels in and out, window K, stride S, padding P,",
        "dilation D=1 and groups G=1; of a recurrent cell: T steps, batch B, I inputs, H hidden",
    ]
    return "\n".join(lines)


def add_db(
    parser: argparse.ArgumentParser, verb: str = "holds the records", *, logs: bool = True
) -> None:
    """--db; `logs`: it may be a log, too."""
    forms = "an SQLite file, a JSON-lines log (.json, .jsonl), or" if logs else "an SQLite file or"
    parser.add_argument(
        "--db",
        type=filled,
        default=DEFAULT_DB,
        metavar="URL",
        help=f"what {verb}: {forms} a database URL (default: %(default)s)",
    )


def at_least(low: int) -> Callable[[str], int]:
    """An argparse type: integers of at least `low`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(
                f"expected an integer of at least {low}, found {text!r}"
            )
        return value

    return parse


def port(text: str) -> int:
    """An argparse type: a TCP port, 0 for any that is free."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, found {text!r}")
    return value


def filled(text: str) -> str:
    """An argparse type: a text that is not empty, as a name, a file or an address is none."""
    if not text:
        raise argparse.ArgumentTypeError("expected a text that is not empty, found ''")
    return text


def filled_path(text: str) -> Path:
    """An argparse type: a path; an empty text would be the current folder."""
    return Path(filled(text))


def printable(text: str) -> str:
    """An argparse type: a name that stands in one line of a list."""
    if not text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"expected a name of printable characters, found {text!r}")
    return text


def positive_seconds(text: str) -> float:
    """An argparse type: a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds greater than 0, found {text!r}")
    return value


def parse_value(text: str) -> Any:
    """`3`, `0.5`, `true`, or the text itself."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def make_task(options: argparse.Namespace) -> SearchTask:
    """The task that WORKLOAD ARGS name."""
    args = [parse_value(a) for a in options.args]
    layout = None if options.layout_rewrite is None else LAYOUTS[options.layout_rewrite]
    return task_of(options.workload, args, options.target, layout)


def task_of(
    workload: str, args: list[Any], target: str, layout: LayoutRewriteOption | None = None
) -> SearchTask:
    """A task by names alone. Raises WorkloadError, too, for what a user's function raises, were it
    SystemExit."""
    from autosched.tuning import SearchTask

    try:
        return SearchTask(workload, args, target=target, layout_rewrite_option=layout)
    except AutoschedError:
        raise
    except (Exception, SystemExit) as e:
        (*_, where) = traceback.extract_tb(e.__traceback__)
        title = f"{workload}({', '.join(map(str, args))})"
        raise WorkloadError(
            f"{title} failed: {type(e).__name__}: {e} (line {where.lineno} of "
            f"{Path(where.filename).name}: {where.line})"
        ) from e

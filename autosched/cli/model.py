"""What the commands that take a model share."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.cli.common import DEFAULT_DB, at_least, filled
from autosched.errors import WorkloadError

if TYPE_CHECKING:
    from autosched.graph.model import CompiledModel
    from autosched.tir.module import IRModule
    from autosched.tuning.best import RecordsLike


def is_model(text: str) -> bool:
    """Whether an argument is an ONNX file, or a folder that `autosched compile` wrote."""
    return text.endswith(".onnx") or (Path(text) / "model.json").is_file()


def shape_argument(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=1,3,224,224."""
    name, equals, sizes = text.rpartition("=")
    try:
        shape = tuple(int(n) for n in sizes.split(",")) if sizes else ()
    except ValueError:
        equals = ""
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=1,3,224,224, found {text!r}")
    return name, shape


class ShapeAction(argparse.Action):
    """Collects shapes; each input has one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = list(getattr(namespace, self.dest))
        if values[0] in dict(given):
            parser.error(f"{option_string} gives the input {values[0]} two shapes; expected one")
        setattr(namespace, self.dest, [*given, values])


def add_shape(parser: argparse.ArgumentParser) -> None:
    """--shape."""
    parser.add_argument(
        "--shape", type=shape_argument, action=ShapeAction, default=[], metavar="NAME=1,3,224,224",
        help="fix the shape of a model's input; needed where the file leaves sizes open",
    )  # fmt: skip


def add_denormals(parser: argparse.ArgumentParser) -> None:
    """--flush-denormals."""
    parser.add_argument(
        "--flush-denormals", action="store_true",
        help="of a model: take floats below the least normal number for 0, which is faster where "
        "there are many",
    )  # fmt: skip


def add_precision(parser: argparse.ArgumentParser) -> None:
    """--precision."""
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16", "int8"), default="float32",
        help="of a model: what operands of float32 products with constant weights are rounded to "
        "(bfloat16 with AMX or AVX-512 BF16: those of attention, too); "
        "int8: of those only whose weights the file stores in 8 bits (default: %(default)s)",
    )  # fmt: skip


def add_model_options(parser: argparse.ArgumentParser, *, db: bool = True) -> None:
    """--shape, --target, --threads, --cache, --flush-denormals and --db."""
    add_shape(parser)
    parser.add_argument("--threads", type=at_least(1), metavar="N", help="default: all cores")
    parser.add_argument(
        "--cache",
        type=filled,
        metavar="DIR",
        help="folder of compiled kernels (default: beside --db)",
    )
    add_denormals(parser)
    add_precision(parser)
    if db:
        parser.add_argument("--target", default="llvm", help="what to compile for")
        parser.add_argument(
            "--db", type=filled, default=DEFAULT_DB, metavar="URL",
            help="records whose best schedules are taken, if there are any: a file, a database "
            "URL, or the address of a service, http://… (default: %(default)s)",
        )  # fmt: skip


_OF_A_MODEL: dict[str, tuple[str, object]] = {
    "shape": ("--shape", []),
    "output": ("-o", None),
    "threads": ("--threads", None),
    "cache": ("--cache", None),
    "flush_denormals": ("--flush-denormals", False),
    "precision": ("--precision", "float32"),
}
"""Attribute of an option that is for models alone -> how it is written, its default."""


def refuse_model_options(options: argparse.Namespace, subject: str) -> None:
    """Raises WorkloadError where options of a model are given for a `subject` that is none."""
    for name, (option, default) in _OF_A_MODEL.items():
        if getattr(options, name, default) != default:
            raise WorkloadError(
                f"{option} is of a model, and {subject} is none; leave it out, or give MODEL.onnx"
            )


def read_model(path: str, options: argparse.Namespace) -> IRModule:
    """The module of an ONNX file."""
    from autosched.graph.onnx_import import from_onnx

    if not Path(path).is_file():
        raise WorkloadError(f"there is no file {path}")
    return from_onnx(path, shapes=dict(options.shape))


def build_model(path: str, options: argparse.Namespace) -> CompiledModel:
    """The compiled model of an ONNX file, or of a compiled folder; progress on standard error."""
    if not path.endswith(".onnx"):
        from autosched.graph.saved import load

        if options.precision != "float32":
            raise WorkloadError(
                f"--precision {options.precision} is for ONNX files; {path} is compiled already"
            )
        return load(path, options.threads, options.flush_denormals or None)
    return build_module(read_model(path, options), options)


def check_folder(option: str, folder: str) -> None:
    """Raises WorkloadError where a folder cannot be made, or written to: before the work whose
    results it is to hold."""
    there = _existing(folder)
    if there.is_dir() and not os.access(there, os.W_OK):
        raise WorkloadError(
            f"{option} {folder}: {there.absolute()} cannot be written to; give a folder that can be"
        )
    if os.path.lexists(there) and not there.is_dir():
        raise WorkloadError(
            f"{option} {folder}: {there} is no folder; expected a folder, or a name that is free: "
            "give another one"
        )


def _existing(folder: str) -> Path:
    """The folder, or what is there of the path to it."""
    path = Path(folder)
    return next((p for p in (path, *path.parents) if os.path.lexists(p)), path)


def _cache(options: argparse.Namespace) -> str | None:
    """The folder of kernels, given or beside the database. One that can only be read is, and None
    is one that is not there, beside a model in such a folder: either is told on standard error."""
    folder = options.cache or f"{options.db}.kernels"
    there = _existing(folder)
    found = there == Path(folder)
    if not there.is_dir() or os.access(there, os.W_OK) or (options.cache and not found):
        check_folder("--cache", folder)
        return folder
    print(
        f"compiled kernels are not kept: {there.absolute()} cannot be written to; --cache DIR "
        "keeps them elsewhere",
        file=sys.stderr,
    )
    return folder if found else None


def build_module(module: IRModule, options: argparse.Namespace) -> CompiledModel:
    """A module compiled, its constants stripped as they are packed."""
    from autosched.tuning.graph import build

    url = "://" in options.db
    cache = None if url and not options.cache else _cache(options)
    with ExitStack() as stack:
        records: RecordsLike | None = None
        if options.db.lower().startswith(("http://", "https://")):
            from autosched.cli.service import open_service

            records = stack.enter_context(open_service(options.db))
        elif url or Path(options.db).is_file():
            records = options.db
        elif options.db != DEFAULT_DB:
            raise WorkloadError(
                f"--db {options.db}: there is no such file; expected records of a tuning, or no "
                "--db for default schedules"
            )
        model = build(
            module,
            options.target,
            records,
            threads=options.threads,
            progress=show_progress,
            cache=cache,
            consume=True,
            flush_denormals=options.flush_denormals,
            precision=options.precision,
        )
    if options.precision == "int8":
        _say_int8(model)
    return model


def _say_int8(model: CompiledModel) -> None:
    """A line on standard error that says what --precision int8 came to."""
    from autosched.graph.passes.int8 import int8_products

    assert model.module is not None  # it has just been compiled
    taken, whole = int8_products(model.module)
    left = "" if taken == whole else "; the others have no weight of 8 bits with scales by column"
    print(f"int8: {taken} of {whole} products of float matrices{left}", file=sys.stderr)


def show_progress(name: str, done: int, count: int) -> None:
    """A line on a terminal that says which kernel is compiled."""
    if sys.stderr.isatty():
        end = "\n" if done + 1 == count else ""
        print(f"\r\x1b[Kkernel {done + 1} of {count}: {name}", end=end, file=sys.stderr, flush=True)

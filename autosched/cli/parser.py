"""The parser class of the command line: errors that name what was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NoReturn

_CHOICE = re.compile(r"invalid choice: '(?P<found>[^']*)' \(choose from (?P<known>.*)\)$")
_UNKNOWN = re.compile(r"unrecognized arguments: (?P<found>.*)$")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors about names suggest the nearest; exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message and exit."""
        super().error(f"{message}{self._suggestion(message)}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse's own keeps quiet about a help that cannot be written."""
        if message and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def _suggestion(self, message: str) -> str:
        if choice := _CHOICE.search(message):
            known = (c.strip().strip("'") for c in choice["known"].split(","))
            return nearest(choice["found"], known)
        if unknown := _UNKNOWN.search(message):
            found = next((w for w in unknown["found"].split() if w.startswith("-")), "")
            return nearest(found.partition("=")[0], option_strings(self))
        return ""


def nearest(found: str, known: Iterable[str]) -> str:
    """`; did you mean 'tune'?`, or nothing where no known name is near."""
    near = get_close_matches(found, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def option_strings(parser: argparse.ArgumentParser) -> list[str]:
    """All option strings of a parser, without those of its subcommands."""
    return [text for action in parser._actions for text in action.option_strings]


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Name -> parser of each subcommand, in order; empty if the parser has none."""
    actions = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(next((a.choices.items() for a in actions), ()))


def summaries(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Name -> one-line help of each subcommand."""
    actions = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {str(c.dest): c.help or "" for a in actions for c in a._get_subactions()}


def leaf(parser: argparse.ArgumentParser, arguments: Iterable[str]) -> argparse.ArgumentParser:
    """The parser of the subcommand that the arguments call, `parser` itself if they call none."""
    for word in arguments:
        parser = subcommands(parser).get(word, parser)
    return parser


def tree(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """(words that lead there, parser) of the parser and all its subcommands."""
    yield path, parser
    for name, sub in subcommands(parser).items():
        yield from tree(sub, (*path, name))

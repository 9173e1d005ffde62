"""`autosched completion`: scripts that complete the command line, made from its parsers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from autosched.cli.parser import summaries, tree

SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
examples:
  source <(autosched completion bash)                                # in ~/.bashrc
  source <(autosched completion zsh)                                 # in ~/.zshrc, after compinit
  autosched completion fish > ~/.config/fish/completions/autosched.fish

The scripts are fixed text: they start no Python when a key is pressed. Make them again after an
upgrade.
"""
_FROM_SERVICE = "serve"
"""The command whose options come from the service's settings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from autosched.cli.main import COMMANDS, parser_of

    commands = set(COMMANDS)
    if find_spec("pydantic") is None:
        commands.remove(_FROM_SERVICE)
        print(
            f"the options of `autosched {_FROM_SERVICE}` are left out: they need "
            "pip install 'autosched[service]'",
            file=sys.stderr,
        )
    places = list(places_of(parser_of(commands)))
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](places), end="")
    return 0


@dataclass(frozen=True)
class Place:
    """What may follow a subcommand: (word, help) pairs, and the words after an option.

    `path` has the subcommand's words, `values` the choices of each option that has some (`--as`),
    `opaque` the options whose value is free text, a number or a file.
    """

    path: tuple[str, ...]
    words: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]
    values: dict[str, tuple[str, ...]]
    opaque: tuple[str, ...]


def places_of(parser: argparse.ArgumentParser) -> Iterator[Place]:
    """A Place for the parser and each subcommand."""
    from autosched.ops import OPERATORS

    operators = tuple((name, "operator") for name in sorted(OPERATORS))
    for path, sub in tree(parser):
        words = tuple((word, _brief(text)) for word, text in summaries(sub).items())
        options: list[tuple[str, str]] = []
        values: dict[str, tuple[str, ...]] = {}
        opaque: list[str] = []
        for action in sub._actions:
            choices = tuple(map(str, action.choices)) if action.choices is not None else ()
            if not action.option_strings:
                if action.dest == "workload":
                    words += operators
                elif not isinstance(action, argparse._SubParsersAction):
                    words += tuple((choice, "") for choice in choices)
                continue
            text = " ".join((action.help or "").replace("%(default)s", str(action.default)).split())
            options += [(option, _brief(text)) for option in action.option_strings]
            if choices:
                values |= dict.fromkeys(action.option_strings, choices)
            elif action.nargs != 0:
                opaque += action.option_strings
        yield Place(path, words, tuple(options), values, tuple(opaque))


def _brief(text: str) -> str:
    """The first clause of a help text, at most 60 characters, without what a shell would read."""
    clause = text.replace("'", "").replace("`", "").partition(";")[0].partition(" (default")[0]
    return clause if len(clause) <= 60 else clause[:57].rsplit(" ", 1)[0] + " …"


def _paths(places: list[Place]) -> str:
    """A pattern of `case` for every subcommand, its words joined by a blank after one before."""
    return "|".join(f"' {' '.join(p.path)}'" for p in places if p.path)


def _after(places: list[Place], template: str) -> list[str]:
    """Lines of `case` for options with a value."""
    lines = []
    for p in places:
        at = " ".join(p.path)
        for option, choices in p.values.items():
            lines.append(f"        '{at}:{option}') {template.format(' '.join(choices))} ;;")
        if p.opaque:
            pattern = "|".join(f"'{at}:{option}'" for option in p.opaque)
            lines.append(f"        {pattern}) files=1 ;;")
    return lines


def bash(places: list[Place]) -> str:
    """A script for bash: one function, `_autosched`."""
    lines = [
        "_autosched() {",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
        '    local at="" word words="" files=""',
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        case "${at:+ $at} $word" in',
        f'            {_paths(places)}) at="${{at:+$at }}$word" ;;',
        "        esac",
        "    done",
        '    case "$at:$prev" in',
        *_after(places, 'words="{}"'),
        "        *)",
        '            case "$at" in',
    ]
    for p in places:
        words = " ".join(word for word, _ in (*p.words, *p.options))
        lines.append(f"                '{' '.join(p.path)}') words=\"{words}\" ;;")
    lines += [
        "            esac ;;",
        "    esac",
        '    [ -n "$files" ] || COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o default -F _autosched autosched",
    ]
    return "\n".join(lines) + "\n"


def zsh(places: list[Place]) -> str:
    """A script for zsh: one function, `_autosched`, with help beside each word."""
    lines = [
        "#compdef autosched",
        "_autosched() {",
        '    local at="" word files=""',
        "    local -a found",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        '        case "${at:+ $at} $word" in',
        f'            ({_paths(places)}) at="${{at:+$at }}$word" ;;',
        "        esac",
        "    done",
        '    case "$at:${words[CURRENT-1]}" in',
        *(line.replace("        '", "        ('", 1) for line in _after(places, "found=({})")),
        "        (*)",
        '            case "$at" in',
    ]
    for p in places:
        shown = (*p.words, *p.options)
        words = " ".join(f"'{w.replace(':', chr(92) + ':')}:{text}'" for w, text in shown)
        lines.append(f"                ('{' '.join(p.path)}') found=({words}) ;;")
    lines += [
        "            esac ;;",
        "    esac",
        '    [ -n "$files" ] || _describe -t commands autosched found',
        "    _files",
        "}",
        "compdef _autosched autosched",
    ]
    return "\n".join(lines) + "\n"


def fish(places: list[Place]) -> str:
    """A script for fish: one `complete` for each word and option."""
    lines = []
    for p in places:
        inner = {q.path[-1] for q in places if q.path and q.path[:-1] == p.path}
        where = [f"__fish_seen_subcommand_from {word}" for word in p.path]
        if inner:
            where.append(f"not __fish_seen_subcommand_from {' '.join(sorted(inner))}")
        start = f"complete -c autosched -n '{'; and '.join(where) or 'true'}'"
        for word, text in p.words:
            lines.append(f"{start} -a '{word}' -d '{text}'")
        for option, text in p.options:
            name = option.lstrip("-")
            kind = "l" if option.startswith("--") else "s"
            value = ""
            if option in p.values:
                value = f" -x -a '{' '.join(p.values[option])}'"
            elif option in p.opaque:
                value = " -r"
            lines.append(f"{start} -{kind} {name}{value} -d '{text}'")
    return "\n".join(lines) + "\n"

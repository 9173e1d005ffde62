"""Script text on a terminal."""

from __future__ import annotations

import os
import sys


class Shown:
    """A program or a trace, which shows its text."""

    __slots__ = ()

    def show(self) -> None:
        """Print the text: in colour on a terminal where pygments is installed, unless NO_COLOR is
        set; plain elsewhere."""
        text = str(self)
        stdout = sys.stdout
        plain = stdout is None or not stdout.isatty() or os.environ.get("NO_COLOR")
        print(text if plain else highlighted(text), end="")


def highlighted(text: str) -> str:
    """The text with the colours of a terminal; as it is where pygments is missing."""
    try:
        from pygments import highlight
        from pygments.formatters import TerminalFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return text
    return str(highlight(text, PythonLexer(stripnl=False), TerminalFormatter()))

"""Program text with its parts marked by classes, which the style sheet colours."""

from __future__ import annotations

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

LONGEST = 60_000
"""Characters of a text that is still marked; what is longer is shown plain, since marking takes
about a second a megabyte."""


def highlighted(text: str, language: str) -> Markup:
    """`text` as HTML; `language` is a name that Pygments knows."""
    if len(text) > LONGEST:
        return Markup.escape(text)
    lexer = get_lexer_by_name(language, stripnl=False)
    return Markup(highlight(text, lexer, HtmlFormatter(nowrap=True)))

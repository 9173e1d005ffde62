"""python -m autosched.script.migrate FILE [-o OUT]: TVMScript in FILE as script text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from autosched.errors import AutoschedError
from autosched.script.migrate import migrate


def main() -> int:
    """Write the text that could be rewritten to OUT or standard output, and the report to standard
    error. The exit status is 1 if something was refused, 2 if nothing could be read."""
    parser = argparse.ArgumentParser(prog="python -m autosched.script.migrate")
    parser.add_argument("file", type=Path, help="a Python file with functions of TVMScript")
    parser.add_argument("-o", "--output", type=Path, help="where the text goes")
    given = parser.parse_args()
    try:
        found = migrate(given.file.read_text())
    except (AutoschedError, OSError, UnicodeDecodeError) as e:
        print(f"{given.file}: {e}", file=sys.stderr)
        return 2
    text = f"from autosched.script import tir as T\n\n\n{found.text}"
    if given.output is None:
        print(text, end="")
    else:
        given.output.write_text(text)
    print(found.report(), end="", file=sys.stderr)
    return 1 if found.refused else 0


if __name__ == "__main__":
    sys.exit(main())

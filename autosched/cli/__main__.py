"""`python -m autosched.cli`."""

from autosched.cli.main import program

raise SystemExit(program())

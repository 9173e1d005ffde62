"""Errors of the graph level."""

from __future__ import annotations

from autosched.errors import AutoschedError


class Unsupported(AutoschedError):
    """A model, an operator or a form of it that is not compiled; says which."""

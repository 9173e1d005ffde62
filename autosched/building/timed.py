"""`Timed`: what is built is timed under its own name, as TVM calls it."""

from __future__ import annotations

from typing import Any

from autosched.checks import shown
from autosched.errors import ArgumentError


class Timed:
    """A function with a name, and `function`, which is timed."""

    name: str
    function: Any

    @property
    def entry_name(self) -> str:
        """The function's name, as TVM has it."""
        return self.name

    def time_evaluator(self, entry_name: str | None = None, dev: Any = None, **options: Any) -> Any:
        """See `autosched.runtime.function.Function.time_evaluator`. The function's name and a
        device may stand first, as TVM has it; the device is the target's, whatever is given."""
        self.require_entry(entry_name)
        return self.function.time_evaluator(**options)

    def require_entry(self, entry_name: Any) -> None:
        """Raise ArgumentError for another function's name."""
        if entry_name is not None and entry_name != self.name:
            raise ArgumentError(
                f"time_evaluator: expected this function's name, {self.name!r}, or options such as "
                f"number=10; found {shown(entry_name)}"
            )

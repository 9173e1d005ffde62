"""What is closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that gives itself, and is closed however the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is held. Harmless when repeated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

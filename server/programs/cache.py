"""The programs of records as text, kept once they were made."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import fields
from typing import Any, Literal

from anyio.to_thread import run_sync

from autosched.version import __version__
from records import Record, Store, Workload
from server.programs.pool import Examiner

Form = Literal["schedule", "script", "source", "asm"]
Made = Literal["object", "header", "listing"]
"""What is made of a program besides: an object file (in base64) and its header, and the listing of
loop IR and assembly as JSON (`server.programs.rendering`)."""

MOST_CHARACTERS = 32 << 20
"""Of all texts that are kept."""


class Texts:
    """Texts by record and form. All methods belong to the server's event loop."""

    def __init__(self, store: Store, examiner: Examiner) -> None:
        self.store, self.examiner = store, examiner
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._characters = 0

    async def tag(self, record_id: int, form: Form | Made) -> str:
        """What changes when the text may. Raises NoRecord."""
        return _tag(await run_sync(self.store.get, record_id), form)

    async def text(self, record_id: int, form: Form | Made, client: str) -> str:
        """The record's program, for the client with that key.

        Raises NoRecord, and ProblemError: 409 where it cannot be made again or is another program
        by now, 429 and 503 where too many are made.
        """
        record = await run_sync(self.store.get, record_id)
        tag = _tag(record, form)
        if tag in self._kept:
            self._kept.move_to_end(tag)
            return self._kept[tag]
        workload = await run_sync(self.store.workload, record.workload_key)
        question = {"form": form, "workload": _values(workload), "record": _values(record)}
        text: str = (await self.examiner.ask(question, client))["text"]
        self._keep(tag, text)
        return text

    def _keep(self, tag: str, text: str) -> None:
        if tag in self._kept:  # another request was as fast
            return
        self._kept[tag] = text
        self._characters += len(text)
        while self._characters > MOST_CHARACTERS and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._characters -= len(oldest)


def _tag(record: Record, form: Form | Made) -> str:
    state = (record.id, *record.key, form, record.status, record.final_seconds, __version__)
    return hashlib.sha256(repr(state).encode()).hexdigest()[:32]


def _values(value: Workload | Record) -> dict[str, Any]:
    """As JSON; a record's time of storing is not among what its program follows from."""
    return {f.name: getattr(value, f.name) for f in fields(value) if f.name not in ("created_at",)}

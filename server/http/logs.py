"""Structured logs: one JSON object a line, with the ids of request and job, and no secret.

`configure` is called by the programs (`autosched serve`, a job's process), never on import.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The request that is being answered, `-` outside of one."""
job_id: ContextVar[str] = ContextVar("job_id", default="-")
"""The job that is being worked on."""

_SECRETS = re.compile(
    r"(?P<token>\bas_[0-9a-f]{12}_)[\w-]+"
    r"|(?P<bearer>\b[Bb]earer\s+)[^\s\"']+"
    r"|(?P<user>://[^\s:/@]*:)[^\s@/]+(?=@)"
    r"|(?P<query>[?&](?:password|token)=)[^\s&\"']+"
)
_MARKS = ("as_", "earer", "://", "password=", "token=")
"""One of these stands in every text that has a secret: looking for them is faster."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName"),
    "color_message",  # of uvicorn, for terminals
}
"""Attributes of every log record; what else one has was given as `extra`."""


def redact(text: str) -> str:
    """`text` without tokens and passwords."""
    if not _may_tell(text):
        return text
    return _SECRETS.sub(lambda m: f"{next(filter(None, m.groups()))}***", text)


def _may_tell(text: str) -> bool:
    """Whether `text` may have a secret."""
    return any(mark in text for mark in _MARKS)


class JsonFormatter(logging.Formatter):
    """One line of JSON: time, level, logger, message, request_id and job_id, and every `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, variable in (("request_id", request_id), ("job_id", job_id)):
            if (value := variable.get()) != "-":
                entry[name] = value
        entry |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        plain = (int, float, type(None))  # everything else is text, which may hold a secret
        told = {k: v if isinstance(v, plain) else str(v) for k, v in entry.items()}
        line = json.dumps(told)
        if not _may_tell(line):  # JSON writes the marks as they are
            return line
        return json.dumps({k: redact(v) if isinstance(v, str) else v for k, v in told.items()})


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream` (standard error) as JSON, from `level` on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"  # the gate writes the line of each request
    for name in ("httpx", "httpcore", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)

"""Errors as RFC 9457 problems: one shape for every route, unknown paths and validation included.

`KINDS` is the table of everything that is answered instead of a result. `ProblemError` is raised
anywhere below a route; `install` turns it, and the errors of the packages underneath, into
`application/problem+json`.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from autosched.errors import AutoschedError
from records.errors import (
    LeaseLost,
    NoRecord,
    QueueFull,
    QuotaExceeded,
    RecordError,
    SchemaVersionError,
    StoreDamaged,
    StoreUnavailable,
)
from server.http import logs
from server.schemas import Problem, ProblemItem

_log = logging.getLogger("autosched.requests")

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2
"""What is unavailable now is worth another try after this many seconds."""
FULL_SECONDS = 10
"""So is a queue that is full."""


@dataclass(frozen=True)
class Kind:
    """A row of the table: the last part of a problem's `type`, its status and its title."""

    name: str
    status: int
    title: str


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("malformed-request", 400, "The request cannot be read"),
        Kind("bad-host", 400, "The Host header names another server"),
        Kind("unauthorized", 401, "A token is needed"),
        Kind("forbidden", 403, "The token does not allow this"),
        Kind("quota-exceeded", 403, "The token has spent what it may"),
        Kind("cross-site", 403, "Requests from other sites are refused"),
        Kind("not-found", 404, "There is no such thing"),
        Kind("method-not-allowed", 405, "The path does not have this method"),
        Kind("not-acceptable", 406, "There is no such representation"),
        Kind("request-timeout", 408, "The request took too long to arrive"),
        Kind("conflict", 409, "The state of things does not allow this"),
        Kind("precondition-failed", 412, "A precondition does not hold"),
        Kind("too-large", 413, "The request is too large"),
        Kind("uri-too-long", 414, "The URL is too long"),
        Kind("unsupported-media-type", 415, "The body is of a kind that is not read"),
        Kind("invalid-request", 422, "The request does not fit its schema"),
        Kind("invalid-workload", 422, "The workload cannot be tuned"),
        Kind("workload-too-large", 422, "The workload is beyond the limits of this service"),
        Kind("address-not-allowed", 422, "The service may not send to this address"),
        Kind("rate-limited", 429, "Too many requests"),
        Kind("queue-full", 429, "Too many jobs wait"),
        Kind("too-many-streams", 429, "Too many event streams are open"),
        Kind("headers-too-large", 431, "The headers are too large"),
        Kind("internal-error", 500, "The service made a mistake"),
        Kind("database-damaged", 500, "The database is damaged"),
        Kind("unsupported-transfer-coding", 501, "The body is sent in a way that is not read"),
        Kind("unavailable", 503, "The service cannot answer now"),
    )
}
_OF_STATUS = {kind.status: kind for kind in reversed(tuple(KINDS.values()))}
"""Status -> the kind that is meant where only a status is known: the first of that status."""

_EXHAUSTED = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
"""Errors of the machine's that pass: no room on a disk, too many files, no memory."""


class ProblemError(Exception):
    """A request that is answered with a problem.

    `kind` is a name in `KINDS`; without one it is that of the status. `detail` says what was
    expected, what was found and what to do next; `errors` what is wrong with parts of the request.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[ProblemItem] = (),
    ) -> None:
        super().__init__(detail)
        self.kind = _kind_of(status) if kind is None else KINDS[kind]
        self.status = self.kind.status
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = list(errors)


def refused(kind: str, detail: str, *, headers: Mapping[str, str] | None = None) -> ProblemError:
    """The problem of that kind, a name in `KINDS`."""
    return ProblemError(KINDS[kind].status, detail, kind=kind, headers=headers)


def unavailable(detail: str, seconds: float = RETRY_SECONDS) -> ProblemError:
    """What cannot be answered now, with the time after which to try again."""
    return refused("unavailable", detail, headers=retry_after(seconds))


def retry_after(seconds: float) -> dict[str, str]:
    """The header that tells clients when to come back: whole seconds, at least one."""
    return {"Retry-After": str(max(1, int(-(-seconds // 1))))}


def _kind_of(status: int) -> Kind:
    known = _OF_STATUS.get(status)
    return known or _OF_STATUS[500 if status >= 500 else 400]


def response(error: ProblemError, path: str) -> Response:
    """The answer to a request for `path` that ended in `error`."""
    problem = Problem(
        type=f"urn:autosched:problem:{error.kind.name}",
        title=error.kind.title,
        status=error.status,
        detail=printable(error.detail),
        instance=printable(path),
        request_id=logs.request_id.get(),
        errors=[
            ProblemItem(at=printable(e.at), message=printable(e.message)) for e in error.errors
        ],
    )
    body = json.dumps(problem.model_dump(), ensure_ascii=False).encode()
    headers = {"Cache-Control": "no-store", **error.headers}
    return Response(body, error.status, headers, MEDIA_TYPE)


def is_json(kind: str) -> bool:
    """Whether a media type, in lower case and without parameters, is JSON."""
    return kind == "application/json" or kind.endswith("+json")


def printable(text: str, limit: int = 4000) -> str:
    """Text that any client can read: no control characters, no lone surrogates, and not endless."""
    text = text[: limit + 1].encode("utf-8", "backslashreplace").decode()
    text = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return text if len(text) <= limit else f"{text[:limit]}…"


def problem_of(error: Exception) -> ProblemError | None:
    """What an error of the packages underneath means to a client; None for a mistake of ours."""
    match error:
        case ProblemError():
            return error
        case StoreDamaged():
            _log.error("the database is damaged: %s", error)
            return refused(
                "database-damaged",
                "the database of this server is damaged: it takes no jobs, and to try again does "
                "not help; its log says what was found, and `autosched db check` what to do",
            )
        case StoreUnavailable() | SchemaVersionError():
            return _of_database(error)
        case QueueFull():
            return refused("queue-full", str(error), headers=retry_after(FULL_SECONDS))
        case QuotaExceeded():
            return refused("quota-exceeded", str(error))
        case NoRecord():
            return refused("not-found", str(error))
        case LeaseLost():
            return refused("conflict", str(error))
        case RecordError():
            if isinstance(error.__cause__, SQLAlchemyError):
                return _of_database(error)
            return refused("conflict", str(error))
        case AutoschedError():
            return refused("invalid-workload", str(error))
        case RequestValidationError():
            return _of_validation(error)
        case HTTPException():
            return _of_status(error)
        case OSError(errno=code) if code in _EXHAUSTED:
            _log.error("a request found this machine exhausted: %s", error)
            return unavailable("this server has no room for it now; try again later")
    return None


def _of_database(error: Exception) -> ProblemError:
    """Trouble with the database, whose address is for the log only."""
    _log.warning("a request could not use the database: %s", error)
    return unavailable("the database cannot be used now; try again")


def _of_validation(error: RequestValidationError) -> ProblemError:
    found = [
        ProblemItem(at="/".join(map(str, e["loc"])), message=str(e["msg"])) for e in error.errors()
    ]
    shown = "; ".join(f"{e.at}: {e.message}" for e in found[:5])
    more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
    broken = any(e["type"] == "json_invalid" for e in error.errors())
    return ProblemError(400 if broken else 422, f"{shown}{more}", errors=found[:50])


def _unread(error: RequestValidationError) -> bool:
    """Whether there is a body, and it was not even looked into."""
    return any(e["loc"] == ("body",) and e["type"] != "missing" for e in error.errors())


def _of_status(error: HTTPException) -> ProblemError:
    detail = str(error.detail)
    if error.status_code == 404 and detail == "Not Found":
        detail = "no such path; /v1/openapi.json lists them all"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "others")
        detail = f"this path does not have this method; it has {allowed}"
    return ProblemError(error.status_code, detail, headers=error.headers)


def install(app: FastAPI) -> None:
    """Answer every error that a route raises with a problem.

    What is a mistake of ours passes on to the gate, which answers 500 and logs it.
    """

    async def answer(request: Request, error: Exception) -> Response:
        found = problem_of(error)
        if found is None:
            raise error
        if (service := getattr(app.state, "service", None)) is not None:
            service.readiness.note(error)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if isinstance(error, RequestValidationError) and _unread(error) and not is_json(kind):
            what = f"expected a body with Content-Type application/json, found {kind or 'none'}"
            found = refused("unsupported-media-type", what)
        return response(found, request.url.path)

    for kind in (ProblemError, RecordError, AutoschedError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)

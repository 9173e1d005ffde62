"""Answers of the service as a client sees them: errors, retries, parts of a stream."""

from __future__ import annotations

import html
import json
import random
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from autosched.errors import AutoschedError
from server import schemas

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


_TOLD_S = 2.0
"""Waiting for so long is told of."""


_FOR_THE_MOMENT = (429, 502, 503, 504)

_GIST = 200
"""Characters of a page that are shown."""
_MARKUP = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1\s*>|<[^>]*>?", re.DOTALL | re.IGNORECASE)


M = TypeVar("M", bound=BaseModel)


class ServiceError(AutoschedError):
    """The service did not do what was asked: the root of what a client raises."""


class ServiceUnreachable(ServiceError):
    """No answer for as long as the client's patience lasts; the same call may work later."""


class RequestRefused(ServiceError):
    """The service answered with an error. `status`: that of HTTP; `problem`: what the service says
    of it (RFC 9457), None where something in between has answered."""

    def __init__(self, message: str, status: int, problem: schemas.Problem | None) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


class Later(Exception):
    """An answer that asks to come back; `refusal` is what it is if that does not help."""

    def __init__(self, refusal: RequestRefused, seconds: float | None) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.seconds = seconds


class Retry:
    """Growing pauses, for so many seconds in all."""

    def __init__(self, patience: float, on_wait: Callable[[str], None]) -> None:
        self._patience, self._on_wait = patience, on_wait
        self.begin()

    def begin(self) -> None:
        """As if nothing had failed so far."""
        self._end = time.monotonic() + self._patience
        self._next = _FIRST_PAUSE_S
        self._tell_at: float | None = time.monotonic() + _TOLD_S

    def leaving_out(self, lines: Iterator[str]) -> Iterator[str]:
        """`lines`; the time until each of them is not counted, however long it has no news."""
        since = time.monotonic()
        for line in lines:
            well = time.monotonic() - since
            self._end += well
            if self._tell_at is not None:
                self._tell_at += well
            yield line
            since = time.monotonic()

    def pause(self, why: str, error: Exception | None) -> None:
        """Wait, or raise if the time is over. What follows an end that was in order is asked for
        at once the first time."""
        asked = error.seconds if isinstance(error, Later) else None
        seconds = self._next * random.uniform(0.5, 1.0) if asked is None else asked
        if time.monotonic() + seconds > self._end:
            if isinstance(error, Later):
                raise error.refusal from error
            raise ServiceUnreachable(f"{why}; is the server running?") from error
        if self._tell_at is not None and time.monotonic() + seconds > self._tell_at:
            self._tell_at = None
            left = self._end - time.monotonic()
            self._on_wait(f"{why}; trying again for {left:.0f} seconds")
        self._next = min(2 * self._next, _LONGEST_PAUSE_S)
        time.sleep(seconds)  # before the request is sent again


def raise_for(response: httpx.Response) -> None:
    """Raises RequestRefused for an error, and Later for one that may pass."""
    if not (response.is_error or response.is_redirect):
        return
    refusal = _refusal(response)
    if response.status_code in _FOR_THE_MOMENT:
        after = response.headers.get("Retry-After", "")
        raise Later(refusal, float(after) if after.isdecimal() else None)
    raise refusal


def _refusal(response: httpx.Response) -> RequestRefused:
    status = response.status_code
    try:
        problem = schemas.Problem.model_validate(response.json())
    except ValueError:  # not JSON, or not a problem: a proxy, or another server
        where = f"{response.request.method} {response.request.url}"
        told = f"{where} was answered with {status}: {_gist(response)}"
        return RequestRefused(told, status, None)
    lines = [f"{problem.title}: {problem.detail}"]
    parts = [f"{item.at}: {item.message}" for item in problem.errors or ()]
    lines += [f"  {part}" for part in parts if part not in problem.detail]
    return RequestRefused(_printable("\n".join(lines)), status, problem)


def _gist(response: httpx.Response) -> str:
    """What an answer that is not the service's says, on a line: without a page's markup, and not
    all of it."""
    if response.has_redirect_location:
        return f"a redirect to {_printable(response.headers['Location'][:_GIST])}; use that address"
    text = response.text[: 20 * _GIST]
    if "html" in response.headers.get("Content-Type", "") or text.lstrip().startswith("<"):
        text = html.unescape(_MARKUP.sub(" ", text))
    text = _printable(" ".join(text.split()))
    return text if len(text) <= _GIST else f"{text[:_GIST]}…"


def _printable(text: str) -> str:
    """Text of an untrusted server with its control characters replaced, safe on a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def check_stream(response: httpx.Response) -> None:
    """Raises ServiceError for an answer that is no stream of events."""
    kind = response.headers.get("Content-Type", "")
    if not kind.startswith("text/event-stream"):
        raise ServiceError(
            f"{response.request.url} did not answer with a stream of events, but with "
            f"{_printable(kind[:_GIST]) or 'nothing'}; is it an autosched service?"
        )


def checked(model: type[M], response: httpx.Response, data: Any = None) -> M:
    """The answer as a model. Raises ServiceError for what no version of the service answers."""
    try:
        return model.model_validate(response.json() if data is None else data)
    except ValueError as e:
        why = str(e)
        if isinstance(e, ValidationError):
            first = e.errors(include_input=False)[0]
            why = f"{'/'.join(map(str, first['loc']))}: {first['msg']}"
        raise ServiceError(
            f"{response.request.url} did not answer as this version of autosched expects, "
            f"which takes a {model.__name__}: {_printable(why[:_GIST])}"
        ) from e


def sse(lines: Iterable[str]) -> Iterator[schemas.Event]:
    """The events of a stream; one that breaks off in its middle is no event."""
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            text, data = "\n".join(data), []
            try:
                yield schemas.Event.model_validate(json.loads(text))
            except ValueError as e:
                raise ServiceError(f"not an event of a job: {_printable(text[:_GIST])}") from e


def is_untrusted(error: BaseException | None) -> bool:
    """Whether a connection failed by the server's certificate, as it would again."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def reason(error: httpx.RequestError) -> str:
    """What a connection failed by."""
    return str(error) or type(error).__name__

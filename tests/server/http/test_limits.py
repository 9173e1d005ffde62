"""Bodies, rates and streams: what one request and one client may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.datastructures import Headers

from server.http import limits
from server.http.limits import HeldBytes, RateLimiter, RequestBody, StreamLimiter
from server.http.problems import ProblemError
from server.http.strict_json import strict_json
from server.web.problems import wants_html


def parts(*bodies: bytes, then: float = 0.0) -> Callable[[], Awaitable[Any]]:
    """What a client sends: these parts, a pause before the last one."""
    left = list(bodies)

    async def receive() -> Any:
        if not left:
            return {"type": "http.disconnect"}
        if len(left) == 1 and then:
            await asyncio.sleep(then)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


async def all_of(body: RequestBody) -> None:
    """Receive a body as a route does that streams it."""
    while (await body()).get("more_body"):
        pass


def test_a_whole_body_is_read_and_can_be_received() -> None:
    async def run() -> None:
        body = RequestBody(parts(b"ab", b"c"), 3, 10)
        assert await body.read() == b"abc"
        assert await body() == {"type": "http.request", "body": b"abc", "more_body": False}
        assert await body() == {"type": "http.disconnect"}

    asyncio.run(run())


def test_a_streamed_body_is_passed_on_in_parts() -> None:
    async def run() -> None:
        body = RequestBody(parts(b"ab", b"c"), 3, 10)
        assert [(await body())["body"], (await body())["body"]] == [b"ab", b"c"]

    asyncio.run(run())


@pytest.mark.parametrize("whole", [True, False])
def test_a_body_that_goes_on_is_refused_while_it_arrives(whole: bool) -> None:
    """Whatever its Content-Length says, or if it has none."""

    async def run() -> None:
        body = RequestBody(parts(b"abcd", b"efgh", b"never"), 7, 10)
        with pytest.raises(ProblemError, match="at most 7 bytes") as caught:
            await (body.read() if whole else all_of(body))
        assert (caught.value.status, caught.value.headers) == (413, {"Connection": "close"})

    asyncio.run(run())


@pytest.mark.parametrize("whole", [True, False])
def test_a_body_that_does_not_arrive_is_given_up(whole: bool) -> None:
    async def run() -> None:
        body = RequestBody(parts(b"a", b"b", then=30), 100, 0.05)
        with pytest.raises(ProblemError) as caught:
            await (body.read() if whole else all_of(body))
        assert caught.value.status == 408

    asyncio.run(run())


def test_a_body_that_arrives_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part in time, and hardly anything in it: a client that only holds a place."""
    clock = [0.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: clock[0])

    async def run(part: bytes) -> int:
        count = 0

        async def receive() -> Any:
            nonlocal count
            count += 1
            clock[0] += 4.0
            return {"type": "http.request", "body": part, "more_body": count < 100}

        await all_of(RequestBody(receive, 1 << 30, 10))
        return count

    assert asyncio.run(run(b"x" * (limits.STREAMED_BYTES // 2))) == 100
    with pytest.raises(ProblemError, match="3 bytes of the body arrived within 10 s") as caught:
        asyncio.run(run(b"x"))
    assert caught.value.status == 408


def test_bytes_are_held_in_all_and_by_client() -> None:
    held = HeldBytes(100, 60)
    assert held.add("a", 60)
    assert not held.add("a", 1)
    assert held.add("b", 40)
    assert not held.add("c", 1)
    assert held.add("a", -60)
    assert held.add(None, 60), "of many clients together"
    assert not held.add(None, 1)
    assert held.add("b", -40)
    assert held.add(None, -60)
    assert (held.total, held._by_client) == (0, {})


def test_what_is_thrown_away_of_a_body_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr(limits, "DRAIN_BYTES", 6)
        left = parts(b"abcd", b"efgh", b"ijkl", b"")
        await limits.drain(left)
        assert (await left())["body"] == b"ijkl"
        await limits.drain(parts())
        monkeypatch.setattr(limits, "DRAIN_SECONDS", 0.05)
        await limits.drain(parts(b"a", b"b", then=30))

    asyncio.run(run())


def test_a_client_that_goes_away() -> None:
    async def run() -> None:
        with pytest.raises(ProblemError, match="ended early"):
            await RequestBody(parts(), 100, 10).read()

    asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    [
        b"{}", b"[]", b"null", b'"a"', b'{"a": [1, -1.5e300, true, null, "\xc3\xa9"]}',
        b"18446744073709551615", b"-9223372036854775808", b'"\\ud83d\\ude00"',
        b"[" * 64 + b"]" * 64,
    ],
)  # fmt: skip
def test_json_that_is_read(text: bytes) -> None:
    strict_json(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1, column 2"),
        (b"{} {}", "Extra data"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"x": {"a": 1, "b": 2, "a": 1}}', "'a' stands twice"),
        (b"NaN", "NaN is no number"),
        (b"[1, -Infinity]", "-Infinity is no number"),
        (b"1e999", "beyond the range of a double"),
        (b"18446744073709551616", "does not fit 64 bits"),
        (b"9" * 5000, "does not fit 64 bits"),
        (b'"\\u0000"', "NUL"),
        (b'{"\\u0000": 1}', "NUL"),
        (b'["\\ud800"]', "lone surrogate"),
        (b'{"\\udfff": 1}', "lone surrogate"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 65 + b"]" * 65, "nests more than 64 deep"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nests more than 64 deep"),
        (b"[" * 20_000, "nests more than 64 deep"),
        (b"1." + b"1" * 1000, "has more than 1000 characters"),
        (b'"\x01"', "Invalid control character"),
        (b"{'a': 1}", "double quotes"),
    ],
)
def test_json_that_means_different_things_or_none(text: bytes, message: str) -> None:
    with pytest.raises(ProblemError, match=message) as caught:
        strict_json(text)
    assert caught.value.status == 400


class Clock:
    """A clock that stands until it is told to go on."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(limits, "time", clock)
    return clock


def test_a_rate_by_client(clock: Clock) -> None:
    rate = RateLimiter(2.0, 3)
    for _ in range(3):
        rate.take("a")
    with pytest.raises(ProblemError) as caught:
        rate.take("a")
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    rate.take("b")
    clock.now += 0.5
    rate.take("a")
    with pytest.raises(ProblemError):
        rate.take("a")
    clock.now += 1000
    for _ in range(3):
        rate.take("a")
    with pytest.raises(ProblemError):
        rate.take("a")


def test_a_slow_rate_says_when_to_come_back(clock: Clock) -> None:
    rate = RateLimiter(0.1, 1)
    rate.take("a")
    with pytest.raises(ProblemError) as caught:
        rate.take("a")
    assert caught.value.headers == {"Retry-After": "10"}


def test_no_rate_and_many_clients(clock: Clock) -> None:
    free = RateLimiter(0, 1)
    for _ in range(100):
        free.take("a")
    rate = RateLimiter(1.0, 1, clients=10)
    for n in range(1000):
        rate.take(str(n))
    assert len(rate._buckets) == 10


@pytest.mark.parametrize(
    ("accept", "stream"),
    [
        ([], True),
        (["*/*"], True),
        (["text/html"], True),
        (["text/event-stream, application/json"], True),
        (["application/json", "text/event-stream"], True),
        (["application/json;q=0"], True),
        (["application/json;q=0, */*"], True),
        (["application/json;q=0.5, text/*"], True),
        (["Application/JSON"], False),
        (["application/json, */*"], False),
        (["application/json, text/plain, */*;q=0.1"], False),
        (["text/event-stream;q=0.1, application/json"], False),
        (["text/event-stream;charset=utf-8; Q = 0.1", "application/json ;q=0.2"], False),
        (["text/event-stream;q=0"], False),
        (["text/event-stream;q=x, application/json;q=0.9"], True),
    ],
)
def test_a_stream_or_a_page_by_the_weights_of_accept(accept: list[str], stream: bool) -> None:
    headers = Headers(raw=[(b"accept", text.encode()) for text in accept])
    assert limits.wants_stream(headers) == stream


@pytest.mark.parametrize(
    ("accept", "html"), [("text/html;q=0", False), ("TEXT/HTML", True), ("*/*", False)]
)
def test_pages_are_for_those_who_name_html(accept: str, html: bool) -> None:
    assert wants_html(Headers({"accept": accept})) == html


def test_streams_are_counted_in_all_and_by_client() -> None:
    streams = StreamLimiter(3, 2)
    streams.enter("a")
    streams.enter("a")
    with pytest.raises(ProblemError, match="2 of them yours") as caught:
        streams.enter("a")
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "5"})
    streams.enter("b")
    with pytest.raises(ProblemError, match="3 event streams are open"):
        streams.enter("c")
    streams.leave("a")
    streams.enter("c")
    for key in "abc":
        streams.leave(key)
    assert (streams.open, streams._by_client) == (0, {})

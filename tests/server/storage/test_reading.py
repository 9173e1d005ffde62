"""What is read for clients: shared by those who wait for the same, never older than they are."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio.to_thread
import pytest

from server.storage.reading import Reading


class Shelf:
    """Something that is read slowly: each read waits to be released."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0
        self.entered = threading.Semaphore(0)
        self.release = threading.Semaphore(0)

    def read(self) -> int:
        found = self.value
        self.reads += 1
        self.entered.release()
        assert self.release.acquire(timeout=60)
        if found < 0:
            raise ValueError(f"found {found}")
        return found


async def entered(shelf: Shelf) -> None:
    """Wait until a read has begun."""
    while not shelf.entered.acquire(blocking=False):
        await asyncio.sleep(0.001)


def asked(reading: Reading, shelf: Shelf, times: int, what: str = "a") -> list[asyncio.Task[int]]:
    return [asyncio.create_task(reading.do(what, shelf.read)) for _ in range(times)]


def test_those_who_wait_for_the_same_share_a_read_that_begins_after_them() -> None:
    shelf = Shelf()

    async def main() -> list[Any]:
        reading = Reading(1)
        first = asked(reading, shelf, 1)
        await entered(shelf)
        shelf.value = 1  # what was stored while the first one reads, the others see
        later = asked(reading, shelf, 10) + asked(reading, shelf, 1, "b")
        await asyncio.sleep(0)
        later[0].cancel()  # its client has gone; the others are answered
        shelf.release.release(3)
        return await asyncio.gather(*first, *later, return_exceptions=True)

    found = asyncio.run(main())
    assert found[0] == 0
    assert isinstance(found[1], asyncio.CancelledError)
    assert found[2:] == [1] * 10
    assert shelf.reads == 3


def test_one_thread_reads_while_it_is_enough_and_others_help_where_reads_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf()

    async def main() -> list[int]:
        reading = Reading(2)
        first = asked(reading, shelf, 1, "slow")
        await entered(shelf)
        monkeypatch.setattr("server.storage.reading.HELP_SECONDS", 3600.0)
        second = asked(reading, shelf, 1, "b")
        await asyncio.sleep(0.02)
        assert shelf.reads == 1  # the second waits for the first
        shelf.release.release(2)
        found = await asyncio.gather(*first, *second)
        monkeypatch.setattr("server.storage.reading.HELP_SECONDS", 0.001)
        reading = Reading(2)
        tasks = asked(reading, shelf, 1, "slow") + asked(reading, shelf, 1, "b")
        await entered(shelf)
        await entered(shelf)  # though the first has not ended
        tasks += asked(reading, shelf, 1, "c")
        await asyncio.sleep(0.02)
        assert shelf.reads == 4  # two threads, and no more
        shelf.release.release(3)
        found += await asyncio.gather(*tasks)
        return found

    assert asyncio.run(main()) == [0] * 5
    assert shelf.reads == 5


def test_who_comes_while_it_is_read_gets_a_read_of_their_own() -> None:
    shelf = Shelf()

    async def main() -> list[int]:
        reading = Reading(2)
        first = asked(reading, shelf, 2)
        await entered(shelf)
        shelf.value = 1
        second = asked(reading, shelf, 2)
        await entered(shelf)  # beside the first, in a thread of its own
        shelf.release.release(2)
        return await asyncio.gather(*first, *second)

    assert asyncio.run(main()) == [0, 0, 1, 1]
    assert shelf.reads == 2


def test_a_failure_is_told_to_all_and_remembered_by_none() -> None:
    shelf = Shelf()

    async def main() -> int:
        reading = Reading(2)
        shelf.value = -1
        shelf.release.release(2)
        failed = await asyncio.gather(*asked(reading, shelf, 3), return_exceptions=True)
        assert [str(e) for e in failed] == ["found -1"] * 3
        shelf.value = 2
        return await reading.do("a", shelf.read)

    assert asyncio.run(main()) == 2


def test_a_read_that_never_began_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> int:
        reading = Reading(2)
        with monkeypatch.context() as broken:
            broken.setattr(anyio.to_thread, "run_sync", no_thread)
            with pytest.raises(RuntimeError):
                await reading.do("a", lambda: 1)
        return await reading.do("a", lambda: 2)

    assert asyncio.run(main()) == 2

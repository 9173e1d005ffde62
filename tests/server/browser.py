"""A real browser that notes what must not happen on a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, Request, Response, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
PHONE = {"width": 320, "height": 700}
"""The narrowest that WCAG 2 asks for (1.4.10): also a wide window, enlarged four times."""
PATIENCE = 60_000
"""Milliseconds that something on a page may take on a busy machine."""


@cache
def program() -> str | None:
    """The browser of this machine; None without."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def missing() -> str | None:
    """Why there can be no browser here; None if there can."""
    if program() is None:
        return f"no browser ({', '.join(PROGRAMS)}) on this machine: apt-get install chromium"
    return None


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser without a window. Only one at a time: it keeps the thread's event loop."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page in a context of its own, and what went wrong on it.

    `expected` is the part of the messages that a test provokes.
    """

    page: Page
    context: BrowserContext
    messages: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    expected: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Nothing went to the console (violations of the content policy do), and no request
        left this machine."""
        unexpected = [m for m in self.messages if not any(e in m for e in self.expected)]
        assert not unexpected, unexpected
        assert self.hosts == {"127.0.0.1"}, self.hosts


@contextmanager
def tab(browser: Browser, base_url: str, **options: Any) -> Iterator[Tab]:
    """A tab that is checked when the block ends."""
    context = browser.new_context(base_url=base_url, **options)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    opened = Tab(page, context)

    def note_request(request: Request) -> None:
        if (host := urlsplit(request.url).hostname) is not None:
            opened.hosts.add(host)

    def note_response(response: Response) -> None:
        if response.status >= 500:
            opened.messages.append(f"{response.status} {response.url}")

    context.on("request", note_request)
    context.on("response", note_response)
    page.on("console", lambda m: opened.messages.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: opened.messages.append(f"error: {e}"))
    try:
        yield opened
        opened.check()
    finally:
        context.close()

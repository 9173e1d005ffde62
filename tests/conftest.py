"""What all tests share: settings of hypothesis, signals, comparison with golden files."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import bounded
import pytest
import pytest_rerunfailures
import pytest_timeout
from hypothesis import HealthCheck, settings

# No example is too slow on a machine that is busy with other things. The same examples every time,
# so that a change is all that a failure can come from; `make fuzz` tries others.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fresh", settings.get_profile("same"), derandomize=False)
settings.load_profile("fresh" if "FUZZ_FRESH" in os.environ else "same")

TIMED = ("measure", "tuning", "server", "cli", "records", "benchmarks", "gpu")
"""Folders of tests of processes, sockets, browsers and clocks. A machine that stands still at the
wrong moment may fail them, so each may run once more, from scratch; all others are deterministic.
At most three of a run (--max-suite-reruns), and the first failures are printed at its end."""
FAILED = pytest.StashKey[bool]()
LIMIT = pytest.StashKey[pytest_timeout.Settings]()
TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # Processes of xdist ask for the reruns so far right after a message without an answer, which
    # Nagle's algorithm holds up for 40 ms at each test that may run again.
    db = getattr(config, "failures_db", None)
    if isinstance(db, pytest_rerunfailures.SocketDB):
        db.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bounded.capture = config.pluginmanager.getplugin("capturemanager")
    # A shell's background jobs ignore Ctrl-C, those of nohup a hangup, and so would all that tests
    # start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """600,000 objects of modules and tests come to stay: no collector of garbage need look through
    them, neither while they come nor in any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long tests that may take longest come first, so that no process ends with one alone.
    Those of TIMED may be run again. Of many cases some are not long."""
    seen: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and item.get_closest_marker("long") is None:
            name = item.nodeid.partition("[")[0]
            if seen[name] % sampled.args[0]:
                item.add_marker(pytest.mark.long)
            seen[name] += 1
    if not config.option.usepdb:
        for item in items:
            if item.path.relative_to(TESTS).parts[0] in TIMED:
                item.add_marker(pytest.mark.flaky(reruns=1))

    def may_take(item: pytest.Item) -> float:
        limit = item.get_closest_marker("timeout")
        return limit.args[0] if limit and item.get_closest_marker("long") else 0.0

    items.sort(key=may_take, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed or logged goes to another process, which takes UTF-8 only."""
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> None:
    """Remember the limit, and leave it to others to set the timer."""
    item.stash[LIMIT] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Another attempt has a time limit too: that of the test ended with its first failure."""
    if item.stash.get(FAILED, False) and LIMIT in item.stash:
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[LIMIT])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a failed test shared with others may be broken: whoever is next has it made anew."""
    if item.stash.get(FAILED, False) and item.get_closest_marker("flaky"):
        item.session._setupstate.teardown_exact(None)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with golden/<name>.txt beside the test."""
    folder = Path(request.path).parent / "golden"
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        file = folder / f"{name}.txt"
        if update:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        assert file.exists(), f"no golden file {file}; make it with pytest --update-golden"
        assert text == file.read_text(encoding="utf-8"), f"{file} differs; see --update-golden"

    return check

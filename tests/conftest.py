"""What all tests share: comparison with golden files."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import bounded
import pytest
from hypothesis import settings

# The same examples every time, so that a change is all that a failure can come from; `make fuzz`
# tries others.
settings.register_profile("same", derandomize=True)
settings.register_profile("fresh", derandomize=False)
settings.load_profile("fresh" if "FUZZ_FRESH" in os.environ else "same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


def pytest_configure(config: pytest.Config) -> None:
    bounded.capture = config.pluginmanager.getplugin("capturemanager")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed or logged goes to another process, which takes UTF-8 only."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


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

"""Words that the project no longer uses stay out of sources, pages and documentation.

Each was a coinage where the field has a term. Matching is by whole words and by case; lab notes
keep the words of their time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("autosched", "measure", "cost_model", "records", "server")

RETIRED = {
    "witness": "interference probe",
    "yardstick": "control kernel",
    "pacer": "clock probe",
    "finale": "final re-measurement",
    "patience": "wait budget",
    "restless": "a member of an enum of conditions",
    "lively": "a member of an enum of conditions",
    "calm": "a member of an enum of conditions",
    "crowded": "a member of an enum of conditions",
    "troubled": "a member of an enum of conditions",
    "UNSEEN": "BETWEEN_RUN_INFLATION",
    "NobodyAble": "NoEligibleDevice",
    "mend": "repair: recompute derived columns",
    "mending": "repair: recompute derived columns",
    "_Intake": "import batch",
    "gpu_words": "gpu_dialect",
    "stranger": "client, another process, records outside this space",
    "strangers": "clients, other processes, records outside this space",
    "keeper": "lease-fenced record writer",
    "Keeper": "lease-fenced record writer",
    "glance": "summary cache",
}
"""Word -> the term in its place, in sources, web pages and documentation."""
RETIRED_IN_TEXT = {
    "fence": "guard pages",
    "fences": "guard pages",
    "visit": "sample block",
    "visits": "sample blocks",
    "turn": "sample block, round, iteration",
    "turns": "sample blocks, rounds, alternation",
    "moment": "start condition, time",
    "moments": "start conditions, times",
}
"""Words of ordinary English, retired where timing is explained: documentation and `measure`."""
RETIRED_MODULES = {
    "children": "subprocesses",
    "fence": "guard_pages",
    "finale": "final re-measurement",
    "glance": "summary cache",
    "gpu_words": "gpu_dialect",
    "heads": "HEAD middleware",
    "intake": "import batch",
    "keeper": "lease-fenced record writer",
    "leaving": "cooperative shutdown",
    "mending": "repair",
    "pacer": "clock_probe",
    "patience": "wait budget",
    "remains": "process_state",
    "taking": "import batch",
    "visits": "sample blocks",
    "witness": "interference_probe",
    "yardstick": "control_kernel",
}
"""Basename of a module -> what it is."""

ALLOWED: dict[tuple[str, str], str] = {
    ("server/client", "patience"): "an argument of the public client",
    ("docs/service.md", "patience"): "an argument of the public client",
    ("measure/local/lock.py", "turn"): "part of a lock file's name, which older versions look for",
}
"""(file or folder, word) -> why it may stay. A line that matches nothing has to go."""


def sources(*folders: str) -> Iterator[Path]:
    """Sources and pages below folders, without files of others."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".html", ".js"):
                yield file


def pages() -> list[Path]:
    """README and documentation, without lab notes."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *(f for f in docs.rglob("*.md") if f.parent.name != "lab")]


def hits(files: Iterator[Path] | list[Path], words: Mapping[str, str]) -> list[tuple[str, str]]:
    """(file, word) of every file in which a word stands."""
    return [
        (str(file.relative_to(ROOT)), word)
        for file in files
        for word in sorted(used(file.read_text(encoding="utf-8"), words))
    ]


def used(text: str, words: Mapping[str, str]) -> set[str]:
    """Those of the words that stand in a text, whole and by case."""
    return set(re.findall(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", text))


def allowance(path: str, word: str) -> tuple[str, str] | None:
    """The line of the allow-list that a use falls under."""
    of_word = (place for place, allowed in ALLOWED if allowed == word)
    found = (place for place in of_word if path == place or path.startswith(f"{place}/"))
    return next(((place, word) for place in found), None)


def test_retired_words_are_gone() -> None:
    found = hits([*sources(*PACKAGES), *pages()], RETIRED)
    found += hits([*sources("measure"), *pages()], RETIRED_IN_TEXT)
    terms = RETIRED | RETIRED_IN_TEXT
    wrong = [f"{p}: {w} (say: {terms[w]})" for p, w in found if allowance(p, w) is None]
    assert not wrong, "\n".join(wrong)
    unused = ALLOWED.keys() - {allowance(p, w) for p, w in found}
    assert not unused, f"remove from ALLOWED what is gone: {sorted(unused)}"


def test_modules_have_no_retired_names() -> None:
    found = sorted({f for f in sources(*PACKAGES) if f.stem in RETIRED_MODULES})
    wrong = [f"{f.relative_to(ROOT)} (say: {RETIRED_MODULES[f.stem]})" for f in found]
    assert not wrong, wrong


def test_matching_is_by_whole_words_and_case() -> None:
    text = "self._keeper, Keeper; keepers of a pace.pacer"
    assert used(text, RETIRED) == {"Keeper", "pacer"}

"""Builds the site of the documentation into `build/site`, and checks it. `make docs` runs this.

    python docs/site/build.py

1. `docs/` and the pages of `benchmarks/` are copied to `build/docs`. Links are written as they work
   in the repository; those that cross the border of `docs/` are rewritten, and a link to a file
   that is no page, such as a source, becomes its text.
2. Zensical makes the site, by `mkdocs.yml`; its warnings (links, headings) are errors.
3. The pages are read again: every page is in the navigation, every link and fragment of the site
   leads somewhere, those of the reference included, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
STAGED = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
OUTSIDE = ("benchmarks/README.md", "benchmarks/RESULTS.md")
"""Pages that lie beside `docs/`; their paths in the site are the same."""
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#:]+)(?P<fragment>#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements that make a browser load something -> the attribute that says what."""


def main() -> int:
    """0 if the site is built and sound."""
    stage()
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", "mkdocs.yml"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        return 1
    faults = check(SITE)
    print("\n".join([*faults, f"{len(list(SITE.rglob('*.html')))} pages, {len(faults)} faults"]))
    return 1 if faults else 0


def stage() -> None:
    """Copy the pages, with links as the site needs them."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGED, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for path in OUTSIDE:
        (STAGED / path).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, STAGED / path)
    for page in STAGED.rglob("*.md"):
        page.write_text(rewritten(page.read_text("utf-8"), page.relative_to(STAGED).as_posix()))


def rewritten(text: str, page: str) -> str:
    """The text of a page, `page` being its path in the site; code stays as it is."""
    inside = page not in OUTSIDE
    folder = posixpath.dirname(f"docs/{page}" if inside else page)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match["path"]))
        if target.startswith("docs/") and inside:
            return match[0]
        if target.startswith("docs/") or target in OUTSIDE:
            there = posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page) or ".")
            return f"[{match['text']}]({there}{match['fragment'] or ''})"
        return match["text"] if (ROOT / target).exists() else match[0]

    parts = FENCED.split(text)
    return "".join(p if p.startswith("```") else LINK.sub(link, p) for p in parts)


class Page(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element."""
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        if tag in LOADED and LOADED[tag] in found and found.get("rel") != "canonical":
            self.loads.add(found[LOADED[tag]])


def check(site: Path) -> list[str]:
    """What is wrong with a site, a line each."""
    pages = {f: Page(f.read_text("utf-8")) for f in sorted(site.rglob("*.html"))}
    listed = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    have = {p.relative_to(STAGED).as_posix() for p in STAGED.rglob("*.md")}
    faults = [f"{page} is not in the navigation (mkdocs.yml)" for page in sorted(have - listed)]
    for file, page in pages.items():
        if file.name == "404.html":  # its links are absolute: it is shown at any address
            continue
        name = file.relative_to(site)
        faults += [f"{name} loads {url}" for url in sorted(page.loads) if urlsplit(url).netloc]
        for url in sorted(page.links | page.loads):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            fragment = unquote(parts.fragment)
            known = pages[target].ids if target in pages else None
            if not target.exists() or (fragment and known is not None and fragment not in known):
                faults.append(f"{name} links to {url}, which is not there")
    return faults


if __name__ == "__main__":
    sys.exit(main())

"""Whether a page is HTML as it should be: balanced, ids unique, references resolved."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {
    "meta",
    "link",
    "input",
    "br",
    "hr",
    "img",
    "col",
    "source",
    "path",
    "line",
    "rect",
    "circle",
}
REFERENCES = ("for", "aria-labelledby", "aria-describedby", "data-copy")


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.tags: list[str] = []
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if (name := given.get("id")) is not None:
            self.ids.append(name)
        for attribute in REFERENCES:
            self.references |= set((given.get(attribute) or "").split())
        if "style" in given or any(name.startswith("on") for name in given):
            self.problems.append(f"<{tag}> has a style or a handler, which the policy forbids")
        if tag == "script" and not given.get("src"):
            self.problems.append("a script without src, which the policy forbids")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            line, column = self.getpos()
            self.problems.append(f"</{tag}> in line {line}, column {column} closes nothing")


def problems_of(html: str) -> list[str]:
    """What is wrong with a page; nothing if it is fine."""
    checker = _Checker()
    checker.feed(html)
    checker.close()
    found = list(checker.problems)
    found += [f"<{tag}> stays open" for tag in checker.open]
    found += sorted({f"id {name} twice" for name in checker.ids if checker.ids.count(name) > 1})
    found += sorted(f"no id {name}" for name in checker.references - set(checker.ids))
    found += [f"{checker.tags.count(tag)} times {tag}" for tag in ("main", "h1", "title")
              if checker.tags.count(tag) != 1]  # fmt: skip
    return found

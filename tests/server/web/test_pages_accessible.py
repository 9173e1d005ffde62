"""The pages for keyboards, screen readers and phones, in a real browser."""

from __future__ import annotations

import re

import browser as browsers
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import PHONE
from pages_visited import paths, visited
from playwright.sync_api import expect

pytestmark = pytest.mark.skipif(browsers.missing() is not None, reason=str(browsers.missing()))

MANY_JOBS = """() => document.querySelector("#workers td.jobs").innerHTML =
  '<a class="mono" href="/jobs/1">0123456789ab</a> '.repeat(5)"""
"""A worker that is busy, which no server of these tests has."""
CARD_FAULTS = """() => [...document.querySelectorAll(".cards tbody tr")].flatMap((row) => {
  const cells = [...row.cells].filter((c) => c.checkVisibility() && c.textContent.trim());
  const boxes = cells.map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return [...range.getClientRects()].filter((r) => r.width > 1 && r.height > 1);
  });
  const faults = cells.filter((c) => c.clientWidth < 24 && c.clientHeight > 100).map(
    (c) => "narrow: " + c.textContent);
  boxes.forEach((mine, n) => boxes.slice(n + 1).forEach((others, m) => {
    const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
      && a.top < b.bottom - 4 && b.top < a.bottom - 4;
    if (mine.some((a) => others.some((b) => over(a, b))))
      faults.push(cells[n].textContent.trim() + " lies on " + cells[n + m + 1].textContent.trim());
  }));
  return faults;
})"""
"""Cells of a row that lie on each other, or are as narrow as a letter."""
FOCUSED = "a[href], button, input, select, textarea, summary"


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(opened, database, scheme):
    """The rules of WCAG 2.2 A and AA that can be checked by a program, contrast among them."""
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    with opened("/", color_scheme=scheme, reduced_motion="reduce") as tab:
        for path in visited(tab.page, paths(database)):
            found = Axe().run(tab.page, options=rules).response["violations"]
            told = [(v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found]
            assert told == [], path


def test_no_page_is_wider_than_a_phone(opened, database):
    with opened("/", viewport=PHONE, is_mobile=True, has_touch=True) as tab:
        page = tab.page
        for path in visited(page, paths(database)):
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
            small = page.evaluate(
                """() => [...document.querySelectorAll("button, nav a, input, select")]
                .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24)
                .map((e) => e.outerHTML)"""
            )
            assert small == [], f"{path}: too small for a finger"


def test_tables_fit_a_common_phone(opened, database):
    """At 390 pixels their rows are cards: nothing has to be scrolled sideways but programs."""
    phone = {"width": 390, "height": 844}
    wanted = ("/workers", "/workloads", "/records/", "/compare", "/tokens", "/jobs", "/batches")
    there = [path for path in paths(database) if path.startswith(wanted) and "/text" not in path]
    assert len({path.split("/")[1].partition("?")[0] for path in there}) == len(wanted)
    with opened("/", viewport=phone, is_mobile=True, has_touch=True) as tab:
        for path in visited(tab.page, [*there, "/"]):
            if path == "/workers":
                tab.page.evaluate(MANY_JOBS)
            wide = tab.page.evaluate(
                """() => [...document.querySelectorAll(".table-scroll:not(:has(table.lines))")]
                .filter((e) => e.scrollWidth > e.clientWidth + 1)
                .map((e) => e.getAttribute("aria-label"))"""
            )
            assert wide == [], path
            assert tab.page.evaluate(CARD_FAULTS) == [], path


def test_all_that_can_be_done_can_be_done_by_keyboard(opened, database):
    """Tab comes to every link, button and field, in order, and each shows that it is focused."""
    with opened("/") as tab:
        page = tab.page
        for path in visited(page, paths(database)):
            wanted = page.evaluate(
                """(all) => [...document.querySelectorAll(all)].filter(
                (e) => e.type !== "hidden" && e.checkVisibility()).length""",
                FOCUSED,
            )
            page.evaluate("window.walked = new Set()")  # a page may begin with a field in focus
            seen = 0
            for _ in range(wanted * 2 + 20):
                if seen == wanted:
                    break
                page.keyboard.press("Tab")
                seen, shown, what = page.evaluate(
                    """(all) => { const e = document.activeElement;
                    if (e === document.body) return [walked.size, true, ""];
                    if (e.matches(all)) walked.add(e);
                    const s = getComputedStyle(e);
                    return [walked.size,
                            s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2,
                            e.outerHTML.slice(0, 120)]; }""",
                    FOCUSED,
                )
                assert shown, f"{path}: no outline on {what}"
            assert seen == wanted, path


def test_a_job_is_submitted_by_keyboard_alone(opened):
    with opened("/") as tab:
        page = tab.page

        def walk_to(selector: str) -> None:
            for _ in range(40):
                if page.evaluate("s => document.activeElement.matches(s)", selector):
                    return
                page.keyboard.press("Tab")
            raise AssertionError(f"Tab does not come to {selector}")

        walk_to("main a[href='/submit']")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/submit"))
        walk_to("#f-operator")
        page.keyboard.type("softmax")
        expect(page.get_by_role("group", name="Arguments of softmax")).to_be_visible()
        for name, text in {"N": "24", "M": "40"}.items():
            walk_to(f"[name='arg.{name}']")
            page.keyboard.press("Control+A")
            page.keyboard.type(text)
        walk_to("button.primary")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/jobs/"))
        expect(page.get_by_role("heading", level=1)).to_have_text("softmax(24, 40, float32)")
        walk_to("main button")  # of what can be done with it, cancelling comes first
        expect(page.locator("main button:focus")).to_have_text("Cancel")
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_contain_text("cancelled")


def test_the_first_tab_skips_to_the_content(opened):
    with opened("/") as tab:
        tab.page.keyboard.press("Tab")
        expect(tab.page.get_by_role("link", name="Skip to the content")).to_be_focused()
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator("main")).to_be_focused()

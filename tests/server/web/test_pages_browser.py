"""The pages in a real browser: live, with plots, without scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import browser as browsers
import pages_data
import pytest
from pages_visited import best_of, drawn
from playwright.sync_api import expect
from serving import serving

from records import JobQueue, Store
from server.settings import Settings

pytestmark = pytest.mark.skipif(browsers.missing() is not None, reason=str(browsers.missing()))


def test_submit_watch_open_the_best_copy_its_schedule_and_run_it(browser, tmp_path):
    """The whole way of a person, with a real search on this machine."""
    settings = Settings(db=str(tmp_path / "tuning.db"), jobs_at_once=1)
    grants = {"permissions": ["clipboard-read", "clipboard-write"]}
    with serving(settings) as client, browsers.tab(browser, str(client.base_url), **grants) as tab:
        page = tab.page
        page.goto("/")
        page.get_by_role("link", name="Submit a job").click()
        page.get_by_label("Operator").select_option("matmul_add")
        expect(page.get_by_role("group", name="Arguments of matmul_add")).to_be_visible()
        for name, size in {"N": "64", "L": "48", "M": "32"}.items():
            page.get_by_label(name, exact=True).fill(size)
        page.get_by_label("Trials", exact=True).fill("8")
        page.get_by_role("button", name="Submit the job").click()

        page.wait_for_url(re.compile("/jobs/"))
        expect(page.get_by_role("heading", level=1)).to_have_text("matmul_add(64, 48, 32, float32)")
        page.evaluate("window.neverReloaded = true")
        expect(page.locator("#state")).to_contain_text("succeeded")
        expect(page.locator("#figures")).to_contain_text("of 8")
        page.wait_for_selector("#plot[data-drawn='8']")
        assert page.evaluate("window.neverReloaded"), "all of it arrived without a reload"

        page.get_by_role("link", name="Open the best").click()
        page.wait_for_url(re.compile("/records/"))
        page.locator("#text-schedule-section > summary").click()
        page.locator("#text-schedule-section").get_by_role("button", name="Copy").click()
        expect(page.locator("#announce")).to_have_text("Schedule copied")
        module = page.evaluate("navigator.clipboard.readText()")

    program = tmp_path / "best.py"
    program.write_text(module)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "right result" in done.stdout


def test_an_operator_chosen_before_the_scripts_arrive_is_followed(opened):
    """As on a slow line: the form is there and is used before what listens to it."""
    with opened("/") as tab:
        page, held = tab.page, []
        page.route("**/static/page.js", lambda route: held.append(route))
        page.goto("/submit", wait_until="commit")
        page.get_by_label("Operator").select_option("softmax")
        while not held:  # until the browser has asked for it
            page.wait_for_timeout(10)
        expect(page.get_by_role("group", name="Arguments of matmul")).to_be_visible()
        held[0].continue_()
        expect(page.get_by_role("group", name="Arguments of softmax")).to_be_visible()


def test_arguments_that_do_not_arrive_are_asked_for_as_a_page(opened):
    with opened("/submit") as tab:
        page = tab.page
        tab.expected.append("net::ERR_FAILED")
        page.route("**/submit?operator=*", lambda route: route.abort(), times=1)
        page.get_by_label("Operator").select_option("softmax")
        expect(page.get_by_role("group", name="Arguments of softmax")).to_be_visible()
        assert page.url.endswith("/submit?operator=softmax")


def test_what_is_used_before_the_scripts_arrive(opened, database):
    """A section that was opened is filled; what could not work yet is not shown."""
    with opened("/") as tab:
        page, held = tab.page, []
        page.route("**/static/page.js", lambda route: held.append(route))
        page.goto(f"/records/{best_of(database)}", wait_until="commit")
        section = page.locator("#text-script-section")
        section.locator("summary").click()
        expect(page.locator("#text-script")).to_have_text("Loading …")
        expect(section.get_by_role("button", name="Copy")).to_be_hidden()
        while not held:
            page.wait_for_timeout(10)
        held[0].continue_()
        expect(page.locator("#text-script")).to_contain_text("def ")
        expect(section.get_by_role("button", name="Copy")).to_be_visible()


def test_a_form_that_is_being_changed_cannot_be_submitted(opened):
    with opened("/submit") as tab:
        page, held = tab.page, []
        page.route("**/submit?operator=*", lambda route: held.append(route))
        page.get_by_label("Operator").select_option("softmax")
        while not held:
            page.wait_for_timeout(10)
        assert page.evaluate("document.getElementById('arguments').inert")
        held[0].continue_()
        expect(page.get_by_role("group", name="Arguments of softmax")).to_be_visible()
        assert not page.evaluate("document.getElementById('arguments').inert")


def test_the_plot_shows_what_was_asked_for_last(opened, jobs):
    """News that come while older data are on their way are asked for afterwards; an answer that
    fails is asked for again, and keys pressed before there is anything do nothing."""
    with opened("/") as tab:
        page, held = tab.page, []
        tab.expected.append("net::ERR_FAILED")
        page.route(re.compile(r"/plot(\?|$)"), lambda route: held.append(route))
        page.goto(f"/jobs/{jobs.tuned}")
        while not held:
            page.wait_for_timeout(10)
        page.locator("#plot").press("ArrowRight")
        page.evaluate("document.dispatchEvent(new Event('refreshed'))")
        held[0].continue_()
        while len(held) < 2:
            page.wait_for_timeout(10)
        held[1].abort()
        while len(held) < 3:
            page.wait_for_timeout(10)
        drawn(page)
        held[2].continue_()


def test_a_running_job_is_followed_without_a_reload(browser, database, tmp_path):
    """Trials appear as they are stored, what is focused stays so, and a server that is gone is
    told of."""
    path = tmp_path / "tuning.db"
    shutil.copy(database[0], path)
    _, jobs = database
    with Store(path) as store, ExitStack() as server:
        client = server.enter_context(serving(Settings(db=str(path), jobs_at_once=0)))
        with browsers.tab(browser, str(client.base_url)) as tab:
            page, asked = tab.page, []
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"/jobs/{jobs.queued}")
            drawn(page)
            expect(page.locator("#state")).to_contain_text("queued")
            page.evaluate("window.neverReloaded = true")
            page.get_by_role("button", name="Cancel").focus()

            job = JobQueue(store).claim("a test", 60)
            assert job is not None
            expect(page.locator("#state")).to_contain_text("running")
            like = next(
                r
                for r in store.records(job_id=jobs.tuned)
                if r.status == "ok" and r.kind == "trial"
            )
            for slot in range(3):
                seconds = (5 - slot) * 1e-4
                changes = {"job_id": job.id, "workload_key": job.workload_key, "seconds": seconds}
                record = replace(like, round=0, slot=slot, **changes)
                store.add_records([record])
                store.add_event(job.id, "progress", {})
                expect(page.locator("#figures")).to_contain_text(f"{slot + 1}of 8")
                page.wait_for_selector(f"#plot[data-drawn='{slot + 1}']")
            expect(page.locator("#improved")).to_contain_text("300 µs")
            expect(page.locator("#announce")).to_contain_text("best so far 300 µs")
            assert page.evaluate("window.neverReloaded")
            # What is shown already is not asked for again.
            assert any(re.search(r"/events\?after=\d+$", url) for url in asked)
            plots = [url for url in asked if re.search(r"/plot(\?|$)", url)]
            first = next(n for n, url in enumerate(plots) if "?after=" in url)
            assert all("?after=" in url for url in plots[first:])
            assert page.evaluate("document.activeElement.textContent") == "Cancel"

            with page.expect_navigation():
                page.keyboard.press("Enter")
            expect(page.locator("#state")).to_contain_text("cancelling")
            drawn(page)  # the form led to the page anew: its modules are there
            server.close()
            tab.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_CONN"]
            expect(page.locator("#connection")).to_contain_text("Trying again")


# The plot


def test_the_plot_is_drawn_turned_and_walked_through(opened, jobs):
    with opened(f"/jobs/{jobs.tuned}") as tab:
        page = tab.page
        drawn(page)
        points = page.locator("#plot .scatterlayer .point")
        assert points.count() == pages_data.TRIALS
        expect(page.locator("#plot .xtitle")).to_have_text("trials")
        page.get_by_role("button", name="Seconds").click()
        expect(page.get_by_role("button", name="Seconds")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#plot .xtitle")).to_have_text("seconds since the first trial")

        page.locator("#plot").focus()
        page.keyboard.press("Home")
        expect(page.locator("#announce")).to_contain_text("trial 1:")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#announce")).to_contain_text("trial 2:")
        expect(page.locator("#plot .hoverlayer")).to_contain_text("trial 2:")
        page.keyboard.press("End")
        expect(page.locator("#announce")).to_contain_text(f"trial {pages_data.TRIALS}:")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/records/"))


def test_the_plot_is_zoomed_and_exported(opened, jobs):
    with opened(f"/jobs/{jobs.long}?with={jobs.tuned}") as tab:
        page = tab.page
        drawn(page)
        exported = page.locator("a[data-export]")
        assert "first=" not in exported.get_attribute("href")
        page.locator("#plot").focus()
        page.keyboard.press("End")
        for _ in range(3):
            page.keyboard.press("+")
        expect(exported).to_have_attribute("href", re.compile(r"with=\w+&first=\d+&last=\d+"))
        with page.expect_download() as saved:
            page.get_by_role("button", name="PNG").click()
        assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
        assert saved.value.suggested_filename == f"job-{jobs.long[:12]}.png"
        page.keyboard.press("Tab")
        page.locator("#plot").focus()
        page.keyboard.press("0")
        expect(exported).not_to_have_attribute("href", re.compile("first="))
        page.get_by_role("button", name="Zoom").click()
        box = page.locator("#plot .nsewdrag").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 100, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 160, steps=4)
        page.mouse.up()
        expect(exported).to_have_attribute("href", re.compile(r"first=\d+&last=\d+"))
        page.get_by_role("button", name="Zoom").click()
        expect(exported).not_to_have_attribute("href", re.compile("first="))
        other = page.locator("#plot .scatterlayer .js-line")
        assert other.count() >= 2


def test_a_point_of_the_plot_opens_its_record(opened, jobs):
    with opened(f"/jobs/{jobs.tuned}") as tab:
        drawn(tab.page)
        box = tab.page.locator("#plot .scatterlayer .point").first.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        tab.page.mouse.move(x - 1, y)
        tab.page.mouse.move(x, y)
        expect(tab.page.locator("#plot .hoverlayer")).to_contain_text("trial 1:")
        tab.page.mouse.click(x, y)
        tab.page.wait_for_url(re.compile("/records/"))


def test_the_plot_follows_the_colour_scheme(opened, jobs):
    with opened(f"/jobs/{jobs.tuned}", color_scheme="light") as tab:
        drawn(tab.page)
        point = tab.page.locator("#plot .scatterlayer .point").first
        light = point.evaluate("e => getComputedStyle(e).fill")
        tab.page.emulate_media(color_scheme="dark")
        expect(point).not_to_have_css("fill", light)


def test_many_trials_are_drawn_as_a_sample(opened, jobs):
    with opened(f"/jobs/{jobs.long}") as tab:
        drawn(tab.page)
        assert tab.page.locator("#plot .scatterlayer .point").count() < 3_000
        expect(tab.page.locator("#caption")).to_contain_text("one trial in 3")


# For everybody


def test_pages_work_without_scripts(opened, jobs):
    with opened("/submit", java_script_enabled=False) as tab:
        page = tab.page
        page.get_by_label("Operator").select_option("norm")
        tab.expected.append("422")  # the browser says so of every refusal
        page.get_by_role("button", name="Show its arguments").click()
        page.get_by_label("N", exact=True).fill("0")
        page.get_by_label("M", exact=True).fill("8")
        page.get_by_role("button", name="Submit the job").click()
        expect(page.get_by_role("alert")).to_contain_text("expected an int >= 1")
        page.goto(f"/jobs/{jobs.tuned}")
        expect(page.locator("#improved table")).to_be_visible()
        image = page.locator("img.plot-image")
        expect(image).to_be_visible()
        assert image.evaluate("i => i.naturalWidth > 0 && i.complete")


# Copying


def test_a_program_is_copied_before_it_was_opened(opened, database):
    grants = {"permissions": ["clipboard-read", "clipboard-write"]}
    with opened(f"/records/{best_of(database)}", **grants) as tab:
        page = tab.page
        section = page.locator("#text-asm-section")
        section.locator("summary").click()
        expect(page.locator("#text-asm")).to_contain_text(".text")
        section.get_by_role("button", name="Copy").click()
        expect(section.get_by_role("button", name="Copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == page.locator("#text-asm").text_content()


def test_copying_works_where_there_is_no_clipboard_api(opened, database):
    """Over plain HTTP from another machine browsers have none."""
    with opened(f"/records/{best_of(database)}") as tab:
        page = tab.page
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.locator("#text-schedule-section > summary").click()
        page.locator("#text-schedule-section").get_by_role("button", name="Copy").click()
        expect(page.locator("#announce")).to_have_text("Schedule copied")

"""Tables of trials, figures as SVG, and what they are made of."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from xml.dom import minidom

import httpx
import pages_data
import pytest
from html_check import problems_of
from pages_data import HOSTILE, MANY, TRIALS
from serving import serving
from sqlalchemy import update

import autosched as at
from records import Store
from records.operations import roofline
from records.operations.listing import ListedTrial
from records.sql.schema import JobRow
from server.jobs import bounds
from server.schemas import DeviceLimits, RooflinePoint
from server.settings import Settings
from server.web.figures.decisions import explained, importances, parallel
from server.web.figures.roof import roof
from server.web.figures.svg import Scale, element

HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("figures") / "tuning.db"
    return path, pages_data.fill(path)


@pytest.fixture(scope="module")
def jobs(database):
    return database[1]


@pytest.fixture(scope="module")
def client(database):
    with serving(Settings(db=str(database[0]), jobs_at_once=0)) as client:
        yield client


@pytest.fixture(scope="module")
def device(database, client) -> str:
    """The device, whose limits were told."""
    with Store(database[0]) as store:
        job = store.job(database[1].tuned)
        traffic = roofline.Traffic(workload_key=job.workload_key, bytes=49152, dtype="float32")
        roofline.put_traffic(store, traffic)
    limits = {"flops": 1e11, "bytes_per_second": 1e10, "cache_bytes": 1 << 20}
    told = client.put(f"/v1/roofline/{job.device}", json=limits)
    assert told.status_code == 200, told.text
    assert told.json() | limits == told.json()
    return str(job.device)


def shown(answer: httpx.Response, status: int = 200) -> str:
    assert answer.status_code == status, answer.text
    assert problems_of(answer.text) == []
    assert HOSTILE not in answer.text
    return answer.text


def page(client: httpx.Client, path: str, status: int = 200) -> str:
    return shown(client.get(path, headers=HTML), status)


# Trials


def test_a_page_of_trials_goes_on_and_sorts(client, jobs, device):
    asked = {"sort": "-seconds", "limit": 1000}
    found = []
    while True:
        answer = client.get(f"/v1/jobs/{jobs.long}/trials", params=asked).raise_for_status().json()
        found += answer["items"]
        if answer["next_cursor"] is None:
            break
        asked["cursor"] = answer["next_cursor"]
    assert sorted(item["trial"] for item in found) == list(range(1, MANY + 1))
    times = [item["seconds"] for item in found if item["seconds"] is not None]
    assert times == sorted(times, reverse=True)
    assert all(item["seconds"] is None for item in found[len(times) :])
    first = found[0]
    assert first["share"] == pytest.approx(524288 / 1e11 / first["seconds"], rel=1e-6)
    assert first["gflops"] == pytest.approx(524288 / first["seconds"] / 1e9)
    refused = client.get(
        f"/v1/jobs/{jobs.long}/trials", params={"sort": "trial", "cursor": answer["next_cursor"]
        or client.get(f"/v1/jobs/{jobs.long}/trials?sort=-seconds").json()["next_cursor"]},
    )  # fmt: skip
    assert refused.status_code == 400


def test_trials_are_found_by_status_and_decision(client, jobs):
    items = client.get(f"/v1/jobs/{jobs.tuned}/trials").json()["items"]
    assert len(items) == TRIALS
    name, value = next(iter(items[0]["decisions"].items()))
    found = client.get(f"/v1/jobs/{jobs.tuned}/trials", params={"decision": f"{name}={value}"})
    wanted = [i["record_id"] for i in items if i["decisions"].get(name) == value]
    assert [i["record_id"] for i in found.json()["items"]] == wanted
    both = {"decision": [f"{name}=1", f"{name}=2"]}
    assert client.get(f"/v1/jobs/{jobs.tuned}/trials", params=both).status_code == 422
    for wrong in ("x", "x=", "x=1.5", "'=1"):
        asked = client.get(f"/v1/jobs/{jobs.tuned}/trials", params={"decision": wrong})
        assert asked.status_code == 422, wrong
    text = page(client, f"/jobs/{jobs.tuned}/trials?decision={name}={value}&sort=seconds")
    times = {item["record_id"]: item["seconds"] or math.inf for item in items}
    in_order = sorted(wanted, key=lambda record: (times[record], record))
    assert [int(n) for n in re.findall(r'href="/records/(\d+)"', text)] == in_order
    page(client, f"/jobs/{jobs.tuned}/trials?decision=x", 422)


def test_every_page_about_trials_is_sound(client, jobs, device):
    for job in vars(jobs).values():
        for path in ("trials", "trials?sort=-seconds", "trials?status=ok", "decisions"):
            page(client, f"/jobs/{job}/{path}")
    text = page(client, f"/jobs/{jobs.tuned}?with={jobs.long[:12]}")
    assert f'data-with="/jobs/{jobs.long}/plot"' in text
    assert "Of the device&#39;s bound" in text or "Of the device's bound" in text
    page(client, f"/jobs/{jobs.tuned}?with=nobody", 404)
    page(client, f"/jobs/{jobs.tuned}/decisions?variant=99999", 404)
    first = page(client, f"/jobs/{jobs.long}/trials")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    page(client, following[1].replace("&amp;", "&"))


def test_trials_as_csv(client, jobs):
    answer = client.get(f"/v1/jobs/{jobs.long}/trials.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [int(row["trial"]) for row in rows] == list(range(1, MANY + 1))
    assert (rows[9]["status"], rows[9]["seconds"]) == ("runtime_error", "")
    assert client.get("/v1/jobs/nobody/trials.csv").status_code == 404


# Figures


def test_figures_are_files_without_scripts(client, jobs, device):
    for path in (
        f"/jobs/{jobs.tuned}/plot.svg",
        f"/jobs/{jobs.tuned}/plot.svg?with={jobs.long}",
        f"/jobs/{jobs.long}/plot.svg?first=100&last=900",
        f"/jobs/{jobs.tuned}/decisions.svg",
        f"/roofline.svg?device={device}",
    ):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"].startswith("image/svg+xml")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        root = minidom.parseString(answer.text).documentElement
        assert root.getAttribute("aria-label")
        assert root.getElementsByTagName("script") == []
        assert root.getElementsByTagName("path").length > 0, path
    assert client.get(f"/jobs/{jobs.tuned}/plot.svg?first=9&last=3").status_code == 422
    assert client.get("/roofline.svg?device=nobody").status_code == 404
    assert client.get(f"/jobs/{jobs.queued}/decisions.svg").status_code == 404


def test_a_job_without_trials_has_no_made_up_axis(client, jobs):
    figure = minidom.parseString(client.get(f"/jobs/{jobs.queued}/plot.svg").text)
    assert [t.firstChild.data for t in figure.getElementsByTagName("text")] == [
        "No trial has a time yet."
    ]
    assert figure.getElementsByTagName("line").length == 0
    text = page(client, f"/jobs/{jobs.queued}")
    assert 'class="plot empty"' in text
    assert "plot.svg" not in text


def test_names_in_figures_are_only_shown():
    made = element("text", HOSTILE, title=HOSTILE)
    assert HOSTILE not in made
    assert minidom.parseString(made).documentElement.firstChild.data == HOSTILE


def test_the_roofline_tells_shares(client, jobs, device):
    found = client.get("/v1/roofline", params={"device": device}).json()
    assert [one["device"] for one in found["devices"]] == [device]
    (point,) = found["points"]
    assert point["intensity"] == pytest.approx(524288 / 49152)
    assert (point["in_cache"], point["bound_by"]) == (True, "arithmetic")
    assert point["share"] == pytest.approx(524288 / 1e11 / point["seconds"])
    job = client.get(f"/v1/jobs/{jobs.tuned}").json()
    assert job["share"] == pytest.approx(524288 / 1e11 / job["best_seconds"])
    assert "GFLOP/s" in page(client, "/roofline")
    page(client, f"/roofline?device={device}")
    assert "Nobody has measured" in page(client, "/roofline?device=abc")
    for wrong in ({"flops": 0}, {"flops": 1e11, "bytes_per_second": 1e10, "cache_bytes": 0}):
        assert client.put(f"/v1/roofline/{device}", json=wrong).status_code == 422


def test_limits_that_jobs_exceed_are_measured_again(database, client, jobs, device, monkeypatch):
    """What ran beside the first measurement made it too low; of each limit the higher counts."""
    with Store(database[0]) as store:
        job = store.job(jobs.tuned)
        task = at.SearchTask(func="matmul", args=(64, 64, 64))
        measured = iter(range(1, 10))

        def measure(target, device):
            flops = next(measured) * 1e8
            return roofline.DeviceLimits(
                device=device, flops=flops, bytes_per_second=1e18 / flops, cache_bytes=1 << 20
            )

        monkeypatch.setattr(bounds, "limits_here", measure)
        low = roofline.DeviceLimits(
            device=device, flops=1e6, bytes_per_second=1e10, cache_bytes=1 << 20
        )
        roofline.put_limits(store, low)
        share = client.get(f"/v1/jobs/{job.id}").json()["share"]
        assert share > 1
        assert "measured too low" in page(client, f"/jobs/{job.id}")
        assert "faster than these limits" in page(client, f"/roofline?device={device}")
        bounds.note(AtOnce(), store, task, device)
        assert roofline.limits_of(store, device).flops == 1e8
        enough = replace(low, flops=1e12)
        roofline.put_limits(store, enough)
        bounds.note(AtOnce(), store, task, device)
        assert roofline.limits_of(store, device).flops == 1e12
    assert "faster than" not in page(client, f"/roofline?device={device}")


class AtOnce:
    """Stands for a lease's writer."""

    def patiently(self, write):
        write()


def test_gains_are_of_jobs_that_found_something(client, database, jobs):
    """A job whose best is its baseline gained nothing."""
    with Store(database[0]) as store:
        job = store.job(jobs.tuned)

        def overview(baseline: float | None) -> str:
            change = update(JobRow).where(JobRow.id == job.id).values(baseline_seconds=baseline)
            with store._db.transaction(writes=True) as connection:
                connection.execute(change)
            return page(client, "/")

        gained = overview(1.4 * job.best_seconds)
        assert (f"/jobs/{job.id}" in gained, "1.40×" in gained) == (True, True)
        equal = overview(job.best_seconds)
        assert f"/jobs/{job.id}" not in equal
        assert "No recent job has found a faster program" in equal
        overview(job.baseline_seconds)


def test_names_in_the_roofline_do_not_lie_on_each_other():
    limits = DeviceLimits(
        device="d", flops=1e11, bytes_per_second=1e10, cache_bytes=1, created_at=datetime.now(UTC)
    )
    points = [
        RooflinePoint(
            workload_key="w", workload_name=f"workload{n}", workload_args=None, device="d",
            record_id=n, job_id="1" * 32, seconds=1e-3, gflops=50.0 + n / 10, intensity=5.0,
            in_cache=True, share=0.5, bound_by="arithmetic",
        )
        for n in range(3)
    ]  # fmt: skip
    drawn = roof(limits, [*points, points[0].model_copy(update={"gflops": 5.0})])
    assert [f"workload{n}" in drawn for n in range(3)] == [True, True, True]
    assert drawn.count("<circle") == 4
    crowd = [p.model_copy(update={"workload_name": "crowd"}) for p in points * 3]
    assert roof(limits, crowd).count("crowd") < 9, "the names lie on each other"
    behind = {"workload_name": "behind", "gflops": 50.2, "intensity": 6.0}
    drawn = roof(limits, [points[2], points[0].model_copy(update=behind)])
    found = re.search(r'<text [^>]*\bx="([\d.]+)"[^>]*>workload2', drawn)
    assert found is not None
    dots = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawn)]
    assert float(found[1]) < min(dots), "a point lies on the right of it"


# What they are made of


def trial(number: int, seconds: float, **decisions: int) -> ListedTrial:
    values = {"variant": 1, "status": "ok", "remeasured_seconds": None, "error": None}
    return ListedTrial(
        trial=number, record_id=number, round=0, slot=number, seconds=seconds,
        decisions=decisions, created_at=None, **values,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_importance_of_decisions():
    """One decides the time, one does nothing, one has as many values as there are trials."""
    trials = [
        trial(n, (2.0 if n % 2 else 1.0) * (1 + n % 3 / 100), fast=n % 2, idle=n % 3, own=n)
        for n in range(60)
    ]
    found = {one.name: one for one in importances(trials)}
    assert found["fast"].part > 0.99
    assert found["idle"].part < 0.05
    assert found["own"].part == 0.0
    assert (found["fast"].best, found["fast"].values) == (0, 2)
    assert next(iter(found)) == "fast"
    drawn = minidom.parseString(parallel(trials, list(found.values())))
    assert drawn.getElementsByTagName("path").length == 60


@pytest.mark.parametrize(
    ("groups", "part"),
    [([[1.0, 1.0], [2.0, 2.0]], 1.0), ([[1.0, 2.0], [1.0, 2.0]], 0.0), ([[1.0], [2.0]], 0.0),
     ([[1.0, 2.0]], 0.0), ([[1.0, 1.0], [1.0, 1.0]], 0.0)],
)  # fmt: skip
def test_what_a_grouping_explains(groups, part):
    assert explained(groups) == pytest.approx(part)


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 10, 0, 1), [0, 2, 4, 6, 8, 10]),
        (Scale(1, 100, 0, 1, log=True), [1, 2, 5, 10, 20, 50, 100]),
        (Scale(1e-6, 1e3, 0, 1, log=True), [1e-6, 1e-4, 1e-2, 1, 100]),
        (Scale(1.0, 1.0, 0, 1), [1.0]),
    ],
)
def test_ticks_are_round(scale, ticks):
    assert scale.ticks() == pytest.approx(ticks)
    assert scale.at(scale.low) in (0, 0.5)

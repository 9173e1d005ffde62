"""The pages as HTML: what they show is what the API answers, and nothing in it becomes code."""

from __future__ import annotations

import html
import re
from pathlib import Path

import httpx
import pages_data
import pytest
from html_check import problems_of
from pages_data import HOSTILE, MANY, Jobs
from serving import serving

from records import Store
from server.settings import Settings
from server.web.jobs import ITEMS, POINTS

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> tuple[Path, Jobs]:
    path = tmp_path_factory.mktemp("pages") / "tuning.db"
    return path, pages_data.fill(path)


@pytest.fixture(scope="module")
def jobs(database) -> Jobs:
    return database[1]


@pytest.fixture(scope="module")
def client(database):
    with serving(Settings(db=str(database[0]), jobs_at_once=0)) as client:
        client.headers.update(HTML)
        yield client


@pytest.fixture
def own(tmp_path):
    """A server with an empty store, for tests that change something."""
    with serving(Settings(db=str(tmp_path / "tuning.db"), jobs_at_once=0)) as client:
        client.headers.update(HTML)
        yield client


def api(client: httpx.Client, path: str, **params):
    answer = client.get(path, params=params, headers={"Accept": "application/json"})
    answer.raise_for_status()
    return answer.json()


def shown(answer: httpx.Response, status: int = 200) -> str:
    """The text of a page that is as it should be."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert problems_of(answer.text) == []
    assert HOSTILE not in answer.text
    assert "<script>alert" not in answer.text
    return answer.text


def best_of(client: httpx.Client, job_id: str) -> int:
    page = shown(client.get(f"/jobs/{job_id}"))
    found = re.search(r'href="/records/(\d+)">Open the best', page)
    assert found is not None
    return int(found[1])


def test_every_page_is_sound(client, jobs):
    best = best_of(client, jobs.tuned)
    workload = api(client, f"/v1/jobs/{jobs.tuned}")["workload_key"]
    pages = [
        *(
            "/",
            "/jobs",
            "/docs",
            "/submit",
            "/submit?by=script",
            "/workloads",
            "/workers",
            "/login",
        ),
        *(f"/jobs/{job}" for job in vars(jobs).values()),
        *(f"/records/{n}" for n in range(1, 27)),
        *(f"/records/{best}/text/{form}" for form in ("schedule", "script", "source", "asm")),
        *(f"/compare?a=1&b={best}", f"/compare?a={best}&b={best}"),
        *(f"/workloads/{workload}", f"/workloads/{'0' * 24}"),
        *(f"/jobs?state={state}" for state in ("queued", "failed", "running")),
        f"/jobs?workload_key={'0' * 24}",
    ]
    for path in pages:
        shown(client.get(path))


def test_what_others_wrote_is_only_shown(client, jobs):
    escaped = str(html.escape(HOSTILE)).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    for path in ("/jobs", f"/jobs/{jobs.queued}", f"/jobs/{jobs.failed}", "/workloads"):
        assert escaped in shown(client.get(path)), path


def test_the_list_shows_the_jobs_of_the_api(client, jobs):
    page = shown(client.get("/jobs"))
    for job in api(client, "/v1/jobs")["items"]:
        assert f'href="/jobs/{job["id"]}"' in page
    failed = shown(client.get("/jobs", params={"state": "failed"}))
    assert re.findall(r'href="/jobs/(\w+)"', failed) == [jobs.failed]
    shown(client.get("/jobs", params={"state": "asleep"}), 422)


def test_a_long_list_has_pages(own, tmp_path):
    with Store(tmp_path / "tuning.db") as store:
        store.put_workload(pages_data.workload())
        made = [
            store.create_job("w", "llvm", seed=n, trials_requested=1).id for n in range(ITEMS + 5)
        ]
    first = shown(own.get("/jobs"))
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    second = shown(own.get(html.unescape(following[1])))
    found = [re.findall(r'<a href="/jobs/(\w+)">', page) for page in (first, second)]
    assert [len(ids) for ids in found] == [ITEMS, 5]
    assert sorted(found[0] + found[1]) == sorted(made)
    assert 'rel="next"' not in second


def test_a_job_page_counts_what_the_records_say(client, jobs):
    page = shown(client.get(f"/jobs/{jobs.tuned}"))
    records = api(client, "/v1/records", job_id=jobs.tuned, kind="trial")["items"]
    assert len(records) == pages_data.TRIALS
    for status in ("ok", "build_error", "run_timeout"):
        of_status = [r for r in records if r["status"] == status]
        assert f'{status.replace("_", " ")}&nbsp;<span class="muted num">{len(of_status)}<' in page
    first = next(r for r in records if r["status"] == "run_timeout")
    assert first["error"] in page
    assert f'href="/records/{first["id"]}"' in page


def test_a_plot_shows_the_curve_of_the_api(client, jobs):
    for job in (jobs.tuned, jobs.long):
        plot = api(client, f"/jobs/{job}/plot")
        points = plot["points"]
        curve = api(client, f"/v1/jobs/{job}/curve")["points"]
        seconds = dict(zip(points["id"], points["seconds"], strict=True))
        trials = dict(zip(points["id"], points["trial"], strict=True))
        best, improvements = float("inf"), []
        for record_id in points["id"]:
            if seconds[record_id] is not None and seconds[record_id] < best:
                best = seconds[record_id]
                improvements.append((trials[record_id], record_id, best))
        assert improvements == [(p["trial"], p["record_id"], p["seconds"]) for p in curve]


def test_a_plot_of_many_trials_is_a_sample(client, jobs):
    plot = api(client, f"/jobs/{jobs.long}/plot")
    points = plot["points"]
    assert plot["trials"] == MANY
    assert POINTS / 2 < len(points["id"]) < POINTS + 500
    assert points["trial"][0] == 1
    assert points["trial"][-1] == MANY
    assert points["trial"] == sorted(points["trial"])
    statuses = {plot["statuses"][index] for index in points["status"]}
    assert statuses == {"ok", "runtime_error", "out_of_memory"}, "the rare one is there"
    for index, time in zip(points["status"], points["seconds"], strict=True):
        assert (time is not None) == (plot["statuses"][index] == "ok")


def test_a_plot_has_the_baselines(client, jobs):
    lines = api(client, f"/jobs/{jobs.tuned}/plot")["baselines"]
    records = api(client, "/v1/records", job_id=jobs.tuned, kind="baseline")["items"]
    assert {line["seconds"] for line in lines} == {
        r["remeasured_seconds"] or r["seconds"] for r in records if r["status"] == "ok"
    }


def test_a_plot_without_trials(client, jobs):
    plot = api(client, f"/jobs/{jobs.queued}/plot")
    assert plot["trials"] == 0
    assert plot["points"] == {"id": [], "trial": [], "elapsed": [], "status": [], "seconds": []}


def test_a_record_shows_the_schedule_of_the_api(client, jobs):
    best = best_of(client, jobs.tuned)
    raw = client.get(f"/v1/records/{best}/schedule")
    assert raw.headers["content-type"].startswith("text/x-python")
    page = shown(client.get(f"/records/{best}"))
    found = re.search(r'<pre id="text-schedule"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    assert html.unescape(re.sub(r"<[^>]+>", "", found[1])).strip() == raw.text.strip()


@pytest.mark.parametrize(("form", "part"), [("script", "@T.prim_func"), ("source", "define"),
                                            ("asm", ".text")])  # fmt: skip
def test_a_record_has_its_program_in_all_forms(client, jobs, form, part):
    page = shown(client.get(f"/records/{best_of(client, jobs.tuned)}/text/{form}"))
    assert part in html.unescape(re.sub(r"<[^>]+>", "", page))


def test_two_records_are_compared(client, jobs):
    best = best_of(client, jobs.tuned)
    page = shown(client.get("/compare", params={"a": 1, "b": best}))
    times = {n: api(client, f"/v1/records/{n}") for n in (1, best)}
    final = {n: r["remeasured_seconds"] or r["seconds"] for n, r in times.items()}
    assert f"Record {best} is {final[1] / final[best]:.3g} times as fast" in page
    assert 'class="add"' in page
    same = shown(client.get("/compare", params={"a": best, "b": best}))
    assert "The schedules are the same" in same


def test_what_is_not_there_is_a_page_for_browsers_only(client):
    for path in ("/jobs/abc", "/records/999999", "/nowhere", "/workloads/abc",
                 "/compare?a=1&b=999999", "/v1/jobs/abc"):  # fmt: skip
        page = shown(client.get(path), 404)
        assert 'href="/"' in page
        for accept in ("application/json", "*/*"):
            answer = client.get(path, headers={"Accept": accept})
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_long_problem_is_a_page_too(client):
    """Its text is long enough to be compressed on its way."""
    answer = client.get(
        "/jobs", params={"state": "x" * 900, "cursor": "y" * 900, "workload_key": "z" * 900}
    )
    assert "workload_key" in shown(answer, 422)


def test_static_files_are_revalidated_and_nothing_else_is_served(client):
    first = client.get("/static/style.css")
    assert first.status_code == 200
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/static/style.css", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    for part in ("bytes=0-9", "bytes=999999999-", "bytes=9-1", "x"):  # files are sent whole
        whole = client.get("/static/style.css", headers={"Range": part})
        assert (whole.status_code, whole.content) == (200, first.content)
    for path in ("/static/../render.py", "/static/%2e%2e/render.py", "/static/..%2frender.py",
                 "/static/", "/static/vendor"):  # fmt: skip
        assert client.get(path).status_code == 404


def test_pages_allow_no_inline_code(client):
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_plotting_library_is_kept_by_browsers(client, jobs):
    page = shown(client.get(f"/jobs/{jobs.tuned}"))
    found = re.search(r'<script defer src="(/library/plotly-[^"]+)"', page)
    assert found is not None
    answer = client.get(found[1])
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.startswith("/**")
    plain = client.get(found[1], headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == answer.content
    assert client.get("/library/plotly-1.0.js").status_code == 404


# Live pages


def test_a_live_page_begins_its_stream_after_what_it_shows(own, tmp_path):
    with Store(tmp_path / "tuning.db") as store:
        store.put_workload(pages_data.workload())
        job = store.create_job("w", "llvm", seed=0, trials_requested=9)
        last = [store.add_event(job.id, "progress", {"n": n}) for n in range(40)][-1]
        page = shown(own.get(f"/jobs/{job.id}"))
        found = re.search(r'data-events="([^"]+)"', page)
        assert found is not None
        asked = html.unescape(found[1])
        assert asked == f"/v1/jobs/{job.id}/events?after={last.id}"
        accept = {"Accept": "application/json"}
        assert own.get(asked, headers=accept).json()["items"] == []
        store.add_event(job.id, "progress", {"n": 40})
        (told,) = own.get(asked, headers=accept).json()["items"]
        assert told["data"] == {"n": 40}


def test_a_plot_grows_by_what_is_new(client, jobs):
    whole = api(client, f"/jobs/{jobs.long}/plot")
    ids = whole["points"]["id"]
    records = [r["id"] for r in api(client, "/v1/records", job_id=jobs.long, limit=1000)["items"]]
    after = records[-21]
    text = client.get(f"/jobs/{jobs.long}/plot", params={"after": ids[-3]}).text
    assert len(text) < 2_000 < len(client.get(f"/jobs/{jobs.long}/plot").text) / 20
    grown = api(client, f"/jobs/{jobs.long}/plot", after=ids[-3])
    assert grown["more"] is False
    assert grown["points"]["id"] == list(range(ids[-3] + 1, ids[-1] + 1))
    assert grown["points"]["trial"] == list(range(1, ids[-1] - ids[-3] + 1))
    # Each says of a trial what the whole plot says.
    place = grown["points"]["id"].index(ids[-1])
    for name in ("elapsed", "status", "seconds"):
        assert grown["points"][name][place] == whole["points"][name][-1]
    assert grown["baselines"] == whole["baselines"]
    assert api(client, f"/jobs/{jobs.long}/plot", after=after)["more"] is True


# The page of the API


def test_every_operation_is_on_the_page_of_the_api(client):
    page = shown(client.get("/docs"))
    document = client.get("/openapi.json").json()
    assert document == client.get("/v1/openapi.json").json()
    ids = [
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
    ]
    assert len(ids) > 20
    assert sorted(re.findall(r'<details class="operation" id="(\w+)">', page)) == sorted(ids)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page), "it loads from another site"


# The list


def test_jobs_are_found_cancelled_and_cloned_by_forms(own, tmp_path):
    with Store(tmp_path / "tuning.db") as store:
        store.put_workload(pages_data.workload())
        made = [
            store.create_job(
                "w", "llvm", seed=n, trials_requested=1, name=f"job {n}", tags=("odd",) * (n % 2)
            ).id
            for n in range(4)
        ]
        found = shown(own.get("/jobs", params={"tag": "odd", "name": "", "since": "2020-01-01"}))
        assert re.findall(r'<a href="/jobs/(\w+)">', found) == [made[3], made[1]]
        assert "job 3" in found
        shown(own.get("/jobs", params={"until": "2020-01-01"}))
        shown(own.get("/jobs", params={"since": "soon"}), 422)
        form = {f"id.{made[0]}": "on", f"id.{made[2]}": "on"}
        headers = {"Origin": str(own.base_url).rstrip("/")}
        answer = own.post("/jobs/cancel", data=form, headers=headers)
        assert answer.status_code == 303
        states = [store.job(job_id).state for job_id in made]
        assert states == ["cancelled", "queued", "cancelled", "queued"]
        assert own.post("/jobs/cancel", data={"id./": "on"}, headers=headers).status_code == 422
        answer = own.post(f"/jobs/{made[1]}/clone", data={"seed": "7"}, headers=headers)
        clone = store.job(answer.headers["location"].rpartition("/")[2])
        assert (clone.seed, clone.name, list(clone.tags)) == (7, "job 1", ["odd"])


def test_a_page_says_what_a_state_does_not(own, tmp_path):
    with Store(tmp_path / "tuning.db") as store:
        store.put_workload(pages_data.workload())
        job = store.create_job("w", "llvm", seed=0, trials_requested=9)
        store.update_job(job.id, state="succeeded", notice="no gain over the default schedule")
        assert "No gain over the default schedule." in shown(own.get(f"/jobs/{job.id}"))
    assert "No job runs." in shown(own.get("/"))

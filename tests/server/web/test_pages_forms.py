"""The forms of the pages: submitting, cancelling, resuming, logging in."""

from __future__ import annotations

import html
import inspect
import re

import pytest
from html_check import problems_of
from serving import serving

from autosched.ops import OPERATORS
from records import Store
from records.operations.tokens import Tokens
from server.settings import Settings

HTML = {"Accept": "text/html"}
SEARCH = {"option.num_measure_trials": "8", "option.seed": "0", "target": "llvm"}
SCRIPT = """\
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            v = T.axis.spatial(64, i)
            B[v] = A[v] * T.float32(2)
"""


@pytest.fixture
def database(tmp_path):
    return tmp_path / "tuning.db"


@pytest.fixture
def client(database):
    with serving(Settings(db=str(database), jobs_at_once=0)) as client:
        client.headers.update(HTML)
        yield client


def matmul(**changes):
    given = {
        "operator": "matmul",
        "arg.N": "64",
        "arg.L": "32",
        "arg.M": "16",
        "arg.dtype": "float32",
    }
    return given | SEARCH | changes


def problem_at(page: str, field: str) -> str:
    """What a page says below a field."""
    found = re.search(
        rf'<div id="h-{re.escape(field)}"><p class="problem">(.*?)</p>', page, re.DOTALL
    )
    assert found is not None, page
    assert re.search(rf'id="f-{re.escape(field)}"[^>]*aria-invalid="true"', page)
    assert f'href="#f-{field}"' in page, "the summary leads there"
    assert problems_of(page) == []
    return html.unescape(found[1])


def submitted(client, fields, status=303):
    answer = client.post("/submit", data=fields)
    assert answer.status_code == status, answer.text
    return answer


def test_each_operator_has_a_form_of_its_arguments(client):
    for name in OPERATORS:
        page = client.get("/submit", params={"operator": name}).text
        assert problems_of(page) == []
        fields = re.findall(r'name="arg\.(\w+)"', page)
        assert fields == list(inspect.signature(OPERATORS[name]).parameters)


def test_a_form_becomes_a_job(client):
    answer = submitted(client, matmul(**{"option.time_budget_s": "90.5", "key": "k" * 32}))
    job = client.get(f"/v1{answer.headers['location']}").json()
    assert job["workload_name"] == "matmul"
    assert job["workload_args"] == [64, 32, 16, "float32"]
    assert job["state"] == "queued"
    assert job["trials_requested"] == 8
    assert job["options"]["time_budget_s"] == 90.5
    assert client.get(answer.headers["location"]).status_code == 200


def test_a_form_that_is_sent_twice_is_one_job(client):
    fields = matmul(key="k" * 32)
    first, second = submitted(client, fields), submitted(client, fields)
    assert first.headers["location"] == second.headers["location"]
    assert len(client.get("/v1/jobs").json()["items"]) == 1
    other = submitted(client, matmul(key="m" * 32))
    assert other.headers["location"] != first.headers["location"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("arg.N", "", "missing"),
        ("arg.N", "many", "not an integer"),
        ("arg.N", "1e3", "not an integer"),
        ("arg.N", "0", "expected an int >= 1"),
        ("arg.M", "-5", "expected an int >= 1"),
        ("option.num_measure_trials", "0", "greater than or equal to 1"),
        ("option.num_measure_trials", "9999999", "less than or equal to"),
        ("option.time_budget_s", "soon", "not a number"),
        ("option.time_budget_s", "inf", "finite"),
        ("option.seed", "-1", "greater than or equal to 0"),
        ("target", "", "missing"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(client, field, value, message):
    page = submitted(client, matmul(**{field: value}), 422).text
    assert message in problem_at(page, field)
    assert 'value="32"' in page, "what was right is still there"
    assert client.get("/v1/jobs").json()["items"] == []


def test_arguments_that_do_not_fit_each_other(client):
    given = {"H": "4", "W": "4", "CI": "3", "CO": "8", "K": "9", "S": "1", "P": "0", "D": "1",
             "G": "1", "dtype": "float32"}  # fmt: skip
    fields = {f"arg.{name}": value for name, value in given.items()}
    page = submitted(client, {"operator": "conv2d", **fields, **SEARCH}, 422).text
    assert "The job was not submitted" in page
    assert "window of conv2d" in html.unescape(page)


def test_an_operator_that_is_not_there(client):
    assert client.get("/submit", params={"operator": "nothing"}).status_code == 404
    submitted(client, matmul(operator="nothing"), 404)


def test_a_target_that_cannot_be_had(client):
    page = submitted(client, matmul(target="fpga"), 422).text
    assert "The job was not submitted" in page
    assert "fpga" in page


def test_a_script_becomes_a_job(client):
    answer = submitted(client, {"script": SCRIPT.replace("\n", "\r\n"), **SEARCH})
    job = client.get(f"/v1{answer.headers['location']}").json()
    assert job["state"] == "queued"
    assert job["workload_args"] is None


def test_what_is_wrong_with_a_script_is_said(client):
    broken = SCRIPT.replace("B: T.Buffer((64,)", "B: T.Buffer((32,)")
    page = submitted(client, {"script": broken, **SEARCH}, 422).text
    assert problem_at(page, "script")
    assert "B: T.Buffer((32,)" in html.unescape(page), "it can be corrected"
    evil = "__import__('os').system('true')"
    assert problem_at(submitted(client, {"script": evil, **SEARCH}, 422).text, "script")


def test_buttons_pause_cancel_and_resume(client):
    path = submitted(client, matmul()).headers["location"]
    assert f'action="{path}/cancel"' in client.get(path).text
    assert f'action="{path}/pause"' in client.get(path).text
    assert client.post(f"{path}/pause").headers["location"] == path
    assert client.get(f"/v1{path}").json()["state"] == "paused"
    page = client.get(path).text
    assert f'action="{path}/pause"' not in page
    assert f'action="{path}/resume"' in page
    assert client.post(f"{path}/cancel").headers["location"] == path
    assert client.get(f"/v1{path}").json()["state"] == "cancelled"
    page = client.get(path).text
    assert f'action="{path}/cancel"' not in page
    assert f'action="{path}/resume"' in page
    answer = client.post(f"{path}/resume", data={"additional_trials": "5"})
    assert answer.status_code == 303
    job = client.get(f"/v1{path}").json()
    assert (job["state"], job["trials_requested"]) == ("queued", 13)
    again = client.post(f"{path}/resume", data={"additional_trials": "5"})
    assert again.status_code == 409
    assert problems_of(again.text) == []
    assert client.post(f"{path}/resume", data={"additional_trials": "x"}).status_code == 422


@pytest.mark.parametrize("path", ["/submit", "/jobs/abc/cancel", "/login", "/logout"])
def test_no_other_site_can_send_a_form(client, path):
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"},
                    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):  # fmt: skip
        answer = client.post(path, data=matmul(), headers=headers)
        assert answer.status_code == 403, headers
        assert problems_of(answer.text) == []
    assert client.get("/v1/jobs").json()["items"] == []


def test_bodies_that_are_no_form(client):
    assert client.post("/submit", json={}).status_code == 415
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/submit", content=b"a=%ff", headers=form).status_code == 400
    many = "&".join(f"a{n}=1" for n in range(200))
    assert client.post("/submit", content=many, headers=form).status_code == 400


# Logging in


@pytest.fixture
def token(database):
    with Store(database) as store:
        text, _ = Tokens(store).create("ada", "submit", None)
    return text


@pytest.fixture
def guarded(database, token):
    settings = Settings(db=str(database), jobs_at_once=0, require_tokens=True)
    with serving(settings) as client:
        client.headers.update(HTML)
        yield client


def test_without_a_token_every_page_leads_to_the_login(guarded):
    for path in ("/", "/jobs/abc", "/workers", "/compare?a=1&b=2"):
        answer = guarded.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=%2F")
    answer = guarded.get("/", headers={"Accept": "application/json"})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert guarded.post("/submit", data=matmul()).status_code == 401
    assert guarded.get("/static/style.css").status_code == 200


def test_a_token_logs_in_and_out(guarded, token):
    refused = guarded.post("/login", data={"token": "wrong", "next": "/workers"})
    assert refused.status_code == 401
    assert "not valid" in refused.text
    assert problems_of(refused.text) == []
    assert "set-cookie" not in refused.headers

    answer = guarded.post("/login", data={"token": token, "next": "/workers"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/workers")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie

    page = guarded.get("/workers")
    assert page.status_code == 200
    assert "Log out ada" in page.text
    assert token not in page.text
    assert submitted(guarded, matmul()).headers["location"].startswith("/jobs/")

    assert guarded.post("/logout").headers["location"] == "/login"
    assert guarded.get("/").status_code == 303


@pytest.mark.parametrize(
    "there", ["https://evil.example/", "//evil.example", "/\\evil.example", "/a\nb", "evil", ""]
)
def test_a_login_leads_to_this_server_only(guarded, token, there):
    answer = guarded.post("/login", data={"token": token, "next": there})
    assert answer.headers["location"] == "/"
    page = guarded.get("/login", params={"next": there})
    assert 'name="next" value="/"' in page.text

"""Tokens over the API: who may, what is told once, what is logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from problem_shape import check_problem
from serving import serving

from records import Store
from records.operations.tokens import Tokens
from server.client import Client, RequestRefused
from server.settings import Settings


class Site(NamedTuple):
    url: str
    admin: Client
    db: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that needs no tokens, as on loopback, and an admin who has one."""
    db = str(tmp_path_factory.mktemp("tokens") / "x.db")
    with Store(db) as store:
        text, _ = Tokens(store).create("root", "admin", 600)
    settings = Settings(db=db, pool="replay:model", jobs_at_once=0, examine_processes=1)
    with serving(settings) as client:
        url = str(client.base_url)
        with Client(url, text) as admin:
            yield Site(url, admin, db)


def test_a_token_is_made_limited_and_revoked(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "autosched.tokens"):
        made = site.admin.create_token("ann", "submit", max_jobs=1, expires_seconds=None)
        rotated = site.admin.rotate_token(made.id, 60.0)
        limited = site.admin.limit_token(made.id, max_jobs=2, max_trials=100)
    with Client(site.url, made.token) as old, Client(site.url, rotated.token) as new:
        job = new.submit("matmul", (8, 8, 8), trials=60)
        assert job.client == "ann"
        for client in (old, new):
            mine = client.token()
            assert (mine.max_jobs, mine.max_trials, mine.used.trials) == (2, 100, 60)
        with pytest.raises(RequestRefused, match="120"):
            old.submit("matmul", (8, 8, 8), trials=60)
    assert (limited.name, limited.expires_at, limited.state) == ("ann", None, "valid")
    (listed,) = [token for token in site.admin.tokens() if token.id == made.id]
    assert listed.used.jobs == 1
    assert site.admin.revoke_token(made.id).state == "revoked"
    told = " ".join(caplog.messages)
    assert all(f": {what} by root" in told for what in ("created", "rotated (60 s)", "limited"))
    assert made.token not in told
    assert rotated.token.rsplit("_", 1)[-1] not in told


def test_no_answer_but_the_first_has_a_secret(site: Site) -> None:
    made = site.admin.create_token("eve")
    answers = [site.admin._http.get(path).text for path in ("/v1/tokens", "/tokens")]
    with Client(site.url, made.token) as client:
        answers.append(client._http.get("/v1/tokens/self").text)
    assert made.id in answers[0]
    assert not any(made.token[16:] in text or "hash" in text for text in answers)
    page = answers[1]
    assert ("eve" in page, "state-valid" in page) == (True, True)


def test_who_may_not(site: Site) -> None:
    """On loopback anybody may do all else; a token would let them in from elsewhere."""
    with Client(site.url) as anybody:
        with pytest.raises(RequestRefused, match="also where none is asked for") as told:
            anybody.create_token("me", "admin")
        assert told.value.status == 403
        with pytest.raises(RequestRefused, match="made without a token"):
            anybody.token()
    made = site.admin.create_token("bob", "submit")
    with Client(site.url, made.token) as bob:
        for path in ("/v1/tokens", f"/v1/tokens/{made.id}/rotate", f"/v1/tokens/{made.id}/limit"):
            check_problem(bob._http.post(path, json={}), 403, "forbidden")
        check_problem(bob._http.get("/v1/tokens"), 403, "forbidden")
        assert bob._http.get("/tokens").status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""}, {"name": "a", "scope": "root"}, {"name": "a", "expires_seconds": 0},
        {"name": "a", "max_jobs": -1}, {"name": "a", "grace": 1}, {},
    ],
)  # fmt: skip
def test_what_is_no_token(site: Site, body: dict[str, object]) -> None:
    check_problem(site.admin._http.post("/v1/tokens", json=body), 422)


def test_rotating_what_is_not_there(site: Site) -> None:
    with pytest.raises(RequestRefused, match="no token 000000000000"):
        site.admin.rotate_token("0" * 12)
    made = site.admin.create_token("old")
    site.admin.revoke_token(made.id)
    with pytest.raises(RequestRefused, match="revoked or expired") as told:
        site.admin.rotate_token(made.id)
    assert told.value.status == 409

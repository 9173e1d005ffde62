"""The one shape that every error has."""

from __future__ import annotations

from typing import Any

import httpx

from server.http.problems import KINDS
from server.schemas import Problem


def check_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """The problem in an answer, which is one in every respect, of one of these statuses."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem: dict[str, Any] = answer.json()
    assert problem.keys() == Problem.model_fields.keys()
    Problem.model_validate(problem, strict=True)
    kind = KINDS[problem["type"].removeprefix("urn:autosched:problem:")]
    assert (kind.status, kind.title) == (problem["status"], problem["title"])
    assert answer.status_code == problem["status"]
    assert not statuses or answer.status_code in statuses, problem
    assert problem["detail"]
    if "x-request-id" in answer.headers:
        assert problem["request_id"] == answer.headers["x-request-id"]
    if problem["status"] in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    if problem["status"] == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer ")
    if problem["status"] == 405:
        assert answer.headers["allow"]
    assert answer.headers["cache-control"] == "no-store"
    return problem

"""The API does what its OpenAPI document says, whatever is sent: all checks of schemathesis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest
from serving import serving

from server.settings import Settings

RECORDS = Path(__file__).parents[1] / "tuning" / "golden_records.jsonl"
HOOKS = Path(__file__).parent / "schemathesis_hooks.py"
CONFIG = """
# As long as the other tests wait: longer than a workload may be examined.
request-timeout = 120
hooks = {hooks!r}
checks.negative_data_rejection.expected-statuses = [
    400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 429, 431,
]

# Texts that fit the schema and mean nothing: a workload or target that is none, an address that may
# not be told, a cursor. Or that no database keeps: with a NUL, which a JSON schema cannot forbid in
# arguments of any kind.
[[operations]]
include-name = ["POST /v1/jobs", "POST /v1/batches", "POST /v1/webhooks"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 409, 422, 429]

[[operations]]
include-name = [
    "GET /v1/jobs", "GET /v1/records", "GET /v1/workloads", "GET /v1/batches",
    "GET /v1/jobs/{{job_id}}/trials",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 404]

# What is an operator, and which arguments it has, no schema says.
[[operations]]
include-name = "GET /v1/best"
checks.positive_data_acceptance.expected-statuses = ["2xx", 404, 409, 422]

# Any bytes are lines; those that are no records are told one by one.
[[operations]]
include-name = "POST /v1/records/import"
checks.negative_data_rejection.enabled = false
"""


def run(folder: Path, *options: str, seed: int = 1) -> Counter[str]:
    """Let schemathesis loose on a server that has records; answers by the class of their status."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.format(hooks=str(HOOKS)))
    settings = Settings(
        db=str(folder / "x.db"),
        jobs_at_once=0,
        requests_per_second=0,
        jobs_queued=10**6,
        jobs_queued_per_client=10**6,
    )
    with serving(settings) as client:
        client.post("/v1/records/import", content=RECORDS.read_bytes()).raise_for_status()
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"),
            f"{client.base_url}/v1/openapi.json",
            # Streams of jobs that wait do not end; with this, events come in pages.
            *("--header", "Accept: application/json"),
            *("--seed", str(seed), "--no-color", "--warnings", "off"),
            *options,  # all checks, where not told
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AUTOSCHED_")}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
        return answered(client)


def answered(client: httpx.Client) -> Counter[str]:
    """How many requests were answered, by the class of their status, from the metrics."""
    found: Counter[str] = Counter()
    pattern = r'^autosched_requests_total\{.*status="(\d)\d\d"\} (\S+)$'
    for status, count in re.findall(pattern, client.get("/metrics").text, re.MULTILINE):
        found[f"{status}xx"] += int(float(count))
    return found


def test_some_hundred_requests(tmp_path: Path) -> None:
    found = run(tmp_path, "--phases", "examples,fuzzing", "--max-examples", "4")
    assert found.total() >= 200
    assert found["5xx"] == 0
    assert found["2xx"] >= 50
    assert found["4xx"] >= 50


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_some_thousand_requests(tmp_path: Path) -> None:
    found = run(tmp_path, "--max-examples", "80", seed=2)
    assert found.total() >= 3_500
    assert found["5xx"] == 0

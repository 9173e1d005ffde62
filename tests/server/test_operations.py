"""The files in deploy/ and docs/operations.md: their commands, options and metrics exist."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from serving import serving

from autosched.cli.main import parser_of
from records import JobQueue, Store, Workload
from records.queue.submissions import Submission
from server.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "operations.md").read_text()
PROMETHEUS = frozenset(
    {"by", "sum", "min", "max", "rate", "topk", "le", "and", "histogram_quantile", "label_values"}
)
"""Words of queries that are no metrics."""


def commands() -> Iterator[tuple[str, list[str]]]:
    """(where, arguments after `autosched`) of every command in the files and the page."""
    for unit in sorted(DEPLOY.glob("*.service")):
        for line in unit.read_text().splitlines():
            if line.startswith("ExecStart"):
                words = shlex.split(line.partition("=")[2])
                assert Path(words[0]).name == "autosched", line
                yield unit.name, words[1:]
    docker = (DEPLOY / "Dockerfile").read_text()
    (entry,), (given,) = (
        re.findall(rf"^{w} (\[.*\])$", docker, re.M) for w in ("ENTRYPOINT", "CMD")
    )
    assert json.loads(entry) == ["autosched"]
    yield "Dockerfile", json.loads(given)
    for line in re.findall(r"(?:^    |`)(?:docker run .* )?(autosched [^`\n]+)", PAGE, re.M):
        words = shlex.split(line.partition("autosched ")[2])
        if words[0] in ("workers", "records", "token", "db", "serve", "worker"):
            yield "operations.md", words


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=str)
def test_every_command_and_option_exists(where: str, words: list[str]) -> None:
    if words == ["serve"]:
        return
    options = parser_of(words).parse_args(words)
    assert options.command == words[0]


def test_there_are_commands_of_each_file() -> None:
    found = {where for where, _ in commands()}
    units = {unit.name for unit in DEPLOY.glob("*.service")}
    assert units | {"Dockerfile", "operations.md"} == found


def test_what_the_image_copies_is_there() -> None:
    for line in re.findall(r"^COPY (.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M):
        assert all((ROOT / name).exists() for name in line.split()), line


def test_units_are_whole() -> None:
    for unit in DEPLOY.glob("*.service"):
        parsed = configparser.ConfigParser(strict=False, interpolation=None)
        parsed.optionxform = str  # type: ignore[assignment, method-assign]
        parsed.read(unit)
        assert parsed.sections() == ["Unit", "Service", "Install"]
        known = {f"AUTOSCHED_{name.upper()}" for name in Settings.model_fields}
        assert set(re.findall(r"AUTOSCHED_\w+", unit.read_text())) <= known


def test_variables_of_the_page_are_settings() -> None:
    known = {f"AUTOSCHED_{name.upper()}" for name in Settings.model_fields} | {"AUTOSCHED_SETTINGS"}
    assert set(re.findall(r"AUTOSCHED_[A-Z]+", PAGE)) <= known


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of metrics with the names of their labels, of a server that was asked something."""
    db = str(tmp_path_factory.mktemp("metrics") / "x.db")
    found: dict[str, set[str]] = {}
    with serving(Settings(db=db, pool="replay:model", jobs_at_once=0)) as client:
        client.get("/v1/jobs")
        for line in client.get("/metrics").text.splitlines():
            if (match := re.match(r"(\w+)(\{.*\})? ", line)) and not line.startswith("#"):
                found.setdefault(match[1], set()).update(re.findall(r"(\w+)=\"", match[2] or ""))
    return found


def expressions() -> Iterator[str]:
    """What the board and the alerts ask."""
    board = json.loads((DEPLOY / "grafana.json").read_text())
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (one["query"] for one in board["templating"]["list"] if one["type"] == "query")
    yield from re.findall(r"expr: (.*)", (DEPLOY / "alerts.yml").read_text())


def test_every_metric_that_is_asked_for_exists(metrics: dict[str, set[str]]) -> None:
    asked = list(expressions())
    assert len(asked) >= 18
    for expression in asked:
        used = re.findall(r"\b((?:autosched|process)_\w+)(?:\{([^}]*)\})?", expression)
        assert used, f"no metric in {expression}"
        for name, selected in used:
            assert name in metrics, f"{name} in {expression}"
            labels = set(re.findall(r"(\w+)\s*[=!]", selected)) - {"instance"}
            assert labels <= metrics[name], f"labels of {expression}"
        (grouped,) = re.findall(r"by \(([^)]*)\)", expression) or [""]
        by = {one for one in re.split(r", *", grouped) if one} - {"instance"}
        assert by <= set().union(*(metrics[name] for name, _ in used)), expression


def filled(url: str) -> str:
    """A database with one job that waits; its id."""
    with Store(url) as store:
        workload = Workload(key="w", name="m", script="s")
        job, _ = JobQueue(store).submit(
            Submission(workload=workload, target="t", seed=0, trials_requested=1)
        )
    return job.id


def test_the_backup_of_sqlite(tmp_path: Path) -> None:
    """The statement of the page, by Python's SQLite: its program need not be installed."""
    assert "VACUUM INTO 'backup.db'" in PAGE
    job = filled(str(tmp_path / "autosched.db"))
    with Store(tmp_path / "autosched.db"), sqlite3.connect(tmp_path / "autosched.db") as database:
        database.execute(f"VACUUM INTO '{tmp_path / 'backup.db'}'")
    with sqlite3.connect(tmp_path / "backup.db") as backup:
        assert backup.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    backup.close()
    database.close()
    with Store(tmp_path / "backup.db") as store:
        assert store.job(job).state == "queued"


@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="needs PostgreSQL's programs")
def test_the_backup_of_postgresql(tmp_path: Path) -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    cluster = postgres.Cluster()
    try:
        url = cluster.database()
        job = filled(url)
        block = next(b for b in re.findall(r"```sh\n(.*?)```", PAGE, re.S) if "pg_dump" in b)
        host = url.partition("host=")[2]
        done = subprocess.run(
            ["bash", "-ec", block], cwd=tmp_path, capture_output=True, text=True, timeout=120,
            env={"PATH": "/usr/bin:/bin", "AUTOSCHED_DB": url, "PGHOST": host, "PGUSER": "tests"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with Store(cluster.database("restored")) as store:
            assert store.job(job).state == "queued"
    finally:
        cluster.stop()

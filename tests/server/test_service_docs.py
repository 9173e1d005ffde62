"""Every block of docs/service.md is run: its commands, and whether what is answered is as written.

A JSON block has the shape of the answer before it: the same names, values of the same types. The
lines of a txt block stand in the answer, numbers and ids aside; `…` stands for the rest of a line.
`--update-golden` writes the JSON blocks anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import serving

from records import Store
from records.operations.tokens import Tokens
from server.app import create_app
from server.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
BLOCK = re.compile(r"^```(sh|json|txt|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = "http://127.0.0.1:8000"
"""The address in the document."""
METHODS = ("GET", "POST", "DELETE")


class Session:
    """A shell whose variables stay from block to block."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        (folder / "variables").write_text("")

    def run(self, block: str) -> str:
        """What the block prints."""
        block = block.replace(WRITTEN, self.url)
        script = (
            f"set -euo pipefail; source variables; {block}\n"
            "declare -p AT JOB KEY RECORD CLONE WORKER HOOK TOKEN "
        )
        script += "2>/dev/null > variables || true"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder, capture_output=True, text=True, timeout=300, check=False,
            env=os.environ | {"NO_PROXY": "*"},
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def differences(written: Any, found: Any, at: str = "") -> list[str]:
    """Where an answer has another shape than what is written; null may be anything."""
    if written is None or found is None:
        return []
    if isinstance(written, dict) and isinstance(found, dict):
        if at.endswith(("/options", "/data", "/refused", "/checks", "/decisions", "/states")):
            return []  # by whatever names there are
        wrong = [f"{at}/{name}: only here or there" for name in sorted(set(written) ^ set(found))]
        for name in sorted(set(written) & set(found)):
            wrong += differences(written[name], found[name], f"{at}/{name}")
        return wrong
    if isinstance(written, list) and isinstance(found, list):
        return differences(written[0], found[0], f"{at}/0") if written and found else []
    number = isinstance(written, int | float) and isinstance(found, int | float)
    if number or type(written) is type(found):
        return []
    return [f"{at}: {written!r} is written, found {found!r}"]


def masked(text: str) -> str:
    """`text` with ids and numbers made alike."""
    return re.sub(r"\d+(\.\d+)?([eE][+-]?\d+)?", "N", re.sub(r"\b[0-9a-f]{32}\b", "ID", text))


def stands_in(line: str, answer: str) -> bool:
    """Whether a line of a txt block is one of the answer's."""
    wanted = masked(line).strip()
    lines = [masked(one).strip() for one in answer.splitlines()]
    if wanted.endswith("…"):
        return any(one.startswith(wanted[:-1]) for one in lines)
    return wanted in lines


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_every_block_is_true(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = PAGE.read_text()
    updated, answer, printed = text, "", ""
    settings = Settings(
        db=str(tmp_path / "x.db"),
        pool="replay:model",
        poll_seconds=0.1,
        webhook_origins=("https://ci.example",),
    )
    with serving(settings) as client:
        url = str(client.base_url).rstrip("/")
        session = Session(tmp_path, url)
        with Store(settings.db) as store:
            token, _ = Tokens(store).create("root", "admin", 600)
        (tmp_path / "variables").write_text(f"TOKEN={token}\n")
        for match in BLOCK.finditer(text):
            kind, body = match[1], match[2]
            line = text.count("\n", 0, match.start()) + 1
            if kind == "sh":
                answer = session.run(body)
            elif kind == "py":
                monkeypatch.chdir(tmp_path)
                exec(compile(body.replace(WRITTEN, url), "service.md", "exec"), {})
                printed += capsys.readouterr().out
            elif kind == "txt":
                for one in body.splitlines():
                    assert stands_in(one, answer), f"line {line}: {one!r} is not in\n{answer}"
            else:
                found = json.loads(answer[answer.index("{") :])
                if request.config.getoption("--update-golden"):
                    fresh = f"```json\n{json.dumps(found, indent=2, ensure_ascii=False)}\n```"
                    updated = updated.replace(match[0], fresh, 1)
                else:
                    wrong = differences(json.loads(body), found)
                    assert not wrong, f"line {line}: {wrong}"
    assert "def apply(sch)" in printed
    assert re.search(r"^replay:model@\S+ \w+ \d+\.\d trials/s$", printed, re.M)
    assert "422 urn:autosched:problem:invalid-workload" in printed
    if updated != text:
        PAGE.write_text(updated)


def test_every_route_is_there() -> None:
    """Each method of each path has a command."""
    asked = set()
    for match in BLOCK.finditer(PAGE.read_text()):
        commands = match[2].replace("\\\n", " ") if match[1] == "sh" else ""
        for command in re.findall(r"\bcurl\b.*", commands):
            if path := re.search(r"\$AT(/[^?\s\"']*)", command):
                told = re.search(r"-X\s*(\w+)", command)
                sends = re.search(r"--json|--data|\s-d\s", command)
                asked.add((told[1] if told else "POST" if sends else "GET", path[1]))
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        pattern = re.compile(re.sub(r"\\\{[^}]*\\\}", r"[^/?\\s]+", re.escape(path)))
        for method in methods:
            assert any(m == method.upper() and pattern.fullmatch(p) for m, p in asked), (
                f"no command for {method.upper()} {path}"
            )


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_several_machines_with_tls(tmp_path: Path) -> None:
    """The lines of the page, on one machine: addresses, ports and copies are this machine's."""
    (block,) = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    whole = block.replace(" \\\n", "")
    commands = [line for line in whole.splitlines() if not line.startswith("#")]
    assert len(commands) == 10
    ports = {"8786": str(_free_port()), "8000": str(_free_port())}
    (tmp_path / "worker-certs").mkdir()
    tool = tmp_path / "autosched"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m autosched.cli "$@"\n')
    tool.chmod(0o755)
    script = block.replace("scp 10.0.0.1:{service.pem,token} .", "true")
    script = script.replace("scp 10.0.0.1:", "cp ").replace("10.0.0.1", "127.0.0.1")
    for written, port in ports.items():
        script = script.replace(f":{written}", f":{port}").replace(
            f"port {written}", f"port {port}"
        )
    done = subprocess.Popen(
        ["bash", "-euc", f"trap 'kill $(jobs -p); wait' EXIT\n{script}"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ
        | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(PAGE.parents[1]),
            "AUTOSCHED_REQUIRE_TOKENS": "true",
        },
    )  # fmt: skip
    try:
        out, _ = done.communicate(timeout=250)
    finally:
        done.terminate()
    assert re.search(r"^job [0-9a-f]{32} succeeded: 4/4 trials", out, re.M), out
    assert done.returncode == 0, out


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

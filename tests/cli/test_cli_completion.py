"""Completion in real shells, and errors that suggest the nearest name."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_runner import Cli

DRIVERS = {
    "bash": """
        . {script}
        COMP_WORDS=(autosched {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        COMPREPLY=(); _autosched; printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    # What a widget of zsh would call; `_describe` prints what is offered, without the help.
    "zsh": """
        compdef() {{ : }}; _files() {{ : }}
        _describe() {{ print -l -- ${{found%%:*}} }}
        . {script}
        words=(autosched {words}); CURRENT=$#words
        _autosched
    """,
    "fish": """
        source {script}
        complete -C "autosched {line}" | string split -f 1 \\t
    """,
}
CASES: list[tuple[tuple[str, ...], set[str], set[str]]] = [
    (("",), {"tune", "best", "records", "completion"}, {"export", "--trials", "matmul"}),
    (("tune", ""), {"matmul_add", "softmax"}, {"export"}),
    (("tune", "-"), {"--trials", "--resume", "--db"}, {"--status"}),
    (("records", ""), {"export", "import", "repair"}, {"tune", "list"}),
    (("records", "export", "-"), {"--status", "--db"}, {"--trials"}),
    (("best", "matmul", "--as", ""), {"schedule", "asm"}, {"matmul", "--db"}),
    (("completion", ""), {"bash", "zsh", "fish"}, {"tune"}),
]


@pytest.mark.parametrize("shell", DRIVERS)
def test_a_shell_offers_what_may_follow(shell: str, cli: Cli, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = cli("completion", shell)
    assert (done.status, done.err) == (0, "")
    script = tmp_path / "script"
    script.write_text(done.out)
    for words, wanted, others in CASES:
        quoted = " ".join(f"'{w}'" for w in words)
        driver = DRIVERS[shell].format(script=script, words=quoted, line=" ".join(words))
        ran = subprocess.run([shell, "-c", driver], capture_output=True, text=True, check=False)
        offered = set(ran.stdout.split())
        if shell != "bash":  # they select by what is typed themselves
            wanted = {w for w in wanted if w.startswith(words[-1])}
        assert wanted <= offered, (words, ran.stdout[:300], ran.stderr)
        assert not others & offered, (words, others & offered)


NEAREST = [
    (("tuen", "matmul"), "autosched: error: .*; did you mean 'tune'?"),
    (("records", "exprt"), "autosched records: error: .*; did you mean 'export'?"),
    (("best", "matmul", "--as", "shedule"), "; did you mean 'schedule'?"),
    (("tune", "matmul", "--trails", "4"), "autosched tune: error: .*; did you mean '--trials'?"),
    (("records", "export", "a", "--statsu=ok"), "records export: error: .*mean '--status'?"),
]


@pytest.mark.parametrize(("arguments", "text"), NEAREST, ids=lambda v: " ".join(v)[:30])
def test_the_nearest_name_is_suggested(cli: Cli, arguments: tuple[str, ...], text: str) -> None:
    done = cli(*arguments)
    assert (done.status, done.out) == (2, "")
    (line,) = [x for x in done.err.splitlines() if "error: " in x]
    assert re.search(text.replace("?", r"\?"), line), line


def test_nothing_is_suggested_for_what_is_like_nothing(cli: Cli) -> None:
    done = cli("xyzzy")
    assert done.status == 2
    assert "did you mean" not in done.err

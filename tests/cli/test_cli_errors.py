"""Every mistake gets one message, the right exit status, and never a traceback."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from cli_runner import COMMAND, WORKLOAD, Cli, Tuned

from autosched.cli.main import main

FAR = "/nowhere/at/all"
TUNE = ("tune", *WORKLOAD)

FAILURES: list[tuple[tuple[object, ...], str]] = [
    (("tune", "matmul_ad", 8, 8, 8), r"named 'matmul_ad' \(did you mean matmul_add\?\); known: "),
    (("tune", "nothing", 1), "no workload named 'nothing'; known: .*matmul_add.*file.py:function"),
    (("tune", "matmul", 4, 5), r"arguments \(4, 5\) do not fit matmul\(N, L, M.*'M'"),
    (("tune", "matmul", 4, 5, "six"), "argument M of matmul.* is 'six'; expected int"),
    (("tune", "matmul", 4, 5, 0), "M of matmul is 0; expected an int >= 1"),
    (("tune", "matmul", 4, 5, -6), "M of matmul is -6; expected an int >= 1"),
    (("tune", "matmul", 4, 5, 6, "float31"), "dtype .* 'float31'; expected one of .*float32"),
    (("tune", "matmul", 4, 5, "nan"), "argument nan of a workload .*expected .*finite"),
    ((*TUNE, "--target", ""), "the target is empty; expected e.g."),
    ((*TUNE, "--target", "vax"), "unknown target kind 'vax'.*known: llvm"),
    ((*TUNE, "--target", "llvm -mcpu=pdp11"), "unknown CPU 'pdp11' .*known: "),
    ((*TUNE, "--target", "llvm -mfoo=1"), "unknown option '-mfoo=1' .*known: -mcpu="),
    ((*TUNE, "--db", f"{FAR}/a.db"), f"no folder {FAR} to keep"),
    ((*TUNE, "--db", f"{FAR}/a.json"), f"no folder {FAR} to keep"),
    ((*TUNE, "--db", "nosuch://host/name"), "no such kind of database"),
    ((*TUNE, "--db", "junk.txt"), "junk.txt is neither an SQLite database nor a log"),
    ((*TUNE, "--db", "."), "cannot read .: .*Is a directory"),
    ((*TUNE, "--db", "a.json", "--resume"), "resuming needs a store, and a.json is a log"),
    (("tune", "none.py:f", 4), "no file .*none.py"),
    (("tune", "~unknown-user/x.py:f", 4), "no file .*~unknown-user/x.py"),
    (("tune", "my_ops.py:none", 4), "my_ops.py has no function 'none'"),
    (("tune", "my_ops.py:number", 4), "my_ops.py has no function 'number'"),
    (("tune", "my_ops.py:", 4), "does not name a function; expected file.py:function"),
    (("tune", "my_ops.py:rows", 4), r"arguments \(4,\) do not fit my_ops.py:rows\(n, m\)"),
    (
        ("tune", "my_ops.py:fails", 0),
        r"my_ops.py:fails\(0\) failed: ZeroDivisionError: division by zero "
        r"\(line 6 of my_ops.py: return 1 / n\)",
    ),
    (("tune", "my_ops.py:gives_a_number", 4), "returned 4; expected a list of tensors"),
    (("tune", "my_ops.py:leaves", 3), r"my_ops.py:leaves\(3\) failed: SystemExit: 3 \(line 10 of"),
    (("best", *WORKLOAD, "--db", "none.db"), "no records at none.db: there is no such file"),
    (("best", *WORKLOAD, "--db", "junk.txt"), "junk.txt is neither"),
    (("show", 1, "--db", "none.db"), "no records at none.db: there is no such file"),
    (("records", "export", "x.json", "--db", "none.db"), "no records at none.db"),
    (("records", "import", "none.json", "--db", "a.db"), "cannot read none.json"),
    (("records", "merge", "none.db", "--into", "a.db"), "no records at none.db"),
    (("records", "distill", "none.db", "a.db"), "no records at none.db"),
    *(
        ((*command, *option), f"{option[0]} is of a model, and {subject} is none; leave it out")
        for subject, command, options in (
            ("matmul_add", TUNE, (("-o", "foo"), ("--precision", "int8"), ("--shape", "x=1"))),
            (
                "matmul_add",
                ("bench", *WORKLOAD),
                (("--shape", "x=1"), ("--threads", 1), ("--cache", "a"), ("--flush-denormals",)),
            ),
            ("record 1", ("show", 1), (("--precision", "int8"), ("--shape", "x="))),
        )
        for option in options
    ),
    (("token", "list", "--db", "none.db"), "no records at none.db"),
    (("token", "revoke", "x", "--db", "none.db"), "no records at none.db"),
]


@pytest.mark.parametrize(
    ("arguments", "text"), FAILURES, ids=[" ".join(map(str, a))[:60] for a, _ in FAILURES]
)
def test_failures(
    cli: Cli,
    my_ops: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    text: str,
) -> None:
    monkeypatch.chdir(my_ops.parent)
    Path("junk.txt").write_text("hello\n")
    done = cli(*arguments)
    assert done.status == 1
    assert re.match(f"autosched {arguments[0]}: ", done.err), done.err
    assert re.search(text, done.err), done.err
    assert "Traceback" not in done.err
    assert not Path("none.db").exists()


MISUSES: list[tuple[tuple[object, ...], str]] = [
    ((), "examples:"),
    (("nothing",), "invalid choice: 'nothing'"),
    (("tune",), "the following arguments are required: WORKLOAD$"),
    ((*TUNE, "--trials", 0), "--trials: expected an integer of at least 1, found '0'"),
    ((*TUNE, "--trials", "many"), "--trials: expected an integer of at least 1, found 'many'"),
    ((*TUNE, "--seed", -1), "--seed: expected an integer of at least 0"),
    ((*TUNE, "--time-budget", 0), "--time-budget: expected seconds greater than 0, found '0'"),
    ((*TUNE, "--time-budget", "inf"), "found 'inf'"),
    ((*TUNE, "--json", "--quiet"), "not allowed with argument --json"),
    ((*TUNE, "--nothing"), "unrecognized arguments: --nothing"),
    (("best", *WORKLOAD, "--as", "wasm"), "invalid choice: 'wasm'"),
    (("show", "three"), r"argument ID\|MODEL.onnx: expected a record's number.* 'three'"),
    (("records",), "required: ACTION"),
    (("records", "export"), "required: file"),
    (("records", "export", "-", "--status", "good"), "invalid choice: 'good'"),
    *(
        (
            ("scheduler", f"--port={port}"),
            f"--port: expected a port from 0 to 65535, found '{port}'",
        )
        for port in ("99999", "-1", "http", "")
    ),
    (("cluster", "local", "--port", "65536"), "expected a port from 0 to 65535"),
    *(
        (arguments, f"argument {name}: expected a text that is not empty, found ''")
        for name, arguments in (
            ("--output", ("run", "net.onnx", "--output", "")),
            ("-o/--output", ("compile", "net.onnx", "-o", "")),
            ("--cache", ("compile", "net.onnx", "--cache", "")),
            ("--db", ("compile", "net.onnx", "--db", "")),
            ("--db", ("best", *WORKLOAD, "--db", "")),
            ("--server", ("best", *WORKLOAD, "--server", "")),
            ("--token-file", ("jobs", "list", "--token-file", "")),
            ("--tag", ("jobs", "list", "--tag", "")),
            ("--settings", ("serve", "--settings", "")),
            ("--host", ("scheduler", "--host", "")),
            ("--tls-dir", ("scheduler", "--tls-dir", "")),
            ("DIR", ("cluster", "certs", "")),
            ("file", ("records", "export", "")),
            ("--job-id", ("records", "export", "x", "--job-id", "")),
        )
    ),
    *(
        (
            ("worker", "--scheduler", "tcp://127.0.0.1:1", "--label", "a", option, text),
            f"argument {option}: expected a name of printable characters, found ",
        )
        for option in ("--label", "--name")
        for text in ("", " ", "a\nb", "a\x1b[2J")
    ),
]


@pytest.mark.parametrize(
    ("arguments", "text"), MISUSES, ids=[" ".join(map(str, a))[:60] for a, _ in MISUSES]
)
def test_misuses(cli: Cli, arguments: tuple[object, ...], text: str) -> None:
    done = cli(*arguments)
    assert (done.status, done.out) == (2, "")
    assert re.search(text, done.err.strip()), done.err


def test_sizes_may_stand_after_options(cli: Cli, tuned: Tuned) -> None:
    name, *sizes = WORKLOAD
    first = cli("best", *WORKLOAD, "--db", tuned.db)
    assert cli("best", name, "--db", tuned.db, *sizes).out == first.out
    assert cli("best", "--db", tuned.db, name, *sizes).out == first.out


def test_no_record_says_how_to_make_one(cli: Cli, tuned: Tuned) -> None:
    done = cli("best", "softmax", 4, 5, "--db", tuned.db)
    assert done.status == 1
    assert "no record of workload " in done.err
    assert f"to make some: autosched tune softmax 4 5 --db {tuned.db}" in done.err


def test_commands_that_are_printed_can_be_pasted(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    db = "two words; true #1.db"
    none = cli("best", *WORKLOAD, "--db", db)
    (command,) = re.findall(r"to make some: autosched (.*)", none.err)
    few = ("--trials", 2, "--pool", "replay:model", "--no-limits")
    done = cli(*shlex.split(command), *few)
    assert done.status == 0, done.err
    (command,) = re.findall(r"program +autosched (show .*) +\(or", done.out)
    assert cli(*shlex.split(command)).out.count("def apply") == 1


def test_what_the_locale_lacks_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert main(["db", "check", "--db", "4 µs \U0001d711.db"]) == 1
    shown = re.match(rb"4 .*\.db", out.getvalue())
    assert shown is not None
    assert json.loads(b'"%s"' % shown[0]) == "4 µs \U0001d711.db"


def test_a_folder_that_is_gone_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = cli(*TUNE, "--pool", "replay:model", "--db", "x.db")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "autosched tune: the folder that it was started in is gone; change to another one\n"
    )


def test_a_file_that_is_gone_is_no_folder_that_is_gone(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(options: object) -> int:
        raise FileNotFoundError(2, "No such file or directory")  # of a socket, without a name

    monkeypatch.setattr("autosched.cli.db.run", refused)
    assert cli("db", "check").err == "autosched db: [Errno 2] No such file or directory\n"


def test_without_a_home_a_cluster_asks_for_a_folder(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    done = cli("cluster", "local")
    assert (done.status, done.out) == (1, "")
    assert "no home folder to keep certificates in; name a folder: --tls-dir" in done.err


def test_a_target_without_records_lists_those_that_have_some(cli: Cli, tuned: Tuned) -> None:
    done = cli("best", *WORKLOAD, "--db", tuned.db, "--target", "llvm -num-cores=1")
    assert done.status == 1
    assert "there are records of:\n  target 'llvm " in done.err


def test_a_record_that_is_not_there(cli: Cli, tuned: Tuned) -> None:
    done = cli("show", 999, "--db", tuned.db)
    assert (done.status, done.err.strip()) == (
        1,
        "autosched show: no record 999 in this store",
    )


def test_a_machine_that_cannot_run_the_target(cli: Cli, tmp_path: Path) -> None:
    target = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1"
    done = cli(*TUNE, "--target", target, "--db", tmp_path / "a.db")
    assert done.status == 1
    assert "autosched tune: this machine cannot run llvm" in done.err


@pytest.mark.long
@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_stream_closed_from_the_start(closed: str, tmp_path: Path) -> None:
    command = f'exec "$@" {closed}>&-'
    tune = [*COMMAND, *TUNE, "--trials", "2", "--db", str(tmp_path / "a.json"), "--no-limits"]
    done = subprocess.run(
        ["sh", "-c", command, "sh", *tune], capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)


@pytest.mark.parametrize("arguments", [("--help",), ("tune", "--help"), ("--version",)])
def test_output_that_cannot_be_written_is_a_failure(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "No space left on device" in done.stderr


def test_an_error_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", "matmul", "4", "4", "4", "--db", "/no\x1b[2J/a.db"]) == 1
    assert "/no\\x1b[2J/a.db" in capsys.readouterr().err

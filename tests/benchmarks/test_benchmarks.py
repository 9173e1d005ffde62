"""The harness of the benchmarks: what it reports, and that no peer outlives or disturbs it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import ops, te
from autosched.lowering.lower import lower
from autosched.schedule import Schedule
from autosched.tir import interp
from autosched.tir.verify import verify

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
FAKE = Path(__file__).with_name("fake_peer.py")


def load(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[ModuleType]:
    """Modules of the benchmarks, which import each other from their own folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    for name in names:
        yield importlib.import_module(name)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (module,) = load(monkeypatch, "peer_client")
    monkeypatch.setattr(module, "PEER_PYTHON", Path(sys.executable))
    monkeypatch.setattr(module, "SERVER", FAKE)
    return module


def state(pid: int) -> str:
    """One letter: R running, S sleeping, T stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(pid: int, wanted: str) -> None:
    """Signals are delivered a moment after they are sent."""
    end = time.monotonic() + 60
    while state(pid) != wanted:
        assert time.monotonic() < end, f"process {pid} is in state {state(pid)}, not {wanted}"
        time.sleep(0.001)


def test_a_peer_is_stopped_except_in_its_turns(client: ModuleType) -> None:
    with client.Peer("numpy-skx", "works", 2) as peer:
        wait_for(peer.pid, "T")
        assert peer.turn(5, 0.0) == (5e-3, 1e-6)
        wait_for(peer.pid, "T")
        assert peer.about == {"core": "SKYLAKEX", "omp": "2"}
        pid = peer.pid
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("dies", "torch on dies died: out of luck"),
        ("refuses", "torch on refuses: ValueError: no such operation"),
    ],
)
def test_a_peer_that_cannot_be_opened_says_why(
    client: ModuleType, workload: str, message: str
) -> None:
    with pytest.raises(client.PeerError, match=message):
        client.Peer("torch", workload, 1)


def test_a_silent_peer_is_ended(client: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_OPEN_SECONDS", 0.2)
    with pytest.raises(client.PeerError, match="silent for 0 s"):
        client.Peer("torch", "silent", 1)


def test_a_peer_that_dies_in_its_turn_is_reported(client: ModuleType) -> None:
    with client.Peer("ort", "dies later", 1) as peer:
        with pytest.raises(client.PeerError, match="died: out of memory"):
            peer.turn(1, 0.0)
        with pytest.raises(client.PeerError, match="died: out of memory"):
            peer.turn(1, 0.0)


def test_without_the_environment_the_message_names_the_command(
    client: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "PEER_PYTHON", tmp_path / "python")
    with pytest.raises(client.PeerError, match="make bench-setup"):
        client.Peer("ort", "works", 1)


def test_engines_that_refuse_are_left_out(
    client: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = client.Peer

    def some(engine: str, *rest: Any) -> Any:
        if engine == "torch":
            raise client.PeerError("torch has no such operation")
        return real(engine, *rest)

    monkeypatch.setattr(client, "Peer", some)
    peers = client.open_peers(["torch", "ort"], "works", 1)
    assert [p.engine for p in peers] == ["ort"]
    client.close(peers)
    assert "left out: torch has no such operation" in capsys.readouterr().out
    with pytest.raises(client.PeerError, match="no engine could be opened for works"):
        client.open_peers(["torch"], "works", 1)


def test_compare_reports_both_ratios(client: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (common,) = load(monkeypatch, "common")
    # The fake engine takes 5 ms; ours, from Python, nearly nothing, and natively 1 ms.
    ours = common.Side("ours", lambda: None, lambda: 1e-3)
    with client.Peer("ort", "works", 1) as peer:
        figures = common.compare("case", ours, [peer], flop=10**6, bar=1.0, rounds=2, seconds=0.0)
    assert figures["fastest"] == "ort"
    assert figures["python_s"]["ort"] == 5e-3
    assert figures["native_s"]["ort"] == pytest.approx(5e-3 - 1e-6)
    assert figures["ratio"] == figures["python_s"]["ort"] / figures["python_s"]["ours"]
    assert figures["ratio_native"] == pytest.approx(4.999)
    assert figures["gflops"] == pytest.approx(1.0)
    assert figures["met"]
    assert figures["ratio"] > 1
    json.dumps(figures)
    assert common.ratio_bar(figures)["met"]


def test_load_of_others_does_not_count_our_own(client: ModuleType) -> None:
    load = client.OtherLoad(())
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    busy = os.times()
    assert load.cores() >= 0
    assert busy.user + busy.system > 0.2


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:3,4,5",
        "matmul_add:3,4,5",
        "softmax:3,7",
        "layer_norm:3,7",
        "cumsum:5,3",
        "rnn:4,2,3,5",
        "lstm:4,2,3,5",
    ],
)
def test_numpy_peers_compute_the_reference(monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    (workloads,) = load(monkeypatch, "workloads")
    for text in (spec, workloads.smallest(spec)):
        workload = workloads.make(text)
        arrays = {**workload.inputs, **workload.weights}
        out = np.full(workload.shape, np.nan, np.float32)
        workload.numpy(arrays, out)
        expected = workload.reference({k: v.astype(np.float64) for k, v in arrays.items()})
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "args"),
    [("rnn", (4, 1, 3, 10)), ("rnn", (3, 5, 4, 9)), ("lstm", (4, 3, 5, 9)), ("cumsum", (4, 9))],
)
@pytest.mark.parametrize("apart", [False, True])
def test_schedules_of_recurrences(
    monkeypatch: pytest.MonkeyPatch, operator: str, args: tuple[int, ...], apart: bool
) -> None:
    (scan,) = load(monkeypatch, "scan")
    schedule = Schedule(te.create_prim_func(ops.get(operator)(*args)))
    if operator == "cumsum":
        scan.cumsum_schedule(schedule, scan.ColumnTiles(4))
    else:
        scan.cell_schedule(schedule, scan.CellTiles(2, 4, 2, 4, 2, apart, not apart))
    verify(schedule.func)
    rng = np.random.default_rng(0)
    shapes = [b.shape for b in schedule.func.params]
    arrays = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    interp.run(lower(schedule.func), arrays)
    expected = scan.reference(operator, arrays[:-1])
    np.testing.assert_allclose(arrays[-1], expected, rtol=1e-5, atol=1e-5)


def test_the_smallest_of_a_kind_keeps_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    (workloads,) = load(monkeypatch, "workloads")
    assert workloads.smallest("conv2d:56,56,64,64,3,1,1") == "conv2d:3,3,1,1,3,1,1"
    assert workloads.smallest("matmul:1024,1024,1024") == "matmul:1,1,1"
    assert workloads.make("conv2d:8,8,4,6,3,2,1").shape == (1, 6, 4, 4)
    with pytest.raises(ValueError, match="no workload 'fft'"):
        workloads.make("fft:8")


def test_the_table_shows_bars_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = load(monkeypatch, "run")
    text = run.table(
        {
            "benchmarks": {
                "fast": {"bars": [{"case": "a", "bar": ">= 1", "measured": "1.2", "met": True}]},
                "slow": {"bars": [{"case": "b", "bar": ">= 1", "measured": "0.9", "met": False}]},
                "broken": {"failed": 1, "last_line": "Traceback"},
            }
        }
    )
    lines = text.splitlines()
    assert lines[1].split() == ["fast", "a", ">=", "1", "1.2", "met"]
    assert lines[2].endswith("NOT met")
    assert lines[3].endswith("FAILED")


def test_the_search_beats_random_sampling_and_a_genetic_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a made-up machine that the model does not know beforehand."""
    (quality,) = load(monkeypatch, "search_quality")
    task = at.SearchTask("matmul_add", (256, 256, 256), target="llvm -mcpu=znver4 -num-cores=2")
    found = quality.curves(task, trials=48, seeds=4)
    for other in ("random", "genetic"):
        assert found["search"][-1] > found[other][-1] + 0.02
    assert quality.plot(found, "title").count("<polyline") == 3


def test_the_benchmark_of_the_records_hides_no_package() -> None:
    """A program's folder comes first, and there is a `records.py` in that of the benchmarks."""
    code = "import records.sql.schema; from records import Store; print(records.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == BENCHMARKS.parent / "records" / "__init__.py"


@pytest.mark.parametrize(
    "wrong", [("--pairs", "0"), ("--trials", "1"), ("--seconds", "-1"), ("--seconds", "nan")]
)
def test_a_load_of_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: tuple[str, str]
) -> None:
    (module,) = load(monkeypatch, "service")
    monkeypatch.setattr(sys, "argv", ["service.py", *wrong])
    with pytest.raises(SystemExit, match="2"):
        module.main()
    assert f"argument {wrong[0]}: expected" in capsys.readouterr().err

"""Who may join: certificates, addresses, and a network that is cut."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster_doubles import candidates, vector_add
from cluster_processes import AUTOSCHED, QUICK, Cluster, wait_ready
from cryptography.hazmat.primitives.asymmetric import ec

from autosched.errors import MeasureError
from measure.cluster import certs as certs_module
from measure.cluster.certs import make_certs
from measure.cluster.pool import ClusterPool
from measure.cluster.settings import check_address, security
from measure.status import MeasureResult, Status

FUNC = vector_add()


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls") / "certs"
    make_certs(folder)
    return folder


def test_cluster_keys_are_private_and_nothing_is_overwritten(certs: Path) -> None:
    names = {p.name for p in certs.iterdir()}
    roles = ("ca", "scheduler", "worker", "client")
    assert names == {f"{r}{end}" for r in roles for end in (".pem", "-key.pem")}
    for role in roles:
        assert stat.S_IMODE((certs / f"{role}-key.pem").stat().st_mode) == 0o600
    before = {p.name: p.read_bytes() for p in certs.iterdir()}
    done = subprocess.run(
        [*AUTOSCHED, "cluster", "certs", str(certs)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "would be overwritten" in done.stderr
    assert before == {p.name: p.read_bytes() for p in certs.iterdir()}


def test_cluster_certificates_need_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MeasureError, match=r"cannot make the folder \S+file/certs .*another one"):
        make_certs(tmp_path / "file" / "certs")


@pytest.mark.parametrize("left", [0, 3, 7])
def test_cluster_certificates_are_all_made_or_none(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is full after some files: a part of them would be taken for all."""
    rooms = iter([True] * left + [False])

    def write(path: Path, data: bytes, mode: int) -> None:
        if not next(rooms):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        path.write_bytes(data)

    monkeypatch.setattr(certs_module, "_write", write)
    with pytest.raises(MeasureError, match=rf"cannot write {tmp_path}/\S+\.pem: No space left"):
        make_certs(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    make_certs(tmp_path)


def test_cluster_keys_that_others_may_read_are_refused(certs: Path, tmp_path: Path) -> None:
    for name in ("ca.pem", "client.pem", "client-key.pem"):
        (tmp_path / name).write_bytes((certs / name).read_bytes())
    (tmp_path / "client-key.pem").chmod(0o644)
    with pytest.raises(MeasureError, match=r"others may read the private key .*; run: chmod 600"):
        security(tmp_path, "client")
    with pytest.raises(MeasureError, match=r"a worker needs ca.pem, worker.pem, worker-key.pem"):
        security(tmp_path, "worker")


def test_cluster_certificates_that_nobody_would_take_are_refused(
    certs: Path, tmp_path: Path
) -> None:
    """Before anything is connected to: what the other side says of them is that they do not
    match."""
    make_certs(tmp_path / "old", days=0)
    with pytest.raises(MeasureError, match=r"scheduler.pem expired on .*; make new certificates"):
        security(tmp_path / "old", "scheduler")
    done = subprocess.run(
        [*AUTOSCHED, "worker", "--scheduler", "tls://127.0.0.1:9", "--label", "l"]
        + ["--tls-dir", str(tmp_path / "old")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "worker.pem expired on" in done.stderr
    mixed = tmp_path / "mixed"
    make_certs(mixed)
    (tmp_path / "mine.pem").write_bytes((mixed / "ca.pem").read_bytes())
    (mixed / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    with pytest.raises(MeasureError, match=r"client.pem is not of the authority .*ca.pem; take"):
        security(mixed, "client")
    both = (mixed / "ca.pem").read_bytes() + (tmp_path / "mine.pem").read_bytes()
    (mixed / "ca.pem").write_bytes(both)
    assert security(mixed, "client") is not None
    (mixed / "worker.pem").write_bytes(b"torn")
    with pytest.raises(MeasureError, match=r"worker.pem is no certificate"):
        security(mixed, "worker")
    assert security(certs, "client") is not None


def test_cluster_certificates_may_be_a_chain_and_of_several_authorities(tmp_path: Path) -> None:
    def made(name: str, issuer: certs_module.Issuer | None, days: int = 1) -> Any:
        key = ec.generate_private_key(ec.SECP256R1())
        return certs_module._certificate(name, key, issuer, days, ()), key

    def file(name: str, *issued: Any) -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join(certs_module._pem(certificate) for certificate, _ in issued))
        return path

    root, other = made("root", None), made("other", None)
    between = made("between", root)
    leaf = made("leaf", between)
    check = certs_module.check_certificate
    check(file("chain.pem", leaf, between), file("ca.pem", other, root))
    file("leaf.pem", leaf)
    for issued, authority in ("leaf.pem", "ca.pem"), ("chain.pem", "other.pem"):
        file("other.pem", other)
        with pytest.raises(MeasureError, match=f"{issued} is not of the authority .*{authority}"):
            check(tmp_path / issued, tmp_path / authority)
    expired = made("between", root, 0)
    file("late.pem", made("leaf", expired), expired)
    with pytest.raises(MeasureError, match=r"late.pem expired on"):
        check(tmp_path / "late.pem", tmp_path / "ca.pem")
    with pytest.raises(MeasureError, match=r"empty.pem is no certificate"):
        check(file("empty.pem"), tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("address", "tls", "text"),
    [
        ("tcp://10.0.0.1:8786", False, "neither encrypted nor authenticated"),
        ("tcp://example.org", False, "neither encrypted nor authenticated"),
        ("tls://10.0.0.1", False, "needs the folder of certificates"),
        ("tcp://127.0.0.1", True, "certificates are given; use tls://"),
        ("http://127.0.0.1", False, "expected an address such as tls://"),
        ("10.0.0.1:8786", False, "expected an address such as tls://"),
        ("tls://h:99999", True, "is no port"),
    ],
)
def test_cluster_addresses_that_are_refused(address: str, tls: bool, text: str) -> None:
    with pytest.raises(MeasureError, match=text):
        check_address(address, Path("certs") if tls else None)


def test_cluster_addresses_get_their_port() -> None:
    assert check_address("tcp://localhost", None) == "tcp://localhost:8786"
    assert check_address("tcp://[::1]:5", None) == "tcp://[::1]:5"
    assert check_address("tls://10.1.2.3", Path("certs")) == "tls://10.1.2.3:8786"


def test_cluster_scheduler_for_others_needs_certificates() -> None:
    done = subprocess.run(
        [*AUTOSCHED, "scheduler", "--host", "0.0.0.0", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "needs certificates" in done.stderr


@pytest.mark.long
def test_cluster_foreign_certificates_are_refused(certs: Path, tmp_path: Path) -> None:
    """A client, and a worker, of another authority; and a client that plays a worker."""
    foreign = tmp_path / "foreign"
    make_certs(foreign)
    with Cluster(tls_dir=certs) as cluster:
        cluster.work("safe", "quick_engine")
        with pytest.raises(MeasureError, match="cannot reach a scheduler"):
            ClusterPool(cluster.address, "safe", foreign)
        cluster.tls = ("--tls-dir", str(foreign))
        stranger = cluster.work("strange", "quick_engine", wait=False)
        stranger.wait_for("cannot reach")
        with cluster.pool("safe") as pool:
            job = pool.open_job(FUNC)
            assert {r.status for r in pool.measure(job, candidates(FUNC, 8))} == {Status.OK}
            assert {d.label for d in pool.devices()} == {"safe"}


class Cable:
    """Carries connections to a port of this machine, until it is cut: then nothing arrives any
    more, and nobody is told. A context manager."""

    def __init__(self, port: int) -> None:
        self.port_there = port
        self.whole = threading.Event()
        self.whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Cable:
        return self

    def __exit__(self, *_: object) -> None:
        self.whole.set()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._sockets:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port_there))
                self._sockets += [near, far]
                for a, b in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._carry, args=(a, b)))
                    self._threads[-1].start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.whole.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.mark.long
def test_cluster_network_that_is_cut(certs: Path) -> None:
    """One worker cannot be reached from the middle of a call on; another measures the rest, and
    both when the cable is whole again."""
    with (
        Cluster(tls_dir=certs) as cluster,
        Cable(int(cluster.address.rpartition(":")[2])) as cable,
    ):
        cluster.work("cut", "paced_engine", name="near")
        direct, cluster.address = cluster.address, f"tls://127.0.0.1:{cable.port}"
        cluster.work("cut", "paced_engine", name="far")
        cluster.address = direct
        with cluster.pool("cut") as pool:
            job = pool.open_job(FUNC)
            wait_ready(pool, 2)
            told: list[int] = []
            cut: list[int] = []

            def on_results(found: Sequence[tuple[int, MeasureResult]]) -> None:
                told.extend(place for place, _ in found)
                if len(told) >= 10 and not cut:
                    cut.append(len(told))
                    cable.whole.clear()

            results = pool.measure(job, candidates(FUNC, 60), None, on_results)
            assert {r.status for r in results} == {Status.OK}
            assert sorted(told) == list(range(60))
            assert pool.counters["repeats"] <= QUICK.batch_items
            cable.whole.set()
            wait_ready(pool, 2)
            results = pool.measure(job, candidates(FUNC, 20))
            assert {r.status for r in results} == {Status.OK}

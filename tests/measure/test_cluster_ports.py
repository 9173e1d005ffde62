"""Ports: what a cluster's processes listen on, by the kernel's own table."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from cluster_processes import AUTOSCHED, Cluster, Process

from autosched.errors import MeasureError
from measure.cluster.certs import make_certs
from measure.cluster.settings import listening_host

LISTEN = "0A"


def listening(pid: int) -> set[tuple[str, int]]:
    """Address and port of every TCP socket that a process, or one below it, listens on."""
    inodes = {inode for process in tree(pid) for inode in sockets_of(process)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTEN and words[9] in inodes:
                address, port = words[1].split(":")
                found.add((address_of(address), int(port, 16)))
    return found


def tree(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    return [pid, *(p for child in children for p in tree(child))]


def sockets_of(pid: int) -> set[str]:
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as is the one of listdir
            if m := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}")):
                found.add(m[1])
    return found


def address_of(text: str) -> str:
    """The kernel writes words of four bytes in the machine's order."""
    words = [int(text[n : n + 8], 16).to_bytes(4, "little") for n in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def test_cluster_without_tls_listens_on_the_loopback_only() -> None:
    """Scheduler, worker and their ports for HTTP: Dask runs whatever is sent to one of them."""
    with Cluster() as cluster:
        worker = cluster.work("ports", "quick_engine")
        for process in (cluster.scheduler, worker):
            found = listening(process.popen.pid)
            assert found
            assert {address for address, _ in found} <= {"127.0.0.1", "::1"}, found


def test_cluster_table_of_sockets_is_read_right() -> None:
    with socket.create_server(("0.0.0.0", 0)) as open_to_all:
        assert ("0.0.0.0", open_to_all.getsockname()[1]) in listening(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as here:
        assert ("127.0.0.1", here.getsockname()[1]) in listening(os.getpid())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_cluster_worker_without_tls_takes_no_other_address(host: str) -> None:
    with pytest.raises(MeasureError, match="asks nobody for a certificate; found --host"):
        listening_host("tcp://127.0.0.1:8786", host)
    done = subprocess.run(
        [*AUTOSCHED, "worker", "--scheduler", "tcp://127.0.0.1:9", "--label", "l", "--host", host],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"found --host {host}" in done.stderr


def test_cluster_worker_listens_where_its_scheduler_is() -> None:
    assert listening_host("tcp://127.0.0.1:8786", None) == "127.0.0.1"
    assert listening_host("tcp://localhost:8786", None) == "127.0.0.1"
    assert listening_host("tcp://[::1]:8786", None) == "::1"
    assert listening_host("tcp://127.0.0.1:8786", "localhost") == "127.0.0.1"
    assert listening_host("tls://10.0.0.1:8786", None) is None
    assert listening_host("tls://10.0.0.1:8786", "10.0.0.2") == "10.0.0.2"


def test_cluster_on_one_machine_with_tls_in_one_command(tmp_path: Path) -> None:
    """It makes its certificates, listens on the loopback, and turns away who has none."""
    folder = tmp_path / "state" / "tls"
    command = ("cluster", "local", "--port", "0", "--tls-dir", str(folder))
    with Process(*command) as local:
        local.wait_for("connected")
        address = local.wait_for("scheduler at").split()[-1]
        assert f'--pool "{address}?tls-dir={folder}"' in local.wait_for("autosched tune")
        assert {found for found, _ in listening(local.popen.pid)} == {"127.0.0.1"}
        foreign = tmp_path / "foreign"
        make_certs(foreign)
        told = [devices(address, certs).stdout.split(": ")[-1] for certs in (folder, foreign)]
        assert told[0].startswith("ready, label local"), told
        assert not told[1]
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 20) as plain:
            plain.settimeout(20)
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in plain.recv(100)
        assert local.end() == 0
    before = (folder / "ca.pem").read_bytes()
    with Process(*command) as again:
        again.wait_for("connected")
        assert (folder / "ca.pem").read_bytes() == before


def devices(address: str, certs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AUTOSCHED, "cluster", "devices", address, "--tls-dir", str(certs), "--wait", "60"],
        capture_output=True,
        text=True,
        timeout=120,
    )

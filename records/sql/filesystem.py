"""Telling network file systems apart, on which SQLite loses data.

A write-ahead log needs memory that all processes of one machine share, and file locks that hold;
NFS, SMB and their kin have neither across machines.
"""

from __future__ import annotations

import os
from pathlib import Path

from records.errors import RecordError

NETWORK = frozenset(
    {"9p", "acfs", "afs", "afpfs", "beegfs", "ceph", "cifs", "coda", "cvmfs", "gfs", "gfs2"}
    | {"glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs"}
    | {"pvfs2", "smb3", "smbfs", "vboxsf", "webdav"}
)
"""File systems whose files other machines may have open; those of FUSE go by parts of names."""
_FUSE = ("ceph", "davfs", "gcsfuse", "gluster", "goofys", "juicefs", "mfs", "rclone", "s3fs", "ssh")

MOUNTS = Path("/proc/self/mountinfo")


def refuse_network(database: Path) -> None:
    """Raises RecordError if an SQLite file would lie on a network file system."""
    kind = kind_of(database)
    if kind is not None and is_network(kind):
        raise RecordError(
            f"{database} is on a network file system ({kind}), where SQLite can lose data when "
            "several machines write; name a file on a local disk, or use a server: "
            "postgresql://USER@HOST/NAME"
        )


def is_network(kind: str) -> bool:
    """Whether a file system of that type is reached over a network."""
    if kind.startswith("fuse."):
        return any(name in kind for name in _FUSE)
    return kind in NETWORK


def kind_of(path: Path) -> str | None:
    """The type of the file system that `path` is on; None where the system does not tell."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None  # not Linux
    real = os.path.realpath(path)
    found: tuple[str, str | None] = ("", None)
    for line in lines:
        # ID PARENT DEVICE ROOT POINT OPTIONS [FIELDS]... - TYPE SOURCE OPTIONS
        head, _, tail = line.partition(" - ")
        point = _unescaped(head.split(" ")[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):  # a later mount hides an earlier one
            found = (point, tail.split(" ")[0])
    return found[1]


def _unescaped(point: str) -> str:
    for code in ("040", "011", "012", "134"):
        point = point.replace(f"\\{code}", chr(int(code, 8)))
    return point

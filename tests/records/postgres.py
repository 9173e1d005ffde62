"""A private PostgreSQL cluster, made with the machine's own server programs, for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_USERS = ("postgres", "nobody")
_OPTIONS = {"listen_addresses": "", "max_connections": "60"}
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""What is lost with the machine is of no use to a test."""


@cache
def programs() -> Path | None:
    """The folder of initdb and postgres, of the newest version there is; None without."""
    found = shutil.which("initdb")
    if found is not None and (Path(found).parent / "postgres").exists():
        return Path(found).parent
    folders = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda f: float(f.parent.name), default=None)


@cache
def missing() -> str | None:
    """Why there can be no cluster here; None if there can."""
    if programs() is None:
        return "no PostgreSQL server programs (initdb, postgres) on this machine"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no PostgreSQL driver: pip install 'psycopg[binary]'"
    if os.geteuid() == 0 and (_user() is None or shutil.which("setpriv") is None):
        return "PostgreSQL does not run as root, and there is no user and setpriv to run it as"
    return None


def _user() -> pwd.struct_passwd | None:
    known = {u.pw_name: u for u in pwd.getpwall()}
    return next((known[name] for name in _USERS if name in known), None)


class Cluster:
    """A server on a socket in a folder of its own; `database()` makes an empty database.

    With `durable` it writes to disk as it would in use. A `folder` of its own stays when it stops,
    and is taken as it is when it is there.
    """

    def __init__(self, *, durable: bool = False, folder: Path | None = None) -> None:
        programs_at = programs()
        assert programs_at is not None
        self._stays = folder is not None
        # What stays may be large: it is written to disk when the server stops, or when it starts.
        self._patience = 600 if self._stays else 60
        is_new = folder is None or not folder.exists()
        if folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        else:
            self._folder = folder.absolute()
            self._folder.mkdir(mode=0o700, exist_ok=True)
        self._become: list[str] = []
        user = _user() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
            self._become.append("--clear-groups")
        self.user = "tests"
        data = self._folder / "data"
        if is_new:
            self._run([programs_at / "initdb", "-D", data, "-U", self.user, "-A", "trust",
                       "--no-sync", "-E", "UTF8", "--locale=C"])  # fmt: skip
        settings = _OPTIONS if durable else _OPTIONS | _FAST
        options = [x for k, v in settings.items() for x in ("-c", f"{k}={v}")]
        # The server ends with the tests, however they end.
        dies = ["setpriv", "--pdeathsig=INT"] if shutil.which("setpriv") else []
        command = [*dies, *self._become[1:]] if dies else self._become
        with open(self._folder / "log", "wb") as log:
            self._server = subprocess.Popen(
                [*command, programs_at / "postgres", "-D", data, "-k", self._folder, *options],
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self._folder,
            )
        self._made = 0
        self._emptied: list[str] = []
        self._wait()

    @property
    def pid(self) -> int:
        """The number of the server's first process."""
        return self._server.pid

    def _run(self, command: Sequence[str | Path]) -> None:
        done = subprocess.run(
            [*self._become, *command], capture_output=True, text=True, check=False,
            timeout=250, cwd=self._folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def _wait(self) -> None:
        import psycopg

        end = time.monotonic() + self._patience
        while True:
            try:
                psycopg.connect(host=str(self._folder), user=self.user, dbname="postgres").close()
                return
            except psycopg.OperationalError:
                log = (self._folder / "log").read_text()
                assert self._server.poll() is None, log
                assert time.monotonic() < end, log
                time.sleep(0.05)

    def database(self, name: str | None = None) -> str:
        """The URL of a new, empty database; of that `name`, if there is one, as it is."""
        import psycopg

        self._made += 1
        named, name = name, name or f"t{self._made}"
        with psycopg.connect(
            host=str(self._folder), user=self.user, dbname="postgres", autocommit=True
        ) as connection:
            try:
                connection.execute(f"CREATE DATABASE {name}")
            except psycopg.errors.DuplicateDatabase:
                if named is None:
                    raise
        return f"postgresql://{self.user}@/{name}?host={self._folder}"

    @contextmanager
    def lent(self) -> Iterator[str]:
        """The URL of a database of no rows, with or without the tables of a store. The next who
        asks has it: to make database and tables takes five times as long as to empty them."""
        url = self._emptied.pop() if self._emptied else self.database()
        yield url
        if self._empty(url):
            self._emptied.append(url)

    def _empty(self, url: str) -> bool:
        """Whether all rows could be removed; not where a test has left a table locked."""
        import psycopg

        named = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
        with psycopg.connect(url, autocommit=True) as connection:
            tables = {name for (name,) in connection.execute(named)} - {"alembic_version"}
            connection.execute("SET lock_timeout = '2s'")
            try:
                connection.execute(f"TRUNCATE {', '.join(sorted(tables))} RESTART IDENTITY")
            except psycopg.Error:
                return False
        return True

    def stop(self) -> None:
        """End the server, and remove its folder unless that was given."""
        self._server.send_signal(2)  # SIGINT: fast shutdown
        self._server.wait(self._patience)
        if not self._stays:
            shutil.rmtree(self._folder)

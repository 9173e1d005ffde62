"""`autosched serve`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shlex
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from autosched.cli.common import filled
from autosched.cli.status import FAILED

if TYPE_CHECKING:
    from server.settings import Settings

_EPILOG = """\
examples:
  autosched serve                                      # SQLite and this machine, on loopback
  autosched serve --db postgresql://user@host/name --port 8080
  autosched token create --name ann --scope admin && autosched serve --host 0.0.0.0

On loopback no token is asked for. On any other address every request needs one, and the server
does not start before one was made. Tokens cross the wire as they are: give a certificate, or put a
proxy that speaks TLS in front.

Every setting can stand in a TOML file (--settings FILE or AUTOSCHED_SETTINGS), in the environment
(AUTOSCHED_ and its name in capitals), or, the most important ones, be given as options; later ones
of these go before earlier ones.

settings:
"""
_SWITCH_SECONDS = 1e-3
"""How long a thread keeps the interpreter while others wait for it, as one does after each answer
of the database: with Python's 5 ms storing a submission, 3 ms of work, took 27."""
_FLAGS = ("db", "pool", "host", "port", "jobs_at_once", "log_level")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; the help's end lists all settings."""
    from server.settings import Settings

    fields = Settings.model_fields
    for name in _FLAGS:
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar={"db": "URL", "pool": "POOL", "host": "ADDRESS"}.get(name, name.upper()),
            help=f"{fields[name].description} (default: {fields[name].default})",
        )
    parser.add_argument("--settings", type=filled, metavar="FILE", help="a TOML file with settings")
    width = max(map(len, fields))
    parser.epilog = _EPILOG + "\n".join(
        f"  {name:<{width}}  {field.description} ({_default(field.default)})"
        for name, field in fields.items()
    )


def _default(value: Any) -> str:
    if value is None or value == () or value == {}:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, which are the same: an end in order, and status 0."""
    from server import settings
    from server.http import logs

    flags = {name: getattr(options, name) for name in _FLAGS}
    found = settings.load(flags, os.environ, options.settings)
    _check_database(found, make=False)
    with _listen(found) as listening:
        _check_database(found, make=True)  # not before there is something to serve it on
        logs.configure(found.log_level)
        return _serve(found, listening)


def _check_database(settings: Settings, *, make: bool) -> None:
    """Raises SchemaVersionError, RecordError, or SettingsError where tokens are needed and there
    is none. Without `make` a file that is not there is left so."""
    from records.arguments import file_of
    from records.operations.tokens import Tokens
    from records.store import Store

    file = file_of(settings.db)
    if not make and file is not None and not file.exists():
        if settings.tokens_required:
            raise _no_token(settings, settings.db)
        return
    with Store(settings.db) as store:
        if settings.tokens_required and not Tokens(store).any_valid():
            raise _no_token(settings, store.name)


def _no_token(settings: Settings, db: str) -> Exception:
    from server.settings import SettingsError

    return SettingsError(
        f"on {settings.host} every request needs a token, and there is none that is valid; "
        f"make one: `autosched token create --name NAME --scope admin --db {shlex.quote(db)}`"
    )


def _listen(settings: Settings) -> socket.socket:
    """The socket, so that an address that is taken is told before anything starts."""
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, settings.port), family=family, backlog=512)
    except OSError as e:
        raise OSError(f"cannot listen on {host}:{settings.port}: {e.strerror or e}") from e


def _serve(settings: Settings, listening: socket.socket) -> int:
    from server.app import create_app
    from server.http.connections import config
    from server.http.serving import Server

    scheme = "https" if settings.tls_certificate else "http"
    host, port = listening.getsockname()[:2]
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    class Telling(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                # What is there now stays: looking through it for garbage would hold up everybody
                # for a tenth of a second, again and again.
                gc.collect()
                gc.freeze()
                sys.setswitchinterval(_SWITCH_SECONDS)
                print(f"autosched serves {url}/ (pages), {url}/v1/openapi.json (API)", flush=True)

    server = Telling(config(create_app(settings), settings))
    # Either is how a server ends; uvicorn raises the signal again when all is done.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        server.run([listening])
    return 0 if server.started else FAILED

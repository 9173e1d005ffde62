"""What commands that ask a service share: --server, --token-file, and the client of these."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.cli.common import DEFAULT_DB, filled
from autosched.cli.text import plain
from autosched.errors import AutoschedError
from records import RecordSource, open_records

if TYPE_CHECKING:
    from server.client import Client
    from server.client.remote_records import RemoteRecords

SERVER, TOKEN = "AUTOSCHED_SERVER", "AUTOSCHED_TOKEN"
DEFAULT_SERVER = "http://127.0.0.1:8000"


def add_server(parser: argparse.ArgumentParser) -> None:
    """--server and --token-file of a command that always asks a service."""
    parser.add_argument(
        "--server", type=filled, metavar="URL",
        help=f"address of the service (default: ${SERVER}, or {DEFAULT_SERVER})",
    )  # fmt: skip
    _add_token(parser)


def add_source(
    parser: argparse.ArgumentParser, verb: str = "holds the records", *, logs: bool = True
) -> None:
    """--db or --server of a command that reads either; `logs`: --db may be a log, too."""
    forms = "an SQLite file, a JSON-lines log (.json, .jsonl), or" if logs else "an SQLite file or"
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--db",
        type=filled,
        default=DEFAULT_DB,
        metavar="URL",
        help=f"what {verb}: {forms} a database URL (default: %(default)s)",
    )
    where.add_argument(
        "--server",
        type=filled,
        metavar="URL",
        help=f"the service that {verb}, such as {DEFAULT_SERVER}",
    )
    _add_token(parser)


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        type=filled,
        metavar="FILE",
        help=f"file with the service's token (default: ${TOKEN})",
    )


def client_of(options: argparse.Namespace) -> Client:
    """The client of the service that the options name. Raises AutoschedError for a token's file
    that is empty, no text, or cannot be read."""
    from server.client import Client

    def say(why: str) -> None:
        print(f"autosched {options.command}: {plain(why)}", file=sys.stderr, flush=True)

    url = options.server or os.environ.get(SERVER) or DEFAULT_SERVER
    return Client(url, _token(options.token_file), on_wait=say)


def open_source(options: argparse.Namespace) -> RecordSource:
    """The records that --db or --server names, opened. Raises ServiceUnreachable at once for a
    service that does not answer."""
    if options.server is None:
        return open_records(options.db)
    return _records_of(client_of(options))


def open_service(url: str) -> RemoteRecords:
    """The records of the service at `url`, with the token of the environment. Raises
    ServiceUnreachable at once for one that does not answer."""
    from server.client import Client

    return _records_of(Client(url, os.environ.get(TOKEN) or None))


def _records_of(client: Client) -> RemoteRecords:
    """The records of a service that answers; of one that does not, the client is closed."""
    from server.client.answers import ServiceError
    from server.client.remote_records import RemoteRecords

    try:
        client.probe()
    except ServiceError:
        client.close()
        raise
    return RemoteRecords(client)


def _token(file: str | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN) or None
    expected = "expected a file with one token, as `autosched token create` prints it"
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except OSError as e:
        raise AutoschedError(f"--token-file {file} cannot be read: {e.strerror}; {expected}") from e
    except UnicodeDecodeError as e:
        raise AutoschedError(f"--token-file {file} is no text; {expected}") from e
    if not token:
        raise AutoschedError(f"--token-file {file} is empty; {expected}")
    return token

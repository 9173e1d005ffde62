"""`autosched db`."""

from __future__ import annotations

import argparse

from autosched.cli.common import DEFAULT_DB, filled
from autosched.cli.status import FAILED

_EPILOG = """\
examples:
  autosched db check --db autosched.db
  autosched db upgrade --db postgresql://user@host/name

A database made by an older autosched is refused until it is upgraded. Stop everything that uses it
first. An upgrade is one transaction: it is done in full or not at all.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="say which version a database has; 0 if it fits")
    upgrade = actions.add_parser("upgrade", help="bring a database to this version, or make it")
    for action in (check, upgrade):
        action.add_argument(
            "--db",
            type=filled,
            default=DEFAULT_DB,
            metavar="URL",
            help="an SQLite file or a database URL (default: %(default)s)",
        )


def run(options: argparse.Namespace) -> int:
    """Do it and say what was found."""
    from records.arguments import file_of
    from records.sql.database import Database, address
    from records.sql.schema import REVISION

    url = address(options.db)
    file = file_of(options.db)
    if options.action == "check" and file is not None and not file.exists():
        print(f"{options.db}: there is no such file; the first use makes it")
        return FAILED
    database = Database(url, any_version=True, make=options.action == "upgrade")
    try:
        if options.action == "upgrade":
            before = database.upgrade()
            if before == REVISION:
                print(f"{database.name}: schema version {REVISION}, nothing to do")
            else:
                print(f"{database.name}: schema version {before or 'none'} -> {REVISION}")
            return 0
        found = database.version()
        print(f"{database.name}: schema version {found or 'none'}, this autosched uses {REVISION}")
        return 0 if found == REVISION else FAILED
    finally:
        database.close()

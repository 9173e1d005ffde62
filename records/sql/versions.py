"""Which revision of the schema a database has, and bringing it to this package's.

Alembic is imported only to migrate: opening a store that is up to date reads one row.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from records.errors import RecordError, SchemaVersionError
from records.sql.schema import REVISION, Base

_TABLE = "alembic_version"
FIRST = "0001"
"""The revision of databases from before Alembic, whose version stands in the table `meta`."""


def found(connection: Connection, name: str) -> str | None:
    """The revision of a database, None if it has no tables.

    Raises RecordError for a database of something else.
    """
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if _TABLE in tables and "records" in tables:
        rows = connection.execute(text(f"SELECT version_num FROM {_TABLE}")).scalars().all()
        return ", ".join(sorted(rows)) or "none"
    if "meta" in tables and "records" in tables:
        query = text("SELECT value FROM meta WHERE name = 'schema_version'")
        number = connection.execute(query).scalar()
        return FIRST if number == "1" else f"{number} of the table meta"
    raise RecordError(f"{name} holds other tables ({', '.join(tables[:4])}) and no records")


def check(revision: str | None, name: str) -> bool:
    """Whether a database can be used as it is; False for one without tables.

    Raises SchemaVersionError, naming the command to run, for another revision.
    """
    if revision is None:
        return False
    if revision == REVISION:
        return True
    if revision < REVISION:
        command = f"autosched db upgrade --db {shlex.quote(name)}"
        advice = f"stop what uses it and run `{command}`"
    else:
        advice = "install a newer autosched"
    raise SchemaVersionError(
        f"{name} has schema version {revision}, this version of autosched uses {REVISION}: {advice}"
    )


def upgrade(connection: Connection, before: str | None, name: str) -> None:
    """Bring the database from revision `before` to REVISION, in the transaction at hand."""
    if before is None:
        Base.metadata.create_all(connection, checkfirst=False)
        _run(connection, "stamp")
    elif before < REVISION:
        if before == FIRST:
            _run(connection, "stamp", FIRST)
        _run(connection, "upgrade")
    else:
        check(before, name)


def _run(connection: Connection, command: str, revision: str = REVISION) -> None:
    """Run a command of Alembic on a connection."""
    from alembic import command as commands
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    getattr(commands, command)(config, revision)

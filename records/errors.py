"""Every exception that `records` raises on purpose.

RecordError            a record, store or log that cannot be used
├── NoRecord           nothing in the store or log answers the question; the message says why
├── KeyReused          a submission's key was used before for another request
├── QueueFull          as many jobs wait as may
├── QuotaExceeded      a token has spent what it may
├── LeaseLost          somebody else has the job, or nobody has: what was to be written is not
├── SchemaVersionError a database of another schema version; the message names the command to run
├── StoreDamaged       the file of a database is damaged, or is none
└── StoreUnavailable   the database is locked, full or out of reach; the same call may work later
"""

from __future__ import annotations


class RecordError(Exception):
    """Root of all errors raised by records."""


class NoRecord(RecordError):
    """Nothing in the store or log answers the question."""


class KeyReused(RecordError):
    """What was to be submitted bears the key of another request."""


class QueueFull(RecordError):
    """No other job may wait now."""


class QuotaExceeded(RecordError):
    """A token has as many jobs, trials or device seconds as it may."""


class LeaseLost(RecordError):
    """The lease under which something was to be written is not the job's any more."""


class SchemaVersionError(RecordError):
    """A database whose schema is of another version than this package."""


class StoreDamaged(RecordError):
    """The file of a database cannot be read as one, now or later."""


class StoreUnavailable(RecordError):
    """The database cannot be reached or is busy; nothing was written."""

"""`autosched token`."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from autosched.cli.common import DEFAULT_DB, at_least, filled, positive_seconds

if TYPE_CHECKING:
    from records.operations.tokens import Token, Tokens
    from records.queue.submissions import Quota

_EPILOG = """\
scopes, each of which contains those before it:
  read     look at jobs, records and pages
  submit   also submit, cancel and resume jobs of one's own
  admin    also change jobs of others, and import records

examples:
  autosched token create --name ann --scope submit --expires 90d
  autosched token create --name bob --scope submit --max-jobs 4 --max-device-seconds 86400
  autosched token limit 0123456789ab --max-trials 100000
  autosched token rotate 0123456789ab --grace 1h
  autosched token list
  autosched token revoke 0123456789ab

A token is shown once, when it is made or rotated; the database keeps only a hash of it. Clients
send it as `Authorization: Bearer TOKEN`; `autosched jobs` reads it from AUTOSCHED_TOKEN. A server
notices within five seconds that one was revoked.
"""
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a token and print it, once")
    create.add_argument("--name", required=True, help="whose it is; jobs are shown under it")
    create.add_argument(
        "--scope", default="read", choices=("read", "submit", "admin"), help="default: read"
    )
    create.add_argument(
        "--expires",
        type=_duration,
        default="30d",
        metavar="TIME",
        help="such as 12h, 30d, 8w, or never (default: 30d)",
    )
    limit = actions.add_parser("limit", help="give a token other quotas; those left out are lifted")
    limit.add_argument("id", type=filled, metavar="ID", help="as `autosched token list` shows it")
    for action in (create, limit):
        action.add_argument(
            "--max-jobs", type=at_least(0), metavar="N", help="jobs that wait or run at a time"
        )
        action.add_argument(
            "--max-trials", type=at_least(0), metavar="N", help="trials of all its jobs"
        )
        action.add_argument(
            "--max-device-seconds", type=positive_seconds, metavar="S",
            help="seconds for which all its jobs are worked on",
        )  # fmt: skip
    rotate = actions.add_parser("rotate", help="give a token another secret and print it, once")
    rotate.add_argument("id", type=filled, metavar="ID", help="as `autosched token list` shows it")
    rotate.add_argument(
        "--grace",
        type=_grace,
        default="1h",
        metavar="TIME",
        help="for so long the old secret is taken as well, such as 10m, 2d, or 0 (default: 1h)",
    )
    listing = actions.add_parser("list", help="show all tokens, without their secrets")
    revoke = actions.add_parser("revoke", help="make a token invalid")
    revoke.add_argument("id", type=filled, metavar="ID", help="as `autosched token list` shows it")
    for action in (create, limit, rotate, listing, revoke):
        action.add_argument(
            "--db",
            type=filled,
            default=DEFAULT_DB,
            metavar="URL",
            help="the service's database: an SQLite file or a URL (default: %(default)s)",
        )
        action.add_argument("--json", action="store_true", help="print for programs")


def _duration(text: str) -> float | None:
    """Seconds; None for `never`."""
    if text == "never":
        return None
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdigit()) or not int(number):
        raise argparse.ArgumentTypeError(
            f"expected a time such as 12h, 30d or never, found {text!r}"
        )
    return float(int(number) * _UNITS[unit])


def _grace(text: str) -> float:
    """Seconds, 0 among them."""
    seconds = 0.0 if text == "0" else _duration(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 1h, 2d or 0, found {text!r}")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Do it and say what was done."""
    from records.opening import open_store
    from records.operations.tokens import Tokens

    with open_store(options.db, make=options.action == "create") as store:
        tokens = Tokens(store)
        if options.action == "create":
            quota = _quota(options)
            text, token = tokens.create(options.name, options.scope, options.expires, quota)
            shown = text if not options.json else json.dumps(_values(token) | {"token": text})
        elif options.action == "rotate":
            text, token = tokens.rotate(options.id, options.grace)
            shown = text if not options.json else json.dumps(_values(token) | {"token": text})
        elif options.action == "limit":
            token = tokens.limit(options.id, _quota(options))
            shown = json.dumps(_values(token)) if options.json else _table(tokens, [token])
        elif options.action == "revoke":
            token = tokens.revoke(options.id)
            shown = json.dumps(_values(token)) if options.json else f"{token.id} is revoked"
        elif options.json:
            shown = json.dumps([_values(token) for token in tokens.all()])
        else:
            shown = _table(tokens, tokens.all())
    print(shown)
    return 0


def _quota(options: argparse.Namespace) -> Quota:
    from records.queue.submissions import Quota

    return Quota(options.max_jobs, options.max_trials, options.max_device_seconds)


def _values(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope,
        "state": _state(token),
        "created_at": token.created_at.isoformat(),
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "revoked_at": token.revoked_at.isoformat() if token.revoked_at else None,
        "previous_until": token.previous_until.isoformat() if token.previous_until else None,
        "quota": token.quota._asdict(),
    }


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.valid else "expired"


def _table(store: Tokens, tokens: list[Token]) -> str:
    if not tokens:
        return "no tokens; `autosched token create --name NAME` makes one"
    rows: list[tuple[str, ...]] = [
        ("ID", "NAME", "SCOPE", "STATE", "MADE", "EXPIRES", "JOBS", "TRIALS", "DEVICE S")
    ]
    for t in tokens:
        spent = (
            f"{used:g}" if most is None else f"{used:g}/{most:g}"
            for used, most in zip(store.usage(t.id), t.quota, strict=True)
        )
        rows.append(
            (t.id, t.name, t.scope, _state(t), _day(t.created_at), _day(t.expires_at), *spent)
        )
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join(
        "  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _day(time: datetime | None) -> str:
    return "never" if time is None else time.strftime("%Y-%m-%d %H:%M")

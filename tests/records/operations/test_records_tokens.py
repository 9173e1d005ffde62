"""Tokens in the store: made once, kept as hashes, over when they expire or are revoked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text, update

from autosched.cli.main import main
from records import NoRecord, RecordError, Store
from records.operations.tokens import SCOPES, Token, Tokens
from records.queue.submissions import Quota
from records.sql.schema import TokenRow, database_time


@pytest.fixture(params=["sqlite", "postgresql"])
def tokens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tokens]:
    sqlite = request.param == "sqlite"
    with Store(tmp_path / "x.db" if sqlite else request.getfixturevalue("postgres_url")) as s:
        yield Tokens(s)


def expire(tokens: Tokens, token: Token) -> None:
    """Let a token be over since a second ago."""
    with tokens._db.transaction(writes=True) as connection:
        mine = TokenRow.id == token.id
        connection.execute(update(TokenRow).where(mine).values(expires_at=database_time(-1)))


def test_a_token_is_known_by_its_text(tokens: Tokens) -> None:
    shown, made = tokens.create("ann", "submit", 60)
    other, _ = tokens.create("bob", "read", None)
    assert tokens.check(shown) == made
    found = tokens.check(other)
    assert found is not None
    assert (found.name, found.expires_at) == ("bob", None)
    assert [t.name for t in tokens.all()] == ["ann", "bob"]
    assert 59 < (made.expires_at - made.created_at).total_seconds() < 61  # type: ignore[operator]


def test_secrets_are_not_stored(tokens: Tokens) -> None:
    shown, made = tokens.create("ann", "admin", 60)
    secret = shown.removeprefix(f"as_{made.id}_")
    assert len(secret) == 43
    with tokens._db.transaction(writes=False) as connection:
        row = connection.execute(text("SELECT * FROM tokens")).one()
    assert not any(secret in str(value) for value in row)
    assert secret not in repr(made)


def test_other_texts_are_no_tokens(tokens: Tokens) -> None:
    shown, made = tokens.create("ann", "admin", 60)
    another, _ = tokens.create("ann", "admin", 60)
    wrong = [
        "",
        made.id,
        shown[:-1],
        shown + "x",
        shown[:-1] + ("a" if shown[-1] != "a" else "b"),
        shown.upper(),
        f" {shown}",
        f"as_{made.id}_" + another.rpartition("_")[2][:43],
        f"as_{'0' * 12}_{shown[-43:]}",
        shown.replace("as_", "sa_"),
        f"as_{made.id}_{'é' * 43}",
        "as_' OR 1=1 --_" + "a" * 43,
    ]
    assert [tokens.check(t) for t in wrong if t != shown] == [None] * len(wrong)


def test_what_is_over_is_not_valid(tokens: Tokens) -> None:
    assert not tokens.any_valid()
    first, a = tokens.create("ann", "read", 60)
    second, b = tokens.create("ann", "read", 60)
    assert tokens.any_valid()
    expire(tokens, a)
    assert tokens.check(first) is None
    revoked = tokens.revoke(b.id)
    assert tokens.check(second) is None
    assert tokens.revoke(b.id).revoked_at == revoked.revoked_at
    assert not tokens.any_valid()
    assert [t.valid for t in tokens.all()] == [False, False]


def test_scopes_contain_those_before(tokens: Tokens) -> None:
    for place, scope in enumerate(SCOPES):
        _, token = tokens.create("ann", scope, None)
        assert [token.allows(s) for s in SCOPES] == [n <= place for n in range(len(SCOPES))]


@pytest.mark.parametrize(
    ("name", "scope", "seconds", "message"),
    [
        ("", "read", 1, "1 to 64 letters"),
        ("a" * 65, "read", 1, "1 to 64 letters"),
        ("a\nb", "read", 1, "1 to 64 letters"),
        ("é", "read", 1, "1 to 64 letters"),
        ("a", "root", 1, "expected one of read, submit, admin"),
        ("a", "read", 0, "more than 0"),
        ("a", "read", 1e12, "at most 3650 days"),
        ("a", "read", float("nan"), "more than 0"),
    ],
)
def test_tokens_that_cannot_be(
    tokens: Tokens, name: str, scope: str, seconds: float, message: str
) -> None:
    with pytest.raises(RecordError, match=message):
        tokens.create(name, scope, seconds)
    assert tokens.all() == []


def test_revoking_what_is_not_there(tokens: Tokens) -> None:
    with pytest.raises(NoRecord, match="no token 123; `autosched token list`"):
        tokens.revoke("123")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = str(tmp_path / "x.db")

    def run(*arguments: str) -> str:
        assert main(["token", *arguments, "--db", db]) == 0
        return capsys.readouterr().out.strip()

    Store(db).close()  # a database that nobody made is an error of its own
    assert "no tokens; `autosched token create" in run("list")
    shown = run("create", "--name", "ann", "--scope", "submit", "--expires", "2h")
    never = json.loads(run("create", "--name", "bob", "--expires", "never", "--json"))
    assert (never["scope"], never["expires_at"]) == ("read", None)
    with Store(db) as store:
        found = Tokens(store).check(shown)
        assert found is not None
        assert Tokens(store).check(never["token"]) is not None
        lasts = (found.expires_at or found.created_at) - found.created_at
        assert 7199 < lasts.total_seconds() < 7201
    assert run("revoke", found.id) == f"{found.id} is revoked"
    table = run("list").splitlines()
    assert [line.split()[1:4] for line in table[1:]] == [
        ["ann", "submit", "revoked"],
        ["bob", "read", "valid"],
    ]
    assert "token" not in json.loads(run("list", "--json"))[0]
    assert main(["token", "revoke", "nothing", "--db", db]) == 1
    assert "no token nothing" in capsys.readouterr().err


@pytest.mark.parametrize("time", ["", "3", "d", "-1d", "0d", "1.5h", "1y", "٣d"])
def test_times_that_are_none(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["token", "create", "--name", "a", f"--expires={time}"])
    assert "expected a time" in capsys.readouterr().err


def test_a_rotated_token_has_two_secrets_for_a_grace(tokens: Tokens) -> None:
    first, made = tokens.create("ann", "submit", 60, Quota(jobs=3))
    second, rotated = tokens.rotate(made.id, 600.0)
    assert first != second
    assert (rotated.id, rotated.quota, rotated.expires_at) == (made.id, made.quota, made.expires_at)
    assert tokens.check(first) == tokens.check(second) == rotated
    third, _ = tokens.rotate(made.id, 600.0)
    assert tokens.check(first) is None, "it was rotated out before"
    assert None not in (tokens.check(second), tokens.check(third))
    with tokens._db.transaction(writes=True) as connection:
        connection.execute(update(TokenRow).values(previous_until=database_time(-1)))
    assert tokens.check(second) is None
    fourth, at_once = tokens.rotate(made.id, 0.0)
    assert (tokens.check(third), at_once.previous_until) == (None, None)
    assert tokens.check(fourth) is not None
    tokens.rotate(made.id, 600.0)
    tokens.revoke(made.id)
    assert tokens.check(fourth) is None, "revoking ends both"


def test_what_cannot_be_rotated(tokens: Tokens) -> None:
    _, made = tokens.create("ann", "submit", 60)
    with pytest.raises(RecordError, match="0 to 30 days"):
        tokens.rotate(made.id, -1.0)
    with pytest.raises(NoRecord, match="no token"):
        tokens.rotate("0" * 12, 1.0)
    tokens.revoke(made.id)
    with pytest.raises(RecordError, match="revoked or expired"):
        tokens.rotate(made.id, 1.0)

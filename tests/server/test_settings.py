"""Settings: which source goes first, what is refused, what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from server.settings import Settings, SettingsError, load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.toml"


def test_defaults_need_nothing() -> None:
    settings = load({}, {})
    assert settings == Settings()
    assert (settings.db, settings.pool, settings.host) == ("autosched.db", "local", "127.0.0.1")
    assert not settings.tokens_required


def test_flags_before_environment_before_file_before_defaults(file: Path) -> None:
    file.write_text('db = "file.db"\nport = 1\nhost = "::1"\nallowed_hosts = ["a.example"]\n')
    environment = {"AUTOSCHED_PORT": "2", "AUTOSCHED_DB": "env.db", "HOME": "/", "AUTOSCHED_": ""}
    found = load({"db": "flag.db", "pool": None}, environment, str(file))
    assert (found.db, found.port, found.host, found.pool) == ("flag.db", 2, "::1", "local")
    assert found.allowed_hosts == ("a.example",)
    assert load({}, environment | {"AUTOSCHED_SETTINGS": str(file)}).host == "::1"


def test_settings_do_not_change_and_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_PORT", "77")
    settings = Settings()
    assert settings.port == 8000
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "environment", "text", "message"),
    [
        ({}, {"AUTOSCHED_PROT": "1"}, "", r"unknown setting AUTOSCHED_PROT in the environment; did "
         r"you mean port\?"),
        ({}, {}, "lease_second = 3", r"lease_second in server.toml; did you mean lease_seconds\?"),
        ({}, {}, "qqqqqq = 3", "unknown setting qqqqqq in server.toml; `autosched serve --help`"),
        ({}, {"AUTOSCHED_PORT": "http"}, "", r"port \(from the environment\): Input should be"),
        ({"port": 70000}, {}, "", r"port \(from the command line\): .*less than or equal to 65535"),
        ({}, {}, "port = 70000", r"port \(from .*server.toml\): .*less than"),
        ({"tls_key": "k.pem"}, {}, "", "tls_certificate and tls_key go together"),
        ({}, {}, "port = ", "server.toml is not TOML: "),
        ({}, {}, "[db]\nurl = 1", r"db \(from .*server.toml\): Input should be a valid string"),
    ],
)  # fmt: skip
def test_wrong_settings_are_told_with_their_source(
    file: Path, flags: dict[str, object], environment: dict[str, str], text: str, message: str
) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load(flags, environment, str(file))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(SettingsError, match=r"cannot read the settings in /none.toml: No such"):
        load({}, {"AUTOSCHED_SETTINGS": "/none.toml"})


@pytest.mark.parametrize("text", ["inf", "nan", "1e300", "0"])
def test_seconds_are_such_as_can_be_waited_for(text: str) -> None:
    with pytest.raises(SettingsError, match="poll_seconds"):
        load({}, {"AUTOSCHED_POLL_SECONDS": text})


def test_a_wrong_value_is_not_repeated() -> None:
    """It may be the password of a database, given as something else."""
    with pytest.raises(SettingsError) as caught:
        load({}, {"AUTOSCHED_PORT": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "required", "hosts"),
    [
        ("127.0.0.1", False, {"localhost", "127.0.0.1", "[::1]"}),
        ("127.0.0.9", False, {"localhost", "127.0.0.1", "[::1]", "127.0.0.9"}),
        ("localhost", False, {"localhost", "127.0.0.1", "[::1]"}),
        ("::1", False, {"localhost", "127.0.0.1", "[::1]", "::1"}),
        ("0.0.0.0", True, None),
        ("::", True, None),
        ("192.0.2.7", True, None),
        ("tuner.example", True, None),
        ("127.0.0.1.example", True, None),
    ],
)
def test_anything_but_loopback_needs_tokens(
    host: str, required: bool, hosts: set[str] | None
) -> None:
    settings = Settings(host=host)
    assert settings.tokens_required is required
    assert settings.hosts == hosts


def test_hosts_and_tokens_can_be_asked_for() -> None:
    settings = Settings(host="0.0.0.0", allowed_hosts=("Tuner.example",))
    assert settings.hosts is not None
    assert "tuner.example" in settings.hosts
    assert Settings(require_tokens=True).tokens_required


def test_several_pools_stand_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        '[pools.cpu]\naddress = "local"\nkinds = ["llvm"]\n'
        '[pools.gpu]\naddress = "tls://h:1?tls-dir=certs"\njobs_at_once = 2\n'
    )
    plans = load({}, {}, str(file)).all_pools
    assert [(p.name, p.slots, p.kinds, p.stored) for p in plans] == [
        ("cpu", 1, ("llvm",), "cpu"), ("gpu", 2, (), "gpu"),
    ]  # fmt: skip
    (only,) = Settings(pool="replay:model").all_pools
    assert (only.name, only.slots, only.stored) == ("default", 4, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('pool = "local"\n[pools.a]\naddress = "local"', "in place of pool and jobs_at_once"),
        ('[pools.default]\naddress = "local"', "a pool's name is"),
        ('[pools."A b"]\naddress = "local"', "a pool's name is"),
        ('[pools.a]\naddress = "nowhere"', "is no pool's address"),
        ('[pools.a]\naddress = "local"\nkinds = ["abacus"]', "'llvm', 'cuda' or 'opencl'"),
        ('[pools.a]\naddress = "local"\nslots = 1', "pools.a.slots"),
    ],
)
def test_pools_that_cannot_be(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=told):
        load({}, {}, str(file))


def test_what_may_be_a_password_is_no_part_of_a_workers_name() -> None:
    (plan,) = Settings(pool="replay:postgresql://u:secret@h/n?seconds=1").all_pools
    assert plan.worker.startswith("replay@")

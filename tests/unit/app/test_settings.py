"""Settings: where they come from, which source wins, and what a bad one is told."""

from dataclasses import fields
from pathlib import Path

import pytest

from shardbus.app.server.setting import SettingError
from shardbus.app.server.settings import TABLE, Settings, is_loopback, load
from shardbus.broker.access.auth import DEVELOPMENT_KEY

NO_FILE = Path("no-such-file.toml")


def loaded(
    flags: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    file: Path = NO_FILE,
) -> Settings:
    return load(flags or {}, environment or {}, default_file=file)


def refusal(flags: dict[str, str] | None = None, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingError) as caught:
        loaded(flags, environment)
    return str(caught.value)


def write(directory: Path, text: str) -> Path:
    path = directory / "shardbus.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_source_the_fixed_defaults_hold() -> None:
    settings = loaded()

    assert (settings.host, settings.amqp_port, settings.http_port) == ("127.0.0.1", 5672, 5300)
    assert (settings.flight_port, settings.tls_port) == (5301, 5671)
    assert settings.data_dir == Path("./shardbus-data")
    assert (settings.brokers, settings.tier, settings.durability) == (4, "standard", "full")
    assert (settings.entities_max, settings.partitioned_entities_max) == (10_000, 100)
    assert (settings.sas_key, settings.has_development_key) == (DEVELOPMENT_KEY, True)


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = write(tmp_path, "amqp-port = 1001\nhttp-port = 1002\nbrokers = 3\n")

    settings = loaded(
        {"amqp_port": "3001"}, {"SHARDBUS_AMQP_PORT": "2001", "SHARDBUS_HTTP_PORT": "2002"}, file
    )

    assert (settings.amqp_port, settings.http_port, settings.brokers) == (3001, 2002, 3)
    assert settings.tls_port == 5671


def test_a_file_is_found_by_flag_then_by_environment_then_by_its_usual_name(tmp_path: Path) -> None:
    usual = write(tmp_path, "brokers = 1\n")
    by_environment, by_flag = tmp_path / "environment.toml", tmp_path / "flag.toml"
    by_environment.write_text("brokers = 2\n", encoding="utf-8")
    by_flag.write_text("brokers = 3\n", encoding="utf-8")
    environment = {"SHARDBUS_CONFIG": str(by_environment)}

    assert loaded(file=usual).brokers == 1
    assert load({}, environment, default_file=usual).brokers == 2
    assert load({}, environment, config=[str(by_flag)], default_file=usual).brokers == 3


def test_file_keys_may_have_dashes_or_underscores(tmp_path: Path) -> None:
    assert loaded(file=write(tmp_path, 'data_dir = "a"\n')).data_dir == Path("a")
    assert loaded(file=write(tmp_path, 'data-dir = "b"\n')).data_dir == Path("b")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"amqp_port": "many"}, ["amqp-port", "flag --amqp-port", "0 to 65535"]),
        ({"amqp_port": "65536"}, ["amqp-port", "65536", "0 to 65535"]),
        ({"amqp_port": "-1"}, ["amqp-port", "'-1'"]),
        ({"amqp_port": "9" * 5000}, ["amqp-port", "is not a whole number"]),
        ({"brokers": "0"}, ["brokers", "1 to 4096"]),
        ({"tier": "gold"}, ["tier", "'gold'", "basic, standard, premium"]),
        ({"broker_processes": "perhaps"}, ["broker-processes", "neither true nor false"]),
        ({"broker_restart_ms": "0"}, ["broker-restart-ms", "1 to 600000"]),
        ({"store": "redis://host/bus"}, ["store", "not a kind of store", "`sqlite:`"]),
        ({"store": "sqlite"}, ["store", "'sqlite'", "`sqlite:`"]),
        ({"store": "redis:"}, ["store", "'redis:'", "`sqlite:`"]),
        ({"host": ""}, ["sas-key", "listen on 127.0.0.1"]),
        ({"host": "", "sas_key": "k"}, ["host", "empty"]),
        ({"data_dir": ""}, ["data-dir", "empty"]),
        ({"sas_key": "two words"}, ["sas-key", "spaces"]),
        ({"sas_key": "a;b"}, ["sas-key", "semicolons"]),
        ({"tls_cert": "absent.pem"}, ["tls-cert", "--tls-key"]),
        ({"tls_key": "absent.pem"}, ["tls-key", "--tls-cert"]),
        (
            {"tls_cert": "absent.pem", "tls_key": "gone.pem"},
            ["tls-cert", "file absent.pem does not exist"],
        ),
    ],
)
def test_a_bad_value_is_told_with_its_setting_and_its_source(
    flags: dict[str, str], words: list[str]
) -> None:
    text = refusal(flags)

    assert [word for word in words if word not in text] == []


def test_a_bad_value_of_the_environment_names_the_variable() -> None:
    assert "environment SHARDBUS_TIER" in refusal(environment={"SHARDBUS_TIER": "gold"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokrs = 3", ["brokrs", "did you mean brokers?"]),
        ("something = 3", ["something", "the setting does not exist"]),
        ("brokers = true", ["brokers", "True"]),
        ("brokers = [1]", ["brokers", "must be a count"]),
        ("host = 5", ["host", "text in quotes"]),
        ("brokers = ", ["is not TOML"]),
    ],
)
def test_a_bad_file_is_told_with_its_name(tmp_path: Path, text: str, words: list[str]) -> None:
    file = write(tmp_path, text)

    with pytest.raises(SettingError) as caught:
        loaded(file=file)

    assert [word for word in [*words, str(file)] if word not in str(caught.value)] == []


def test_a_file_that_was_named_must_exist() -> None:
    with pytest.raises(SettingError, match=r"gone\.toml.*cannot be read"):
        load({}, {}, config=["gone.toml"], default_file=NO_FILE)


def test_variables_that_are_no_setting_are_passed_over() -> None:
    assert loaded(environment={"SHARDBUS_SERVICE_HOST": "10.0.0.1"}) == loaded()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "bus.example.org"])
@pytest.mark.parametrize("key", [{}, {"sas_key": DEVELOPMENT_KEY}])
def test_an_open_address_without_an_own_key_is_refused(host: str, key: dict[str, str]) -> None:
    """R34: the development key is public, so it may not guard anything others can reach."""
    text = refusal({"host": host, **key})

    assert host in text
    assert "--sas-key" in text


def test_an_open_address_with_an_own_key_is_served() -> None:
    settings = loaded({"host": "0.0.0.0", "sas_key": "c2VjcmV0"})

    assert (settings.sas_key, settings.is_loopback) == ("c2VjcmV0", False)
    assert not settings.has_development_key


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LocalHost"])
def test_loopback_addresses_are_known(host: str) -> None:
    assert is_loopback(host)


def test_a_certificate_and_its_key_are_taken_together(tmp_path: Path) -> None:
    certificate, key = tmp_path / "a.pem", tmp_path / "b.pem"
    certificate.touch()
    key.touch()

    settings = loaded({"tls_cert": str(certificate), "tls_key": str(key)})

    assert (settings.tls_cert, settings.tls_key) == (certificate, key)


def test_every_field_is_a_row_of_the_table_and_every_row_a_field() -> None:
    names = {field.name for field in fields(Settings)}

    assert names - {"setup", "is_emulator"} == {row.name for row in TABLE}


def test_a_key_is_read_from_a_file(tmp_path: Path) -> None:
    """R34: a command line is seen by everybody on the machine."""
    path = tmp_path / "key"
    path.write_text("c2VjcmV0\n", encoding="utf-8")

    settings = loaded({"host": "0.0.0.0", "sas_key_file": str(path)})

    assert (settings.sas_key, settings.sas_key_file) == ("c2VjcmV0", path)
    assert "c2VjcmV0" not in refusal({"sas_key_file": str(path), "sas_key": "other"})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"\n", "empty"),
        (b"\xff\xfe", "cannot be read"),
        (b"two words", "spaces"),
        (DEVELOPMENT_KEY.encode(), "is public"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_named_and_not_quoted(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)

    text = refusal({"host": "0.0.0.0", "sas_key_file": str(path)})

    assert str(path) in text
    assert words in text
    assert "two" not in text


def test_a_key_of_the_wrong_kind_is_not_told_to_everybody(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="sas-key") as caught:
        loaded(file=write(tmp_path, "sas-key = 73129\n"))

    assert "73129" not in str(caught.value)


@pytest.mark.parametrize(
    "host", ["0", "127.1", "::ffff:127.0.0.1", "localhost.example.org", "localhost.", "0x7f000001"]
)
def test_what_merely_looks_like_the_loopback_needs_a_key(host: str) -> None:
    """R34."""
    assert "is public" in refusal({"host": host})


def test_sign_in_is_off_until_an_issuer_is_named() -> None:
    settings = loaded()

    assert settings.oidc_issuer == ""
    assert settings.oidc_audience[:2] == (
        "https://servicebus.azure.net",
        "https://servicebus.azure.net/",
    )
    assert [grant.name for grant in settings.oidc_grant] == [
        "Azure Service Bus Data Owner",
        "Azure Service Bus Data Sender",
        "Azure Service Bus Data Receiver",
    ]


def test_what_may_be_given_several_times_comes_from_every_source(tmp_path: Path) -> None:
    listed = (
        'oidc-issuer = "https://x"\noidc-audience = ["a", "b"]\n'
        'oidc-grant = "role:r=Send;group:g=Listen@Q"\n'
    )
    named = {"SHARDBUS_OIDC_AUDIENCE": "c; d;"}

    from_file = loaded(file=write(tmp_path, listed))
    from_variable = loaded({}, named, write(tmp_path, listed))
    from_flags = loaded({"oidc_audience": "e"}, named, write(tmp_path, listed))

    assert from_file.oidc_audience == ("a", "b")
    assert [(grant.name, grant.entity) for grant in from_file.oidc_grant] == [("r", ""), ("g", "q")]
    assert from_variable.oidc_audience == ("c", "d")
    assert from_flags.oidc_audience == ("e",)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"oidc_issuer": "http://login.example"}, "is not https"),
        ({"oidc_issuer": "login.example"}, "is not a URL"),
        ({"oidc_issuer": "https://login.example/x?y=z"}, "has a query"),
        ({"oidc_issuer": "https://x", "oidc_grant": "role:x=Read"}, "'Read' is not a right"),
        ({"oidc_issuer": "https://x", "oidc_grant": ";"}, "0 are given; 1 to 100 are taken"),
        ({"oidc_issuer": "https://x", "oidc_grant": "role:x=Send;" * 101}, "101 are given"),
        ({"oidc_issuer": "https://x", "oidc_audience": "a;" * 17}, "17 are given"),
        ({"oidc_grant": "role:x=Send"}, "needs --oidc-issuer"),
        ({"oidc_audience": "x"}, "needs --oidc-issuer"),
    ],
)
def test_a_sign_in_that_cannot_be_is_refused(flags: dict[str, str], reason: str) -> None:
    assert reason in refusal(flags)


@pytest.mark.parametrize("url", ["http://127.0.0.1:80/x", "http://localhost", "http://[::1]:9"])
def test_an_issuer_on_this_machine_needs_no_tls(url: str) -> None:
    assert loaded({"oidc_issuer": url}).oidc_issuer == url

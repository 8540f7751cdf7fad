"""Tokens and connection strings, from the client's side."""

import pytest

from shardbus.app.cli.sas import (
    ConnectionStringError,
    Credential,
    parse_connection_string,
)


def test_a_token_is_the_one_that_the_format_defines() -> None:
    """R34. The signature was computed apart with openssl's HMAC-SHA256 over sr, newline, se."""
    token = Credential().token_for("http://127.0.0.1:5300", expires_at_s=1000)

    assert token == (
        "SharedAccessSignature sr=http%3A%2F%2F127.0.0.1%3A5300"
        "&sig=f7g7dAEDnLJU75fS7YnREJi1x58oHKkuHZ6Q8OpYieQ%3D&se=1000&skn=RootManageSharedAccessKey"
    )


def test_a_ready_made_token_is_passed_on_verbatim() -> None:
    credential = Credential(key_name="", key="", token="SharedAccessSignature sr=x")

    assert credential.token_for("http://other", expires_at_s=5) == "SharedAccessSignature sr=x"


def test_a_connection_string_gives_address_and_key() -> None:
    parsed = parse_connection_string(
        "Endpoint=sb://localhost:5672/;SharedAccessKeyName=Root;SharedAccessKey=a=b==;"
        "UseDevelopmentEmulator=true;"
    )

    assert (parsed.host, parsed.port, parsed.is_emulator) == ("localhost", 5672, True)
    assert parsed.credential == Credential("Root", "a=b==")


def test_names_of_a_connection_string_may_be_in_any_case_and_order() -> None:
    parsed = parse_connection_string("sharedaccesskey=k;SHAREDACCESSKEYNAME=n;endpoint=sb://h")

    assert (parsed.host, parsed.port, parsed.is_emulator) == ("h", None, False)
    assert parsed.credential == Credential("n", "k")


def test_a_signature_in_a_connection_string_is_kept_as_the_token() -> None:
    parsed = parse_connection_string(
        "Endpoint=sb://h;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1&skn=z"
    )

    assert parsed.credential.token == "SharedAccessSignature sr=x&sig=y&se=1&skn=z"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Endpoint"),
        ("Endpoint=sb://h", "SharedAccessKeyName"),
        ("Endpoint=sb://h;SharedAccessKeyName=n", "SharedAccessKey"),
        ("Endpoint=h;SharedAccessKeyName=n;SharedAccessKey=k", "Endpoint"),
        ("Endpoint=sb://h:port;SharedAccessKeyName=n;SharedAccessKey=k", "not an address"),
        ("Endpoint", "has no value"),
    ],
)
def test_a_bad_connection_string_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ConnectionStringError, match=reason):
        parse_connection_string(text)

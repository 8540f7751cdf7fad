"""What may stand in the log."""

import logging
import sys

import pytest

from shardbus.app.server.log_lines import LineFormatter
from shardbus.broker.access.sas import mint_token


def line(message: str, *values: object) -> str:
    record = logging.LogRecord("shardbus.x", logging.INFO, "x.py", 1, message, values, None)
    return LineFormatter().format(record)


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\x00b", "a\u2028b", "a\x85b"])
def test_a_record_is_one_line_and_cannot_talk_to_a_terminal(text: str) -> None:
    told = line("said %s", text)

    assert len(told.splitlines()) == 1
    assert told.isprintable()
    assert told.startswith("2")
    assert "INFO shardbus.x: said a\\" in told


def test_keys_and_signatures_are_not_told_even_if_somebody_logs_them() -> None:
    token = mint_token("sb://h/q", "rule", "the-key", 2_000_000_000)
    signature = token.partition("sig=")[2].partition("&")[0]
    connecting = "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=the-key;"

    told = line("%s and %s and SharedAccessSignature=%s", token, connecting, token)

    assert signature not in told
    assert "the-key" not in told
    assert "skn=rule" in told
    assert "SharedAccessKeyName=n" in told


def test_tokens_of_an_issuer_are_not_told_either() -> None:
    head, claims, signature = "eyJhbGciOiJSUzI1NiJ9", "eyJzdWIiOiJzb21lYm9keSJ9", "c2ln-bmF0_dXJl"

    told = line("Bearer %s, and eyJust a word.", f"{head}.{claims}.{signature}")

    assert told.endswith("Bearer ***, and eyJust a word.")


def test_a_traceback_keeps_its_lines_and_hides_keys_too() -> None:
    try:
        raise ValueError("SharedAccessKey=the-key;")
    except ValueError:
        record = logging.LogRecord(
            "shardbus.x", logging.ERROR, "x.py", 1, "failed", (), sys.exc_info()
        )
    told = LineFormatter().format(record)

    assert len(told.splitlines()) > 2
    assert "the-key" not in told

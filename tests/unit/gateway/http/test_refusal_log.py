"""Strangers cannot fill the log with what they are refused (R34)."""

import logging

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND, Refused
from shardbus.gateway.http.server.refusal_log import LINES_MAX, OF_PEER_MAX, WINDOW_MS
from tests.unit.gateway.http.web import Web

REFUSAL = Refused(INVALID_ARGUMENT, "no HTTP")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.INFO]


def test_one_peer_is_told_a_few_times_a_minute_and_all_of_it_at_debug(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "shardbus.gateway.http"):
        for _ in range(1_000):
            web.site.refused(REFUSAL, "/", "192.0.2.1")
        web.site.refused(REFUSAL, "/", "192.0.2.2")

    assert len(told(caplog)) == OF_PEER_MAX + 1
    assert len(caplog.records) == 1_001


def test_many_peers_together_are_bounded_too(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "shardbus.gateway.http"):
        for number in range(3_000):
            web.site.refused(REFUSAL, "/", f"198.51.100.{number}")

    assert len(told(caplog)) == LINES_MAX


def test_the_next_minute_tells_how_much_was_left_out(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "shardbus.gateway.http"):
        for _ in range(OF_PEER_MAX + 5):
            web.fetch("GET", "/q", token="SharedAccessSignature none")
        web.pass_s(WINDOW_MS // 1000)
        web.fetch("GET", "/q", token="SharedAccessSignature none")

    assert told(caplog)[OF_PEER_MAX] == "5 more refusals were logged at DEBUG only"
    assert told(caplog)[-1].startswith("401 Unauthorized: MalformedToken")


def test_something_that_does_not_exist_is_not_told_to_everybody(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "shardbus.gateway.http"):
        web.site.refused(Refused(NOT_FOUND, "no queue"), "/", "192.0.2.1")

    assert (told(caplog), len(caplog.records)) == ([], 1)

"""The options of a write: what they mean, and what is refused by name."""

from __future__ import annotations

import pytest

from shardbus_spark.errors import OptionError
from shardbus_spark.sink_options import SinkOptions, read_sink_options


def read(**given: str) -> SinkOptions:
    return read_sink_options({"entity": "orders", **given})


def test_repeated_batches_fail_unless_an_application_counts_its_versions() -> None:
    assert not read().skips_repeated
    assert not read(transactionId="once").skips_repeated
    assert read(txnAppId="app", txnVersion="7").skips_repeated
    assert not read(txnAppId="app", txnVersion="7", onRepeatedBatch="fail").skips_repeated
    assert read(onRepeatedBatch="Skip").skips_repeated
    assert read(TXNAPPID="app", txnversion="7").app_version == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"txnAppId": "app"}, "txnAppId and txnVersion go together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ({"txnAppId": "app", "txnVersion": "-1"}, "txnVersion is '-1'"),
        ({"txnAppId": "app", "txnVersion": "9" * 30}, "it must be a non-negative whole number"),
        ({"txnAppId": "a", "txnVersion": "1", "transactionId": "t"}, "exclude each other"),
        ({"txnAppId": "app", "txnVersion": "9" * 5_000}, "it must be a non-negative whole number"),
        ({"transactionId": "x" * 251}, "transactionId has 251 characters; at most 250"),
        ({"txnAppId": "x" * 253, "txnVersion": "1"}, "txnAppId has 253 characters; at most"),
        ({"producerName": "x" * 220}, "producerName has 220 characters; at most 219"),
        ({"onRepeatedBatch": "maybe"}, "onRepeatedBatch is 'maybe'; it must be fail or skip"),
    ],
)
def test_options_that_cannot_be_used_are_refused_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read(**given)

"""Options and addresses: what is allowed, and what the refusal of the rest says."""

import re
from pathlib import Path

import pytest

from shardbus_spark import client, planning, reading
from shardbus_spark.address import Address, address_from
from shardbus_spark.credentials import FILE_BYTES_MAX, Given
from shardbus_spark.errors import OptionError
from shardbus_spark.options import (
    KNOWN,
    TASK_ACCESS_MS_MAX,
    TASK_ACCESS_MS_MIN,
    read_options,
)
from shardbus_spark.sink_options import NAMES_MAX

README = Path(__file__).parents[1] / "README.md"
LIMITS = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
CONSUME = {"entity": "orders", "mode": "consume", "readerName": "r"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "entity is missing"),
        ({"entity": "a", "mode": "eat"}, "mode is 'eat'; it must be browse or consume"),
        ({"entity": "a", "nope": "1"}, "nope is not an option; options are endpoint"),
        ({"entity": "a", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger is '0'.*above 0"),
        ({"entity": "a", "inputPartitions": "two"}, "inputPartitions is 'two'"),
        ({"entity": "a", "maxRowsPerTrigger": "9" * 5_000}, "maxRowsPerTrigger is .*above 0"),
        ({"entity": "a", "startingOffsets": '{"²": 5}'}, "startingOffsets is .*by fragment"),
        ({"entity": "a", "startingOffsets": "[" * 50_000}, "startingOffsets is .*by fragment"),
        ({"entity": "a", "startingTimestamp": "0001-01-01T00:00:00+14:00"}, "time with its zone"),
        ({"entity": "a", "failOnDataLoss": "perhaps"}, "failOnDataLoss is 'perhaps'"),
        ({"entity": "a", "states": "dead"}, "states has 'dead'"),
        ({"entity": "a", "startingOffsets": "[1]"}, "startingOffsets is .*by fragment"),
        ({"entity": "a", "endingOffsets": "earliest"}, "endingOffsets is 'earliest'"),
        ({"entity": "a", "startingOffsets": '{"0": -3}'}, "-1 for latest or -2 for earliest"),
        ({"entity": "a", "endingOffsets": '{"0": -2}'}, "endingOffsets is .*-1 for latest$"),
        ({"entity": "a", "endpoint": "http://x"}, "endpoint is 'http://x'.*grpc://host:5301"),
        ({"entity": "a", "endpoint": "grpc://x:y"}, "endpoint is"),
        ({"entity": "a", "readerName": "r"}, "readerName cannot be used with mode=browse"),
        ({"entity": "a", "mode": "consume"}, "readerName is missing"),
        ({**CONSUME, "states": "active"}, "states cannot be used with mode=consume"),
        ({**CONSUME, "startingOffsets": "latest"}, "startingOffsets cannot be used"),
        ({**CONSUME, "leaseMs": "9999"}, "leaseMs is 9999.*10000"),
        ({"entity": "a", "connectionString": "x"}, "connectionString has no = in its part 1"),
        ({"entity": "a", "taskAccessMs": "9999"}, "taskAccessMs is 9999.*10000"),
        ({"entity": "a", "connectionString": "A=1"}, "connectionString has no Endpoint"),
        ({"entity": "a", "connectionString": "Endpoint=sb://h"}, "SharedAccessKeyName"),
        (
            {"entity": "a", "connectionString": "Endpoint=sb://h", "accessKey": "k"},
            "give one of credentialFile, connectionString, accessKey",
        ),
    ],
)
def test_a_bad_option_is_named_and_told_what_is_allowed(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        read_options(given)


def test_names_of_options_are_read_in_any_case() -> None:
    options = read_options({"PATH": "orders", "maxrowspertrigger": "5", "INCLUDEJSON": "True"})

    assert (options.entity, options.rows_max, options.includes_json) == ("orders", 5, True)


def test_offsets_may_be_given_by_fragment() -> None:
    options = read_options({"path": "a", "startingOffsets": '{"0": 7, "3": 281474976710660}'})

    assert options.starting == {0: 7, 3: 281474976710660}


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("grpc://host", "grpc+tcp://host:5301"),
        ("grpc+tls://host:1", "grpc+tls://host:1"),
        ("grpc://[::1]:7", "grpc+tcp://[::1]:7"),
    ],
)
def test_an_endpoint_becomes_a_location_of_flight(url: str, location: str) -> None:
    assert Address(url).location() == location


def test_a_connection_string_gives_host_and_key_and_the_endpoint_wins() -> None:
    text = "Endpoint=sb://bus.example:5672;SharedAccessKeyName=n;SharedAccessKey=a=b="

    given = Given(connection_string=text)
    derived = address_from("", given)
    named = address_from("grpc://other:1", given)

    assert derived.url == "grpc+tls://bus.example:5301"
    assert (derived.credential.key_name, derived.credential.key) == ("n", "a=b=")
    assert named.url == "grpc://other:1"


def test_the_readme_has_every_option_as_the_table_says_it() -> None:
    section = README.read_text("utf-8").partition("## Options")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)

    assert dict(rows) == KNOWN


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("addresses to which a Python process", {reading.CONNECTIONS_MAX}),
        ("concurrent streams of the client", {client.STREAMS_MAX, client.STREAMS_DEFAULT_MAX}),
        (
            "partitions of a read",
            {planning.CORES_MAX, planning.PARTITIONS_MAX, planning.PARTITION_ROWS},
        ),
        ("a `credentialFile`", {FILE_BYTES_MAX // 1024}),
        ("`transactionId`, `txnAppId`", set(NAMES_MAX.values())),
        ("`taskAccessMs`", {TASK_ACCESS_MS_MIN, TASK_ACCESS_MS_MAX}),
    ],
)
def test_the_page_of_limits_has_the_numbers_of_the_code(start: str, expected: set[int]) -> None:
    lines = LIMITS.read_text("utf-8").splitlines()
    [row] = [line for line in lines if line.startswith(f"| {start}")]

    numbers = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", row)}
    assert expected <= numbers

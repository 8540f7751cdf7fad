"""The options of format("shardbus"), in one table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shardbus_spark.address import Address, address_from
from shardbus_spark.errors import OptionError

BROWSE: Final = "browse"
CONSUME: Final = "consume"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
LEASE_MS_MIN: Final = 10_000
LEASE_MS_DEFAULT: Final = 600_000
LEASE_MS_MAX: Final = 24 * 3600 * 1000
STATES: Final = ("active", "deferred", "scheduled", "delayed")

KNOWN: Final[dict[str, str]] = {
    "endpoint": "Flight URL of the bus, grpc://host:5301 or grpc+tls://host:5301",
    "connectionString": "host, key name and key in one, as Service Bus SDKs take it",
    "keyName": "access rule that signs",
    "key": "key of that rule",
    "token": "a ready-made shared access signature, instead of a key",
    "tlsCa": "file with the certificates to trust, on every node",
    "entity": "queue, topic/Subscriptions/name, or either with /$DeadLetterQueue",
    "path": "the same as entity: load('orders')",
    "mode": "browse (nobody is disturbed) or consume (streams only: what is read is removed)",
    "states": "batch only: active, deferred, scheduled, delayed; separated by commas",
    "startingOffsets": "browse only: earliest, latest, or JSON: sequence number by fragment",
    "endingOffsets": "batch only: latest, or JSON: sequence number by fragment (not included)",
    "maxRowsPerTrigger": "most rows of a micro-batch",
    "maxBytesPerTrigger": "most bytes of messages of a micro-batch",
    "inputPartitions": "Spark partitions to read with",
    "readerName": "consume only: the name under which messages are set aside",
    "leaseMs": "consume only: after so long unheard (600000), messages go back to receivers",
    "finishOnly": "consume only: true runs what was begun, completes it and takes nothing new",
    "failOnDataLoss": "true: a query fails when messages it expects are gone; false: it warns",
    "includeJson": "true: one more column, properties_json",
    "includeAmqp": "true: one more column, amqp, with which a message is written as it was read",
}
# What Spark itself may put among the options of a source.
_OF_SPARK: Final = frozenset(("checkpointlocation", "paths", "header", "inferschema", "queryname"))


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read; checked."""

    address: Address
    entity: str
    mode: str
    states: tuple[str, ...]
    starting: str | dict[int, int]
    ending: str | dict[int, int]
    rows_max: int
    bytes_max: int
    partitions: int
    reader: str
    lease_ms: int
    is_finishing: bool
    fails_on_data_loss: bool
    includes_json: bool
    includes_amqp: bool


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """The options that were given, names in any case; OptionError, which names the bad one."""
    values = Values(given, KNOWN)
    mode = values.choice("mode", (BROWSE, CONSUME), BROWSE)
    options = SourceOptions(
        address=address_from(
            values.text("endpoint"),
            connection_string=values.text("connectionString"),
            key_name=values.text("keyName"),
            key=values.text("key"),
            token=values.text("token"),
            ca_file=values.text("tlsCa"),
        ),
        entity=values.text("entity") or values.text("path"),
        mode=mode,
        states=values.states(),
        starting=values.offsets("startingOffsets", (EARLIEST, LATEST), EARLIEST),
        ending=values.offsets("endingOffsets", (LATEST,), LATEST),
        rows_max=values.number("maxRowsPerTrigger", 0),
        bytes_max=values.number("maxBytesPerTrigger", 0),
        partitions=values.number("inputPartitions", 0),
        reader=values.text("readerName"),
        lease_ms=values.number("leaseMs", LEASE_MS_DEFAULT),
        is_finishing=values.flag("finishOnly", False),
        fails_on_data_loss=values.flag("failOnDataLoss", True),
        includes_json=values.flag("includeJson", False),
        includes_amqp=values.flag("includeAmqp", False),
    )
    _check(options, values)
    return options


def _check(options: SourceOptions, values: Values) -> None:
    if not options.entity:
        raise OptionError("entity is missing: option('entity', 'orders'), or load('orders')")
    if options.mode == CONSUME:
        for name in ("states", "startingOffsets", "endingOffsets"):
            if values.text(name):
                raise OptionError(f"{name} has no meaning with mode=consume: leave it out")
        if not LEASE_MS_MIN <= options.lease_ms <= LEASE_MS_MAX:
            raise OptionError(
                f"leaseMs is {options.lease_ms}; it must be from {LEASE_MS_MIN} to {LEASE_MS_MAX}"
            )
        if not options.reader:
            raise OptionError(
                "readerName is missing: mode=consume sets messages aside under a name, which must "
                "stay the same over restarts and belong to one query"
            )
    elif options.reader:
        raise OptionError("readerName has no meaning with mode=browse: leave it out")
    elif options.is_finishing:
        raise OptionError("finishOnly has no meaning with mode=browse: leave it out")
    options.address.location()


class Values:
    """Options as texts; OptionError for a name that is not among those of a table."""

    def __init__(self, given: Mapping[str, str], table: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in dict(given).items()}
        known = {name.lower() for name in table} | _OF_SPARK
        for name in self._values:
            if name not in known:
                raise OptionError(f"{name} is no option; options are {', '.join(table)}")

    def text(self, name: str) -> str:
        return self._values.get(name.lower(), "").strip()

    def choice(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = self.text(name).lower() or default
        if value not in words:
            raise OptionError(f"{name} is {value!r}; it must be {' or '.join(words)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def number(self, name: str, default: int) -> int:
        value = self.text(name)
        if not value:
            return default
        if not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 62):
            raise OptionError(f"{name} is {value!r}; it must be a whole number above 0")
        return int(value)

    def states(self) -> tuple[str, ...]:
        names = [name.strip().lower() for name in self.text("states").split(",") if name.strip()]
        for name in names:
            if name not in STATES:
                raise OptionError(f"states has {name!r}; states are {', '.join(STATES)}")
        return tuple(dict.fromkeys(names)) or ("active",)

    def offsets(self, name: str, words: tuple[str, ...], default: str) -> str | dict[int, int]:
        value = self.text(name)
        if not value or value.lower() in words:
            return value.lower() or default
        try:
            found: object = json.loads(value)
        except ValueError:
            found = None
        if isinstance(found, dict) and all(
            key.isdigit() and isinstance(number, int) and not isinstance(number, bool)
            for key, number in found.items()
        ):
            return {int(key): int(number) for key, number in found.items()}
        raise OptionError(
            f"{name} is {value!r}; it must be {', '.join(words)}, or JSON like "
            '{"0": 1200, "1": 281474976710660}: sequence numbers by fragment'
        )

"""The options of format("shardbus"), in one table."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from shardbus_spark.address import Address, address_from
from shardbus_spark.credentials import Given
from shardbus_spark.errors import OptionError
from shardbus_spark.moments import ENQUEUED, RECORDED, Span, duration_s, moment

log = logging.getLogger(__name__)

BROWSE: Final = "browse"
CONSUME: Final = "consume"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MESSAGES: Final = "messages"
LIFECYCLE: Final = "lifecycle"
# As in the Kafka source, in JSON.
LATEST_NUMBER: Final = -1
EARLIEST_NUMBER: Final = -2
LEASE_MS_MIN: Final = 10_000
LEASE_MS_DEFAULT: Final = 600_000
LEASE_MS_MAX: Final = 24 * 3600 * 1000
TASK_ACCESS_MS_MIN: Final = 10_000
TASK_ACCESS_MS_DEFAULT: Final = 24 * 3600 * 1000
TASK_ACCESS_MS_MAX: Final = 30 * 24 * 3600 * 1000
STATES: Final = ("active", "deferred", "scheduled", "delayed")

KNOWN: Final[dict[str, str]] = {
    "endpoint": "Flight URL of the bus, grpc://host:5301 or grpc+tls://host:5301",
    "credentialFile": "file on the driver with a connection string, a token or a key",
    "connectionString": "connection string as for Service Bus SDKs: host, key name and key in one",
    "keyName": "access rule whose key signs",
    "accessKey": "key of that rule",
    "token": "a ready-made shared access signature, instead of a key",
    "taskAccessMs": "how long tasks can use the token that the driver made for them (86400000)",
    "tlsCa": "file with the certificates to trust, on every node",
    "entity": "queue, topic/Subscriptions/name, or either with /$DeadLetterQueue",
    "path": "the same as entity: load('orders')",
    "table": "messages (default), or lifecycle: the lifecycle records of the entity",
    "mode": "browse (receivers are not disturbed) or consume (streams only: messages that are read "
    "are removed)",
    "states": "batch only: active, deferred, scheduled, delayed; separated by commas",
    "startingOffsets": "browse only: earliest, latest (streams), or JSON by fragment: a sequence "
    "number (of lifecycle records: a block), -2 for earliest, -1 for latest",
    "endingOffsets": "batch only: latest, or JSON by fragment: a sequence number or block (not "
    "included), -1 for latest",
    "startingTimestamp": "browse only: rows enqueued, or recorded, at this time or later",
    "endingTimestamp": "browse only: rows enqueued, or recorded, before this time",
    "maxRowsPerTrigger": "maximum rows of a micro-batch",
    "maxBytesPerTrigger": "maximum bytes of messages of a micro-batch",
    "minRowsPerTrigger": "streams only: fewer rows wait for more, up to maxTriggerDelay",
    "maxTriggerDelay": "streams only: how long they wait: 30s, 15m (the default), 1h",
    "inputPartitions": "Spark partitions to read with; by default by cores and rows",
    "readerName": "consume only: the name under which messages are claimed",
    "leaseMs": "consume only: after this time without activity (600000) messages are returned",
    "finishOnly": "consume only: true completes what was begun and claims nothing new",
    "failOnDataLoss": "true: a query fails when messages that it expects are gone; false: it warns",
    "bodySchema": "names and types in JSON bodies, as in 'id bigint, items array<string>': adds "
    "the column json, null for a body that does not fit",
    "includeJson": "true: adds the column properties_json",
    "includeAmqp": "true: adds the column amqp, with which a message is written unchanged",
    "includeSessionState": "true: adds the column session_state, the state of the row's session",
}
# Former names; Spark shows the value of `key` in plans and logs, and hides that of `accessKey`.
RENAMED: Final = {"key": "accessKey"}
ENTITY_MISSING: Final = (
    "entity is missing: option('entity', 'orders'), or {}('orders'). For a table with a list "
    "of columns Spark passes no options: create it without the list"
)
DELAY_DEFAULT_S: Final = 900.0
OF_BROWSING: Final = (
    "states",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
)
# Options for messages, which cannot be used for lifecycle records.
OF_MESSAGES: Final = (
    "states",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "minRowsPerTrigger",
    "maxTriggerDelay",
    "bodySchema",
    "includeJson",
    "includeAmqp",
    "includeSessionState",
)
SECRETS: Final = ("accessKey", "connectionString", "token")
# The options for address and credential, of sources and of sinks.
OF_ADDRESSES: Final = (
    "endpoint",
    "credentialFile",
    "connectionString",
    "keyName",
    "accessKey",
    "token",
    "taskAccessMs",
    "tlsCa",
)
# Options that Spark itself may add to a source.
_OF_SPARK: Final = frozenset(
    (
        *("checkpointlocation", "paths", "header", "inferschema", "queryname"),
        # Properties of tables.
        *("collation", "comment", "external", "is_managed_location", "location", "owner"),
        *("provider", "serialization.format", "transient_lastddltime"),
    )
)
_OF_TABLES: Final = "option."
_DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read; checked."""

    address: Address
    task_access_s: int
    entity: str
    mode: str
    states: tuple[str, ...]
    starting: str | dict[int, int]
    ending: str | dict[int, int]
    span: Span
    rows_max: int
    bytes_max: int
    rows_min: int
    delay_s: float
    partitions: int
    reader: str
    lease_ms: int
    is_finishing: bool
    fails_on_data_loss: bool
    includes_json: bool
    includes_amqp: bool
    includes_state: bool
    table: str = MESSAGES
    body_schema: str = ""

    @property
    def is_of_records(self) -> bool:
        """Whether lifecycle records are read, and not messages."""
        return self.table == LIFECYCLE

    @property
    def asked_table(self) -> str:
        """The table to ask the bus for; empty for messages: an older bus knows no tables."""
        return self.table if self.is_of_records else ""

    def task_address(self) -> Address:
        """The address for a task that is planned now."""
        return self.address.for_tasks(self.entity, self.task_access_s)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """The given options, names in any case; OptionError with the name of an invalid one."""
    values = Values(given, KNOWN)
    mode = values.choice("mode", (BROWSE, CONSUME), BROWSE)
    table = values.choice("table", (MESSAGES, LIFECYCLE), MESSAGES)
    options = SourceOptions(
        address=values.address(),
        task_access_s=values.task_access_s(),
        entity=values.text("entity") or values.text("path"),
        mode=mode,
        states=values.states(),
        starting=values.offsets("startingOffsets", (EARLIEST, LATEST), EARLIEST),
        ending=values.offsets("endingOffsets", (LATEST,), LATEST),
        span=values.span(RECORDED if table == LIFECYCLE else ENQUEUED),
        rows_max=values.number("maxRowsPerTrigger", 0),
        bytes_max=values.number("maxBytesPerTrigger", 0),
        rows_min=values.number("minRowsPerTrigger", 0),
        delay_s=duration_s("maxTriggerDelay", values.text("maxTriggerDelay"), DELAY_DEFAULT_S),
        partitions=values.number("inputPartitions", 0),
        reader=values.text("readerName"),
        lease_ms=values.number("leaseMs", LEASE_MS_DEFAULT),
        is_finishing=values.flag("finishOnly", False),
        fails_on_data_loss=values.flag("failOnDataLoss", True),
        includes_json=values.flag("includeJson", False),
        includes_amqp=values.flag("includeAmqp", False),
        includes_state=values.flag("includeSessionState", False),
        table=table,
        body_schema=values.text("bodySchema"),
    )
    _check(options, values)
    return options


def _check(options: SourceOptions, values: Values) -> None:
    if options.rows_max and options.rows_min > options.rows_max:
        raise OptionError(
            f"minRowsPerTrigger is {options.rows_min}, more than maxRowsPerTrigger, which is "
            f"{options.rows_max}"
        )
    if not options.entity:
        raise OptionError(ENTITY_MISSING.format("load"))
    if options.is_of_records:
        _check_records(options, values)
    if options.mode == CONSUME:
        for name in OF_BROWSING:
            if values.text(name):
                raise OptionError(f"{name} cannot be used with mode=consume: leave it out")
        if not LEASE_MS_MIN <= options.lease_ms <= LEASE_MS_MAX:
            raise OptionError(
                f"leaseMs is {options.lease_ms}; it must be from {LEASE_MS_MIN} to {LEASE_MS_MAX}"
            )
        if not options.reader:
            raise OptionError(
                "readerName is missing: mode=consume claims messages under a name, which "
                "must stay the same over restarts and belong to one query"
            )
    elif options.reader:
        raise OptionError("readerName cannot be used with mode=browse: leave it out")
    elif options.is_finishing:
        raise OptionError("finishOnly cannot be used with mode=browse: leave it out")
    options.address.location()


def _check_records(options: SourceOptions, values: Values) -> None:
    if options.mode == CONSUME:
        raise OptionError(
            "table=lifecycle cannot be consumed: the bus drops records by their age and amount. "
            "Leave out mode"
        )
    for name in OF_MESSAGES:
        if values.text(name):
            raise OptionError(f"{name} cannot be used with table=lifecycle: leave it out")


class Values:
    """Options as texts; OptionError for a name that is not in the table."""

    def __init__(self, given: Mapping[str, str], table: Mapping[str, str]) -> None:
        self._values = {
            name.lower(): str(value)
            for name, value in dict(given).items()
            if not name.lower().startswith(_OF_TABLES)
        }
        for old, new in RENAMED.items():
            if old in self._values:
                _tell_renamed(old, new)
                self._values.setdefault(new.lower(), self._values.pop(old))
        known = {name.lower() for name in table} | _OF_SPARK
        for name in self._values:
            if name not in known:
                raise OptionError(f"{name} is not an option; options are {', '.join(table)}")

    def text(self, name: str) -> str:
        return self._values.get(name.lower(), "").strip()

    def address(self) -> Address:
        names = ("credentialFile", "connectionString", "token", "accessKey", "keyName")
        given = Given(*(self.text(name) for name in names))
        return address_from(self.text("endpoint"), given, ca_file=self.text("tlsCa"))

    def task_access_s(self) -> int:
        found = self.number("taskAccessMs", TASK_ACCESS_MS_DEFAULT)
        if not TASK_ACCESS_MS_MIN <= found <= TASK_ACCESS_MS_MAX:
            raise OptionError(
                f"taskAccessMs is {found}; it must be from {TASK_ACCESS_MS_MIN} to "
                f"{TASK_ACCESS_MS_MAX}"
            )
        return found // 1000

    def span(self, column: str) -> Span:
        start, stop = (
            moment(name, self.text(name)) for name in ("startingTimestamp", "endingTimestamp")
        )
        if start is not None and stop is not None and start >= stop:
            raise OptionError("startingTimestamp must be before endingTimestamp")
        return Span(start, stop, column)

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
        if not (is_number(value) and 0 < int(value) < 1 << 62):
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
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and all(
            is_number(key) and isinstance(number, int) and not isinstance(number, bool)
            for key, number in found.items()
        ):
            least = EARLIEST_NUMBER if EARLIEST in words else LATEST_NUMBER
            if all(number >= least for number in found.values()):
                return {int(key): int(number) for key, number in found.items()}
        earliest = " or -2 for earliest" if EARLIEST in words else ""
        raise OptionError(
            f"{name} is {value!r}; it must be {', '.join(words)}, or JSON like "
            f'{{"0": 1200, "1": 281474976710660}}: by fragment a sequence number, -1 for latest'
            f"{earliest}"
        )


def is_number(text: str) -> bool:
    """Whether it is a whole number with at most as many digits as one of 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def options_of_table(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a table, which Spark passes as `option.name`; none for a read.

    OptionError for one that contains a secret: everybody who sees the table would see it.
    """
    found = {
        name.lower().removeprefix(_OF_TABLES): str(value)
        for name, value in dict(given).items()
        if name.lower().startswith(_OF_TABLES)
    }
    for name in (*SECRETS, *RENAMED):
        if name.lower() in found:
            raise OptionError(
                f"{name} is not allowed in a table, whose options are visible to everybody "
                "who may see the table: use credentialFile, or environment variables of the "
                "driver such as SHARDBUS_KEY"
            )
    if found and "entity" not in found:
        raise OptionError(
            "a table needs OPTIONS (entity 'orders'): for a path or LOCATION Spark would "
            "create a directory"
        )
    return found


@cache
def _tell_renamed(old: str, new: str) -> None:
    """Once in a process."""
    log.warning("option %s is now called %s, whose value Spark hides", old, new)

"""The options of a write, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from shardbus_spark.address import Address
from shardbus_spark.errors import OptionError
from shardbus_spark.options import ENTITY_MISSING, OF_ADDRESSES, Values, is_number
from shardbus_spark.options import KNOWN as KNOWN_OF_SOURCES

KNOWN: Final[dict[str, str]] = {
    **{name: KNOWN_OF_SOURCES[name] for name in OF_ADDRESSES},
    "entity": "queue or topic",
    "path": "the same as entity: save('orders')",
    "transactionId": "batch only: a write with an id that was already written does nothing",
    "txnAppId": "batch only: application that counts its writes with txnVersion, as with Delta",
    "txnVersion": "batch only: a write whose version is not above the last of its txnAppId is "
    "skipped",
    "producerName": "streams only: prefix of the query's id in the name of the producer",
    "waitMs": "how long a task waits for a place, or for an unavailable bus (900000)",
    "onRepeatedBatch": "other rows under a written number: fail, or skip (default with txnAppId)",
}

FAIL: Final = "fail"
SKIP: Final = "skip"
VERSION_MAX: Final = 1 << 62
WAIT_MS_DEFAULT: Final = 900_000
# The bus allows 256 characters for a producer, of which we need some: the id of a query has 36.
NAMES_MAX: Final = {"transactionId": 250, "txnAppId": 252, "producerName": 219}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How to write; checked."""

    address: Address
    task_access_s: int
    entity: str
    transaction_id: str
    producer: str
    app_id: str
    app_version: int
    skips_repeated: bool
    wait_s: float

    def for_tasks(self) -> SinkOptions:
        """The same with a token for the entity instead of a key, to be pickled for tasks."""
        return replace(self, address=self.address.for_tasks(self.entity, self.task_access_s))


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The given options, names in any case; OptionError with the name of an invalid one."""
    values = Values(given, KNOWN)
    entity = values.text("entity") or values.text("path")
    if not entity:
        raise OptionError(ENTITY_MISSING.format("save"))
    for name, most in NAMES_MAX.items():
        # Checked now, and not when all rows are on the bus and only to be published.
        if len(values.text(name)) > most:
            raise OptionError(
                f"{name} has {len(values.text(name))} characters; at most {most} are allowed: "
                "shorten it"
            )
    app_id, version = _app(values)
    otherwise = SKIP if app_id else FAIL
    options = SinkOptions(
        address=values.address(),
        task_access_s=values.task_access_s(),
        entity=entity,
        transaction_id=values.text("transactionId"),
        producer=values.text("producerName"),
        app_id=app_id,
        app_version=version,
        skips_repeated=values.choice("onRepeatedBatch", (FAIL, SKIP), otherwise) == SKIP,
        wait_s=values.number("waitMs", WAIT_MS_DEFAULT) / 1000,
    )
    options.address.location()
    return options


def _app(values: Values) -> tuple[str, int]:
    """The txnAppId and its txnVersion; empty and 0 without them."""
    app_id, version = values.text("txnAppId"), values.text("txnVersion")
    if bool(app_id) != bool(version):
        raise OptionError("txnAppId and txnVersion go together: give both, or neither")
    if app_id and values.text("transactionId"):
        raise OptionError("transactionId and txnAppId exclude each other: give one of them")
    if version and not (is_number(version) and int(version) < VERSION_MAX):
        raise OptionError(f"txnVersion is {version!r}; it must be a non-negative whole number")
    return app_id, int(version or 0)

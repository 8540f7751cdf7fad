"""The options of a write, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from shardbus_spark.address import Address
from shardbus_spark.errors import OptionError
from shardbus_spark.options import ENTITY_MISSING, OF_ADDRESSES, Values
from shardbus_spark.options import KNOWN as KNOWN_OF_SOURCES

KNOWN: Final[dict[str, str]] = {
    **{name: KNOWN_OF_SOURCES[name] for name in OF_ADDRESSES},
    "entity": "queue or topic",
    "path": "the same as entity: save('orders')",
    "transactionId": "batch only: a write with an id that was written before does nothing",
    "producerName": "streams only: goes before the query's id in the name of the producer",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How to write; checked."""

    address: Address
    task_access_s: int
    entity: str
    transaction_id: str
    producer: str

    def for_tasks(self) -> SinkOptions:
        """The same with a token for the entity instead of a key: what is pickled for tasks."""
        return replace(self, address=self.address.for_tasks(self.entity, self.task_access_s))


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options that were given, names in any case; OptionError, which names the bad one."""
    values = Values(given, KNOWN)
    entity = values.text("entity") or values.text("path")
    if not entity:
        raise OptionError(ENTITY_MISSING.format("save"))
    options = SinkOptions(
        address=values.address(),
        task_access_s=values.task_access_s(),
        entity=entity,
        transaction_id=values.text("transactionId"),
        producer=values.text("producerName"),
    )
    options.address.location()
    return options

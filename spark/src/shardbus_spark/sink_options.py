"""The options of a write, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shardbus_spark.address import Address, address_from
from shardbus_spark.errors import OptionError
from shardbus_spark.options import KNOWN as KNOWN_OF_SOURCES
from shardbus_spark.options import Values

KNOWN: Final[dict[str, str]] = {
    **{
        name: KNOWN_OF_SOURCES[name]
        for name in ("endpoint", "connectionString", "keyName", "key", "token", "tlsCa")
    },
    "entity": "queue or topic",
    "path": "the same as entity: save('orders')",
    "transactionId": "batch only: a write with an id that was written before does nothing",
    "producerName": "streams only: goes before the query's id in the name of the producer",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How to write; checked."""

    address: Address
    entity: str
    transaction_id: str
    producer: str


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options that were given, names in any case; OptionError, which names the bad one."""
    values = Values(given, KNOWN)
    entity = values.text("entity") or values.text("path")
    if not entity:
        raise OptionError("entity is missing: option('entity', 'orders'), or save('orders')")
    options = SinkOptions(
        address=address_from(
            values.text("endpoint"),
            connection_string=values.text("connectionString"),
            key_name=values.text("keyName"),
            key=values.text("key"),
            token=values.text("token"),
            ca_file=values.text("tlsCa"),
        ),
        entity=entity,
        transaction_id=values.text("transactionId"),
        producer=values.text("producerName"),
    )
    options.address.location()
    return options

"""The connector's list of columns and the bus's: the connector may not import the other."""

from shardbus.core.message_fields import SENT_COLUMNS
from shardbus.gateway.flight.reading import schema as lane
from shardbus_spark.schema import AMQP_COLUMN, COLUMNS, EXTRA_COLUMNS, RECORD_COLUMNS, WRITTEN

# What Spark calls the types of the lane.
TYPES = {
    "int32": "int",
    "int64": "bigint",
    "string": "string",
    "binary": "binary",
    "timestamp[us, tz=UTC]": "timestamp",
    "map<string, string>": "map<string,string>",
}


def test_the_connector_has_the_columns_of_the_lane_with_their_types() -> None:
    pairs = (
        (COLUMNS, lane.COLUMNS),
        (EXTRA_COLUMNS, lane.EXTRA_COLUMNS),
        (RECORD_COLUMNS, lane.RECORD_COLUMNS),
    )
    for ours, theirs in pairs:
        assert [(name, kind.simpleString()) for name, kind in ours.items()] == [
            (name, TYPES[str(kind)]) for name, kind in theirs.items()
        ]


def test_the_connector_writes_what_the_lane_takes() -> None:
    assert set(WRITTEN) == {"body", "properties", AMQP_COLUMN, *SENT_COLUMNS}

"""The metric readings of gateways, and their names."""

from __future__ import annotations

from typing import Final, final

LINKS: Final = "shardbus_amqp_links"
AMQP_MESSAGES: Final = "shardbus_amqp_messages_total"
AMQP_REFUSED: Final = "shardbus_amqp_refused_total"
AMQP_REQUESTS: Final = "shardbus_amqp_requests_total"
THROTTLED: Final = "shardbus_throttled_requests_total"
TOKENS_REFUSED: Final = "shardbus_tokens_refused_total"
WRONG_KEYS: Final = "shardbus_wrong_keys_total"
GUESSERS_TURNED_AWAY: Final = "shardbus_guessers_turned_away_total"
TRANSACTIONS: Final = "shardbus_transactions_total"
FORWARDED: Final = "shardbus_forwarded_messages_total"
FLIGHT_UP: Final = "shardbus_flight_up"
CLUSTER_NODES: Final = "shardbus_cluster_brokers"
CLUSTER_SLOTS: Final = "shardbus_cluster_slots"
CLUSTER_SLOTS_FREE: Final = "shardbus_cluster_slots_free"
CLUSTER_SNAPSHOT_MS: Final = "shardbus_cluster_oldest_snapshot_milliseconds"
CLUSTER_PARKED: Final = "shardbus_cluster_parked_requests"
CLUSTER_MOVES: Final = "shardbus_cluster_slot_moves_total"
CLUSTER_LAG: Final = "shardbus_cluster_standby_lag_bytes"


@final
class MetricReading:
    """One present value; `labels` distinguish it from others of its name."""

    def __init__(self, name: str, value: float, **labels: str) -> None:
        self.name = name
        self.value = value
        self.labels = labels

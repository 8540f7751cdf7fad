"""What an owner may configure about a connection; the defaults are what the service advertises."""

from dataclasses import dataclass

from shardbus.codec.types import Value


@dataclass(frozen=True)
class ConnectionConfig:
    """What is negotiated in `open` and `begin`, and the bounds on what a peer may cost.

    `max_frame_size` is what we announce; frames that we send obey the peer's limit too. Frames of
    up to `accepted_frame_size` are accepted all the same, from peers that do not split
    dispositions. `idle_timeout_ms` is what we advertise: a peer that is silent for twice as long is
    dropped; 0 means never. `unsettled_max` bounds the unsettled deliveries of one session in each
    direction. `buffered_bytes_max` bounds each of: input that waits, unfinished deliveries, and
    transfers that wait for the peer's session window.
    """

    container_id: str = "shardbus"
    hostname: str = ""
    max_frame_size: int = 65_536
    accepted_frame_size: int = 262_144
    channel_max: int = 4_999
    handle_max: int = 255
    idle_timeout_ms: int = 240_000
    incoming_window: int = 4_096
    outgoing_window: int = 65_536
    links_max: int = 5_000
    unsettled_max: int = 16_384
    buffered_bytes_max: int = 128 * 1024 * 1024
    max_message_size: int = 1_048_576
    # Server: the mechanisms offered, in order; empty means that SASL is not spoken.
    sasl_mechanisms: tuple[str, ...] = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
    # Server: whether a client must use SASL. The JavaScript SDK skips SASL when it has a token and
    # no key, and puts the token to `$cbs` as after ANONYMOUS.
    sasl_required: bool = False
    # Client: the mechanism to choose and its initial response; "" means no SASL layer.
    sasl_mechanism: str = "ANONYMOUS"
    sasl_response: bytes = b""
    properties: dict[str, Value] | None = None

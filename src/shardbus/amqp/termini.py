"""Where a link starts and ends: source, target and the transaction coordinator."""

from typing import TypeAlias, final

from shardbus.amqp.types import Value


@final
class Source:
    """Where messages come from. Set the attributes that matter; the rest keep their defaults."""

    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout_s: int = 0
    dynamic: bool = False
    distribution_mode: str | None = None
    # filter: symbol -> value; kept as decoded, keys as text.
    filters: dict[str, Value] | None = None
    capabilities: list[str] | None = None


@final
class Target:
    """Where messages go to."""

    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout_s: int = 0
    dynamic: bool = False
    capabilities: list[str] | None = None


@final
class Coordinator:
    """The target of a link that declares and discharges transactions."""

    capabilities: list[str] | None = None


Terminus: TypeAlias = Source | Target | Coordinator


def encode_terminus(terminus: Terminus | None) -> bytes:
    """The described terminus, at least its first field written, or null."""
    raise NotImplementedError


def decode_terminus(raw: bytes) -> Terminus | None:
    """The terminus in `raw`, None for null. Raises DecodeError."""
    raise NotImplementedError

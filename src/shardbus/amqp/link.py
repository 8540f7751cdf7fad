"""A link: one direction of messages inside a session, with credit and settlement."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from shardbus.amqp.events import Event
from shardbus.amqp.outcomes import AmqpError, DeliveryState
from shardbus.amqp.termini import Coordinator, Source, Target
from shardbus.amqp.types import Value

if TYPE_CHECKING:
    from shardbus.amqp.session import AmqpSession


@final
class Link:
    """One link, seen from our end: `is_sender` says that we send on it.

    `remote_source` and `remote_target` are what the peer's attach said, `*_raw` their encoded
    bytes; `properties` are the peer's, keys as text. `context` is free for the owner.
    """

    context: object | None
    session: "AmqpSession"
    name: str
    is_sender: bool
    snd_settle_mode: int
    rcv_settle_mode: int
    max_message_size: int
    remote_max_message_size: int
    remote_source: Source | None
    remote_target: Target | Coordinator | None
    remote_source_raw: bytes
    remote_target_raw: bytes
    properties: dict[str, Value]
    credit: int
    drain: bool
    delivery_count: int

    @property
    def is_attached(self) -> bool:
        """Both ends have attached and neither has detached."""
        raise NotImplementedError

    @property
    def sendable(self) -> int:
        """How many messages may be sent now: credit, as far as the session window lets them out."""
        raise NotImplementedError

    @property
    def unsettled_count(self) -> int:
        """How many deliveries of this link neither end has settled yet."""
        raise NotImplementedError

    def accept(
        self,
        *,
        source: bytes | Source | None = None,
        target: bytes | Target | Coordinator | None = None,
        max_message_size: int = 0,
        properties: dict[str, Value] | None = None,
    ) -> list[Event]:
        """Answer the peer's attach; returns the events (flow, deliveries) that waited for it.

        Termini that are not given are echoed byte for byte (and never null). `max_message_size`
        0 takes the connection's. A link that was detached meanwhile is left alone.
        """
        raise NotImplementedError

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with null termini and detach(closed, error) in one output."""
        raise NotImplementedError

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """End the link; does nothing when either end has detached already."""
        raise NotImplementedError

    def send(
        self,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int = 0,
        state: DeliveryState | None = None,
    ) -> int:
        """Send one message and return its delivery-id; takes one credit.

        Raises UsageError without credit, when detached, or past the bound on waiting bytes.
        """
        raise NotImplementedError

    def drained(self) -> None:
        """Use up the remaining credit and tell the peer (flow with drain=true, credit 0)."""
        raise NotImplementedError

    def confirm(self, ids: Sequence[int], state: DeliveryState | None) -> None:
        """Settle deliveries we sent: role=sender, settled=true, ids coalesced into ranges.

        Ids that are settled already are left out.
        """
        raise NotImplementedError

    def grant(self, credit: int, drain: bool = False) -> None:
        """Let the peer send `credit` more messages from now; no flow when it may already."""
        raise NotImplementedError

    def settle(self, ids: Sequence[int], state: DeliveryState | None, settled: bool = True) -> None:
        """Give deliveries we received their outcome: role=receiver, ids coalesced into ranges.

        With `settled` false the peer confirms by a SettlementsReceived.
        """
        raise NotImplementedError

"""An AMQP session: a pair of channels with windows, delivery-ids and links."""

from typing import TYPE_CHECKING, final

from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import AmqpError
from shardbus.amqp.termini import Coordinator, Source, Target
from shardbus.amqp.types import Value

if TYPE_CHECKING:
    from shardbus.amqp.connection import Connection


@final
class AmqpSession:
    """One session. `channel` is ours, `remote_channel` the peer's (-1 before its begin)."""

    context: object | None
    connection: "Connection"
    channel: int
    remote_channel: int

    @property
    def links(self) -> list[Link]:
        """The links that are attached or about to be."""
        raise NotImplementedError

    def attach_sender(
        self,
        name: str,
        *,
        target: str | Target | Coordinator,
        source: str | Source | None = None,
        snd_settle_mode: int = 2,
        properties: dict[str, Value] | None = None,
    ) -> Link:
        """Attach a link we send on; LinkOpened or LinkDetached answers."""
        raise NotImplementedError

    def attach_receiver(
        self,
        name: str,
        *,
        source: str | Source,
        target: str | Target | None = None,
        settle_modes: tuple[int, int] = (2, 0),
        properties: dict[str, Value] | None = None,
    ) -> Link:
        """Attach a link we receive on; `settle_modes` are (sender's, receiver's)."""
        raise NotImplementedError

    def end(self, error: AmqpError | None = None) -> None:
        """End the session and its links; does nothing when either end has ended already."""
        raise NotImplementedError

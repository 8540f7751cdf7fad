"""The events that `Connection.receive` returns, in the order in which they happened."""

from typing import TYPE_CHECKING, Final, TypeAlias, final

from mypy_extensions import mypyc_attr

from shardbus.amqp.outcomes import AmqpError, DeliveryState

if TYPE_CHECKING:
    from shardbus.amqp.link import Link
    from shardbus.amqp.session import AmqpSession


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class IncomingDelivery:
    """One whole message as the peer sent it."""

    __match_args__: Final = ("delivery_id", "tag", "payload")

    def __init__(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int,
        state: DeliveryState | None,
    ) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.payload = payload
        self.settled = settled
        self.message_format = message_format
        self.state = state


@final
class SaslInitReceived:
    """Server: the client chose an offered mechanism; answer with `Connection.sasl_outcome`."""

    __match_args__: Final = ("mechanism", "response", "hostname")

    def __init__(self, mechanism: str, response: bytes, hostname: str) -> None:
        self.mechanism = mechanism
        self.response = response
        self.hostname = hostname


@final
class SaslFailed:
    """Client: the server refused; `code` is its outcome code, -1 when it does not offer our
    mechanism.
    """

    __match_args__: Final = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


@final
class ConnectionOpened:
    """Opens were exchanged; what the peer said is on the connection (`remote_open`)."""


@final
class ConnectionClosed:
    """The connection has ended: the last event. `error` is None after a clean close.

    Write the remaining output, then close the transport.
    """

    __match_args__: Final = ("error",)

    def __init__(self, error: AmqpError | None) -> None:
        self.error = error


@final
class SessionBegun:
    """A session has begun: the peer began it (already answered), or answered our own begin."""

    __match_args__: Final = ("session",)

    def __init__(self, session: "AmqpSession") -> None:
        self.session = session


@final
class SessionEnded:
    """A session has ended, whoever ended it; its links were reported as detached before."""

    __match_args__: Final = ("session", "error")

    def __init__(self, session: "AmqpSession", error: AmqpError | None) -> None:
        self.session = session
        self.error = error


@final
class LinkAttached:
    """The peer attached: answer `link.accept(...)` or `link.refuse(...)`, now or later."""

    __match_args__: Final = ("link",)

    def __init__(self, link: "Link") -> None:
        self.link = link


@final
class LinkOpened:
    """Our own attach was answered with a terminus. A refusal is a LinkDetached instead."""

    __match_args__: Final = ("link",)

    def __init__(self, link: "Link") -> None:
        self.link = link


@final
class LinkDetached:
    """A link has ended. Exactly one for every link, whoever ended it and however.

    After our own `detach` or `refuse` it comes with the peer's answer; the end of the session or
    connection causes it too. The unsettled deliveries of the link are forgotten here.
    """

    __match_args__: Final = ("link", "error", "closed")

    def __init__(self, link: "Link", error: AmqpError | None, closed: bool) -> None:
        self.link = link
        self.error = error
        self.closed = closed


@final
class LinkFlowed:
    """The peer's receiver changed `link.credit` or `link.drain`, or the peer answered our drain."""

    __match_args__: Final = ("link",)

    def __init__(self, link: "Link") -> None:
        self.link = link


@final
class DeliveriesReceived:
    """Consecutive messages on one link."""

    __match_args__: Final = ("link", "deliveries")

    def __init__(self, link: "Link", deliveries: list[IncomingDelivery]) -> None:
        self.link = link
        self.deliveries = deliveries


@final
class SettlementsReceived:
    """The peer gave `state` to deliveries of one link; consecutive dispositions are grouped.

    On a link we send on: the receiver's outcome; with `settled` false it awaits `link.confirm`.
    On a link we receive on: the sender's answer to `link.settle(..., settled=False)`.
    `tags` runs parallel to `ids`. Settled deliveries are already forgotten by the engine.
    """

    __match_args__: Final = ("link", "ids", "tags", "state", "settled")

    def __init__(
        self,
        link: "Link",
        ids: list[int],
        tags: list[bytes],
        state: DeliveryState | None,
        settled: bool,
    ) -> None:
        self.link = link
        self.ids = ids
        self.tags = tags
        self.state = state
        self.settled = settled


Event: TypeAlias = (
    SaslInitReceived
    | SaslFailed
    | ConnectionOpened
    | ConnectionClosed
    | SessionBegun
    | SessionEnded
    | LinkAttached
    | LinkOpened
    | LinkDetached
    | LinkFlowed
    | DeliveriesReceived
    | SettlementsReceived
)

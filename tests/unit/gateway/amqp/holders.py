"""Clients that hold sessions, and what they were told about them."""

from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import DeliveryState, Rejected
from shardbus.codec.types import Value
from shardbus.message.sections import encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import SESSION_FILTER, Client

LOST = "com.microsoft:session-lock-lost"
TICKS_OF_1970 = 621_355_968_000_000_000


def session_of(link: Link) -> Value:
    """The session that the server says it granted."""
    assert link.remote_source is not None
    assert link.remote_source.filters is not None
    return link.remote_source.filters[SESSION_FILTER]


def locked_until_ms(link: Link) -> int:
    ticks = link.properties["com.microsoft:locked-until-utc"]
    # A plain int is an AMQP long, as Java's and .NET's casts demand.
    assert type(ticks) is int
    return (ticks - TICKS_OF_1970) // 10_000


def accepted(bench: Bench, queue: str, session_id: Value = None, credit: int = 0) -> Client:
    """A client that holds a session."""
    client = bench.client()
    link = client.session_receiver(queue, session_id, credit)
    bench.pass_s()
    assert client.is_opened(link)
    return client


def link_of(client: Client) -> Link:
    [link] = client.session.links
    return link


def message_of_one(content: bytes) -> bytes:
    return encode_data_message(content, session_id="one")


def condition_of(state: DeliveryState | None) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition

"""Links: attach and detach, credit and drain."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.events import LinkDetached, LinkFlowed, LinkOpened
from shardbus.amqp.outcomes import (
    AmqpError,
)
from shardbus.amqp.performatives import (
    Flow,
    encode_detach,
    encode_end,
)
from shardbus.amqp.termini import Coordinator, Source, Target
from shardbus.codec import errors
from shardbus.codec.errors import UsageError
from shardbus.codec.types import Described, Symbol, Ulong
from tests.unit.amqp.bare import Bare, credit_flow, receiver_attach, sender_attach, transfer
from tests.unit.amqp.frames_seen import error_of, names, seen
from tests.unit.amqp.wire import (
    Lane,
    Wire,
    deliveries,
    detachments,
    kinds,
)

TAG = bytes(range(16))


def test_an_attach_reply_echoes_the_termini_byte_for_byte() -> None:
    """Python compares the echoed address with the one it sent."""
    bare = Bare()
    attach = receiver_attach(3)
    attach.source = bytes.fromhex("005328d00000000a00000001b10000000161")
    attach.target = bytes.fromhex("005329c00401a10162")
    attach.snd_settle_mode = 0
    attach.rcv_settle_mode = 1
    link = bare.attach(attach)

    assert link.accept(max_message_size=1_000, properties={"a": 1}) == []

    output = bare.server.take_output()
    assert attach.source in output
    assert attach.target in output
    (reply,) = seen(output)
    assert (reply.field(0), reply.field(1), reply.field(2)) == ("receiver-3", 3, False)
    assert (reply.field(3), reply.field(4)) == (0, 1)
    assert (reply.field(9), reply.field(10)) == (0, 1_000)
    assert reply.field(13) == {Symbol("a"): 1}
    assert isinstance(link.remote_source, Source)
    assert (link.remote_source.address, link.is_sender) == ("a", True)


@pytest.mark.parametrize("empty", [None, "00532945", "005329c00100", "005329d00000000400000000"])
def test_an_empty_terminus_is_answered_by_one_that_is_not(empty: str | None) -> None:
    """Python drops a link whose terminus is null or an empty list."""
    bare = Bare()
    attach = sender_attach()
    attach.target = None if empty is None else bytes.fromhex(empty)
    link = bare.attach(attach)

    link.accept()

    (reply,) = seen(bare.server.take_output())
    assert reply.fields[6] == Described(Ulong(0x29), [None])


def test_the_owner_may_answer_with_termini_of_its_own() -> None:
    """A session receiver is told which session it got."""
    bare = Bare()
    link = bare.attach(receiver_attach())
    source = Source()
    source.address = "queue"
    source.filters = {"com.microsoft:session-filter": "session"}

    link.accept(source=source, properties={"com.microsoft:locked-until-utc": 5})

    (reply,) = seen(bare.server.take_output())
    assert isinstance(reply.fields[5], Described)
    fields = reply.fields[5].value
    assert isinstance(fields, list)
    assert fields[0] == "queue"
    assert fields[7] == {Symbol("com.microsoft:session-filter"): "session"}


def test_a_refusal_is_attach_with_null_termini_and_detach_in_one_output() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach(1))

    link.refuse(AmqpError("amqp:not-found", "no such entity"))

    attach, detach = seen(bare.server.take_output())
    assert (attach.name, attach.field(5), attach.field(6)) == ("attach", None, None)
    assert (detach.name, detach.field(0), detach.field(1)) == ("detach", 1, True)
    assert error_of(detach) == "amqp:not-found"
    assert bare.tell(encode_detach(1, True, None)) == ["LinkDetached"]
    assert bare.server.take_output() == b""


def test_a_refused_client_hears_of_it_once() -> None:
    wire = Wire().open()
    session = wire.client.begin_session()
    session.attach_receiver("receiver", source="nowhere")
    wire.run()
    wire.attached()[0].refuse(AmqpError("amqp:not-found", "gone"))
    wire.forget()
    wire.run()

    (event,) = wire.client_events
    assert isinstance(event, LinkDetached)
    assert event.error == AmqpError("amqp:not-found", "gone")
    assert session.links == []
    assert kinds(wire.server_events) == ["LinkDetached"]


def test_flow_and_deliveries_wait_for_the_answer_to_an_attach() -> None:
    """The answer may be a long poll away."""
    bare = Bare()
    outlet = bare.attach(receiver_attach(0))
    inlet = bare.attach(sender_attach(1))

    assert bare.tell(credit_flow(10, handle=0)) == []
    assert bare.tell(transfer(b"early", handle=1)) == []
    assert outlet.sendable == 0
    with pytest.raises(UsageError):
        outlet.send(TAG, b"x", True)

    flowed = outlet.accept()
    delivered = inlet.accept()

    assert kinds(flowed) == ["LinkFlowed"]
    assert outlet.sendable == 10
    assert [delivery.payload for delivery in deliveries(delivered)] == [b"early"]


def test_a_peer_that_leaves_before_the_answer_gets_attach_and_detach() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach(0))

    assert bare.tell(encode_detach(0, True, None)) == ["LinkDetached"]

    assert names(bare.server.take_output()) == ["attach", "detach"]
    assert link.accept() == []
    link.refuse(AmqpError("amqp:not-found"))
    link.detach()
    assert bare.server.take_output() == b""


def test_a_session_that_ends_before_the_answer_takes_its_links_along() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach(0))
    bare.tell(credit_flow(10, handle=0))

    assert bare.tell(encode_end(None)) == ["LinkDetached", "SessionEnded"]

    bare.server.take_output()
    assert link.accept() == []
    link.refuse(AmqpError("amqp:not-found"))
    assert bare.server.take_output() == b""


def test_a_detach_that_comes_after_the_end_of_its_session_is_harmless() -> None:
    """The Python SDK detaches its management links when it has ended their session."""
    bare = Bare()
    bare.attach(receiver_attach(0)).accept()
    bare.tell(encode_end(None))
    bare.server.take_output()

    assert bare.tell(encode_detach(0, False, None)) == []
    assert bare.tell(credit_flow(1, handle=0)) == ["ConnectionClosed"]


def test_a_drain_that_came_before_the_answer_is_answered_after_it() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach(0))

    assert bare.tell(credit_flow(3, handle=0, drain=True)) == []
    events = link.accept()
    bare.server.take_output()
    link.drained()

    assert kinds(events) == ["LinkFlowed"]
    [answer] = seen(bare.server.take_output())
    assert answer.name == "flow"
    assert (answer.field(5), answer.field(6), answer.field(8)) == (3, 0, True)


def test_a_detach_is_answered_once_and_the_handle_is_free_again() -> None:
    lane = Lane()
    lane.sender.detach(AmqpError("amqp:internal-error", "x"))
    lane.run()

    (event,) = detachments(lane.server_events)
    assert (event.link, event.closed) == (lane.inlet, True)
    assert event.error == AmqpError("amqp:internal-error", "x")
    assert len(detachments(lane.client_events)) == 1
    lane.inlet.detach()
    lane.sender.detach()
    assert lane.server.take_output() == b""

    again = lane.session.attach_sender("sender", target="queue")
    lane.run()
    assert again.handle == lane.sender.handle
    assert lane.attached()[0].name == "sender"


def test_crossing_detaches_are_not_answered_twice() -> None:
    """A second detach makes JavaScript drop the connection."""
    lane = Lane()
    lane.sender.detach()
    lane.inlet.detach(AmqpError("amqp:link:detach-forced", "idle"))
    to_server, to_client = lane.client.take_output(), lane.server.take_output()
    assert names(to_server) == names(to_client) == ["detach"]

    server_events = lane.server.receive(to_server, 0)
    client_events = lane.client.receive(to_client, 0)

    assert kinds(server_events) == kinds(client_events) == ["LinkDetached"]
    assert lane.client.take_output() == lane.server.take_output() == b""


def test_frames_for_a_link_we_detached_are_ignored_until_the_peer_knows() -> None:
    lane = Lane()
    lane.inlet.grant(10)
    lane.run()
    lane.forget()
    lane.inlet.detach()
    lane.sender.send(TAG, b"late", False)
    lane.run()

    assert kinds(lane.server_events) == ["LinkDetached"]
    assert lane.server.is_open


def test_detaching_before_the_answer_is_clean() -> None:
    wire = Wire().open()
    session = wire.client.begin_session()
    link = session.attach_sender("early", target="queue")
    link.detach()
    wire.run()
    assert kinds(wire.server_events)[-1] == "LinkDetached"
    wire.attached()[0].accept()
    wire.run()

    assert kinds(wire.client_events)[-1] == "LinkDetached"
    assert session.links == []
    assert wire.client.is_open


def test_credit_follows_the_receivers_delivery_count() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach())
    link.accept()
    assert bare.tell(credit_flow(5)) == ["LinkFlowed"]
    for _ in range(3):
        link.send(TAG, b"x", True)
    assert (link.credit, link.delivery_count) == (2, 3)

    # The receiver has not seen them yet: five from delivery-count 0 leaves two from three.
    assert bare.tell(credit_flow(5)) == []
    assert link.credit == 2
    assert bare.tell(credit_flow(8)) == ["LinkFlowed"]
    assert link.credit == 5
    assert bare.tell(credit_flow(1)) == ["LinkFlowed"]
    assert link.credit == 0


def test_a_flow_without_a_delivery_count_means_the_initial_one() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach())
    link.accept()
    flow = Flow()
    flow.incoming_window = 100
    flow.handle = 0
    flow.link_credit = 4

    assert bare.tell(flow.encode()) == ["LinkFlowed"]
    assert link.sendable == 4


def test_sending_without_credit_is_a_mistake_of_the_caller() -> None:
    lane = Lane()
    with pytest.raises(UsageError):
        lane.sender.send(TAG, b"x", False)
    with pytest.raises(UsageError):
        lane.receiver.send(TAG, b"x", False)

    lane.inlet.grant(1)
    lane.run()
    with pytest.raises(UsageError):
        lane.sender.send(bytes(33), b"x", False)
    lane.sender.send(TAG, b"x", False)
    with pytest.raises(UsageError):
        lane.sender.send(TAG, b"x", False)


def test_a_drain_is_answered_with_the_credit_used_up() -> None:
    """JavaScript closes the link when the answer does not come."""
    bare = Bare()
    link = bare.attach(receiver_attach())
    link.accept()
    bare.tell(credit_flow(10))
    bare.server.take_output()
    link.send(TAG, b"x", True)

    assert bare.tell(credit_flow(10, drain=True, echo=True)) == ["LinkFlowed"]
    assert (link.drain, link.credit) == (True, 9)
    link.drained()

    frames = seen(bare.server.take_output())
    assert [frame.name for frame in frames] == ["transfer", "flow"]
    flow = frames[1]
    assert (flow.field(4), flow.field(5), flow.field(6)) == (0, 10, 0)
    assert flow.field(8) is True
    assert (link.drain, link.credit, link.delivery_count) == (False, 0, 10)


def test_a_drain_without_credit_is_reported_and_answered_too() -> None:
    """Python drains with zero credit when it closes."""
    bare = Bare()
    link = bare.attach(receiver_attach())
    link.accept()
    bare.server.take_output()

    assert bare.tell(credit_flow(0, drain=True)) == ["LinkFlowed"]
    link.drained()

    (flow,) = seen(bare.server.take_output())
    assert (flow.field(6), flow.field(8)) == (0, True)


def test_our_own_drain_is_reported_when_it_is_answered() -> None:
    lane = Lane()
    lane.receiver.grant(10)
    lane.run()
    lane.receiver.grant(10, drain=True)
    lane.run()
    assert lane.outlet.drain
    lane.forget()
    lane.outlet.drained()
    lane.run()

    assert kinds(lane.client_events) == ["LinkFlowed"]
    assert (lane.receiver.credit, lane.receiver.drain) == (0, False)


def test_an_echo_is_answered_by_the_engine() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach())
    link.accept()
    bare.server.take_output()

    bare.tell(credit_flow(3, echo=True))
    (link_flow,) = seen(bare.server.take_output())
    assert (link_flow.field(4), link_flow.field(6)) == (0, 3)

    session_echo = Flow()
    session_echo.echo = True
    session_echo.incoming_window = 5
    assert bare.tell(session_echo.encode()) == []
    (flow,) = seen(bare.server.take_output())
    assert (flow.name, flow.field(4)) == ("flow", None)


def test_granting_the_same_credit_again_says_nothing() -> None:
    lane = Lane()
    lane.inlet.grant(10)
    lane.inlet.grant(10)
    assert names(lane.server.take_output()) == ["flow"]
    lane.inlet.grant(-5)
    (flow,) = seen(lane.server.take_output())
    assert flow.field(6) == 0


def test_a_senders_idea_of_its_own_credit_is_ignored() -> None:
    """The Python SDK sends link-credit 10000 on its sender links."""
    bare = Bare()
    link = bare.attach(sender_attach())
    link.accept()
    link.grant(100)
    bare.server.take_output()

    assert bare.tell(credit_flow(10_000)) == []

    assert link.credit == 100


def test_more_deliveries_than_credit_are_not_punished() -> None:
    """The Python SDK resets its own credit."""
    bare = Bare()
    link = bare.attach(sender_attach())
    link.accept()
    link.grant(1)
    for number in range(5):
        bare.tell(transfer(b"x", delivery_id=number))

    assert link.credit == 0
    assert link.unsettled_count == 5
    assert bare.server.is_open


def test_too_many_links_are_refused_and_then_the_connection() -> None:
    few = ConnectionConfig(sasl_required=False, idle_timeout_ms=0, links_max=2)
    bare = Bare(few)
    for handle in range(2):
        bare.attach(sender_attach(handle)).accept()
    bare.server.take_output()

    assert bare.tell(sender_attach(2).encode()) == []
    frames = seen(bare.server.take_output())
    assert [frame.name for frame in frames] == ["attach", "detach"]
    assert error_of(frames[1]) == errors.RESOURCE_LIMIT_EXCEEDED
    assert bare.tell(encode_detach(2, True, None)) == []
    bare.tell(sender_attach(3).encode())
    bare.tell(sender_attach(4).encode())
    assert bare.tell(sender_attach(5).encode())[-1] == "ConnectionClosed"


def test_a_coordinator_is_a_target() -> None:
    wire = Wire().open()
    coordinator = Coordinator()
    coordinator.capabilities = ["amqp:local-transactions"]
    wire.client.begin_session().attach_sender("coordinator", target=coordinator)
    wire.run()

    assert isinstance(wire.attached()[0].remote_target, Coordinator)


def test_a_target_for_a_source_is_an_error() -> None:
    bare = Bare()
    attach = receiver_attach()
    attach.source = bytes.fromhex("005329c0020140")

    assert bare.tell(attach.encode()) == ["SessionEnded", "ConnectionClosed"]
    assert bare.server.is_closed
    assert error_of(seen(bare.server.take_output())[-1]) == errors.DECODE_ERROR


def test_the_opener_learns_the_answer() -> None:
    wire = Wire().open()
    session = wire.client.begin_session()
    target = Target()
    target.address = "queue"
    link = session.attach_sender("sender", target=target, properties={"p": 1})
    wire.run()
    (asked,) = wire.attached()
    assert asked.properties == {"p": 1}
    asked.accept(max_message_size=262_144, properties={"q": 2})
    asked.grant(1)
    wire.forget()
    wire.run()

    opened, flowed = wire.client_events
    assert isinstance(opened, LinkOpened)
    assert isinstance(flowed, LinkFlowed)
    assert link.is_attached
    assert link.remote_max_message_size == 262_144
    assert link.properties == {"q": 2}

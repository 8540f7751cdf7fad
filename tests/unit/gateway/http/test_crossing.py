"""Messages cross over: what HTTP sends AMQP receives, and the other way round (R33)."""

import json
from uuid import UUID

import pytest

from shardbus.amqp.outcomes import Modified
from shardbus.broker.forwarding.forwarder import Forwarder
from shardbus.codec.encoder import encode
from shardbus.codec.types import (
    Described,
    Float,
    Int,
    Map,
    Symbol,
    Timestamp,
    Ubyte,
    Ulong,
    Uuid,
    Value,
)
from shardbus.core.namespace.entity import EntitySpec
from shardbus.message.sections import DecodedMessage, decode_message, encode_data_message
from tests.unit.gateway.http.web import Web, broker_properties, header, settle_path

DAY_S = 86_400


def received_over_amqp(web: Web, queue: str = "q") -> DecodedMessage:
    client = web.client()
    link = client.receiver(queue, 1)
    web.pass_s()
    [delivery] = client.received(link)
    web.leave(client)
    return decode_message(delivery.payload)


def send_over_amqp(web: Web, payload: bytes, queue: str = "q") -> None:
    client = web.client()
    link = client.sender(queue)
    web.pass_s()
    client.send_raw(link, payload)
    web.pass_s()
    assert len(client.outcomes(link)) == 1
    web.leave(client)


def section(code: int, value: Value) -> bytes:
    return encode(Described(Ulong(code), value))


def test_amqp_receives_what_http_sent(web: Web) -> None:
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "BrokerProperties": json.dumps(
            {
                "CorrelationId": "c",
                "Label": "l",
                "MessageId": "m",
                "PartitionKey": "p",
                "ReplyTo": "r",
                "ReplyToSessionId": "rs",
                "TimeToLive": 90,
                "To": "t",
                "ViaPartitionKey": "v",
                "Unknown": [1, {"x": 2}],
            }
        ),
        "Text": '"a \\"quoted\\" \\u00fc"',
        "Umlaut": "\u00c3\u00bc",
        "Path": '"C:\\dir"',
        "When": '"Sun, 06 Nov 1994 08:49:37 GMT"',
        "Small": "-5",
        "Large": "5000000000",
        "Larger": "18446744073709551615",
        "Exact": "1.5",
        "Yes": "True",
        "Empty": '""',
    }

    assert web.fetch("POST", "/q/messages", b"\x00\xffbody", headers).status == 201

    message = received_over_amqp(web)
    head = message.head
    assert message.body == b"\x00\xffbody"
    assert (head.content_type, head.correlation_id) == ("text/plain; charset=utf-8", "c")
    assert (head.subject, head.message_id, head.to) == ("l", "m", "t")
    assert (head.partition_key, head.via_partition_key) == ("p", "v")
    assert (head.reply_to, head.reply_to_session_id, head.ttl_ms) == ("r", "rs", 90_000)
    assert message.application_properties == {
        "Text": 'a "quoted" ü',
        "Umlaut": "ü",
        "Path": "C:\\dir",
        "When": Timestamp(784_111_777_000),
        "Small": Int(-5),
        "Large": 5_000_000_000,
        "Larger": Ulong(18446744073709551615),
        "Exact": 1.5,
        "Yes": True,
        "Empty": "",
    }


def test_a_message_without_an_id_gets_one(web: Web) -> None:
    web.send("q")
    web.send("q")

    ids = {broker_properties(web.take("q"))["MessageId"], received_over_amqp(web).head.message_id}

    assert len(ids) == 2
    assert all(isinstance(one, str) and len(one) == 32 for one in ids)


def test_a_long_life_is_said_as_sdks_say_it(web: Web) -> None:
    """Longer than the header can count; R35."""
    web.send("q", b"x", {"TimeToLive": 100 * DAY_S})

    head = received_over_amqp(web).head

    assert head.ttl_ms == 0xFFFFFFFF
    assert head.absolute_expiry_ms - head.creation_time_ms == pytest.approx(
        100 * DAY_S * 1000, abs=99
    )


def test_a_session_of_http_is_received_over_amqp(web: Web) -> None:
    """R11."""
    web.create_sessions("calls", is_partitioned=True)
    for number in range(3):
        web.send("calls", str(number).encode(), {"SessionId": "s"})
    client = web.client()
    link = client.session_receiver("calls", "s", 10)
    web.pass_s()

    assert client.bodies(link) == [b"0", b"1", b"2"]
    web.leave(client)


BODIES: list[tuple[bytes, str, bytes]] = [
    (section(0x75, b"raw"), "application/octet-stream", b"raw"),
    (section(0x75, b"ra") + section(0x75, b"w"), "application/octet-stream", b"raw"),
    (section(0x77, "grüße"), "text/plain; charset=utf-8", "grüße".encode()),
    (section(0x77, b"bin"), "application/octet-stream", b"bin"),
    (section(0x77, Symbol("s")), "application/json; charset=utf-8", b'"s"'),
    (section(0x77, 5), "application/json; charset=utf-8", b"5"),
    (section(0x77, None), "application/octet-stream", b""),
    (section(0x77, {"a": [1, True, None]}), "application/json; charset=utf-8",
     b'{"a": [1, true, null]}'),
    (section(0x77, Map([(1, Float(0.5)), (True, float("nan"))])), "application/json; charset=utf-8",
     b'{"1": 0.5, "true": "nan"}'),
    (section(0x76, [1, "x"]) + section(0x76, [b"y"]), "application/json; charset=utf-8",
     b'[1, "x", "eQ=="]'),
    (section(0x73, ["only-an-id"]), "application/octet-stream", b""),
    (b"\x00\x53\x77\xa1\x02\xff\xff", "application/octet-stream", b"\x00\x53\x77\xa1\x02\xff\xff"),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "content_type", "body"), BODIES)
def test_http_receives_every_kind_of_body(
    web: Web, payload: bytes, content_type: str, body: bytes
) -> None:
    send_over_amqp(web, payload)

    response = web.lock("q")

    assert (response.status, response.content_type, response.body) == (201, content_type, body)
    assert web.fetch("DELETE", settle_path(response)).status == 200


def test_http_receives_the_properties_of_amqp(web: Web) -> None:
    fields: list[Value] = [None] * 13
    fields[0], fields[5] = Ulong(7), Uuid(bytes(16))
    fields[3], fields[6], fields[10] = "subject", Symbol("image/png"), "s"
    properties: dict[Value, Value] = {
        "n": Ubyte(1),
        "u": Uuid(bytes(range(16))),
        "t": Timestamp(784_111_777_000),
        "never": Timestamp(1 << 62),
        "span": Described(Symbol("com.microsoft:timespan"), 5),
        "b": b"\x00",
        "f": Float(0.5),
        "inf": float("inf"),
        "ü": "not a header",
        "Content-Length": "5",
        "Set-Cookie": "x=1",
        "N": "taken but for its case",
        "line": "a\r\nInjected: yes\x7f",
    }
    send_over_amqp(web, section(0x73, fields) + section(0x74, properties) + section(0x75, b"x"))

    response = web.take("q")

    assert response.content_type == "image/png"
    found = broker_properties(response)
    assert (found["MessageId"], found["Label"], found["SessionId"]) == ("7", "subject", "s")
    assert found["CorrelationId"] == "00000000-0000-0000-0000-000000000000"
    headers = dict(response.headers)
    assert headers["n"] == "1"
    assert headers["u"] == '"00010203-0405-0607-0809-0a0b0c0d0e0f"'
    assert headers["t"] == '"Sun, 06 Nov 1994 08:49:37 GMT"'
    assert headers["never"] == str(1 << 62)
    assert (headers["span"], headers["b"], headers["f"]) == ("5", '"AA=="', "0.5")
    assert headers["inf"] == '"inf"'
    assert headers["line"] == '"a\\r\\nInjected: yes\\u007f"'
    assert json.loads(headers["Shardbus-Properties"]) == {
        "ü": "not a header",
        "Content-Length": "5",
        "Set-Cookie": "x=1",
        "N": "taken but for its case",
    }
    assert "Content-Length" not in headers


def test_a_content_type_that_is_no_header_is_not_made_one(web: Web) -> None:
    fields: list[Value] = [None] * 6 + [Symbol("text/html\r\nInjected: yes")]
    send_over_amqp(web, section(0x73, fields) + section(0x75, b"x"))

    assert web.take("q").content_type == "application/octet-stream"


def test_more_properties_than_clients_take_are_counted(web: Web) -> None:
    properties: dict[Value, Value] = {f"p{number}": "x" * 600 for number in range(100)}
    send_over_amqp(web, section(0x74, properties) + section(0x75, b"x"))

    response = web.take("q")

    named = [name for name, _ in response.headers if name.startswith("p")]
    others = json.loads(header(response, "Shardbus-Properties"))
    omitted = int(header(response, "Shardbus-Properties-Omitted"))
    assert len(named) + len(others) + omitted == 100
    assert len(response.headers) < 90
    assert sum(len(value) for _, value in response.headers) < 56 * 1024


def test_what_abandoning_over_amqp_changed_is_seen(web: Web) -> None:
    send_over_amqp(web, encode_data_message(b"x", message_id="m"))
    client = web.client()
    link = client.receiver("q", 1)
    web.pass_s()
    [delivery] = client.received(link)
    modified = Modified(True, False, {Symbol("tried"): "amqp"})
    client.settle(link, [delivery.delivery_id], modified)
    web.pass_s()
    web.leave(client)

    response = web.lock("q")

    assert header(response, "tried") == '"amqp"'
    assert broker_properties(response)["DeliveryCount"] == 2


def test_a_lock_of_one_protocol_is_settled_over_the_other(web: Web) -> None:
    web.send("q", b"x")
    client = web.client()
    link = client.receiver("q", 1)
    web.pass_s()
    [delivery] = client.received(link)

    token = UUID(bytes_le=delivery.tag)
    assert web.fetch("DELETE", f"/q/messages/any/{token}").status == 200
    web.leave(client)

    assert web.take("q").status == 204


def test_a_dead_letter_of_expiry_is_seen_with_its_reason(web: Web) -> None:
    spec = EntitySpec()
    spec.dead_letters_on_expiration = True
    web.create("brief", spec=spec)
    web.send("brief", b"x", {"TimeToLive": 1})
    web.pass_s(5)

    response = web.take("brief/$DeadLetterQueue")

    assert header(response, "DeadLetterReason") == '"TTLExpiredException"'


def test_what_was_forwarded_has_the_number_of_the_first_entity(web: Web) -> None:
    """Also after another hop, and with other numbers there."""
    forwarding = web.loop.create_task(Forwarder(web.bus).run())
    for name, destination in (("last", ""), ("second", "last"), ("first", "second")):
        spec = EntitySpec()
        spec.forward_to = destination
        web.create(name, spec=spec)
    for _ in range(3):
        web.send("last", b"of here")
    web.send("second", b"not the first")
    web.pass_s(1)
    web.send("first", b"one")
    web.pass_s(1)
    web.send("first", b"two")
    web.pass_s(1)

    received = [web.lock("last") for _ in range(6)]

    found = {response.body: broker_properties(response) for response in received[3:]}
    assert {body: told["EnqueuedSequenceNumber"] for body, told in found.items()} == {
        b"not the first": 1,
        b"one": 1,
        b"two": 2,
    }
    assert [broker_properties(response)["SequenceNumber"] for response in received] == [
        *range(1, 7)
    ]
    forwarding.cancel()
    web.pass_s()

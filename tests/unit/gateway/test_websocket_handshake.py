"""Who gets a WebSocket, and what the others are told."""

import pytest

from shardbus.core.errors import Refused
from shardbus.gateway.listening.websocket_handshake import is_websocket_path, switch
from tests.support.refusals import check_named
from tests.support.websocket_frames import ACCEPT, KEY

GOOD = {
    b"host": b"localhost",
    b"upgrade": b"websocket",
    b"connection": b"Upgrade",
    b"sec-websocket-key": KEY.encode(),
    b"sec-websocket-version": b"13",
    b"sec-websocket-protocol": b"AMQPWSB10",
}


def switched(method: str = "GET", is_open: bool = False, **changed: str) -> dict[str, str]:
    headers = {
        **GOOD,
        **{name.replace("_", "-").encode(): v.encode() for name, v in changed.items()},
    }
    return dict(switch(method, list(headers.items()), is_any_origin_welcome=is_open))


def test_the_answer_proves_that_the_request_was_understood() -> None:
    """RFC 6455, 1.3 and 4.2.2: the subprotocol is echoed."""
    assert switched() == {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": ACCEPT,
        "Sec-WebSocket-Protocol": "AMQPWSB10",
    }


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("AMQPWSB10", "AMQPWSB10"),
        ("amqp", "amqp"),
        ("mqtt, amqp", "amqp"),
        ("chat,AMQPWSB10 ,amqp", "AMQPWSB10"),
        ("AmqpWsb10", "AmqpWsb10"),
    ],
)
def test_the_first_subprotocol_that_we_speak_is_chosen_as_it_was_spelt(
    offered: str, chosen: str
) -> None:
    assert switched(sec_websocket_protocol=offered)["Sec-WebSocket-Protocol"] == chosen


def test_a_repeated_header_is_a_list() -> None:
    headers = [*GOOD.items(), (b"connection", b"keep-alive")]
    headers.insert(0, (b"sec-websocket-protocol", b"mqtt"))

    answer = dict(switch("GET", headers, is_any_origin_welcome=False))

    assert answer["Sec-WebSocket-Protocol"] == "AMQPWSB10"


@pytest.mark.parametrize("connection", ["Upgrade,Keep-Alive", "keep-alive, upgrade", "UPGRADE"])
def test_connection_may_say_more_than_upgrade(connection: str) -> None:
    """The Java SDK says the first of these."""
    assert switched(connection=connection, upgrade="WebSocket")["Upgrade"] == "websocket"


@pytest.mark.parametrize(
    ("method", "changed", "status", "named"),
    [
        ("POST", {}, 426, "WebSocket"),
        ("GET", {"upgrade": "h2c"}, 426, "WebSocket"),
        ("GET", {"upgrade": ""}, 426, "WebSocket"),
        ("GET", {"connection": "keep-alive"}, 426, "WebSocket"),
        ("GET", {"sec_websocket_version": "8"}, 426, "13"),
        ("GET", {"sec_websocket_version": ""}, 426, "13"),
        ("GET", {"sec_websocket_key": ""}, 400, "Sec-WebSocket-Key"),
        ("GET", {"sec_websocket_key": "short"}, 400, "Sec-WebSocket-Key"),
        ("GET", {"sec_websocket_key": "é" * 24}, 400, "Sec-WebSocket-Key"),
        ("GET", {"sec_websocket_key": KEY + "," + KEY}, 400, "Sec-WebSocket-Key"),
        ("GET", {"sec_websocket_protocol": ""}, 400, "AMQPWSB10"),
        ("GET", {"sec_websocket_protocol": "mqtt"}, 400, "AMQPWSB10"),
    ],
)
def test_a_request_that_is_not_a_handshake_is_refused_with_its_reason(
    method: str, changed: dict[str, str], status: int, named: str
) -> None:
    with pytest.raises(Refused) as refusal:
        switched(method, False, **changed)

    assert refusal.value.kind.status == status
    check_named(str(refusal.value), named)


HERE = ["http://localhost:3000", "https://127.0.0.1", "http://127.0.0.97:5672", "http://[::1]:80"]
ELSEWHERE = [
    "https://example.com",
    "http://localhost.example.com",
    "null",
    "http://10.0.0.1",
    "http://[",
]


@pytest.mark.parametrize("origin", [*HERE, "http://app.localhost:8080", ""])
def test_pages_and_programs_of_this_machine_are_welcome(origin: str) -> None:
    assert switched(origin=origin)["Sec-WebSocket-Accept"] == ACCEPT


@pytest.mark.parametrize("origin", ELSEWHERE)
def test_a_page_of_another_machine_cannot_reach_a_bus_on_the_loopback(origin: str) -> None:
    with pytest.raises(Refused) as refusal:
        switched(origin=origin)

    assert refusal.value.kind.status == 403


@pytest.mark.parametrize("origin", [*HERE, *ELSEWHERE])
def test_where_keys_are_secret_every_origin_is_welcome(origin: str) -> None:
    assert switched("GET", True, origin=origin)["Sec-WebSocket-Accept"] == ACCEPT


@pytest.mark.parametrize(
    ("path", "is_found"),
    [
        ("$servicebus/websocket", True),
        ("$ServiceBus/WebSocket", True),
        ("$servicebus/websockets", False),
        ("servicebus/websocket", False),
        ("", False),
    ],
)
def test_websockets_are_opened_at_one_path_in_any_case(path: str, is_found: bool) -> None:
    assert is_websocket_path(path) is is_found

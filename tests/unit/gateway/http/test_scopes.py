"""What a token for one entity does not reach, however the path is spelt (R34)."""

from itertools import product

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.access import MANAGE
from shardbus.core.namespace.address import parse_address
from shardbus.gateway.http.server.gate import Gate
from tests.unit.gateway.http.messages_web import MessagesWeb, bodies
from tests.unit.gateway.http.web import Web, settle_path

MARKS = ["", "/", ":", "?", "#", "://x/", "%3F", "%2F", "%3A", "/$management/", "/../"]
ENDS = ["", "/", "/$DeadLetterQueue", "/$Transfer/$DeadLetterQueue", "?", "%3F", "/$management"]


@pytest.mark.parametrize(
    "name",
    [
        "mine%3F:%2F%2Fx%2Fq",
        "mine%23:%2F%2Fx%2Fq",
        "mine%3F://x/q",
        "mine/%3F://x/q",
        "mine%253F:%252F%252Fx%252Fq",
        "mine/%2e%2e/q",
        "mine//q",
        "mine:%2F%2Fx/q",
    ],
)
def test_a_name_that_is_read_in_two_ways_opens_no_second_entity(
    api: MessagesWeb, name: str
) -> None:
    """R34: what is checked is what is used."""
    api.create("mine")
    api.put("q", {"body": "secret"})
    token = api.token("sb://shardbus/mine")

    statuses = [
        api.call("GET", f"{name}/messages", token=token).status,
        api.call("POST", f"{name}/messages/purge", {}, token=token).status,
        api.call("POST", f"{name}/messages", {"messages": [{"body": "x"}]}, token=token).status,
    ]

    assert set(statuses) <= {400, 401, 404}
    assert bodies(api.peek("q")) == ["secret"]


def test_the_entity_whose_rights_are_checked_is_the_one_that_is_used(web: Web) -> None:
    """R34: whatever the gate lets through, both readings of it name the same entity."""
    gate, used = Gate(web.namespace, web.bus.authorizer), 0
    for parts in product(("", "q"), MARKS, MARKS, ("many",), ENDS):
        name = "".join(parts)
        request = web.request("GET", "/")
        try:
            gate.require(request, MANAGE, name)
            address = parse_address(name)
        except Refused as refusal:
            assert refusal.kind is INVALID_ARGUMENT, name
            continue
        assert request.grant is not None
        if web.bus.find(address.entity) is not None:
            used += 1
            assert request.grant.path == address.entity, name
    assert used


@pytest.mark.parametrize("asked", ["q/messages", "Q/Messages/", "q/messages?timeout=9", "q"])
def test_a_token_may_be_for_the_very_url_that_is_asked(web: Web, asked: str) -> None:
    """R34: many sign the URL to which they send."""
    token = web.token(f"https://bus:5300/{asked}")

    assert web.fetch("POST", "/q/messages?timeout=9", b"x", token=token).status == 201
    locked = web.fetch("POST", "/q/messages/head", token=token)
    assert locked.status == 201
    where = settle_path(locked)
    assert web.fetch("DELETE", where, token=web.token(f"http://bus{where}")).status == 200


@pytest.mark.parametrize(
    ("resource", "method", "url"),
    [
        ("q/messages/head", "POST", "/q/messages"),
        ("q/messages", "POST", "/many/messages"),
        ("q/message", "POST", "/q/messages"),
        ("q/messages/messages", "POST", "/q/messages"),
        ("many/messages", "DELETE", "/q/messages/head?timeout=0"),
        ("q/messages", "DELETE", "/q/$deadletterqueue/messages/head?timeout=0"),
        ("q/messages", "GET", "/q?api-version=2021-05"),
        ("q/messages", "DELETE", "/q?api-version=2021-05"),
    ],
)
def test_a_token_for_a_url_of_messages_is_for_nothing_else(
    web: Web, resource: str, method: str, url: str
) -> None:
    assert web.fetch(method, url, b"", token=web.token(f"http://bus/{resource}")).status == 401


def test_a_token_for_an_entity_that_is_named_like_a_url_is_for_that_entity(web: Web) -> None:
    """R34: it was given for the one, and must not open the other."""
    token = web.token("http://bus/q/messages")
    assert web.fetch("POST", "/q/messages", b"x", token=token).status == 201

    web.create("q/messages")

    assert web.fetch("POST", "/q/messages", b"x", token=token).status == 401
    assert web.fetch("DELETE", "/q/messages/head?timeout=0", token=token).status == 401
    assert web.fetch("POST", "/q/messages/messages", b"x", token=token).status == 201

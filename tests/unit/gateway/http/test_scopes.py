"""What a token for one entity does not reach, however the path is spelt (R34)."""

from itertools import product

import pytest

from shardbus.core.access import MANAGE
from shardbus.core.address import parse_address
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.http.gate import Gate
from tests.unit.gateway.http.messages_web import MessagesWeb, bodies
from tests.unit.gateway.http.web import Web

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

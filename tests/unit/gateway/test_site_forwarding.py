"""ForwardTo over ATOM: how it is written, and who may set it (R27)."""

import asyncio

import pytest

from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule
from tests.unit.gateway.site import Endpoint
from tests.unit.gateway.test_site import ask, detail, element, entry, token

FORWARDING = entry("<ForwardTo>sb://localhost:5300/hOME</ForwardTo>")
DEAD_LETTERS = entry(
    "<ForwardDeadLetteredMessagesTo>https://localhost:5300/home/</ForwardDeadLetteredMessagesTo>"
)
# Good for one entity and what is below it.
MANAGER = token("http://localhost/q", "manager", "m")


def prepared() -> Endpoint:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/Home", entry())
    rules = [AccessRule("manager", MANAGE, "m"), AccessRule("sender", SEND, "s")]
    asyncio.run(endpoint.namespace.set_rules(rules))
    return endpoint


@pytest.mark.parametrize(
    ("body", "name"),
    [(FORWARDING, "ForwardTo"), (DEAD_LETTERS, "ForwardDeadLetteredMessagesTo")],
)
def test_a_destination_comes_back_as_it_was_written_and_is_known_by_its_name(
    body: bytes, name: str
) -> None:
    """To the letter, for clients compare it; whoever asks, under whatever host."""
    endpoint = prepared()

    response = ask(endpoint, "PUT", "/q", body)
    elsewhere = ask(endpoint, "GET", "/q", host="other:1")

    assert response.status == 201
    assert f"<{name}>{element(response, name)}</{name}>".encode() in body
    assert element(elsewhere, name) == element(response, name)
    spec = endpoint.namespace.get("q").spec
    assert (spec.forward_to or spec.forward_dead_letters_to) == "Home"


def test_what_a_uri_asks_is_no_part_of_the_name_of_a_destination() -> None:
    endpoint = prepared()
    written = "<ForwardTo>sb://h/Home?api-version=2021-05</ForwardTo>"

    assert ask(endpoint, "PUT", "/q", entry(written)).status == 201
    assert endpoint.namespace.get("q").spec.forward_to == "Home"


def test_what_is_shown_can_be_sent_back_and_what_is_left_out_is_cleared() -> None:
    endpoint = prepared()
    ask(endpoint, "PUT", "/q", FORWARDING)

    again = ask(endpoint, "PUT", "/q", FORWARDING, if_match="*")
    cleared = ask(endpoint, "PUT", "/q", entry(), if_match="*")

    assert (again.status, cleared.status) == (200, 200)
    assert endpoint.namespace.get("q").spec.forward_to == ""


@pytest.mark.parametrize("body", [FORWARDING, DEAD_LETTERS])
def test_who_may_not_send_to_the_destination_may_not_let_others_forward_to_it(body: bytes) -> None:
    endpoint = prepared()

    response = ask(endpoint, "PUT", "/q", body, authorization=MANAGER)

    assert response.status == 401
    assert "'home'" in detail(response)
    assert endpoint.namespace.count() == 1


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (FORWARDING, "servicebussupplementaryauthorization"),
        (DEAD_LETTERS, "servicebusdlqsupplementaryauthorization"),
    ],
)
@pytest.mark.parametrize("resource", ["sb://localhost:5300/home", "localhost:5300"])
def test_a_second_token_gives_the_right_to_the_destination(
    body: bytes, header: str, resource: str
) -> None:
    """The Python SDK signs the address of the destination, the JavaScript SDK the bare host."""
    endpoint = prepared()
    second = token(resource, "sender", "s")

    response = ask(endpoint, "PUT", "/q", body, authorization=MANAGER, **{header: second})

    assert response.status == 201


def test_a_second_token_for_something_else_gives_nothing() -> None:
    endpoint = prepared()
    second = token("sb://localhost:5300/elsewhere", "sender", "s")
    headers = {"servicebussupplementaryauthorization": second}

    response = ask(endpoint, "PUT", "/q", FORWARDING, authorization=MANAGER, **headers)

    assert response.status == 401


def test_the_javascript_sdk_signs_a_host_without_a_port() -> None:
    endpoint = prepared()
    second = token("bus.example.com", "sender", "s")
    headers = {"servicebussupplementaryauthorization": second, "host": "bus.example.com"}

    response = ask(endpoint, "PUT", "/q", FORWARDING, authorization=MANAGER, **headers)

    assert response.status == 201


@pytest.mark.parametrize("name", ["q", "q.eu", "localhost"])
def test_an_entity_that_is_named_as_the_host_does_not_widen_its_token(name: str) -> None:
    """R34: who asks writes the Host header too."""
    endpoint = prepared()
    own = token(f"http://localhost/{name}", "manager", "m")
    ask(endpoint, "PUT", "/elsewhere", entry())

    made = ask(endpoint, "PUT", f"/{name}", FORWARDING, authorization=own, host=name)
    ask(endpoint, "PUT", f"/{name}", entry())
    second = {"servicebussupplementaryauthorization": own, "host": name, "if_match": "*"}
    changed = ask(endpoint, "PUT", "/elsewhere", FORWARDING, **second)

    assert (made.status, changed.status) == (401, 401)
    assert endpoint.namespace.get("elsewhere").spec.forward_to == ""


def test_a_second_token_that_does_not_let_send_gives_nothing() -> None:
    endpoint = prepared()
    rules = [AccessRule("manager", MANAGE, "m"), AccessRule("listener", LISTEN, "l")]
    asyncio.run(endpoint.namespace.set_rules(rules))
    headers = {"servicebussupplementaryauthorization": token(name="listener", key="l")}

    response = ask(endpoint, "PUT", "/q", FORWARDING, authorization=MANAGER, **headers)

    assert response.status == 401
    assert "'Send' claim(s) are required" in detail(response)


def test_a_subscription_forwards_too() -> None:
    endpoint = prepared()
    ask(endpoint, "PUT", "/q", entry(kind="TopicDescription"))
    body = entry("<ForwardTo>home</ForwardTo>", kind="SubscriptionDescription")

    refused = ask(endpoint, "PUT", "/q/subscriptions/s", body, authorization=MANAGER)
    made = ask(endpoint, "PUT", "/q/subscriptions/s", body)

    assert refused.status == 401
    assert element(made, "ForwardTo") == "sb://localhost:5300/Home"

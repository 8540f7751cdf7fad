"""What clients of the service rely on in management over HTTP."""

import asyncio
import time
from collections.abc import Awaitable
from xml.etree import ElementTree

import pytest

from shardbus.core.namespace.rule_spec import RuleSpec, correlation_filter, sql_filter
from shardbus.core.namespace.tier import PREMIUM
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM, EXTENSION
from shardbus.gateway.http.server.message import HttpRequest
from tests.unit.gateway.site import Endpoint
from tests.unit.gateway.test_site import ask, detail, element, entry


def test_the_root_leads_browsers_to_the_portal_and_is_a_feed_to_clients() -> None:
    """R44"""
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())
    page = HttpRequest("GET", "/", {"accept": "text/html,*/*;q=0.8"}, b"", is_secure=False)

    shown = asyncio.run(endpoint.site.respond(page))
    feed = ask(endpoint, "GET", "/?api-version=2021-05", authorization="")

    assert (shown.status, dict(shown.headers)["Location"]) == (307, "/portal/")
    assert (feed.status, feed.content_type) == (200, "application/atom+xml; charset=utf-8")
    root = ElementTree.fromstring(feed.body)
    assert root.tag == f"{{{ATOM}}}feed"
    # Nobody is told what there is who has shown nothing.
    assert root.find(f"{{{ATOM}}}entry") is None


@pytest.mark.parametrize("path", ["/", "/t/subscriptions/", "/t/subscriptions/s/rules/"])
def test_an_empty_name_is_an_error_and_not_a_feed(path: str) -> None:
    """The Python SDK asks so for one entity, and otherwise for a list."""
    endpoint = Endpoint()
    asyncio.run(endpoint.namespace.create_topic("t", endpoint.namespace.new_spec()))
    asyncio.run(endpoint.namespace.create_subscription("t", "s", endpoint.namespace.new_spec()))

    one = ask(endpoint, "GET", f"{path}?enrich=false&api-version=2024-05")
    created = ask(endpoint, "PUT", "/", entry())
    some = ask(endpoint, "GET", f"{path}?api-version=2024-05&$skip=0&$top=100")

    assert (one.status, created.status, some.status) == (400, 400, 200)
    assert "cannot be empty" in detail(one)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/q/$DeadLetterQueue",
        "/q/$deadletterqueue/",
        "/q/$Transfer/$DeadLetterQueue",
        "/t/$DeadLetterQueue",
        "/t/subscriptions/s/$DeadLetterQueue",
        "/nothing/$DeadLetterQueue",
        "/q/$management",
    ],
)
def test_a_sub_queue_cannot_be_managed(method: str, path: str) -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())

    response = ask(endpoint, method, path, entry())

    assert response.status == 400
    assert "SubCode=40000" in detail(response)
    assert ask(endpoint, "GET", "/q").status == 200


def test_the_size_of_messages_is_told_from_2021_05_on() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())
    asyncio.run(endpoint.namespace.create_topic("t", endpoint.namespace.new_spec()))

    for path in ("/q", "/t", "/$Resources/queues", "/$Resources/topics"):
        old = ask(endpoint, "GET", f"{path}?api-version=2017-04")
        new = ask(endpoint, "GET", f"{path}?api-version=2021-05")
        assert (old.status, b"MaxMessageSizeInKilobytes" in old.body) == (200, False)
        assert b"<MaxMessageSizeInKilobytes>256<" in new.body


def test_filters_are_counted_from_2024_05_on_and_the_default_rule_is_one() -> None:
    endpoint = Endpoint()
    namespace = endpoint.namespace
    asyncio.run(namespace.create_topic("t", namespace.new_spec()))
    asyncio.run(namespace.create_subscription("t", "s", namespace.new_spec()))
    same = RuleSpec("same", correlation_filter({"Label": "x"}), 0)
    asyncio.run(namespace.add_rule("t/subscriptions/s", same))

    old = ask(endpoint, "GET", "/t?api-version=2021-05")
    new = ask(endpoint, "GET", "/t?api-version=2024-05")

    assert b"FilterCount" not in old.body
    assert element(new, "SqlFilterCount") == "1"
    assert element(new, "CorrelationFilterCount") == "1"


XSI = "http://www.w3.org/2001/XMLSchema-instance"
TYPED = [
    ("3", "long"),
    ("3", "int"),
    ("3.5", "double"),
    ("true", "boolean"),
    ("2026-01-01T00:00:00.1234567Z", "dateTime"),
    ("P1DT2H3M4.5S", "duration"),
]
FILTERS = {
    "SqlFilter": "<SqlExpression>a = @k</SqlExpression><Parameters>{}</Parameters>",
    "CorrelationFilter": "<Properties>{}</Properties>",
}


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize(("text", "type_name"), TYPED)
def test_what_a_rule_compares_with_is_kept_with_its_type(
    kind: str, text: str, type_name: str
) -> None:
    """Put, then read one by one and in the list."""
    endpoint = Endpoint()
    namespace = endpoint.namespace
    asyncio.run(namespace.create_topic("t", namespace.new_spec()))
    asyncio.run(namespace.create_subscription("t", "s", namespace.new_spec()))
    pair = (
        '<KeyValueOfstringanyType><Key>@k</Key><Value xmlns:d="http://www.w3.org/2001/XMLSchema" '
        f'i:type="d:{type_name}">{text}</Value></KeyValueOfstringanyType>'
    )
    inside = FILTERS[kind].format(pair)
    described = f'<Filter xmlns:i="{XSI}" i:type="{kind}">{inside}</Filter>'
    rule = entry(described, kind="RuleDescription")

    made = ask(endpoint, "PUT", "/t/subscriptions/s/rules/r", rule)
    read = ask(endpoint, "GET", "/t/subscriptions/s/rules/r?enrich=false")
    listed = ask(endpoint, "GET", "/t/subscriptions/s/rules?$skip=1&$top=1")

    assert [response.status for response in (made, read, listed)] == [201, 200, 200]
    for response in (made, read, listed):
        value = next(ElementTree.fromstring(response.body).iter(f"{{{CONNECT}}}Value"))
        assert (value.get(f"{{{XSI}}}type"), value.text) == (f"d6p1:{type_name}", text)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("ns.servicebus.windows.net", "sb://ns.servicebus.windows.net/nowhere"),
        ("Bus.Example:5300", "sb://Bus.Example:5300/nowhere"),
        ('"><script>', "sb://test/nowhere"),
        ("a" * 300, "sb://test/nowhere"),
    ],
)
def test_what_is_not_found_is_named_by_the_host_that_was_asked(host: str, told: str) -> None:
    """A header that is no host is not repeated."""
    response = ask(Endpoint(), "GET", "/nowhere", host=host)

    assert response.status == 404
    assert f"The messaging entity '{told}' could not be found." in detail(response)


def test_a_topic_is_accessed_when_something_is_done_with_its_subscriptions() -> None:
    """Later than its own update, which clients compare it with."""
    endpoint = Endpoint()
    namespace = endpoint.namespace
    topic = asyncio.run(namespace.create_topic("t", namespace.new_spec()))
    asyncio.run(namespace.update_topic("t", topic.spec))
    assert element(ask(endpoint, "GET", "/t"), "AccessedAt") == "0001-01-01T00:00:00Z"

    moments: list[str] = []
    for done in (
        lambda: namespace.create_subscription("t", "s", namespace.new_spec()),
        lambda: namespace.add_rule("t/subscriptions/s", RuleSpec("r", sql_filter("a = 1"), 0)),
    ):
        time.sleep(0.005)
        asyncio.run(_waited(done()))
        response = ask(endpoint, "GET", "/t")
        moments.append(element(response, "AccessedAt"))
        assert element(response, "UpdatedAt") < moments[-1]

    assert moments[0] < moments[1]


async def _waited(work: Awaitable[object]) -> None:
    await work


def test_the_range_of_the_size_of_messages_is_told_in_the_known_words() -> None:
    endpoint = Endpoint(tier=PREMIUM)

    for size_kb in (1023, 102_401):
        body = entry(f"<MaxMessageSizeInKilobytes>{size_kb}</MaxMessageSizeInKilobytes>")
        response = ask(endpoint, "PUT", "/q", body)
        assert response.status == 400
        assert (
            "The value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400"
            in detail(response)
        )


def test_what_hardly_anybody_can_want_is_taken_with_a_warning() -> None:
    """In an element of our own, which clients pass over."""
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/home", entry())

    ring = ask(endpoint, "PUT", "/ring", entry("<ForwardTo>sb://x/ring</ForwardTo>"))
    sessions = ask(
        endpoint,
        "PUT",
        "/s",
        entry("<RequiresSession>true</RequiresSession><ForwardTo>home</ForwardTo>"),
    )
    plain = ask(endpoint, "PUT", "/gate", entry("<ForwardTo>home</ForwardTo>"))

    assert [each.status for each in (ring, sessions, plain)] == [201, 201, 201]
    assert "makes a loop" in element(ring, "Warning", EXTENSION)
    assert "requires sessions" in element(sessions, "Warning", EXTENSION)
    assert b"<Warning" not in plain.body


def test_values_may_be_written_in_every_way_that_xml_has_for_them() -> None:
    endpoint = Endpoint()
    nil = 'xmlns:n="http://www.w3.org/2001/XMLSchema-instance" n:nil="1"'

    made = ask(
        endpoint,
        "PUT",
        "/q",
        entry(
            f"<LockDuration {nil}/><DefaultMessageTimeToLive {nil}/>",
            "<MaxDeliveryCount> +07 </MaxDeliveryCount><RequiresSession>1</RequiresSession>",
            "<DuplicateDetectionHistoryTimeWindow>PT<!-- half --><![CDATA[30]]>S"
            "</DuplicateDetectionHistoryTimeWindow>",
        ),
    )

    assert made.status == 201
    assert element(made, "LockDuration") == "PT1M"
    assert element(made, "MaxDeliveryCount") == "7"
    assert element(made, "RequiresSession") == "true"
    assert element(made, "DuplicateDetectionHistoryTimeWindow") == "PT30S"

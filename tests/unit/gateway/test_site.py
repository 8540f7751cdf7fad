"""Management without sockets: who may, what is asked, what is answered (R5-R9, R28, R29, R31)."""

import asyncio
import json
import re
from collections.abc import Awaitable
from xml.etree import ElementTree

import pytest

from shardbus.broker.access.sas import mint_token
from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, FragmentStatistics
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.access import KEY_NAME_CHARACTERS_MAX, LISTEN, MANAGE, AccessRule
from shardbus.core.namespace.address import NAME_CHARACTERS_MAX
from shardbus.core.namespace.tier import OLDER, PREMIUM
from shardbus.gateway.http.atom.admin import Admin
from shardbus.gateway.http.atom.descriptions import COUNTS
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import (
    ATOM,
    EXTENSION,
)
from shardbus.gateway.http.server.message import HttpRequest, HttpResponse
from shardbus.gateway.http.server.site import Site
from shardbus.stores.base.store import FragmentId
from tests.support.refusals import refusal_of
from tests.unit.gateway.site import Endpoint

ROOT = ("RootManageSharedAccessKey", "SAS_KEY_VALUE")
# Some tokens are made when the tests are collected, many minutes before they are shown.
NEVER_S = 4_102_444_800


def token(resource: str = "http://localhost/", name: str = ROOT[0], key: str = ROOT[1]) -> str:
    return mint_token(resource, name, key, NEVER_S)


def entry(*elements: str, kind: str = "QueueDescription") -> bytes:
    return (
        f'<entry xmlns="{ATOM}"><content type="application/xml">'
        f'<{kind} xmlns="{CONNECT}">{"".join(elements)}</{kind}></content></entry>'
    ).encode()


def ask(
    endpoint: Endpoint,
    method: str,
    target: str,
    body: bytes = b"",
    **headers: str,
) -> HttpResponse:
    given = {"host": "localhost:5300", "authorization": token()}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    request = HttpRequest(method, target, given, body, is_secure=False)
    response: Awaitable[HttpResponse] = endpoint.site.respond(request)

    async def wait() -> HttpResponse:
        return await response

    return asyncio.run(wait())


def element(response: HttpResponse, name: str, namespace: str = CONNECT) -> str:
    found = ElementTree.fromstring(response.body).find(f".//{{{namespace}}}{name}")
    assert found is not None
    return found.text or ""


def detail(response: HttpResponse) -> str:
    root = ElementTree.fromstring(response.body)
    assert root.tag == "Error"
    assert root.findtext("Code") == str(response.status)
    return root.findtext("Detail") or ""


def test_a_bare_creation_makes_a_partitioned_queue_and_shows_its_whole_size() -> None:
    """R5, R7, R9."""
    endpoint = Endpoint()

    response = ask(endpoint, "PUT", "/Orders?api-version=2024-05", entry())

    assert response.status == 201
    assert element(response, "EnablePartitioning") == "true"
    assert element(response, "MaxSizeInMegabytes") == "16384"
    assert element(response, "SupportOrdering") == "false"
    assert element(response, "FragmentCount", EXTENSION) == "16"
    assert element(response, "title", ATOM) == "Orders"
    assert element(response, "id", ATOM) == "http://localhost:5300/Orders?api-version=2024-05"


def test_partitioning_can_be_switched_off_over_rest() -> None:
    """R5, R31."""
    endpoint = Endpoint()

    response = ask(
        endpoint,
        "PUT",
        "/q?api-version=2013-10",
        entry("<EnablePartitioning>false</EnablePartitioning>"),
    )

    assert element(response, "EnablePartitioning") == "false"
    assert element(response, "MaxSizeInMegabytes") == "1024"
    assert element(response, "FragmentCount", EXTENSION) == "1"


@pytest.mark.parametrize("version", ["2012-03", "2013-07", "2013-09"])
def test_an_old_api_version_cannot_create_a_partitioned_entity(version: str) -> None:
    """R31."""
    endpoint = Endpoint()
    asked = entry("<EnablePartitioning>true</EnablePartitioning>")

    refused = ask(endpoint, "PUT", f"/a?api-version={version}", asked)
    conventional = ask(endpoint, "PUT", f"/b?api-version={version}", entry())

    assert refused.status == 400
    assert version in detail(refused)
    assert endpoint.namespace.find("a") is None
    assert conventional.status == 201
    assert element(conventional, "EnablePartitioning") == "false"


def test_an_old_api_version_creates_nothing_where_everything_is_partitioned() -> None:
    """R7, R31."""
    endpoint = Endpoint(PREMIUM, OLDER)

    assert ask(endpoint, "PUT", "/a?api-version=2012-03", entry()).status == 400
    assert ask(endpoint, "PUT", "/a?api-version=2013-10", entry()).status == 201


def test_an_update_changes_what_it_says_and_keeps_the_rest() -> None:
    endpoint = Endpoint()
    rule = (
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights>"
        "<KeyName>k</KeyName><PrimaryKey>p</PrimaryKey></AuthorizationRule></AuthorizationRules>"
    )
    created = entry("<LockDuration>PT30S</LockDuration><UserMetadata>m</UserMetadata>", rule)
    ask(endpoint, "PUT", "/q", created)

    body = entry(
        "<MaxDeliveryCount>3</MaxDeliveryCount><MaxSizeInMegabytes>16384</MaxSizeInMegabytes>"
    )
    response = ask(endpoint, "PUT", "/Q", body, if_match="*")

    assert response.status == 200
    assert element(response, "MaxDeliveryCount") == "3"
    assert element(response, "LockDuration") == "PT30S"
    assert element(response, "MaxSizeInMegabytes") == "16384"
    assert element(response, "KeyName") == "k"
    assert endpoint.namespace.get("q").spec.user_metadata == ""
    assert endpoint.namespace.get("q").name == "q"


def test_the_dates_of_an_access_rule_follow_its_changes() -> None:
    endpoint = Endpoint()

    def rules(*keys: str) -> bytes:
        texts = (
            f"<AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights>"
            f"<KeyName>{name}</KeyName><PrimaryKey>{key}</PrimaryKey></AuthorizationRule>"
            for name, key in zip("ab", keys, strict=True)
        )
        return entry(f"<AuthorizationRules>{''.join(texts)}</AuthorizationRules>")

    ask(endpoint, "PUT", "/q", rules("one", "two"))
    for rule in endpoint.namespace.get("q").spec.access_rules:
        rule.created_at_ms = rule.modified_at_ms = 5

    ask(endpoint, "PUT", "/q", rules("one", "other"), if_match="*")

    same, changed = endpoint.namespace.get("q").spec.access_rules
    assert (same.created_at_ms, same.modified_at_ms) == (5, 5)
    assert changed.created_at_ms == 5
    assert changed.modified_at_ms > 5


def test_an_update_of_the_partitioning_is_refused() -> None:
    """R6."""
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())

    body = entry("<EnablePartitioning>false</EnablePartitioning>")
    response = ask(endpoint, "PUT", "/q", body, if_match="*")

    assert response.status == 400
    assert "EnablePartitioning property of an existing Queue cannot be changed." in detail(response)


def test_a_queue_is_deleted_with_an_empty_answer() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())

    response = ask(endpoint, "DELETE", "/q/")

    assert (response.status, response.body) == (200, b"")
    assert ask(endpoint, "GET", "/q").status == 404
    assert ask(endpoint, "DELETE", "/q").status == 404


def test_queues_are_listed_in_pages_with_a_second_link_while_there_is_more() -> None:
    endpoint = Endpoint()
    for name in "cab":
        ask(endpoint, "PUT", f"/{name}", entry())

    first = ask(endpoint, "GET", "/$Resources/Queues?$skip=0&$top=2&api-version=2021-05")
    second = ask(endpoint, "GET", "/$resources/queues/?%24skip=2&%24top=2")

    roots = [ElementTree.fromstring(page.body) for page in (first, second)]
    names = [
        [title.text for title in root.findall(f"{{{ATOM}}}entry/{{{ATOM}}}title")] for root in roots
    ]
    links = [[link.get("href") or "" for link in root.findall(f"{{{ATOM}}}link")] for root in roots]
    assert names == [["a", "b"], ["c"]]
    assert [len(found) for found in links] == [2, 1]
    assert "$skip=2&$top=2" in links[0][1]


def test_an_empty_namespace_lists_nothing() -> None:
    endpoint = Endpoint()

    for path in ("/$Resources/queues", "/$Resources/topics"):
        response = ask(endpoint, "GET", path)
        assert response.status == 200
        assert ElementTree.fromstring(response.body).tag == f"{{{ATOM}}}feed"


def test_the_namespace_describes_itself() -> None:
    response = ask(Endpoint(PREMIUM), "GET", "/$namespaceinfo?api-version=2021-05")

    assert element(response, "MessagingSKU") == "Premium"
    assert element(response, "MessagingUnits") == "1"
    assert element(response, "Name") == "localhost"


def test_the_last_use_of_any_fragment_is_when_the_entity_was_accessed() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())
    entity = endpoint.namespace.get("q")
    unused = ask(endpoint, "GET", "/q")
    for home in entity.fragments:
        part = FragmentStatistics(home.number, [0, 0, 0], 0, FRAGMENT_AVAILABLE, "")
        part.last_used_ms = 1_700_000_000_000 + home.number * 1_000
        fragment = FragmentId(entity.entity_id, home.number)
        endpoint.hosts[home.broker_index].statistics_of[fragment] = part

    used = ask(endpoint, "GET", "/q")

    assert element(unused, "AccessedAt") == "0001-01-01T00:00:00Z"
    assert element(used, "AccessedAt").startswith("2023-11-14T22:13:35")


def test_counts_are_summed_and_named_as_partial_when_a_broker_is_down() -> None:
    """R29."""
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())
    entity = endpoint.namespace.get("q")
    for home in entity.fragments:
        fragment = FragmentId(entity.entity_id, home.number)
        part = FragmentStatistics(home.number, [3, 2, 1], 100, FRAGMENT_AVAILABLE, "")
        part.set_aside_count = 2
        part.deferred_count = 1
        part.scheduled_count = 4
        endpoint.hosts[home.broker_index].statistics_of[fragment] = part

    whole = ask(endpoint, "GET", "/q")
    endpoint.hosts[0].outage = "no route"
    partial = ask(endpoint, "GET", "/q")

    assert element(whole, "ActiveMessageCount", COUNTS) == "64"
    assert element(whole, "DeferredMessageCount", EXTENSION) == "16"
    assert element(whole, "ScheduledMessageCount", COUNTS) == "64"
    assert element(whole, "DeadLetterMessageCount", COUNTS) == "32"
    assert element(whole, "TransferDeadLetterMessageCount", COUNTS) == "16"
    assert element(whole, "MessageCount") == "176"
    assert element(whole, "SizeInBytes") == "1600"
    assert element(whole, "EntityAvailabilityStatus") == "Available"
    assert element(whole, "IsPartial", EXTENSION) == "false"
    assert element(whole, "SetAsideMessageCount", EXTENSION) == "32"
    assert element(partial, "ActiveMessageCount", COUNTS) == "48"
    assert element(partial, "EntityAvailabilityStatus") == "Limited"
    assert element(partial, "IsPartial", EXTENSION) == "true"


def test_with_a_broker_down_a_change_fails_with_its_reason() -> None:
    """R28."""
    endpoint = Endpoint()
    endpoint.hosts[3].outage = "its disk is gone"

    response = ask(endpoint, "PUT", "/q", entry())

    assert response.status == 503
    assert endpoint.hosts[3].outage in detail(response)


BAD = [
    ("PUT", "/a%20b", entry(), 400, "contains ' '"),
    ("PUT", "/q", b"", 400, "not well formed"),
    ("PUT", "/q", b"<a/>", 400, "not an Atom entry"),
    ("PUT", "/q", f'<entry xmlns="{ATOM}"/>'.encode(), 400, "no content"),
    ("PUT", "/q", entry(kind="Fish"), 400, "'Fish' is not a description"),
    ("PUT", "/q", entry(kind="SubscriptionDescription"), 400, "under the subscriptions of a topic"),
    ("PUT", "/q", entry("<LockDuration/>"), 400, "LockDuration"),
    ("PUT", "/q", entry("<LockDuration>PT1H</LockDuration>"), 400, "LockDuration"),
    ("PUT", "/q", entry("<MaxDeliveryCount>-1</MaxDeliveryCount>"), 400, "MaxDeliveryCount"),
    ("PUT", "/q", entry("<MaxDeliveryCount>²</MaxDeliveryCount>"), 400, "MaxDeliveryCount"),
    ("PUT", "/q", entry("<EnableExpress>maybe</EnableExpress>"), 400, "EnableExpress"),
    ("PUT", "/q", entry("<Status>Tired</Status>"), 400, "Status"),
    ("PUT", "/q", entry("<Status>Active</Status>" * 2), 400, "twice"),
    ("PUT", "/q", entry("<AutoDeleteOnIdle>PT4M</AutoDeleteOnIdle>"), 400, "AutoDeleteOnIdle"),
    ("PUT", "/q", entry("<ForwardTo>sb://h/x</ForwardTo>"), 404, "ForwardTo"),
    ("PUT", "/q?api-version=new", entry(), 400, "api-version"),
    ("GET", "/$Resources/queues?$skip=-1", b"", 400, "$skip"),
    ("GET", "/$Resources/queues?$top=x", b"", 400, "$top"),
    ("GET", "/$Resources/fish", b"", 404, "could not be found"),
    ("GET", "/nowhere", b"", 404, "could not be found"),
    ("PUT", "/t/Subscriptions/s", entry(), 400, "must have a SubscriptionDescription"),
]


@pytest.mark.parametrize(("method", "target", "body", "status", "reason"), BAD)
def test_bad_input_gets_a_clear_error_and_changes_nothing(
    method: str, target: str, body: bytes, status: int, reason: str
) -> None:
    endpoint = Endpoint()

    response = ask(endpoint, method, target, body)

    assert response.status == status
    assert reason in detail(response)
    assert endpoint.namespace.count() == 0


def test_an_error_carries_its_code_and_a_tracking_line() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())

    text = detail(ask(endpoint, "PUT", "/q", entry()))

    assert text.startswith("SubCode=40900. Conflict. ")
    assert re.search(r"TrackingId:[0-9a-f-]{36}_G1, SystemTracker:test, Timestamp:\d{4}-", text)


def test_a_conditional_update_on_a_version_is_refused() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())

    assert ask(endpoint, "PUT", "/q", entry(), if_match='"7"').status == 400


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS"])
def test_a_method_that_means_nothing_here_is_named(method: str) -> None:
    response = ask(Endpoint(), method, "/q")

    assert response.status == 405
    assert ("Allow", "GET, HEAD, PUT, DELETE") in response.headers


KEPT_OUT = [
    ("", "MissingToken"),
    ("Bearer abc", "MalformedToken"),
    (token(key="guess"), "InvalidSignature"),
    (token("http://localhost/other"), "InvalidAudience"),
    (mint_token("http://localhost/", *ROOT, 1), "ExpiredToken"),
    (token(name="listener", key="l"), "'Manage' claim(s) are required"),
]


@pytest.mark.parametrize(("shown", "reason"), KEPT_OUT)
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/q"), ("PUT", "/new"), ("DELETE", "/q"), ("GET", "/$Resources/queues")],
)
def test_nobody_manages_without_the_manage_right(
    shown: str, reason: str, method: str, target: str
) -> None:
    """R34."""
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())
    asyncio.run(endpoint.namespace.set_rules([AccessRule("listener", LISTEN, "l")]))

    response = ask(endpoint, method, target, entry(), authorization=shown)

    assert response.status == 401
    assert reason in detail(response)
    assert ("WWW-Authenticate", "SharedAccessSignature") in response.headers
    assert endpoint.namespace.count() == 1


def test_a_rule_of_a_queue_manages_that_queue_alone() -> None:
    """R34."""
    endpoint = Endpoint()
    for name in ("q", "q2"):
        ask(endpoint, "PUT", f"/{name}", entry())
    endpoint.namespace.get("q").spec.access_rules = [AccessRule("own", MANAGE, "k")]
    shown = token(name="own", key="k")

    assert ask(endpoint, "GET", "/q", authorization=shown).status == 200
    assert ask(endpoint, "GET", "/q2", authorization=shown).status == 401
    assert ask(endpoint, "GET", "/$Resources/queues", authorization=shown).status == 401


def test_authorisation_is_checked_before_existence() -> None:
    assert ask(Endpoint(), "GET", "/nowhere", authorization="").status == 401


def test_health_needs_no_token() -> None:
    response = ask(Endpoint(), "GET", "/health", authorization="")

    assert response.status == 200
    assert json.loads(response.body) == {"status": "healthy", "message": "Service is healthy."}


def test_health_says_what_is_wrong_and_that_the_rest_serves() -> None:
    """R3: a balancer must not drop a gateway because one broker of four is out."""
    endpoint = Endpoint()
    endpoint.hosts[1].outage = "no route"
    asyncio.run(endpoint.namespace.recover())

    response = ask(endpoint, "GET", "/health")

    assert response.status == 200
    answer = json.loads(response.body)
    assert answer["status"] == "degraded"
    assert answer["reasons"] == ["broker b1 may hold fragments of deleted entities: no route"]


def test_a_queue_may_be_named_health() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/health?api-version=2021-05", entry())

    assert element(ask(endpoint, "GET", "/health?api-version=2021-05"), "title", ATOM) == "health"


@pytest.mark.parametrize("name", ["a/messages", "a/subscriptions2", "topics"])
def test_a_queue_may_have_a_name_that_looks_like_a_path_of_the_api(name: str) -> None:
    endpoint = Endpoint()

    assert ask(endpoint, "PUT", f"/{name}", entry()).status == 201
    assert element(ask(endpoint, "GET", f"/{name}"), "title", ATOM) == name


def test_a_host_header_cannot_put_markup_into_an_answer() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/q", entry())

    response = ask(endpoint, "GET", "/q", host='"><script>')

    assert element(response, "id", ATOM) == "http://localhost/q?api-version=2021-05"


def test_a_mistake_of_ours_is_answered_as_such_and_told_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = Endpoint()

    def broken() -> list[str]:
        raise ZeroDivisionError

    admin = Admin(endpoint.namespace, endpoint.authorizer, endpoint.clock)
    endpoint.site = Site(admin, broken, endpoint.clock, system="test")

    response = ask(endpoint, "GET", "/health")

    assert response.status == 500
    assert "SubCode=50000" in detail(response)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("path", ["a" * 4_096, "%61" * 1_366, "a/" * 160])
def test_a_path_that_is_longer_than_any_name_is_not_looked_at(path: str) -> None:
    """R34: without a token, a path of 30,000 characters took a fifth of a second."""
    with refusal_of(INVALID_ARGUMENT):
        HttpRequest("GET", f"/api/v1/entities/{path}", {}, b"", is_secure=False)


def test_the_longest_names_fit_in_a_path() -> None:
    """R34."""
    rule = "%F0%9F%98%80" * KEY_NAME_CHARACTERS_MAX
    name = "a/" * (NAME_CHARACTERS_MAX // 2)

    request = HttpRequest(
        "GET", f"/api/v1/entities/{name}a/access-rules/{rule}/rotate", {}, b"", is_secure=False
    )

    assert request.path.endswith(f"{chr(0x1F600) * KEY_NAME_CHARACTERS_MAX}/rotate")


def test_a_target_with_too_many_fields_is_refused() -> None:
    with pytest.raises(Refused):
        HttpRequest("GET", "/?" + "a=1&" * 40, {}, b"", is_secure=False)

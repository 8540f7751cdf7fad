"""Requests as .NET, Java and older clients write them, and the answers they read."""

from xml.etree import ElementTree

import pytest

from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.gateway.http.atom.descriptions import COUNTS
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import (
    ATOM,
)
from shardbus.gateway.http.atom.markup import INSTANCE
from shardbus.gateway.http.server.message import HttpResponse
from tests.unit.gateway.site import Endpoint
from tests.unit.gateway.test_site import ask, element, entry

DOTNET_QUEUE = f"""<entry xmlns="{ATOM}">
  <content type="application/xml">
    <QueueDescription xmlns="{CONNECT}">
      <LockDuration>PT30S</LockDuration>
      <MaxSizeInMegabytes>2048</MaxSizeInMegabytes>
      <RequiresDuplicateDetection>true</RequiresDuplicateDetection>
      <RequiresSession>false</RequiresSession>
      <DefaultMessageTimeToLive>P2D</DefaultMessageTimeToLive>
      <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>
      <DuplicateDetectionHistoryTimeWindow>PT3M</DuplicateDetectionHistoryTimeWindow>
      <MaxDeliveryCount>7</MaxDeliveryCount>
      <EnableBatchedOperations>false</EnableBatchedOperations>
      <AuthorizationRules>
        <AuthorizationRule p4:type="SharedAccessAuthorizationRule" xmlns:p4="{INSTANCE}">
          <ClaimType>SharedAccessKey</ClaimType>
          <ClaimValue>None</ClaimValue>
          <Rights>
            <AccessRights>Send</AccessRights>
            <AccessRights>Listen</AccessRights>
          </Rights>
          <CreatedTime>2026-11-15T00:00:00.0000000Z</CreatedTime>
          <ModifiedTime>2026-11-15T00:00:00.0000000Z</ModifiedTime>
          <KeyName>worker</KeyName>
          <PrimaryKey>one</PrimaryKey>
          <SecondaryKey>two</SecondaryKey>
        </AuthorizationRule>
      </AuthorizationRules>
      <Status>SendDisabled</Status>
      <ForwardTo>https://localhost:5300/home</ForwardTo>
      <UserMetadata>of .NET</UserMetadata>
      <AutoDeleteOnIdle>PT1H</AutoDeleteOnIdle>
      <EnablePartitioning>true</EnablePartitioning>
      <ForwardDeadLetteredMessagesTo>https://localhost:5300/home</ForwardDeadLetteredMessagesTo>
    </QueueDescription>
  </content>
</entry>"""

JAVA_QUEUE = (
    "<?xml version='1.0' encoding='UTF-8'?>"
    f'<a:entry xmlns:a="{ATOM}"><a:title type="text"/><a:author><a:name/></a:author>'
    f'<a:content type="application/xml"><sb:QueueDescription xmlns:sb="{CONNECT}" '
    f'xmlns:xsi="{INSTANCE}"><sb:UserMetadata>of Java</sb:UserMetadata>'
    "<sb:EnablePartitioning>true</sb:EnablePartitioning>"
    "<sb:AutoDeleteOnIdle>PT256204778H48M5.4775807S</sb:AutoDeleteOnIdle>"
    "<sb:DefaultMessageTimeToLive>PT48H</sb:DefaultMessageTimeToLive>"
    '<sb:ForwardTo xsi:nil="true"/><sb:AuthorizationRules/>'
    "<sb:DuplicateDetectionHistoryTimeWindow>PT3M</sb:DuplicateDetectionHistoryTimeWindow>"
    "<sb:MaxDeliveryCount>7</sb:MaxDeliveryCount><sb:LockDuration>PT30S</sb:LockDuration>"
    "</sb:QueueDescription></a:content></a:entry>"
)

DOTNET_SUBSCRIPTION = f"""<entry xmlns="{ATOM}"><content type="application/xml">
<SubscriptionDescription xmlns="{CONNECT}">
  <LockDuration>PT30S</LockDuration>
  <RequiresSession>true</RequiresSession>
  <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>
  <DeadLetteringOnFilterEvaluationExceptions>false</DeadLetteringOnFilterEvaluationExceptions>
  <DefaultRuleDescription>
    <Filter p4:type="CorrelationFilter" xmlns:p4="{INSTANCE}">
      <CorrelationId>c</CorrelationId>
      <Label>l</Label>
      <Properties>
        <KeyValueOfstringanyType>
          <Key>n</Key>
          <Value p6:type="l28:int" xmlns:l28="http://www.w3.org/2001/XMLSchema"
            xmlns:p6="{INSTANCE}">5</Value>
        </KeyValueOfstringanyType>
      </Properties>
    </Filter>
    <Action p4:type="SqlRuleAction" xmlns:p4="{INSTANCE}">
      <SqlExpression>SET a = 1</SqlExpression><Parameters/>
    </Action>
    <Name>own</Name>
  </DefaultRuleDescription>
  <MaxDeliveryCount>7</MaxDeliveryCount>
  <EnableBatchedOperations>true</EnableBatchedOperations>
  <Status>Active</Status>
  <UserMetadata>of .NET</UserMetadata>
  <AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>
</SubscriptionDescription></content></entry>"""

TOPIC = f"""<entry xmlns="{ATOM}"><content type="application/xml">
<TopicDescription xmlns="{CONNECT}">
  <DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>
  <MaxSizeInMegabytes>1024</MaxSizeInMegabytes>
  <RequiresDuplicateDetection>true</RequiresDuplicateDetection>
  <DuplicateDetectionHistoryTimeWindow>PT1M</DuplicateDetectionHistoryTimeWindow>
  <EnableBatchedOperations>true</EnableBatchedOperations>
  <FilteringMessagesBeforePublishing>true</FilteringMessagesBeforePublishing>
  <Status>Active</Status>
  <UserMetadata>of .NET</UserMetadata>
  <SupportOrdering>true</SupportOrdering>
  <EnablePartitioning>false</EnablePartitioning>
  <EnableSubscriptionPartitioning>false</EnableSubscriptionPartitioning>
</TopicDescription></content></entry>"""

QUEUE_ORDER = (
    "LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession "
    "DefaultMessageTimeToLive DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow "
    "MaxDeliveryCount EnableBatchedOperations SizeInBytes MessageCount IsAnonymousAccessible "
    "AuthorizationRules Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails "
    "AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus EnableExpress ForwardTo "
    "UserMetadata ForwardDeadLetteredMessagesTo MaxMessageSizeInKilobytes"
)
TOPIC_ORDER = (
    "DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection "
    "DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes "
    "FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status CreatedAt "
    "UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount "
    "CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus "
    "EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes"
)
SUBSCRIPTION_ORDER = (
    "LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration "
    "DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount "
    "EnableBatchedOperations Status ForwardTo CreatedAt UpdatedAt AccessedAt CountDetails "
    "ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus UserMetadata"
)


def prepared() -> Endpoint:
    endpoint = Endpoint()
    assert ask(endpoint, "PUT", "/home?api-version=2021-05", entry()).status == 201
    assert ask(endpoint, "PUT", "/news?api-version=2021-05", TOPIC.encode()).status == 201
    return endpoint


def description(response: HttpResponse) -> ElementTree.Element:
    content = ElementTree.fromstring(response.body).find(f"{{{ATOM}}}content")
    assert content is not None
    [found] = content
    return found


def test_dotnet_creates_a_queue_with_everything() -> None:
    """R31: its order of elements, and URLs where others write `sb://`."""
    endpoint = prepared()

    response = ask(endpoint, "PUT", "/orders?api-version=2021-05", DOTNET_QUEUE.encode())

    assert response.status == 201
    spec = endpoint.namespace.get("orders").spec
    assert (spec.lock_ms, spec.size_mb, spec.delivery_count_max) == (30_000, 2048, 7)
    assert spec.requires_duplicate_detection and not spec.requires_session
    assert (spec.default_ttl_ms, spec.duplicate_window_ms) == (172_800_000, 180_000)
    assert spec.dead_letters_on_expiration and not spec.is_batched
    assert (spec.forward_to, spec.forward_dead_letters_to) == ("home", "home")
    assert (spec.status, spec.user_metadata) == ("SendDisabled", "of .NET")
    # "AutoDeleteOnIdle of a forwarding source auto-set to max".
    assert (spec.auto_delete_idle_ms, spec.is_partitioned) == (INFINITE_MS, True)
    [rule] = spec.access_rules
    assert (rule.name, rule.primary_key, rule.secondary_key) == ("worker", "one", "two")


@pytest.mark.parametrize("is_marked", [False, True])
def test_java_creates_a_queue_with_prefixes_and_hours(is_marked: bool) -> None:
    """R31: its durations have no days, the endless one is 256,204,778 hours."""
    endpoint = prepared()
    body = JAVA_QUEUE.encode("utf-8-sig" if is_marked else "utf-8")

    response = ask(endpoint, "PUT", "/orders?api-version=2021-05", body)

    assert response.status == 201
    spec = endpoint.namespace.get("orders").spec
    assert (spec.lock_ms, spec.delivery_count_max) == (30_000, 7)
    assert (spec.default_ttl_ms, spec.auto_delete_idle_ms) == (172_800_000, INFINITE_MS)
    assert (spec.user_metadata, spec.forward_to, spec.access_rules) == ("of Java", "", [])
    assert element(response, "AutoDeleteOnIdle") == "P10675199DT2H48M5.4775807S"


def test_dotnet_creates_a_subscription_with_a_rule() -> None:
    endpoint = prepared()

    response = ask(
        endpoint,
        "PUT",
        "/news/Subscriptions/eu?api-version=2021-05",
        DOTNET_SUBSCRIPTION.encode(),
    )

    assert response.status == 201
    made = endpoint.namespace.subscription("news/subscriptions/eu")
    assert (made.spec.lock_ms, made.spec.delivery_count_max) == (30_000, 7)
    assert made.spec.requires_session
    assert not made.spec.dead_letters_on_filter_errors
    [rule] = made.rules
    assert (rule.name, rule.action) == ("own", "SET a = 1")
    assert rule.filter.fields == {"CorrelationId": "c", "Label": "l"}
    assert [(value.name, value.text) for value in rule.filter.properties] == [("n", "5")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/home", b""),
        ("/HOME/", b""),
        ("/news", b""),
        ("/News/", b""),
        ("/NEWS/subscriptions/EU", b""),
        ("/news/SUBSCRIPTIONS/eu/", b""),
        ("/news/Subscriptions/eu/Rules/OWN/", b""),
        ("/$namespaceinfo/", b""),
        ("/$NamespaceInfo", b""),
        ("/$Resources/Queues/", b""),
        ("/$resources/TOPICS", b""),
        ("/news/Subscriptions/", b""),
        ("/news/subscriptions/EU/RULES/", b""),
    ],
)
@pytest.mark.parametrize(
    "query", ["", "?api-version=2017-04", "?API-Version=2021-05&enrich=False&$Skip=0"]
)
def test_paths_are_read_in_any_case_and_with_a_slash_behind(
    path: str, body: bytes, query: str
) -> None:
    endpoint = prepared()
    ask(endpoint, "PUT", "/news/subscriptions/eu", DOTNET_SUBSCRIPTION.encode())

    response = ask(endpoint, "GET", path + query, body)

    assert response.status == 200
    assert ElementTree.fromstring(response.body).tag in (f"{{{ATOM}}}entry", f"{{{ATOM}}}feed")


@pytest.mark.parametrize("query", ["$skip=0&$top=100", "%24skip=0&%24top=100", "$SKIP=0"])
def test_pages_are_asked_for_with_and_without_escapes(query: str) -> None:
    response = ask(prepared(), "GET", f"/$Resources/queues?api-version=2021-05&{query}")

    assert element(response, "title", ATOM) == "Queues"
    assert response.body.count(b"<entry") == 1


def test_a_whole_description_that_is_sent_back_changes_what_it_changes() -> None:
    """Updates hold every element, counts and moments too, and what .NET did not understand."""
    endpoint = prepared()
    ask(endpoint, "PUT", "/orders?api-version=2021-05", DOTNET_QUEUE.encode())
    shown = ask(endpoint, "GET", "/orders?api-version=2021-05").body
    sent = (
        shown.replace(b"<MaxDeliveryCount>7<", b"<MaxDeliveryCount>9<")
        .replace(b"<MessageCount>0<", b"<MessageCount>5<")
        .replace(b"</QueueDescription>", b"<Future><Thing/></Future></QueueDescription>")
    )

    response = ask(endpoint, "PUT", "/orders/?api-version=2021-05", sent, if_match=" * ")

    assert response.status == 200
    spec = endpoint.namespace.get("orders").spec
    assert (spec.delivery_count_max, spec.forward_to) == (9, "home")
    assert element(response, "MessageCount") == "0"


@pytest.mark.parametrize(
    ("path", "name", "order"),
    [
        ("/orders", "QueueDescription", QUEUE_ORDER),
        ("/news", "TopicDescription", TOPIC_ORDER),
        ("/news/subscriptions/eu", "SubscriptionDescription", SUBSCRIPTION_ORDER),
        ("/news/subscriptions/eu/rules/own", "RuleDescription", "Filter Action CreatedAt Name"),
    ],
)
def test_descriptions_have_their_elements_in_the_order_of_the_contract(
    path: str, name: str, order: str
) -> None:
    """What is not set is left out, all else is there."""
    endpoint = prepared()
    ask(endpoint, "PUT", "/orders", DOTNET_QUEUE.encode())
    forwarding = "<Status>Active</Status><ForwardTo>sb://localhost/home</ForwardTo>"
    body = DOTNET_SUBSCRIPTION.replace("<Status>Active</Status>", forwarding).replace(
        "<RequiresSession>true", "<RequiresSession>false"
    )
    assert ask(endpoint, "PUT", "/news/subscriptions/eu", body.encode()).status == 201

    found = description(ask(endpoint, "GET", f"{path}?api-version=2024-05"))

    assert found.tag == f"{{{CONNECT}}}{name}"
    names = [child.tag.removeprefix(f"{{{CONNECT}}}") for child in found]
    assert names == [word for word in order.split() if word in names]
    missing = {*order.split()} - {*names}
    assert missing == ({"ForwardDeadLetteredMessagesTo"} if name.startswith("Sub") else set())


def test_counts_have_a_namespace_of_their_own_under_one_prefix() -> None:
    """One client finds the prefix by the only attribute of CountDetails."""
    response = ask(prepared(), "GET", "/home")

    details = description(response).find(f"{{{CONNECT}}}CountDetails")
    assert details is not None
    assert [child.tag for child in details] == [
        f"{{{COUNTS}}}{name}MessageCount"
        for name in ("Active", "DeadLetter", "Scheduled", "Transfer", "TransferDeadLetter")
    ]
    assert f'<CountDetails xmlns:d2p1="{COUNTS}"><d2p1:'.encode() in response.body


@pytest.mark.parametrize(
    ("method", "path", "match", "status"),
    [
        ("PUT", "/orders", None, 201),
        ("PUT", "/orders", "*", 404),
        ("PUT", "/home", None, 409),
        ("PUT", "/home", "*", 200),
        ("DELETE", "/home", "*", 200),
        ("DELETE", "/home", None, 200),
        ("DELETE", "/orders", None, 404),
        ("GET", "/orders", None, 404),
    ],
)
def test_what_a_request_does_hangs_on_its_method_and_if_match(
    method: str, path: str, match: str | None, status: int
) -> None:
    """PUT creates, PUT with `If-Match: *` updates."""
    headers = {} if match is None else {"if_match": match}

    response = ask(prepared(), method, f"{path}?api-version=2021-05", entry(), **headers)

    assert response.status == status
    if method == "DELETE" and status == 200:
        assert response.body == b""

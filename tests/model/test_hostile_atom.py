"""Whatever document arrives wherever, management answers: never a 500, never at length."""

import asyncio
import tracemalloc
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardbus.broker.access.sas import mint_token
from shardbus.core.errors import Refused
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM
from shardbus.gateway.http.atom.markup import DEPTH_MAX, INSTANCE, escaped
from shardbus.gateway.http.server.message import HttpRequest, HttpResponse
from tests.support.hostile_xml import BODY_BYTES, LARGE, filled
from tests.unit.gateway.site import Endpoint
from tests.unit.gateway.test_recorded_shapes import (
    DOTNET_QUEUE,
    DOTNET_SUBSCRIPTION,
    JAVA_QUEUE,
    TOPIC,
)

ERROR_BYTES_MAX = 4096
# A request of a megabyte becomes text, elements and an answer; a bomb would be thousands of times.
MEMORY_FACTOR_MAX = 40
TOKEN = mint_token("http://h/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 4_102_444_800)

RULE = (
    f'<entry xmlns="{ATOM}"><content type="application/xml"><RuleDescription xmlns="{CONNECT}" '
    f'xmlns:i="{INSTANCE}"><Filter i:type="SqlFilter"><SqlExpression>a > @b AND c LIKE \'x%\''
    "</SqlExpression><Parameters><KeyValueOfstringanyType><Key>@b</Key>"
    '<Value i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">5</Value>'
    '</KeyValueOfstringanyType></Parameters></Filter><Action i:type="SqlRuleAction">'
    "<SqlExpression>SET a = 1</SqlExpression></Action><Name>r</Name></RuleDescription></content>"
    "</entry>"
)
DOCUMENTS = [DOTNET_QUEUE, JAVA_QUEUE, TOPIC, DOTNET_SUBSCRIPTION, RULE]
TARGETS = [
    "/q", "/new", "/t", "/t/subscriptions/s", "/t/subscriptions/new", "/t/Subscriptions/s/Rules/r",
    "/t/subscriptions/s/rules/$Default", "/t/subscriptions", "/t/subscriptions/s/rules",
    "/$Resources/queues", "/$namespaceinfo", "/q/subscriptions/s", "/none/subscriptions/s",
    "/t/subscriptions/s/rules/a/b",
]  # fmt: skip
WORDS = [
    "<", ">", "</", "/>", "&", "&amp;", "&#0;", "&#x10FFFF;", "&b;", "<!DOCTYPE a [", "]>",
    '<!ENTITY b "bb">', '<!ENTITY b SYSTEM "file:///etc/hostname">', "<![CDATA[", "]]>", "<?x ?>",
    "<!--", "-->", 'xmlns=""', 'xmlns:i="urn:x"', 'i:nil="true"', "\0", "\ufffe", "9" * 400, "-1",
    "P1Y", "PT" + "9" * 20 + "S", "1e999", "true", "sb://", "sb://h/q/$management",
    "<AuthorizationRules><AuthorizationRule/></AuthorizationRules>", "<a>" * 40, "NaN", "((((",
    "http://h/%zz", "subscriptions/",
]  # fmt: skip
NAMES = [
    "LockDuration", "MaxSizeInMegabytes", "RequiresSession", "DefaultMessageTimeToLive",
    "AuthorizationRules", "AuthorizationRule", "Rights", "AccessRights", "KeyName", "PrimaryKey",
    "Status", "ForwardTo", "UserMetadata", "EnablePartitioning", "MaxMessageSizeInKilobytes",
    "DefaultRuleDescription", "Filter", "Action", "SqlExpression", "Parameters", "Properties",
    "KeyValueOfstringanyType", "Key", "Value", "Name", "CorrelationId", "Label", "CountDetails",
    "MaxDeliveryCount", "AutoDeleteOnIdle", "IsAnonymousAccessible", "EnableExpress",
]  # fmt: skip
KINDS = ["QueueDescription", "TopicDescription", "SubscriptionDescription", "RuleDescription"]
TYPES = ["SqlFilter", "CorrelationFilter", "TrueFilter", "SqlRuleAction", "x:int", "guid", "fish"]
ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp500", "utf-7"]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good document with a few pieces cut out, doubled, moved or put in."""
    text = draw(st.sampled_from(DOCUMENTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 60)))
        piece = text[start:end]
        put = draw(
            st.sampled_from([*WORDS, "", piece * 2, piece[::-1], piece.upper(), f"<{piece}>"])
            | st.text(max_size=8)
        )
        text = text[:start] + put + text[end:]
    return text.encode("utf-8", "replace")


def made_of(name: str, kind: str | None, inside: str | list[str]) -> str:
    attribute = "" if kind is None else f' i:type="{kind}"'
    content = escaped(inside) if isinstance(inside, str) else "".join(inside)
    return f"<{name}{attribute}>{content}</{name}>"


texts = st.sampled_from(WORDS) | st.text(max_size=12)
leaves = st.builds(made_of, st.sampled_from(NAMES), st.none() | st.sampled_from(TYPES), texts)
elements = st.recursive(
    leaves,
    lambda inner: st.builds(
        made_of,
        st.sampled_from(NAMES),
        st.none() | st.sampled_from(TYPES),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)
built = st.builds(
    lambda kind, inside: (
        f'<entry xmlns="{ATOM}"><content><{kind} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">'
        f"{''.join(inside)}</{kind}></content></entry>"
    ).encode("utf-8", "replace"),
    st.sampled_from(KINDS),
    st.lists(elements, max_size=6),
)
encoded = st.builds(
    lambda text, encoding, declared: (
        f"<?xml version='1.0' encoding='{declared}'?>{text.partition('?>')[2] or text}"
    ).encode(encoding, "replace"),
    st.sampled_from(DOCUMENTS),
    st.sampled_from(ENCODINGS),
    st.sampled_from([*ENCODINGS, "utf-8", "fish"]),
)


def prepared() -> Endpoint:
    endpoint = Endpoint()
    for target, body in (
        ("/home", JAVA_QUEUE),
        ("/q", JAVA_QUEUE),
        ("/t", TOPIC),
        ("/t/subscriptions/s", DOTNET_SUBSCRIPTION),
    ):
        assert ask(endpoint, "PUT", target, body.encode()).status == 201
    return endpoint


def ask(
    endpoint: Endpoint, method: str, target: str, body: bytes, *, is_update: bool = False
) -> HttpResponse:
    headers = {"host": "h", "authorization": TOKEN}
    if is_update:
        headers["if-match"] = "*"
    request = HttpRequest(method, target, headers, body, is_secure=False)
    return asyncio.run(endpoint.site.respond(request))


def check(response: HttpResponse) -> None:
    # 501 names the one element of the dialect that the bus does not offer.
    assert response.status < 500 or response.status == 501, response.body
    if response.status == 405 or not response.body:
        return
    root = ElementTree.fromstring(response.body)
    if response.status >= 400:
        assert root.tag == "Error"
        assert len(response.body) < ERROR_BYTES_MAX


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(mutated(), built, encoded, st.binary(max_size=100)),
    st.sampled_from(TARGETS),
    st.booleans(),
)
@example(RULE.encode(), "/t/subscriptions/s/rules/r", False)
@example(DOTNET_SUBSCRIPTION.encode("utf-16"), "/t/subscriptions/new", False)
def test_no_document_breaks_management(body: bytes, target: str, is_update: bool) -> None:
    endpoint = prepared()

    response = ask(endpoint, "PUT", target, body, is_update=is_update)

    check(response)
    # And whatever was taken can be shown.
    for path in ("/$Resources/queues", "/$Resources/topics", "/t/subscriptions", target):
        check(ask(endpoint, "GET", path, b""))


@settings(deadline=None)
@given(
    st.sampled_from(["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "x"]),
    st.sampled_from([*TARGETS, "/"]),
    st.text(st.characters(exclude_characters="?#\r\n", codec="utf-8"), max_size=20),
    st.dictionaries(
        st.sampled_from(["api-version", "$skip", "$top", "enrich", "timeout"]),
        st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["2013-07", "7", "²"]),
        max_size=3,
    ),
)
def test_no_path_or_query_breaks_management(
    method: str, target: str, more: str, query: dict[str, str]
) -> None:
    fields = "&".join(f"{name}={value}" for name, value in query.items())
    endpoint = prepared()
    try:
        response = ask(endpoint, method, f"{target}{more}?{fields}", JAVA_QUEUE.encode())
    except Refused as refusal:
        # A target that is no target is refused before there is a request.
        assert "target cannot be read" in str(refusal)
        return

    assert response.status < 500, response.body


@pytest.mark.parametrize("name", LARGE)
def test_the_largest_documents_cost_a_bounded_amount(name: str) -> None:
    """What is refused is refused before it grew."""
    endpoint, body = prepared(), LARGE[name]
    tracemalloc.start()
    try:
        response = ask(endpoint, "PUT", "/new", body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Comments, instructions and unknown elements are no part of a description.
    assert response.status in (201, 400)
    assert len(response.body) < ERROR_BYTES_MAX
    assert peak_bytes < MEMORY_FACTOR_MAX * BODY_BYTES


@pytest.mark.parametrize("depth", [DEPTH_MAX - 3, DEPTH_MAX - 2])
def test_depth_is_counted_from_the_outermost_element(depth: int) -> None:
    body = filled(lambda _: "<a>" * depth + "</a>" * depth)

    assert ask(prepared(), "PUT", "/new", body).status == (201 if depth < DEPTH_MAX - 2 else 400)

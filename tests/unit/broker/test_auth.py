"""Tokens and keys: what is let in, what is kept out (R34)."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import quote

import pytest
from azure.servicebus._base_handler import ServiceBusSharedKeyCredential

from shardbus.broker.access.auth import (
    DEVELOPMENT_KEY,
    DEVELOPMENT_KEY_NAME,
    Authorizer,
    claims_required,
)
from shardbus.broker.access.sas import TOKEN_CHARACTERS_MAX, mint_token
from shardbus.core.errors import INVALID_ARGUMENT, UNAUTHORIZED, Refused
from shardbus.core.message import NEVER_MS
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule
from tests.support.entities import development_rule
from tests.support.refusals import refusal_of

NOW_S = 1_800_000_000
LATER_S = NOW_S + 3600


class StillClock:
    def now_ms(self) -> int:
        return NOW_S * 1000

    def steady_ms(self) -> int:
        return 1


class Rules:
    def __init__(self) -> None:
        self.entities = {
            "orders": [AccessRule("worker", LISTEN, "worker-key", "worker-spare")],
            "t": [AccessRule("publisher", SEND, "publisher-key")],
        }

    def namespace_rules(self) -> Sequence[AccessRule]:
        return [development_rule(), AccessRule("sender", SEND, "sender-key")]

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        return self.entities.get(path, [])


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer(Rules(), StillClock())


def root_token(resource: str, expires_at_s: int = LATER_S) -> str:
    return mint_token(resource, DEVELOPMENT_KEY_NAME, DEVELOPMENT_KEY, expires_at_s)


def test_a_token_of_the_root_rule_gives_every_right(authorizer: Authorizer) -> None:
    grant = authorizer.verify_token(
        root_token("sb://localhost:5672/orders"), "sb://localhost/Orders"
    )

    assert grant.expires_at_ms == LATER_S * 1000
    assert grant.path == "orders"
    for right in (LISTEN, SEND, MANAGE):
        assert grant.allows(right, "orders")
    assert not grant.allows(LISTEN, "orders2")


def test_a_token_for_the_namespace_covers_its_entities(authorizer: Authorizer) -> None:
    grant = authorizer.verify_token(root_token("https://localhost:5300"), "/orders")

    assert grant.allows(MANAGE, "orders")
    assert not grant.allows(MANAGE, "other"), "the audience asked for bounds the grant"


def test_the_python_sdks_own_token_is_accepted() -> None:
    """The SDK takes the expiry from the machine's clock, so ours stands at 0."""

    class ClockAtZero:
        def now_ms(self) -> int:
            return 0

        def steady_ms(self) -> int:
            return 1

    credential = ServiceBusSharedKeyCredential("sender", "sender-key")
    token = credential.get_token("sb://localhost:5672/orders").token

    grant = Authorizer(Rules(), ClockAtZero()).verify_token(token, "sb://localhost:5672/orders")

    assert grant.allows(SEND, "orders")
    assert not grant.allows(LISTEN, "orders")


def test_a_key_name_encoded_twice_is_understood(authorizer: Authorizer) -> None:
    rules = Rules()
    rules.entities["orders"] = [AccessRule("a rule/1", LISTEN, "key")]
    token = mint_token("sb://h/orders", quote("a rule/1", safe=""), "key", LATER_S)

    grant = Authorizer(rules, StillClock()).verify_token(token, "orders")

    assert grant.allows(LISTEN, "orders")


def test_lower_case_escapes_and_the_query_of_the_javascript_sdk_are_accepted(
    authorizer: Authorizer,
) -> None:
    """The HMAC is over the raw text, the comparison over the path."""
    token = root_token("https://localhost:5300/orders?api-version=2021-05")
    resource = quote("https://localhost:5300/orders?api-version=2021-05", safe="").lower()
    signed = mint_raw(resource, DEVELOPMENT_KEY)

    assert authorizer.verify_token(token, "/orders").allows(MANAGE, "orders")
    assert authorizer.verify_token(signed, "/orders").allows(MANAGE, "orders")


def mint_raw(encoded_resource: str, key: str) -> str:
    digest = hmac.new(key.encode(), f"{encoded_resource}\n{LATER_S}".encode(), hashlib.sha256)
    signature = quote(base64.b64encode(digest.digest()), safe="")
    return (
        f"SharedAccessSignature sig={signature}&se={LATER_S}"
        f"&skn={DEVELOPMENT_KEY_NAME}&sr={encoded_resource}"
    )


@pytest.mark.parametrize("key", ["worker-key", "worker-spare"])
def test_an_entity_rule_gives_its_right_on_its_entity_with_either_key(
    authorizer: Authorizer, key: str
) -> None:
    grant = authorizer.verify_token(mint_token("sb://h/orders", "worker", key, LATER_S), "orders")

    assert grant.allows(LISTEN, "orders")
    assert not grant.allows(SEND, "orders")
    assert not grant.allows(LISTEN, "orders/eu"), "another queue, whatever its name"


def test_an_entity_rule_is_unknown_elsewhere(authorizer: Authorizer) -> None:
    token = mint_token("sb://h/", "worker", "worker-key", LATER_S)

    for audience in ("other", "", "orders/eu"):
        with refusal_of(UNAUTHORIZED, "InvalidSignature"):
            authorizer.verify_token(token, audience)


def test_a_topics_rule_reaches_its_subscriptions(authorizer: Authorizer) -> None:
    token = mint_token("sb://h/t", "publisher", "publisher-key", LATER_S)

    grant = authorizer.verify_token(token, "sb://h/t/Subscriptions/s/$management")

    assert grant.allows(SEND, "t/subscriptions/s")


KEPT_OUT = [
    (root_token("sb://h/orders", NOW_S), "orders", UNAUTHORIZED, "ExpiredToken"),
    (root_token("sb://h/orders"), "other", UNAUTHORIZED, "InvalidAudience"),
    (root_token("sb://h/orders"), "orders2", UNAUTHORIZED, "InvalidAudience"),
    (root_token("sb://h/orders"), "", UNAUTHORIZED, "InvalidAudience"),
    (mint_token("sb://h/", DEVELOPMENT_KEY_NAME, "guess", LATER_S), "q", UNAUTHORIZED, "signature"),
    (mint_token("sb://h/", "nobody", DEVELOPMENT_KEY, LATER_S), "q", UNAUTHORIZED, "signature"),
    (mint_token("sb://h/", "", "no rule has an empty name", LATER_S), "q", INVALID_ARGUMENT, "skn"),
    (root_token("sb://h/").replace("se=1", "se=2"), "q", UNAUTHORIZED, "signature"),
    (root_token("sb://h/a").replace("%2Fa", "%2Fb"), "b", UNAUTHORIZED, "signature"),
    ("", "q", INVALID_ARGUMENT, "MalformedToken"),
    ("Bearer eyJhbGciOiJub25lIn0.e30.", "q", INVALID_ARGUMENT, "MalformedToken"),
    ("SharedAccessSignature", "q", INVALID_ARGUMENT, "'sr'"),
    ("SharedAccessSignature sr=a&sig=b&se=1", "q", INVALID_ARGUMENT, "'skn'"),
    ("SharedAccessSignature sr=a&sr=b&sig=b&se=1&skn=c", "q", INVALID_ARGUMENT, "twice"),
    ("SharedAccessSignature sr=a&sig=*&se=1&skn=c", "q", INVALID_ARGUMENT, "base64"),
    ("SharedAccessSignature sr=a&sig=%C3%A4&se=1&skn=c", "q", INVALID_ARGUMENT, "base64"),
    ("SharedAccessSignature sr=a&sig=YQ==&se=soon&skn=c", "q", INVALID_ARGUMENT, "'se'"),
    ("SharedAccessSignature sr=a&sig=YQ==&se=²&skn=c", "q", INVALID_ARGUMENT, "'se'"),
    ("SharedAccessSignature sr=a&sig=YQ==&se=1234567890123&skn=c", "q", INVALID_ARGUMENT, "'se'"),
    ("x" * (TOKEN_CHARACTERS_MAX + 1), "q", INVALID_ARGUMENT, "more than"),
]


@pytest.mark.parametrize(("token", "audience", "kind", "reason"), KEPT_OUT)
def test_what_is_forged_expired_or_for_something_else_is_kept_out(
    authorizer: Authorizer, token: str, audience: str, kind: object, reason: str
) -> None:
    """R34: no or forged or expired token."""
    with pytest.raises(Refused) as refusal:
        authorizer.verify_token(token, audience)

    assert refusal.value.kind is kind
    assert reason in refusal.value.message


def test_a_grant_knows_when_it_ends(authorizer: Authorizer) -> None:
    grant = authorizer.verify_token(root_token("sb://h/"), "q")

    assert not grant.is_expired(LATER_S * 1000 - 1)
    assert grant.is_expired(LATER_S * 1000)


def test_a_key_shown_over_plain_gives_its_rights_on_the_namespace(authorizer: Authorizer) -> None:
    grant = authorizer.verify_plain(b"\0sender\0sender-key")

    assert grant.allows(SEND, "anything/at/all")
    assert not grant.allows(LISTEN, "anything")
    assert grant.expires_at_ms == NEVER_MS
    assert not grant.is_expired(LATER_S * 1_000_000)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (b"", INVALID_ARGUMENT),
        (b"\0sender", INVALID_ARGUMENT),
        (b"\0sender\0sender-key\0", INVALID_ARGUMENT),
        (b"\0" * 5000, INVALID_ARGUMENT),
        (b"\0sender\0wrong", UNAUTHORIZED),
        (b"\0sender\0", UNAUTHORIZED),
        (b"\0nobody\0sender-key", UNAUTHORIZED),
        (b"\0worker\0worker-key", UNAUTHORIZED),
        (b"\0\0no rule has an empty name", UNAUTHORIZED),
        (b"\0\xff\0\xff", UNAUTHORIZED),
    ],
)
def test_a_wrong_plain_response_is_kept_out(
    authorizer: Authorizer, response: bytes, kind: object
) -> None:
    """R34."""
    with pytest.raises(Refused) as refusal:
        authorizer.verify_plain(response)

    assert refusal.value.kind is kind


def test_a_missing_claim_is_named_as_the_sdks_expect() -> None:
    refusal = claims_required(SEND, "sb://localhost/orders")

    assert refusal.message.startswith("Unauthorized access. 'Send' claim(s) are required")

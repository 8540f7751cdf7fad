"""Sign-in: what claims give, where, and until when (R34)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from shardbus.broker.access.auth import Authorizer, SignedIn
from shardbus.broker.access.bearer import SKEW_S, KeySet, read_keys
from shardbus.broker.access.claim_grants import DEFAULT_GRANTS, ClaimGrant, parse_grant, shares_of
from shardbus.broker.access.sas import mint_token
from shardbus.broker.access.sign_in import SignIn, Terms
from shardbus.core.errors import INVALID_ARGUMENT, UNAUTHORIZED, Refused, Unavailable
from shardbus.core.namespace.access import ALL_RIGHTS, LISTEN, MANAGE, SEND, AccessRule
from tests.support.issuer import (
    AUDIENCE,
    OWNER,
    RECEIVER,
    SENDER,
    TestKey,
    claims_of,
    key_set,
    rsa_key,
)
from tests.support.refusals import refusal_of

ISSUER: Final = "https://login.example/tenant"
NOW_S: Final = 1_800_000_000
ONE: Final = rsa_key("one")
TWO: Final = rsa_key("two")


class StillClock:
    def now_ms(self) -> int:
        return NOW_S * 1000

    def steady_ms(self) -> int:
        return 1


class Rules:
    def namespace_rules(self) -> Sequence[AccessRule]:
        return [AccessRule("root", ALL_RIGHTS, "key")]

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        return []


class Source:
    """Keys that are known, and those that the issuer would tell."""

    def __init__(self, *keys: TestKey) -> None:
        self.now: KeySet | None = read_keys(key_set(*keys)) if keys else None
        self.next: KeySet | None = None
        self.asked = 0

    def known(self) -> KeySet | None:
        return self.now

    def keys(self) -> KeySet:
        if self.now is None:
            raise Unavailable("There are no keys.")
        return self.now

    async def ask_again(self) -> None:
        self.asked += 1
        self.now = self.next or self.now


def authorizer(source: Source, *grants: str) -> Authorizer:
    made = Authorizer(Rules(), StillClock())
    terms = Terms(ISSUER, [AUDIENCE], [parse_grant(text) for text in grants or DEFAULT_GRANTS])
    made.sign_in = SignIn(terms, source, StillClock())
    return made


def token(*roles: str, key: TestKey = ONE, **others: object) -> str:
    return key.sign(claims_of(ISSUER, NOW_S, *roles, **others))


@pytest.mark.parametrize(
    ("role", "rights"), [(OWNER, LISTEN | SEND | MANAGE), (SENDER, SEND), (RECEIVER, LISTEN)]
)
def test_the_roles_of_the_cloud_give_what_they_give_there(role: str, rights: int) -> None:
    grant = authorizer(Source(ONE)).verify_token(token(role), "sb://bus/Orders")

    assert grant.rights == rights
    for right in (LISTEN, SEND, MANAGE):
        assert grant.allows(right, "orders") == bool(rights & right)
        assert not grant.allows(right, "invoices")
    assert grant.expires_at_ms == (NOW_S + 3600 + SKEW_S) * 1000


def test_a_role_for_one_entity_opens_no_other() -> None:
    checks = authorizer(Source(ONE), "role:clerk=Manage@orders", "role:reader=Listen")

    grant = checks.verify_token(token("clerk"), "sb://bus/orders")
    below = checks.verify_token(token("clerk"), "sb://bus/orders/Subscriptions/s/$management")
    with pytest.raises(Refused) as caught:
        checks.verify_token(token("clerk"), "sb://bus/invoices")
    both = checks.verify_token(token("clerk", "reader"), "sb://bus/")

    assert grant.allows(MANAGE, "orders")
    assert grant.allows(SEND, "orders/subscriptions/s")
    # A queue whose name goes on after a slash is another entity.
    assert not grant.allows(SEND, "orders/more")
    assert below.allows(LISTEN, "orders/subscriptions/s")
    assert caught.value.kind is UNAUTHORIZED
    assert "'invoices'" in caught.value.message
    assert (grant.owner, both.owner) == ("orders", "")
    assert both.allows(LISTEN, "invoices")
    assert both.allows(SEND, "orders")
    assert not both.allows(SEND, "invoices")


def test_rights_of_several_grants_add_up() -> None:
    checks = authorizer(Source(ONE), "role:a=Listen@q", "role:b=Send@q", "scope:c=Send")

    grant = checks.verify_token(token("a", "b"), "q")

    assert grant.rights == LISTEN | SEND
    assert not grant.allows(MANAGE, "q")


def test_who_has_no_role_that_counts_is_refused_and_told_why() -> None:
    with refusal_of(UNAUTHORIZED, "--oidc-grant"):
        authorizer(Source(ONE)).verify_token(token("Reader"), "q")


@pytest.mark.parametrize(
    ("grant", "claims"),
    [
        ("role:x=Send", {"roles": ["y", "x"]}),
        ("role:x=Send", {"roles": "x"}),
        ("role:a b=c@d=Send", {"roles": ["a b=c@d"]}),
        ("scope:bus.send=Send", {"scp": "openid bus.send"}),
        ("scope:bus.send=Send", {"scope": "bus.send"}),
        ("group:g=Send", {"groups": ["g"]}),
        ("subject:s=Send", {"sub": "s"}),
        ("subject:s=Send", {"oid": "s"}),
        ("subject:s=Send", {"appid": "s"}),
        ("subject:s=Send", {"azp": "s"}),
    ],
)
def test_a_name_is_found_in_the_claims_of_its_kind(grant: str, claims: dict[str, object]) -> None:
    [share] = shares_of(claims, [parse_grant(grant)])

    assert (share.rights, share.owner) == (SEND, "")


@pytest.mark.parametrize(
    "claims",
    [{"roles": ["X"]}, {"roles": {"x": 1}}, {"roles": [["x"]]}, {"groups": ["x"]}, {"scp": "x"},
     {"roles": "x y"}, {}],
)  # fmt: skip
def test_a_name_is_found_nowhere_else(claims: dict[str, object]) -> None:
    assert shares_of(claims, [parse_grant("role:x=Send")]) == []


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("role:x=Send", ClaimGrant("role", "x", SEND, "")),
        ("group: x =Send, Listen@Orders", ClaimGrant("group", "x", SEND | LISTEN, "orders")),
        ("subject:x=Manage@T/Subscriptions/S",
         ClaimGrant("subject", "x", ALL_RIGHTS, "t/subscriptions/s")),
    ],
)  # fmt: skip
def test_a_grant_is_read(text: str, grant: ClaimGrant) -> None:
    assert parse_grant(text) == grant


@pytest.mark.parametrize(
    "text",
    ["", "role:x", "x=Send", "role:=Send", "rule:x=Send", "role:x=", "role:x=Read", "role:x=Send@",
     "role:x=Send@a//b", "role:x=Send@sb://h/q", "role:x=Send@q/$management",
     "role:x=Send@q/$deadletterqueue", "role:x=Send@$cbs", "role:x=Send@a b"],
)  # fmt: skip
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_grant(text)


def test_a_signature_is_still_a_signature() -> None:
    checks = authorizer(Source(ONE))

    grant = checks.verify_token(mint_token("sb://h/q", "root", "key", NOW_S + 60), "q")

    assert grant.rights == ALL_RIGHTS
    with refusal_of(INVALID_ARGUMENT, "MalformedToken"):
        checks.verify_token("SharedAccessSignature x", "q")


def test_without_an_issuer_its_tokens_are_none() -> None:
    plain = Authorizer(Rules(), StillClock())

    with refusal_of(INVALID_ARGUMENT, "MalformedToken"):
        plain.verify_token(token(OWNER), "q")


def test_a_new_key_is_asked_for_and_a_known_one_is_not() -> None:
    source = Source(ONE)
    source.next = read_keys(key_set(TWO))
    checks = authorizer(source)

    for text in (token(OWNER), mint_token("sb://h/q", "root", "key", NOW_S + 60), "garbage", ""):
        asyncio.run(checks.prepare(text))
    asked_before = source.asked
    asyncio.run(checks.prepare(token(OWNER, key=TWO)))

    assert (asked_before, source.asked) == (0, 1)
    assert checks.verify_token(token(OWNER, key=TWO), "q").rights == ALL_RIGHTS
    with refusal_of(UNAUTHORIZED, "UnknownKey"):
        checks.verify_token(token(OWNER), "q")


def test_without_keys_nobody_is_told_that_their_token_is_bad() -> None:
    source = Source()
    checks = authorizer(source)

    asyncio.run(checks.prepare(token(OWNER)))
    with pytest.raises(Unavailable):
        checks.verify_token(token(OWNER), "q")

    assert source.asked == 1


def test_a_grant_ends_when_the_issuer_withdraws_the_key() -> None:
    source = Source(ONE, TWO)
    checks = authorizer(source)
    grants = [checks.verify_token(token(OWNER, key=key), "q") for key in (ONE, TWO)]

    source.now = read_keys(key_set(TWO))
    kept = [checks.renewed(grant) for grant in grants]
    source.now = None

    assert kept == [None, grants[1]]
    assert checks.renewed(grants[0]) is grants[0], "keys that are not known are not withdrawn"


def test_whose_token_it_is_has_a_name_that_no_access_rule_has() -> None:
    checks = authorizer(Source(ONE))

    signer = checks.verify_token(token(OWNER, oid="x" * 500), "q").signer

    assert isinstance(signer, SignedIn)
    assert signer.name == "oidc:" + "x" * 200

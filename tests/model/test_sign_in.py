"""Tokens of an issuer against a model of who may do what: nothing else opens anything (R38)."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.broker.access.bearer import SKEW_S, KeySet, read_keys, verify_bearer
from shardbus.broker.access.claim_grants import ClaimGrant
from shardbus.broker.access.sign_in import SignIn, Terms
from shardbus.core.errors import Refused
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND
from tests.support.issuer import TestKey, key_set, part, rsa_key

KNOWN, UNKNOWN = rsa_key("one"), rsa_key("two")
IMPOSTOR = rsa_key("one")
KEYS: Final = read_keys(key_set(KNOWN))
NOW_S: Final = 1_800_000_000
ISSUER: Final = "https://issuer"
AUDIENCES: Final = ["bus", "bus/"]
ENTITIES: Final = ["a", "a/b", "b", "t", "t/subscriptions/s"]
ROLES: Final = ["x", "y", "z"]

TIMES: Final = st.integers(NOW_S - 2 * SKEW_S, NOW_S + 2 * SKEW_S)
GRANTS: Final = st.lists(
    st.builds(
        ClaimGrant,
        st.just("role"),
        st.sampled_from(ROLES),
        st.sampled_from([LISTEN, SEND, LISTEN | SEND, LISTEN | SEND | MANAGE]),
        st.sampled_from(["", *ENTITIES]),
    ),
    max_size=4,
)


class KnownKeys:
    def known(self) -> KeySet | None:
        return KEYS

    def keys(self) -> KeySet:
        return KEYS

    async def ask_again(self) -> None:
        raise AssertionError("nobody asks while a token is verified")


class StillClock:
    def now_ms(self) -> int:
        return NOW_S * 1000

    def steady_ms(self) -> int:
        return 1


def given_rights(grants: list[ClaimGrant], roles: list[str], entity: str) -> int:
    """The model: each grant of a role, on its entity and on the subscriptions of that."""
    rights = 0
    for grant in grants:
        is_there = grant.entity in ("", entity) or entity == f"{grant.entity}/subscriptions/s"
        if grant.name in roles and is_there:
            rights |= grant.rights
    return rights


@given(
    key=st.sampled_from([KNOWN, KNOWN, KNOWN, UNKNOWN, IMPOSTOR]),
    issuer=st.sampled_from([ISSUER, ISSUER, ISSUER, ISSUER + "/"]),
    audience=st.sampled_from(["bus", "bus/", "other", ["other", "bus"], [], None]),
    times=st.tuples(TIMES, TIMES),
    roles=st.lists(st.sampled_from(ROLES), max_size=3),
    grants=GRANTS,
    path=st.sampled_from(["", *ENTITIES]),
)
def test_a_token_gives_what_the_model_says(  # noqa: PLR0913 - what a token is made of
    key: TestKey,
    issuer: str,
    audience: object,
    times: tuple[int, int],
    roles: list[str],
    grants: list[ClaimGrant],
    path: str,
) -> None:
    expires_s, begins_s = times
    claims = {
        "iss": issuer, "aud": audience, "exp": expires_s, "nbf": begins_s, "roles": roles
    }  # fmt: skip
    signing = SignIn(Terms(ISSUER, AUDIENCES, grants), KnownKeys(), StillClock())
    named = audience if isinstance(audience, list) else [audience]
    is_genuine = key is KNOWN and issuer == ISSUER and bool({"bus", "bus/"} & set(named))
    is_time = begins_s - SKEW_S <= NOW_S < expires_s + SKEW_S
    reached = [entity for entity in ENTITIES if not path or f"{entity}/".startswith(f"{path}/")]
    model = {entity: given_rights(grants, roles, entity) for entity in reached}
    token = key.sign(claims)

    if not is_genuine or not is_time or not any(model.values()):
        with pytest.raises(Refused):
            signing.verify(token, path)
        return
    grant = signing.verify(token, path)
    for entity in ENTITIES:
        for right in (LISTEN, SEND, MANAGE):
            assert grant.allows(right, entity) == bool(model.get(entity, 0) & right)
    assert grant.is_expired((expires_s + SKEW_S) * 1000)
    assert not grant.is_expired((expires_s + SKEW_S) * 1000 - 1)


GOOD: Final = KNOWN.sign({"iss": ISSUER, "aud": "bus", "exp": NOW_S + 60, "roles": ["x"]})


def verified(text: str) -> object:
    return verify_bearer(text, KEYS, issuer=ISSUER, audiences=AUDIENCES, now_s=NOW_S).claims


@given(st.integers(0, len(GOOD) - 1), st.characters(codec="utf-8"))
def test_an_altered_token_is_refused_or_says_the_same(place: int, character: str) -> None:
    """The last character of a part has bits that mean nothing."""
    altered = GOOD[:place] + character + GOOD[place + 1 :]

    try:
        claims = verified(altered)
    except Refused:
        return
    assert claims == verified(GOOD)


JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "exp", "x"]), inner)
    ),
    max_leaves=6,
)
HEADERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "alg": st.sampled_from(["RS256", "none", "HS256", "ES256", "", None, 7]) | JSON,
        "kid": st.just("one") | JSON,
        "crit": JSON,
        "b64": JSON,
        "typ": JSON,
    },
)
PARTS: Final = st.text(max_size=20) | st.binary(max_size=20).map(part)


@given(
    st.text(max_size=40)
    | st.tuples(HEADERS.map(lambda head: part(json.dumps(head).encode())), PARTS, PARTS).map(
        ".".join
    )
    | st.tuples(PARTS, PARTS, PARTS).map(".".join)
)
def test_any_other_text_is_refused_as_a_token(text: str) -> None:
    with pytest.raises(Refused):
        verified(text)


@given(JSON)
def test_any_document_is_a_set_of_keys_or_none(document: object) -> None:
    for content in (document, {"keys": document}, {"keys": [document]}):
        with pytest.raises(ValueError, match="key"):
            read_keys(json.dumps(content).encode())


KEY_FIELDS: Final = st.dictionaries(
    st.sampled_from(["kty", "kid", "n", "e", "crv", "x", "y", "use", "alg", "key_ops"]), JSON
)


@given(KEY_FIELDS)
def test_a_key_that_is_altered_breaks_no_set(fields: dict[str, object]) -> None:
    beside = {**KNOWN.published(), **fields}

    found = read_keys(json.dumps({"keys": [beside, UNKNOWN.published()]}).encode())

    assert found.names("two")

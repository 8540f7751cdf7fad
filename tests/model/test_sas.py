"""Whatever the names, keys and bytes: what is minted is accepted, what is not is kept out (R34)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.access.sas import mint_token
from shardbus.core.errors import Refused
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SEGMENTS = st.text("abcXYZ019.-_", min_size=1, max_size=6).filter(
    lambda text: text.lower() != "subscriptions"
)
PATHS = st.lists(SEGMENTS, min_size=0, max_size=4).map("/".join)


class OneRule:
    def __init__(self, rule: AccessRule) -> None:
        self._rule = rule

    def namespace_rules(self) -> Sequence[AccessRule]:
        return [self._rule]

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        return []


class ClockAtZero:
    def now_ms(self) -> int:
        return 0

    def steady_ms(self) -> int:
        return 1


@given(NAMES, KEYS, PATHS, PATHS, st.sampled_from([LISTEN, SEND, MANAGE]))
def test_a_minted_token_opens_what_lies_below_its_resource(
    name: str, key: str, scope: str, below: str, right: int
) -> None:
    authorizer = Authorizer(OneRule(AccessRule(name, right, key)), ClockAtZero())
    path = "/".join(part for part in (scope, below) if part)
    token = mint_token(f"sb://host:5672/{scope}", name, key, 1)

    grant = authorizer.verify_token(token, f"amqps://other/{path}")

    assert grant.allows(right, path.lower())


@given(NAMES, KEYS, PATHS, PATHS)
def test_a_token_opens_nothing_beside_its_resource(
    name: str, key: str, scope: str, path: str
) -> None:
    segments, wanted = scope.lower().split("/"), path.lower().split("/")
    authorizer = Authorizer(OneRule(AccessRule(name, SEND, key)), ClockAtZero())
    token = mint_token(f"sb://host/{scope}", name, key, 1)
    is_below = not scope or wanted[: len(segments)] == segments

    if is_below:
        assert authorizer.verify_token(token, path).allows(SEND, path.lower())
    else:
        with pytest.raises(Refused):
            authorizer.verify_token(token, path)


@given(KEYS, KEYS)
def test_another_key_opens_nothing(key: str, other: str) -> None:
    authorizer = Authorizer(OneRule(AccessRule("rule", SEND, key)), ClockAtZero())
    token = mint_token("sb://host/", "rule", other, 1)

    if key == other:
        assert authorizer.verify_token(token, "q").allows(SEND, "q")
    else:
        with pytest.raises(Refused):
            authorizer.verify_token(token, "q")


FIELDS = st.sampled_from(["sr", "sig", "se", "skn", "x", ""])
PARTS = st.tuples(FIELDS, st.text(max_size=12)).map(lambda part: f"{part[0]}={part[1]}")


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(PARTS, max_size=6).map(lambda parts: "SharedAccessSignature " + "&".join(parts)),
    )
)
def test_any_other_text_is_refused_as_a_token(text: str) -> None:
    authorizer = Authorizer(
        OneRule(AccessRule("rule", SEND, "a long and secret key")), ClockAtZero()
    )

    with pytest.raises(Refused):
        authorizer.verify_token(text, "q")


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_as_a_plain_response(response: bytes) -> None:
    authorizer = Authorizer(
        OneRule(AccessRule("rule", SEND, "a long and secret key")), ClockAtZero()
    )

    with pytest.raises(Refused):
        authorizer.verify_plain(response)

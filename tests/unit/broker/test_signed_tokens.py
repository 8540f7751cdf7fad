"""Tokens that are shown again: answered as if they had never been seen (R34)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.broker.access import sas
from shardbus.broker.access.auth import Authorizer, Grant, WrongKey
from shardbus.broker.access.sas import mint_token, parse_token
from shardbus.broker.access.signed_tokens import (
    KEPT_CHARACTERS_MAX,
    TOKENS_KEPT_MAX,
    SignedTokens,
)
from shardbus.core.errors import UNAUTHORIZED, Refused
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule
from tests.support.refusals import refusal_of

NOW_S = 1_800_000_000
KEYS = ["k1", "k2", "k3"]
NAMES = ["a", "b"]
OWNERS = ["", "orders", "t", "t/subscriptions/s"]
PATHS = ["", "orders", "t/subscriptions/s", "gone"]
TOKENS = [
    mint_token(f"sb://h/{path}", name, key, NOW_S + seconds)
    for path in PATHS
    for name in NAMES
    for key in KEYS
    for seconds in (10, 20)
]


class Clock:
    def __init__(self) -> None:
        self.s = NOW_S

    def now_ms(self) -> int:
        return self.s * 1000

    def steady_ms(self) -> int:
        return 1


class Rules:
    """Rules by their owner, which may change at any moment."""

    def __init__(self) -> None:
        self.by_owner: dict[str, list[AccessRule]] = {}

    def namespace_rules(self) -> Sequence[AccessRule]:
        return self.by_owner.get("", [])

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        return self.by_owner.get(path, [])


class World:
    def __init__(self) -> None:
        self.rules, self.clock = Rules(), Clock()
        self.rules.by_owner[""] = [AccessRule("a", LISTEN, "k1", "k2")]
        self.authorizer = Authorizer(self.rules, self.clock)

    def show(self, token: str, path: str = "") -> Grant:
        return self.authorizer.verify_token(token, path)


@pytest.fixture
def world() -> World:
    return World()


def token(key: str, name: str = "a", path: str = "", seconds: int = 60) -> str:
    return mint_token(f"sb://h/{path}", name, key, NOW_S + seconds)


def answer(authorizer: Authorizer, text: str, path: str) -> object:
    """All that a caller can learn."""
    try:
        grant = authorizer.verify_token(text, path)
    except Refused as refusal:
        return type(refusal), refusal.kind, refusal.message
    return grant.rights, grant.owner, grant.path, grant.expires_at_ms, vars(grant.signer)


RULES = st.builds(
    AccessRule,
    st.sampled_from(NAMES),
    st.sampled_from([LISTEN, SEND, MANAGE]),
    st.sampled_from(KEYS),
    st.sampled_from([*KEYS, ""]),
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(OWNERS), st.lists(RULES, max_size=2, unique_by=lambda r: r.name)),
    st.tuples(st.sampled_from(TOKENS), st.sampled_from(PATHS)),
    st.integers(1, 15),
)


@given(st.lists(STEPS, max_size=30))
def test_every_answer_is_that_to_a_token_never_seen(
    steps: list[tuple[str, list[AccessRule]] | tuple[str, str] | int],
) -> None:
    """R34: whatever happens to rules and keys between two requests."""
    world = World()
    for step in steps:
        if isinstance(step, int):
            world.clock.s += step
        elif isinstance(step[1], list):
            world.rules.by_owner[step[0]] = step[1]
        else:
            text, path = step
            fresh = Authorizer(world.rules, world.clock)
            assert answer(world.authorizer, text, path) == answer(fresh, text, path)


def test_the_signature_of_a_token_is_computed_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = token("k2")
    world.show(text)

    def never(key: str, signed: str) -> bytes:
        raise AssertionError("computed again")

    monkeypatch.setattr(sas, "_digest", never)
    assert world.show(text, "orders").rights == LISTEN


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [AccessRule("a", LISTEN, "k3", "k2")],
        [AccessRule("b", LISTEN, "k1", "k2")],
    ],
    ids=["deleted", "rotated", "renamed"],
)
def test_a_key_that_is_gone_ends_a_known_token_at_once(
    world: World, rules: list[AccessRule]
) -> None:
    text = token("k1")
    world.show(text)
    kept = list(world.rules.by_owner[""])

    world.rules.by_owner[""] = rules
    with pytest.raises(WrongKey):
        world.show(text)
    world.rules.by_owner[""] = kept

    assert world.show(text).rights == LISTEN


def test_other_rights_count_for_a_known_token_at_once(world: World) -> None:
    text = token("k1")
    world.show(text)

    world.rules.by_owner[""] = [AccessRule("a", SEND, "k1")]

    assert world.show(text).rights == SEND


def test_a_known_token_expires(world: World) -> None:
    text = token("k1", seconds=1)
    world.show(text)

    world.clock.s += 1
    with refusal_of(UNAUTHORIZED, "ExpiredToken"):
        world.show(text)


def test_a_known_token_is_good_for_nothing_more(world: World) -> None:
    text = token("k1", path="orders")
    world.show(text, "orders")

    with refusal_of(UNAUTHORIZED, "InvalidAudience"):
        world.show(text, "t")


def test_only_good_tokens_are_kept_and_not_too_many_or_too_long() -> None:
    """R34: a stranger fills nothing."""
    world, tokens = World(), SignedTokens()
    world.authorizer._tokens = tokens
    bad = [token("k3"), token("k1", seconds=-1), token("k1", path="t"), token("k1", name="b")]
    for text in bad:
        with refusal_of(UNAUTHORIZED):
            world.show(text, "orders")
    assert len(tokens) == 0

    world.show(token("k1", path="x" * KEPT_CHARACTERS_MAX), "x" * KEPT_CHARACTERS_MAX)
    assert len(tokens) == 0

    for number in range(TOKENS_KEPT_MAX + 5):
        world.show(token("k1", seconds=60 + number))
        world.show(token("k1", seconds=60))
    assert len(tokens) == TOKENS_KEPT_MAX
    assert tokens.read(token("k1", seconds=60)) is tokens.read(token("k1", seconds=60))
    assert tokens.read(token("k1", seconds=61)) is not tokens.read(token("k1", seconds=61))


def test_a_key_among_others_is_found_again() -> None:
    read = parse_token(token("k2"))

    assert read.signing_key(["k1", "k2"]) == "k2"
    assert read.signing_key(["k3", "k2"]) == "k2"
    assert read.signing_key(["k1", "k3"]) is None
    assert read.signing_key(["k2"]) == "k2"

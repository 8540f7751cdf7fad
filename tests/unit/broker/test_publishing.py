"""Who gets which copy of a published message (R30)."""

import pytest

from shardbus.broker.fragment.publishing import Parcel, Publisher
from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.limits import REASON_CHARACTERS_MAX
from shardbus.core.message import NEVER_MS, Entry
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
    new_subscription,
    spread_fragments,
)
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.rule_spec import RuleSpec, TypedValue, correlation_filter, default_rule
from shardbus.core.properties import unpack
from shardbus.rules.limits import SQL_RULES_MAX
from tests.support.entities import new_topic
from tests.unit.broker.news import FORMAT, new_publisher, sql_rule

NOW_MS = 1_000_000


def topic(default_ttl_ms: int | None = None) -> Entity:
    spec = EntitySpec()
    if default_ttl_ms is not None:
        spec.default_ttl_ms = default_ttl_ms
    return new_topic(1, "news", spec, 0)


def subscription(number: int, *rules: RuleSpec, dead_letters: bool = True) -> Entity:
    spec = EntitySpec()
    spec.dead_letters_on_filter_errors = dead_letters
    made = new_subscription(number, topic(), f"s{number}", spec, 0)
    made.rules = list(rules)
    return made


def told(*subscriptions: Entity, fragments: int = 1) -> Publisher:
    publisher = new_publisher()
    told_of = topic()
    told_of.fragments = spread_fragments(1, fragments, 1)
    told_of.hash_starts = even_hash_starts(fragments)
    publisher.tell(told_of, subscriptions)
    return publisher


def entry(payload: bytes, *, expires_at_ms: int = NEVER_MS, session_id: str | None = None) -> Entry:
    return Entry(
        7,
        payload,
        len(payload),
        enqueued_at_ms=NOW_MS,
        expires_at_ms=expires_at_ms,
        session_id=session_id,
    )


def receivers(publisher: Publisher, payload: bytes) -> list[int]:
    return [each.subscription.entity_id for each in publisher.parcels(entry(payload))]


def only(parcels: list[Parcel]) -> list[Entry]:
    [parcel] = parcels
    return parcel.entries


def test_everyone_whose_rule_matches_gets_a_copy_with_the_same_payload_object() -> None:
    publisher = told(
        subscription(2, default_rule(0)),
        subscription(3, sql_rule("red", "color = 'red'")),
        subscription(4, RuleSpec("x", correlation_filter({"Label": "x"}), 0)),
        subscription(5),
    )
    message = entry(b"color=red;label=y|body")

    parcels = publisher.parcels(message)

    assert [each.subscription.entity_id for each in parcels] == [2, 3]
    for parcel in parcels:
        [copy] = parcel.entries
        assert copy is not message and copy.payload is message.payload
        assert copy.sequence_number == 7 and copy.reason is None


def test_several_rules_without_action_give_one_copy() -> None:
    publisher = told(subscription(2, default_rule(0), sql_rule("red", "color = 'red'")))

    assert len(only(publisher.parcels(entry(b"color=red|")))) == 1


def test_each_rule_with_an_action_gives_a_copy_of_its_own() -> None:
    publisher = told(
        subscription(
            2,
            default_rule(0),
            sql_rule("mark", "color = 'red'", "SET mark = 'yes'"),
            sql_rule("strip", "color = 'red'", "REMOVE color"),
        )
    )

    copies = only(publisher.parcels(entry(b"color=red|body")))

    assert [unpack(copy.modified) for copy in copies] == [
        {},
        {"mark": b"yes", "RuleName": b"mark"},
        {"color": b"", "RuleName": b"strip"},
    ]
    assert {copy.payload for copy in copies} == {b"color=red|body"}


def test_an_action_on_system_properties_rewrites_the_payload_of_its_copy_only() -> None:
    publisher = told(
        subscription(2, sql_rule("a", "1=1", "SET sys.Label = 'new'; SET sys.SessionId = 'z'")),
        subscription(3, default_rule(0)),
    )
    message = entry(b"label=old|body", session_id="s")

    [changed], [plain] = (each.entries for each in publisher.parcels(message))

    assert changed.payload == b"label=new;session=z|body"
    assert changed.size_bytes == len(changed.payload)
    assert changed.session_id == "z"
    assert (plain.payload, plain.session_id) == (b"label=old|body", "s")


@pytest.mark.parametrize(
    ("requires_session", "fragments", "reason"),
    [
        (True, 16, "RuleActionException"),
        (True, 1, None),
        (False, 16, None),
    ],
)
def test_an_action_does_not_spread_a_session_over_fragments(
    requires_session: bool, fragments: int, reason: str | None
) -> None:
    """R11: otherwise several receivers could hold it at once."""
    made = subscription(2, sql_rule("a", "1=1", "SET sys.SessionId = 'z'"))
    made.spec.requires_session = requires_session
    [copy] = only(told(made, fragments=fragments).parcels(entry(b"label=old|body", session_id="s")))

    assert copy.reason == reason
    assert copy.session_id == ("s" if reason else "z")


def test_an_action_may_spell_a_session_anew_where_it_is_spread() -> None:
    """It stays the same session, in the same fragment."""
    made = subscription(2, sql_rule("a", "1=1", "SET sys.SessionId = 'SÄ'"))
    made.spec.requires_session = True
    [copy] = only(told(made, fragments=16).parcels(entry(b"label=old|body", session_id="sä")))

    assert (copy.reason, copy.session_id) == (None, "SÄ")


@pytest.mark.parametrize(
    ("default_ttl_ms", "expiry_ms"),
    [(None, NOW_MS + 60_000), (100_000, NOW_MS + 60_000), (30_000, NOW_MS + 30_000)],
)
def test_an_action_can_set_the_time_to_live_within_the_topics(
    default_ttl_ms: int | None, expiry_ms: int
) -> None:
    publisher = new_publisher()
    rule = sql_rule("a", "1=1", "SET sys.TimeToLive = @ttl")
    rule.action_parameters = [TypedValue("@ttl", "timespan", str(60_000 * 10_000))]
    publisher.tell(topic(default_ttl_ms), [subscription(2, rule)])

    [copy] = only(publisher.parcels(entry(b"x|")))

    assert copy.expires_at_ms == expiry_ms


def test_a_filter_that_fails_makes_a_dead_letter_with_the_reason() -> None:
    """The name of the exception, and what it says."""
    publisher = told(
        subscription(2, sql_rule("bad", "1/0 = 1")),
        subscription(3, sql_rule("bad", "1/0 = 1"), dead_letters=False),
        subscription(4, default_rule(0), sql_rule("bad", "1/0 = 1")),
        subscription(5, sql_rule("worse", "1=1", "SET x = 1/0")),
    )

    parcels = {each.subscription.entity_id: each.entries for each in publisher.parcels(entry(b"x"))}

    assert {number: [copy.reason for copy in copies] for number, copies in parcels.items()} == {
        2: ["FilterException"],
        4: [None, "FilterException"],
        5: ["RuleActionException"],
    }
    description = parcels[2][0].description
    assert description is not None and description.startswith("Rule 'bad': ")


def test_a_description_of_a_failure_has_a_bound() -> None:
    publisher = told(subscription(2, sql_rule("bad", f"'{'x' * 900}' = 'y' OR 1/0 = 1")))

    [copy] = only(publisher.parcels(entry(b"x")))

    assert copy.description is not None and len(copy.description) <= REASON_CHARACTERS_MAX


def test_a_payload_that_cannot_be_read_fails_those_who_must_look_at_it() -> None:
    publisher = told(
        subscription(2, sql_rule("red", "color = 'red'")),
        subscription(3, default_rule(0)),
        subscription(4),
    )

    parcels = {each.subscription.entity_id: each.entries for each in publisher.parcels(entry(b"!"))}

    [dead], [plain] = parcels[2], parcels[3]
    assert (dead.reason, dead.description) == ("FilterException", "it is not text")
    assert plain.reason is None
    assert 4 not in parcels


def test_a_payload_that_no_rule_looks_at_need_not_be_readable() -> None:
    assert receivers(told(subscription(2, default_rule(0))), b"!") == [2]


def test_rules_see_what_the_bus_knows_of_a_message() -> None:
    publisher = told(
        subscription(2, sql_rule("a", "sys.SequenceNumber = 7 AND sys.Size = 5")),
        subscription(3, sql_rule("b", "sys.EnqueuedTimeUtc < sys.ExpiresAtUtc")),
        subscription(4, sql_rule("c", "sys.DeliveryCount = 0 AND sys.LockedUntilUtc IS NULL")),
    )

    lasting, short = entry(b"abcde"), entry(b"abcde", expires_at_ms=NOW_MS + 1)

    assert [each.subscription.entity_id for each in publisher.parcels(lasting)] == [2, 4]
    assert [each.subscription.entity_id for each in publisher.parcels(short)] == [2, 3, 4]


def test_new_ids_differ_from_message_to_message() -> None:
    publisher = told(subscription(2, sql_rule("id", "1=1", "SET id = newid()")))

    ids = [
        unpack(copy.modified)["id"]
        for _ in range(3)
        for copy in only(publisher.parcels(entry(b"x")))
    ]

    assert len(set(ids)) == 3


def test_until_it_is_told_a_publisher_knows_that_it_knows_nothing() -> None:
    publisher = Publisher(bytes(8), payloads=FORMAT)
    before = publisher.is_told

    publisher.tell(topic(), [])

    assert (before, publisher.is_told) == (False, True)
    assert publisher.parcels(entry(b"x")) == []


def test_rules_come_and_go_with_what_is_told() -> None:
    red, blue = sql_rule("r", "color = 'red'"), sql_rule("r", "color = 'blue'")
    first, second = subscription(2, red), subscription(3, default_rule(0))
    publisher = told(first, second)

    publisher.tell(topic(), [first.with_rules([blue], 1), second])
    assert receivers(publisher, b"color=red|") == [3]
    assert receivers(publisher, b"color=blue|") == [2, 3]

    publisher.tell(topic(), [first.with_rules([blue, red_named("other")], 2)])
    assert receivers(publisher, b"color=red|") == [2]
    assert receivers(publisher, b"color=green|") == []

    publisher.tell(topic(), [first.with_rules([], 3)])
    assert receivers(publisher, b"color=blue|") == []


def test_rules_that_did_not_change_are_not_compiled_again() -> None:
    kept, other = sql_rule("kept", "color = 'red'"), sql_rule("new", "color = 'blue'")
    publisher = told(subscription(2, kept))
    [compiled] = publisher._index.rules(2)

    publisher.tell(topic(), [subscription(2, sql_rule("kept", "color = 'red'"), other)])

    assert publisher._index.rules(2)[0] is compiled
    assert [rule.name for rule in publisher._index.rules(2)] == ["kept", "new"]


@pytest.mark.parametrize("count", [1, SQL_RULES_MAX + 1])
def test_what_cannot_be_published_by_leaves_everything_as_it_was(count: int) -> None:
    publisher = told(subscription(2, default_rule(0)))
    bad = [sql_rule(f"r{number}", "color = 'red'") for number in range(count)]
    if count == 1:
        bad[0].filter.expression = "color ="

    with pytest.raises(Refused) as refusal:
        publisher.tell(topic(), [subscription(2, sql_rule("r", "1=0")), subscription(3, *bad)])

    assert (refusal.value.kind is QUOTA_EXCEEDED) == (count > 1)
    assert receivers(publisher, b"color=red|") == [2]
    publisher.tell(topic(), [subscription(3, default_rule(0))])
    assert receivers(publisher, b"color=red|") == [3]


def red_named(name: str) -> RuleSpec:
    return sql_rule(name, "color = 'red'")

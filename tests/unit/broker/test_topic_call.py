"""A gateway tells a broker of another process which subscriptions a topic has."""

import asyncio
import json
from collections.abc import Callable

import pytest

from shardbus.broker.remote import topic_call
from shardbus.broker.remote.host_call import HostCalls, bare_json, delete_question, read_question
from shardbus.broker.remote.topic_call import DESCRIBE, UPDATE_TOPIC, TopicTeller
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
    entity_from_json,
    new_subscription,
)
from shardbus.core.namespace.entity import spread_fragments as spread
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.rule_spec import RuleSpec, default_rule, sql_filter
from shardbus.stores.base.store import FragmentId
from tests.support.entities import new_topic
from tests.support.refusals import unavailability
from tests.unit.broker.hosts import FakeHost


def a_topic() -> Entity:
    topic = new_topic(1, "t", EntitySpec(), 1)
    topic.fragments = spread(1, 2, 1)
    topic.hash_starts = even_hash_starts(2)
    return topic


TOPIC = a_topic()
NUMBERS = [0, 1]


def subscription(number: int, rules: list[RuleSpec] | None = None) -> Entity:
    made = new_subscription(10 + number, TOPIC, f"s{number}", EntitySpec(), 1)
    made.rules = [default_rule(1)] if rules is None else rules
    return made


class Line:
    """A broker, the questions that gateways asked it, and ways to start it again."""

    def __init__(self) -> None:
        self.host = FakeHost("b")
        self.calls = HostCalls(self.host)
        self.asked: list[tuple[str, int]] = []
        self.before: Callable[[str], None] = _nothing

    async def ask(self, document: str) -> str:
        do, fields = read_question(document)
        self.before(do)
        self.asked.append((do, len(document)))
        answer = await self.calls.answer(do, fields)
        assert answer is not None
        return answer

    def restart(self) -> None:
        self.calls = HostCalls(self.host)
        self.host.published.clear()

    def gateway(self) -> TopicTeller:
        return TopicTeller("b", self.ask)

    def tell(self, teller: TopicTeller, subscriptions: list[Entity]) -> None:
        for one in subscriptions:
            for number in NUMBERS:
                self.host.fragments[FragmentId(one.entity_id, number)] = one
        asyncio.run(teller.tell(TOPIC, subscriptions, NUMBERS))

    def words(self) -> list[str]:
        words = [do for do, _ in self.asked]
        self.asked.clear()
        return words

    def published(self) -> list[Entity]:
        return self.host.published[TOPIC.entity_id]


def _nothing(do: str) -> None:
    """Nothing happens before this question."""


def test_a_broker_publishes_to_what_it_was_told_in_full() -> None:
    line = Line()
    rule = RuleSpec("r", sql_filter("a = 1"), 1)

    line.tell(line.gateway(), [subscription(0), subscription(1, [rule])])

    assert [one.name for one in line.published()] == ["t/Subscriptions/s0", "t/Subscriptions/s1"]
    assert line.published()[1].rules[0].filter.expression == "a = 1"
    assert line.words() == [UPDATE_TOPIC, DESCRIBE, UPDATE_TOPIC]


def test_only_what_is_new_to_the_broker_is_described() -> None:
    line = Line()
    teller = line.gateway()
    known = [subscription(number) for number in range(50)]
    line.tell(teller, known)
    kept = line.published()[0]
    line.words()

    changed = known[7].with_rules([], 2)
    line.tell(teller, [*known[:7], changed, *known[8:]])

    described = [size for do, size in line.asked if do == DESCRIBE]
    assert len(described) == 1
    assert described[0] < 2 * len(changed.to_json())
    assert line.published()[0] is kept
    assert line.published()[7].rules == []
    assert len(line.published()) == 50


def test_what_did_not_change_costs_one_question() -> None:
    line = Line()
    teller = line.gateway()
    known = [subscription(0), subscription(1)]
    line.tell(teller, known)
    line.words()

    line.tell(teller, known)
    line.tell(teller, known[:1])

    assert line.words() == [UPDATE_TOPIC, UPDATE_TOPIC]
    assert [one.short_name() for one in line.published()] == ["s0"]


def test_a_second_gateway_need_not_describe_what_the_first_did() -> None:
    line = Line()
    line.tell(line.gateway(), [subscription(0)])
    line.words()

    line.tell(line.gateway(), [entity_from_json(subscription(0).to_json())])

    assert line.words() == [UPDATE_TOPIC]


def test_a_broker_that_started_again_is_told_everything() -> None:
    line = Line()
    teller = line.gateway()
    known = [subscription(0), subscription(1)]
    line.tell(teller, known)
    line.restart()
    line.words()

    line.tell(teller, known)

    assert line.words() == [UPDATE_TOPIC, DESCRIBE, UPDATE_TOPIC]
    assert len(line.published()) == 2


def test_descriptions_go_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    known = [subscription(number) for number in range(10)]
    monkeypatch.setattr(topic_call, "DESCRIBED_BYTES_MAX", 3 * len(known[0].to_json()))

    line.tell(line.gateway(), known)

    assert line.words() == [UPDATE_TOPIC, *[DESCRIBE] * 4, UPDATE_TOPIC]
    assert len(line.published()) == 10


def test_a_broker_that_forgets_over_and_over_is_given_up() -> None:
    line = Line()

    def forget(do: str) -> None:
        if do == UPDATE_TOPIC:
            line.restart()

    line.before = forget

    with unavailability("'t'"):
        line.tell(line.gateway(), [subscription(0)])

    assert line.host.published == {}


def test_a_gateway_whose_turn_has_passed_changes_nothing() -> None:
    """R28: a gateway that was paused must not undo what another did meanwhile."""
    line = Line()
    late, early = line.gateway(), line.gateway()
    late.turn_now = lambda: 8
    early.turn_now = lambda: 7
    line.tell(late, [subscription(0)])

    with unavailability():
        line.tell(early, [])

    assert len(line.published()) == 1


def test_a_broker_that_has_read_the_catalogue_heeds_no_turn_from_before() -> None:
    """R28: what it has read is newer than what a gateway tells that was paused in its turn."""
    line = Line()
    late, next_one = line.gateway(), line.gateway()
    late.turn_now = lambda: 7
    next_one.turn_now = lambda: 8
    line.calls.end_turns(7)

    with unavailability():
        line.tell(late, [])
    line.tell(next_one, [subscription(0)])

    assert len(line.published()) == 1


def test_a_deleted_topic_is_forgotten() -> None:
    line = Line()
    line.tell(line.gateway(), [subscription(0)])
    asyncio.run(line.ask(delete_question(TOPIC.entity_id, NUMBERS)))
    line.words()

    line.tell(line.gateway(), [subscription(0)])

    assert line.words() == [UPDATE_TOPIC, DESCRIBE, UPDATE_TOPIC]


def test_the_other_questions_carry_no_rules() -> None:
    """Of a subscription with very many of them, sixteen fragments are opened one by one."""
    rules = [RuleSpec(f"r{number}", sql_filter("a = 1"), 1) for number in range(100)]
    entity = subscription(0, rules)

    bare = entity_from_json(bare_json(entity))

    assert bare.rules == []
    assert bare.updated_at_ms == entity.updated_at_ms
    assert len(entity.rules) == 100


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "x", "subscriptions": [], "numbers": [], "turn": 0},
        {"topic": TOPIC.to_json(), "subscriptions": [[1]], "numbers": [], "turn": 0},
        {"topic": TOPIC.to_json(), "subscriptions": [["1", "x"]], "numbers": [], "turn": 0},
        {"topic": TOPIC.to_json(), "subscriptions": [], "numbers": []},
    ],
)
def test_a_damaged_question_changes_nothing(fields: dict[str, object]) -> None:
    line = Line()

    with pytest.raises(ValueError, match=r"Expecting|pair|turn"):
        asyncio.run(line.ask(json.dumps({"do": UPDATE_TOPIC, **fields})))

    assert line.host.published == {}


def test_an_answer_that_is_none_is_unavailable() -> None:
    async def ask(document: str) -> str:
        return "[]"

    with unavailability():
        asyncio.run(TopicTeller("b", ask).tell(TOPIC, [], NUMBERS))

"""A topic with subscriptions that come and go, against plain lists, with a store that fails."""

import os

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardbus.broker.fragment.answers import Answer
from shardbus.core.errors import Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import ABANDON, COMPLETE, Send, Sent
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.rule_spec import RuleSpec, correlation_filter, default_rule
from shardbus.stores.base.store import FragmentId
from tests.support.examples import examples
from tests.unit.broker.house import House
from tests.unit.broker.news import TOPIC_ID, Topic, pairs_of, publish_of, sql_rule

SUBSCRIPTIONS_MAX = 6
COLORS = ("red", "blue", "green")
# Longer than any reload takes, and than anything in a house is under way.
STEADY_S = 12.0

choices = st.integers(0, 1_000)


class Wish:
    """A filter in two forms: as a rule, and as what it takes of a message, in so many copies."""

    def __init__(self, kind: int, color: str) -> None:
        self.kind = kind % 5
        self.color = color

    def rules(self) -> list[RuleSpec]:
        by_sql = sql_rule("sql", f"color = '{self.color}'")
        if self.kind == 0:
            return [default_rule(0)]
        if self.kind == 1:
            return [by_sql]
        if self.kind == 2:
            return [RuleSpec("label", correlation_filter({"Label": self.color}), 0)]
        if self.kind == 3:
            return [by_sql, sql_rule("act", f"color = '{self.color}'", "SET mark = 1")]
        return [sql_rule("bad", f"color = '{self.color}' AND 1/0 = 1")]

    def copies(self, payload: bytes) -> int:
        pairs = pairs_of(payload)
        if self.kind == 0:
            return 1
        if self.kind == 2:
            return int(pairs["label"] == self.color)
        return int(pairs["color"] == self.color) * (2 if self.kind == 3 else 1)

    def is_deadly(self) -> bool:
        return self.kind == 4


class Modelled:
    """A subscription as lists: what waits in order, and what is a dead letter."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.waiting: list[bytes] = []
        self.dead: list[bytes] = []
        # How much was published before it, whether its rules changed, and how far it is filled.
        self.born = 0
        self.is_changed = False
        self.filled = 0

    def publish(self, payloads: list[bytes]) -> None:
        """The first copies in the order of the messages, then the further ones."""
        counts = [self.wish.copies(payload) for payload in payloads]
        line = self.dead if self.wish.is_deadly() else self.waiting
        line += [payload for payload, count in zip(payloads, counts, strict=True) if count]
        line += [payload for payload, count in zip(payloads, counts, strict=True) if count > 1]

    def fill(self, numbered: list[tuple[int, bytes]]) -> None:
        """Earlier messages come before all others; their further copies come last."""
        missed = [each for each in numbered if each[0] > self.filled]
        wanted = [(number, payload) for number, payload in missed if self.wish.copies(payload)]
        self.filled = max([self.filled, *(number for number, _ in wanted)])
        payloads = [payload for _, payload in wanted]
        line = self.dead if self.wish.is_deadly() else self.waiting
        line[:0] = payloads
        line += [payload for payload in payloads if self.wish.copies(payload) > 1]


class TopicMachine(RuleBasedStateMachine):
    @initialize(has_duplicates=st.booleans())
    def start(self, has_duplicates: bool) -> None:
        spec = EntitySpec()
        spec.requires_duplicate_detection = has_duplicates
        self.house = House()
        self.topic = Topic(self.house, spec=spec)
        self.topic.tell()
        self.house.pass_s()
        self.model: dict[str, Modelled] = {}
        self.scheduled: list[tuple[int, bytes]] = []
        self.published = 0
        self.history: list[tuple[int, bytes]] = []

    # Who subscribes.

    @precondition(lambda self: len(self.model) < SUBSCRIPTIONS_MAX)
    @rule(kind=choices, color=st.sampled_from(COLORS))
    def subscribe(self, kind: int, color: str) -> None:
        wish = Wish(kind, color)
        name = f"s{len(self.topic.subscriptions)}-{self.published}-{kind}"
        if name not in self.model:
            self.topic.subscribe(name, *wish.rules())
            self.model[name] = Modelled(wish)
            self.model[name].born = len(self.history)

    @precondition(lambda self: self.model)
    @rule(chosen=choices, is_under_way=st.booleans())
    def unsubscribe(self, chosen: int, is_under_way: bool) -> None:
        name = self.chosen(chosen)
        answers: list[Answer] = []
        payload = self.new_payload("red", "blue")
        if is_under_way:
            answers = self.house.ask(self.topic.runner(), publish_of(payload))
        moment_s = 0.0001 * (chosen % 40)
        self.house.pass_s(moment_s)
        self.topic.unsubscribe(name)
        del self.model[name]
        self.house.pass_s(0.1 - moment_s)
        if is_under_way:
            [answer] = answers
            assert isinstance(answer, Sent)
            self.note_published([payload])

    @precondition(lambda self: self.model)
    @rule(chosen=choices, kind=choices, color=st.sampled_from(COLORS))
    def change_rules(self, chosen: int, kind: int, color: str) -> None:
        name, wish = self.chosen(chosen), Wish(kind, color)
        old = self.topic.subscriptions[name]
        self.topic.subscriptions[name] = old.with_rules(wish.rules(), self.published)
        self.topic.tell()
        self.model[name].wish = wish
        self.model[name].is_changed = True

    # What is published.

    @rule(colors=st.lists(st.sampled_from(COLORS), min_size=1, max_size=4), label=choices)
    def publish(self, colors: list[str], label: int) -> None:
        payloads = [self.new_payload(color, COLORS[label % 3]) for color in colors]
        sent = self.topic.publish(*payloads)
        self.history += [(sent.first + at, payload) for at, payload in enumerate(payloads)]
        self.note_published(payloads)

    @precondition(lambda self: self.model)
    @rule(chosen=choices, color=st.sampled_from(COLORS))
    def put_into_one_subscription(self, chosen: int, color: str) -> None:
        """P7: whatever its rules say, and although the topic knows the id."""
        name = self.chosen(chosen)
        payload = self.new_payload(color, color)
        for _ in range(2):
            self.send_to(name, [(0, payload)])
            self.model[name].waiting.append(payload)
            self.note_due()

    @precondition(lambda self: self.model and self.history)
    @rule(chosen=choices, skipped=st.integers(0, 5), is_all=st.booleans())
    def fill(self, chosen: int, skipped: int, is_all: bool) -> None:
        """P5: a part of what was published before the subscription, again and again."""
        name = self.chosen(chosen)
        modelled = self.model[name]
        before = self.history[: modelled.born][skipped:]
        since = [] if modelled.is_changed or not is_all else self.history[modelled.born :]
        self.send_to(name, before + since)
        modelled.fill(before)
        self.note_due()

    def send_to(self, name: str, numbered: list[tuple[int, bytes]]) -> None:
        entity_id = self.topic.subscriptions[name].entity_id
        messages = [
            Message(payload, message_id="known", subscription_id=entity_id, past_number=number)
            for number, payload in numbered
        ]
        answer = self.house.answer(self.topic.runner(), Send(messages))
        assert isinstance(answer, Sent)

    @rule(colors=st.lists(st.sampled_from(COLORS), min_size=2, max_size=6))
    def publish_many_at_once(self, colors: list[str]) -> None:
        payloads = [self.new_payload(color, color) for color in colors]
        answers = [self.house.ask(self.topic.runner(), publish_of(each)) for each in payloads]
        self.house.pass_s()
        assert all(isinstance(answer, Sent) for [answer] in answers)
        for payload in payloads:
            self.note_published([payload])

    @rule(color=st.sampled_from(COLORS), moment=st.sampled_from(["before", "after"]))
    def publish_to_a_store_that_fails(self, color: str, moment: str) -> None:
        """Everyone has it or nobody: the store decides, and what is in memory follows."""
        payload = self.new_payload(color, color)
        self.house.disk.commit_failures.append(moment)
        answer = self.house.answer(self.topic.runner(), publish_of(payload))
        self.house.pass_s(STEADY_S)
        assert isinstance(answer, Unavailable) and answer.is_unknown
        if moment == "after":
            self.note_published([payload])
        self.note_due()

    @precondition(lambda self: not self.scheduled)
    @rule(color=st.sampled_from(COLORS), after_s=st.sampled_from([0.55, 20.05]))
    def schedule(self, color: str, after_s: float) -> None:
        """One at a time, and due when nothing else happens: everything begins at a tenth of a
        second, and what happens at the same moment has no order to expect.
        """
        payload = self.new_payload(color, color)
        at_ms = self.house.clock.now_ms() + int(after_s * 1000)
        answer = self.house.answer(self.topic.runner(), publish_of(payload, scheduled_at_ms=at_ms))
        assert isinstance(answer, Sent)
        self.scheduled.append((at_ms, payload))
        self.note_due()

    @rule(seconds=st.sampled_from([0.6, 25.0]))
    def pass_time(self, seconds: float) -> None:
        self.house.pass_s(seconds)
        self.note_due()

    @rule()
    def restart(self) -> None:
        self.topic.restart()
        self.topic.tell()
        self.house.pass_s()
        self.note_due()

    # Who receives.

    @precondition(lambda self: self.model)
    @rule(chosen=choices, count=st.integers(1, 5), is_completing=st.booleans())
    def receive(self, chosen: int, count: int, is_completing: bool) -> None:
        name = self.chosen(chosen)
        runner, modelled = self.topic.reader(name), self.model[name]
        expected = modelled.waiting[:count]
        deliveries = self.house.receive(runner, count)
        assert [each.payload for each in deliveries] == expected
        if is_completing:
            self.house.settle(runner, COMPLETE, *deliveries)
            del modelled.waiting[: len(expected)]
        elif deliveries and deliveries[0].delivery_count < 5:
            self.house.settle(runner, ABANDON, *deliveries)
        else:
            self.topic.restart()
            self.topic.tell()
            self.house.pass_s()
        self.note_due()

    # What must be so.

    @invariant()
    def the_store_holds_what_the_lists_hold(self) -> None:
        if not hasattr(self, "model"):
            return
        self.note_due()
        assert set(self.topic.stored(TOPIC_ID)) == {payload for _, payload in self.scheduled}
        for name, modelled in self.model.items():
            entity_id = self.topic.subscriptions[name].entity_id
            assert self.topic.stored(entity_id) == modelled.waiting
            assert self.lines(entity_id) == (len(modelled.waiting), len(modelled.dead))

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        try:
            self.house.pass_s(60)
            self.note_due()
            for name, modelled in self.model.items():
                assert self.topic.drain(name) == modelled.waiting
                assert self.topic.drain(name, line=DEAD_LETTER_LINE) == modelled.dead
        finally:
            self.house.close()

    def lines(self, entity_id: int) -> tuple[int, int]:
        lines = self.house.disk.kept.load(FragmentId(entity_id, 0)).counters.lines
        return lines[MAIN_LINE].count, lines[DEAD_LETTER_LINE].count

    def chosen(self, number: int) -> str:
        names = sorted(self.model)
        return names[number % len(names)]

    def new_payload(self, color: str, label: str) -> bytes:
        self.published += 1
        return f"color={color};label={label}|{self.published}".encode()

    def note_published(self, payloads: list[bytes]) -> None:
        for modelled in self.model.values():
            modelled.publish(payloads)

    def note_due(self) -> None:
        """What was scheduled is published when its moment has come and the store says so."""
        for at_ms, payload in list(self.scheduled):
            is_due = at_ms <= self.house.clock.now_ms()
            if is_due and payload not in self.topic.stored(TOPIC_ID):
                self.scheduled.clear()
                self.note_published([payload])


# A planted bug need only be found; making its example small can take minutes.
PHASES = [Phase.generate] if os.environ.get("MUTANT") else list(Phase)

TestTopic = TopicMachine.TestCase
TestTopic.settings = settings(
    max_examples=examples(100),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=PHASES,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_what_came_live_in_several_copies_is_not_filled_in_again() -> None:
    """P5: the machine found it; the first copy was known, and the others came again."""
    state = TopicMachine()
    state.start(has_duplicates=False)
    state.subscribe(color="red", kind=158)
    state.publish(colors=["red"], label=0)
    state.fill(chosen=0, is_all=True, skipped=0)
    state.the_store_holds_what_the_lists_hold()
    state.teardown()

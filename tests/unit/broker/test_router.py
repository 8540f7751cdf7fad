"""From an entity to its fragments: placing what is sent, finding what is settled (R10-R17)."""

from collections import Counter
from collections.abc import Callable

import pytest

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.routing.router import PLACING_MS_MAX, EntityRouter
from shardbus.core.errors import NOT_ALLOWED, QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import (
    COMPLETE,
    DEAD_LETTER,
    NO_SESSION,
    RELEASE,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from shardbus.core.sequence import lock_token
from tests.simulation.world import VirtualClock
from tests.unit.broker.house import House
from tests.unit.broker.ports import Heard


class Inbox:
    """A FragmentPort that takes everything, or answers as it is told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.sends = 0
        self.settled: list[Settle] = []
        self.failure: Refused | Unavailable | None = None

    @property
    def is_available(self) -> bool:
        return self.failure is None

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if isinstance(command, Send):
            self.sends += 1
        if self.failure is not None:
            reply_to(self.failure)
        elif isinstance(command, Send):
            self.sent += [message.payload for message in command.messages]
            reply_to(Sent(1, len(command.messages)))
        else:
            assert isinstance(command, Settle)
            self.settled.append(command)
            reply_to(Settled([False] * len(command.tokens)))

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        raise AssertionError("nobody receives here")

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        raise AssertionError("nobody receives here")


class Settling:
    def __init__(self) -> None:
        self.lost: dict[int, bool] = {}
        self.failed: dict[int, Refused | Unavailable] = {}

    def settled(self, positions: list[int], answer: Settled | Refused | Unavailable) -> None:
        for index, position in enumerate(positions):
            if isinstance(answer, Settled):
                self.lost[position] = answer.lost[index]
            else:
                self.failed[position] = answer


AWAY = Unavailable("the fragment is away")
PERHAPS = Unavailable("the commit failed", is_unknown=True)


def router_of(
    house: House, inboxes: list[Inbox], *, first: int = 0, requires_session: bool = False
) -> EntityRouter:
    return EntityRouter(
        list(inboxes),
        list(range(first, first + len(inboxes))),
        even_hash_starts(len(inboxes)),
        detects_duplicates=False,
        requires_session=requires_session,
        loop=house.loop,
        clock=VirtualClock(house.loop),
        new_seed=lambda: bytes(8),
    )


def messages_of(count: int, key: str | None = None) -> list[Message]:
    return [Message(b"%d" % number, partition_key=key) for number in range(count)]


def batch(router: EntityRouter, messages: list[Message]) -> list[Answer]:
    answers: list[Answer] = []
    router.send_batch(messages, answers.append)
    return answers


def test_messages_without_a_key_are_spread_evenly(house: House) -> None:
    """R10: the fragments differ by at most one message."""
    inboxes = [Inbox() for _ in range(16)]
    router = router_of(house, inboxes)

    for count in (1, 1, 5, 40, 100):
        heard = Heard()
        router.send_each(messages_of(count), heard)
        assert all(isinstance(answer, Sent) for answer in heard.answers.values())
        assert len(heard.answers) == count

        sizes = [len(inbox.sent) for inbox in inboxes]
        assert max(sizes) - min(sizes) <= 1


def test_messages_with_one_key_go_to_its_fragment_in_order(house: House) -> None:
    """R10."""
    inboxes = [Inbox() for _ in range(16)]
    router = router_of(house, inboxes)

    router.send_each(messages_of(20, "customer-1"), Heard())
    batch(router, messages_of(5, "customer-1"))

    home = fragment_at(hash_point("customer-1"), even_hash_starts(16))
    assert inboxes[home].sent == [b"%d" % number for number in [*range(20), *range(5)]]
    assert sum(len(inbox.sent) for inbox in inboxes) == 25


def test_a_share_of_a_fragment_is_one_command(house: House) -> None:
    inboxes = [Inbox() for _ in range(4)]
    router_of(house, inboxes).send_each(messages_of(400), Heard())

    assert [inbox.sends for inbox in inboxes] == [1, 1, 1, 1]


def test_a_conventional_entity_keeps_the_order_of_all_messages_whatever_their_keys(
    house: House,
) -> None:
    inbox = Inbox()
    keys = ["a", None, "b", None, "a"]
    messages = [Message(b"%d" % n, partition_key=key) for n, key in enumerate(keys)]

    router_of(house, [inbox]).send_each(messages, Heard())

    assert inbox.sent == [b"0", b"1", b"2", b"3", b"4"]


def test_one_bad_message_does_not_refuse_its_neighbours(house: House) -> None:
    """R12."""
    inboxes = [Inbox(), Inbox()]
    bad = Message(b"bad", session_id="s", partition_key="k")
    heard = Heard()

    router_of(house, inboxes).send_each([Message(b"a"), bad, Message(b"b")], heard)

    outcomes = [type(heard.answers[position]) for position in range(3)]
    assert outcomes == [Sent, Refused, Sent]


def test_without_a_key_another_fragment_takes_the_message(house: House) -> None:
    """R14."""
    inboxes = [Inbox() for _ in range(3)]
    inboxes[0].failure = inboxes[1].failure = AWAY
    router = router_of(house, inboxes)
    heard = Heard()

    router.send_each(messages_of(3), heard)
    [answer] = batch(router, messages_of(2))

    assert all(isinstance(each, Sent) for each in [*heard.answers.values(), answer])
    assert len(inboxes[2].sent) == 5


def test_with_a_key_an_unavailable_fragment_is_an_error_and_no_detour(house: House) -> None:
    """R15."""
    inboxes = [Inbox() for _ in range(4)]
    router = router_of(house, inboxes)
    home = fragment_at(hash_point("k"), even_hash_starts(4))
    inboxes[home].failure = AWAY
    heard = Heard()

    router.send_each(messages_of(2, "k"), heard)
    [answer] = batch(router, messages_of(2, "k"))

    assert [*heard.answers.values(), answer] == [AWAY] * 3
    assert all(inbox.sent == [] for inbox in inboxes)


def test_placing_is_tried_until_a_fragment_comes_back(house: House) -> None:
    """R14, R16."""
    inboxes = [Inbox(), Inbox()]
    for inbox in inboxes:
        inbox.failure = AWAY
    answers = batch(router_of(house, inboxes), messages_of(1))

    house.pass_s(10)
    assert answers == []
    inboxes[1].failure = None
    house.pass_s(1)

    assert isinstance(answers[0], Sent)


def test_placing_is_given_up_after_fifteen_seconds(house: House) -> None:
    """R16."""
    inboxes = [Inbox(), Inbox()]
    for inbox in inboxes:
        inbox.failure = AWAY
    answers = batch(router_of(house, inboxes), messages_of(1))

    house.pass_s(PLACING_MS_MAX / 1000 - 0.2)
    assert answers == []
    house.pass_s(0.4)

    assert answers == [AWAY]
    assert inboxes[0].sends <= 200


def test_an_unknown_outcome_is_passed_on_and_not_retried(house: House) -> None:
    """It may have been stored: trying elsewhere could store it twice."""
    inboxes = [Inbox(), Inbox()]
    inboxes[0].failure = PERHAPS

    answers = batch(router_of(house, inboxes), messages_of(1))
    house.pass_s(60)

    assert answers == [PERHAPS]
    assert inboxes[1].sends == 0


def test_a_refusal_is_passed_on_and_not_retried(house: House) -> None:
    inboxes = [Inbox(), Inbox()]
    refusal = Refused(NOT_ALLOWED, "no")
    inboxes[0].failure = refusal

    assert batch(router_of(house, inboxes), messages_of(1)) == [refusal]
    assert inboxes[1].sends == 0


def test_without_a_key_a_full_fragment_is_passed_over_until_all_are_full(house: House) -> None:
    """R9."""
    inboxes = [Inbox(), Inbox(), Inbox()]
    full = Refused(QUOTA_EXCEEDED, "full")
    inboxes[0].failure = full
    inboxes[1].failure = full
    router = router_of(house, inboxes)

    assert isinstance(batch(router, messages_of(1))[0], Sent)
    inboxes[2].failure = full
    assert batch(router, messages_of(1)) == [full]


def test_with_a_key_a_full_fragment_is_full(house: House) -> None:
    """R9, R10."""
    inboxes = [Inbox(), Inbox()]
    full = Refused(QUOTA_EXCEEDED, "full")
    for inbox in inboxes:
        inbox.failure = full

    assert batch(router_of(house, inboxes), [Message(b"x", partition_key="k")]) == [full]
    assert sum(inbox.sends for inbox in inboxes) == 1


def test_a_conventional_entity_has_nowhere_else_to_go(house: House) -> None:
    inbox = Inbox()
    inbox.failure = AWAY

    assert batch(router_of(house, [inbox]), messages_of(1)) == [AWAY]


def test_a_batch_goes_to_one_fragment_as_a_whole(house: House) -> None:
    inboxes = [Inbox() for _ in range(4)]
    router = router_of(house, inboxes)

    for _ in range(8):
        batch(router, messages_of(10))

    assert [(inbox.sends, len(inbox.sent)) for inbox in inboxes] == [(2, 20)] * 4


def test_a_batch_of_several_keys_goes_to_a_conventional_entity_as_it_is(house: House) -> None:
    inbox = Inbox()
    messages = [Message(b"a", partition_key="k"), Message(b"b", partition_key="l"), Message(b"c")]

    [answer] = batch(router_of(house, [inbox]), messages)

    assert isinstance(answer, Sent)
    assert (inbox.sends, inbox.sent) == (1, [b"a", b"b", b"c"])


@pytest.mark.parametrize("fragments", [1, 4])
def test_a_batch_with_a_message_at_odds_with_itself_is_refused(
    house: House, fragments: int
) -> None:
    """R12, also on a conventional entity."""
    bad = Message(b"bad", session_id="s", partition_key="k")

    [refusal] = batch(router_of(house, [Inbox() for _ in range(fragments)]), [Message(b"a"), bad])

    assert isinstance(refusal, Refused)


@pytest.mark.parametrize("fragments", [1, 4])
def test_a_batch_of_nothing_is_accepted(house: House, fragments: int) -> None:
    [answer] = batch(router_of(house, [Inbox() for _ in range(fragments)]), [])

    assert isinstance(answer, Sent) and answer.count == 0


def test_settlements_go_to_the_fragments_that_the_tokens_name(house: House) -> None:
    inboxes = [Inbox() for _ in range(3)]
    router = router_of(house, inboxes, first=10)
    tokens = [lock_token(number, 1, bytes([number] * 8)) for number in (12, 10, 12)]
    sink = Settling()

    router.settle(
        Settle(DEAD_LETTER, tokens, reason="r", description="d", modified=b"m", delay_ms=7), sink
    )

    assert sink.lost == {0: False, 1: False, 2: False}
    [settle] = inboxes[2].settled
    assert settle.tokens == [tokens[0], tokens[2]]
    assert (settle.how, settle.reason, settle.description) == (DEAD_LETTER, "r", "d")
    assert (settle.modified, settle.delay_ms) == (b"m", 7)
    assert [len(inbox.settled) for inbox in inboxes] == [1, 0, 1]


def test_what_nobody_got_is_released_where_its_tokens_say(house: House) -> None:
    inboxes = [Inbox() for _ in range(3)]
    tokens = [lock_token(number, 1, bytes(8)) for number in (2, 0, 2)]

    router_of(house, inboxes).release([*tokens, b"no token of ours"])

    settled = [(settle.how, settle.tokens) for inbox in inboxes for settle in inbox.settled]
    assert settled == [(RELEASE, [tokens[1]]), (RELEASE, [tokens[0], tokens[2]])]


@pytest.mark.parametrize("token", [b"", b"short", bytes(17), lock_token(99, 1, bytes(8))])
def test_a_token_that_is_none_of_ours_is_lost(house: House, token: bytes) -> None:
    inboxes = [Inbox(), Inbox()]
    sink = Settling()

    router_of(house, inboxes).settle(Settle(COMPLETE, [token]), sink)

    assert sink.lost == {0: True}
    assert all(inbox.settled == [] for inbox in inboxes)


def test_a_fragment_that_is_away_fails_only_its_own_settlements(house: House) -> None:
    inboxes = [Inbox(), Inbox()]
    inboxes[1].failure = AWAY
    tokens = [lock_token(number, 1, bytes(8)) for number in (0, 1)]
    sink = Settling()

    router_of(house, inboxes).settle(Settle(COMPLETE, tokens), sink)

    assert (sink.lost, sink.failed) == ({0: False}, {1: AWAY})


def test_each_line_has_a_dispatcher_of_its_own(house: House) -> None:
    router = router_of(house, [Inbox()])

    assert router.dispatcher(MAIN_LINE) is router.dispatcher(MAIN_LINE)
    assert router.dispatcher(MAIN_LINE) is not router.dispatcher(DEAD_LETTER_LINE)


def test_a_thousand_keys_each_live_in_one_fragment(house: House) -> None:
    """R10: and every fragment has some of them."""
    inboxes = [Inbox() for _ in range(16)]
    router = router_of(house, inboxes)
    for _ in range(3):
        keyed = [Message(b"%d" % key, partition_key=f"key-{key}") for key in range(1_000)]
        router.send_each(keyed, Heard())

    counts = [Counter(inbox.sent) for inbox in inboxes]
    assert all(set(count.values()) == {3} for count in counts)
    assert sum(len(count) for count in counts) == 1_000


@pytest.mark.parametrize("fragments", [1, 4])
def test_a_message_without_a_session_is_not_sent_where_sessions_are_required(
    house: House, fragments: int
) -> None:
    """R11, R24."""
    inboxes = [Inbox() for _ in range(fragments)]
    router = router_of(house, inboxes, requires_session=True)
    heard = Heard()

    router.send_each([Message(b"a", session_id="s"), Message(b"b", partition_key="k")], heard)
    [refusal] = batch(router, [Message(b"c", session_id="s"), Message(b"d")])

    assert isinstance(heard.answers[0], Sent)
    for answer in (heard.answers[1], refusal):
        assert isinstance(answer, Refused) and answer.kind is NOT_ALLOWED
    assert [payload for inbox in inboxes for payload in inbox.sent] == [b"a"]


def test_messages_that_go_together_are_placed_in_as_few_shares_as_their_keys_allow(
    house: House,
) -> None:
    router = router_of(house, [Inbox() for _ in range(16)])
    keys = ["a", None, "b", "a", None]
    messages = [Message(b"x", partition_key=key) for key in keys]

    placed = router.place(messages)

    assert [(share.positions, share.is_keyed) for share in placed] == [
        ([0, 3], True),
        ([2], True),
        ([1, 4], False),
    ]
    assert placed[0].index == router.index_of_key("a")


def test_a_batch_without_a_key_goes_where_there_is_somebody(house: House) -> None:
    """R14."""
    inboxes = [Inbox(), Inbox()]
    inboxes[0].failure = AWAY

    [answer] = batch(router_of(house, inboxes), messages_of(3))

    assert isinstance(answer, Sent)
    assert inboxes[1].sent == [b"0", b"1", b"2"]

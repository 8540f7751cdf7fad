"""The commands of every fragment, each checked against the model."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from shardbus.core.errors import (
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    Refused,
)
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    Message,
)
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    NO_SESSION,
    RELEASE,
    Cancel,
    Purge,
    Purged,
    Receive,
    Received,
    ReceiveDeferred,
    ReceiveNumbered,
    Renew,
    Renewed,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.properties import pack
from tests.model.core.agreement import (
    LOCK_MS,
    NAMES,
    WINDOW_MS,
    AgreeingMachine,
    lines,
)
from tests.model.core.model import Hold, Modelled, is_same

TTLS_MS = (-1, -1, -1, 0, 700, 4_000, 20_000)

counts = st.integers(min_value=1, max_value=6)
names = st.sampled_from([*NAMES, *map(str.upper, NAMES)])
ways = st.sampled_from([COMPLETE, ABANDON, DEAD_LETTER, RELEASE, DEFER])
choices = st.lists(st.integers(min_value=0, max_value=40), min_size=1, max_size=4)
choice = st.integers(min_value=0, max_value=40)
modifications = st.dictionaries(st.sampled_from("xyz"), st.binary(max_size=2), max_size=2)


class FragmentMachine(AgreeingMachine):
    # Sending.

    @rule(
        count=counts,
        session_id=names,
        message_id=st.one_of(st.none(), st.integers(min_value=0, max_value=20)),
        ttl_ms=st.sampled_from(TTLS_MS),
        delay_ms=st.sampled_from([0, 0, 0, 300, 3_000]),
    )
    def send(
        self, count: int, session_id: str, message_id: int | None, ttl_ms: int, delay_ms: int
    ) -> None:
        """Several messages; ids rise from the first, and the last repeats the first."""
        now_ms = self.desk.now_ms
        session = session_id if self.requires_session else None
        ids = self.message_ids(count, message_id)
        payloads = [b"%d" % (self.sent + each) for each in range(count)]
        self.sent += count
        messages = [
            Message(
                payload,
                message_id=each,
                session_id=session,
                ttl_ms=ttl_ms,
                scheduled_at_ms=now_ms + delay_ms if delay_ms else NEVER_MS,
            )
            for payload, each in zip(payloads, ids, strict=True)
        ]
        fresh = self.fresh_ids(ids)
        is_full = self.is_history_full([ids[position] for position in fresh])

        reply = self.ask(Send(messages))

        if isinstance(reply, Refused):
            assert reply.kind is QUOTA_EXCEEDED and is_full
            return
        assert isinstance(reply, Sent) and not is_full
        assert reply.duplicates == [each for each in range(count) if each not in fresh]
        assert reply.count == len(fresh)
        for place, position in enumerate(fresh):
            assert reply.numbers()[position] == self.model.last_number + 1 + place
        self.admit(messages, fresh)
        self.settle_down()

    def admit(self, messages: list[Message], fresh: list[int]) -> None:
        """Let the model have messages, but for duplicates."""
        now_ms = self.desk.now_ms
        for sent in [messages[position] for position in fresh]:
            self.model.last_number += 1
            is_scheduled = sent.scheduled_at_ms > now_ms
            begins_at_ms = sent.scheduled_at_ms if is_scheduled else now_ms
            number, session_id = self.model.last_number, sent.session_id
            message = Modelled(number, sent.payload, session_id, now_ms)
            if is_scheduled:
                message.state = SCHEDULED
                message.delayed_until_ms = begins_at_ms
            message.expires_at_ms = NEVER_MS if sent.ttl_ms < 0 else begins_at_ms + sent.ttl_ms
            self.model.messages.append(message)
            if sent.message_id is not None:
                self.model.accepted[sent.message_id] = now_ms
        self.model.duplicates += len(messages) - len(fresh)

    def message_ids(self, count: int, first: int | None) -> list[str | None]:
        if first is None:
            return [None] * count
        ids: list[str | None] = [str(first + each) for each in range(count)]
        ids[-1] = ids[0]
        return ids

    def fresh_ids(self, ids: list[str | None]) -> list[int]:
        """The positions of those that are no duplicates."""
        if not self.detects_duplicates:
            return list(range(len(ids)))
        seen: set[str] = set()
        fresh: list[int] = []
        for position, name in enumerate(ids):
            if name is None:
                fresh.append(position)
            elif name not in seen and not self.is_remembered(name):
                seen.add(name)
                fresh.append(position)
        return fresh

    def is_remembered(self, name: str) -> bool:
        accepted_at_ms = self.model.accepted.get(name)
        return accepted_at_ms is not None and accepted_at_ms + WINDOW_MS > self.desk.now_ms

    def is_history_full(self, ids: list[str | None]) -> bool:
        if not self.detects_duplicates:
            return False
        kept = sum(self.is_remembered(name) for name in self.model.accepted)
        return kept + sum(name is not None for name in ids) > self.bounds.remembered_max

    # Receiving.

    @rule(line=lines, count_max=counts, chosen=choice, is_locking=st.booleans())
    def receive(self, line: int, count_max: int, chosen: int, is_locking: bool) -> None:
        self.receive_with(line, count_max, self.session_for(line, chosen), is_locking)

    def receive_with(self, line: int, count_max: int, session: bytes, is_locking: bool) -> None:
        now_ms = self.desk.now_ms
        hold = self.model.hold_of(session, now_ms)
        is_refused = self.is_refused(line, hold)
        session_id = None if hold is None else hold.session_id
        available = self.model.available(line, session_id, now_ms)

        reply = self.ask(
            Receive(
                line,
                count_max,
                is_locking=is_locking,
                token_seed=self.desk.seed(),
                session=session,
            )
        )

        if isinstance(reply, Refused):
            assert is_refused
            assert reply.kind is (SESSION_LOCK_LOST if session else NOT_ALLOWED)
            return
        assert isinstance(reply, Received) and not is_refused
        room = self.bounds.locks_max - len(self.model.locked()) if is_locking else count_max
        expected = available[: min(count_max, room)]
        found = [(each.entry.sequence_number, each.payload) for each in reply.deliveries]
        assert found == [(each.number, each.payload) for each in expected[: len(found)]]
        assert len(found) == len(expected) or reply.has_more
        for message, delivery in zip(expected, reply.deliveries, strict=False):
            assert delivery.delivery_count == message.count
            self.hand_over(message, delivery.token, delivery.locked_until_ms, hold, is_locking)
        self.settle_down()

    def hand_over(
        self, message: Modelled, token: bytes, until_ms: int, hold: Hold | None, is_locking: bool
    ) -> None:
        if not is_locking:
            assert token == b""
            self.model.forget(message)
            return
        deadline_ms = self.desk.now_ms + LOCK_MS if hold is None else hold.told_ms
        assert until_ms == deadline_ms
        message.lock(token, deadline_ms, hold)
        self.tokens.append(token)

    def session_for(self, line: int, chosen: int) -> bytes:
        if not self.requires_session or line != MAIN_LINE:
            return NO_SESSION
        return self.chosen_hold(chosen)

    def is_refused(self, line: int, hold: Hold | None) -> bool:
        return self.requires_session and line == MAIN_LINE and hold is None

    def chosen_hold(self, chosen: int) -> bytes:
        """Mostly a session that is held; sometimes one that was, or none at all."""
        now_ms = self.desk.now_ms
        live = [hold.token for hold in self.model.holds if hold.until_ms() > now_ms]
        if not live and chosen % 8:
            self.hold_one(NAMES[chosen % len(NAMES)])
            live = [hold.token for hold in self.model.holds if hold.until_ms() > now_ms]
        if live and chosen % 8:
            return live[chosen % len(live)]
        return [NO_SESSION, *self.holds][-(chosen % (len(self.holds) + 1))]

    @rule(
        line=lines,
        count_max=counts,
        chosen=choice,
        how=ways,
        delay_ms=st.sampled_from([0, 400, 2_500]),
    )
    def work(self, line: int, count_max: int, chosen: int, how: int, delay_ms: int) -> None:
        """What receivers do all day: receive and settle."""
        session = self.session_for(line, chosen)
        self.top_up(line, session)
        before = set(self.held_tokens())
        self.receive_with(line, count_max, session, True)
        tokens = [token for token in self.held_tokens() if token not in before]
        if tokens:
            self.settle(how, tokens, {}, delay_ms)

    def top_up(self, line: int, session: bytes) -> None:
        """See to it that there is something to receive; much of what matters needs messages."""
        hold = self.model.hold_of(session, self.desk.now_ms)
        session_id = None if hold is None else hold.session_id
        available = self.model.available(MAIN_LINE, session_id, self.desk.now_ms)
        if line == MAIN_LINE and not available and not self.is_refused(line, hold):
            self.send(3, session_id or "", None, -1, 0)

    @rule(line=lines, chosen=choice, how=st.one_of(st.none(), ways))
    def work_on_a_deferred_one(self, line: int, chosen: int, how: int | None) -> None:
        if not self.deferred_numbers():
            self.work(line, 3, chosen, DEFER, 0)
        numbers = self.deferred_numbers()
        if not numbers:
            return
        message = self.model.numbered(numbers[chosen % len(numbers)])
        assert message is not None
        session = NO_SESSION
        if message.line == MAIN_LINE and message.session_id is not None:
            hold = self.model.holder(message.session_id)
            session = NO_SESSION if hold is None else hold.token
        self.receive_numbers(message.line, [message.number], session, True)
        if how is not None and message.token in self.held_tokens():
            self.settle(how, [message.token], {}, 0)

    def deferred_numbers(self) -> list[int]:
        return [each.number for each in self.model.messages if each.state == DEFERRED]

    def hold_one(self, session_id: str) -> None:
        """Nobody holds a session where none are required."""

    @rule(line=lines, chosen=choices, which=choice, is_locking=st.booleans())
    def receive_deferred(self, line: int, chosen: list[int], which: int, is_locking: bool) -> None:
        known = self.deferred_numbers() + self.once_deferred[-3:]
        known += [each.number for each in self.model.messages[:2]] + [12_345]
        numbers = list(dict.fromkeys(known[each % len(known)] for each in chosen))
        self.receive_numbers(line, numbers, self.session_for(line, which), is_locking)

    def receive_numbers(
        self, line: int, numbers: list[int], session: bytes, is_locking: bool
    ) -> None:
        now_ms = self.desk.now_ms
        hold = self.model.hold_of(session, now_ms)
        is_refused = self.is_refused(line, hold)
        messages = [self.model.numbered(number) for number in numbers]
        is_there = all(
            each is not None
            and each.line == line
            and each.state == DEFERRED
            and not each.is_locked()
            and not each.is_expired(now_ms)
            and (hold is None or is_same(each.session_id, hold.session_id))
            for each in messages
        )
        room = self.bounds.locks_max - len(self.model.locked())

        reply = self.ask(
            ReceiveDeferred(
                line,
                numbers,
                is_locking=is_locking,
                token_seed=self.desk.seed(),
                session=session,
            )
        )

        if isinstance(reply, Refused):
            if is_refused:
                assert reply.kind in (SESSION_LOCK_LOST, NOT_ALLOWED)
            elif is_there:
                assert reply.kind is SERVER_BUSY and is_locking and room < len(numbers)
            else:
                assert reply.kind is MESSAGE_NOT_FOUND
            return
        assert isinstance(reply, Received) and is_there and not is_refused
        for message, delivery in zip(messages, reply.deliveries, strict=True):
            assert message is not None
            assert (delivery.payload, delivery.delivery_count) == (message.payload, message.count)
            self.once_deferred.append(message.number)
            self.hand_over(message, delivery.token, delivery.locked_until_ms, hold, is_locking)
        self.settle_down()

    @rule(line=lines, chosen=choices, which=choice)
    def receive_numbered(self, line: int, chosen: list[int], which: int) -> None:
        """Active messages by their numbers, some of which are elsewhere, gone or taken."""
        session, now_ms = self.session_for(line, which), self.desk.now_ms
        hold = self.model.hold_of(session, now_ms)
        is_refused = self.is_refused(line, hold)
        session_id = None if hold is None else hold.session_id
        known = [each.number for each in self.model.messages] + [12_345]
        numbers = list(dict.fromkeys(known[each % len(known)] for each in chosen))
        available = {each.number: each for each in self.model.available(line, session_id, now_ms)}
        room = self.bounds.locks_max - len(self.model.locked())
        expected = [available[each] for each in numbers if each in available][:room]

        reply = self.ask(
            ReceiveNumbered(line, numbers, token_seed=self.desk.seed(), session=session)
        )

        if isinstance(reply, Refused):
            assert is_refused
            assert reply.kind is (SESSION_LOCK_LOST if session else NOT_ALLOWED)
            return
        assert isinstance(reply, Received) and not is_refused
        found = [(each.entry.sequence_number, each.payload) for each in reply.deliveries]
        assert found == [(each.number, each.payload) for each in expected]
        for message, delivery in zip(expected, reply.deliveries, strict=True):
            assert delivery.delivery_count == message.count
            self.hand_over(message, delivery.token, delivery.locked_until_ms, hold, True)
        self.settle_down()

    # Settling.

    @precondition(lambda self: self.held_tokens() != [])
    @rule(
        how=ways,
        chosen=choices,
        modified=modifications,
        delay_ms=st.sampled_from([0, 0, 400, 2_500]),
    )
    def settle_what_is_held(
        self, how: int, chosen: list[int], modified: dict[str, bytes], delay_ms: int
    ) -> None:
        held = self.held_tokens()
        self.settle(how, [held[each % len(held)] for each in chosen], modified, delay_ms)

    @precondition(lambda self: self.tokens != [])
    @rule(how=ways, chosen=choices)
    def settle_what_was_held_once(self, how: int, chosen: list[int]) -> None:
        self.settle(how, self.chosen_tokens(chosen), {}, 0)

    def settle(
        self, how: int, tokens: list[bytes], modified: dict[str, bytes], delay_ms: int
    ) -> None:
        now_ms = self.desk.now_ms
        held = [self.model.held(token, now_ms) for token in tokens]
        is_refused = how == DEAD_LETTER and any(
            each is not None and each.line == DEAD_LETTER_LINE for each in held
        )

        reply = self.ask(
            Settle(how, tokens, reason="why", modified=pack(modified), delay_ms=delay_ms)
        )

        if isinstance(reply, Refused):
            assert is_refused
            return
        assert not is_refused
        assert isinstance(reply, Settled)
        for token, is_lost in zip(tokens, reply.lost, strict=True):
            message = self.model.held(token, now_ms)
            assert is_lost == (message is None)
            if message is not None:
                if how in (ABANDON, DEAD_LETTER, DEFER):
                    message.modified.update(modified)
                self.settle_one(how, message, delay_ms)
        self.settle_down()

    def settle_one(self, how: int, message: Modelled, delay_ms: int) -> None:
        if how == COMPLETE:
            self.model.forget(message)
        elif how == ABANDON:
            self.model.fail(message, self.desk.now_ms, delay_ms)
        elif how == DEAD_LETTER:
            message.die("why")
        elif how == DEFER:
            self.model.defer(message, self.desk.now_ms)
        else:
            self.model.give_back(message, self.desk.now_ms)

    @rule(line=lines, chosen=choices, is_held=st.booleans())
    def renew(self, line: int, chosen: list[int], is_held: bool) -> None:
        if not self.held_tokens():
            session = self.session_for(line, chosen[0])
            self.top_up(line, session)
            self.receive_with(line, 3, session, True)
        live = self.held_tokens()
        if is_held and live:
            self.renew_all([live[each % len(live)] for each in chosen])
        else:
            self.renew_all(self.chosen_tokens(chosen))

    def renew_all(self, tokens: list[bytes]) -> None:
        held = [self.model.held(token, self.desk.now_ms) for token in tokens]

        reply = self.ask(Renew(tokens))

        if isinstance(reply, Refused):
            assert reply.kind is MESSAGE_LOCK_LOST
            assert None in held
            return
        assert isinstance(reply, Renewed)
        for message in held:
            assert message is not None
            message.locked_until_ms = self.desk.now_ms + LOCK_MS
        deadlines = [each.told_ms() for each in held if each is not None]
        assert reply.locked_until_ms == min(deadlines)
        self.settle_down()

    # Removing.

    @rule(
        line=lines,
        count_max=st.integers(min_value=1, max_value=2),
        chosen=choice,
        age_ms=st.sampled_from([-1, 0, 1_000]),
    )
    def purge(self, line: int, count_max: int, chosen: int, age_ms: int) -> None:
        now_ms = self.desk.now_ms
        until_ms = NEVER_MS if age_ms < 0 else now_ms - age_ms
        session = self.session_for(line, chosen)
        hold = self.model.hold_of(session, now_ms)
        is_refused = self.is_refused(line, hold)
        session_id = None if hold is None else hold.session_id
        available = self.model.available(line, session_id, now_ms)
        too_late = [e for e in available if until_ms != NEVER_MS and e.enqueued_at_ms > until_ms]
        if too_late:
            available = available[: available.index(too_late[0])]

        reply = self.ask(Purge(line, count_max, enqueued_until_ms=until_ms, session=session))

        if isinstance(reply, Refused):
            assert is_refused
            return
        assert isinstance(reply, Purged) and not is_refused
        expected = available[:count_max]
        assert reply.count == len(expected) or reply.has_more
        assert reply.count <= len(expected)
        for message in expected[: reply.count]:
            self.model.forget(message)
        self.settle_down()

    @precondition(lambda self: any(e.state == SCHEDULED for e in self.model.messages))
    @rule(chosen=choices, has_wrong=st.booleans())
    def cancel(self, chosen: list[int], has_wrong: bool) -> None:
        scheduled = [each for each in self.model.messages if each.state == SCHEDULED]
        messages = list(
            {id(m): m for m in (scheduled[e % len(scheduled)] for e in chosen)}.values()
        )
        numbers = [each.number for each in messages] + ([12_345] if has_wrong else [])

        reply = self.ask(Cancel(numbers))

        if isinstance(reply, Refused):
            assert reply.kind is MESSAGE_NOT_FOUND and has_wrong
            return
        assert not has_wrong
        for message in messages:
            self.model.forget(message)
        self.settle_down()

    def held_tokens(self) -> list[bytes]:
        now_ms = self.desk.now_ms
        return [each.token for each in self.model.locked() if each.deadline_ms() > now_ms]

    def chosen_tokens(self, chosen: list[int]) -> list[bytes]:
        """Tokens of now and of long ago, and one that nobody ever had."""
        known = [b"never given out!", *self.tokens]
        return [known[-(each % len(known))] for each in chosen]

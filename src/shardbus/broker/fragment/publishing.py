"""Which copies of a published message each subscription gets."""
# Compiled by mypyc.

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

from shardbus.core import message_fields
from shardbus.core.errors import Refused
from shardbus.core.limits import MODIFIED_BYTES_MAX, REASON_CHARACTERS_MAX
from shardbus.core.message import NEVER_MS, Entry
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.core.sequence import fragment_of
from shardbus.core.sessions.key import session_key
from shardbus.message.rule_view import MESSAGES, PayloadFormat, entry_value
from shardbus.rules.action import Changes
from shardbus.rules.document import rule_of
from shardbus.rules.filter import Rule
from shardbus.rules.index import RuleFailure, RuleIndex, SubscriptionMatch
from shardbus.rules.scope import SEED_BYTES, RuleMessage
from shardbus.rules.values import (
    Duration,
    Property,
    Value,
    fold,
    ms_of,
)

log = logging.getLogger(__name__)

FILTER_FAILED: Final = "FilterException"
ACTION_FAILED: Final = "RuleActionException"

# The work before others have their turn, in evaluations of short rules: some five milliseconds,
# compiled. Each message and each copy costs a fixed number of steps in addition.
STEPS_MAX: Final = 10_000
MESSAGE_WEIGHT: Final = 10
COPY_STEPS: Final = 4

# Rules that are compiled, or added to the index, before others have their turn.
RULES_PER_STEP: Final = 100

_SEED_PREFIX_BYTES: Final = 8


@final
class Parcel:
    """The copies of one message for one subscription, the first with the message's number.

    `is_changed`: whether an action made one of them.
    """

    def __init__(self, subscription: Entity, entries: list[Entry], is_changed: bool) -> None:
        self.subscription = subscription
        self.entries = entries
        self.is_changed = is_changed


@final
class Publisher:
    """The subscriptions of a topic with all their rules, shared by its fragments of one broker.

    `seed` is 8 random bytes; the values of newid() derive from it and from the number of messages.
    `steps_max` bounds the work of one turn of the loop.
    """

    def __init__(
        self, seed: bytes, *, payloads: PayloadFormat = MESSAGES, steps_max: int = STEPS_MAX
    ) -> None:
        assert len(seed) == _SEED_PREFIX_BYTES
        self.steps_max = steps_max
        self.is_told = False
        # The publications under way; each is finished with the rules with which it began.
        self._under_way = 0
        self._holds = 0
        self._waiting: list[Callable[[], None]] = []
        self.subscriptions: dict[int, Entity] = {}
        # The maximum number of copies of one message, and whether some of them have their own
        # payload.
        self.copies_max = 0
        self.has_actions = False
        # The fragments of the topic that have only some of the keys of their map.
        self.spread: set[int] = set()
        # The topic's: an action can set a time to live, but not a longer one.
        self.default_ttl_ms = INFINITE_MS
        self._payloads = payloads
        self._seed = seed
        self._published = 0
        self._index = RuleIndex()

    def tell(self, topic: Entity, subscriptions: Sequence[Entity]) -> None:
        """Publish to exactly these from now on. Refused when a rule is invalid: then nothing
        changes.

        Rules that did not change are not compiled again.
        """
        for _ in self.lesson(topic, subscriptions):
            pass

    def lesson(self, topic: Entity, subscriptions: Sequence[Entity]) -> Iterator[None]:
        """Like `tell`, in steps between which others may have their turn.

        All steps must be taken, and nothing may be published in between (see `hold`).
        """
        former = self.subscriptions
        try:
            yield from self._take_over({each.entity_id: each for each in subscriptions})
        except Refused:
            self._index = RuleIndex()
            self.subscriptions = {}
            for _ in self._take_over(former):
                pass
            raise
        self.default_ttl_ms = topic.spec.default_ttl_ms
        self.spread = topic.spread_numbers()
        self.is_told = True

    # Work of several turns of the loop.

    @property
    def is_busy(self) -> bool:
        """Whether a message is half published: the rules must stay as they are."""
        return self._under_way > 0

    @property
    def is_held(self) -> bool:
        """Whether the rules are about to change: nothing may be begun."""
        return self._holds > 0

    def hold(self) -> None:
        """Let no publication begin until `let_go`."""
        self._holds += 1

    def let_go(self) -> None:
        self._holds -= 1

    def when_still(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as no message is half published."""
        self._waiting.append(then)

    def begun(self) -> None:
        """A publication takes more than one turn of the loop."""
        self._under_way += 1

    def ended(self) -> None:
        """The publication is done or was given up."""
        self._under_way -= 1
        if self._under_way == 0:
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()

    @property
    def weight(self) -> int:
        """The cost of matching a message, in evaluations of short rules."""
        return MESSAGE_WEIGHT + self._index.weight

    def parcels(self, entry: Entry) -> list[Parcel]:
        """The copies for each subscription that gets any; `entry` itself is not among them.

        The caller numbers the copies after the first.
        """
        if entry.subscription_id:
            return self._addressed(entry)
        parcels: list[Parcel] = []
        for match in self._matches(entry):
            subscription = self.subscriptions[match.subscription]
            copies = self._copies(entry, match, subscription)
            if copies:
                parcels.append(Parcel(subscription, copies, len(match.copies) > 0))
        return parcels

    def _addressed(self, entry: Entry) -> list[Parcel]:
        """The copies of a message for one subscription alone; none if that is gone."""
        subscription = self.subscriptions.get(entry.subscription_id)
        if subscription is None:
            return []
        if not entry.past_number:
            return [Parcel(subscription, [_copy(entry)], False)]
        for match in self._matches(entry):
            if match.subscription == entry.subscription_id:
                copies = self._copies(entry, match, subscription)
                if copies:
                    for copy in copies:
                        copy.past_number = entry.past_number
                    return [Parcel(subscription, copies, len(match.copies) > 0)]
        return []

    def _matches(self, entry: Entry) -> list[SubscriptionMatch]:
        self._published += 1
        counter = self._published.to_bytes(SEED_BYTES - _SEED_PREFIX_BYTES, "big")
        seed = self._seed + counter
        try:
            return self._index.match(PublishedMessage(entry, self._payloads), seed)
        except ValueError as error:
            log.warning("message %d cannot be read by rules: %s", entry.sequence_number, error)
            return self._failed(self._index.match(_Blank(), seed), str(error))

    def _failed(self, matches: list[SubscriptionMatch], reason: str) -> list[SubscriptionMatch]:
        """Subscriptions that take every message get it all the same; for the others a rule has
        failed.
        """
        known = {match.subscription for match in matches}
        for subscription_id, subscription in self.subscriptions.items():
            if subscription.rules and subscription_id not in known:
                match = SubscriptionMatch(subscription_id)
                match.failures.append(RuleFailure("", reason))
                matches.append(match)
        return matches

    def _copies(self, entry: Entry, match: SubscriptionMatch, subscription: Entity) -> list[Entry]:
        copies: list[Entry] = []
        failures = list(match.failures)
        if match.is_plain:
            copies.append(_copy(entry))
        for made in match.copies:
            try:
                copy = self._changed(entry, made.changes)
                if subscription.spec.requires_session:
                    self._check_session(entry, copy)
                copies.append(copy)
            except ValueError as error:
                failures.append(RuleFailure(made.rule_name, str(error), is_action=True))
        if failures and subscription.spec.dead_letters_on_filter_errors:
            copies.append(_failed_copy(entry, failures[0]))
        return copies

    def _check_session(self, entry: Entry, copy: Entry) -> None:
        """A session lives in one fragment of each map, and a copy stays in that of its message
        (R11).
        """
        is_spread = fragment_of(entry.sequence_number) in self.spread
        if is_spread and _key(copy) != _key(entry):
            raise ValueError("an action cannot change the session of a partitioned topic's message")

    def _changed(self, entry: Entry, changes: Changes) -> Entry:
        copy = _copy(entry)
        payload = entry.payload
        assert payload is not None, "what is published has a payload"
        copy.modified = self._payloads.pack(payload, changes)
        if len(copy.modified) > MODIFIED_BYTES_MAX:
            raise ValueError(
                f"the properties it sets have {len(copy.modified)} bytes; at most "
                f"{MODIFIED_BYTES_MAX} are allowed"
            )
        if not changes.system:
            return copy
        copy.payload = self._payloads.rewrite(payload, changes)
        copy.size_bytes = len(copy.payload)
        if message_fields.SESSION_ID in changes.system:
            session_id = changes.system[message_fields.SESSION_ID]
            copy.session_id = session_id if isinstance(session_id, str) else None
        if message_fields.TIME_TO_LIVE in changes.system:
            copy.expires_at_ms = self._expiry_ms(entry, changes.system[message_fields.TIME_TO_LIVE])
        return copy

    def _expiry_ms(self, entry: Entry, time_to_live: Value) -> int:
        ttl_ms = self.default_ttl_ms
        if isinstance(time_to_live, Duration):
            ttl_ms = min(ttl_ms, max(0, ms_of(time_to_live)))
        return NEVER_MS if ttl_ms >= INFINITE_MS else entry.enqueued_at_ms + ttl_ms

    # Learning.

    def _take_over(self, wanted: dict[int, Entity]) -> Iterator[None]:
        changes: list[_RuleChanges] = []
        compiled = 0
        for each in wanted.values():
            change = _RuleChanges(self.subscriptions.get(each.entity_id), each)
            changes.append(change)
            compiled += len(change.added)
            if compiled >= RULES_PER_STEP:
                compiled = 0
                yield
        for subscription_id in self.subscriptions:
            if subscription_id not in wanted:
                self._index.remove_subscription(subscription_id)
        self.subscriptions = wanted
        acting = [sum(1 for rule in each.rules if rule.action) for each in wanted.values()]
        # Plus a plain copy, and one that reports a failure.
        self.copies_max = 2 * len(wanted) + sum(acting)
        self.has_actions = sum(acting) > 0
        for change in changes:
            for name in change.gone:
                self._index.remove(change.subscription_id, name)
        added = 0
        for change in changes:
            for rule in change.added:
                self._index.add(change.subscription_id, rule)
                added += 1
                if added % RULES_PER_STEP == 0:
                    yield


@final
class PublishedMessage:
    """A message as rules see it: the bus's system properties and the contents of its payload."""

    def __init__(self, entry: Entry, payloads: PayloadFormat) -> None:
        self._entry = entry
        self._payloads = payloads
        self._view: RuleMessage | None = None

    def system(self, number: int) -> Value:
        if number < message_fields.DELIVERY_COUNT or number > message_fields.DEAD_LETTER_SOURCE:
            return self._seen().system(number)
        if number in (message_fields.DELIVERY_COUNT, message_fields.STATE):
            return 0
        return entry_value(self._entry, number)

    def properties(self) -> dict[str, Property]:
        return self._seen().properties()

    def _seen(self) -> RuleMessage:
        if self._view is None:
            payload = self._entry.payload
            assert payload is not None, "what is published has a payload"
            self._view = self._payloads.view_of(payload)
        return self._view


@final
class _Blank:
    """A message of which rules can see nothing."""

    def system(self, number: int) -> Value:
        return None

    def properties(self) -> dict[str, Property]:
        return {}


@final
class _RuleChanges:
    """The changes to the rules of a subscription; compiles the new ones."""

    def __init__(self, old: Entity | None, new: Entity) -> None:
        self.subscription_id = new.entity_id
        self.gone: list[str] = []
        self.added: list[Rule] = []
        if old is new:
            return
        known: dict[str, RuleSpec] = {}
        if old is not None:
            known = {fold(each.name): each for each in old.rules}
        for each in new.rules:
            spec = known.pop(fold(each.name), None)
            if spec is not None and _is_same(spec, each):
                continue
            if spec is not None:
                self.gone.append(spec.name)
            self.added.append(rule_of(each))
        self.gone += [spec.name for spec in known.values()]


def _is_same(one: RuleSpec, other: RuleSpec) -> bool:
    return one is other or one.to_document() == other.to_document()


def _copy(entry: Entry) -> Entry:
    return Entry(
        entry.sequence_number,
        entry.payload,
        entry.size_bytes,
        enqueued_at_ms=entry.enqueued_at_ms,
        expires_at_ms=entry.expires_at_ms,
        modified=entry.modified,
        session_id=entry.session_id,
    )


def _failed_copy(entry: Entry, failure: RuleFailure) -> Entry:
    copy = _copy(entry)
    copy.reason = ACTION_FAILED if failure.is_action else FILTER_FAILED
    text = failure.reason
    if failure.rule_name:
        text = f"Rule '{failure.rule_name}': {text}"
    copy.description = text[:REASON_CHARACTERS_MAX]
    return copy


def _key(entry: Entry) -> str | None:
    return None if entry.session_id is None else session_key(entry.session_id)

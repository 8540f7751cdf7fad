"""Tries a rule on stored messages: which match, which fail, and what the action changes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Final, final

from msgspec import Meta, Struct, field

from shardbus.codec.errors import DecodeError
from shardbus.core.errors import Refused
from shardbus.core.message import Entry
from shardbus.core.message_fields import FIELDS
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.gateway.http.api.call import Call, Row, takes
from shardbus.gateway.http.api.entities.rules import NewRule, rule_spec
from shardbus.gateway.http.api.messages.scan import scan_of
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.route import NAME, Route
from shardbus.gateway.http.api.search.selection import StoredMessage
from shardbus.gateway.http.document import Count, Text, one_of, told
from shardbus.gateway.http.moment import format_duration, format_moment
from shardbus.gateway.http.server.gate import Gate
from shardbus.rules.action import Changes
from shardbus.rules.document import filter_of, rule_of, typed_value
from shardbus.rules.index import RULE_NAME, RuleIndex, SubscriptionMatch
from shardbus.rules.lexer import Mistake
from shardbus.rules.scope import SEED_BYTES
from shardbus.rules.text import text_of
from shardbus.rules.values import Duration, Moment, Property, Value

COUNT_MAX: Final = 200
SOURCES_MAX: Final = 8
_SUBSCRIPTION: Final = 1
_TICKS_PER_MS: Final = 10_000
_NAMES: Final = {each.number: f"sys.{each.dialect}" for each in FIELDS if each.number >= 0}


class RuleTest(NewRule, kw_only=True, frozen=True):
    sources: Annotated[
        Annotated[list[Text], Meta(max_length=SOURCES_MAX)],
        told(
            "The entities whose messages are tried; by default the subscription itself. Copies of "
            "one message in subscriptions of a topic are tried once."
        ),
    ] = field(default_factory=list)
    count: Annotated[
        int, Meta(ge=0, le=COUNT_MAX, description="Number of newest messages of each entity.")
    ] = COUNT_MAX


class SyntaxMistake(Struct, kw_only=True):
    part: Annotated[str, one_of("filter", "action")]
    message: str
    line: Annotated[Count, told("From 1; 0 when the error has no position.")]
    column: Count


class ValueChange(Struct, kw_only=True):
    name: Annotated[str, told("A property, or a message field with `sys.` before it.")]
    before: str | None
    after: Annotated[str | None, told("Null: it is removed.")]


class Trial(Struct, kw_only=True):
    number: str
    source: str
    outcome: Annotated[str, one_of("matched", "not_matched", "error")]
    error: str
    changes: list[ValueChange]


class RuleTested(Struct, kw_only=True):
    syntax_error: SyntaxMistake | None
    examined: Count
    matched: Count
    not_matched: Count
    failed: Count
    results: list[Trial]


@final
class RuleTrialPages:
    """A Group of the API."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places
        self._gate = Gate(places.bus.namespace, places.bus.authorizer)

    def rows(self) -> list[Row]:
        return [
            takes(
                Route(
                    "/api/v1/entities/{name}/rule-test",
                    "Try a rule on the newest messages of a subscription, or of other entities.",
                    RuleTested,
                    method="POST",
                    right=LISTEN,
                    otherwise=MANAGE,
                    parameters=(NAME,),
                ),
                RuleTest,
                self._test,
            )
        ]

    async def _test(self, call: Call[RuleTest]) -> RuleTested:
        self._places.line_of(call.name)
        for source in call.body.sources:
            self._gate.require(call.request, LISTEN, source, otherwise=MANAGE)
        rule = rule_spec("tried", call.body)
        result = RuleTested(
            syntax_error=_mistake_in(rule),
            examined=0,
            matched=0,
            not_matched=0,
            failed=0,
            results=[],
        )
        if result.syntax_error is not None or not call.body.count:
            return result
        self._places.pay(1)
        index = RuleIndex()
        index.add(_SUBSCRIPTION, rule_of(rule))
        for source, entry in await self._samples(call.body.sources or [call.name], call.body.count):
            _note(result, _tried(index, entry, source))
        return result

    async def _samples(self, sources: Sequence[str], count: int) -> list[tuple[str, Entry]]:
        """The newest messages of each source, each message once.

        Copies of a message in several subscriptions of a topic have the same number, and one copy
        is tried. A copy that the action of a rule has changed is tried only if there is no
        unchanged one.
        """
        found: dict[tuple[str, int], tuple[str, Entry]] = {}
        for source in sources:
            topic = self._places.line_of(source).handle.entity.topic_name().lower()
            for entry in await self._newest(source, count):
                key = (topic, entry.sequence_number)
                if key not in found or _is_changed(found[key][1]):
                    found[key] = (source, entry)
        samples = list(found.values())
        return [sample for sample in samples if not _is_changed(sample[1])] or samples

    async def _newest(self, source: str, count: int) -> list[Entry]:
        scan, _ = await scan_of(self._places, self._places.line_of(source), is_backward=True)
        found: list[Entry] = []
        while len(found) < count and (batch := await scan.batch()):
            for entry in batch:
                scan.passed(entry)
            found += batch
        return found[:count]


def _mistake_in(rule: RuleSpec) -> SyntaxMistake | None:
    for part in ("filter", "action"):
        try:
            if part == "filter":
                filter_of(rule.filter)
            else:
                rule_of(rule)
        except Refused as refusal:
            line = refusal.line if isinstance(refusal, Mistake) else 0
            column = refusal.column if isinstance(refusal, Mistake) else 0
            return SyntaxMistake(part=part, message=refusal.message, line=line, column=column)
    return None


def _tried(index: RuleIndex, entry: Entry, source: str) -> Trial:
    trial = Trial(
        number=str(entry.sequence_number),
        source=source,
        outcome="not_matched",
        error="",
        changes=[],
    )
    try:
        message = StoredMessage(entry)
        matches = index.match(message, secrets.token_bytes(SEED_BYTES))
        if matches:
            _tell(trial, matches[0], message)
    except (ValueError, DecodeError) as error:
        trial.outcome, trial.error = "error", str(error)
    return trial


def _tell(trial: Trial, match: SubscriptionMatch, message: StoredMessage) -> None:
    if match.failures:
        trial.outcome, trial.error = "error", match.failures[0].reason
        return
    trial.outcome = "matched"
    for copy in match.copies:
        # The bus adds the name of the rule, which has no name during a trial.
        changes = value_changes(message, copy.changes)
        trial.changes += [change for change in changes if change.name != RULE_NAME]


def _is_changed(entry: Entry) -> bool:
    """Whether the action of a rule made this copy."""
    try:
        return RULE_NAME.lower() in StoredMessage(entry).properties()
    except (ValueError, DecodeError):
        return False


def value_changes(message: StoredMessage, changes: Changes) -> list[ValueChange]:
    """What an action changes in a message, as texts."""
    found: list[ValueChange] = []
    before = message.properties()
    for folded, new in changes.properties.items():
        old = before.get(folded)
        known = new if new is not None else old
        found.append(
            ValueChange(
                name=known.name if known is not None else folded,
                before=None if old is None else _shown(old),
                after=None if new is None else _shown(new),
            )
        )
    for number, value in changes.system.items():
        told = _text(message.system(number))
        found.append(ValueChange(name=_NAMES[number], before=told, after=_text(value)))
    return found


def _note(result: RuleTested, trial: Trial) -> None:
    result.examined += 1
    result.matched += trial.outcome == "matched"
    result.not_matched += trial.outcome == "not_matched"
    result.failed += trial.outcome == "error"
    result.results.append(trial)


def _shown(value: Property) -> str:
    return typed_value(value).text


def _text(value: Value) -> str | None:
    if isinstance(value, Duration):
        return format_duration(value.ticks // _TICKS_PER_MS)
    if isinstance(value, Moment):
        return format_moment(value.ticks // _TICKS_PER_MS)
    return None if value is None else text_of(value) or str(value)

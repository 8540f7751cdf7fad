"""All rules of all subscriptions of a topic, and their results for a message."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import ALREADY_EXISTS, NOT_FOUND, QUOTA_EXCEEDED, Refused
from shardbus.rules.action import Changes
from shardbus.rules.arithmetic import TRUE
from shardbus.rules.correlation import CorrelationEntry, CorrelationTree
from shardbus.rules.errors import EvaluationError
from shardbus.rules.filter import CorrelationFilter, Rule, SqlFilter, TrueFilter
from shardbus.rules.limits import CORRELATION_RULES_MAX, SQL_RULES_MAX
from shardbus.rules.plan import Check, FixedCheck
from shardbus.rules.scope import NewIds, RuleMessage, Scope
from shardbus.rules.values import TEXT, Property, fold

RULE_NAME: Final = "RuleName"
# An expression of this many characters counts as one comparison.
SHORT_CHARACTERS: Final = 24


@final
class RuleCopy:
    """A copy of the message made by one rule's action; RuleName is among the changes."""

    def __init__(self, rule_name: str, changes: Changes) -> None:
        self.rule_name = rule_name
        self.changes = changes


@final
class RuleFailure:
    """A rule whose filter or action has no result for the message."""

    def __init__(self, rule_name: str, reason: str, *, is_action: bool = False) -> None:
        self.rule_name = rule_name
        self.reason = reason
        self.is_action = is_action


@final
class SubscriptionMatch:
    """What one subscription gets: a plain copy or none, a copy for each action, and failures."""

    def __init__(self, subscription: int) -> None:
        self.subscription = subscription
        self.is_plain = False
        self.copies: list[RuleCopy] = []
        self.failures: list[RuleFailure] = []


@final
class _Entry:
    def __init__(self, number: int, subscription: int, rule: Rule) -> None:
        self.number = number
        self.subscription = subscription
        self.rule = rule
        self.correlation: CorrelationEntry | None = None


@final
class _Checked:
    """A rule whose SQL must be evaluated for every message."""

    def __init__(self, entry: _Entry, check: Check) -> None:
        self.entry = entry
        self.check = check


@final
class RuleIndex:
    """The rules of a topic; the caller numbers the subscriptions.

    Correlation rules cost in proportion to those that match, SQL rules are evaluated one by one,
    and rules that are always or never true cost nothing unless they match.
    """

    def __init__(self) -> None:
        self._next = 0
        self._rules: dict[int, dict[str, _Entry]] = {}
        self._entries: dict[int, _Entry] = {}
        self._always: dict[int, _Entry] = {}
        self._sql: dict[int, _Checked] = {}
        self._sql_count = 0
        # The cost of evaluating all SQL rules, in short conditions.
        self.weight = 0
        self._correlations = CorrelationTree()

    def add(self, subscription: int, rule: Rule) -> None:
        """Add a rule. Refuses a name that the subscription already has, and more rules than a topic
        may have.
        """
        known = self._rules.get(subscription, {})
        if fold(rule.name) in known:
            raise Refused(ALREADY_EXISTS, f"The rule '{rule.name}' already exists.")
        self._check_quota(rule)
        entry = _Entry(self._next, subscription, rule)
        self._next += 1
        self._rules.setdefault(subscription, known)[fold(rule.name)] = entry
        self._entries[entry.number] = entry
        self._insert(entry)

    def remove(self, subscription: int, name: str) -> Rule:
        """Remove a rule and return it. Refuses a name that the subscription does not have."""
        known = self._rules.get(subscription, {})
        entry = known.pop(fold(name), None)
        if entry is None:
            raise Refused(NOT_FOUND, f"The rule '{name}' does not exist.")
        if not known:
            del self._rules[subscription]
        self._forget(entry)
        return entry.rule

    def remove_subscription(self, subscription: int) -> None:
        """Remove all rules of a subscription, which may have none."""
        for entry in self._rules.pop(subscription, {}).values():
            self._forget(entry)

    def rules(self, subscription: int) -> list[Rule]:
        """The rules of a subscription in the order in which they were added."""
        return [entry.rule for entry in self._rules.get(subscription, {}).values()]

    def match(self, message: RuleMessage, seed: bytes) -> list[SubscriptionMatch]:
        """The results of all subscriptions for which a rule matched or failed, by number.

        Every rule is evaluated on the message as it was published. `seed` is 16 random bytes, from
        which newid() derives its values.
        """
        scope = Scope(message, NewIds(seed))
        matches: dict[int, SubscriptionMatch] = {}
        matching = self._correlations.matching(scope)
        matching.extend(self._always)
        for number, checked in self._sql.items():
            try:
                if checked.check.truth(scope) == TRUE:
                    matching.append(number)
            except EvaluationError as error:
                _note_failure(matches, checked.entry, error, is_action=False)
        # In the order in which they were added, so that the same seed gives the same result.
        matching.sort()
        for number in matching:
            _note_match(matches, self._entries[number], scope)
        return [matches[subscription] for subscription in sorted(matches)]

    def _check_quota(self, rule: Rule) -> None:
        if isinstance(rule.filter, SqlFilter) and self._sql_count >= SQL_RULES_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"A topic may have at most {SQL_RULES_MAX} SQL filters: delete some first.",
            )
        is_correlation = isinstance(rule.filter, CorrelationFilter)
        if is_correlation and len(self._correlations) >= CORRELATION_RULES_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"A topic may have at most {CORRELATION_RULES_MAX} correlation filters: "
                "delete some first.",
            )

    def _insert(self, entry: _Entry) -> None:
        filter = entry.rule.filter
        if isinstance(filter, CorrelationFilter):
            entry.correlation = self._correlations.add(entry.number, filter.conditions)
        elif isinstance(filter, TrueFilter):
            self._always[entry.number] = entry
        elif isinstance(filter, SqlFilter):
            self._sql_count += 1
            check = filter.check
            if not isinstance(check, FixedCheck):
                self._sql[entry.number] = _Checked(entry, check)
                self.weight += _weight(filter)
            elif check.fixed == TRUE:
                self._always[entry.number] = entry

    def _forget(self, entry: _Entry) -> None:
        del self._entries[entry.number]
        if entry.correlation is not None:
            self._correlations.remove(entry.correlation)
        if isinstance(entry.rule.filter, SqlFilter):
            self._sql_count -= 1
            if self._sql.pop(entry.number, None) is not None:
                self.weight -= _weight(entry.rule.filter)
        self._always.pop(entry.number, None)


def _weight(filter: SqlFilter) -> int:
    """The cost of the filter in short conditions, at least one."""
    return 1 + len(filter.expression) // SHORT_CHARACTERS


def _note_match(matches: dict[int, SubscriptionMatch], entry: _Entry, scope: Scope) -> None:
    action, name = entry.rule.action, entry.rule.name
    if action is None:
        _match_of(matches, entry.subscription).is_plain = True
        return
    try:
        changes = action.run(scope)
    except EvaluationError as error:
        _note_failure(matches, entry, error, is_action=True)
        return
    changes.properties[fold(RULE_NAME)] = Property(RULE_NAME, TEXT, name)
    _match_of(matches, entry.subscription).copies.append(RuleCopy(name, changes))


def _note_failure(
    matches: dict[int, SubscriptionMatch],
    entry: _Entry,
    error: EvaluationError,
    *,
    is_action: bool,
) -> None:
    failure = RuleFailure(entry.rule.name, error.message, is_action=is_action)
    _match_of(matches, entry.subscription).failures.append(failure)


def _match_of(matches: dict[int, SubscriptionMatch], subscription: int) -> SubscriptionMatch:
    found = matches.get(subscription)
    if found is None:
        found = SubscriptionMatch(subscription)
        matches[subscription] = found
    return found

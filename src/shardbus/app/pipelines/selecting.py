"""Pipelines of messages, or rows, that meet conditions: the rules of subscriptions, and SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, Self

from msgspec import Meta
from msgspec.structs import replace

from shardbus.app.pipelines.task import ENTITY_CHARACTERS_MAX, Task, option
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.rules.document import filter_of
from shardbus.rules.filter import SqlFilter
from shardbus.rules.limits import EXPRESSION_CHARACTERS_MAX
from shardbus.rules.portable import Document, portable_filter

WHERE_CHARACTERS_MAX: Final = 4_096
# Each is an expression of the same query.
RULES_MAX: Final = 100


class Selecting(Task, kw_only=True, frozen=True):
    where: Annotated[
        str,
        Meta(
            max_length=WHERE_CHARACTERS_MAX,
            description="A SQL condition on the columns of messages, or of the table.",
        ),
        option(
            "Take rows that meet this SQL condition: \"properties['region'] = 'north'\".",
            metavar="CONDITION",
        ),
    ] = ""
    rule: Annotated[
        str,
        Meta(
            max_length=EXPRESSION_CHARACTERS_MAX,
            description="A SQL filter, as a subscription has; of each message, not of the table.",
        ),
        option("Take messages that match this filter: \"region = 'north'\".", metavar="FILTER"),
    ] = ""
    like_subscription: Annotated[
        str,
        Meta(
            max_length=ENTITY_CHARACTERS_MAX,
            description="A subscription; its rules, as they are when the pipeline is started, "
            "select the messages.",
        ),
        option(
            "Take messages that the rules of this subscription match.",
            metavar="TOPIC/Subscriptions/NAME",
        ),
    ] = ""

    for_people: ClassVar[tuple[str, ...]] = ("rule", "like_subscription")
    computed: ClassVar[Mapping[str, str]] = {
        "filters": "Lists of filters as JSON; a message must match one of each list."
    }

    @property
    def has_texts(self) -> bool:
        return bool(self.where)

    @property
    def selects(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.where or self.rule or self.like_subscription)

    def with_plain_selection(self) -> Self:
        return replace(
            self,
            where=self.where.strip(),
            rule=self.rule.strip(),
            like_subscription=self.like_subscription.strip("/"),
        )

    def compute(self, places: EntityPlaces, code_dir: str = "") -> dict[str, str]:
        return {"filters": self.filters(places)}

    def filters(self, places: EntityPlaces) -> str:
        """The rules as of now, for the driver; Refused for rules that cannot be used."""
        lists: list[list[Document]] = []
        if self.rule:
            lists.append([portable_filter(SqlFilter(self.rule))])
        if self.like_subscription:
            lists.append(_filters_of(places.bus.namespace.rules(self.like_subscription)))
        return json.dumps(lists) if lists else ""


def _filters_of(rules: Sequence[RuleSpec]) -> list[Document]:
    if len(rules) > RULES_MAX:
        raise Refused(
            NOT_ALLOWED,
            f"The subscription of like_subscription has {len(rules)} rules; at most {RULES_MAX} "
            "can select the messages of a pipeline: give a filter in rule instead.",
        )
    return [portable_filter(filter_of(rule.filter)) for rule in rules]

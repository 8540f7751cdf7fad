"""Creates, changes and deletes queues, topics, subscriptions and rules over the JSON API."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, final

from msgspec import UNSET, Struct

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.core.namespace.entity import Entity, subscription_path
from shardbus.core.namespace.property import QUEUE, SUBSCRIPTION, TOPIC
from shardbus.gateway.http.api.call import Call, Nothing, Reply, Row, shows, takes
from shardbus.gateway.http.api.entities.documents import (
    Queue,
    Rule,
    Subscription,
    Topic,
    queue_document,
    rule_document,
    subscription_document,
    topic_document,
)
from shardbus.gateway.http.api.entities.forms import (
    EntityForms,
    NewSubscriptionForm,
    QueueForm,
    SubscriptionForm,
    TopicForm,
    fill,
    forms_document,
    says,
)
from shardbus.gateway.http.api.entities.rules import NewRule, rule_spec
from shardbus.gateway.http.api.route import NAME, RULE, Parameter, Route
from shardbus.gateway.http.api.route import SUBSCRIPTION as SUBSCRIPTION_NAME
from shardbus.gateway.http.atom.forwarding import authorize_forwarding
from shardbus.gateway.http.document import B, Body, Shape

_QUEUE: Final = "/api/v1/queues/{name}"
_TOPIC: Final = "/api/v1/topics/{name}"
_SUBSCRIPTION: Final = "/api/v1/topics/{name}/subscriptions/{subscription}"
_RULE: Final = "/api/v1/entities/{name}/rules/{rule}"


class Deleted(Struct, kw_only=True):
    deleted: str


@final
class ManagementPages:
    """A Group of the API. The properties of entities are those of one table (ADR 0058)."""

    def __init__(self, namespace: Namespace, authorizer: Authorizer) -> None:
        self._namespace = namespace
        self._authorizer = authorizer

    def rows(self) -> list[Row]:
        properties = Route(
            "/api/v1/properties",
            "The properties of entities, with what the tier of the namespace decides.",
            EntityForms,
            takes_any_token=True,
        )
        return [
            shows(properties, self._show_properties),
            takes(_put(_QUEUE, Queue), QueueForm, self._create_queue),
            takes(_patch(_QUEUE, Queue), QueueForm, self._change_queue),
            shows(_delete(_QUEUE, "deleteQueue"), self._delete_queue),
            takes(_put(_TOPIC, Topic), TopicForm, self._create_topic),
            takes(_patch(_TOPIC, Topic), TopicForm, self._change_topic),
            shows(_delete(_TOPIC, "deleteTopic"), self._delete_topic),
            shows(
                _route(_SUBSCRIPTION, "One subscription of a topic.", Subscription, "GET"),
                self._show_subscription,
            ),
            takes(
                _put(_SUBSCRIPTION, Subscription), NewSubscriptionForm, self._create_subscription
            ),
            takes(_patch(_SUBSCRIPTION, Subscription), SubscriptionForm, self._change_subscription),
            shows(_delete(_SUBSCRIPTION, "deleteSubscription"), self._delete_subscription),
            shows(_route(_RULE, "One rule of a subscription.", Rule, "GET"), self._show_rule),
            takes(
                _route(_RULE, "Create a rule, or replace that of the same name.", Rule, "PUT"),
                NewRule,
                self._put_rule,
            ),
            shows(_delete(_RULE, "deleteRule"), self._delete_rule),
        ]

    async def _show_properties(self, call: Call[Nothing]) -> EntityForms:
        return forms_document(self._namespace.settings.tier, self._namespace.new_spec())

    # Queues and topics.

    async def _create_queue(self, call: Call[Body]) -> Reply:
        spec = self._namespace.new_spec()
        fill(QUEUE, spec, call.body)
        authorize_forwarding(call.request, spec, None, self._authorizer, self._namespace)
        return await self._created(await self._namespace.create_queue(call.name, spec))

    async def _create_topic(self, call: Call[Body]) -> Reply:
        spec = self._namespace.new_spec()
        fill(TOPIC, spec, call.body)
        if not says(call.body, "supports_ordering"):
            tier = self._namespace.settings.tier
            spec.supports_ordering = not tier.is_partitioned(spec.is_partitioned)
        return await self._created(await self._namespace.create_topic(call.name, spec))

    async def _change_queue(self, call: Call[Body]) -> Struct:
        old = self._namespace.queue(call.name)
        spec = old.spec.copy()
        fill(QUEUE, spec, call.body)
        authorize_forwarding(call.request, spec, old.spec, self._authorizer, self._namespace)
        return await self._document(await self._namespace.update_queue(call.name, spec))

    async def _change_topic(self, call: Call[Body]) -> Struct:
        spec = self._namespace.topic(call.name).spec.copy()
        fill(TOPIC, spec, call.body)
        return await self._document(await self._namespace.update_topic(call.name, spec))

    async def _delete_queue(self, call: Call[Nothing]) -> Deleted:
        return await self._deleted(self._namespace.queue(call.name))

    async def _delete_topic(self, call: Call[Nothing]) -> Deleted:
        return await self._deleted(self._namespace.topic(call.name))

    # Subscriptions and rules.

    async def _show_subscription(self, call: Call[Nothing]) -> Struct:
        return await self._document(self._subscription(call))

    async def _create_subscription(self, call: Call[NewSubscriptionForm]) -> Reply:
        spec = self._namespace.new_spec()
        fill(SUBSCRIPTION, spec, call.body)
        authorize_forwarding(call.request, spec, None, self._authorizer, self._namespace)
        said = call.body.default_rule
        rules = [] if said is UNSET else [rule_spec(said.name, said)]
        return await self._created(
            await self._namespace.create_subscription(call.name, call.subscription, spec, rules)
        )

    async def _change_subscription(self, call: Call[Body]) -> Struct:
        old = self._subscription(call)
        spec = old.spec.copy()
        fill(SUBSCRIPTION, spec, call.body)
        authorize_forwarding(call.request, spec, old.spec, self._authorizer, self._namespace)
        return await self._document(await self._namespace.update_subscription(old.name, spec))

    async def _delete_subscription(self, call: Call[Nothing]) -> Deleted:
        return await self._deleted(self._subscription(call))

    async def _show_rule(self, call: Call[Nothing]) -> Rule:
        return rule_document(self._namespace.rule(call.name, call.rule))

    async def _put_rule(self, call: Call[NewRule]) -> Rule:
        rule = rule_spec(call.rule, call.body)
        is_known = self._namespace.subscription(call.name).rule(call.rule) is not None
        put = self._namespace.replace_rule if is_known else self._namespace.add_rule
        return rule_document(await put(call.name, rule))

    async def _delete_rule(self, call: Call[Nothing]) -> Deleted:
        rule = self._namespace.rule(call.name, call.rule)
        await self._namespace.remove_rule(call.name, rule.name)
        return Deleted(deleted=rule.name)

    def _subscription(self, call: Call[B]) -> Entity:
        return self._namespace.subscription(subscription_path(call.name, call.subscription))

    async def _created(self, entity: Entity) -> Reply:
        return Reply(HTTPStatus.CREATED, await self._document(entity))

    async def _document(self, entity: Entity) -> Struct:
        statistics = await self._namespace.statistics(entity)
        if entity.is_topic():
            return topic_document(entity, statistics, self._namespace.filter_counts(entity))
        shape = subscription_document if entity.is_subscription() else queue_document
        return shape(entity, statistics)

    async def _deleted(self, entity: Entity) -> Deleted:
        await self._namespace.delete(entity.name)
        return Deleted(deleted=entity.name)


def _parameters(path: str) -> tuple[Parameter, ...]:
    known = {"name": NAME, "rule": RULE, "subscription": SUBSCRIPTION_NAME}
    return tuple(each for name, each in known.items() if f"{{{name}}}" in path)


def _route(
    path: str, summary: str, shape: Shape, method: str, *, identifier: str = "", status: int = 200
) -> Route:
    is_read = method == "GET"
    return Route(
        path,
        summary,
        shape,
        method=method,
        right=LISTEN if is_read else MANAGE,
        otherwise=MANAGE if is_read else 0,
        parameters=_parameters(path),
        identifier=identifier,
        status=status,
    )


def _put(path: str, shape: type[Struct]) -> Route:
    noun = shape.__name__
    summary = (
        f"Create a {noun.lower()}; it must not exist. Members that are left out have defaults."
    )
    return _route(
        path, summary, shape, "PUT", identifier=f"create{noun}", status=HTTPStatus.CREATED
    )


def _patch(path: str, shape: type[Struct]) -> Route:
    noun = shape.__name__
    summary = f"Change the given members of a {noun.lower()}; the others stay as they are."
    return _route(path, summary, shape, "PATCH")


def _delete(path: str, identifier: str) -> Route:
    noun = identifier.removeprefix("delete").lower()
    summary = f"Delete a {noun}" + (" with all its messages." if noun != "rule" else ".")
    return _route(path, summary, Deleted, "DELETE", identifier=identifier)

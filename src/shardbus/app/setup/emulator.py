"""The emulator's `Config.json`: reading and writing."""

import json
from typing import Final

from shardbus.app.cli.console import Json
from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, EntityKind
from shardbus.app.setup.model import SUBSCRIPTIONS_SEGMENT, Blueprint, DeclaredEntity, checked
from shardbus.app.setup.node import PlacedValue
from shardbus.app.setup.rule_writer import entity_properties, rule_properties, written_rules
from shardbus.app.setup.theirs import read_elements, read_rule, warn_unknown

NAMESPACE_NAME: Final = "sbemulatorns"
# The emulator accepts shorter windows than the dialect allows.
_WINDOW: Final = "DuplicateDetectionHistoryTimeWindow"
_SHORT_WINDOWS: Final = frozenset(f"PT{seconds}S" for seconds in range(20))
_WINDOW_LEAST: Final = "PT20S"
# Properties that its schema lacks.
_UNSAID: Final = ("UserMetadata", "SupportOrdering")


def is_emulator_file(value: object) -> bool:
    return isinstance(value, dict) and any(str(key).lower() == "userconfig" for key in value)


def read_emulator(value: object, file: str) -> Blueprint:
    """What a `Config.json` describes."""
    root = PlacedValue(value, "", lambda path: f"{file}: {path}" if path else file, folds_case=True)
    blueprint = Blueprint(says_access_rules=False)
    warn_unknown(root, ["UserConfig"], blueprint.warnings)
    config = root.need("UserConfig")
    warn_unknown(config, ["Namespaces", "Logging"], blueprint.warnings)
    namespaces = config.items_of("Namespaces")
    if len(namespaces) > 1:
        raise namespaces[1].wrong("this is a second namespace; a bus serves one")
    for namespace in namespaces:
        warn_unknown(namespace, ["Name", "Properties", "Queues", "Topics"], blueprint.warnings)
        for queue in namespace.items_of("Queues"):
            blueprint.entities.append(_entity(QUEUE, queue, "", blueprint.warnings))
        for topic in namespace.items_of("Topics"):
            _add_topic(topic, blueprint)
    return checked(blueprint)


def write_emulator(blueprint: Blueprint) -> tuple[str, list[str]]:
    """The file, and what it cannot express."""
    losses = [f"the access rule {rule.name}" for rule in blueprint.access_rules]
    losses += [f"the pipeline {each.name}" for each in blueprint.pipelines]
    queues = [_written(entity, losses) for entity in blueprint.of_kind(QUEUE)]
    topics: list[Json] = []
    for topic in blueprint.of_kind(TOPIC):
        below = [_subscription(entity, losses) for entity in blueprint.subscriptions_of(topic)]
        topics.append({**_written(topic, losses), "Subscriptions": below})
    namespace: Json = {"Name": NAMESPACE_NAME, "Queues": queues, "Topics": topics}
    document: Json = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n", losses


def _add_topic(node: PlacedValue, blueprint: Blueprint) -> None:
    topic = _entity(TOPIC, node, "", blueprint.warnings)
    blueprint.entities.append(topic)
    for subscription in node.items_of("Subscriptions"):
        prefix = topic.path + SUBSCRIPTIONS_SEGMENT
        entity = _entity(SUBSCRIPTION, subscription, prefix, blueprint.warnings)
        blueprint.entities.append(entity)


def _entity(
    kind: EntityKind, node: PlacedValue, prefix: str, warnings: list[str]
) -> DeclaredEntity:
    below = {TOPIC.word: "Subscriptions", SUBSCRIPTION.word: "Rules"}.get(kind.word, "Name")
    warn_unknown(node, ["Name", "Properties", below], warnings)
    elements = read_elements(kind, node.get("Properties"), warnings)
    if elements.get(_WINDOW) in _SHORT_WINDOWS:
        warnings.append(
            f"{node.place}: {_WINDOW} is shorter than {_WINDOW_LEAST}, which is used instead"
        )
        elements[_WINDOW] = _WINDOW_LEAST
    rules = [] if kind is not SUBSCRIPTION else node.items_of("Rules")
    return DeclaredEntity(
        kind,
        prefix + node.need("Name").name(),
        elements,
        # Tools write an empty list for a subscription that gets every message.
        tuple(
            read_rule(rule.need("Name").name(), rule.get("Properties"), warnings) for rule in rules
        )
        or None,
        place=node.place,
    )


def _written(entity: DeclaredEntity, losses: list[str]) -> dict[str, Json]:
    losses += [f"{name} of {entity.path}" for name in _UNSAID if entity.elements.get(name)]
    losses += [f"the access rule {rule.name} of {entity.path}" for rule in entity.access_rules]
    properties = entity_properties(entity, without=_UNSAID)
    return {"Name": entity.name, "Properties": properties}


def _subscription(entity: DeclaredEntity, losses: list[str]) -> Json:
    written = _written(entity, losses)
    rules: list[Json] = [
        {"Name": rule.name, "Properties": rule_properties(rule, entity.path, losses, suffix="")}
        for rule in written_rules(entity, losses)
    ]
    return {**written, "Rules": rules} if rules else written

"""A namespace as an ARM template that can be deployed, and that `apply` reads."""

import json
from typing import Final

from shardbus.app.cli.console import Json
from shardbus.app.cli.entities.atom import QUEUE, TOPIC
from shardbus.app.setup.model import Blueprint, DeclaredAccessRule, DeclaredEntity
from shardbus.app.setup.rule_writer import entity_properties, rule_properties, written_rules

API_VERSION: Final = "2022-10-01-preview"
SCHEMA: Final = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
PARAMETER: Final = "serviceBusNamespaceName"
_NAMESPACE: Final = "Microsoft.ServiceBus/namespaces"


def write_template(blueprint: Blueprint, *, with_keys: bool) -> tuple[str, list[str]]:
    """The template, and what it cannot express."""
    losses = [f"the pipeline {each.name}" for each in blueprint.pipelines]
    tier = (blueprint.tier or "standard").capitalize()
    resources: list[Json] = [
        {
            "type": _NAMESPACE,
            "apiVersion": API_VERSION,
            "name": f"[parameters('{PARAMETER}')]",
            "location": "[parameters('location')]",
            "sku": {"name": tier, "tier": tier},
        }
    ]
    resources += [_access_rule((), "", rule, with_keys, losses) for rule in blueprint.access_rules]
    kinds = {entity.key: _collection(entity) for entity in blueprint.entities}
    for entity in blueprint.entities:
        resources += _entity(entity, kinds, with_keys, losses)
    document: Json = {
        "$schema": SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {
            PARAMETER: {"type": "string", "defaultValue": "shardbus"},
            "location": {"type": "string", "defaultValue": "[resourceGroup().location]"},
        },
        "resources": resources,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n", losses


def _entity(
    entity: DeclaredEntity, kinds: dict[str, str], with_keys: bool, losses: list[str]
) -> list[Json]:
    collection = _collection(entity)
    names = _names(entity)
    needed = [_resource_id(collection.rpartition("/")[0], names[:-1])]
    needed += [
        _resource_id(kinds[target], (target.replace("/", "~"),))
        for target in entity.targets()
        if kinds.get(target)
    ]
    properties = {_camel(name): _safe(value) for name, value in entity_properties(entity).items()}
    written: list[Json] = [_resource(collection, names, properties, needed)]
    written += [
        _access_rule(names, collection.removeprefix(_NAMESPACE), rule, with_keys, losses)
        for rule in entity.access_rules
    ]
    for rule in written_rules(entity, losses):
        said = _camel_tree(rule_properties(rule, entity.path, losses, suffix="Filter"))
        needed = [_resource_id(collection, names)]
        written.append(_resource(f"{collection}/rules", (*names, rule.name), said, needed))
    return written


def _access_rule(
    names: tuple[str, ...],
    collection: str,
    rule: DeclaredAccessRule,
    with_keys: bool,
    losses: list[str],
) -> Json:
    if with_keys and rule.primary_key:
        losses.append(f"the keys of the access rule {'/'.join((*names, rule.name))}")
    owner = _NAMESPACE + collection
    return _resource(
        f"{owner}/authorizationRules",
        (*names, rule.name),
        {"rights": list(rule.rights)},
        [_resource_id(owner, names)],
    )


def _resource(type: str, names: tuple[str, ...], properties: Json, needed: list[str]) -> Json:
    below = "".join(f"/{name}" for name in names).replace("'", "''")
    return {
        "type": type,
        "apiVersion": API_VERSION,
        "name": f"[concat(parameters('{PARAMETER}'), '{below}')]",
        "dependsOn": needed,
        "properties": properties,
    }


def _resource_id(type: str, names: tuple[str, ...]) -> str:
    quoted = "".join(", '" + name.replace("'", "''") + "'" for name in names)
    return f"[resourceId('{type}', parameters('{PARAMETER}'){quoted})]"


def _collection(entity: DeclaredEntity) -> str:
    if entity.kind is QUEUE:
        return f"{_NAMESPACE}/queues"
    topics = f"{_NAMESPACE}/topics"
    return topics if entity.kind is TOPIC else f"{topics}/subscriptions"


def _names(entity: DeclaredEntity) -> tuple[str, ...]:
    parts = (entity.topic, entity.name) if entity.topic else (entity.name,)
    return tuple(part.replace("/", "~") for part in parts)


def _camel(name: str) -> str:
    return name[:1].lower() + name[1:]


def _camel_tree(properties: dict[str, Json]) -> Json:
    """Names of the dialect in the case of templates; names of application properties stay."""
    written: dict[str, Json] = {}
    for name, value in properties.items():
        is_filter = isinstance(value, dict) and name != "Properties"
        inner = value if isinstance(value, dict) else {}
        bag = name == "Properties"
        plain = {key: _safe(member) for key, member in inner.items()} if bag else _safe(value)
        written[_camel(name)] = _camel_tree(dict(inner)) if is_filter else plain
    return written


def _safe(value: Json) -> Json:
    """A text that only looks like an expression gets a second bracket."""
    is_alike = isinstance(value, str) and value.startswith("[") and value.endswith("]")
    return f"[{value}" if is_alike else value

"""Files of set-up as texts."""

import json
import tomllib
from collections.abc import Mapping

from shardbus.app.setup.files import read_json
from shardbus.app.setup.model import Blueprint, DeclaredEntity
from shardbus.app.setup.toml_form import read_toml


def from_toml(text: str) -> Blueprint:
    return read_toml(tomllib.loads(text), text, "bus.toml", ("tier",))


def from_document(document: object, **parameters: object) -> Blueprint:
    """What a JSON document says, as it is after a trip through a file."""
    value: object = json.loads(json.dumps(document))
    return read_json(value, "bus.json", parameters)


def emulator(*queues: object, topics: object = ()) -> object:
    """An emulator's file."""
    namespace: object = {"Name": "sbemulatorns", "Queues": queues, "Topics": topics}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}


def template(*resources: object, **more: object) -> object:
    """An ARM template."""
    return {"$schema": "s", "contentVersion": "1.0.0.0", **more, "resources": resources}


def resource(kind: str, name: str, **more: object) -> dict[str, object]:
    """A resource of Service Bus; `kind` is what comes behind the namespaces."""
    return {
        "type": f"Microsoft.ServiceBus/namespaces{kind}",
        "apiVersion": "2022-10-01-preview",
        "name": name,
        **more,
    }


def queue(name: str, **properties: object) -> dict[str, object]:
    return {"Name": name, "Properties": properties}


def by_path(blueprint: Blueprint) -> dict[str, DeclaredEntity]:
    return {entity.path: entity for entity in blueprint.entities}


def elements(blueprint: Blueprint) -> Mapping[str, dict[str, str]]:
    return {entity.path: entity.elements for entity in blueprint.entities}

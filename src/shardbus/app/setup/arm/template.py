"""The Service Bus resources of an ARM template, nested or flat, with parameters evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, EntityKind
from shardbus.app.cli.entities.rule_atom import AtomRule
from shardbus.app.setup.arm.expressions import COPIES_MAX, ExpressionError, TemplateScope
from shardbus.app.setup.canonical import rights_form
from shardbus.app.setup.model import (
    SUBSCRIPTIONS_SEGMENT,
    Blueprint,
    DeclaredAccessRule,
    DeclaredEntity,
    SetupError,
    checked,
)
from shardbus.app.setup.node import PlacedValue, Unresolved
from shardbus.app.setup.theirs import read_elements, read_rule, warn_unknown

DEPTH_MAX: Final = 5

_PROVIDER: Final = "microsoft.servicebus/"
_NAMESPACES: Final = "microsoft.servicebus/namespaces"
_DEPLOYMENTS: Final = "microsoft.resources/deployments"
_TIERS: Final = ("basic", "standard", "premium")
_KINDS: Final[dict[str, EntityKind]] = {
    f"{_NAMESPACES}/queues": QUEUE,
    f"{_NAMESPACES}/topics": TOPIC,
    f"{_NAMESPACES}/topics/subscriptions": SUBSCRIPTION,
}
_PARTITIONS: Final = "premiumMessagingPartitions"
_RULES: Final = f"{_NAMESPACES}/topics/subscriptions/rules"
_ACCESS_RULES: Final = "/authorizationrules"
_MEMBERS: Final = (
    "apiVersion",
    "comments",
    "condition",
    "copy",
    "dependsOn",
    "existing",
    "identity",
    "kind",
    "location",
    "metadata",
    "name",
    "properties",
    "resources",
    "scale",
    "sku",
    "systemData",
    "tags",
    "type",
    "zones",
)


def is_template(value: object) -> bool:
    """Whether a JSON document looks like an ARM template."""
    if not isinstance(value, dict):
        return False
    names = {str(name).lower() for name in value}
    return "resources" in names and bool(names & {"$schema", "contentversion", "parameters"})


def read_template(value: object, file: str, given: Mapping[str, object]) -> Blueprint:
    """What a template describes; `given` values of parameters replace their defaults."""
    root = PlacedValue(value, "", lambda path: f"{file}: {path}" if path else file, folds_case=True)
    template = _Template(Blueprint())
    template.read(root, given, 0)
    return template.blueprint()


@dataclass(frozen=True, slots=True)
class _Resource:
    """A resource with its full type in lower case and the parts of its full name."""

    type: str
    names: tuple[str, ...]
    node: PlacedValue
    scope: TemplateScope

    def properties(self) -> PlacedValue | None:
        node = self.node.get("properties")
        return None if node is None else node.with_value(self.scope.worked_out(node.value))


@final
class _Template:
    """Collects resources in any order, then combines them."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._entities: list[DeclaredEntity] = []
        self._rules: dict[str, list[AtomRule]] = {}
        self._access: dict[str, list[DeclaredAccessRule]] = {}
        self._strangers = 0
        self._namespaces = 0

    def blueprint(self) -> Blueprint:
        warnings = self._blueprint.warnings
        known = {entity.key for entity in self._entities}
        for key in (*self._rules, *self._access):
            if key and key not in known:
                raise SetupError(f"a rule belongs to {key}, which is not in the template")
        if self._strangers:
            warnings.append(
                f"{self._strangers} resources do not belong to Service Bus and are ignored"
            )
        self._blueprint.entities = [
            DeclaredEntity(
                entity.kind,
                entity.path,
                entity.elements,
                tuple(self._rules.get(entity.key, ())) or None,
                tuple(self._access.get(entity.key, ())),
                entity.place,
            )
            for entity in self._entities
        ]
        self._blueprint.access_rules = self._access.get("", [])
        return checked(self._blueprint)

    def read(self, root: PlacedValue, given: Mapping[str, object], depth: int) -> None:
        if depth > DEPTH_MAX:
            raise root.wrong(f"templates are nested more than {DEPTH_MAX} deep")
        variables = root.get("variables")
        scope = TemplateScope(
            _parameters(root, given),
            {} if variables is None else {k: n.value for k, n in variables.members().items()},
        )
        self._resources(root.get("resources"), scope, None, depth)

    def _resources(
        self, node: PlacedValue | None, scope: TemplateScope, parent: _Resource | None, depth: int
    ) -> None:
        if node is None:
            return
        # With language version 2.0 they have symbolic names.
        below = list(node.members().values()) if isinstance(node.value, dict) else node.items()
        for resource in below:
            outer = scope.copy_index
            is_copied = resource.get("copy") is not None
            for index in range(_copies(resource, scope)):
                scope.copy_index = index if is_copied else outer
                self._resource(resource, scope, parent, depth)
            scope.copy_index = outer

    def _resource(
        self, node: PlacedValue, scope: TemplateScope, parent: _Resource | None, depth: int
    ) -> None:
        if not _is_wanted(node, scope):
            return
        kind = node.need("type").text().lower()
        is_relative = parent is not None and "." not in kind
        full = f"{parent.type}/{kind}" if parent is not None and is_relative else kind
        if full == _DEPLOYMENTS:
            self._deployment(node, scope, depth)
            return
        if not full.startswith(_PROVIDER):
            self._strangers += 1
            return
        above = parent.names if parent is not None and is_relative else ()
        resource = _Resource(full, _names(node.need("name"), scope, above, full), node, scope)
        warn_unknown(node, _MEMBERS, self._blueprint.warnings)
        self._add(resource)
        self._resources(node.get("resources"), scope, resource, depth)

    def _deployment(self, node: PlacedValue, scope: TemplateScope, depth: int) -> None:
        properties = node.need("properties")
        template, parameters = properties.get("template"), properties.get("parameters")
        if template is None:
            raise properties.wrong("a linked template is not followed; embed it as `template`")
        given: dict[str, object] = {}
        for name, parameter in {} if parameters is None else parameters.members().items():
            given[name] = scope.worked_out(parameter.need("value").value)
        self.read(template, given, depth + 1)

    def _add(self, resource: _Resource) -> None:
        warnings = self._blueprint.warnings
        if resource.type == _NAMESPACES:
            self._add_namespace(resource)
        elif resource.type in _KINDS:
            kind = _KINDS[resource.type]
            elements = read_elements(kind, resource.properties(), warnings)
            path = _path(resource.names)
            self._entities.append(DeclaredEntity(kind, path, elements, place=resource.node.place))
        elif resource.type == _RULES:
            rule = read_rule(resource.names[-1], resource.properties(), warnings)
            self._rules.setdefault(_path(resource.names[:-1]).lower(), []).append(rule)
        elif resource.type.endswith(_ACCESS_RULES) and len(resource.names) <= 3:
            owner = _path(resource.names[:-1]).lower()
            self._access.setdefault(owner, []).append(_access_rule(resource))
        else:
            warnings.append(f"{resource.node.place}: {resource.type} is ignored")

    def _add_namespace(self, resource: _Resource) -> None:
        self._namespaces += 1
        if self._namespaces > 1:
            raise resource.node.wrong("this is a second namespace; a bus serves one")
        sku = resource.node.get("sku")
        name = None if sku is None else sku.get("name")
        if name is None:
            return
        worked_out = name.with_value(resource.scope.worked_out(name.value))
        tier = worked_out.text().lower()
        if tier not in _TIERS:
            raise worked_out.wrong(f"{tier!r} is not a tier; tiers are {', '.join(_TIERS)}")
        self._blueprint.tier = tier
        self._warn_of_generation(resource)

    def _warn_of_generation(self, resource: _Resource) -> None:
        properties = resource.properties()
        partitions = None if properties is None else properties.get(_PARTITIONS)
        if partitions is not None and partitions.value != 1:
            self._blueprint.warnings.append(
                f"{partitions.place}: this is ignored; the setting premium-generation decides "
                "whether a premium bus partitions"
            )


def _parameters(root: PlacedValue, given: Mapping[str, object]) -> dict[str, object]:
    declared = root.get("parameters")
    members = {} if declared is None else declared.members()
    names = {name.lower(): name for name in members}
    for name in given:
        if name.lower() not in names:
            known = ", ".join(members) or "none"
            raise root.wrong(f"there is no parameter {name!r}; the parameters are {known}")
    values = {name.lower(): value for name, value in given.items()}
    # A default may refer to other parameters, in the order of the template.
    found: dict[str, object] = {}
    for name, node in members.items():
        if name.lower() in values:
            found[name] = values[name.lower()]
            continue
        default = node.get("defaultValue")
        missing = Unresolved(
            f"the parameter {name} has no value: give it a defaultValue, or give `shardbus "
            f"apply` a --parameter {name}=VALUE"
        )
        found[name] = (
            missing if default is None else TemplateScope(found, {}).worked_out(default.value)
        )
    return found


def _copies(node: PlacedValue, scope: TemplateScope) -> int:
    copy = node.get("copy")
    if copy is None:
        return 1
    count = copy.need("count")
    number = count.with_value(scope.worked_out(count.value)).number()
    if not 0 <= number <= COPIES_MAX:
        raise count.wrong(f"the number of copies must be from 0 to {COPIES_MAX}, not {number}")
    return number


def _is_wanted(node: PlacedValue, scope: TemplateScope) -> bool:
    existing, condition = node.get("existing"), node.get("condition")
    if existing is not None and existing.value is True:
        return False
    if condition is None:
        return True
    return condition.with_value(scope.worked_out(condition.value)).switch()


def _names(
    node: PlacedValue, scope: TemplateScope, above: tuple[str, ...], type: str
) -> tuple[str, ...]:
    try:
        text = scope.name(node.text())
    except ExpressionError as error:
        raise node.wrong(str(error)) from error
    names = (*above, *text.split("/"))
    expected = type.count("/")
    if len(names) != expected or not all(names):
        raise node.wrong(f"{text!r} does not have the {expected} parts of a name of {type}")
    # The first part is the namespace's name, which does not matter here.
    for name in names[1:]:
        reason = scope.reason(name)
        if reason is not None:
            raise node.wrong(reason)
    return names


def _path(names: tuple[str, ...]) -> str:
    """The path in the API; a tilde stands for a slash, which resource names cannot have."""
    parts = [name.replace("~", "/") for name in names[1:]]
    return SUBSCRIPTIONS_SEGMENT.join(parts)


def _access_rule(resource: _Resource) -> DeclaredAccessRule:
    properties = resource.properties()
    if properties is None:
        raise resource.node.wrong("properties with rights are missing")
    rights = properties.need("rights")
    try:
        said = rights_form([right.text() for right in rights.items()])
    except ValueError as error:
        raise rights.wrong(str(error)) from error
    return DeclaredAccessRule(resource.names[-1], said, place=resource.node.place)

"""A namespace as a file describes it: only what the file says, in the elements of the ATOM
dialect.
"""

from dataclasses import dataclass, field
from typing import Final

from shardbus.app.cli.entities.atom import EntityKind
from shardbus.app.cli.entities.rule_atom import AtomRule
from shardbus.app.cli.failures import Usage

SUBSCRIPTIONS_SEGMENT: Final = "/Subscriptions/"
DEFAULT_RULE: Final = "$Default"
FORWARDS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
RIGHTS: Final = ("Manage", "Send", "Listen")
# A file is for one namespace, which cannot have more entities of a kind anyway.
ENTITIES_MAX: Final = 100_000


class SetupError(Usage):
    """An invalid file: the text names the place, the error, and what is allowed."""


@dataclass(frozen=True, slots=True)
class DeclaredAccessRule:
    """A shared access rule; `rights` in the order of RIGHTS; an empty key is not given."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = ""
    secondary_key: str = ""
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class DeclaredEntity:
    """A queue, topic or subscription; `path` is its path in the API.

    `elements` are canonical texts by name; an empty text means that the property is cleared.
    `MaxSizeInMegabytes` is the size of each fragment (R7). `rules` is None when the file says
    nothing about them; an empty tuple means that there are none.
    """

    kind: EntityKind
    path: str
    elements: dict[str, str]
    rules: tuple[AtomRule, ...] | None = None
    access_rules: tuple[DeclaredAccessRule, ...] = ()
    place: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        return self.path.lower()

    @property
    def topic(self) -> str:
        """The path of a subscription's topic; empty for others."""
        topic, separator, _ = self.path.partition(SUBSCRIPTIONS_SEGMENT)
        return topic if separator else ""

    @property
    def name(self) -> str:
        """The name of a subscription within its topic; the path of any other entity."""
        return self.path.rpartition(SUBSCRIPTIONS_SEGMENT)[2]

    def targets(self) -> list[str]:
        """The entities to which it forwards, as keys."""
        return [self.elements[name].lower() for name in FORWARDS if self.elements.get(name)]


@dataclass(frozen=True, slots=True)
class DeclaredPipeline:
    """A pipeline; `members` are those that the file gives, in the spelling of the bus.

    `is_started` is None when the file says nothing about it.
    """

    name: str
    members: dict[str, object]
    is_started: bool | None = None
    place: str = field(default="", compare=False)


@dataclass(slots=True)
class Blueprint:
    """What a namespace should have; `tier` is empty when the file does not say it.

    `warnings` are what the reader ignored, each with its place. `says_access_rules` and
    `says_pipelines` are False for a format that cannot express them, so that a missing one means
    nothing.
    """

    entities: list[DeclaredEntity] = field(default_factory=list)
    access_rules: list[DeclaredAccessRule] = field(default_factory=list)
    tier: str = ""
    warnings: list[str] = field(default_factory=list)
    says_access_rules: bool = True
    pipelines: list[DeclaredPipeline] = field(default_factory=list)
    says_pipelines: bool = False

    def of_kind(self, kind: EntityKind) -> list[DeclaredEntity]:
        return [entity for entity in self.entities if entity.kind is kind]

    def subscriptions_of(self, topic: DeclaredEntity) -> list[DeclaredEntity]:
        return [entity for entity in self.entities if entity.topic.lower() == topic.key]

    def is_empty(self) -> bool:
        return not (self.entities or self.access_rules or self.pipelines)


def combined(blueprints: list[Blueprint]) -> Blueprint:
    """All of them as one; SetupError when two of them describe the same thing."""
    whole = Blueprint(says_access_rules=any(part.says_access_rules for part in blueprints))
    for part in blueprints:
        whole.entities += part.entities
        whole.access_rules += part.access_rules
        whole.pipelines += part.pipelines
        whole.says_pipelines |= part.says_pipelines
        whole.tier = part.tier or whole.tier
        whole.warnings += part.warnings
    return checked(whole)


def checked(blueprint: Blueprint) -> Blueprint:
    """The blueprint itself, if everything in it occurs once and subscriptions have topics."""
    if len(blueprint.entities) > ENTITIES_MAX:
        raise SetupError(f"there are more than {ENTITIES_MAX} entities")
    seen: dict[str, DeclaredEntity] = {}
    for entity in blueprint.entities:
        if entity.key in seen:
            other = seen[entity.key].place
            raise SetupError(f"{entity.place}: {entity.path} is already described at {other}")
        seen[entity.key] = entity
        _check_names(entity.place, "rule", [rule.name for rule in entity.rules or ()])
        _check_names(entity.place, "access rule", [rule.name for rule in entity.access_rules])
    _check_names("the namespace", "access rule", [rule.name for rule in blueprint.access_rules])
    _check_names("the namespace", "pipeline", [each.name for each in blueprint.pipelines])
    return blueprint


def _check_names(place: str, word: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SetupError(f"{place}: there are two of the {word} {name!r}")
        seen.add(name.lower())

"""What to say about an entity that does not exist: what there is, and what was probably meant."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final

from shardbus.app.cli.failures import NotFound, Refused

QUEUE: Final = "queue"
TOPIC: Final = "topic"
ENTITY: Final = "entity"
SUBSCRIPTION: Final = "subscription"
RULE: Final = "rule"

SUBSCRIPTIONS: Final = "/subscriptions"
RULES: Final = "/rules"
_LIKE: Final = 0.6
_GUESSES_MAX: Final = 3

Names = Callable[[str, str], list[str]]
"""The names of a kind: (queue or topic, ""), (subscription, topic), (rule, path of its
subscription).
"""


def no_entity(path: str, names: Names, word: str = ENTITY) -> NotFound:
    """The failure for a path that names nothing; `word` is the kind that was expected.

    `names` is asked only when the failure is shown to a user.
    """
    return NotFound(_plain(path, word), lambda: _explained(path, names, word))


def already_exists(path: str, names: Names, word: str) -> Refused:
    """The failure for a name that is taken, perhaps by an entity of another kind."""
    plain = f"{path} already exists: choose another name, or update it"
    other = {QUEUE: TOPIC, TOPIC: QUEUE}.get(word)

    def explain() -> str:
        if other is None or path.lower() not in map(str.lower, names(other, "")):
            return plain
        return f"{path} already exists, as a {other}: choose another name"

    return Refused(plain, explain)


def similar(name: str, names: Iterable[str]) -> list[str]:
    """The names that were probably meant, the most similar first; case does not count."""
    by_key = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), by_key, n=_GUESSES_MAX, cutoff=_LIKE)
    return [by_key[key] for key in close]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean orders?`, or nothing."""
    found = similar(name, names)
    if not found:
        return ""
    *others, last = found
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"


def _plain(path: str, word: str) -> str:
    topic, name, rule = _parts(path)
    if name is not None and rule:
        return f"subscription {name} of {topic} has no rule {rule}"
    if name is not None:
        return _of(topic, name) if name else f"there is no topic {topic}"
    return f"there is no {_kinds(word)} {topic}"


def _explained(path: str, names: Names, word: str) -> str:
    topic, name, rule = _parts(path)
    queues, topics = names(QUEUE, ""), names(TOPIC, "")
    if name is None:
        return _explained_entity(topic, queues, topics, word)
    if topic.lower() not in map(str.lower, topics):
        if topic.lower() in map(str.lower, queues):
            return (
                f"{topic} is a queue, and only topics have subscriptions: "
                "`shardbus topic list` shows the topics"
            )
        return _explained_entity(topic, [], topics, TOPIC)
    known = names(SUBSCRIPTION, topic)
    if rule is None or name.lower() not in map(str.lower, known):
        return (
            f"{_of(topic, name)}{did_you_mean(name, known)} {_lists(f'subscription list {topic}')}"
        )
    rules = names(RULE, f"{topic}/Subscriptions/{name}")
    listed = _lists(f"rule list {topic} {name}")
    return f"{_plain(path, word)}{did_you_mean(rule, rules)} {listed}"


def _explained_entity(path: str, queues: list[str], topics: list[str], word: str) -> str:
    for kind, other, others in ((QUEUE, TOPIC, topics), (TOPIC, QUEUE, queues)):
        if word == kind and path.lower() in map(str.lower, others):
            return f"{path} is a {other}, not a {kind}: `shardbus {other}` has its commands"
    known = {QUEUE: queues, TOPIC: topics}.get(word, [*queues, *topics])
    guess = did_you_mean(path, known)
    first, separator, rest = path.partition("/")
    if separator and first.lower() in map(str.lower, topics):
        guess = f"; the subscription is {first}/Subscriptions/{rest}"
    lists = [f"{kind} list" for kind in (QUEUE, TOPIC) if word in (kind, ENTITY)]
    return f"there is no {_kinds(word)} {path}{guess} {_lists(*lists)}"


def _lists(*commands: str) -> str:
    named = " and ".join(f"`shardbus {command}`" for command in commands)
    return f"({named} {'shows' if len(commands) == 1 else 'show'} what there is)"


def _of(topic: str, name: str) -> str:
    return f"topic {topic} has no subscription {name}"


def _kinds(word: str) -> str:
    return "queue or topic" if word == ENTITY else word


def _parts(path: str) -> tuple[str, str | None, str | None]:
    """The queue or topic, the subscription and the rule; None where the path has no such part."""
    entity = path.partition("/$")[0]
    at = entity.lower().find(SUBSCRIPTIONS)
    if at < 0:
        return entity, None, None
    rest = entity[at + len(SUBSCRIPTIONS) :].removeprefix("/")
    end = rest.lower().find(RULES)
    if end < 0:
        return entity[:at], rest, None
    return entity[:at], rest[:end], rest[end + len(RULES) :].removeprefix("/")

"""Which messages a command means: those of ENTITY, of a subscription, or dead letters."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

from shardbus.app.cli.access import Options, access_from, text_option
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.completion import complete_entity, completes
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.cli.missing import SUBSCRIPTION

DEAD_LETTERS: Final = "$DeadLetterQueue"

T = TypeVar("T")


def entity_parameters(*, has_subscription: bool = True) -> list[click.Parameter]:
    """ENTITY and, for commands that receive, the option for a subscription."""
    entity = click.Argument(["entity"], shell_complete=complete_entity)
    if not has_subscription:
        return [entity]
    text = "Subscription of the topic ENTITY; or write ENTITY as TOPIC/Subscriptions/NAME."
    subscription = click.Option(
        ["--subscription"], metavar="NAME", help=text, shell_complete=completes(SUBSCRIPTION)
    )
    return [entity, subscription]


def dead_letter_option() -> click.Option:
    return click.Option(
        ["--dead-letter", "is_dead_letter"], is_flag=True, help="Use the dead letters instead."
    )


def message_path(entity: str, options: Options, *, is_dead_letter: bool = False) -> str:
    """The path of messages in the API. Usage when a subscription is given in both ways."""
    path = entity.strip("/")
    if not path:
        raise Usage("ENTITY is empty: give a queue, or a topic with --subscription")
    subscription = text_option(options, "subscription")
    if subscription is not None:
        if "/subscriptions/" in path.lower():
            raise Usage(f"{entity} already names a subscription: leave out --subscription")
        path = f"{path}/Subscriptions/{subscription}"
    if is_dead_letter and not path.lower().endswith(f"/{DEAD_LETTERS}".lower()):
        path = f"{path}/{DEAD_LETTERS}"
    return path


def whole(document: Document, name: str) -> int:
    """A number in an answer."""
    value = document.get(name)
    if not isinstance(value, int):
        raise CommandError(
            f"the answer of the bus has no {name}: the bus may be of another version"
        )
    return value


def documents(document: Document, name: str) -> list[Document]:
    """The objects of a list in an answer."""
    found = document.get(name)
    listed = found if isinstance(found, list) else []
    return [dict(each) for each in listed if isinstance(each, dict)]


def texts(document: Document, name: str) -> list[str]:
    """The texts of a list in an answer."""
    found = document.get(name)
    return list(map(str, found if isinstance(found, list) else []))


def with_api(options: Options, act: Callable[[ApiClient], T]) -> T:
    """Call `act` with the API."""
    return act(access_from(options).api())

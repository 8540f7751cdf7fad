"""Shell completion: the script that a shell loads, and the names that only the bus knows."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import click
from click.shell_completion import get_completion_class

from shardbus.app.cli.access import CONNECTION_STRING, access_from
from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.console import Console, run_command
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.missing import ENTITY, QUEUE, RULE, SUBSCRIPTION, TOPIC

VARIABLE: Final = "_SHARDBUS_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")
# Short, because a person waits at the prompt.
TIMEOUT_S: Final = 1.0
NAMES_MAX: Final = 200


@click.command(
    params=[
        click.Argument(["shell"], type=click.Choice(SHELLS)),
        click.Option(["--json", "is_json"], is_flag=True, help="Print one JSON document."),
    ]
)
@click.pass_context
def completion(context: click.Context, shell: str, is_json: bool) -> None:
    """Print the script that completes commands and names of entities in SHELL.

    For bash, put `eval "$(shardbus completion bash)"` into ~/.bashrc; for zsh, the same with zsh
    into ~/.zshrc; for fish: `shardbus completion fish >
    ~/.config/fish/completions/shardbus.fish`.
    """
    console = Console(is_json)

    def command() -> int:
        script = script_of(context.find_root().command, shell)
        console.show({"shell": shell, "script": script}, script)
        return 0

    sys.exit(run_command(console, command))


def script_of(root: click.Command, shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    completer = kind(root, {}, "shardbus", VARIABLE)
    # Not source(), which runs bash to ask its version: every bash of this decade works.
    return completer.source_template % completer.source_vars()


Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(word: str) -> Complete:
    """Completes the name of a queue, a topic or a pipeline; or a path: the two, and subscriptions.

    The names of subscriptions and rules depend on the arguments before them, which are the topic
    and the subscription. There are no names when the bus does not answer in time.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        said = {name: value for name, value in context.params.items() if value is not None}
        try:
            api = access_from({**_environment(said), **said}).api(TIMEOUT_S)
            names = _names(api, word, said, incomplete)
        except CommandError:
            return []
        start = incomplete.lower()
        return sorted(name for name in names if name.lower().startswith(start))[:NAMES_MAX]

    return complete


complete_entity: Final = completes(ENTITY)


def entity_argument(word: str, name: str = "name") -> click.Argument:
    """An argument that names an existing entity, with completion."""
    return click.Argument([name], shell_complete=completes(word))


def _environment(said: Mapping[str, object]) -> dict[str, str | None]:
    """During completion click has not read the environment variables of options that are not in the
    line; none of them counts beside a connection string.
    """
    bus = () if CONNECTION_STRING in said else ("endpoint", "key_name", "key", CONNECTION_STRING)
    return {name: os.environ.get(f"SHARDBUS_{name.upper()}") for name in (*bus, "ca")}


def _names(api: ApiClient, word: str, params: Mapping[str, object], incomplete: str) -> list[str]:
    until_s = time.monotonic() + TIMEOUT_S
    topic = str(params.get("topic") or params.get("entity") or "")
    if word == RULE:
        owner = f"{topic}/Subscriptions/{params.get('subscription')}"
        return api.names(RULE, owner, until_s)
    if word != ENTITY:
        return api.names(word, topic, until_s)
    above, separator, _ = incomplete.partition("/Subscriptions/")
    if separator:
        found = api.names(SUBSCRIPTION, above, until_s)
        return [f"{above}/Subscriptions/{name}" for name in found]
    return [*api.names(QUEUE, "", until_s), *api.names(TOPIC, "", until_s)]

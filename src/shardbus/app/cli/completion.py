"""Shell completion: the script that a shell loads, and the names that only the bus knows."""

import os
import sys
from typing import Final

import click
from click.shell_completion import get_completion_class

from shardbus.app.cli.access import access_from
from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.console import Console, Json, run_command
from shardbus.app.cli.failures import CommandError

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

    For bash: `eval "$(shardbus completion bash)"` in ~/.bashrc; zsh alike in ~/.zshrc; for fish:
    `shardbus completion fish > ~/.config/fish/completions/shardbus.fish`.
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


def complete_entity(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """The queues, topics and subscriptions with this prefix; none when the bus cannot be asked."""
    try:
        api = access_from({**_environment(), **context.params}).api(TIMEOUT_S)
        names = _names(api, incomplete)
    except CommandError:
        return []
    start = incomplete.lower()
    return [name for name in names if name.lower().startswith(start)]


def _environment() -> dict[str, str | None]:
    """During completion click has not read the environment variables of options that are not in the
    line.
    """
    names = ("endpoint", "key_name", "key", "connection_string", "ca")
    return {name: os.environ.get(f"SHARDBUS_{name.upper()}") for name in names}


def _names(api: ApiClient, incomplete: str) -> list[str]:
    topic, separator, _ = incomplete.partition("/Subscriptions/")
    if separator:
        found = api.get(f"topics/{topic}/subscriptions", top=NAMES_MAX)
        return [name for name in _listed(found, "subscriptions") if "/" in name]
    return [
        *_listed(api.get("queues", top=NAMES_MAX), "queues"),
        *_listed(api.get("topics", top=NAMES_MAX), "topics"),
    ]


def _listed(page: dict[str, Json], member: str) -> list[str]:
    listed = page.get(member)
    entities = listed if isinstance(listed, list) else []
    return [str(each.get("name")) for each in entities if isinstance(each, dict)]

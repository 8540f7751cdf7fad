"""`shardbus sas ...`: access rules and their keys, tokens and connection strings."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from shardbus.app.cli.access import (
    CONNECTION_STRING,
    ClientAccess,
    Options,
    access_from,
    access_options,
    text_option,
)
from shardbus.app.cli.api_client import ACCESS_RULE, ApiClient, Document
from shardbus.app.cli.completion import complete_entity, completes
from shardbus.app.cli.confirm import confirm, yes_option
from shardbus.app.cli.console import Console, Json, run_command
from shardbus.app.cli.duration import to_seconds
from shardbus.app.cli.failures import NotFound, Refused, Usage
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.sas import Credential, connection_string
from shardbus.app.cli.tables import facts_text, list_text

AMQP_PORT: Final = 5672
TTL_S_MAX: Final = 366 * 86_400
KEY_FILE_BYTES_MAX: Final = 4096

_RIGHTS: Final = {"listen": "Listen", "send": "Send", "manage": "Manage"}

_ENTITY: Final = "Path of a queue or topic.  [default: the namespace]"


def _entity_option() -> click.Option:
    return click.Option(["--entity"], metavar="NAME", help=_ENTITY, shell_complete=complete_entity)


def _rule_parameters(*more: click.Parameter) -> list[click.Parameter]:
    name = click.Argument(["name"], shell_complete=completes(ACCESS_RULE))
    return [name, *more, _entity_option(), *access_options()]


def _change_options() -> list[click.Parameter]:
    rights = "Listen, Send, Manage (includes the other two), separated by commas."
    key = "File with the key; - means standard input."
    return [
        click.Option(["--rights"], metavar="RIGHTS", help=rights),
        click.Option(["--primary-key-file"], metavar="FILE", help=key),
        click.Option(["--secondary-key-file"], metavar="FILE", help=key),
    ]


@click.group(cls=CommandGroup)
def sas() -> None:
    """Access rules with their keys, tokens, and connection strings."""


@sas.group(cls=CommandGroup)
def rule() -> None:
    """Create, show, list, update, delete and rotate access rules."""


@rule.command("list", params=[_entity_option(), *access_options()])
def list_rules(**options: str | int | bool | None) -> None:
    """List the access rules of the namespace or of an entity; keys are not shown."""

    def act(bus: ApiClient, to: Console) -> None:
        rules = _documents(bus.get(_path(options)))
        rows = [(str(one["name"]), _rights_text(one), _note(one)) for one in rules]
        note = "NOTE" if any(row[2] for row in rows) else ""
        heading = ("NAME", "RIGHTS", note)
        shown = list_text([heading, *rows], cut={"NAME": 12, note: 8}, optional=(note,))
        to.show(list(rules), shown)

    _run(options, act)


@rule.command(params=_rule_parameters())
def show(name: str, **options: str | int | bool | None) -> None:
    """Show the access rule NAME with its keys."""
    _run(options, lambda bus, to: _show(to, bus.get(_path(options, name))))


@rule.command(params=_rule_parameters(*_change_options()))
def create(name: str, **options: str | int | bool | None) -> None:
    """Create the access rule NAME; keys that are not given are generated."""

    def act(bus: ApiClient, to: Console) -> None:
        asked = _asked(options)
        if "rights" not in asked:
            raise Usage("give the rights of the rule, as in --rights Listen,Send")
        if _exists(bus, _path(options, name)):
            raise Refused(f"the access rule {name} already exists: `sas rule update` changes it")
        _show(to, bus.put(_path(options, name), asked))

    _run(options, act)


@rule.command(params=_rule_parameters(*_change_options()))
def update(name: str, **options: str | int | bool | None) -> None:
    """Change the access rule NAME; what is not given stays as it is."""

    def act(bus: ApiClient, to: Console) -> None:
        asked = _asked(options)
        if not asked:
            raise Usage("nothing to change: give --rights or a key file")
        bus.get(_path(options, name))
        _show(to, bus.put(_path(options, name), asked))

    _run(options, act)


@rule.command(params=_rule_parameters(yes_option()))
def delete(name: str, **options: str | int | bool | None) -> None:
    """Delete the access rule NAME; links and tokens made with its keys end."""

    def act(bus: ApiClient, to: Console) -> None:
        bus.get(_path(options, name))
        confirm(options, f"Delete the access rule {name}? Links and tokens made with it end.")
        bus.delete(_path(options, name))
        to.show({"name": name, "deleted": True}, f"deleted {name}")

    _run(options, act)


@rule.command(
    params=_rule_parameters(
        click.Argument(["which"], type=click.Choice(["primary", "secondary"])),
    )
)
def rotate(name: str, which: str, **options: str | int | bool | None) -> None:
    """Replace the primary or the secondary key of the rule NAME by a new one.

    The other key stays valid: rotate the key that is no longer used.
    """
    _run(
        options,
        lambda bus, to: _show(to, bus.post(f"{_path(options, name)}/rotate", {"key": which})),
    )


@sas.command(
    params=[
        click.Option(
            ["--entity"],
            metavar="NAME",
            help="Entity that the token is for.  [default: all]",
            shell_complete=complete_entity,
        ),
        click.Option(["--ttl"], metavar="DURATION", default="1h", help="[default: 1h]"),
        *access_options(),
    ]
)
def token(**options: str | int | bool | None) -> None:
    """Make a token from a key, locally, without asking the bus."""

    def act(access: ClientAccess, to: Console) -> None:
        if access.credential.token:
            raise Usage("a token cannot be made from another token: give --key-name and --key")
        expires_at_s = int(time.time()) + _ttl_s(str(options["ttl"]))
        resource = _resource(access.endpoint, text_option(options, "entity"))
        made = access.credential.token_for(resource, expires_at_s=expires_at_s)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires_at_s))
        to.show({"token": made, "resource": resource, "expires_at": moment}, made)

    _run_with_access(options, act)


@sas.command(
    "connection-string",
    params=[
        click.Option(
            ["--rule"],
            metavar="NAME",
            help="Rule whose key it contains.  [default: the rule that signs]",
            shell_complete=completes(ACCESS_RULE),
        ),
        _entity_option(),
        click.Option(
            ["--amqp-port"],
            type=click.IntRange(1, 65_535),
            help="Port in the string.  [default: the port on which the bus serves AMQP]",
        ),
        *access_options(),
    ],
)
def show_connection_string(**options: str | int | bool | None) -> None:
    """Show the connection string for clients."""

    def act(access: ClientAccess, to: Console) -> None:
        entity = text_option(options, "entity")
        credential = _credential(access, text_option(options, "rule"), entity)
        address = urlsplit(access.endpoint)
        is_emulator = address.scheme != "https"
        text = connection_string(
            address.hostname or "",
            _amqp_port(access, options, is_emulator=is_emulator),
            credential,
            is_emulator=is_emulator,
            entity=entity or "",
        )
        to.show({"connection_string": text}, text)

    _run_with_access(options, act)


def _run(options: Options, act: Callable[[ApiClient, Console], None]) -> None:
    _run_with_access(options, lambda access, to: act(access.api(), to))


def _run_with_access(options: Options, act: Callable[[ClientAccess, Console], None]) -> None:
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        act(access_from(options), console)
        return 0

    sys.exit(run_command(console, command))


def _path(options: Options, name: str | None = None) -> str:
    if name is not None and (not name or "/" in name):
        raise Usage(f"{name!r} cannot name an access rule: it must not be empty or hold a slash")
    entity = text_option(options, "entity")
    rules = "access-rules" if entity is None else f"entities/{entity}/access-rules"
    return rules if name is None else f"{rules}/{name}"


def _asked(options: Options) -> Document:
    asked: Document = {}
    rights = text_option(options, "rights")
    if rights is not None:
        asked["rights"] = _rights(rights)
    for member in ("primary_key", "secondary_key"):
        path = text_option(options, f"{member}_file")
        if path is not None:
            asked[member] = _read_key(path)
    return asked


def _rights(text: str) -> list[str]:
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in _RIGHTS:
            raise Usage(f"{word!r} is not a right: write Listen, Send or Manage")
    return [_RIGHTS[word] for word in words]


def _read_key(path: str) -> str:
    """Read a key from a file: every user of the machine can see command lines."""
    if path == "-":
        return sys.stdin.read(KEY_FILE_BYTES_MAX).strip()
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(KEY_FILE_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"the key file {path} cannot be read: {error}") from error


def _exists(bus: ApiClient, path: str) -> bool:
    try:
        bus.get(path)
    except NotFound as failure:
        if "access rule" in str(failure):
            return False
        raise
    return True


def _credential(access: ClientAccess, rule_name: str | None, entity: str | None) -> Credential:
    own = access.credential
    if rule_name is None or (rule_name == own.key_name and entity is None):
        return own
    shown = access.api().get(_path({"entity": entity}, rule_name))
    key = shown.get("primary_key")
    if not isinstance(key, str):
        raise Refused(
            f"the key of {rule_name} is in the settings of the bus and is not shown: sign "
            f"with --key-name {rule_name} and --key"
        )
    return Credential(rule_name, key)


def _amqp_port(access: ClientAccess, options: Options, *, is_emulator: bool) -> int | None:
    """The port for AMQP clients: as given, of the given connection string, or as the bus says."""
    given = options.get("amqp_port")
    if given is not None:
        return int(given)
    known = urlsplit(access.endpoint).port
    if options.get(CONNECTION_STRING) is not None and options.get("endpoint") is None:
        return known
    # Without --rule the key that signs is the one in the string, perhaps that of the entity.
    is_of_entity = options.get("rule") is None
    entity = text_option(options, "entity") if is_of_entity else None
    told = (
        access.api(entity=entity or "").get("ports").get("amqp_port" if is_emulator else "tls_port")
    )
    if isinstance(told, int) and told:
        return told
    return AMQP_PORT if is_emulator else known


def _ttl_s(text: str) -> int:
    try:
        ttl_s = to_seconds(text)
    except ValueError as error:
        raise Usage(f"--ttl: {error}") from error
    if not 1 <= ttl_s <= TTL_S_MAX:
        raise Usage(f"--ttl {text} must be from 1s to {TTL_S_MAX // 86_400}d")
    return ttl_s


def _resource(endpoint: str, entity: str | None) -> str:
    address = urlsplit(endpoint)
    return f"sb://{address.hostname or ''}/{entity or ''}"


def _documents(answer: Document) -> list[Document]:
    rules = answer.get("access_rules")
    found = rules if isinstance(rules, list) else []
    return [shown for shown in found if isinstance(shown, dict)]


def _show(to: Console, shown: Document) -> None:
    rows = [
        ("name", str(shown.get("name"))),
        ("rights", _rights_text(shown)),
        ("primary key", _key_text(shown.get("primary_key"))),
        ("secondary key", _key_text(shown.get("secondary_key"))),
        ("note", _note(shown)),
    ]
    to.show(shown, facts_text([row for row in rows if row[1]]))


def _key_text(key: Json) -> str:
    return key if isinstance(key, str) else ""


def _rights_text(shown: Document) -> str:
    rights = shown.get("rights")
    return ", ".join(map(str, rights)) if isinstance(rights, list) else ""


def _note(shown: Document) -> str:
    return "of the settings (sas-key)" if shown.get("is_of_settings") is True else ""

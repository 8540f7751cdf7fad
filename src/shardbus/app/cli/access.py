"""The options that every client command shares: the address of the bus and the key for signing."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click
from click.core import ParameterSource

from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.client import TIMEOUT_S, HttpTransport, Management
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.broker.access.auth import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME

DEFAULT_PORT: Final = 5300
DEFAULT_ENDPOINT: Final = f"http://127.0.0.1:{DEFAULT_PORT}"

CONNECTION_STRING: Final = "connection_string"
_IN_CONNECTION_STRING: Final = ("endpoint", "key_name", "key")

Options = Mapping[str, str | int | bool | None]


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """One namespace, seen through its management API or its JSON API."""

    endpoint: str
    credential: Credential
    ca_file: str | None = None

    def management(self) -> Management:
        return Management(self._transport(), self.endpoint, self.credential, clock=time.time)

    def api(self, timeout_s: float = TIMEOUT_S, *, entity: str = "") -> ApiClient:
        """Signed for the namespace, or for one entity, whose keys know nothing else."""
        transport = self._transport(timeout_s)
        resource = f"{self.endpoint.rstrip('/')}/{entity}" if entity else self.endpoint
        return ApiClient(transport, resource, self.credential, clock=time.time)

    def _transport(self, timeout_s: float = TIMEOUT_S) -> HttpTransport:
        return HttpTransport(self.endpoint, self.ca_file, timeout_s)


def access_from(options: Options) -> ClientAccess:
    """Options take precedence over the connection string, and that over the development namespace.

    A connection string has the AMQP address, whose port serves HTTP too: in clear for the emulator
    form (5300 when it has no port), else over HTTPS. `--endpoint` takes precedence; a connection
    string on the command line takes precedence over what the environment says.
    """
    endpoint, text = text_option(options, "endpoint"), text_option(options, "connection_string")
    key_name, key = text_option(options, "key_name"), text_option(options, "key")
    ca_file = text_option(options, "ca")
    if text is None:
        credential = Credential(key_name or DEVELOPMENT_KEY_NAME, key or DEVELOPMENT_KEY)
        return ClientAccess(endpoint or DEFAULT_ENDPOINT, credential, ca_file)
    if key_name is not None or key is not None:
        raise Usage(
            "give either --connection-string or --key-name and --key, not both (also as "
            "SHARDBUS_CONNECTION_STRING, SHARDBUS_KEY_NAME and SHARDBUS_KEY)"
        )
    parsed = parse_connection_string(text)
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    if parsed.is_emulator:
        derived = f"http://{host}:{parsed.port or DEFAULT_PORT}"
    else:
        derived = f"https://{host}:{parsed.port}" if parsed.port else f"https://{host}"
    return ClientAccess(endpoint or derived, parsed.credential, ca_file)


def text_option(options: Options, name: str) -> str | None:
    value = options.get(name)
    return None if value is None else str(value)


class AccessOption(click.Option):
    """An option that can be an environment variable, unless the line has a connection string.

    That string is address, name and key in one: mixed with what is left in the environment, it
    would act on another bus than it names.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        # Options on the line are processed before the others.
        source = ctx.get_parameter_source(CONNECTION_STRING)
        if self.name in _IN_CONNECTION_STRING and source is ParameterSource.COMMANDLINE:
            return None
        return super().resolve_envvar_value(ctx)


def access_options() -> list[click.Parameter]:
    """The shared options and `--json`, for a command's `params`."""
    options: list[click.Parameter] = []
    for flag, metavar, text in _ROWS:
        variable = "SHARDBUS_" + flag.removeprefix("--").replace("-", "_").upper()
        options.append(AccessOption([flag], metavar=metavar, envvar=variable, help=text))
    options.append(
        click.Option(["--json", "is_json"], is_flag=True, help="Print one JSON document.")
    )
    return options


_ROWS: Final = (
    ("--endpoint", "URL", f"Address of the management API.  [default: {DEFAULT_ENDPOINT}]"),
    ("--key-name", "NAME", f"Access rule whose key signs.  [default: {DEVELOPMENT_KEY_NAME}]"),
    ("--key", "KEY", "Key of that rule.  [default: the development key]"),
    (
        "--connection-string",
        "TEXT",
        "Connection string: address, rule and key in one.",
    ),
    ("--ca", "FILE", "File of certificates that HTTPS trusts.  [default: the system's]"),
)

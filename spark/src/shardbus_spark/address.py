"""The address of the bus, and its credential."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

from shardbus_spark.credentials import Credential, Given, credential_from
from shardbus_spark.errors import OptionError

DEFAULT_URL: Final = "grpc://localhost:5301"
DEFAULT_PORT: Final = 5301
TOKEN_LIFETIME_S: Final = 3600
URL: Final = "SHARDBUS_FLIGHT_URL"
NOTHING: Final = Given()
CA_FILE: Final = "SHARDBUS_TLS_CA"
_SCHEMES: Final = {
    "grpc": "grpc+tcp",
    "grpc+tcp": "grpc+tcp",
    "grpc+tls": "grpc+tls",
}
# A user who confuses two options may have given a secret with these.
_DOUBTFUL: Final = (";", "@", "=")


@dataclass(frozen=True, slots=True)
class Address:
    """A bulk lane, and its credential, of which a pickle has at most the token.

    `ca_file` has the certificates to trust, for TLS; empty means those of the system.
    """

    url: str = DEFAULT_URL
    credential: Credential = field(default_factory=Credential)
    ca_file: str = ""

    def location(self) -> str:
        """The URL in Flight's form; OptionError when it is invalid."""
        parts = self._parts()
        scheme = _SCHEMES.get(parts.scheme) if parts is not None else None
        if parts is None or scheme is None or not parts.hostname:
            is_doubtful = any(sign in self.url for sign in _DOUBTFUL)
            shown = (
                ("not a URL (it may contain a key and is not shown)")
                if is_doubtful
                else repr(self.url)
            )
            raise OptionError(
                f"endpoint is {shown}; it must look like grpc://host:5301, or "
                "grpc+tls://host:5301 where the bulk lane has TLS"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{scheme}://{host}:{parts.port or DEFAULT_PORT}"

    def authorization(self) -> str:
        """The authorization header of a call; a token made now is valid for an hour."""
        return self.credential.token_for(self._resource(""), TOKEN_LIFETIME_S)

    def for_tasks(self, entity: str, lifetime_s: int) -> Address:
        """The lane with a token for one entity, and nothing that could sign another."""
        token = self.credential.token_for(self._resource(entity), lifetime_s)
        return Address(self.url, Credential("", "", token), self.ca_file)

    def _parts(self) -> SplitResult | None:
        """None when the URL cannot be parsed."""
        try:
            parts = urlsplit(self.url)
            return parts if parts.port is None or parts.port else None
        except ValueError:
            return None

    def _resource(self, entity: str) -> str:
        parts = self._parts()
        host = None if parts is None else parts.hostname
        return f"sb://{host or 'localhost'}/{entity}"


def address_from(
    url: str = "",
    given: Given = NOTHING,
    *,
    ca_file: str = "",
    environment: Mapping[str, str] = os.environ,
) -> Address:
    """The address and credential from the arguments; what is missing comes from the environment, or
    else is that of the development bus on this machine.

    A connection string has the AMQP address, so only its host and its key are used.
    """
    credential = credential_from(given, environment)
    # A connection string means the bus that it names.
    if not url and not (credential.host and given.ways()):
        url = environment.get(URL, "")
    if not url and credential.host:
        shown = f"[{credential.host}]" if ":" in credential.host else credential.host
        url = f"{'grpc' if credential.is_plain else 'grpc+tls'}://{shown}:{DEFAULT_PORT}"
    return Address(url or DEFAULT_URL, credential, ca_file or environment.get(CA_FILE, ""))

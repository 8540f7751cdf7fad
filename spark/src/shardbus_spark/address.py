"""Where the bus is and how to sign for it: URLs, connection strings, tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

from shardbus_spark.errors import OptionError

DEFAULT_URL: Final = "grpc://localhost:5301"
DEFAULT_PORT: Final = 5301
DEVELOPMENT_KEY_NAME: Final = "RootManageSharedAccessKey"
DEVELOPMENT_KEY: Final = "SAS_KEY_VALUE"
TOKEN_LIFETIME_S: Final = 3600
_SCHEMES: Final = {
    "grpc": "grpc+tcp",
    "grpc+tcp": "grpc+tcp",
    "grpc+tls": "grpc+tls",
}


@dataclass(frozen=True, slots=True)
class Address:
    """A bulk lane, and a key that signs or a token that is passed on as it is.

    `ca_file` holds the certificates to trust, for TLS; empty means those of the system.
    """

    url: str = DEFAULT_URL
    key_name: str = DEVELOPMENT_KEY_NAME
    key: str = field(default=DEVELOPMENT_KEY, repr=False)
    token: str = field(default="", repr=False)
    ca_file: str = ""

    def location(self) -> str:
        """The URL as Flight wants it; OptionError when it is none."""
        parts = urlsplit(self.url)
        scheme = _SCHEMES.get(parts.scheme)
        try:
            port = parts.port or DEFAULT_PORT
        except ValueError:
            scheme = None
            port = 0
        if scheme is None or not parts.hostname:
            raise OptionError(
                f"endpoint is {self.url!r}; it must look like grpc://host:5301, or "
                "grpc+tls://host:5301 where the bulk lane has TLS"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{scheme}://{host}:{port}"

    def authorization(self) -> str:
        """What a call shows; a token made now is good for an hour."""
        if self.token:
            return self.token
        host = urlsplit(self.url).hostname or "localhost"
        return sign(f"sb://{host}/", self.key_name, self.key, int(time.time()) + TOKEN_LIFETIME_S)


def sign(resource: str, key_name: str, key: str, expires_at_s: int) -> str:
    """A shared access signature for everything below a resource."""
    encoded = quote(resource, safe="")
    signed = hmac.new(key.encode(), f"{encoded}\n{expires_at_s}".encode(), hashlib.sha256)
    signature = quote(base64.b64encode(signed.digest()), safe="")
    return (
        f"SharedAccessSignature sr={encoded}&sig={signature}"
        f"&se={expires_at_s}&skn={quote(key_name, safe='')}"
    )


def address_from(
    url: str = "",
    *,
    connection_string: str = "",
    key_name: str = "",
    key: str = "",
    token: str = "",
    ca_file: str = "",
) -> Address:
    """What these say together; without any of them the development bus on this machine.

    A connection string names the AMQP address, so only its host and its key are taken from it.
    """
    if not connection_string:
        return Address(
            url or DEFAULT_URL,
            key_name or DEVELOPMENT_KEY_NAME,
            key or DEVELOPMENT_KEY,
            token,
            ca_file,
        )
    if key_name or key or token:
        raise OptionError("give either connectionString, or keyName and key, or a token")
    fields = _fields(connection_string)
    host = urlsplit(fields.get("endpoint", "")).hostname
    if not host:
        raise OptionError("connectionString has no Endpoint=sb://host")
    is_plain = fields.get("usedevelopmentemulator", "").lower() == "true"
    shown = f"[{host}]" if ":" in host else host
    derived = f"{'grpc' if is_plain else 'grpc+tls'}://{shown}:{DEFAULT_PORT}"
    signature = fields.get("sharedaccesssignature", "")
    name, secret = fields.get("sharedaccesskeyname", ""), fields.get("sharedaccesskey", "")
    if not signature and not (name and secret):
        raise OptionError(
            "connectionString has neither SharedAccessKeyName and SharedAccessKey nor "
            "SharedAccessSignature"
        )
    return Address(url or derived, name, secret, signature, ca_file)


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in filter(None, text.strip().split(";")):
        name, separator, value = part.partition("=")
        if not separator:
            raise OptionError(f"connectionString has {name!r} without a value")
        fields[name.strip().lower()] = value.strip()
    return fields

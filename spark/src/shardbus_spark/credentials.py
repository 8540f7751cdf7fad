"""The credential for a bus, and its sources: options, a file, environment variables.

A key stays in the process that got it: a pickled credential has none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from shardbus_spark.errors import OptionError, ShardbusError

DEVELOPMENT_KEY_NAME: Final = "RootManageSharedAccessKey"
DEVELOPMENT_KEY: Final = "SAS_KEY_VALUE"
FILE_BYTES_MAX: Final = 64 * 1024
_TOKEN_PREFIX: Final = "SharedAccessSignature "
# A key has neither of these, a connection string both.
_MARKS: Final = (";", "://")

CREDENTIAL_FILE: Final = "SHARDBUS_CREDENTIAL_FILE"
CONNECTION_STRING: Final = "SHARDBUS_CONNECTION_STRING"
TOKEN: Final = "SHARDBUS_TOKEN"
KEY: Final = "SHARDBUS_KEY"
KEY_NAME: Final = "SHARDBUS_KEY_NAME"
VARIABLES: Final = (CREDENTIAL_FILE, CONNECTION_STRING, TOKEN, KEY)


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that signs, a token that is used as it is, or a file with either.

    The file is read again whenever something is signed, so that the key in it can be changed.
    `host` and `is_plain` are from a connection string.
    """

    key_name: str = DEVELOPMENT_KEY_NAME
    key: str = field(default=DEVELOPMENT_KEY, repr=False)
    token: str = field(default="", repr=False)
    file: str = ""
    host: str = ""
    is_plain: bool = False

    def __reduce__(self) -> tuple[type[Credential], tuple[str, str, str]]:
        return Credential, (self.key_name, "", self.token)

    def token_for(self, resource: str, lifetime_s: int) -> str:
        """A token for everything below a resource, or the given one."""
        found = from_file(self.file, self.key_name) if self.file else self
        if found.token:
            return found.token
        if not found.key:
            raise ShardbusError(
                "this process has neither a key nor a token: only the driver signs, and the "
                "driver of this task has not. Please report this as a bug"
            )
        return sign(resource, found.key_name, found.key, int(time.time()) + lifetime_s)


def sign(resource: str, key_name: str, key: str, expires_at_s: int) -> str:
    """A shared access signature for everything below a resource."""
    encoded = quote(resource, safe="")
    signed = hmac.new(key.encode(), f"{encoded}\n{expires_at_s}".encode(), hashlib.sha256)
    signature = quote(base64.b64encode(signed.digest()), safe="")
    return (
        f"{_TOKEN_PREFIX}sr={encoded}&sig={signature}"
        f"&se={expires_at_s}&skn={quote(key_name, safe='')}"
    )


@dataclass(frozen=True, slots=True)
class Given:
    """The given credentials; at most one of the others may be combined with a key name."""

    file: str = ""
    connection_string: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_name: str = ""

    def ways(self) -> list[str]:
        return [way for way in (self.file, self.connection_string, self.token, self.key) if way]


def credential_from(given: Given, environment: Mapping[str, str]) -> Credential:
    """What was given, else what the environment has, else the key of a development bus."""
    if len(given.ways()) > 1:
        raise OptionError(
            "give one of credentialFile, connectionString, accessKey (with keyName) and token"
        )
    if given.connection_string and given.key_name:
        raise OptionError("connectionString already has a key name: leave out keyName")
    if not given.ways():
        given = _from_environment(given.key_name, environment)
    name = given.key_name or DEVELOPMENT_KEY_NAME
    if given.file:
        found = from_file(given.file, name)
        return Credential(name, "", "", given.file, found.host, found.is_plain)
    if given.connection_string:
        return from_connection_string(given.connection_string, "connectionString")
    return Credential(name, "" if given.token else given.key or DEVELOPMENT_KEY, given.token)


def _from_environment(key_name: str, environment: Mapping[str, str]) -> Given:
    """The first of the variables that is set."""
    name = key_name or environment.get(KEY_NAME, "")
    found = [environment.get(variable, "") for variable in VARIABLES]
    first = next((at for at, value in enumerate(found) if value), len(found))
    file, connection_string, token, key = (
        value if at == first else "" for at, value in enumerate(found)
    )
    return Given(file, connection_string, token, key, name)


def from_file(name: str, key_name: str) -> Credential:
    """A file with a connection string, a token or just a key, which then belongs to `key_name`."""
    try:
        with Path(name).open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode("utf-8").strip()
    except OSError as error:
        raise OptionError(
            f"credentialFile is {name!r}, which the driver cannot read: {error.strerror}"
        ) from error
    except UnicodeDecodeError:
        # The error would show the contents of the file.
        raise OptionError(f"credentialFile {name!r} is not UTF-8 text") from None
    if not text or len(text) > FILE_BYTES_MAX or "\n" in text:
        raise OptionError(
            f"credentialFile {name!r} must have one line: a connection string, a token or a key"
        )
    if text.startswith(_TOKEN_PREFIX):
        return Credential(key_name, "", text)
    if any(mark in text for mark in _MARKS):
        return from_connection_string(text, f"credentialFile {name!r}")
    return Credential(key_name, text)


def from_connection_string(text: str, place: str) -> Credential:
    """Host and key; errors do not repeat the text, since it may contain the key."""
    fields = _fields(text, place)
    try:
        host = urlsplit(fields.get("endpoint", "")).hostname
    except ValueError:
        host = None
    if not host:
        raise OptionError(f"{place} has no Endpoint=sb://host")
    token = fields.get("sharedaccesssignature", "")
    name, key = fields.get("sharedaccesskeyname", ""), fields.get("sharedaccesskey", "")
    if not token and not (name and key):
        raise OptionError(
            f"{place} has neither SharedAccessKeyName and SharedAccessKey nor SharedAccessSignature"
        )
    is_plain = fields.get("usedevelopmentemulator", "").lower() == "true"
    return Credential(name, "" if token else key, token, "", host, is_plain)


def _fields(text: str, place: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for number, part in enumerate(text.strip().rstrip(";").split(";"), 1):
        name, separator, value = part.partition("=")
        if not separator:
            raise OptionError(
                f"{place} has no = in its part {number}; it must look like Endpoint=sb://host;"
                "SharedAccessKeyName=name;SharedAccessKey=key"
            )
        fields[name.strip().lower()] = value.strip()
    return fields

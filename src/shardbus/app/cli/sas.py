"""Credentials and connection strings, from the client's side."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from shardbus.app.cli.failures import Usage
from shardbus.broker.access.auth import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME
from shardbus.broker.access.sas import mint_token


class ConnectionStringError(Usage):
    """A connection string that cannot be used, with what is wrong in it."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that signs tokens, or a ready-made `token` that is used as it is."""

    key_name: str = DEVELOPMENT_KEY_NAME
    key: str = DEVELOPMENT_KEY
    token: str = ""

    def token_for(self, resource: str, *, expires_at_s: int) -> str:
        return self.token or mint_token(resource, self.key_name, self.key, expires_at_s)


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The address of the namespace and the key for signing; `is_emulator` means clear text."""

    host: str
    port: int | None
    credential: Credential
    is_emulator: bool


def parse_connection_string(text: str) -> ConnectionString:
    """The parts of `Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…`, names in any case."""
    fields = _fields(text)
    host, port = _address(fields.get("endpoint", ""))
    return ConnectionString(
        host=host,
        port=port,
        credential=_credential(fields),
        is_emulator=fields.get("usedevelopmentemulator", "").lower() == "true",
    )


def connection_string(
    host: str, port: int | None, credential: Credential, *, is_emulator: bool, entity: str = ""
) -> str:
    """The inverse of `parse_connection_string`, in the form of the SDKs."""
    name = f"[{host}]" if ":" in host else host
    parts = [f"Endpoint=sb://{name}" if port is None else f"Endpoint=sb://{name}:{port}"]
    if credential.token:
        parts.append(f"SharedAccessSignature={credential.token}")
    else:
        parts += [f"SharedAccessKeyName={credential.key_name}", f"SharedAccessKey={credential.key}"]
    if entity:
        parts.append(f"EntityPath={entity}")
    if is_emulator:
        parts.append("UseDevelopmentEmulator=true")
    return ";".join(parts) + ";"


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in filter(None, text.strip().split(";")):
        name, separator, value = part.partition("=")
        if not separator:
            raise ConnectionStringError(f"{name!r} has no value; write Name=value;Name=value")
        fields[name.strip().lower()] = value.strip()
    return fields


def _address(endpoint: str) -> tuple[str, int | None]:
    try:
        address = urlsplit(endpoint)
        host, port = address.hostname, address.port
    except ValueError as error:
        raise ConnectionStringError(f"Endpoint={endpoint} is not an address: {error}") from error
    if address.scheme not in ("sb", "amqp", "amqps", "http", "https") or not host:
        raise ConnectionStringError("Endpoint=sb://host is missing")
    return host, port


def _credential(fields: dict[str, str]) -> Credential:
    token = fields.get("sharedaccesssignature", "")
    if token:
        return Credential(key_name="", key="", token=token)
    key_name, key = fields.get("sharedaccesskeyname", ""), fields.get("sharedaccesskey", "")
    if not key_name or not key:
        raise ConnectionStringError(
            "SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature, are missing"
        )
    return Credential(key_name=key_name, key=key)

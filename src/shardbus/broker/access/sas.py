"""Shared access signatures: the text of a token, and the arithmetic of its signature."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, final
from urllib.parse import quote, unquote

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.address import audience_path

SCHEME: Final = "SharedAccessSignature"
TOKEN_CHARACTERS_MAX: Final = 8192
EXPIRY_DIGITS_MAX: Final = 12

_FIELDS: Final = ("sr", "sig", "se", "skn")
# Python's SDK encodes the key name twice; no client is known to do it more often.
_NAME_DECODINGS_MAX: Final = 3


@final
class SasToken:
    """A well-formed token; nothing about it has been verified."""

    def __init__(self, fields: dict[str, str]) -> None:
        # The signature covers the resource as transmitted: SDKs differ in the case of escapes.
        self._signed_text = f"{fields['sr']}\n{fields['se']}"
        self._signature = _decoded_signature(fields["sig"])
        self.scope = audience_path(unquote(fields["sr"]))
        self.key_names = _key_names(fields["skn"])
        self.expires_at_ms = int(fields["se"]) * 1000
        # A key that made the signature, once that was computed: it stays true whatever happens to
        # the key, and says nothing about whether the key is still valid.
        self._signed_by: str | None = None

    def signing_key(self, keys: Sequence[str]) -> str | None:
        """The key of these that made the signature.

        Takes the same time for a right and a wrong signature, until a right one was found.
        """
        found = self._signed_by
        if found is not None and found in keys:
            return found
        found = None
        for key in keys:
            if hmac.compare_digest(_digest(key, self._signed_text), self._signature):
                found = self._signed_by = key
        return found


def is_signature(text: str) -> bool:
    """Whether a token is meant to be a shared access signature, good or bad."""
    return text.startswith(SCHEME)


def parse_token(text: str) -> SasToken:
    """The token of `SharedAccessSignature sr=…&sig=…&se=…&skn=…`, fields in any order."""
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise _malformed(f"it has more than {TOKEN_CHARACTERS_MAX} characters")
    scheme, _, rest = text.partition(" ")
    if scheme != SCHEME:
        raise _malformed(f"it does not start with '{SCHEME}'")
    fields: dict[str, str] = {}
    for part in rest.strip().split("&"):
        name, _, value = part.partition("=")
        if name in fields:
            raise _malformed(f"it has the field '{name}' twice")
        fields[name] = value
    for name in _FIELDS:
        if not fields.get(name):
            raise _malformed(f"it has no field '{name}'")
    expiry = fields["se"]
    if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= EXPIRY_DIGITS_MAX):
        raise _malformed("its field 'se' is not a time in seconds")
    return SasToken(fields)


def mint_token(resource: str, key_name: str, key: str, expires_at_s: int) -> str:
    """A token for everything below `resource`, good until `expires_at_s` (Unix seconds)."""
    encoded = quote(resource, safe="")
    signature = base64.b64encode(_digest(key, f"{encoded}\n{expires_at_s}"))
    return (
        f"{SCHEME} sr={encoded}&sig={quote(signature, safe='')}"
        f"&se={expires_at_s}&skn={quote(key_name, safe='')}"
    )


def _digest(key: str, text: str) -> bytes:
    # The key is used as the bytes of its text, although it looks like base64.
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()


def _decoded_signature(text: str) -> bytes:
    try:
        return base64.b64decode(unquote(text), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed("its field 'sig' is not base64") from error


def _key_names(text: str) -> list[str]:
    names: list[str] = []
    name = text
    for _ in range(_NAME_DECODINGS_MAX):
        name = unquote(name)
        if name in names:
            break
        names.append(name)
    return names


def _malformed(reason: str) -> Refused:
    return Refused(INVALID_ARGUMENT, f"MalformedToken: The token is malformed: {reason}.")

"""Tokens of an OpenID issuer (JWT): what is verified of them, given the issuer's keys and the time.

This module reads neither a clock nor a network. Texts of refusals never contain the token, and
contain its claims only after the signature was verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from shardbus.broker.access.sas import EXPIRY_DIGITS_MAX, TOKEN_CHARACTERS_MAX
from shardbus.core.document import Fields
from shardbus.core.errors import INVALID_ARGUMENT, UNAUTHORIZED, Refused

ISSUER_KEYS_MAX: Final = 100
"""The largest number of keys in the set of an issuer, used or not."""
SKEW_S: Final = 60
"""By how much the clocks of the issuer and of the bus may differ."""
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192

_OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
# Each algorithm requires one curve (RFC 7518, 3.4).
_OF_CURVES: Final[Mapping[str, str]] = {"secp256r1": "ES256", "secp384r1": "ES384"}
ALGORITHMS: Final = (*_OF_RSA, *_OF_CURVES.values())
"""No algorithm with a shared secret, and not `none`."""

_TIME_MAX: Final = 10**EXPIRY_DIGITS_MAX
_SHOWN_CHARACTERS_MAX: Final = 300
_JWS: Final = jwt.PyJWS(algorithms=ALGORITHMS)


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key of the issuer, and the algorithms that it verifies."""

    key_id: str
    algorithms: tuple[str, ...]
    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    digest: bytes


@final
class KeySet:
    """The keys that an issuer publishes at one moment."""

    def __init__(self, keys: Sequence[IssuerKey]) -> None:
        self._keys = tuple(keys)
        self._digests = frozenset(key.digest for key in keys)

    def __len__(self) -> int:
        return len(self._keys)

    def names(self, key_id: str) -> bool:
        return any(key.key_id == key_id for key in self._keys)

    def has(self, digest: bytes) -> bool:
        """Whether the set still has a key, under any id."""
        return digest in self._digests

    def is_same_as(self, other: KeySet) -> bool:
        return self._digests == other._digests

    def find(self, key_id: str, algorithm: str) -> IssuerKey | None:
        """The key with an id that can verify an algorithm."""
        for key in self._keys:
            if key.key_id == key_id and algorithm in key.algorithms:
                return key
        return None


@dataclass(frozen=True, slots=True)
class Verified:
    """The claims of a valid token, when it expires, and the key that signed it."""

    claims: Mapping[str, object]
    expires_at_ms: int
    key_digest: bytes


def read_keys(content: bytes) -> KeySet:
    """The keys of a JSON Web Key Set that can verify signatures; ValueError when it is none.

    What is for other uses or algorithms, or has no `kid`, is passed over.
    """
    values = Fields(_json_object(content, "key set"), "key set").values("keys")
    if len(values) > ISSUER_KEYS_MAX:
        raise ValueError(f"the key set has {len(values)} keys; {ISSUER_KEYS_MAX} are read at most")
    keys = [key for value in values if (key := _read_key(value)) is not None]
    if not keys:
        raise ValueError("the key set has no key that verifies signatures")
    return KeySet(keys)


def key_id_of(text: str) -> str:
    """The id of the key that a token names. Refused when the text is not a token."""
    return _key_id(_header(text))


def verify_bearer(
    text: str, keys: KeySet, *, issuer: str, audiences: Sequence[str], now_s: float
) -> Verified:
    """What the issuer says with a token: the signature first, then whom it is for, and when.

    Refused with INVALID_ARGUMENT when the text is no token, else with UNAUTHORIZED.
    """
    header = _header(text)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise _refused(
            "InvalidSignature",
            f"The algorithm of the token is not accepted; use one of {', '.join(ALGORITHMS)}.",
        )
    key_id = _key_id(header)
    key = keys.find(key_id, algorithm)
    if key is None and keys.names(key_id):
        raise _refused("InvalidSignature", "The key that the token names is not for its algorithm.")
    if key is None:
        raise _refused("UnknownKey", "The issuer has no key with the id ('kid') of the token.")
    claims = _signed_claims(text, key, algorithm)
    _check_addressing(claims, issuer, audiences)
    return Verified(claims, _expiry_ms(claims, now_s), key.digest)


def _read_key(value: object) -> IssuerKey | None:
    if not isinstance(value, dict) or value.get("use", "sig") != "sig":
        return None
    key_id, kty = value.get("kid"), value.get("kty")
    operations = value.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    if not isinstance(key_id, str) or not key_id or kty not in ("RSA", "EC"):
        return None
    public_part = {
        name: value[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in value
    }
    try:
        made = jwt.PyJWK(public_part).key
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        return None
    algorithms: tuple[str, ...] = ()
    if isinstance(made, rsa.RSAPublicKey) and RSA_BITS_MIN <= made.key_size <= RSA_BITS_MAX:
        algorithms = _OF_RSA
    elif isinstance(made, ec.EllipticCurvePublicKey) and made.curve.name in _OF_CURVES:
        algorithms = (_OF_CURVES[made.curve.name],)
    else:
        return None
    wanted = value.get("alg")
    if wanted is not None:
        algorithms = tuple(each for each in algorithms if each == wanted)
    return IssuerKey(key_id, algorithms, made, _digest(made)) if algorithms else None


def _digest(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> bytes:
    content = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(content).digest()


def _header(text: str) -> Mapping[str, object]:
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise _malformed(f"it has more than {TOKEN_CHARACTERS_MAX} characters")
    try:
        header: Mapping[str, object] = _JWS.get_unverified_header(text)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise _malformed("it is neither a shared access signature nor a signed JWT") from None
    if "crit" in header:
        raise _malformed("its header requires extensions that are not supported ('crit')")
    return header


def _key_id(header: Mapping[str, object]) -> str:
    key_id = header.get("kid")
    if not isinstance(key_id, str) or not key_id:
        raise _refused("UnknownKey", "The token does not name the key that signed it ('kid').")
    return key_id


def _signed_claims(text: str, key: IssuerKey, algorithm: str) -> Mapping[str, object]:
    try:
        decoded = _JWS.decode_complete(text, key.public, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise _refused("InvalidSignature", "The token has an invalid signature.") from None
    try:
        return _json_object(decoded["payload"], "token")
    except ValueError:
        raise _malformed("its claims are not a JSON object") from None


def _check_addressing(claims: Mapping[str, object], issuer: str, audiences: Sequence[str]) -> None:
    found = claims.get("iss")
    if found != issuer:
        raise _refused(
            "InvalidIssuer", f"The token is of the issuer {_shown(found)}, not of {_shown(issuer)}."
        )
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(each, str) and each in audiences for each in named):
        raise _refused(
            "InvalidAudience",
            f"The token is for {_shown(audience)}, which is not an audience of this bus "
            "(--oidc-audience).",
        )


def _expiry_ms(claims: Mapping[str, object], now_s: float) -> int:
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise _refused("ExpiredToken", "The token does not say when it expires ('exp').")
    if expires_s + SKEW_S <= now_s:
        raise _refused("ExpiredToken", "The token has expired.")
    begins_s = _time(claims, "nbf")
    if begins_s is not None and begins_s - SKEW_S > now_s:
        raise _refused("TokenNotYetValid", "The token is not valid yet: compare the clocks.")
    return int((expires_s + SKEW_S) * 1000)


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _TIME_MAX:
        raise _malformed(f"its claim '{name}' is not a time in seconds")
    return float(value)


def _json_object(content: bytes, what: str) -> dict[str, object]:
    try:
        value: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"the {what} is not JSON") from error
    if not isinstance(value, dict):
        raise ValueError(f"the {what} is not a JSON object")
    return value


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_CHARACTERS_MAX]


def _refused(code: str, text: str) -> Refused:
    return Refused(UNAUTHORIZED, f"{code}: {text}")


def _malformed(reason: str) -> Refused:
    return Refused(INVALID_ARGUMENT, f"MalformedToken: The token is malformed: {reason}.")

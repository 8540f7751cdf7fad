"""Tokens of an issuer: which are taken, and which are refused with which words (R34)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from shardbus.broker.access.bearer import (
    ALGORITHMS,
    ISSUER_KEYS_MAX,
    SKEW_S,
    KeySet,
    Verified,
    key_id_of,
    read_keys,
    verify_bearer,
)
from shardbus.broker.access.sas import TOKEN_CHARACTERS_MAX
from shardbus.core.errors import INVALID_ARGUMENT, UNAUTHORIZED, ErrorKind, Refused
from tests.support.issuer import AUDIENCE, TestKey, claims_of, key_set, part, rsa_key

ISSUER: Final = "https://login.example/tenant"
NOW_S: Final = 1_800_000_000
ONE: Final = rsa_key("one")
OTHER: Final = rsa_key("one")
CURVE: Final = TestKey("curve", ec.generate_private_key(ec.SECP256R1()), "ES256")
KEYS: Final = read_keys(key_set(ONE, CURVE))


def verified(text: str, keys: KeySet = KEYS, now_s: float = NOW_S) -> Verified:
    return verify_bearer(text, keys, issuer=ISSUER, audiences=[AUDIENCE, "b"], now_s=now_s)


def refusal(text: str, keys: KeySet = KEYS, now_s: float = NOW_S) -> Refused:
    with pytest.raises(Refused) as caught:
        verified(text, keys, now_s)
    assert text not in caught.value.message or not text
    return caught.value


def claims(**others: object) -> dict[str, object]:
    return claims_of(ISSUER, NOW_S, "r", **others)


def public_pem(key: TestKey) -> bytes:
    return key.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def with_secret(secret: bytes) -> str:
    """Signed with a secret: what the issuer publishes is no secret."""
    signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims())}"
    return f"{signed}.{part(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_that_is_taken_verifies(algorithm: str) -> None:
    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if algorithm.startswith("ES"):
        private = ec.generate_private_key(
            ec.SECP256R1() if algorithm == "ES256" else ec.SECP384R1()
        )
    else:
        private = rsa.generate_private_key(65_537, 2048)
    key = TestKey("k", private, algorithm)

    good = verified(key.sign(claims()), read_keys(key_set(key)))

    assert good.claims["roles"] == ["r"]
    assert good.expires_at_ms == (NOW_S + 3600 + SKEW_S) * 1000
    assert read_keys(key_set(key)).has(good.key_digest)


REFUSED: Final[dict[str, tuple[Callable[[], str], ErrorKind, str]]] = {
    "signed by another key of the same name": (
        lambda: OTHER.sign(claims()), UNAUTHORIZED, "InvalidSignature"
    ),
    "of an unknown key": (
        lambda: rsa_key("two").sign(claims()), UNAUTHORIZED, "UnknownKey"
    ),
    "that names no key": (
        lambda: f"{part({'alg': 'RS256'})}.{part(claims())}.{part(b'x' * 256)}",
        UNAUTHORIZED, "UnknownKey",
    ),
    "unsigned": (
        lambda: f"{part({'alg': 'none', 'kid': 'one'})}.{part(claims())}.",
        UNAUTHORIZED, "InvalidSignature",
    ),
    "signed with the public key as a secret": (
        lambda: with_secret(public_pem(ONE)), UNAUTHORIZED, "InvalidSignature"
    ),
    "of an algorithm for another key": (
        lambda: f"{part({'alg': 'ES256', 'kid': 'one'})}.{part(claims())}.{part(b'x' * 64)}",
        UNAUTHORIZED, "InvalidSignature",
    ),
    "for somebody else": (
        lambda: ONE.sign(claims(aud="https://other")), UNAUTHORIZED, "InvalidAudience"
    ),
    "for nobody": (
        lambda: ONE.sign(claims(aud=None)), UNAUTHORIZED, "InvalidAudience"
    ),
    "for a list without us": (
        lambda: ONE.sign(claims(aud=["x", "y"])), UNAUTHORIZED, "InvalidAudience"
    ),
    "of another issuer": (
        lambda: ONE.sign(claims(iss=ISSUER + "/")), UNAUTHORIZED, "InvalidIssuer"
    ),
    "of no issuer": (
        lambda: ONE.sign(claims(iss=None)), UNAUTHORIZED, "InvalidIssuer"
    ),
    "expired": (
        lambda: ONE.sign(claims(exp=NOW_S - SKEW_S)), UNAUTHORIZED, "ExpiredToken"
    ),
    "without an end": (
        lambda: ONE.sign(claims(exp=None)), UNAUTHORIZED, "ExpiredToken"
    ),
    "not yet valid": (
        lambda: ONE.sign(claims(nbf=NOW_S + SKEW_S + 1)), UNAUTHORIZED, "TokenNotYetValid"
    ),
    "whose end is no time": (
        lambda: ONE.sign(claims(nbf="soon")), INVALID_ARGUMENT, "MalformedToken"
    ),
    "whose end is far beyond any time": (
        lambda: ONE.sign({**claims(), "exp": 10**15}), INVALID_ARGUMENT, "MalformedToken"
    ),
    "that demands extensions": (
        lambda: ONE.sign(claims(), crit=["b64"], b64=True), INVALID_ARGUMENT, "MalformedToken"
    ),
    "huge": (
        lambda: ONE.sign(claims(more="x" * TOKEN_CHARACTERS_MAX)),
        INVALID_ARGUMENT, "MalformedToken",
    ),
    "in two parts": (lambda: "a.b", INVALID_ARGUMENT, "MalformedToken"),
    "garbage": (lambda: "jwt.jwt.jwt", INVALID_ARGUMENT, "MalformedToken"),
    "binary": (lambda: "\x00\udcff.é.ü", INVALID_ARGUMENT, "MalformedToken"),
    "nested without end": (
        lambda: f"{part(b'[' * 6000)}.e30.e30", INVALID_ARGUMENT, "MalformedToken"
    ),
    "empty": (lambda: "", INVALID_ARGUMENT, "MalformedToken"),
}  # fmt: skip


@pytest.mark.parametrize("made", REFUSED)
def test_a_token_is_refused_that_is(made: str) -> None:
    make, kind, code = REFUSED[made]

    refused = refusal(make())

    assert (refused.kind, refused.message.partition(":")[0]) == (kind, code)


def test_a_payload_that_is_no_object_is_refused_although_it_is_signed() -> None:
    for payload in (b"[]", b"nothing", b"[" * 5000):
        text = jwt.PyJWS().encode(payload, ONE.private, "RS256", headers={"kid": "one"})
        assert refusal(text).kind is INVALID_ARGUMENT


def test_clocks_may_be_a_minute_apart() -> None:
    late = ONE.sign(claims(exp=NOW_S - SKEW_S + 1, nbf=NOW_S + SKEW_S))

    good = verified(late)

    assert good.expires_at_ms == (NOW_S + 1) * 1000
    assert refusal(late, now_s=NOW_S + 1).message.startswith("ExpiredToken")


def test_a_token_may_be_for_several_audiences() -> None:
    assert verified(ONE.sign(claims(aud=["x", "b"]))).claims["aud"] == ["x", "b"]


def test_the_key_is_found_by_its_name() -> None:
    text = CURVE.sign(claims())

    assert key_id_of(text) == "curve"
    assert verified(text).claims["iss"] == ISSUER


def test_a_key_for_one_algorithm_verifies_no_other() -> None:
    narrow = {**ONE.published(), "alg": "PS256"}
    keys = read_keys(json.dumps({"keys": [narrow]}).encode())

    assert refusal(ONE.sign(claims()), keys).message.startswith("InvalidSignature")
    good = verified(TestKey("one", ONE.private, "PS256").sign(claims()), keys)
    assert good.claims["iss"] == ISSUER


PASSED_OVER: Final[dict[str, dict[str, object]]] = {
    "a secret": {"kty": "oct", "kid": "s", "k": part(b"s" * 32)},
    "a secret called a key": {"kty": "oct", "kid": "s", "k": part(b"s" * 32), "alg": "RS256"},
    "for encryption": {**ONE.published(), "use": "enc"},
    "for signing alone": {**ONE.published(), "key_ops": ["sign"]},
    "without a name": {**ONE.published(), "kid": None},
    "of a secret's algorithm": {**ONE.published(), "alg": "HS256"},
    "short": {**rsa_key(bits=1024).published()},
    "of another curve": TestKey(
        "c", ec.generate_private_key(ec.SECP521R1()), "ES512"
    ).published(),
    "broken": {"kty": "RSA", "kid": "b", "n": 7, "e": "AQAB"},
    "off its curve": {"kty": "EC", "kid": "b", "crv": "P-256", "x": part(b"x" * 32),
                      "y": part(b"y" * 32)},
    "unknown": {"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": part(b"x" * 32)},
}  # fmt: skip


@pytest.mark.parametrize("made", PASSED_OVER)
def test_of_a_set_is_passed_over_a_key_that_is(made: str) -> None:
    beside = json.dumps({"keys": [PASSED_OVER[made], CURVE.published(), "no key"]}).encode()

    assert len(read_keys(beside)) == 1
    with pytest.raises(ValueError, match="no key that verifies"):
        read_keys(json.dumps({"keys": [PASSED_OVER[made]]}).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b"[" * 100_000, b"\xff",
        json.dumps({"keys": [ONE.published()] * (ISSUER_KEYS_MAX + 1)}).encode(),
    ],
    ids=["empty", "list", "nothing", "number", "no keys", "nested", "binary", "too many"],
)  # fmt: skip
def test_what_is_no_set_of_keys_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="key"):
        read_keys(content)


def test_a_private_key_that_an_issuer_publishes_by_mistake_is_read_as_its_public_half() -> None:
    assert isinstance(ONE.private, rsa.RSAPrivateKey)
    told = {**RSAAlgorithm.to_jwk(ONE.private, as_dict=True), "kid": "one"}
    told.pop("key_ops")

    good = verified(ONE.sign(claims()), read_keys(json.dumps({"keys": [told]}).encode()))

    assert good.claims["iss"] == ISSUER

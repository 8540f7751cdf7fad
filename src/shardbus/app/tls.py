"""TLS for the listeners: the certificate of the settings, or one made for development."""

import ipaddress
import os
import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shardbus.app.settings import SettingError, Settings

LIFETIME: Final = timedelta(days=397)
RENEWED_BEFORE: Final = timedelta(days=30)
# Certificate and key in one file, so that a crash cannot leave a pair that does not match.
_PAIR_NAME: Final = "development-tls.pem"
_PUBLIC_NAME: Final = "development-certificate.pem"


def server_context(settings: Settings, now: datetime) -> ssl.SSLContext:
    """A context for serving; `SettingError` when the certificate of the settings does not do.

    Without one, a development certificate is made in the data directory and kept there; clients
    that verify can trust `development-certificate.pem` beside it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.tls_cert is None:
        context.load_cert_chain(development_certificate(settings.data_dir, settings.host, now))
        return context
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (ssl.SSLError, OSError) as error:
        reason = f"{settings.tls_cert} and its key cannot be used: {error}"
        raise SettingError("tls-cert", "with tls-key", reason) from error
    return context


def development_certificate(directory: Path, host: str, now: datetime) -> Path:
    """The PEM file of a certificate for loopback and `host` with its key, made anew when needed."""
    pair = directory / _PAIR_NAME
    if not _is_good(pair, host, now):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(key, host, now).public_bytes(serialization.Encoding.PEM)
        _write(pair, certificate + _private_bytes(key))
    public = x509.load_pem_x509_certificate(pair.read_bytes())
    _write(directory / _PUBLIC_NAME, public.public_bytes(serialization.Encoding.PEM))
    return pair


def _is_good(pair: Path, host: str, now: datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(pair.read_bytes())
        serialization.load_pem_private_key(pair.read_bytes(), password=None)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return (
        set(_names(host)) <= set(names.value)
        and certificate.not_valid_before_utc <= now
        and now < certificate.not_valid_after_utc - RENEWED_BEFORE
    )


def _certificate(key: ec.EllipticCurvePrivateKey, host: str, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Shardbus development")])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of client and server differ a little.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=False)
        .sign(key, hashes.SHA256())
    )


def _names(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        own = x509.DNSName(host)
    return names if own in names else [*names, own]


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    """Replace the file as a whole; nobody but its owner may read it."""
    made = path.with_suffix(".new")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    made.replace(path)

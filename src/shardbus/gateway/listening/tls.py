"""TLS: a context for a given certificate, and a certificate for development."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shardbus.core.errors import Unavailable

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
# Some clients refuse server certificates that are valid for more than 398 days.
VALID_DAYS: Final = 397
RENEWED_DAYS_BEFORE: Final = 30

HOSTS_MAX: Final = 100
"""Most names in one certificate that is made here."""

_FILE_BYTES_MAX: Final = 64 * 1024
_HOST_CHARACTERS_MAX: Final = 253
# A common name is not longer (RFC 5280); clients read the alternative names alone.
_COMMON_NAME_CHARACTERS_MAX: Final = 64
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)


@final
class CertificateFiles:
    """The files of the development certificate; clients must trust `authority`."""

    def __init__(self, directory: Path) -> None:
        self.authority = directory / "ca.pem"
        self.certificate = directory / "server.pem"
        self.key = directory / "server-key.pem"

    def all(self) -> list[Path]:
        return [self.authority, self.certificate, self.key]


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The context for accepting TLS; Unavailable, with the reason, when the files do not match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise Unavailable(
            f"The certificate {certificate} with the key {key} cannot be used: {error}"
        ) from error
    return context


def development_certificate(
    directory: Path, *, now_ms: int, hosts: Sequence[str] = LOCAL_HOSTS
) -> CertificateFiles:
    """A certificate for these hosts, signed by an authority of its own, in files with mode 0600.

    Existing files are used again while they are complete, for the same hosts, and valid for another
    month. The authority's key is never stored: trusting the authority means trusting this one
    certificate, and nothing can be signed with it later.
    """
    files = CertificateFiles(directory)
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if _is_usable(files, now, hosts):
        return files
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _turn(directory):
            if not _is_usable(files, now, hosts):
                _make(files, now, hosts)
    except OSError as error:
        raise Unavailable(f"The development certificate cannot be written: {error}") from error
    return files


def named_certificate(
    directory: Path, *, now_ms: int, hosts: Sequence[str], is_forced: bool = False
) -> CertificateFiles:
    """A new certificate for any names and addresses, made as `development_certificate` makes one.

    Other users can read all but the key: root serves on port 443, and clients are not root.
    FileExistsError, with the name of the file, where one lies already, unless `is_forced`.
    """
    files = CertificateFiles(directory)
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _turn(directory):
        for path in files.all():
            if path.exists() and not is_forced:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        _make(files, datetime.fromtimestamp(now_ms / 1000, UTC), hosts)
        for path in (files.authority, files.certificate):
            path.chmod(0o644)
    return files


def is_host(text: str) -> bool:
    """Whether a certificate can be for this: an address, a name, or `*.` before a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        name = text.removeprefix("*.")
        is_short = len(text) <= _HOST_CHARACTERS_MAX
        return is_short and all(_LABEL.fullmatch(label) for label in name.split("."))
    return "%" not in text


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """A lock: two processes that wrote the files at the same time would leave files that do not
    match.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def describe_certificate(path: Path) -> tuple[str, list[str]]:
    """The last valid day and the hosts of a development certificate; OSError."""
    certificate = x509.load_pem_x509_certificate(read_file(path))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return certificate.not_valid_after_utc.date().isoformat(), [str(name.value) for name in names]


def _is_usable(files: CertificateFiles, now: datetime, hosts: Sequence[str]) -> bool:
    try:
        authority = x509.load_pem_x509_certificate(read_file(files.authority))
        certificate = x509.load_pem_x509_certificate(read_file(files.certificate))
        key = serialization.load_pem_private_key(read_file(files.key), None)
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound, InvalidSignature):
        return False
    return (
        certificate.public_key() == key.public_key()
        and certificate.not_valid_before_utc <= now
        and now + timedelta(days=RENEWED_DAYS_BEFORE) <= certificate.not_valid_after_utc
        and list(names) == _alternative_names(hosts)
    )


def _make(files: CertificateFiles, now: datetime, hosts: Sequence[str]) -> None:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, now)
    certificate = _certificate(authority, authority_key, key.public_key(), (now, hosts))
    write_private(files.authority, authority.public_bytes(serialization.Encoding.PEM))
    write_private(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    write_private(files.key, key_bytes(key))


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = _name("Shardbus development authority")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        certificate_builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(is_authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    public_key: ec.EllipticCurvePublicKey,
    validity: tuple[datetime, Sequence[str]],
) -> x509.Certificate:
    now, hosts = validity
    issuer_key = authority_key.public_key()
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        certificate_builder(_name(hosts[0]), authority.subject, public_key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(is_authority=False), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(hosts)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int = VALID_DAYS,
) -> x509.CertificateBuilder:
    """A certificate that is to be completed and signed."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # Clocks of containers and machines differ a little.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
    )


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key as a file holds it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    common = text[:_COMMON_NAME_CHARACTERS_MAX]
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def read_file(path: Path) -> bytes:
    """The contents of a file, up to the maximum size of a certificate or key; OSError."""
    with path.open("rb") as file:
        return file.read(_FILE_BYTES_MAX)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically; it is never readable by others, not even for a moment."""
    beside = path.with_suffix(".new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)

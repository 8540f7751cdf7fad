"""The certificate authority of a cluster, and node certificates, for clusters without a PKI."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shardbus.app.cli.failures import Usage
from shardbus.app.server.node.name import NodeName
from shardbus.app.server.node.tls import AUTHORITY, CERTIFICATE, KEY
from shardbus.gateway.listening.tls import (
    certificate_builder,
    key_bytes,
    key_usage,
    read_file,
    write_private,
)

AUTHORITY_KEY: Final = "ca-key.pem"
AUTHORITY_DAYS: Final = 3_650
_PEM: Final = serialization.Encoding.PEM


@final
class Authority:
    """The authority of one cluster, with its key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key
        names = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
        self.cluster = str(names[0].value) if names else ""

    def sign(
        self, names: Sequence[NodeName], hosts: Sequence[x509.GeneralName], now: datetime, days: int
    ) -> tuple[bytes, bytes]:
        """The certificate of a node, and its new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._key.public_key()
        uris = [x509.UniformResourceIdentifier(str(name)) for name in names]
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0].name)])
        made = (
            certificate_builder(subject, self.certificate.subject, key.public_key(), now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.SubjectAlternativeName([*uris, *hosts]), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(_PEM), key_bytes(key)


def make_authority(directory: Path, cluster: str, *, now_ms: int) -> None:
    """Create an authority; FileExistsError, with the name of the file, if there is one already."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, cluster),
            x509.NameAttribute(NameOID.COMMON_NAME, "Shardbus cluster authority"),
        ]
    )
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    made = (
        certificate_builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Never overwrite an authority: all certificates that it signed would become invalid.
    _refuse_existing(directory / AUTHORITY[0], directory / AUTHORITY_KEY)
    write_private(directory / AUTHORITY_KEY, key_bytes(key))
    write_private(directory / AUTHORITY[0], made.public_bytes(_PEM))


def read_authority(directory: Path) -> Authority:
    """The authority in a directory; Usage when it cannot be read."""
    certificate, key = directory / AUTHORITY[0], directory / AUTHORITY_KEY
    try:
        found = x509.load_pem_x509_certificate(read_file(certificate))
        private = serialization.load_pem_private_key(read_file(key), None)
    except (OSError, ValueError, TypeError) as error:
        raise Usage(
            f"{certificate} and {key} cannot be read: create an authority with `shardbus cluster "
            f"ca`, and name its directory with --ca ({error})"
        ) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise Usage(f"{key} is not a key that `shardbus cluster ca` created")
    if found.public_key() != private.public_key():
        raise Usage(f"the key {key} does not belong to {certificate}")
    return Authority(found, private)


def write_node(
    directory: Path, authority: Authority, signed: tuple[bytes, bytes], *, is_forced: bool
) -> None:
    """Write the three files of a node; FileExistsError if one exists, unless `is_forced`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = [directory / names[0] for names in (AUTHORITY, CERTIFICATE, KEY)]
    if not is_forced:
        _refuse_existing(*paths)
    certificate, key = signed
    # The key first: a node that reads the files in between keeps its previous pair.
    for path, content in zip(
        (paths[0], paths[2], paths[1]),
        (authority.certificate.public_bytes(_PEM), key, certificate),
        strict=True,
    ):
        write_private(path, content)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))

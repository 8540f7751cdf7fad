"""`shardbus cert`: the authority of the development certificate, and how clients trust it."""

import os
import sys
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.console import Console, Json, run_command
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.server.settings import Settings, load

_HOW: Final = (
    (
        "Python, AMQP",
        "pass connection_verify={path!r} to ServiceBusClient, or append the file to the one "
        "that `python -m certifi` prints; environment variables have no effect",
    ),
    (
        "Python, HTTP",
        "pass connection_verify={path!r} to ServiceBusAdministrationClient, or set "
        "REQUESTS_CA_BUNDLE={path} for the synchronous one and SSL_CERT_FILE={path} for that of "
        "aio",
    ),
    ("JavaScript, AMQP and HTTP", "NODE_EXTRA_CA_CERTS={path} node ..."),
    ("Go", "SSL_CERT_FILE={path}"),
    (
        "Java",
        "keytool -importcert -noprompt -alias shardbus -file {path} -keystore trust.jks "
        "-storepass changeit, then -Djavax.net.ssl.trustStore=trust.jks",
    ),
    (
        ".NET on Linux",
        "SSL_CERT_FILE={path}, or copy it to /usr/local/share/ca-certificates/shardbus.crt and "
        "run update-ca-certificates",
    ),
    (
        ".NET on Windows",
        "Import-Certificate -FilePath {path} -CertStoreLocation Cert:\\CurrentUser\\Root",
    ),
    ("curl", "--cacert {path}"),
    ("shardbus", "--ca {path}"),
)


@click.command()
@click.option("--out", metavar="FILE", help="Write the authority's certificate to this file.")
@click.option("--data-dir", metavar="PATH", help="Data directory of the bus.")
@click.option(
    "--config", metavar="FILE", help="Settings file of the bus.  [default: ./shardbus.toml]"
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
def cert(out: str | None, data_dir: str | None, config: str | None, is_json: bool) -> None:
    """Show or write the certificate that clients of a development bus must trust.

    It is created if there is none yet, even before the bus is started for the first time.
    """
    console = Console(is_json)

    def command() -> int:
        flags = {} if data_dir is None else {"data_dir": data_dir}
        _tell(console, load(flags, os.environ, config=[config] if config else []), out)
        return 0

    sys.exit(run_command(console, command))


def _tell(to: Console, settings: Settings, out: str | None) -> None:
    if settings.tls_cert is not None:
        raise Usage(
            f"the bus uses your own certificate, {settings.tls_cert}: clients must trust the "
            "authority that signed it"
        )
    authority, until, hosts = _authority(settings)
    path = authority.absolute() if out is None else _write(Path(out), authority.read_bytes())
    how = how_to_trust(path)
    document: dict[str, Json] = {
        "path": str(path),
        "certificate": authority.read_text(encoding="ascii"),
        "hosts": hosts,
        "valid_until": until,
        "how": how,
    }
    lines = [
        f"{path}",
        f"valid for {', '.join(hosts)} until {until}; let clients trust it:",
        *(f"  {name}: {text}" for name, text in how.items()),
    ]
    to.show(document, "\n".join(lines))


def how_to_trust(path: Path) -> dict[str, str]:
    """By SDK and protocol, how to make it trust the authority in a file."""
    return {name: text.format(path=str(path)) for name, text in _HOW}


def _authority(settings: Settings) -> tuple[Path, str, list[str]]:
    # Late, so that other commands do not pay for loading the cryptography.
    from shardbus.app.server.certificates import development_files
    from shardbus.broker.clock import SystemClock
    from shardbus.core.errors import Unavailable
    from shardbus.gateway.listening.tls import describe_certificate

    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = development_files(settings, SystemClock())
        until, hosts = describe_certificate(files.certificate)
    except (OSError, Unavailable) as error:
        raise CommandError(str(error)) from error
    return files.authority, until, hosts


def _write(path: Path, content: bytes) -> Path:
    """Write a file that everybody may read: it has no secret."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Usage(f"{path} cannot be written: {error.strerror}") from error
    return path.absolute()

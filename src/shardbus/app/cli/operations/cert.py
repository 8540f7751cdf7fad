"""`shardbus cert`: certificates for development, for any names, and how clients trust them."""

import ipaddress
import os
import shlex
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
    ("OpenSSL", "-CAfile {path}, or SSL_CERT_FILE={path}"),
    ("curl", "--cacert {path}"),
    ("shardbus", "--ca {path}"),
)


NEW_DIRECTORY: Final = "shardbus-tls"


@click.command()
@click.option(
    "--name",
    "names",
    metavar="HOST",
    multiple=True,
    help="Make a new certificate for this name or address; may be given several times.",
)
@click.option(
    "--out",
    metavar="PATH",
    help="Write the authority's certificate to this file; with --name, the directory of all "
    f"files.  [default with --name: ./{NEW_DIRECTORY}]",
)
@click.option("--force", "is_forced", is_flag=True, help="With --name: replace files.")
@click.option("--data-dir", metavar="PATH", help="Data directory of the bus.")
@click.option(
    "--config", metavar="FILE", help="Settings file of the bus.  [default: ./shardbus.toml]"
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
def cert(
    names: tuple[str, ...],
    out: str | None,
    is_forced: bool,
    data_dir: str | None,
    config: str | None,
    is_json: bool,
) -> None:
    """Show or write the certificate that clients of a development bus must trust.

    It is created if there is none yet, even before the bus is started for the first time. With
    --name, create an authority and a certificate for any names, and say what to do with them.
    """
    console = Console(is_json)

    def command() -> int:
        if names:
            if data_dir is not None or config is not None:
                raise Usage("--name is of no particular bus: leave out --data-dir and --config")
            _make(console, list(dict.fromkeys(names)), Path(out or NEW_DIRECTORY), is_forced)
            return 0
        if is_forced:
            raise Usage("--force is for the files of --name")
        flags = {} if data_dir is None else {"data_dir": data_dir}
        _tell(console, load(flags, os.environ, config=[config] if config else []), out)
        return 0

    sys.exit(run_command(console, command))


def _make(to: Console, names: list[str], directory: Path, is_forced: bool) -> None:
    """Make the files of `--name`, and say what comes next."""
    # Late, so that other commands do not pay for loading the cryptography.
    from shardbus.broker.clock import SystemClock
    from shardbus.gateway.listening.tls import (
        HOSTS_MAX,
        describe_certificate,
        is_host,
        named_certificate,
    )

    for name in names:
        if not is_host(name):
            raise Usage(f"{name!r} is neither the name of a host nor an address")
    if len(names) > HOSTS_MAX:
        raise Usage(f"a certificate is made for at most {HOSTS_MAX} names; these are {len(names)}")
    try:
        files = named_certificate(
            directory.absolute(), now_ms=SystemClock().now_ms(), hosts=names, is_forced=is_forced
        )
        until, hosts = describe_certificate(files.certificate)
    except FileExistsError as error:
        raise Usage(f"{error.filename} exists: --force replaces it, or choose --out") from error
    except OSError as error:
        raise Usage(f"{directory} cannot be written: {error.strerror}") from error
    how, serve = how_to_trust(files.authority), _serve(files.certificate, files.key)
    entry = _hosts_entry(names)
    document: dict[str, Json] = {
        "authority": str(files.authority),
        "certificate": str(files.certificate),
        "key": str(files.key),
        "hosts": hosts,
        "valid_until": until,
        "serve": serve,
        "hosts_entry": entry,
        "how": how,
    }
    lines = [
        f"{files.certificate}",
        f"good for {', '.join(hosts)} until {until}; its key is beside it.",
        "1. Serve with it:",
        f"  {serve}",
        *(["2. Where clients run, let the name mean the bus, in /etc/hosts:"] if entry else []),
        *([f"  {entry}"] if entry else []),
        f"{3 if entry else 2}. Where clients run, trust {files.authority}:",
        *(f"  {name}: {text}" for name, text in how.items()),
    ]
    to.show(document, "\n".join(lines))


def _serve(certificate: Path, key: Path) -> str:
    """The command that serves on the ports that SDKs dial."""
    ports = "--tls-port 5671 --http-port 443"
    files = f"--tls-cert {shlex.quote(str(certificate))} --tls-key {shlex.quote(str(key))}"
    return f"shardbus serve {ports} {files} --sas-key-file KEYFILE"


def _hosts_entry(names: list[str]) -> str:
    """The line for /etc/hosts that maps names to this machine; empty if none is needed."""
    found = [name for name in names if _is_name(name)]
    return f"127.0.0.1 {' '.join(found)}" if found else ""


def _is_name(text: str) -> bool:
    if text.startswith("*."):
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return True
    return False


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
    """How to make each SDK and protocol trust the authority in a file."""
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

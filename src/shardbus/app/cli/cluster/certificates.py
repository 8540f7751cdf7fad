"""`shardbus cluster ca` and `shardbus cluster cert`: certificates of the nodes of a cluster."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.console import Console, Json, run_command
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.server.node.name import ROLES, WORD, NodeName

DAYS_MAX: Final = 3_650
_FORCE: Final = "give --force to replace it"


@click.command()
@click.option("--cluster", required=True, help="Name of the cluster.")
@click.option(
    "--out", type=click.Path(path_type=Path), default="cluster-ca", show_default=True,
    help="Directory for ca.pem and ca-key.pem.",
)  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
def ca(cluster: str, out: Path, is_json: bool) -> None:
    """Create the certificate authority of a new cluster, if you have no PKI.

    Anybody who has ca-key.pem can join the cluster: do not store it on a node.
    """
    console = Console(is_json)

    def command() -> int:
        from shardbus.app.server.node.authority import AUTHORITY_KEY, make_authority
        from shardbus.broker.clock import SystemClock

        _check_word("--cluster", cluster)
        _written(lambda: make_authority(out, cluster, now_ms=SystemClock().now_ms()), "")
        console.show(
            {"cluster": cluster, "directory": str(out), "key": str(out / AUTHORITY_KEY)},
            f"{out}: the authority of the cluster {cluster!r}. Create a certificate for each node "
            f"with `shardbus cluster cert --ca {out}`, and do not store {out / AUTHORITY_KEY} on a "
            "node",
        )
        return 0

    sys.exit(run_command(console, command))


@click.command()
@click.option("--name", required=True, help="Name of the node, such as broker-0.")
@click.option(
    "--role", "roles", type=click.Choice(ROLES), multiple=True, required=True,
    help="Role of the node; may be given several times.",
)  # fmt: skip
@click.option(
    "--ca", "ca_dir", type=click.Path(path_type=Path), default="cluster-ca", show_default=True,
    help="Directory that `shardbus cluster ca` created.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path),
    help="Directory for ca.pem, node.pem and node-key.pem.  [default: the name of the node]",
)  # fmt: skip
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST",
    help="Name or address of the machine to add, for other programs; may be given several times.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1, DAYS_MAX), default=397, show_default=True,
    help="How long the certificate is valid.",
)  # fmt: skip
@click.option(
    "--force", "is_forced", is_flag=True, help="Replace existing files; nodes read the new ones."
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
def cert(**options: str | int | bool | Path | tuple[str, ...] | None) -> None:
    """Create the certificate of a node, signed by the authority of its cluster."""
    console = Console(bool(options["is_json"]))

    def command() -> int:
        console.show(*_certified(options))
        return 0

    sys.exit(run_command(console, command))


def _certified(
    options: Mapping[str, str | int | bool | Path | tuple[str, ...] | None],
) -> tuple[Json, str]:
    # Imported here, so that other commands do not load the cryptography library.
    from datetime import UTC, datetime

    from cryptography import x509

    from shardbus.app.server.node.authority import read_authority, write_node
    from shardbus.gateway.listening.tls import is_host

    name, hosts, days = str(options["name"]), _texts(options["hosts"]), options["days"]
    ca_dir, out = Path(str(options["ca_dir"])), Path(str(options["out"] or name))
    is_forced = bool(options["is_forced"])
    assert isinstance(days, int)
    _check_word("--name", name)
    for host in hosts:
        if not is_host(host):
            raise Usage(f"{host!r} is neither the name of a host nor an address")
    authority = read_authority(ca_dir)
    names = [
        NodeName(authority.cluster, role, name) for role in dict.fromkeys(_texts(options["roles"]))
    ]
    also: list[x509.GeneralName] = []
    for host in hosts:
        try:
            also.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            also.append(x509.DNSName(host))
    signed = authority.sign(names, also, datetime.now(UTC), days)
    _written(lambda: write_node(out, authority, signed, is_forced=is_forced), _FORCE)
    shown = ", ".join(map(str, names))
    return (
        {"directory": str(out), "names": [str(each) for each in names], "days": days},
        f"{out}: {shown}, valid for {days} days. Start the node with --node-tls {out}",
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def _check_word(option: str, text: str) -> None:
    if not WORD.fullmatch(text):
        raise Usage(
            f"{option} {text!r}: use at most 63 letters, digits, dots, dashes and underscores"
        )


def _written(write: Callable[[], None], advice: str) -> None:
    try:
        write()
    except FileExistsError as error:
        more = (
            f"; {advice}"
            if advice
            else ": name another directory, because an authority is never replaced"
        )
        raise Usage(f"{error.filename} exists already{more}") from error
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be written: {error.strerror}") from error

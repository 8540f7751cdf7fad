"""`shardbus broker`: the options of a broker process, and a start that loads no gateway."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.console import Console, run_command
from shardbus.app.cli.failures import Usage
from shardbus.app.server.broker_address import BrokerAddress, checked_socket, parse_broker_address
from shardbus.app.server.store_kinds import DEFAULT_STORE

_NAME: Final = re.compile(r"broker-(0|[1-9]\d?)", re.ASCII)


@click.command()
@click.option(
    "--name", required=True, help="broker-N, where N is its index among the brokers, from 0."
)
@click.option("--data-dir", required=True, metavar="PATH", help="Directory of its store.")
@click.option("--store", default=DEFAULT_STORE, show_default=True, help="Kind of its store.")
@click.option(
    "--backup-dir",
    metavar="PATH",
    help="Directory for its backups.  [default: backups in the data directory]",
)
@click.option("--socket", metavar="PATH", help="Listen on a socket that only this user can open.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Listen on TCP; requires --node-tls or --secret-file."
)
@click.option(
    "--secret-file",
    metavar="PATH",
    help="File with the secret shared with the gateways.  [default: broker-secret in the data "
    "directory]",
)
@click.option(
    "--node-tls",
    metavar="PATH",
    help="Directory with ca.pem, node.pem and node-key.pem: mutual TLS with the gateways.",
)
@click.option("--catalogue", is_flag=True, help="Keep the namespace's catalogue (for broker-0).")
@click.option(
    "--durability", type=click.Choice(["full", "relaxed"]), default="full", show_default=True
)
@click.option(
    "--fragment-mb-max",
    type=click.IntRange(0, 1_000_000),
    default=0,
    help="Maximum size of one fragment in megabytes; 0: no cap.",
)
@click.option(
    "--reserve-mb",
    type=click.IntRange(0, 100_000),
    default=16,
    show_default=True,
    help="Megabytes of disk space reserved for removing messages from a full disk; 0: none.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option("--ends-with-stdin", is_flag=True, hidden=True)
@click.option("--beats", is_flag=True, hidden=True)
def broker(**options: str | int | bool | None) -> None:
    """Run one broker with its store, for gateways in other processes."""
    sys.exit(run_command(Console(is_json=False), lambda: _run(options)))


def _run(options: dict[str, str | int | bool | None]) -> int:
    # Late, so that a client command does not pay for loading a broker.
    from shardbus.app.server.broker_process import BrokerOptions, run_broker

    secret_file, node_tls = options["secret_file"], options["node_tls"]
    return run_broker(
        BrokerOptions(
            name=_name(str(options["name"])),
            data_dir=Path(str(options["data_dir"])),
            store=str(options["store"]),
            backup_dir=Path(str(options["backup_dir"] or f"{options['data_dir']}/backups")),
            address=_address(options),
            secret_file=None if secret_file is None else Path(str(secret_file)),
            node_tls=None if node_tls is None else Path(str(node_tls)),
            keeps_catalogue=bool(options["catalogue"]),
            ends_with_stdin=bool(options["ends_with_stdin"]),
            beats=bool(options["beats"]),
            durability="relaxed" if options["durability"] == "relaxed" else "full",
            fragment_mb_max=int(options["fragment_mb_max"] or 0),
            reserve_mb=int(options["reserve_mb"] or 0),
            log_level=str(options["log_level"]),
        )
    )


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Usage(
            f"{text!r} is not the name of a broker: the first is broker-0, the next broker-1"
        )
    return text


def _address(options: dict[str, str | int | bool | None]) -> BrokerAddress:
    path, listen = options["socket"], options["listen"]
    if (path is None) == (listen is None):
        raise Usage("give either --socket PATH or --listen HOST:PORT")
    if path is not None:
        if options["node_tls"] is not None:
            raise Usage("--node-tls is for --listen: a socket is for this user alone")
        return BrokerAddress(socket=checked_socket(Path(str(path))))
    if options["secret_file"] is None and options["node_tls"] is None:
        raise Usage(
            "--listen requires --node-tls or --secret-file: otherwise anybody who reaches the "
            "port could use the broker"
        )
    return parse_broker_address(f"tcp://{listen}")

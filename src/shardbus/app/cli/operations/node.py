"""`shardbus node`: the options that only a node of a cluster has."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import click

from shardbus.app.cli.failures import Usage
from shardbus.app.server.broker_address import BrokerAddress, parse_broker_address
from shardbus.app.server.settings import Settings
from shardbus.app.server.store_kinds import SHARED_EXAMPLE

SLOTS_DEFAULT: Final = 16
SLOTS_MAX: Final = 256
STORES_MAX: Final = 16

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


def node_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--store"],
            multiple=True,
            metavar="URL",
            help=f"Database of the cluster, as in {SHARED_EXAMPLE}. Repeat it for each database, "
            "and name the same ones for every node.",
        ),
        click.Option(
            ["--roles"],
            default="broker,gateway",
            show_default=True,
            help="Roles of the node, separated by commas: broker, gateway, lane, pipelines.",
        ),
        click.Option(
            ["--name"],
            default="",
            help="Name of the node, unique among running nodes.  [default: that of the machine]",
        ),
        click.Option(
            ["--listen"],
            default="127.0.0.1:0",
            show_default=True,
            metavar="HOST:PORT",
            help="Address at which gateways of other nodes reach the broker; port 0: any free one.",
        ),
        click.Option(
            ["--slots"],
            type=click.IntRange(1, SLOTS_MAX),
            default=SLOTS_DEFAULT,
            show_default=True,
            help="Slots in each database, used when the first node creates the cluster; also the "
            "largest number of brokers that can share a database.",
        ),
    ]


def run_node_command(own: Mapping[str, object], settings: Settings) -> int:
    # Late, so that a client command does not load the whole server.
    from shardbus.app.server.node.run import NodeOptions, parse_roles, run_node

    given = own["store"]
    stores = tuple(str(url) for url in given) if isinstance(given, tuple) else ()
    if not 1 <= len(stores) <= STORES_MAX:
        raise Usage(f"name 1 to {STORES_MAX} databases: --store {SHARED_EXAMPLE}")
    slots = own["slots"]
    options = NodeOptions(
        name=_name(str(own["name"] or socket.gethostname())),
        stores=stores,
        roles=parse_roles(str(own["roles"])),
        listen=_listen(str(own["listen"])),
        slots=slots if isinstance(slots, int) else SLOTS_DEFAULT,
    )
    return run_node(options, replace(settings, store=" ".join(stores)))


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Usage(
            f"{text!r} is no name of a node: use letters, digits, dots, - and _, at most 63"
        )
    return text


def _listen(text: str) -> BrokerAddress:
    address = parse_broker_address(f"tcp://{text}")
    if address.host in ("0.0.0.0", "::", ""):
        raise Usage(
            f"--listen {text}: name the address at which the other nodes reach this one, not all"
        )
    return address

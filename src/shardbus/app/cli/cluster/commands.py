"""`shardbus cluster`: the nodes of a cluster."""

from __future__ import annotations

import click

from shardbus.app.cli.cluster.certificates import ca, cert
from shardbus.app.cli.cluster.status import status
from shardbus.app.cli.groups import CommandGroup


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show the nodes of a cluster, and create their certificates."""


cluster.add_command(ca)
cluster.add_command(cert)
cluster.add_command(status)

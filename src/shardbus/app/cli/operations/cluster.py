"""`shardbus cluster`: the nodes of a cluster."""

from __future__ import annotations

import click

from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.operations.cluster_certificates import ca, cert
from shardbus.app.cli.operations.cluster_status import status


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show the nodes of a cluster, and create their certificates."""


cluster.add_command(ca)
cluster.add_command(cert)
cluster.add_command(status)

"""`shardbus cluster`: the nodes of a cluster."""

from __future__ import annotations

import click

from shardbus.app.cli.operations.cluster_certificates import ca, cert


@click.group()
def cluster() -> None:
    """Certificates of the nodes of a cluster."""


cluster.add_command(ca)
cluster.add_command(cert)

"""Queues of a running server, made the way the command line makes them."""

from __future__ import annotations

import time

from shardbus.app.cli.client import HttpTransport, Management
from shardbus.app.cli.entities.atom import QUEUE, AtomDescription
from shardbus.app.cli.sas import parse_connection_string
from tests.support.server import Server


def create_queue(server: Server, name: str, **elements: str) -> AtomDescription:
    """Make a queue; `elements` are those of the management API, such as `LockDuration="PT5S"`."""
    return management(server).create(QUEUE, name, elements)


def describe_queue(server: Server, name: str) -> AtomDescription:
    return management(server).entity(QUEUE, name)


def delete_queue(server: Server, name: str) -> None:
    management(server).delete(name)


def management(server: Server) -> Management:
    """The entities of a running server."""
    endpoint = f"http://{server.host}:{server.http_port}"
    credential = parse_connection_string(server.connection_string).credential
    return Management(HttpTransport(endpoint), endpoint, credential, clock=time.time)

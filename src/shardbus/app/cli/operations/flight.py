"""`shardbus flight`: the process of the bulk lane, which `shardbus serve` starts by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shardbus.app.cli.console import Console, run_command
from shardbus.app.server.scheduling import give_up_real_time
from shardbus.app.server.store_kinds import DEFAULT_STORE


@click.command(hidden=True)
@click.option("--data-dir", required=True, metavar="PATH", help="Directory of the stores.")
@click.option("--store", default=DEFAULT_STORE, show_default=True, help="Kind of the stores.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65_535), default=5301, show_default=True)
@click.option("--bus", required=True, metavar="HOST:PORT", help="HTTP address of a gateway.")
@click.option("--tls-cert", metavar="PATH", help="PEM certificate chain, for TLS.")
@click.option("--tls-key", metavar="PATH", help="PEM private key of the certificate.")
@click.option("--log-level", default="info", show_default=True)
@click.option("--ends-with-stdin", is_flag=True)
@click.option("--beats", is_flag=True)
def flight(**options: str | int | bool | None) -> None:
    """Serve fragments as Arrow record batches."""
    sys.exit(run_command(Console(is_json=False), lambda: _run(options)))


def _run(options: dict[str, str | int | bool | None]) -> int:
    give_up_real_time()
    # Imported late: Arrow takes half a second to load, and has threads from then on.
    from shardbus.app.server.flight_process import FlightOptions, run_flight

    certificate, key = options["tls_cert"], options["tls_key"]
    has_certificate = certificate is not None and key is not None
    host, _, port = str(options["bus"]).rpartition(":")
    return run_flight(
        FlightOptions(
            data_dir=Path(str(options["data_dir"])),
            store=str(options["store"]),
            host=str(options["host"]),
            port=int(options["port"] or 0),
            bus=(host, int(port)),
            certificate=(Path(str(certificate)), Path(str(key))) if has_certificate else None,
            ends_with_stdin=bool(options["ends_with_stdin"]),
            beats=bool(options["beats"]),
            log_level=str(options["log_level"]),
        )
    )

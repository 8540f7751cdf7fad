"""The `shardbus` command: `serve`, `version`, and clients of the management API."""

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Final

import click

from shardbus.app.cli.apply import apply
from shardbus.app.cli.cluster.commands import cluster
from shardbus.app.cli.completion import completion
from shardbus.app.cli.console import Console, run_command
from shardbus.app.cli.entities.access_rules import sas
from shardbus.app.cli.entities.pipeline import pipeline
from shardbus.app.cli.entities.queue import queue
from shardbus.app.cli.entities.rule import rule
from shardbus.app.cli.entities.subscription import subscription
from shardbus.app.cli.entities.topic import topic
from shardbus.app.cli.export import export
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.importing import import_command
from shardbus.app.cli.messages.deadletter import deadletter
from shardbus.app.cli.messages.peek import peek
from shardbus.app.cli.messages.purge import purge_command
from shardbus.app.cli.messages.receive import receive
from shardbus.app.cli.messages.send import send
from shardbus.app.cli.messages.sessions import sessions
from shardbus.app.cli.migrate import migrate
from shardbus.app.cli.operations.backup import backup, restore
from shardbus.app.cli.operations.broker import broker
from shardbus.app.cli.operations.cert import cert
from shardbus.app.cli.operations.check import check
from shardbus.app.cli.operations.flight import flight
from shardbus.app.cli.operations.fragments import fragments
from shardbus.app.cli.operations.move import move
from shardbus.app.cli.operations.node import node_options, run_node_command
from shardbus.app.cli.operations.orphans import orphans
from shardbus.app.cli.operations.repartition import repartition
from shardbus.app.cli.operations.test_server import test_server
from shardbus.app.cli.report.command import report
from shardbus.app.cli.triage.command import triage
from shardbus.app.cli.version import describe
from shardbus.app.server.scheduling import take_real_time
from shardbus.app.server.setting import Kind, Setting
from shardbus.app.server.settings import TABLE, Settings, load
from shardbus.demo.options import demo_options, serve_arguments

Flag = str | bool | tuple[str, ...] | None


def _show_version(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(_version_line())
        context.exit()


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version and exit.",
        )
    ],
)
def main() -> None:
    """A durable message bus of partitioned queues that speaks the Azure Service Bus dialect."""


# Settings that only one of the two commands that serve clients accepts.
_OF_SERVE: Final = frozenset(
    {
        "store",
        "brokers",
        "broker_processes",
        "broker_silent_ms",
        "broker_restart_ms",
        "durability",
        "fragment_mb_max",
        "reserve_mb",
    }
)
_OF_GATEWAY: Final = frozenset({"brokers_config", "secret_file", "node_tls"})
_OF_NODE: Final = frozenset({"durability", "fragment_mb_max", "node_tls"})


def _serving_options(without: frozenset[str]) -> list[click.Parameter]:
    shown = (
        "File of settings and entities (TOML), an emulator's Config.json or an ARM template; "
        "may be given several times.  [default: ./shardbus.toml]"
    )
    config = click.Option(["--config"], multiple=True, metavar="FILE", help=shown)
    return [config, *(_setting_option(row) for row in TABLE if row.name not in without)]


def _setting_option(row: Setting) -> click.Option:
    names = [row.flag, row.name]
    if row.kind is Kind.SWITCH:
        # A setting that is on by default needs a flag that switches it off.
        flag = f"{row.flag}/--no-{row.flag[2:]}" if row.default else row.flag
        return click.Option([flag, row.name], is_flag=True, default=None, help=row.help)
    shown = f"{row.help}  [default: {row.default}]" if row.default != "" else row.help
    if row.kind is Kind.TEXTS:
        shown = f"{row.help} May be given several times."
        return click.Option(names, multiple=True, metavar="TEXT", help=shown)
    # Read as text whatever the kind: the table checks values from every source in the same way.
    return click.Option(names, metavar="|".join(row.choices) or row.kind.name, help=shown)


_ENDS_WITH_STDIN: Final = click.Option(["--ends-with-stdin"], is_flag=True, hidden=True)


@main.command(params=[*_serving_options(_OF_GATEWAY), _ENDS_WITH_STDIN])
def serve(config: tuple[str, ...], ends_with_stdin: bool, **flags: Flag) -> None:
    """Serve the whole bus until a signal stops it, in one process or with separate broker
    processes.
    """
    if ends_with_stdin:
        from shardbus.app.server.serving import end_with_stdin

        end_with_stdin()
    _exit_after(_run, config, flags)


@main.command(params=[*demo_options(), *_serving_options(_OF_GATEWAY)])
def demo(
    is_plain: bool,
    orders_per_s: int,
    prepare: str,
    config: tuple[str, ...],
    **flags: Flag,
) -> None:
    """Serve, and show what a bus does: sample orders, a pipeline that captures them, a live
    screen.
    """

    def run(settings: Settings) -> int:
        if is_plain:
            return _run(settings)
        from shardbus.demo.demo import DemoPlan, run_demo

        arguments = serve_arguments(_given(flags), config)
        return run_demo(DemoPlan(settings, arguments, orders_per_s, prepare))

    _exit_after(run, config, flags)


@main.command(params=_serving_options(_OF_GATEWAY))
def emulator(config: tuple[str, ...], **flags: Flag) -> None:
    """Serve in place of the official emulator: with its ports, Config.json, variables and key,
    which is public, on all addresses.
    """
    from shardbus.app.server.emulating import emulator_sources, warn
    from shardbus.app.server.serving import log_to_stderr

    def command() -> int:
        given, files = emulator_sources(_given(flags), config, os.environ)
        settings = load(given, os.environ, config=files, is_public_key_allowed=True)
        log_to_stderr(settings.log_level)
        warn(settings)
        return _run(dataclasses.replace(settings, is_emulator=True))

    sys.exit(run_command(Console(is_json=False), command))


@main.command(params=_serving_options(_OF_SERVE))
def gateway(config: tuple[str, ...], **flags: Flag) -> None:
    """Serve clients for brokers that run elsewhere; there may be any number of gateways."""
    _exit_after(_run_gateway, config, flags)


@main.command(
    params=[
        *node_options(),
        *_serving_options((_OF_SERVE | _OF_GATEWAY) - _OF_NODE),
    ]
)
def node(config: tuple[str, ...], **flags: Flag) -> None:
    """Serve as one node of a cluster: as a broker of its slots, a gateway for clients, or both."""
    own = {key: flags.pop(key) for key in ("name", "store", "roles", "listen", "slots")}

    def run(settings: Settings) -> int:
        _schedule(settings)
        return run_node_command(own, settings)

    _exit_after(run, config, flags)


def _exit_after(
    run: Callable[[Settings], int], config: tuple[str, ...], flags: dict[str, Flag]
) -> None:
    def command() -> int:
        return run(load(_given(flags), os.environ, config=config))

    sys.exit(run_command(Console(is_json=False), command))


def _given(flags: dict[str, Flag]) -> dict[str, str]:
    """What was given, as text; of a flag that was given several times, with `;` between."""
    return {
        name: ";".join(value) if isinstance(value, tuple) else str(value)
        for name, value in flags.items()
        if value is not None and value != ()
    }


def _run(settings: Settings) -> int:
    _schedule(settings)
    # Imported late, so that a client command does not load the whole server.
    if settings.broker_processes:
        from shardbus.app.server.processes import run_with_processes

        return run_with_processes(settings)
    from shardbus.app.server.serve import run

    return run(settings)


def _schedule(settings: Settings) -> None:
    if settings.real_time:
        take_real_time()


def _run_gateway(settings: Settings) -> int:
    _schedule(settings)
    from shardbus.app.server.processes import run_gateway

    return run_gateway(settings)


@main.command()
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
def version(is_json: bool) -> None:
    """Show the version, and whether the hot modules are compiled."""
    Console(is_json).show(describe(), _version_line())


def _version_line() -> str:
    about = describe()
    how = "compiled" if about["compiled"] else "interpreted"
    return f"shardbus {about['version']} ({how}, Python {about['python']})"


main.add_command(apply)
main.add_command(backup)
main.add_command(broker)
main.add_command(cert)
main.add_command(check)
main.add_command(cluster)
main.add_command(completion)
main.add_command(deadletter)
main.add_command(export)
main.add_command(flight)
main.add_command(fragments)
main.add_command(move)
main.add_command(import_command)
main.add_command(migrate)
main.add_command(orphans)
main.add_command(repartition)
main.add_command(peek)
main.add_command(pipeline)
main.add_command(purge_command)
main.add_command(queue)
main.add_command(receive)
main.add_command(restore)
main.add_command(rule)
main.add_command(sas)
main.add_command(send)
main.add_command(sessions)
main.add_command(subscription)
main.add_command(test_server)
main.add_command(topic)
main.add_command(report)
main.add_command(triage)

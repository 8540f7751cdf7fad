"""The demo from start to end: a bus, and the load on it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

import click

from shardbus.app.cli.access import DEFAULT_PORT, ClientAccess
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.sas import Credential
from shardbus.app.server.serving import stop_on_signals
from shardbus.app.server.settings import Settings
from shardbus.broker.access.auth import DEVELOPMENT_KEY_NAME
from shardbus.demo.bus_process import BusProcess
from shardbus.demo.performance import Performance
from shardbus.demo.picture import PlacePicture
from shardbus.demo.scene import set_scene
from shardbus.demo.show import chosen_show
from shardbus.demo.terminal import is_screen

THREADS: Final = 10
"""One connection for each actor, and some more."""
LINES_KEPT: Final = 50
SECRET: Final = "--sas-key"
ENDING_SIGNALS: Final = (signal.SIGHUP, signal.SIGQUIT)
"""In addition to the signals of every process of the bus: the terminal must be restored."""


@final
@dataclass(frozen=True, slots=True)
class DemoPlan:
    """`arguments` are those of the bus, whose settings are given too; `prepare` installs Spark."""

    settings: Settings
    arguments: Sequence[str]
    orders_per_s: int
    prepare: str


def run_demo(plan: DemoPlan) -> int:
    """Run until a signal, or the end of the bus; returns the exit code."""
    return asyncio.run(_run(plan))


async def _run(plan: DemoPlan) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS))
    stopping = stop_on_signals()
    for number in ENDING_SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    heard = _Heard(is_quiet=is_screen(sys.stdout))
    bus = BusProcess(plan.arguments, heard.hear)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(bus.run())
        serving.add_done_callback(lambda _: stopping.set())
        waiting = tasks.create_task(stopping.wait())
        ready = tasks.create_task(bus.ready())
        await asyncio.wait({ready, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        line = ready.result() if ready.done() else ""
        ready.cancel()
        told = await _perform(plan, line, stopping, heard, serving) if line else []
        has_ended = serving.done()
        serving.cancel()
    if has_ended:
        heard.tell()
    with suppress(BrokenPipeError):
        click.echo("".join(f"{text}\n" for text in told), nl=False)
    return _exit_code(serving.result()) if has_ended else 0


async def _perform(
    plan: DemoPlan, ready: str, stopping: asyncio.Event, heard: _Heard, serving: asyncio.Task[int]
) -> list[str]:
    click.echo(ready)
    access = _access(plan.settings, ready)
    try:
        scene = await asyncio.to_thread(lambda: set_scene(access.management()))
    except CommandError as error:
        click.echo(f"the demo cannot run, the bus only serves: {error}", err=True)
        await stopping.wait()
        return []
    performance = Performance(
        access,
        scene,
        _place(access.endpoint, plan.arguments, has_key=not plan.settings.has_development_key),
        orders_per_s=plan.orders_per_s,
        prepare=plan.prepare,
    )
    show = chosen_show()
    heard.complain = performance.complain
    try:
        return await performance.run(show, stopping, lambda: not serving.done())
    finally:
        show.close()


@final
class _Heard:
    """The output of the bus: passed on at once, or kept while a screen is shown."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._kept: deque[str] = deque(maxlen=LINES_KEPT)
        self._is_quiet = is_quiet
        self.complain: Callable[[str], None] = _pass_over

    def hear(self, line: str) -> None:
        if not self._is_quiet:
            click.echo(line, err=True)
            return
        self._kept.append(line)
        _, is_error, text = line.partition(" ERROR ")
        if is_error:
            self.complain(text)

    def tell(self) -> None:
        """Print what was kept: the bus has ended by itself, and the user wants to know why."""
        self._is_quiet = False
        while self._kept:
            click.echo(self._kept.popleft(), err=True)


def _pass_over(line: str) -> None:
    """Nobody listens yet."""


def _exit_code(code: int) -> int:
    if code < 0:
        click.echo(f"shardbus: the bus was ended by signal {-code}", err=True)
    return code if code >= 0 else 1


def _access(settings: Settings, ready: str) -> ClientAccess:
    """Access to the bus at the address in its ready line."""
    port = urlsplit(ready.split()[2]).port
    is_near = settings.is_loopback or settings.host in ("0.0.0.0", "::")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    endpoint = f"http://{'localhost' if is_near else host}:{port}"
    return ClientAccess(endpoint, Credential(DEVELOPMENT_KEY_NAME, settings.sas_key))


def _place(endpoint: str, arguments: Sequence[str], *, has_key: bool) -> PlacePicture:
    python = Path(sys.executable)
    script = python.with_name("shardbus")
    command = _shown(script) if script.exists() else f"{_shown(python)} -m shardbus"
    is_usual = urlsplit(endpoint).port == DEFAULT_PORT
    options = ("" if is_usual else f" --endpoint {endpoint}") + (" --key ..." if has_key else "")
    return PlacePicture(endpoint, command, _shown(python), options, serving_text(arguments))


def serving_text(arguments: Sequence[str]) -> str:
    """The arguments as they are typed; the value of a key is left out."""
    said, is_secret = "", False
    for word in arguments:
        said += " ..." if is_secret else f" {shlex.quote(word)}"
        is_secret = word == SECRET
    return said


def _shown(path: Path) -> str:
    """The path in its shortest form relative to the working directory."""
    here = Path.cwd()
    return os.fspath(path.relative_to(here) if path.is_relative_to(here) else path)

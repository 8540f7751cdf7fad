"""`shardbus serve` that is killed in one phase of a repartition, once.

`python -m tests.durability.killed_server FILE serve ...`: FILE says which phase, and whether the
server or one of its brokers is the victim. The file is removed before the kill, so that the next
life of the server is whole.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from shardbus.__main__ import run
from shardbus.broker.namespace.fragments import Fragments
from shardbus.broker.namespace.records import Records
from shardbus.broker.namespace.repartition import Repartitioner
from shardbus.core.namespace.entity import Entity

RECORDED: Final = "recorded"
CREATED: Final = "created"
SEALED: Final = "sealed"
WRITTEN: Final = "written"
SWITCHED: Final = "switched"
PHASES: Final = (RECORDED, CREATED, SEALED, WRITTEN, SWITCHED)
"""The new fragments are recorded; created; the present ones are sealed; the catalogue has the new
map; the gateway uses it, and has not answered.
"""
SERVER: Final = "server"
BROKER: Final = "broker"
VICTIMS: Final = (SERVER, BROKER)

P = ParamSpec("P")
R = TypeVar("R")
Step = Callable[P, Coroutine[object, object, R]]


class Fate:
    """What the file says."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def meet(self, phase: str) -> None:
        """Kill, if this is the phase."""
        try:
            wanted, victim = self._file.read_text("ascii").split()
        except OSError:
            return
        if wanted != phase:
            return
        self._file.unlink()
        pid = os.getpid() if victim == SERVER else _brokers()[0]
        os.kill(pid, signal.SIGKILL)


def _brokers() -> list[int]:
    """The processes of brokers, in no order that anybody chose."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
            is_broker = b"broker" in (process / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == os.getpid() and is_broker:
            found.append(int(process.name))
    return found


def _before(step: Step[P, R], meet: Callable[[], None]) -> Step[P, R]:
    @wraps(step)
    async def stepped(*given: P.args, **named: P.kwargs) -> R:
        meet()
        return await step(*given, **named)

    return stepped


def _after(step: Step[P, R], meet: Callable[[], None]) -> Step[P, R]:
    @wraps(step)
    async def stepped(*given: P.args, **named: P.kwargs) -> R:
        answer = await step(*given, **named)
        meet()
        return answer

    return stepped


def doom(fate: Fate) -> None:
    """Let this process meet its fate in the steps of a repartition."""
    create, seal = Fragments.create_coming, Repartitioner._seal
    carry_out, put = Repartitioner._carry_out, Records.put

    async def put_and_meet(records: Records, entity: Entity) -> None:
        await put(records, entity)
        if entity.former() and not entity.coming:
            fate.meet(WRITTEN)

    changes: dict[str, tuple[type, object]] = {
        "create_coming": (Fragments, _before(create, lambda: fate.meet(RECORDED))),
        "_seal": (
            Repartitioner,
            _before(_after(seal, lambda: fate.meet(SEALED)), lambda: fate.meet(CREATED)),
        ),
        "_carry_out": (Repartitioner, _after(carry_out, lambda: fate.meet(SWITCHED))),
        "put": (Records, put_and_meet),
    }
    for name, (owner, changed) in changes.items():
        setattr(owner, name, changed)


if __name__ == "__main__":
    doom(Fate(Path(sys.argv.pop(1))))
    run()

"""The supervisor with real, very small processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from shardbus.app.server.supervisor import Child, Supervisor
from tests.support.waiting import wait_until

WAIT_S = 30.0
SILENT_MS = 1_000
WAITS_FOR_STDIN = "import sys; print('up', flush=True); sys.stdin.read()"


class Lines:
    """What children said, and a way to wait for it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._news = asyncio.Event()

    def say(self, line: str) -> None:
        self.said.append(line)
        self._news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.said) < count:
                self._news.clear()
                await self._news.wait()


def child(name: str, script: str, *arguments: str) -> Child:
    return Child(name, [sys.executable, "-c", script, *arguments])


def supervised(
    children: list[Child],
    story: Callable[[Lines], Coroutine[object, object, None]],
    restart_ms: int = 1,
) -> list[str]:
    """Run children while a story lasts; all that they said."""

    async def tell() -> list[str]:
        lines = Lines()
        running = asyncio.ensure_future(
            Supervisor(children, restart_ms=restart_ms, say=lines.say).run()
        )
        try:
            await story(lines)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return lines.said

    return asyncio.run(tell())


def test_lines_of_children_are_passed_on_with_their_names() -> None:
    said = supervised(
        [child("broker-0", WAITS_FOR_STDIN), child("broker-1", WAITS_FOR_STDIN)],
        lambda lines: lines.until(2),
    )

    assert sorted(said) == ["broker-0: up", "broker-1: up"]


def test_a_child_that_ends_is_started_again_and_the_log_says_how_it_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = supervised(
        [child("broker-0", "print('up'); raise SystemExit(7)")], lambda lines: lines.until(3)
    )

    assert said[:3] == ["broker-0: up"] * 3
    assert "broker-0 ended with code 7; it is restarted in 1 ms" in caplog.text
    assert "broker-0 ended with code 7; it is restarted in 2 ms" in caplog.text


def test_a_child_that_was_killed_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    script = "import os; print(os.getpid(), flush=True); input()"

    async def story(lines: Lines) -> None:
        await lines.until(1)
        os.kill(int(lines.said[0].split()[1]), signal.SIGKILL)
        await lines.until(2)

    supervised([child("broker-0", script)], story)

    assert "broker-0 was ended by signal 9" in caplog.text


def test_one_child_that_keeps_ending_does_not_disturb_another() -> None:
    async def story(lines: Lines) -> None:
        await lines.until(4)

    said = supervised([child("bad", "print('x')"), child("good", WAITS_FOR_STDIN)], story)

    assert said.count("good: up") == 1


def test_a_command_that_does_not_exist_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    children = [Child("broker-0", ["no-such-command"]), child("good", "print('x')")]

    supervised(children, lambda lines: lines.until(3))

    assert caplog.text.count("broker-0 could not be started") >= 2


BEATS = (
    "import os, sys, threading, time\n"
    "print(os.getpid(), flush=True)\n"
    "def beat():\n"
    "    while True: print('beat', flush=True); time.sleep(0.05)\n"
    "threading.Thread(target=beat, daemon=True).start()\n"
    "sys.stdin.read()\n"
)


def watched(script: str, silent_ms: int) -> Child:
    return Child("broker-0", [sys.executable, "-c", script], silent_ms)


def test_a_child_that_hangs_is_killed_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(lines: Lines) -> None:
        await lines.until(1)
        await asyncio.sleep(3 * SILENT_MS / 1000)
        # It beats, so it is left alone, and its beats are for nobody else.
        assert len(lines.said) == 1
        os.kill(int(lines.said[0].split()[1]), signal.SIGSTOP)
        await lines.until(2)

    said = supervised([watched(BEATS, SILENT_MS)], story)

    assert len(set(said)) == 2
    assert f"broker-0 was silent for {SILENT_MS} ms and was killed" in caplog.text


def test_a_child_that_never_beat_is_still_starting() -> None:
    async def story(lines: Lines) -> None:
        await lines.until(1)
        await asyncio.sleep(3 * SILENT_MS / 1000)

    said = supervised([watched(WAITS_FOR_STDIN, SILENT_MS)], story)

    assert said == ["broker-0: up"]


def test_nobody_is_killed_because_the_whole_machine_stood_still(tmp_path: Path) -> None:
    """Supervisor and child are stopped together, for much longer than a child may be silent."""
    supervisor = (
        "import asyncio, sys\n"
        "from shardbus.app.server.supervisor import Child, Supervisor\n"
        f"child = Child('broker-0', [sys.executable, '-c', {BEATS!r}], {SILENT_MS})\n"
        "say = lambda line: print(line, flush=True)\n"
        "asyncio.run(Supervisor([child], restart_ms=1, say=say).run())\n"
    )
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", supervisor], stdout=out)
    try:
        wait_until(lambda: said.read_text().count("\n") == 1, "the first line")
        pids = [process.pid, int(said.read_text().split()[1])]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4 * SILENT_MS / 1000)
        # The supervisor first: it must not hold the silence against the child.
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(2 * SILENT_MS / 1000)
        assert said.read_text().count("\n") == 1
    finally:
        process.kill()
        process.wait()


def test_children_are_stopped_before_the_supervisor_is_done(tmp_path: Path) -> None:
    goodbye = tmp_path / "goodbye"
    script = (
        "import signal, sys, pathlib\n"
        "def bye(*_): pathlib.Path(sys.argv[1]).touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        "print('up', flush=True)\n"
        "signal.pause()\n"
    )

    supervised([child("broker-0", script, str(goodbye))], lambda lines: lines.until(1))

    assert goodbye.exists()


def test_a_line_longer_than_the_limit_does_not_end_the_passing_on() -> None:
    script = "import sys; print('x' * 200_000); print('after', flush=True); sys.stdin.read()"

    async def story(lines: Lines) -> None:
        async with asyncio.timeout(WAIT_S):
            while "broker-0: after" not in lines.said:
                await lines.until(len(lines.said) + 1)

    assert supervised([child("broker-0", script)], story)[-1] == "broker-0: after"


def test_children_see_the_end_of_their_input_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    """A broker must not outlive whoever would start its successor on the same store."""
    ended = tmp_path / "ended"
    script = f"{WAITS_FOR_STDIN}; import pathlib; pathlib.Path({str(ended)!r}).touch()"
    supervisor = (
        "import asyncio, sys\n"
        "from shardbus.app.server.supervisor import Child, Supervisor\n"
        f"child = Child('broker-0', [sys.executable, '-c', {script!r}])\n"
        "say = lambda line: print(line, flush=True)\n"
        "asyncio.run(Supervisor([child], restart_ms=1, say=say).run())\n"
    )
    with subprocess.Popen([sys.executable, "-c", supervisor], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"broker-0: up\n"

        process.kill()

    wait_until(ended.exists, f"{ended}")

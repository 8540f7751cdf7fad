"""The start of the program, before it can handle anything."""

import os
import signal
import subprocess
import sys
from typing import Final

import pytest

# Interrupts the program at the moment in which it loads its commands.
INTERRUPTED: Final = """
import os, signal, sys
import shardbus.__main__ as entry

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "shardbus.app.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
entry.run()
"""
TIMEOUT_S: Final = 60


@pytest.mark.usefixtures("interruptible")
def test_an_early_interrupt_ends_the_program_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "version"],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_a_terminal_that_lacks_a_sign_is_no_reason_to_fail() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shardbus", "queue", "show", "Stra\u00dfe \u2265"],
        env={
            **os.environ,
            "PYTHONIOENCODING": "ascii",
            "SHARDBUS_ENDPOINT": "http://127.0.0.1:1",
        },
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_a_program_that_is_started_with_interrupts_ignored_goes_on() -> None:
    """As in the background of a script, whose Ctrl-C is not for it."""
    ignoring = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    done = subprocess.run(
        [sys.executable, "-c", ignoring + INTERRUPTED, "version"],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"shardbus ")

"""Rules for every test run: no skip that CI does not know, nothing left running behind a test."""

import gc
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from tests.support.workers import InTurns, in_turns, share_of

# How long an example takes is the machine's business: no test fails for being slow.
settings.register_profile(
    "unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")

# Node id prefix -> why CI may skip it. Keep it short: a skipped test proves nothing.
ALLOWED_SKIPS: Final[dict[str, str]] = {
    "tests/deploy/test_compose.py::test_docker_takes": "docker compose is on some machines only",
    "tests/chaos/test_upgrade.py": "a clone without history lacks the last release; a whole one "
    "that does fails",
}

# These run in one process without a server, so whatever is left at their end is a leak.
_LEAK_CHECKED: Final = ("unit", "model", "stores", "simulation", "tidy", "docs")
_DESCRIPTORS: Final = Path("/proc/self/fd")
ENDING_S: Final = 2.0

_unknown_skips = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_unknown_skips] = []
    config.pluginmanager.register(_SkipWatch(config.stash[_unknown_skips]), "skip-watch")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return InTurns(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several workers take the tests in the order in which they keep each other least waiting."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        shares = in_turns(dict.fromkeys(share_of(item.nodeid) for item in items))
        turns = {share: turn for turn, share in enumerate(shares)}
        items.sort(key=lambda item: turns[share_of(item.nodeid)])


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collection made lives as long as the process: a search for garbage need not walk it,
    which costs more than a second each time.
    """
    del session
    gc.collect()
    gc.freeze()


class _SkipWatch:
    """Collects skips, of tests and of whole modules, that are not on the list."""

    def __init__(self, found: list[str]) -> None:
        self._found = found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        is_xfail = hasattr(report, "wasxfail")
        if report.skipped and not is_xfail and not report.nodeid.startswith(tuple(ALLOWED_SKIPS)):
            self._found.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CI") == "true" and session.config.stash[_unknown_skips]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    unknown = config.stash[_unknown_skips]
    if os.environ.get("CI") == "true" and unknown:
        terminalreporter.section("skips that CI does not allow")
        for nodeid in unknown:
            terminalreporter.write_line(f"FAILED {nodeid} - skipped, and not in ALLOWED_SKIPS")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes that the test starts obey Ctrl-C, as in a terminal. A run in the background of a
    script ignores SIGINT, and so would they: a program leaves it ignored when it is started so.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a thread or a file descriptor open after all its fixtures ended."""
    if not set(_LEAK_CHECKED) & set(request.path.parts):
        yield
        return
    threads, descriptors = set(threading.enumerate()), _descriptors()
    yield
    # A thread on its last lines is not left behind: asyncio's waiters for child processes end so.
    for thread in set(threading.enumerate()) - threads:
        thread.join(ENDING_S)
    left = set(threading.enumerate()) - threads
    assert not left, f"threads left running: {sorted(thread.name for thread in left)}"
    opened = _descriptors() - descriptors
    if opened:
        gc.collect()
        opened = _descriptors() - descriptors
    assert not opened, f"descriptors left open: {sorted(opened)}"


@pytest.fixture(autouse=True)
def what_an_sdk_leaves_is_collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """The asynchronous SDK leaves sockets behind that it could not connect. They must not be found
    in a later test, which would fail for them.
    """
    yield
    if set(_LEAK_CHECKED) & set(request.path.parts):
        return
    if any(request.node.get_closest_marker(name) for name in ("long", "release")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _descriptors() -> set[str]:
    """What is open, as `number -> target`; empty where the system does not tell."""
    found: set[str] = set()
    for entry in _DESCRIPTORS.iterdir() if _DESCRIPTORS.is_dir() else ():
        try:
            found.add(f"{entry.name} -> {entry.readlink()}")
        except FileNotFoundError:
            # The descriptor that listed the directory is gone by now.
            continue
    return found

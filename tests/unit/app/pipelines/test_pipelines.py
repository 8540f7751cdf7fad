"""Pipelines with a driver that is a very small program (P9)."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

import pytest

from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.definition import KINDS, Definition
from shardbus.app.pipelines.driver_inputs import DriverAccess
from shardbus.app.pipelines.driver_keeper import Launch
from shardbus.app.pipelines.pipelines import KeptPipelines, Shown
from shardbus.app.pipelines.report import LINE_CHARACTERS_MAX, Report
from shardbus.app.pipelines.shelf import Shelf
from shardbus.app.pipelines.task import Task
from shardbus.broker.access.sas import parse_token
from shardbus.core.errors import ALREADY_EXISTS, INVALID_ARGUMENT, NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.gateway.http.api.operations.pipelines import LOG_LINES_MAX
from shardbus.gateway.http.document import KindReader
from tests.support.refusals import refusal_of

WAIT_S: Final = 30.0
LONG_MS: Final = 3_600_000
_BEGIN: Final = """
import signal, sys, time
def say(text): print(text, flush=True)
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: sys.exit(say('{"event": "done"}')))
say('{"event": "running"}')
say('{"event": "progress", "at": "2026-01-02T03:04:05Z", "batch": 3, "rows": 20, '
    '"rows_per_s": 7.5, "backlog": 5, "batch_ms": 40}')
"""
GOES_ON: Final = _BEGIN + "sys.stderr.write('a line\\n'); sys.stderr.flush(); sys.stdin.read()"
STUBBORN: Final = """
import signal, sys
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
print('{"event": "running"}', flush=True)
sys.stdin.read()
"""
FINISHES: Final = f"""
import sys
if sys.argv[1:] == ["--finish"]:
    sys.exit(print("finishing"))
{_BEGIN}
sys.stdin.read()
"""
ENDS_WELL: Final = _BEGIN + """say('{"event": "finished"}')"""
REPLAYS: Final = """
print('{"event": "running"}')
print('{"event": "waiting", "error": "orders is full"}')
for batch, rows, total in ((1, 20, 20), (2, 30, 50)):
    print('{"event": "progress", "rows_planned": 50, "batch_ms": 7, '
          f'"batch": {batch}, "rows": {rows}, "rows_total": {total}}}')
print('{"event": "finished"}')
"""
FAILS: Final = """print('{"event": "failed", "error": "there is no Java"}'); raise SystemExit(1)"""
DIES: Final = "import sys; sys.stderr.write('out of memory\\n'); raise SystemExit(9)"

Story = Callable[[KeptPipelines], Coroutine[object, object, None]]


class Entities:
    """One queue; its readers are dropped by name."""

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self.held: list[str] = []
        self.claimed = 0
        self.knows_all = False

    def check(self, definition: Definition) -> None:
        if definition.task.entity != "orders" and not self.knows_all:
            raise Refused(NOT_FOUND, "The messaging entity does not exist.")

    async def hold_claims(self, definition: Definition) -> int:
        self.held.append(definition.name)
        return self.claimed

    async def drop_reader(self, definition: Definition) -> None:
        self.dropped.append(definition.name)


class Bench:
    """Pipelines of one data directory, whose drivers run a script."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.entities = Entities()
        self.forgotten: list[str] = []
        self.missing = ""

    def tell(
        self,
        story: Story,
        script: str,
        *,
        restart_ms: int = 1,
        renew_ms: int = LONG_MS,
        program: str = sys.executable,
    ) -> None:
        """One life of the bus."""

        def launch(definition: Definition) -> Launch:
            return Launch([program, "-c", script], {}, renew_ms)

        async def live() -> None:
            pipelines = KeptPipelines(
                self.entities,
                Shelf(self.directory),
                locate=lambda path: f"/captured/{path}",
                forget=lambda definition: self.forgotten.append(definition.name),
                restart_ms=restart_ms,
            )
            running = asyncio.ensure_future(pipelines.run(launch, lambda: self.missing))
            try:
                async with asyncio.timeout(WAIT_S):
                    await asyncio.sleep(0)
                    await story(pipelines)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

        asyncio.run(live())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_pipeline_is_created_started_shown_stopped_and_deleted(bench: Bench) -> None:
    async def story(pipelines: KeptPipelines) -> None:
        made = await pipelines.create("archive", _wanted())
        assert (made["state"], made["location"]) == ("stopped", "/captured/p")

        await pipelines.start("archive")
        shown = await _until(pipelines, lambda shown: _rows(shown) == 20)
        await _until(pipelines, lambda shown: pipelines.log("archive") == ["a line"])
        assert (shown["state"], shown["starts"], shown["last_error"]) == ("running", 1, "")
        assert shown["progress"] == {
            "at": "2026-01-02T03:04:05Z",
            "batch": 3,
            "rows": 20,
            "rows_planned": 0,
            "rows_total": 20,
            "rows_per_s": 7.5,
            "backlog": 5,
            "batch_ms": 40,
        }
        assert pipelines.progresses() == {"archive": {**shown["progress"], "state": "running"}}
        with refusal_of(NOT_ALLOWED):
            await pipelines.delete("archive")

        stopping = await pipelines.stop("archive")
        assert stopping["state"] == "stopping"
        with refusal_of(NOT_ALLOWED):
            await pipelines.start("archive")
        await _until(pipelines, lambda shown: shown["state"] == "stopped")
        assert pipelines.problems() == []
        await pipelines.delete("archive")
        assert pipelines.all() == []

    bench.tell(story, GOES_ON)
    assert bench.entities.dropped == ["archive"]


def test_what_ran_runs_again_when_the_bus_does_and_what_was_stopped_does_not(bench: Bench) -> None:
    async def begin(pipelines: KeptPipelines) -> None:
        for name in ("archive", "other"):
            await pipelines.create(name, _wanted(path=name))
            await pipelines.start(name)
        await pipelines.stop("other")

    async def look(pipelines: KeptPipelines) -> None:
        await _until(pipelines, lambda shown: shown["state"] == "running")
        assert pipelines.show("other")["state"] == "stopped"

    bench.tell(begin, GOES_ON)
    bench.tell(look, GOES_ON)


def test_a_pipeline_that_runs_once_is_finished_and_stays_so(bench: Bench) -> None:
    async def begin(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted(once=True))
        await pipelines.start("archive")
        shown = await _until(pipelines, lambda shown: shown["state"] == "finished")
        assert (_rows(shown), shown["starts"]) == (20, 1)

    async def look(pipelines: KeptPipelines) -> None:
        await _until(pipelines, lambda shown: shown["state"] == "finished")
        assert pipelines.show("archive")["starts"] == 0
        assert (await pipelines.stop("archive"))["state"] == "finished"

    async def start_again(pipelines: KeptPipelines) -> None:
        await _until(pipelines, lambda shown: shown["state"] == "finished")
        await pipelines.start("archive")
        await pipelines.stop("archive")
        await _until(pipelines, lambda shown: shown["state"] == "stopped")

    async def look_again(pipelines: KeptPipelines) -> None:
        await _until(pipelines, lambda shown: shown["state"] == "stopped")

    bench.tell(begin, ENDS_WELL)
    bench.tell(look, ENDS_WELL)
    bench.tell(start_again, GOES_ON)
    bench.tell(look_again, ENDS_WELL)


def test_a_replay_is_finished_only_when_its_driver_says_so(bench: Bench) -> None:
    """P5: neither a stop nor a renewal of its access is the end of it."""

    async def begin(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _replay(path="p"))
        await pipelines.start("archive")
        await _until(pipelines, lambda shown: _count(shown["starts"]) > 1)
        await pipelines.stop("archive")
        await _until(pipelines, lambda shown: shown["state"] == "stopped")

    async def end(pipelines: KeptPipelines) -> None:
        await _until(pipelines, lambda shown: shown["state"] == "stopped")
        await pipelines.start("archive")
        shown = await _until(pipelines, lambda shown: shown["state"] == "finished")
        assert shown["progress"] == {
            "at": None, "batch": 2, "rows": 30, "rows_planned": 50, "rows_total": 50,
            "rows_per_s": 0.0, "backlog": 0, "batch_ms": 7,
        }  # fmt: skip
        await pipelines.delete("archive")

    bench.tell(begin, GOES_ON, renew_ms=300)
    bench.tell(end, REPLAYS)
    assert bench.forgotten == ["archive"]


def test_a_replay_knows_where_its_capture_writes_and_is_a_new_one_when_made_again(
    bench: Bench,
) -> None:
    """P5."""

    async def story(pipelines: KeptPipelines) -> None:
        with refusal_of(NOT_FOUND, "'archive'"):
            await pipelines.create("again", _replay(from_pipeline="archive"))
        await pipelines.create("archive", _wanted(format="delta"))
        with refusal_of(INVALID_ARGUMENT):
            await pipelines.create("again", _replay(from_pipeline="archive", path="q"))
        made = await pipelines.create("again", _replay(from_pipeline="archive"))
        assert (made["path"], made["format"], made["location"]) == ("p", "delta", "/captured/p")

        await pipelines.delete("archive")
        same = await pipelines.create("again", _replay(from_pipeline="archive"))
        assert same["incarnation"] == made["incarnation"]
        with refusal_of(ALREADY_EXISTS):
            await pipelines.create("again", _replay(from_pipeline="archive", rate_max=5))
        await pipelines.delete("again")
        new = await pipelines.create("again", _replay(path="p"))
        assert new["incarnation"] not in ("", made["incarnation"])

    bench.tell(story, "")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (FAILS, "there is no Java"),
        (DIES, "the driver ended with code 9: out of memory"),
        ("", "the driver ended by itself"),
    ],
)
def test_a_driver_that_dies_at_once_is_started_again_and_its_error_is_shown(
    bench: Bench, script: str, error: str
) -> None:
    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        await pipelines.start("archive")
        await _until(pipelines, lambda shown: _count(shown["starts"]) > 2)
        shown = pipelines.show("archive")
        assert (shown["state"], shown["last_error"]) == ("failing", error)
        assert pipelines.problems() == [f"pipeline archive fails: {error}"]

    bench.tell(story, script)


def test_a_batch_that_was_cut_off_keeps_its_claims_until_it_is_run_again_or_finished(
    bench: Bench,
) -> None:
    """P4, P9: deleting the pipeline would let receivers have what was written."""

    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        await pipelines.start("archive")
        await _until(pipelines, lambda shown: shown["state"] == "running")
        await pipelines.stop("archive")
        shown = await _until(pipelines, lambda shown: shown["state"] == "stopped")
        assert (shown["last_error"], pipelines.problems()) == ("", [])
        assert "within a batch" in pipelines.log("archive")[-1]

        bench.entities.claimed = 7
        with refusal_of(NOT_ALLOWED, "7 messages"):
            await pipelines.delete("archive")
        await pipelines.start("archive")
        await _until(pipelines, lambda shown: shown["state"] == "running")
        await pipelines.stop("archive")
        await _until(pipelines, lambda shown: shown["state"] == "stopped")
        await pipelines.delete("archive", is_abandoned=True)

    bench.tell(story, STUBBORN)
    assert bench.entities.dropped == ["archive"]


def test_a_stopped_pipeline_finishes_with_a_driver_that_only_does_that(bench: Bench) -> None:
    """P4, P9"""

    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        assert (await pipelines.stop("archive", is_finishing=True))["state"] == "stopped"
        assert pipelines.show("archive")["starts"] == 0, "nothing is claimed"

        bench.entities.claimed = 7
        assert (await pipelines.stop("archive", is_finishing=True))["state"] == "stopping"
        shown = await _until(pipelines, lambda shown: shown["state"] == "stopped")
        assert (shown["starts"], shown["last_error"]) == (1, "")
        assert pipelines.log("archive") == ["finishing"]

        await pipelines.start("archive")
        await _until(pipelines, lambda shown: shown["state"] == "running")
        await pipelines.stop("archive", is_finishing=True)
        await _until(pipelines, lambda shown: shown["state"] == "stopped")
        assert pipelines.log("archive").count("finishing") == 1

    bench.tell(story, FINISHES)


def test_the_claims_of_pipelines_that_do_not_run_are_held_at_once_when_the_bus_starts(
    bench: Bench,
) -> None:
    """P4"""

    async def begin(pipelines: KeptPipelines) -> None:
        for name in ("archive", "other"):
            await pipelines.create(name, _wanted(path=name))
        await pipelines.start("other")

    async def look(pipelines: KeptPipelines) -> None:
        await _until(pipelines, lambda shown: bool(bench.entities.held))
        assert bench.entities.held == ["archive"]

    bench.tell(begin, GOES_ON)
    bench.entities.held.clear()
    bench.tell(look, GOES_ON)


def test_stopping_does_not_wait_for_the_next_attempt(bench: Bench) -> None:
    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        await pipelines.start("archive")
        await _until(pipelines, lambda shown: shown["last_error"] != "")
        await pipelines.stop("archive")
        await _until(pipelines, lambda shown: shown["state"] == "stopped")
        assert pipelines.show("archive")["starts"] == 1

    bench.tell(story, FAILS, restart_ms=LONG_MS)


def test_a_driver_is_renewed_before_its_access_ends(bench: Bench) -> None:
    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        await pipelines.start("archive")
        shown = await _until(pipelines, lambda shown: _count(shown["starts"]) > 1)
        assert shown["last_error"] == ""

    bench.tell(story, GOES_ON, restart_ms=LONG_MS, renew_ms=300)


def test_what_cannot_be_is_refused_with_the_reason(bench: Bench) -> None:
    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        await pipelines.create("archive", _wanted())
        with refusal_of(ALREADY_EXISTS):
            await pipelines.create("archive", _wanted(rows_max=5))
        with refusal_of(ALREADY_EXISTS):
            await pipelines.create("other", _wanted(path="p/q"))
        with refusal_of(NOT_FOUND):
            await pipelines.create("other", _wanted(entity="gone", path="q"))
        with refusal_of(NOT_ALLOWED):
            await pipelines.start("archive")
        for asked in (pipelines.start, pipelines.stop, pipelines.delete):
            with refusal_of(NOT_FOUND, "'nobody'"):
                await asked("nobody")

    bench.missing = "no Spark"
    bench.tell(story, "")


def test_what_was_missing_may_be_installed_while_the_bus_serves(bench: Bench) -> None:
    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        with refusal_of(NOT_ALLOWED):
            await pipelines.start("archive")

        bench.missing = ""
        await pipelines.start("archive")

        await _until(pipelines, lambda shown: shown["state"] == "running")

    bench.missing = "no Spark"
    bench.tell(story, GOES_ON)


def test_a_driver_that_cannot_be_started_is_tried_again(bench: Bench) -> None:
    async def story(pipelines: KeptPipelines) -> None:
        await pipelines.create("archive", _wanted())
        await pipelines.start("archive")
        shown = await _until(pipelines, lambda shown: _count(shown["starts"]) > 1)
        assert "could not be started" in str(shown["last_error"])

    bench.tell(story, GOES_ON, program="/no/such/program")


def test_the_driver_gets_a_token_for_its_entity_and_none_of_our_settings() -> None:
    access = DriverAccess("grpc://localhost:1", "", "Root", "secret")
    dead = Definition("a", Capture(entity="orders/$DeadLetterQueue", path="p"))
    ours = {"SHARDBUS_SAS_KEY": "secret", "PATH": "/bin"}

    environment = access.environment(dead, ours, 1_000_000)

    assert "secret" not in str(environment)
    assert environment["PATH"] == "/bin"
    token = parse_token(environment["SHARDBUS_TOKEN"])
    assert (token.scope, token.expires_at_ms) == ("orders", 1_000_000 + 24 * 3_600_000)
    assert token.signing_key(["secret"]) == "secret"


def test_a_driver_that_waits_is_failing_until_it_goes_on() -> None:
    report = Report()

    report.hear_event('{"event": "waiting", "error": "orders is full"}')
    waiting = report.error
    report.hear_event('{"event": "compaction", "hours": 2, "note": "x"}')
    report.hear_event('{"event": "progress", "rows": 1}')

    assert (waiting, report.error) == ("orders is full", "")
    assert report.lines() == ["waiting: orders is full", "compaction: hours 2, note x"]


def test_a_report_is_bounded_and_takes_nonsense_for_log() -> None:
    report = Report()
    for number in range(LOG_LINES_MAX + 5):
        report.hear_event(f"{number} " + "x" * 2 * LINE_CHARACTERS_MAX)
    report.hear_event('{"event": "progress", "rows": -3, "backlog": "many", "rows_per_s": null}')

    lines = report.lines()
    assert (len(lines), lines[0][:2]) == (LOG_LINES_MAX, "5 ")
    assert max(map(len, lines)) == LINE_CHARACTERS_MAX
    assert (report.progress()["rows_total"], report.progress()["backlog"]) == (0, 0)


def test_a_report_tells_where_a_driver_that_browses_is() -> None:
    report = Report()

    report.hear_event(
        '{"event": "progress", "incarnation": "41", "next": {"0": 7, "1": 281474976710660, '
        '"x": 1, "2": -1, "3": "4", "123456": 1}}'
    )
    told = (report.incarnation, report.following)
    report.hear_event('{"event": "progress", "rows": 0}')
    report.hear_event('{"event": "progress", "incarnation": 5, "next": [1]}')

    assert told == ("41", {0: 7, 1: 281474976710660})
    assert (report.incarnation, report.following) == told


async def _until(
    pipelines: KeptPipelines, is_so: Callable[[Shown], bool], name: str = "archive"
) -> Shown:
    """The pipeline when it is as it should be; the bench bounds the wait."""
    while True:
        if pipelines.all() and is_so(pipelines.show(name)):
            return pipelines.show(name)
        await asyncio.sleep(0.005)


def _wanted(**members: object) -> Task:
    return KindReader(KINDS).convert({"entity": "orders", "path": "p", **members})


def _replay(**members: object) -> Task:
    return KindReader(KINDS).convert({"kind": "replay", "entity": "orders", **members})


def _rows(shown: Shown) -> int:
    progress = shown["progress"]
    assert isinstance(progress, dict)
    return _count(progress["rows_total"])


def _count(value: object) -> int:
    assert isinstance(value, int)
    return value

"""The pipeline of the demo: when it is started, when it is stopped, what is said of it."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from dataclasses import replace
from pathlib import Path

import pytest

from shardbus.app.cli.api_client import Document
from shardbus.demo.capture import BYTES_MAX, RETRY_S, DemoCapture
from shardbus.demo.preparing import Preparing
from shardbus.demo.watching import Captured
from tests.unit.app.demo.pictures import RUNNING
from tests.unit.app.scripted_api import Script, refusal

ENTITY = "demo-events/Subscriptions/archive"


def _listed(state: str, rows: int) -> Document:
    """All pipelines, of which one is the demo's."""
    mine: Document = {"name": "demo-archive", "state": state, "progress": {"rows_total": rows}}
    return {"pipelines": [{"name": "other", "state": "failing"}, mine]}


STOPPED = _listed("stopped", 77)
GOES_ON = _listed("running", 70)


def test_a_pipeline_that_is_missing_is_made_and_started_once() -> None:
    script = Script(refusal(404, "There is no pipeline."), {})
    capture = DemoCapture(script.api(), ENTITY, Preparing(""))

    asyncio.run(capture.turn(None, 1.0))
    asyncio.run(capture.turn(RUNNING, 100.0))

    assert script.lines() == [
        "GET pipelines/demo-archive",
        "PUT pipelines/demo-archive",
        "POST pipelines/demo-archive/start",
    ]
    assert script.asked[1][1] == {"entity": ENTITY, "path": "demo-archive"}


def test_a_pipeline_that_is_there_is_left_as_it_is() -> None:
    script = Script({})

    asyncio.run(DemoCapture(script.api(), ENTITY, Preparing("")).turn(None, 1.0))

    assert script.lines() == ["GET pipelines/demo-archive", "POST pipelines/demo-archive/start"]


def test_nothing_is_started_while_spark_is_installed() -> None:
    script = Script({})
    capture = DemoCapture(script.api(), ENTITY, Preparing("install it"))

    asyncio.run(capture.turn(None, 1.0))

    assert script.asked == []
    assert capture.shown(None, 1.0).note.startswith("Spark is being installed")


def test_a_refusal_is_shown_and_asked_about_again_after_a_while() -> None:
    script = Script({}, refusal(409, "No pipeline can run here: no Spark."), {})
    capture = DemoCapture(script.api(), ENTITY, Preparing(""))

    asyncio.run(capture.turn(None, 1.0))
    shown = capture.shown(None, 1.0)
    asyncio.run(capture.turn(None, 2.0))
    assert len(script.asked) == 2
    asyncio.run(capture.turn(None, 2.0 + RETRY_S))

    assert (shown.state, shown.note) == ("unavailable", "No pipeline can run here: no Spark.")
    assert len(script.asked) == 4
    assert capture.shown(None, 50.0).state == "waiting"


def test_an_installation_that_failed_is_why() -> None:
    preparing = Preparing("echo no room on the disk; exit 3")
    script = Script({}, refusal(409, "No pipeline can run here."))
    capture = DemoCapture(script.api(), ENTITY, preparing)

    asyncio.run(preparing.run())
    asyncio.run(capture.turn(None, 1.0))

    note = capture.shown(None, 1.0).note
    assert note.endswith("ended with code 3: no room on the disk")


def test_enough_is_captured_when_the_files_are_large() -> None:
    script = Script({})
    capture = DemoCapture(script.api(), ENTITY, Preparing(""))
    large = replace(RUNNING, size_bytes=BYTES_MAX + 1)

    for second in range(3):
        asyncio.run(capture.turn(large, float(second)))

    assert script.lines() == ["POST pipelines/demo-archive/stop"]
    assert "enough" in capture.shown(replace(large, state="stopped"), 9.0).note


def test_a_batch_is_waited_for_at_the_end() -> None:
    script = Script(GOES_ON, {}, GOES_ON, STOPPED)

    async def story() -> int:
        capture = DemoCapture(script.api(), ENTITY, Preparing(""))
        seen = await capture.stop(30.0, asyncio.Event())
        assert seen is not None
        return seen.rows

    assert asyncio.run(story()) == 77
    assert script.lines()[1] == "POST pipelines/demo-archive/stop"


def test_nobody_waits_for_a_pipeline_that_has_not_begun_or_is_not_there() -> None:
    starting = Script(_listed("starting", 0), {})
    missing = Script({"pipelines": []})

    async def story(script: Script) -> None:
        await DemoCapture(script.api(), ENTITY, Preparing("")).stop(30.0, asyncio.Event())

    asyncio.run(story(starting))
    asyncio.run(story(missing))

    assert len(starting.asked) == 2
    assert len(missing.asked) == 1


def test_who_has_had_enough_does_not_wait() -> None:
    script = Script(GOES_ON, {}, GOES_ON)

    async def story() -> None:
        enough = asyncio.Event()
        enough.set()
        await DemoCapture(script.api(), ENTITY, Preparing("")).stop(30.0, enough)

    asyncio.run(story())

    assert len(script.asked) == 2


def test_an_installation_that_is_cancelled_ends_with_all_that_it_started(tmp_path: Path) -> None:
    began = tmp_path / "began"
    os.mkfifo(began)
    preparing = Preparing(f"(exec 3>{began}; echo began >&3; exec sleep 600) & wait")

    async def story() -> bytes:
        running = asyncio.ensure_future(preparing.run())
        with await asyncio.to_thread(began.open, "rb") as pipe:
            await asyncio.to_thread(pipe.readline)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            # The pipe ends when nobody holds its other end any more.
            async with asyncio.timeout(30):
                return await asyncio.to_thread(pipe.read)

    assert asyncio.run(story()) == b""
    assert not preparing.is_done


def test_an_installation_that_is_cancelled_while_it_starts_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = asyncio.create_subprocess_exec
    begun: list[Process] = []

    async def slowly(*arguments: str, start_new_session: bool, stdin: int, **_: int) -> Process:
        process = await begin(*arguments, stdin=stdin, start_new_session=start_new_session)
        begun.append(process)
        has_begun.set()
        await asyncio.sleep(0)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    has_begun = asyncio.Event()

    async def story() -> None:
        running = asyncio.ensure_future(Preparing("exec sleep 600").run())
        await has_begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())

    assert begun[0].returncode == -signal.SIGTERM


def test_parquet_files_are_counted_and_those_of_spark_are_not(tmp_path: Path) -> None:
    for name in ("entity=a/one.parquet", "entity=a/.one.parquet", "entity=a/one.parquet.crc",
                 "_spark_metadata/0.parquet", "two.parquet"):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"12345")
    captured = Captured()

    captured.look(str(tmp_path))
    (tmp_path / "three.parquet").touch()
    captured.look(str(tmp_path))

    assert (captured.files, captured.size_bytes) == (2, 10)
    captured.look("s3a://bucket/captured")
    assert captured.files == -1

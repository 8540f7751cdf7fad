"""A driver of pipelines that captures nothing: it says what a driver says, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Progress comes every second, in waves.
_DRIVER: Final = """
import json, math, signal, sys, threading, time

def say(**event): print(json.dumps(event), flush=True)

def end(number, frame):
    say(event="done")
    sys.exit()

signal.signal(signal.SIGTERM, end)
if "--check" in sys.argv:
    sys.exit()
say(event="running")
if "--finish" in sys.argv:
    end(0, None)
sys.stderr.write("three teapots were captured\\n")
sys.stderr.flush()
threading.Thread(target=lambda: (sys.stdin.read(), signal.raise_signal(signal.SIGTERM)),
                 daemon=True).start()
for batch in range(100_000):
    wave = 1 + math.sin(batch / 5)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    say(event="progress", at=at, batch=batch, rows=20 + int(20 * wave), rows_per_s=7.5 + 4 * wave,
        backlog=int(60 * wave), batch_ms=400 + int(300 * wave))
    time.sleep(1)
"""


def environment_with_driver(directory: Path) -> dict[str, str]:
    """The environment of a bus whose pipelines start this driver; its file is written there."""
    package = directory / "driver" / "shardbus_spark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "pipelines.py").write_text(_DRIVER)
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(package.parent), others]))}

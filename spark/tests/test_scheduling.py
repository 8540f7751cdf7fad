"""A driver is ordinary work, whatever started it."""

import subprocess
import sys

import pytest

# The first line fails where the system does not allow it; then there is nothing to give up.
DRIVER = """
import os
try:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
except PermissionError:
    pass
from shardbus_spark.pipelines.driver import main
main([])
print(os.sched_getscheduler(0) == os.SCHED_OTHER)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="real-time scheduling of Linux")
def test_a_driver_gives_up_the_real_time_scheduling_of_its_bus() -> None:
    done = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr

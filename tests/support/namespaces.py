"""Networks and mounts of its own for a test that needs real ports, names and paths."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

import pytest

TIMEOUT_S: Final = 60


def needed_namespaces() -> list[str]:
    """The command that runs another in network and mount namespaces of its own."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare: namespaces cannot be made")
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = [unshare, *as_root, "--net", "--mount"]
    probe = [*words, "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    tried = subprocess.run(probe, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if tried.returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {tried.stderr.strip()}")
    return words

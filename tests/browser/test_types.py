"""The portal runs as it is written; its types, in comments, are checked here."""

from __future__ import annotations

import subprocess

import pytest

from tests.browser.portal import JS


def test_the_types_of_the_portal_are_right() -> None:
    """R44"""
    checker = JS / "node_modules" / ".bin" / "tsc"
    if not checker.exists():
        pytest.skip("the types of the portal are not checked: `make chromium` installs the checker")
    done = subprocess.run(
        [checker, "-p", JS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout.decode(errors="replace")

"""The pages about frameworks, copied block by block into a fresh shell on a machine of its own.

Blocks that open with `sh install` fetch packages and are run with the network; those that open with
`sh run` are run in one shell, in network, mount and process namespaces of their own, where all
ports are free and `/etc/hosts` is a copy; `text answer` shows what the block before it prints at
its end.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.examples import ROOT

pytestmark = pytest.mark.release

INSTALL_S_MAX: Final = 900
RUN_S_MAX: Final = 240
GUIDES: Final = {
    "airflow": ("curl",),
    "camel": ("java", "mvn", "curl"),
    "celery": ("curl",),
    "functions": ("node", "npm", "curl"),
    "spring": ("java", "mvn", "curl"),
    "spring-cloud-azure": ("java", "mvn", "curl"),
}
_BLOCK: Final = re.compile(r"^```(sh install|sh run|text answer)\n(.*?)^```$", re.M | re.S)
_END: Final = "==== end of a block"
# By which a machine that needs its own authority on the network tells its programs so.
_TRUST: Final = frozenset(
    {"CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"}
)
# The network of a new namespace is down, and its /etc/hosts is still everybody's.
_MACHINE: Final = """
python3 - <<'END'
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
END
printf '127.0.0.1 localhost\\n' > .hosts
mount --bind .hosts /etc/hosts
"""


@pytest.fixture(scope="module")
def apart() -> list[str]:
    """The command that runs another on a machine of its own, of which nothing is left."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare: namespaces cannot be made")
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    kinds = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    words = [unshare, *as_root, *kinds]
    probe = [*words, "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    tried = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {tried.stderr.strip()}")
    return words


@pytest.mark.parametrize("name", GUIDES)
def test_a_page_works_when_it_is_copied_into_a_fresh_shell(
    name: str, apart: list[str], tmp_path: Path
) -> None:
    """R36: the framework is unmodified, and nobody helps."""
    for program in GUIDES[name]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: the page about {name} is left out")
    blocks = _blocks(ROOT / "docs" / "guides" / f"{name}.md")
    install = "".join(body for kind, body in blocks if kind == "sh install")
    _shell([], _quicker(install), tmp_path, INSTALL_S_MAX)
    script, answers = _MACHINE, list[tuple[int, str]]()
    shown = 0
    for kind, body in blocks:
        if kind == "sh run":
            script += f"{body}\necho '{_END}'\n"
            shown += 1
        elif kind == "text answer":
            answers.append((shown - 1, body))

    printed = _shell(apart, script, tmp_path, RUN_S_MAX).split(f"{_END}\n")

    assert answers
    for number, answer in answers:
        assert printed[number].endswith(answer), printed[number]


def _quicker(script: str) -> str:
    """The same packages, by uv: pip takes minutes for some of them."""
    # Copies: a page may change a file, which a hard link would share with other environments.
    uv = f"{Path(sys.executable).with_name('uv')} pip install --link-mode copy --python"
    return re.sub(r"(\S+/bin)/pip install", rf"{uv} \1/python", script)


def _blocks(path: Path) -> list[tuple[str, str]]:
    return [(kind, body) for kind, body in _BLOCK.findall(path.read_text(encoding="utf-8"))]


def _shell(apart: list[str], script: str, directory: Path, timeout_s: float) -> str:
    commands = str(Path(sys.executable).parent)
    path = os.pathsep.join([commands, os.environ["PATH"]])
    sources = [str(Path(each).resolve()) for each in _python_path()]
    machine = {name: value for name, value in os.environ.items() if not apart or name not in _TRUST}
    environment = {**machine, "PATH": path, "PYTHONPATH": os.pathsep.join(sources)}
    with (directory / ".output").open("w+b") as output:
        done = subprocess.run(
            [*apart, "bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
        output.seek(0)
        printed = output.read().decode(errors="replace")
    logs = "\n".join(
        f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in _logs(directory)
    )
    assert done.returncode == 0, f"code {done.returncode}\n{printed[-6000:]}\n{logs}"
    return printed


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]

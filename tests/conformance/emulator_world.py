"""A container of its own for test_emulator: run inside new network and mount namespaces.

Arguments: an empty directory, a `Config.json`, and as JSON the service of a compose file. The
service is started as Docker would start it with our image: its volume is where it is in the
container, its variables are set, and nothing else is told to the command. What it prints is a JSON
document of what an application found at the names and ports of the compose file.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.conformance.drop_in_world import raise_loopback, replace_content
from tests.conformance.test_trust import VARIABLES

COMMAND: Final = str(Path(sys.executable).with_name("shardbus"))
UP: Final = "Emulator Service is Successfully Up!"
UP_S: Final = 120.0
WAIT_S: Final = 30


def main(directory: Path, config: Path, service: dict[str, object]) -> None:
    raise_loopback()
    aliases = _strings(service["aliases"])
    names = "".join(f"127.0.0.1 {name}\n" for name in ("localhost", *aliases))
    replace_content(Path("/etc/hosts"), directory / "hosts", names)
    (mounted,) = [Path(each.rpartition(":")[2]) for each in _strings(service["volumes"])]
    root = directory / "root"
    _make_root(root, config, mounted)
    ports = [int(each.rpartition(":")[2]) for each in _strings(service["ports"])]
    variables = service["environment"]
    assert isinstance(variables, dict)
    machine = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    log = directory / "emulator.log"
    here = Path.cwd()
    os.chroot(root)
    os.chdir(here)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [COMMAND, "emulator", "--data-dir", str(directory / "data")],
            env={**machine, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + UP_S
        while UP not in (printed := log.read_text(errors="replace")):
            assert process.poll() is None and time.monotonic() < deadline, printed
            time.sleep(0.05)
        told = {
            "bodies": [_round_trip(name) for name in ("localhost", *aliases)],
            "health": {port: _health(port) for port in ports if port != 5672},
            "output": printed,
        }
    finally:
        process.terminate()
        process.wait(WAIT_S)
    sys.stdout.write(json.dumps(told))


def _round_trip(host: str) -> str:
    """With the connection string of the emulator's own page, which names no port."""
    connecting = (
        f"Endpoint=sb://{host};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
    with (
        ServiceBusClient.from_connection_string(connecting, retry_total=0) as client,
        client.get_queue_sender("queue.1") as sender,
        client.get_queue_receiver("queue.1") as receiver,
    ):
        sender.send_messages(ServiceBusMessage(host))
        (message,) = receiver.receive_messages(1, WAIT_S)
        receiver.complete_message(message)
        return str(message)


def _health(port: int) -> str:
    connection = http.client.HTTPConnection("localhost", port, timeout=WAIT_S)
    connection.request("GET", "/health")
    said = json.loads(connection.getresponse().read())
    connection.close()
    return str(said["status"])


def _make_root(root: Path, config: Path, mounted: Path) -> None:
    """All that is in `/`, and the file of the volume where the container has it."""
    mount = shutil.which("mount")
    assert mount is not None, "there is no mount"
    root.mkdir()
    for each in Path("/").iterdir():
        here = root / each.name
        if each.is_symlink():
            here.symlink_to(each.readlink())
        elif each.is_dir():
            here.mkdir()
            subprocess.run([mount, "--rbind", str(each), str(here)], check=True, timeout=WAIT_S)
    volume = root / mounted.relative_to("/")
    volume.parent.mkdir(parents=True)
    volume.touch()
    subprocess.run([mount, "--bind", str(config), str(volume)], check=True, timeout=WAIT_S)


def _strings(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(each) for each in value]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))

"""A file whose log was being brought into it when its server ended, or its disk was full.

SQLite writes the first page first: it tells of pages that are not in the file yet. All of them are
in the log, so that the store is sound, and who looks at the file alone must not call it damaged.
"""

import subprocess
import sys
from pathlib import Path

from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.database import prepare
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen

FRAGMENT = FragmentId(1, 0)
# Another process does it: this one would lose its locks on the file.
PAGES_THAT_ARE_NOT_THERE = """
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(24)
    counter, pages = file.read(4), int.from_bytes(file.read(4), "big")
    file.seek(28)
    file.write((pages + 1_000).to_bytes(4, "big"))
    file.seek(92)
    file.write(counter)
"""


def interrupted(tmp_path: Path) -> tuple[Path, SqliteStore]:
    path = tmp_path / "broker-0.db"
    store = SqliteStore(path)
    store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    for _ in range(8):
        pen.append([bytes(100_000)])
        store.commit([pen.commit()])
    subprocess.run([sys.executable, "-c", PAGES_THAT_ARE_NOT_THERE, str(path)], check=True)
    assert path.with_name("broker-0.db-wal").stat().st_size > 0
    return path, store


def test_a_file_that_is_whole_with_its_log_is_no_damaged_one(tmp_path: Path) -> None:
    path, store = interrupted(tmp_path)

    prepare(path)
    with BulkReader(path) as reader:
        assert reader.local(FRAGMENT) >= 0
    store.close()


def test_the_log_of_a_file_is_found_where_a_link_to_the_file_is(tmp_path: Path) -> None:
    path, store = interrupted(tmp_path)
    link = tmp_path / "elsewhere" / "broker-0.db"
    link.parent.mkdir()
    link.symlink_to(path)

    with BulkReader(link) as reader:
        assert reader.local(FRAGMENT) >= 0
    store.close()

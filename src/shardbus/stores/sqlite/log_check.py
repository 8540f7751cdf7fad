"""Finds commits that the log of a database has lost, which SQLite does not report.

A server that ends in an orderly way leaves no log. After a crash SQLite reads the log up to the
first frame with a wrong checksum, because that is what a crash in the middle of a write leaves. A
damaged frame in the middle of the log looks the same to SQLite, which drops everything behind it.

Here it does not look the same. A commit is synchronized before the next one is written, so a crash
leaves at most one incomplete commit, and nothing behind it. The checksum of a frame continues the
checksum that the frame before it carries. So a frame that continues the last frame of a commit
proves that this commit was complete when the frame was written; if SQLite cannot read the commit
now, it was damaged later.

    log     magic, version, page bytes, number of the log, 2 salts, 2 checksums; u32, big-endian
    frame   page, pages of the database after a commit (otherwise 0), 2 salts, 2 checksums; the page
"""
# Compiled by mypyc.

from __future__ import annotations

import logging
import os
import shutil
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, final

from shardbus.stores.base.files import sync_directory

log = logging.getLogger(__name__)

_HEAD: Final = Struct(">8I")
_FRAME: Final = Struct(">6I")
# The last bit of the magic number: checksums are of big-endian words.
_MAGIC: Final = 0x377F0682
_SUMMED_BYTES: Final = 24
_FRAME_SUMMED_BYTES: Final = 8
_WORD_MAX: Final = 0xFFFFFFFF
# A log that cannot be emptied after its copy was made is found, and copied, at each start.
_COPIES_MAX: Final = 8
_PAGE_BYTES: Final = tuple(1 << power for power in range(9, 17))

Sums = tuple[int, int]


@final
class LostCommits:
    """What a damaged log has lost: the commits from `offset` on, which are about `count`."""

    def __init__(self, offset: int, count: int) -> None:
        self.offset = offset
        self.count = count


@final
class _Frame:
    def __init__(self, offset: int, data: bytes) -> None:
        fields = _FRAME.unpack_from(data, 0)
        self.offset = offset
        self.data = data
        self.ends_commit: bool = fields[1] != 0
        self.salts: Sums = (fields[2], fields[3])
        self.sums: Sums = (fields[4], fields[5])

    def computed(self, before: Sums, *, is_big: bool) -> Sums:
        """The checksums that it must have behind a frame with those checksums."""
        sums = checksums(self.data[:_FRAME_SUMMED_BYTES], before, is_big=is_big)
        return checksums(self.data[_FRAME.size :], sums, is_big=is_big)


def lost_commits(path: Path) -> LostCommits | None:
    """What the log at `path` has lost; None if it has lost nothing, or does not exist.

    Nothing may be written to the database meanwhile.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
            return None if len(head) < _HEAD.size else _lost(file, head)
    except FileNotFoundError:
        return None


def checksums(data: bytes, before: Sums, *, is_big: bool) -> Sums:
    """SQLite's checksums of an even number of words, continued from those before."""
    words = array("I")
    words.frombytes(data)
    if is_big != (sys.byteorder == "big"):
        words.byteswap()
    first, second = before
    pairs = iter(words)
    for one, other in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _WORD_MAX
        second = (second + other + first) & _WORD_MAX
    return first, second


def _lost(file: BinaryIO, head: bytes) -> LostCommits | None:
    fields = _HEAD.unpack(head)
    is_big = bool(fields[0] & 1)
    sums = checksums(head[:_SUMMED_BYTES], (0, 0), is_big=is_big)
    if fields[0] & ~1 == _MAGIC and sums == (fields[6], fields[7]) and fields[2] in _PAGE_BYTES:
        return _behind(_frames(file, fields[2]), (fields[4], fields[5]), sums, is_big)
    # SQLite ignores a log with a damaged head. It was synchronized before the first frame was
    # written.
    for page_bytes in _PAGE_BYTES:
        first = next(_frames(file, page_bytes), None)
        found = first and _behind(_frames(file, page_bytes), first.salts, None, is_big=False)
        if found:
            return found
    return None


def _frames(file: BinaryIO, page_bytes: int) -> Iterator[_Frame]:
    size = _FRAME.size + page_bytes
    offset = _HEAD.size
    while True:
        file.seek(offset)
        data = file.read(size)
        if len(data) < size:
            return
        yield _Frame(offset, data)
        offset += size


def _behind(
    frames: Iterator[_Frame], salts: Sums, sums: Sums | None, is_big: bool
) -> LostCommits | None:
    """What is lost of the frames with these salts; those of an earlier log have others.

    `sums` are the checksums before the first frame; None if they are not known.
    """
    bad = None
    # The checksums that the next frame may continue: the right ones, and those in the frame.
    computed = sums
    carried = sums
    is_ended = False
    is_lost = False
    count = 0
    for frame in frames:
        is_present = frame.salts == salts
        follows = is_present and _follows(frame, (computed, carried), is_big)
        if bad is None and computed is not None and follows:
            computed = carried = frame.sums
            continue
        if bad is None:
            bad = frame
            computed = None if computed is None else frame.computed(computed, is_big=is_big)
        else:
            is_lost = is_lost or (is_ended and follows)
            computed = None
        carried = frame.sums
        is_ended = is_present and frame.ends_commit
        if is_ended:
            count += 1
    return LostCommits(bad.offset, count) if bad is not None and is_lost else None


def _follows(frame: _Frame, befores: tuple[Sums | None, Sums | None], is_big: bool) -> bool:
    for before in dict.fromkeys(befores):
        if before is not None and frame.computed(before, is_big=is_big) == frame.sums:
            return True
    return False


def kept_logs(path: Path) -> list[Path]:
    """The copies of damaged logs beside a database, the oldest first."""
    found = path.parent.glob(f"{path.name}-wal.damaged-*")
    return sorted(found, key=lambda kept: (len(kept.name), kept.name))


def keep_if_damaged(path: Path) -> bool:
    """Before a database is opened to be written: copy its log if that has lost commits, and return
    whether it has.

    The copy is evidence, and reminds of the loss until somebody removes it: `loss_text`. The
    database is served without the lost commits.
    """
    wal = path.with_name(path.name + "-wal")
    found = lost_commits(wal)
    if found is None:
        return False
    number = 1
    while (kept := wal.with_name(f"{wal.name}.damaged-{number}")).exists():
        number += 1
    log.error("%s", damage_text(str(wal), found))
    if number > _COPIES_MAX:
        log.error("%s is not copied, because there are %d copies", wal, _COPIES_MAX)
        return True
    try:
        shutil.copyfile(wal, kept)
        with kept.open("rb") as file:
            os.fsync(file.fileno())
        sync_directory(kept.parent)
    except OSError as error:
        log.error("%s could not be copied before it is written again: %s", wal, error)
    return True


def damage_text(wal: str, found: LostCommits) -> str:
    return (
        f"{wal} is damaged at byte {found.offset}: the commits from there on (about {found.count}) "
        "are lost, although clients were told that they are stored"
    )


def loss_text(path: Path) -> str:
    """What a database lost by damage to its log, as long as the copy of that log exists."""
    kept = kept_logs(path)
    if not kept:
        return ""
    return (
        f"{path.name} lost stored commits because its log was damaged while no server ran; "
        f"{', '.join(each.name for each in kept)} is a copy of the log. Restore a backup, or "
        "accept the loss and remove the copy"
    )

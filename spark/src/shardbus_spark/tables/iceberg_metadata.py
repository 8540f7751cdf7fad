"""The metadata of an Iceberg table that needs no catalogue, in files of numbered versions.

`metadata/vN.metadata.json` is version N, and is created only where there is none: that is the
commit. A hint names a version from which the last one is found; it may be late after a crash, and
never goes back. Imported only when PyIceberg is installed.
"""

from __future__ import annotations

import io
import re
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, cast, final

from shardbus_spark.errors import ShardbusError
from shardbus_spark.tables.files import Conflict, Files, Found, conflict
from shardbus_spark.tables.form import ICEBERG_LOG

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

HINT: Final = f"{ICEBERG_LOG}/version-hint.text"
_VERSION: Final = re.compile(rf"{ICEBERG_LOG}/v(\d+)\.metadata\.json$")


def metadata_name(version: int) -> str:
    """The file of a version of the metadata."""
    return f"{ICEBERG_LOG}/v{version}.metadata.json"


def version_of(name: str) -> int | None:
    """None for another file."""
    found = _VERSION.search(name)
    return int(found.group(1)) if found else None


def is_iceberg(files: Files) -> bool:
    """Whether there is a table: a crash can leave a record without it."""
    return last_metadata(files) is not None


def last_metadata(files: Files) -> tuple[int, bytes] | None:
    """The last version of the metadata, and its content."""
    version = max(_hinted(files.read(HINT)), 1)
    there = files.read(metadata_name(version))
    if there is None:
        # The hint is so old that its version was removed, or there is no table.
        listed = (version_of(file.name) for file in files.names(ICEBERG_LOG))
        version = max((number for number in listed if number is not None), default=0)
        there = files.read(metadata_name(version)) if version else None
    found: tuple[int, bytes] | None = None
    while there is not None:
        found = version, there.content
        version += 1
        there = files.read(metadata_name(version))
    return found


def _hinted(hint: Found | None) -> int:
    """0 when there is no hint."""
    return int(hint.content) if hint is not None and hint.content.strip().isdigit() else 0


def write_metadata(files: Files, version: int, metadata: TableMetadata) -> None:
    """The commit of a version, durable on return; Conflict when there is, or was, one of this
    number.
    """
    name = metadata_name(version)
    files.create(name, metadata.model_dump_json(exclude_none=True).encode())
    there = files.read(HINT)
    if _hinted(there) > version:
        # Old versions are removed: a writer that was paused for long finds its number free, and
        # nobody reads what it has made. Or others have continued from it already.
        raise conflict(files.location, name)
    try:
        files.replace(HINT, str(version).encode(), "" if there is None else there.version)
    except Conflict:
        # A later commit has written its own.
        return


def open_iceberg(files: Files) -> Table:
    """The table as it is now; its commits create the next version of the metadata."""
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadataUtil

    found = last_metadata(files)
    if found is None:
        raise ShardbusError(f"there is no Iceberg table at {files.location}")
    version, content = found
    location = f"{files.location}/{metadata_name(version)}"
    metadata = TableMetadataUtil.parse_raw(content.decode())
    return Table(("table",), metadata, location, _table_files(files), _catalogue(files))


def _catalogue(files: Files) -> Catalog:
    """A catalogue of this one table."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.table import CommitTableResponse
    from pyiceberg.table.update import TableRequirement, update_table_metadata

    class NumberedVersions(NoopCatalog):
        def commit_table(
            self,
            table: Table,
            requirements: tuple[TableRequirement, ...],
            updates: tuple[TableUpdate, ...],
        ) -> CommitTableResponse:
            for requirement in requirements:
                requirement.validate(table.metadata)
            last_ms = table.metadata.last_updated_ms
            made = update_table_metadata(
                table.metadata,
                tuple(_not_before(update, last_ms + 1) for update in updates),
                metadata_location=table.metadata_location,
            )
            if made.last_updated_ms < last_ms:
                made = made.model_copy(update={"last_updated_ms": last_ms})
            version = (version_of(table.metadata_location) or 0) + 1
            write_metadata(files, version, made)
            location = f"{files.location}/{metadata_name(version)}"
            return CommitTableResponse.model_construct(metadata=made, metadata_location=location)

    return NumberedVersions("files")


def _not_before(update: TableUpdate, moment_ms: int) -> TableUpdate:
    """Readers refuse a table whose snapshots go back in time by more than a minute, as after a
    clock was set, or when the pipeline is continued on another node.
    """
    from pyiceberg.table.update import AddSnapshotUpdate

    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.timestamp_ms >= moment_ms:
        return update
    snapshot = update.snapshot.model_copy(update={"timestamp_ms": moment_ms})
    return update.model_copy(update={"snapshot": snapshot})


def _table_files(files: Files) -> FileIO:
    """Where the library reads and writes manifests, and reads the footers of files."""
    from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

    class OneFile(InputFile, OutputFile):
        """A file of the table, to be read or written."""

        def __len__(self) -> int:
            with _opened(files, self.location) as opened:
                return opened.seek(0, io.SEEK_END)

        def exists(self) -> bool:
            return files.read(files.named(self.location)) is not None

        def open(self, seekable: bool = True) -> InputStream:
            return cast("InputStream", _opened(files, self.location))

        def to_input_file(self) -> InputFile:
            return self

        def create(self, overwrite: bool = False) -> OutputStream:
            return cast("OutputStream", _Written(files, self.location))

    class TableFiles(FileIO):
        def new_input(self, location: str) -> InputFile:
            return OneFile(location)

        def new_output(self, location: str) -> OutputFile:
            return OneFile(location)

        def delete(self, location: str | InputFile | OutputFile) -> None:
            path = location if isinstance(location, str) else location.location
            files.remove([files.named(path)])

    return TableFiles()


def _opened(files: Files, location: str) -> BinaryIO:
    opened = files.open(files.named(location))
    return opened if not hasattr(opened, "open") else cast("BinaryIO", opened.open("rb"))


@final
class _Written(io.BytesIO):
    """A small file that is written as a whole when it is closed."""

    def __init__(self, files: Files, location: str) -> None:
        super().__init__()
        self._files = files
        self._location = location

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            self._files.create(self._files.named(self._location), self.getvalue())
        super().close()

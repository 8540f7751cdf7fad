"""Reports of a pipeline, each in a directory that has the name of its moment.

A report is there when its `report.json` is, which is written last. Only directories with such names
are ever removed.
"""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from typing import Final, final

from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.tables.files import Directory, Files
from shardbus_spark.triage.driver import REPORT

_FORM: Final = "%Y%m%dT%H%M%S"
_NAME: Final = re.compile(r"\d{8}T\d{9}Z")


def name_of(moment: datetime) -> str:
    """As `20260102T030405678Z`: the order of names is that of the moments."""
    return f"{moment.strftime(_FORM)}{moment.microsecond // 1000:03}Z"


def moment_of(name: str) -> datetime:
    whole = datetime.strptime(name[:-4], _FORM).replace(tzinfo=UTC)
    return whole.replace(microsecond=int(name[-4:-1]) * 1000)


@final
class Shelf:
    """The directory, or URL, of a pipeline."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def place(self, name: str) -> str:
        """The directory or URL of a report."""
        return f"{self._files.location}/{name}"

    def newest(self, selection: str) -> datetime | None:
        """When the newest report was begun; None if there is none of this selection of letters."""
        complete = self._reports()
        if not complete:
            return None
        found = self._files.read(f"{complete[-1]}/{REPORT}")
        try:
            told = {} if found is None else json.loads(found.content)
        except ValueError as error:
            where = self.place(complete[-1])
            raise ShardbusError(f"{where}/{REPORT} is damaged ({error}): remove it") from error
        is_same = isinstance(told, dict) and told.get("selection") == selection
        return moment_of(complete[-1]) if is_same else None

    def begin(self, name: str) -> None:
        """Make the directory of a report; OptionError when that is not possible."""
        if not isinstance(self._files, Directory):
            return
        try:
            (self._files.root / name).mkdir(parents=True)
        except OSError as error:
            raise OptionError(
                f"path {self._files.root} cannot be written to: {error.strerror}"
            ) from error

    def clean(self, reports_max: int) -> None:
        """Remove reports that were never completed, and all but the newest of the others."""
        kept = self._reports()[-reports_max:]
        for name in self._directories():
            if name not in kept:
                self._remove(name)

    def _remove(self, name: str) -> None:
        # First what makes it a report: the rest may be removed in parts.
        self._files.remove([f"{name}/{REPORT}"])
        self._files.remove([file.name for file in self._files.names(name)])
        if isinstance(self._files, Directory):
            shutil.rmtree(self._files.root / name, ignore_errors=True)

    def _reports(self) -> list[str]:
        """The names of complete reports, the oldest first."""
        tops = (file.name.partition("/") for file in self._files.names(""))
        return sorted(top for top, _, rest in tops if rest == REPORT and _NAME.fullmatch(top))

    def _directories(self) -> list[str]:
        """The names of all reports, also of those that were never completed."""
        if isinstance(self._files, Directory):
            found = {file.name for file in self._files.root.glob("*") if file.is_dir()}
        else:
            found = {file.name.partition("/")[0] for file in self._files.names("")}
        return sorted(name for name in found if _NAME.fullmatch(name))

"""What a triage is to do, as a document between the processes that ask for it and do it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self, final

from shardbus_spark.errors import OptionError

SELECTION_CHARACTERS: Final = 16


@final
@dataclass(frozen=True, slots=True)
class Job:
    """The queues and subscriptions whose dead letters are read, the conditions that letters must
    meet, and the directory or URL of the results. `filters` are rules, as the bus makes them
    portable.
    """

    entities: tuple[str, ...]
    out: str
    where: str = ""
    filters: str = ""
    spark_master: str = ""

    @property
    def selection(self) -> str:
        """The same for jobs that ask for the same letters."""
        told = json.dumps([self.entities, self.where, self.filters])
        return hashlib.sha256(told.encode()).hexdigest()[:SELECTION_CHARACTERS]

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_members(cls, members: Mapping[str, object]) -> Self:
        """OptionError for an invalid one."""
        entities = members.get("entities")
        known = cls.__dataclass_fields__
        if not {"entities", "out"} <= members.keys() <= known.keys():
            raise OptionError(f"a job has the members {', '.join(sorted(known))}")
        if not isinstance(entities, list) or not entities:
            raise OptionError("entities is empty: name a queue or a subscription")
        texts = {name: str(value) for name, value in members.items() if name != "entities"}
        return cls(tuple(map(str, entities)), **texts)


def job_in(file: Path) -> Job:
    """OptionError when the file cannot be read, or is invalid."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"the job {file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise OptionError(f"the job {file} must be a JSON object")
    return Job.from_members(found)

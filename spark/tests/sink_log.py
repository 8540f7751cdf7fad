"""What Spark's file sink has committed, without starting Spark to ask."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


def committed_files(directory: Path) -> set[Path]:
    """The files of a directory that its log lists; what a killed batch left is not among them."""
    files: set[Path] = set()
    for entry in (directory / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text("utf-8").splitlines()[1:]:
            files.add(Path(unquote(urlsplit(json.loads(line)["path"]).path)))
    return files

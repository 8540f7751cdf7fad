"""What Spark's file sink has committed, without starting Spark to ask."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as parquet


def committed_files(directory: Path) -> set[Path]:
    """The files of a directory that its log lists; what a killed batch left is not among them."""
    files: set[Path] = set()
    for entry in (directory / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text("utf-8").splitlines()[1:]:
            files.add(Path(unquote(urlsplit(json.loads(line)["path"]).path)))
    return files


def written_files(directory: Path) -> Iterator[list[bytes]]:
    """The bodies of each committed file, or of each batch of the small driver, in their order."""
    for name in committed_files(directory):
        column: list[object] = parquet.ParquetFile(name).read(columns=["body"])["body"].to_pylist()
        yield [body for body in column if isinstance(body, bytes)]
    for file in directory.glob("[0-9]*"):
        yield [body.encode() for body in json.loads(file.read_text("utf-8"))]


def written_bodies(directory: Path) -> Iterator[bytes]:
    """The bodies that a driver has committed, Spark's own or the small one, a few at a time."""
    for name in committed_files(directory):
        for batch in parquet.ParquetFile(name).iter_batches(columns=["body"]):
            column: list[object] = list(batch.column("body").to_pylist())
            yield from (body for body in column if isinstance(body, bytes))
    for file in directory.glob("[0-9]*"):
        yield from (body.encode() for body in json.loads(file.read_text("utf-8")))

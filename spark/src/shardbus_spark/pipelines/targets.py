"""Where pipelines write their tables: one place for what all kinds check before Spark starts."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has none
from pyspark.sql import SparkSession

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.tables.files import (
    OBJECT_SCHEMES,
    Directory,
    Files,
    check_tried,
    files_at,
    local_directory,
)
from shardbus_spark.tables.form import STATE
from shardbus_spark.tables.sink import need_form

_LIBRARIES: Final = {
    "s3a": "hadoop-aws",
    "abfs": "hadoop-azure",
    "abfss": "hadoop-azure",
}


def target_files(definition: Definition, what: str) -> Files:
    """The files of the table at the path of a definition, which can be written; OptionError
    otherwise. `what` is the kind of pipeline, for the error.
    """
    need_form(definition.text("format"))
    check_tried(definition.path)
    files = files_at(table_path(definition))
    if files is None:
        raise OptionError(
            f"path is {definition.path}; {what} needs a directory that all nodes share, or an "
            f"object store ({', '.join(OBJECT_SCHEMES)})"
        )
    check_writable(files, definition)
    return files


def table_path(definition: Definition) -> str:
    """The path of the table, the same wherever it is read."""
    directory = local_directory(definition.path)
    return definition.path.rstrip("/") if directory is None else str(directory.absolute())


def check_writable(files: Files, definition: Definition) -> None:
    """OptionError, or what the store says, when this machine can see that nothing can be written
    there. On a cluster the nodes write, and may see more than this machine.
    """
    if not isinstance(files, Directory):
        files.read(STATE)
        return
    if definition.spark_master:
        return
    try:
        files.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"path {files.root} cannot be written to: {error.strerror}") from error


def check_reachable(spark: SparkSession, path: str) -> None:
    """OptionError when Spark has no library for the URL, where its checkpoints are."""
    scheme = urlsplit(path).scheme
    if scheme not in OBJECT_SCHEMES:
        return
    jvm, hadoop = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    assert jvm is not None, "a driver has a Java"
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
    except Py4JJavaError:
        version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        library = _LIBRARIES.get(scheme)
        hint = (
            f"start the bus with --spark-conf spark.jars.packages=org.apache.hadoop:{library}:"
            f"{version}, or put the jars into a directory and name it with --spark-conf "
            "spark.driver.extraClassPath=/srv/jars/*"
            if library
            else "add the library of this store with --spark-conf spark.jars.packages=..."
        )
        if scheme == "s3":
            hint = "write s3a:// instead"
        raise OptionError(
            f"path is {path}, and this Spark has no library for {scheme}://: {hint}"
        ) from None


def has_numbers(files: Files, directory: str) -> bool:
    """Whether a directory of a checkpoint, or of the log of Spark's sink, has an entry."""
    return any(file.name.rpartition("/")[2].isdigit() for file in files.names(directory))

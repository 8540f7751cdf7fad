"""Python: messages of an entity through a function of the operator to an entity or a table."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.transform import NO_OTHERS, Compute, check_transform, run_transform

MODULE: Final = "shardbus_pipeline_code"


def run(run: Run) -> bool:
    """Whether everything was done; false if it was stopped earlier."""
    definition = run.definition
    return run_transform(
        run, function_of(Path(definition.text("code")), definition.text("function"))
    )


def check(definition: Definition) -> None:
    """OptionError for texts that cannot be used; the operator's file is run with the pipeline."""
    check_transform(definition)


def function_of(file: Path, name: str) -> Compute:
    """The function `name(spark, messages)` of a file; OptionError when there is none. Messages of
    further entities are arguments with the names of their views.
    """
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise OptionError(
            f"there is no Python file {file.name} in the pipeline-code directory: put it there, or "
            "create the pipeline again with another file"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    # Tasks cannot import the file: they get its functions with the query.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # PySpark's copy
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OptionError(f"{file.name} cannot be run: {type(error).__name__}: {error}") from error
    found: object = getattr(module, name, None)
    if not callable(found):
        raise OptionError(f"{file.name} has no function {name}: write def {name}(spark, messages)")
    function = found

    def compute(
        spark: SparkSession, messages: DataFrame, others: Mapping[str, DataFrame] = NO_OTHERS
    ) -> DataFrame:
        try:
            made: DataFrame = function(spark, messages, **others)
        except (AnalysisException, ShardbusError):
            raise
        except Exception as error:
            raise ShardbusError(
                f"the function {name} of {file.name} failed: {type(error).__name__}: {error}"
            ) from error
        return made

    return compute

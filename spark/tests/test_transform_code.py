"""Functions of the operator: found, pickled for tasks, refused; without Spark running."""

import sys
from pathlib import Path
from typing import Final

import pytest
from pyspark import cloudpickle

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.python import MODULE, function_of

CODE: Final = """
def loud(text):
    return text.upper()

def shout(text):
    return loud(text) + "!"

def transform(spark, messages):
    return shout(messages)

thing = 5
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, sys)


def test_a_function_goes_to_tasks_with_what_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no file to import it from."""
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    compute = function_of(file, "transform")
    pickled = cloudpickle.dumps(sys.modules[MODULE].shout)  # type: ignore[no-untyped-call]  # PySpark's copy

    monkeypatch.delitem(sys.modules, MODULE)

    assert cloudpickle.loads(pickled)("quiet") == "QUIET!"
    assert callable(compute)


def test_what_cannot_be_called_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")

    for name in ("absent", "thing"):
        with pytest.raises(OptionError, match=name):
            function_of(file, name)
    with pytest.raises(OptionError, match=r"none\.py"):
        function_of(tmp_path / "none.py", "transform")
    file.write_text("1 / 0", encoding="utf-8")
    with pytest.raises(OptionError, match="ZeroDivisionError"):
        function_of(file, "transform")

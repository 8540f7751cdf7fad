"""How tests are divided between workers: whole files, one Spark, waiting beside working."""

from tests.support.workers import IN_SPARK, SPARK, SPREAD, in_turns, share_of
from tests.tidy.source import ROOT


def test_the_tests_of_a_file_stay_together() -> None:
    assert share_of("tests/unit/core/test_lock.py::test_a[x::y]") == "tests/unit/core/test_lock.py"


def test_the_tests_of_slow_files_are_spread() -> None:
    [file] = SPREAD

    assert (ROOT / file).exists()
    assert share_of(f"{file}::test_a[go]") != share_of(f"{file}::test_a[java]")
    assert in_turns(["tests/chaos/test_d.py", f"{file}::test_a[go]"])[0].startswith(file)


def test_the_files_that_need_a_spark_of_this_process_share_one() -> None:
    assert {share_of(f"{file}::test_a") for file in IN_SPARK} == {SPARK}


def test_files_that_wait_and_files_that_compute_take_turns_slow_ones_first() -> None:
    unit, model, other = "tests/unit/test_a.py", "tests/model/test_b.py", "spark/tests/test_c.py"
    chaos, conformance = "tests/chaos/test_d.py", "tests/conformance/test_e.py"

    turns = in_turns([conformance, unit, model, chaos, other, SPARK])

    assert turns == [SPARK, chaos, other, conformance, model, unit]


def test_every_file_that_shares_the_spark_is_there() -> None:
    assert [file for file in IN_SPARK if not (ROOT / file).exists()] == []

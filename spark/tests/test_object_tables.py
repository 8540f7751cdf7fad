"""Tables in an object store, where nothing is renamed and nothing is locked (P4, P8, P11)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from spark.tests.apart import Run
from spark.tests.captured_rows import made, seen, written
from spark.tests.fated_server import ANSWERED, FORBIDDEN, LOST, REFUSED, environment
from spark.tests.killed_objects import kill_commits, lose_answers, pause_drivers, refuse_midway
from spark.tests.object_server import (
    BUCKET,
    KEY_NAME,
    SECRET,
    ObjectServer,
)
from spark.tests.object_steps import (
    commit_and_compact,
    kept_reports,
    messages_of_errors,
    two_writers,
    write_large,
)

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.capture import check_path
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.pipelines.driver import SPARK_CONF, spark_conf_from
from shardbus_spark.pipelines.transform import check_target
from shardbus_spark.tables.files import Directory, files_at
from shardbus_spark.tables.form import FORMS, ICEBERG, PARQUET
from shardbus_spark.tables.iceberg_metadata import last_metadata, metadata_name

URL: Final = f"s3a://{BUCKET}/captured/orders"


@pytest.fixture
def store() -> Iterator[ObjectServer]:
    with ObjectServer().running() as store, environment(store.environment()):
        yield store


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_that_is_killed_at_any_request_is_there_once_after_the_next_run(
    apart: Run, form: str
) -> None:
    """P4: with another number of tasks; and meanwhile nobody sees a row twice."""
    requests = apart(kill_commits, form)

    assert requests > 20


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", FORMS)
def test_a_write_whose_answer_is_lost_is_known_to_have_been_done(apart: Run, form: str) -> None:
    """P4: the library repeats it, and is told of a conflict with its own write."""
    writes = apart(lose_answers, form)

    assert writes > 5


@pytest.mark.parametrize("fate", [REFUSED, FORBIDDEN])
@pytest.mark.parametrize("form", FORMS)
def test_a_store_that_fails_midway_is_told_and_the_next_attempt_goes_on(
    apart: Run, form: str, fate: str
) -> None:
    """P4: nothing is lost, also if the right to write is taken back."""
    apart(refuse_midway, form, fate)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", FORMS)
def test_a_driver_that_was_stopped_takes_nothing_back_when_it_goes_on(
    apart: Run, form: str
) -> None:
    """P4: at each of its writes; another driver has gone on, and has forgotten old metadata."""
    assert apart(pause_drivers, form) > 5


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_listed_page_by_page(apart: Run, store: ObjectServer, form: str) -> None:
    """P4: a store lists a thousand objects at once, this one two."""
    store.listed_max = 2

    told = apart(commit_and_compact, f"s3a://{BUCKET}/captured/{form}", form)

    assert told["taken"] == [True, True, True, False]
    assert told["after"] == [0, 1, 2, 7, 8, 9, 33]
    assert store.listings > 20


def test_an_upload_in_parts_that_fails_leaves_nothing_and_is_repeated(
    apart: Run, store: ObjectServer
) -> None:
    """P4: also where the parts cannot be removed, which no reader sees."""
    puts = 0

    def fate(method: str, key: str) -> str:
        nonlocal puts
        puts += method == "PUT"
        return FORBIDDEN if method == "PUT" and puts == 2 else ANSWERED

    store.fate = fate
    assert "not allowed any more" in apart(write_large, f"s3a://{BUCKET}/large", "first")
    assert (store.keys(""), store.uploads) == ([], {})

    store.fate = lambda method, key: FORBIDDEN if method == "DELETE" else fate(method, key)
    puts = 0
    assert "not allowed any more" in apart(write_large, f"s3a://{BUCKET}/large", "second")
    assert store.keys("") == [] and len(store.uploads) == 1

    store.fate = lambda method, key: ANSWERED
    assert apart(write_large, f"s3a://{BUCKET}/large", "third") == ""
    assert store.keys("") == ["large/third"] and len(store.uploads) == 1


def test_an_upload_in_parts_whose_last_answer_is_lost_is_there_or_told(
    apart: Run, store: ObjectServer
) -> None:
    """P4: a task that is told fails, and another attempt writes another object."""
    posts = 0

    def fate(method: str, key: str) -> str:
        nonlocal posts
        posts += method == "POST"
        return LOST if method == "POST" and posts == 2 else ANSWERED

    store.fate = fate
    told = apart(write_large, f"s3a://{BUCKET}/large", "only")

    assert store.keys("") == ["large/only"]
    assert told == "" or "must be written again" in told


def test_snapshots_never_go_back_in_time(tmp_path: Path) -> None:
    """P4: other readers of Iceberg refuse such a table, as after a clock was set back."""
    files = Directory(tmp_path)
    table = made(files, ICEBERG)
    table.commit("query", 0, written(table, 0, [[0]]))
    found = last_metadata(files)
    assert found is not None
    ahead = json.loads(found[1])
    ahead["last-updated-ms"] += 600_000
    ahead["snapshots"][0]["timestamp-ms"] += 600_000
    ahead["snapshot-log"][0]["timestamp-ms"] += 600_000
    files.create(metadata_name(found[0] + 1), json.dumps(ahead).encode())

    table.commit("query", 1, written(table, 1, [[1]]))

    after = last_metadata(files)
    assert after is not None
    now = json.loads(after[1])
    moments = [entry["timestamp-ms"] for entry in now["snapshot-log"]]
    assert len(moments) == 2 and moments == sorted(moments)
    assert now["last-updated-ms"] >= moments[-1]
    assert seen(tmp_path, ICEBERG) == Counter([0, 1])


@pytest.mark.parametrize("form", FORMS)
def test_batches_are_taken_once_and_compacted_and_nothing_is_left(
    apart: Run, store: ObjectServer, form: str
) -> None:
    """P4: repeated, with other rows, of another query, and in another form."""
    told = apart(commit_and_compact, f"s3a://{BUCKET}/captured/{form}", form)

    assert told == {
        "taken": [True, True, True, False],
        "differs": f"path s3a://{BUCKET}/captured/{form} already has batch 2",
        "owner": "was captured with another checkpoint",
        "form": f"in the form {form}",
        "rows": [0, 1, 2, 7, 8, 9],
        "files": 5 if form == PARQUET else 1,
        "after": [0, 1, 2, 7, 8, 9, 33],
    }
    assert not store.keys(f"captured/{form}/_shardbus/staged")


@pytest.mark.parametrize("form", FORMS)
def test_of_two_drivers_with_one_batch_one_writes_it(
    apart: Run, store: ObjectServer, form: str
) -> None:
    """P4: no lock keeps them apart, only the conditions of the store."""
    assert apart(two_writers, f"s3a://{BUCKET}/{form}", form) == [1, 2, 3, 4]


def test_reports_of_a_triage_are_kept_and_removed(apart: Run, store: ObjectServer) -> None:
    """P7: as in a directory."""
    told = apart(kept_reports, f"s3a://{BUCKET}/captured/causes")

    assert told == {"before": None, "newest": True, "other": None, "kept": True}


def test_stores_that_refuse_are_named_and_no_secret_is(apart: Run, store: ObjectServer) -> None:
    told = apart(messages_of_errors, store.environment())

    assert "there is no bucket absent" in told["bucket"]
    assert "the store refuses access to" in told["key"] and "AWS_ACCESS_KEY_ID" in told["key"]
    assert "does not do what" in told["nobody"]
    assert not any(SECRET in text or KEY_NAME in text for text in told.values())


def test_a_store_travels_to_tasks_without_credentials(apart: Run, store: ObjectServer) -> None:
    """P4: each node has its own; a pickled writer has none."""
    import pickle

    pickled = pickle.dumps(files_at(URL))

    assert SECRET.encode() not in pickled and KEY_NAME.encode() not in pickled
    assert pickle.loads(pickled).location == URL


def _definition(kind: str, path: str, form: str) -> Definition:
    return read_definition(
        {
            "kind": kind,
            "name": "archive",
            "entity": "orders",
            "path": path,
            "format": form,
            **({} if kind == "capture" else {"query": "SELECT 1", "work": "/tmp/work"}),
        }
    )


def test_every_kind_takes_every_form_in_a_store(apart: Run, store: ObjectServer) -> None:
    for form in FORMS:
        check_path(_definition("capture", URL, form))
        check_target(_definition("sql", URL, form))

    with pytest.raises(OptionError, match="absent"):
        check_path(_definition("capture", "s3a://absent/captured", PARQUET))


@pytest.mark.parametrize(
    ("module", "form", "extra"),
    [("obstore.store", PARQUET, "objects"), ("pyiceberg", ICEBERG, "iceberg")],
)
def test_without_a_library_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: str, form: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(OptionError, match=rf"shardbus-spark\[{extra}\]"):
        check_path(_definition("capture", URL, form))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("gs://bucket/captured", "Google's object stores are not supported"),
        ("az://container/captured", "write abfss://"),
    ],
)
def test_stores_that_were_not_tried_are_refused_by_name(url: str, told: str) -> None:
    """P4: rather than to promise what nobody has seen."""
    for kind in ("capture", "sql"):
        check = check_path if kind == "capture" else check_target
        with pytest.raises(OptionError, match=told):
            check(_definition(kind, url, PARQUET))


def test_the_key_of_an_account_of_azure_is_named_and_not_told() -> None:
    """P4: Hadoop looks it up in the environment of each process."""
    assert spark_conf_from({"AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0"}) == {
        "spark.hadoop.fs.azure.account.key": "${env.AZURE_STORAGE_ACCOUNT_KEY}"
    }


def test_settings_of_spark_come_from_the_operator_and_follow_the_endpoint() -> None:
    endpoint: Final = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "north"}

    assert spark_conf_from({}) == {}
    assert spark_conf_from(endpoint) == {
        "spark.hadoop.fs.s3a.endpoint.region": "north",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    told = {**endpoint, SPARK_CONF: '["spark.hadoop.fs.s3a.endpoint.region=a=b"]'}
    assert spark_conf_from(told)["spark.hadoop.fs.s3a.endpoint.region"] == "a=b"
    for wrong in ("{", "{}", '["spark.ui"]'):
        with pytest.raises(OptionError, match=SPARK_CONF):
            spark_conf_from({SPARK_CONF: wrong})

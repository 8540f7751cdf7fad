"""A key stays where it was given: not in what tasks get, not in errors, not in what is shown."""

import io
import logging
import pickle
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType
from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions
from spark.tests.fake_lane import FakeLane
from spark.tests.streams import EVERYTHING

from shardbus_spark.address import Address, address_from
from shardbus_spark.credentials import Credential, Given
from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.options import KNOWN, RENAMED, _tell_renamed, read_options
from shardbus_spark.pipelines.slice_sink import SliceSink
from shardbus_spark.reading import CONNECTIONS_MAX, _connections, client_for
from shardbus_spark.redaction import REGEX
from shardbus_spark.source import ShardbusSource

SECRET: Final = "canary-0123456789"
BODY: Final = StructType().add("body", "binary")
STRING: Final = f"Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey={SECRET}"
# Spark's default for spark.redaction.regex: it hides a value whose name or text matches.
HIDDEN: Final = re.compile("(?i)secret|password|token|access[.]?key|credential")


def _ways(place: Path) -> list[dict[str, str]]:
    """All ways to give a key."""
    file = place / "credential"
    file.write_text(STRING + "\n", encoding="utf-8")
    return [
        {"accessKey": SECRET, "keyName": "n"},
        {"connectionString": STRING},
        {"credentialFile": str(file)},
        {"key": SECRET},
    ]


def _source(lane: FakeLane, **options: str) -> ShardbusSource:
    return ShardbusSource({"endpoint": lane.url, "entity": "orders", **options})


def _planned(source: ShardbusSource, reader: DataSourceReader | DataSourceStreamReader) -> bytes:
    """What Spark's own planner makes of a reader: the function and the partitions of its tasks."""
    out = io.BytesIO()
    write_read_func_and_partitions(
        out,
        reader=reader,
        data_source=source,
        schema=BODY,
        max_arrow_batch_size=1000,
        binary_as_bytes=True,
    )
    return out.getvalue()


def _as_spark_keeps(source: ShardbusSource) -> ShardbusSource:
    """As another process of the driver gets it."""
    found: ShardbusSource = pickle.loads(pickle.dumps(source))
    return found


def test_no_task_of_a_read_gets_a_key_and_all_can_read(lane: FakeLane, tmp_path: Path) -> None:
    lane.send(5)
    for way in _ways(tmp_path):
        source = _as_spark_keeps(_source(lane, **way))
        sent = _planned(source, source.reader(BODY))
        partitions = source.reader(BODY).partitions()
        reader = pickle.loads(pickle.dumps(source.reader(BODY)))

        rows = sum(batch.num_rows for one in partitions for batch in reader.read(one))
        assert b"SharedAccessSignature" in sent
        assert SECRET.encode() not in sent
        assert rows == 10


@pytest.mark.parametrize("mode", [{}, {"mode": "consume", "readerName": "r"}])
def test_no_task_of_a_stream_gets_a_key_and_all_can_read(
    lane: FakeLane, tmp_path: Path, mode: Mapping[str, str]
) -> None:
    lane.send(5)
    for way in _ways(tmp_path):
        source = _as_spark_keeps(_source(lane, **way, **mode))
        stream = source.streamReader(BODY)
        start = stream.initialOffset()
        partitions = stream.partitions(start, stream.latestOffset(start, EVERYTHING))
        sent = _planned(source, stream) + pickle.dumps(partitions)
        task = pickle.loads(pickle.dumps(stream))

        rows = sum(batch.num_rows for one in partitions for batch in task.read(one))
        assert b"SharedAccessSignature" in sent
        assert SECRET.encode() not in sent
        assert rows == 10
        stream.stop()


def test_no_task_of_a_write_gets_a_key(lane: FakeLane, tmp_path: Path) -> None:
    for way in _ways(tmp_path):
        writers = [
            _source(lane, **way).writer(BODY, False),
            _source(lane, **way).streamWriter(BODY, False),
            SliceSink({"endpoint": lane.url, "entity": "orders", "batch": "1", **way}).writer(
                BODY, False
            ),
        ]
        sent = pickle.dumps(writers)
        assert sent.count(b"SharedAccessSignature") == len(writers)
        assert SECRET.encode() not in sent


def test_what_tasks_get_is_for_their_entity_and_ends() -> None:
    options = read_options({"entity": "news/Subscriptions/a b", "taskAccessMs": "60000"})

    token = unquote(options.task_address().authorization())

    assert "sr=sb://localhost/news/Subscriptions/a b&" in token
    [expires_at_s] = map(int, re.findall(r"se=(\d+)", token))
    assert 0 < expires_at_s - time.time() <= 60


def test_every_batch_of_a_stream_is_signed_anew(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = _source(lane, accessKey=SECRET).streamReader(BODY)
    lane.send(1)
    start = stream.initialOffset()
    end = stream.latestOffset(start, EVERYTHING)
    first = stream.partitions(start, end)
    later_s = time.time() + 100_000
    monkeypatch.setattr(time, "time", lambda: later_s)

    second = stream.partitions(start, end)

    assert pickle.dumps(first) != pickle.dumps(second)


def test_a_key_that_is_pickled_all_the_same_is_dropped_and_told_of() -> None:
    found: Address = pickle.loads(pickle.dumps(Address("grpc://h", Credential("n", SECRET))))

    with pytest.raises(ShardbusError, match="only the driver signs"):
        found.authorization()


def test_a_file_may_hold_a_key_a_token_or_a_connection_string(tmp_path: Path) -> None:
    file = tmp_path / "credential"
    found = []
    for text in (SECRET, f"SharedAccessSignature sr=x&sig={SECRET}", STRING):
        file.write_text(text + "\n", encoding="utf-8")
        address = address_from("", Given(file=str(file), key_name="mine"))
        found.append((address.url, address.authorization().partition("&se=")[2][10:]))

    assert found == [
        ("grpc://localhost:5301", "&skn=mine"),
        ("grpc://localhost:5301", ""),
        ("grpc+tls://h:5301", "&skn=n"),
    ]


def test_a_key_that_is_changed_in_its_file_is_used_from_then_on(tmp_path: Path) -> None:
    file = tmp_path / "credential"
    file.write_text("SharedAccessSignature first", encoding="utf-8")
    address = address_from("", Given(file=str(file)))
    file.write_text("SharedAccessSignature second", encoding="utf-8")

    assert address.authorization() == "SharedAccessSignature second"


@pytest.mark.parametrize(
    "content",
    [
        f"{SECRET}\n{SECRET}",
        f"{SECRET};x=1",
        f"Endpoint=sb://h;{SECRET}",
        f"Endpoint=sb://[{SECRET};SharedAccessKeyName=n;SharedAccessKey={SECRET}",
        f"Endpoint={SECRET};SharedAccessKeyName=n;SharedAccessKey={SECRET}",
        f"Endpoint=sb://h;SharedAccesKey={SECRET}",
        "",
        SECRET * 10_000,
    ],
)
def test_what_is_wrong_with_a_secret_is_told_without_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credential"
    file.write_text(content, encoding="utf-8")
    file_error = _refusal({"credentialFile": str(file)})
    for error in (file_error, _refusal({"connectionString": content or "x"})):
        assert SECRET not in error


def test_bytes_that_are_no_text_are_not_told_either(tmp_path: Path) -> None:
    file = tmp_path / "credential"
    file.write_bytes(SECRET.encode() + b"\xff")

    assert "is not UTF-8 text" in _refusal({"credentialFile": str(file)})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    name = str(tmp_path / "nothing")

    assert f"{name!r}, which the driver cannot read: No such" in _refusal({"credentialFile": name})


@pytest.mark.parametrize("endpoint", [STRING, f"http://me:{SECRET}@h", f"grpc://h:{SECRET}=@x:y"])
def test_a_secret_in_the_wrong_option_is_not_told(endpoint: str) -> None:
    assert "it must look like grpc://host:5301" in _refusal({"endpoint": endpoint})


def _refusal(options: Mapping[str, str]) -> str:
    """What is said, with all that led to it."""
    with pytest.raises(OptionError) as caught:
        read_options({"entity": "a", **options})
    told = caught.value
    chain = [str(one) for one in (told, told.__cause__, told.__context__) if one is not None]
    if not told.__suppress_context__ or told.__cause__ is not None:
        assert SECRET not in "".join(chain)
    assert SECRET not in str(told)
    return str(told)


def test_variables_open_a_bus_when_no_option_does(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("SharedAccessSignature of-file", encoding="utf-8")
    variables = {
        "SHARDBUS_CREDENTIAL_FILE": str(file),
        "SHARDBUS_CONNECTION_STRING": STRING,
        "SHARDBUS_TOKEN": "SharedAccessSignature of-token",
        "SHARDBUS_KEY": SECRET,
        "SHARDBUS_KEY_NAME": "of-variable",
        "SHARDBUS_FLIGHT_URL": "grpc://there:1",
        "SHARDBUS_TLS_CA": "/ca.pem",
    }
    shown = []
    for name in list(variables)[:4]:
        address = address_from("", environment=variables)
        shown.append(address.authorization().rpartition("skn=")[2])
        assert (address.url, address.ca_file) == ("grpc://there:1", "/ca.pem")
        del variables[name]

    of = "SharedAccessSignature of-"
    assert shown == [f"{of}file", "n", f"{of}token", "of-variable"]


def test_options_go_before_variables() -> None:
    variables = {"SHARDBUS_TOKEN": SECRET, "SHARDBUS_FLIGHT_URL": "grpc://there:1"}

    keyed = address_from("grpc://here:2", Given(key="k"), environment=variables)
    named = address_from("", Given(connection_string=STRING), environment=variables)

    assert (keyed.url, keyed.credential.key, keyed.credential.token) == ("grpc://here:2", "k", "")
    assert (named.url, named.credential.token) == ("grpc+tls://h:5301", "")


def test_the_old_name_of_the_key_works_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    _tell_renamed.cache_clear()
    with caplog.at_level(logging.WARNING):
        options = read_options({"entity": "a", "Key": SECRET})

    assert options.address.credential.key == SECRET
    assert "option key is now called accessKey" in caplog.text
    assert SECRET not in caplog.text


def test_spark_hides_every_option_that_holds_a_secret() -> None:
    assert all(HIDDEN.search(name) for name in ("accessKey", "token", "credentialFile"))
    # Spark looks at values, too: this one always names what it holds.
    assert HIDDEN.search(STRING)
    assert not set(RENAMED) & set(KNOWN)


def test_nothing_that_is_shown_of_a_credential_has_it() -> None:
    shown = repr(
        [
            address_from("", Given(connection_string=STRING)),
            Given("", STRING, SECRET, SECRET),
            Credential("n", SECRET, SECRET),
        ]
    )

    assert SECRET not in shown


def test_a_process_has_one_connection_however_many_tokens_it_is_given(lane: FakeLane) -> None:
    before = len(_connections)
    for number in range(50):
        client_for(Address(lane.url, Credential("", "", f"token {number}"))).describe("orders")
    assert len(_connections) <= before + 1
    for port in range(1, 3 * CONNECTIONS_MAX):
        client_for(Address(f"grpc://127.0.0.1:{port}"))

    assert len(_connections) == CONNECTIONS_MAX


@pytest.mark.parametrize(
    "text",
    [
        f'options {{\n    key: "accessKey"\n    value: "{SECRET}"\n  }}',
        f'options {{\n    key: "key"\n    value: "{SECRET}"\n  }}',
        f'options {{\n    key: "token"\n    value: "say \\"{SECRET}\\""\n  }}',
        f'options {{\n    key: "connectionString"\n    value: "{STRING}"\n  }}',
        f'options {{\n    key: "ACCESSKEY"\n    value: "{SECRET}[truncated(size=90)]"\n  }}',
        f"query: \"CREATE VIEW v OPTIONS (entity \\'q\\', accessKey \\'{SECRET}\\')\"",
        f"CREATE VIEW v USING shardbus OPTIONS (`accessKey` = '{SECRET}', entity 'q')",
        f'SELECT * FROM t WITH (connectionString = "{STRING}")',
        f"who knows where: {STRING};EntityPath=q",
        f"SharedAccessSignature sr=sb%3A%2F%2Fh&sig={SECRET}&se=1&skn=n",
    ],
)
def test_what_spark_hides_of_texts_is_the_secret(text: str) -> None:
    assert SECRET in text
    assert SECRET not in re.sub(REGEX, "*********(redacted)", text)


def test_what_is_no_secret_stays_in_texts() -> None:
    text = 'options {\n  key: "partition_key"\n  value: "mine"\n}\nkey: "entity"\n  value: "q"'
    assert re.sub(REGEX, "", text) == text

"""The pipelines of a server: its entities, its settings, and what must be installed (P9)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.definition import KINDS, Definition
from shardbus.app.pipelines.driver_inputs import (
    access_to_lane,
    forget_work,
    job,
    location,
    missing_libraries,
)
from shardbus.app.pipelines.entities import BusEntities
from shardbus.app.pipelines.known import check_unclaimed
from shardbus.app.pipelines.replay import Replay
from shardbus.app.pipelines.sql import Sql
from shardbus.app.server.settings import load
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND
from shardbus.core.limits import LEASE_MS_DEFAULT
from shardbus.gateway.http.api.groups import api_groups
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import KindReader
from tests.support.refusals import refusal_of
from tests.unit.gateway.http.messages_web import MessagesWeb

DEFAULTS = load({}, {}, default_file=Path("no such file"))
OF_Q = Definition("archive", Capture(entity="q", path="p"))
TO_Q = Definition(
    "again",
    Replay(kind="replay", entity="q", path="p", from_pipeline="archive", format="parquet"),
    "i",
)


def but(definition: Definition, **members: object) -> Definition:
    """The same with other members."""
    return Definition(
        definition.name,
        KindReader(KINDS).convert({**msgspec.to_builtins(definition.task), **members}),
        definition.incarnation,
    )


@pytest.fixture
def web() -> Iterator[MessagesWeb]:
    web = MessagesWeb()
    web.with_groups(api_groups(web.bus, web.counts))
    yield web
    web.close()


@pytest.fixture
def entities(web: MessagesWeb) -> BusEntities:
    return BusEntities(EntityPlaces(web.bus, web.counts, None))


def test_queues_and_their_dead_letters_can_be_captured(entities: BusEntities) -> None:
    entities.check(OF_Q)
    entities.check(but(OF_Q, keep=True))
    entities.check(but(OF_Q, entity="q/$DeadLetterQueue"))
    with refusal_of(NOT_FOUND, "'gone'"):
        entities.check(but(OF_Q, entity="gone"))


def test_sessions_can_be_captured(web: MessagesWeb, entities: BusEntities) -> None:
    """P4"""
    web.create_sessions("held")
    held = but(OF_Q, entity="held")

    entities.check(but(held, keep=True))
    entities.check(but(held, entity="held/$DeadLetterQueue"))
    entities.check(held)


def test_the_reader_of_a_deleted_pipeline_is_dropped_and_gives_back_what_it_has(
    web: MessagesWeb, entities: BusEntities
) -> None:
    me = {"reader": OF_Q.task.reader("archive"), "owner": "driver"}
    web.put("q", {"body": "hello"})
    web.post("q/readers/open", **me)
    web.post("q/readers/claim", **me, claims=[{"fragment": 0, "ordinal": 1, "count_max": 9}])
    assert web.take("q").status == 204

    web.run(entities.drop_reader(OF_Q))

    assert web.take("q").body == b"hello"


def test_the_claims_of_a_pipeline_that_does_not_run_are_kept_for_it(
    web: MessagesWeb, entities: BusEntities
) -> None:
    """P4: the next start runs the batch again under its number."""
    me = {"reader": OF_Q.task.reader("archive"), "owner": "driver"}
    for body in ("one", "two"):
        web.put("q", {"body": body})
    web.post("q/readers/open", **me)
    assert web.run(entities.hold_claims(OF_Q)) == 0
    web.post("q/readers/claim", **me, claims=[{"fragment": 0, "ordinal": 1, "count_max": 9}])

    for _ in range(10):
        web.loop.pass_time(LEASE_MS_DEFAULT / 1000 - 1)
        assert web.run(entities.hold_claims(OF_Q)) == 2
    assert web.take("q").status == 204

    web.loop.pass_time(LEASE_MS_DEFAULT / 1000)
    assert web.take("q").body == b"one"


def test_the_claims_of_a_pipeline_are_kept_on_every_entity_that_it_reads(
    web: MessagesWeb, entities: BusEntities
) -> None:
    """P11: what was cut off in its batch is not received by others before the batch is repeated."""
    query = "select body from messages union all select body from more"
    both = Definition(
        "both",
        Sql(kind="sql", entity="q", entities="more=more, gone=gone", path="p", query=query),
        "i",
    )
    me = {"reader": both.task.reader("both"), "owner": "driver"}
    web.create("more")
    web.put("more", {"body": "one"})
    web.post("more/readers/open", **me)
    web.post("more/readers/claim", **me, claims=[{"fragment": 0, "ordinal": 1, "count_max": 9}])

    for _ in range(3):
        web.loop.pass_time(LEASE_MS_DEFAULT / 1000 - 1)
        assert web.run(entities.hold_claims(both)) == 1
    assert web.take("more").status == 204
    with refusal_of(NOT_ALLOWED, "both", "1 messages"):
        web.run(check_unclaimed(entities, both))


def test_a_reader_that_is_not_there_does_not_keep_a_pipeline(
    web: MessagesWeb, entities: BusEntities
) -> None:
    web.run(entities.drop_reader(OF_Q))
    web.run(entities.drop_reader(but(OF_Q, entity="gone")))
    web.run(entities.drop_reader(but(OF_Q, keep=True)))
    for none in (OF_Q, but(OF_Q, entity="gone"), but(OF_Q, keep=True)):
        assert web.run(entities.hold_claims(none)) == 0


def test_a_driver_writes_below_the_directory_or_url_of_captured_data(tmp_path: Path) -> None:
    own = replace(DEFAULTS, data_dir=tmp_path)
    far = replace(own, capture_dir="s3a://bucket/captured/", spark_master="spark://host:7077")

    assert location(own, "a/b") == str(tmp_path / "captured" / "a" / "b")
    assert location(replace(own, capture_dir=str(tmp_path)), "a") == str(tmp_path / "a")
    assert job(far, OF_Q, {})["path"] == "s3a://bucket/captured/p"
    assert job(far, OF_Q, {})["spark_master"] == "spark://host:7077"


def test_the_lane_is_dialled_as_it_listens(tmp_path: Path) -> None:
    near = replace(DEFAULTS, data_dir=tmp_path, flight_port=7)
    everywhere = replace(near, host="0.0.0.0", sas_key="k")
    certified = replace(everywhere, host="10.0.0.1", tls_cert=tmp_path / "chain.pem")

    assert (access_to_lane(near, "Root").url, access_to_lane(near, "Root").ca_file) == (
        "grpc://localhost:7",
        "",
    )
    secure = access_to_lane(everywhere, "Root")
    assert (secure.url, secure.ca_file) == (
        "grpc+tls://localhost:7",
        str(tmp_path / "tls" / "ca.pem"),
    )
    assert (access_to_lane(certified, "Root").url, access_to_lane(certified, "Root").ca_file) == (
        "grpc+tls://10.0.0.1:7",
        "",
    )


def test_what_is_not_installed_is_known_by_name() -> None:
    assert missing_libraries(("json", "no_such_library")) == ["no_such_library"]


def test_rows_can_be_replayed_to_where_messages_can_be_sent(
    web: MessagesWeb, entities: BusEntities
) -> None:
    """P5."""
    web.create_sessions("held")

    entities.check(TO_Q)
    entities.check(but(TO_Q, entity="held"))
    with refusal_of(NOT_FOUND, "'gone'"):
        entities.check(but(TO_Q, entity="gone"))
    with refusal_of(NOT_ALLOWED, "'q/$DeadLetterQueue'"):
        entities.check(but(TO_Q, entity="q/$DeadLetterQueue"))
    web.run(entities.drop_reader(TO_Q))


def test_the_plan_of_a_replay_is_beside_captured_data_and_goes_with_it(tmp_path: Path) -> None:
    """P5."""
    near = replace(DEFAULTS, data_dir=tmp_path)
    work = tmp_path / "captured" / "_replays" / "again-i"
    (work / "rows").mkdir(parents=True)
    (work.parent / "other-i").mkdir()

    told = job(near, TO_Q, {})
    forget_work(replace(near, capture_dir=f"file://{tmp_path}/captured"), TO_Q)
    assert (told["work"], told["path"]) == (str(work), str(tmp_path / "captured" / "p"))
    assert "from_pipeline" not in told
    assert work.exists()

    forget_work(near, OF_Q)
    forget_work(near, TO_Q)
    forget_work(near, TO_Q)
    assert [place.name for place in work.parent.iterdir()] == ["other-i"]

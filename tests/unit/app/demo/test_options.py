"""What `shardbus demo` passes on to the bus."""

import pytest

from shardbus.app.server.setting import Kind
from shardbus.app.server.settings import TABLE, load
from shardbus.demo.options import serve_arguments


def test_nothing_that_was_not_given_is_passed_on() -> None:
    assert serve_arguments({}, ()) == []


def test_every_setting_is_passed_on_as_it_was_given() -> None:
    given = {"tier": "premium", "http_port": "0", "broker_processes": "True"}

    assert serve_arguments({**given, "partitioned_by_default": "False"}, ("a.toml", "b.toml")) == [
        *("--config", "a.toml", "--config", "b.toml"),
        *("--http-port", "0"),
        "--broker-processes",
        *("--tier", "premium"),
        "--no-partitioned-by-default",
    ]


@pytest.mark.parametrize("name", [row.name for row in TABLE if row.kind is Kind.SWITCH])
def test_a_switch_that_is_off_by_default_can_be_given_only_as_on(name: str) -> None:
    row = next(row for row in TABLE if row.name == name)

    on = serve_arguments({name: "True"}, ())

    assert on == [row.flag]
    assert load({name: "True"}, {}).broker_processes is (name == "broker_processes")

"""A bus that is set up before it serves."""

import asyncio
from pathlib import Path

import pytest

from shardbus.app.cli.failures import Refused
from shardbus.app.cli.sas import Credential
from shardbus.app.server.setting import SettingError
from shardbus.app.server.settings import load
from shardbus.app.setup.application import Blocked
from shardbus.app.setup.model import SetupError
from shardbus.app.setup.starting import set_up
from shardbus.core.namespace.entity import FragmentHome
from shardbus.core.namespace.placement import even_hash_starts
from tests.support.refusals import check_named
from tests.unit.app.setup.reading import by_path, from_toml
from tests.unit.app.setup.site import Town

NO_FILE = Path("no-such-directory/shardbus.toml")


def written(directory: Path, name: str, text: str) -> str:
    (directory / name).write_text(text, encoding="utf-8")
    return str(directory / name)


def test_what_is_missing_is_made_and_what_is_there_is_changed() -> None:
    """R5, R31."""
    town = Town()
    town.made(from_toml('[[queue]]\nname = "a"\n[[queue]]\nname = "kept"\n'))
    said = from_toml('[[queue]]\nname = "a"\nlock-duration = "5s"\n[[queue]]\nname = "b"\n')

    asyncio.run(set_up(town.site, said, Credential()))

    found = by_path(town.everything())
    assert set(found) == {"a", "b", "kept"}
    assert found["a"].elements["LockDuration"] == "PT5S"


def test_gateways_that_start_together_do_not_stand_in_each_others_way() -> None:
    town = Town()
    queues = "".join(f'[[queue]]\nname = "q{number}"\n' for number in range(12))
    said = from_toml(queues + '[[topic]]\nname = "t"\n[[topic.subscription]]\nname = "s"\n')

    async def start() -> None:
        await asyncio.gather(*(set_up(town.site, said, Credential()) for _ in range(6)))

    asyncio.run(start())

    assert len(town.everything().entities) == 14


def test_what_cannot_be_changed_keeps_the_bus_from_starting_and_is_named() -> None:
    """R6."""
    town = Town()
    town.made(from_toml('[[queue]]\nname = "a"\npartitioning = true\n'))
    said = from_toml('[[queue]]\nname = "a"\npartitioning = false\n')

    with pytest.raises(Blocked, match="queue a: EnablePartitioning is fixed at creation"):
        asyncio.run(set_up(town.site, said, Credential()))


def test_a_repartition_does_not_keep_the_bus_from_starting() -> None:
    """P6, R6: the file that the queue was created from says what it was then."""
    town = Town()
    said = from_toml(
        '[[queue]]\nname = "a"\npartitioning = false\n[[queue]]\nname = "b"\npartitioning = false\n'
    )
    town.made(said)
    queue = town.namespace.queue("a")
    prepared = queue.preparing([FragmentHome(1, 0), FragmentHome(2, 0)], even_hash_starts(2), 0)
    spec = queue.spec.copy()
    spec.is_partitioned = True
    town.namespace._directory.put(prepared.switched(spec, 0))

    planned = town.planned(said)
    asyncio.run(set_up(town.site, said, Credential()))

    [warning] = planned.warnings
    assert "line 1" in warning and "a was repartitioned" in warning
    assert town.visited(lambda current: current.is_repartitioned("a"))
    assert not town.visited(lambda current: current.is_repartitioned("b"))


def test_what_the_bus_refuses_keeps_it_from_starting() -> None:
    said = from_toml('[[queue]]\nname = "a"\nsize-gb = 7\n')

    with pytest.raises(Refused) as refused:
        asyncio.run(set_up(Town().site, said, Credential()))
    check_named(str(refused.value), "bus.toml, line 1", "queue[0]", "MaxSizeIn")


def test_files_of_every_form_may_be_given_together_and_the_last_setting_wins(
    tmp_path: Path,
) -> None:
    """R7, R31."""
    queue = {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "b/arm"}
    bus = '{"type": "Microsoft.ServiceBus/namespaces", "name": "b", "sku": {"name": "Premium"}}'
    files = [
        written(tmp_path, "a.toml", 'brokers = 2\ntier = "basic"\n[[queue]]\nname = "ours"\n'),
        written(tmp_path, "b.toml", "brokers = 3\n"),
        written(
            tmp_path, "c.json", '{"UserConfig": {"Namespaces": [{"Queues": [{"Name": "em"}]}]}}'
        ),
        written(
            tmp_path,
            "d.json",
            f'{{"$schema": "s", "resources": [{bus}, {str(queue).replace(chr(39), chr(34))}]}}',
        ),
    ]

    settings = load({}, {}, config=files, default_file=NO_FILE)
    by_environment = load({}, {"SHARDBUS_CONFIG": ":".join(files)}, default_file=NO_FILE)
    overruled = load({"tier": "standard"}, {}, config=files, default_file=NO_FILE)

    assert (settings.brokers, settings.tier) == (3, "premium")
    assert set(by_path(settings.setup)) == {"ours", "em", "arm"}
    assert by_environment == settings
    assert overruled.tier == "standard"


def test_two_files_do_not_describe_one_entity(tmp_path: Path) -> None:
    files = [written(tmp_path, name, '[[queue]]\nname = "q"\n') for name in ("a.toml", "b.toml")]

    with pytest.raises(
        SetupError, match=r"b\.toml, line 1: .* is already described at .*a\.toml, line 1"
    ):
        load({}, {}, config=files, default_file=NO_FILE)


def test_a_mistake_in_a_file_keeps_the_bus_from_starting(tmp_path: Path) -> None:
    for text in ('[[queue]]\nnam = "q"\n', '[[topics]]\nname = "t"\n'):
        with pytest.raises((SetupError, SettingError), match=r"a\.toml"):
            load({}, {}, config=[written(tmp_path, "a.toml", text)], default_file=NO_FILE)

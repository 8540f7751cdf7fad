"""Files: which form they have, what may stand in them, and parameters."""

from pathlib import Path

import pytest

from shardbus.app.setup.files import FileUnreadable, read_config, read_parameters, read_setup
from shardbus.app.setup.model import SetupError
from tests.unit.app.setup.reading import by_path

TEMPLATE = """{
  // who may read this
  "$schema": "https://example.org/deploymentTemplate.json#",
  "contentVersion": "1.0.0.0", /* and
  this */
  "resources": [
    {"type": "Microsoft.ServiceBus/namespaces", "name": "b", "sku": {"name": "Basic"}},
    {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "b/q//not a comment"}
  ]
}"""


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_comments_are_no_part_of_a_template_and_texts_are(tmp_path: Path) -> None:
    path = written(tmp_path, "t.json", TEMPLATE)

    with pytest.raises(SetupError, match="'b/q//not a comment' does not have the 2 parts"):
        read_setup(path, {}, ())


def test_a_file_of_the_server_holds_settings_and_entities(tmp_path: Path) -> None:
    text = '\ufefftier = "basic"\nbrokers = 2\n[[queue]]\nname = "q"\n'
    config = read_config(written(tmp_path, "bus.toml", text))

    assert config.settings == {"tier": "basic", "brokers": 2}
    assert set(by_path(config.blueprint)) == {"q"}


def test_a_template_names_the_tier_of_the_server(tmp_path: Path) -> None:
    """R7."""
    text = TEMPLATE.replace("//not a comment", "")

    assert read_config(written(tmp_path, "t.json", text)).settings == {"tier": "basic"}


def test_settings_in_a_file_are_passed_over_and_other_keys_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "bus.toml", 'brokers = 2\nhots = "x"\n[[queue]]\nname = "q"\n')

    assert set(by_path(read_setup(path, {}, ("brokers", "hots")))) == {"q"}
    with pytest.raises(SetupError, match=r"line 2: hots: there is no hots; did you mean host\?"):
        read_setup(path, {}, ("brokers", "host"))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.toml", "queue = [", "is not TOML"),
        ("a.json", '{\n"UserConfig": ,}', "line 2, column 15: this is not JSON"),
        ("a.json", '{"a": 1, "a": 2}', "'a' occurs twice"),
        ("a.json", "[" * 100_000, "cannot be read"),
        ("a.json", "[]", "neither an emulator's"),
    ],
)
def test_what_cannot_be_parsed_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        read_setup(written(tmp_path, name, text), {}, ())


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(FileUnreadable, match="cannot be read"):
        read_setup(tmp_path / "a.toml", {}, ())
    with pytest.raises(FileUnreadable, match="is not UTF-8"):
        read_setup(tmp_path / "b.toml", {}, ())


def test_parameters_come_from_files_and_from_words(tmp_path: Path) -> None:
    text = '{"$schema": "s", "parameters": {"a": {"value": 1}, "b": {"value": "x"}}}'
    path = written(tmp_path, "p.json", text)

    values = read_parameters([path], ["b=y=z", "c=true", "d=[1, 2]", "e=null"])

    assert values == {"a": 1, "b": "y=z", "c": True, "d": [1, 2], "e": "null"}


@pytest.mark.parametrize("text", ["[]", '{"parameters": 1}', '{"parameters": {"a": 1}}'])
def test_a_bad_file_of_parameters_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SetupError, match=r"p\.json: "):
        read_parameters([written(tmp_path, "p.json", text)], [])


def test_only_templates_have_parameters(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, "a.toml", ""),
        written(tmp_path, "a.json", '{"UserConfig": {}}'),
    ]

    for path in paths:
        with pytest.raises(SetupError, match="only ARM templates have parameters"):
            read_setup(path, {"a": 1}, ())

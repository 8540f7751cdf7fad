"""The guide to set-up, done as it is written: files, commands and what they print."""

import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from shardbus.app.cli.main import main
from shardbus.gateway.http.api.operations.pipelines import PipelinePages
from tests.unit.app.setup.site import Town
from tests.unit.app.setup.test_pipelines import pipelines_in
from tests.unit.gateway.site import run_client

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs" / "guides" / "setup.md"
FILES: Final = ("bus.toml", "Config.json", "template.json")
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> list[str]:
    text = GUIDE.read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found in languages]


def commands() -> list[tuple[str, str]]:
    """Each command with what the guide says that it prints."""
    parts = re.split(r"^\$ shardbus ", "".join(blocks("console")), flags=re.MULTILINE)[1:]
    return [(head, told) for head, _, told in (part.partition("\n") for part in parts)]


def test_the_guide_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R31."""
    monkeypatch.chdir(tmp_path)
    for name, body in zip(FILES, blocks("toml", "json"), strict=True):
        (tmp_path / name).write_text(body, encoding="utf-8")
    town = Town(others=[PipelinePages(pipelines_in(tmp_path / "pipelines"))])

    def work() -> None:
        for command, told in commands():
            words = [*command.split(), "--endpoint", f"http://127.0.0.1:{town.port}"]
            result = CliRunner().invoke(main, words, catch_exceptions=False)
            assert result.exit_code in (0, 5), result.output
            assert result.output == told, command

    assert len(commands()) == 8
    run_client(town, tmp_path, work)

"""The reference page names every path of the API and every metric, and no other."""

import json
import re
from pathlib import Path

from shardbus.gateway.http.api.groups import api_groups
from shardbus.gateway.http.observing.metrics import TABLE
from shardbus.message.sent import read_batch
from tests.unit.gateway.http.kept_backups import Kept as KeptBackups
from tests.unit.gateway.http.kept_pipelines import Kept
from tests.unit.gateway.http.web import Web

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "http-api.md"


def test_every_path_is_on_the_page(web: Web) -> None:
    groups = api_groups(
        web.bus,
        web.counts,
        read_batch=read_batch,
        pipelines=Kept(),
        backups=KeptBackups(),
        overviews=web.overviews,
        jobs=web.jobs,
    )
    web.with_groups(groups)
    paths = json.loads(web.fetch("GET", "/api/v1/openapi.json").body)["paths"]

    on_page = re.findall(r"^\| (\w+) `(/api/v1/[^`]*)` \|", PAGE.read_text(encoding="utf-8"), re.M)

    assert on_page == [(method.upper(), path) for path in paths for method in paths[path]]


def test_every_metric_is_on_the_page_with_its_kind() -> None:
    text = PAGE.read_text(encoding="utf-8")

    on_page = re.findall(r"^\| `((?:shardbus|process)_\w+)` \| (\w+) \|", text, re.M)

    assert on_page == [(name, kind) for name, kind, _ in TABLE]

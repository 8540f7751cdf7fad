"""The files of the portal: which are there, how they are sent, what browsers may do with them."""

import re
from pathlib import Path
from typing import Final

import pytest

from shardbus.gateway.http.portal import files
from shardbus.gateway.http.portal.files import PortalFiles
from shardbus.gateway.http.server.message import HttpResponse
from tests.unit.gateway.http.web import Web

STATIC: Final = Path(files.__file__).parent / "static"
# A small budget: what a browser loads before it shows the first page. It is raised on purpose only:
# the last time for the report, the states of pipelines, and edits that are computed per message.
BYTES_MAX: Final = 340_000


def ask(web: Web, target: str, method: str = "GET", **headers: str) -> HttpResponse:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.loop.run_until_complete(
        web.site.respond(web.request(method, target, headers=given, token=""))
    )


def test_every_file_is_served_with_its_type_and_the_policy(web: Web) -> None:
    """R44, R48"""
    names = PortalFiles().names()

    assert {"index.html", "main.js", "style.css", "pages/overview.js", "icon.svg"} <= set(names)
    for name in names:
        answer = ask(web, f"/portal/{name}")
        headers = dict(answer.headers)
        assert answer.status == 200
        assert answer.body == (STATIC / name).read_bytes()
        assert (
            answer.content_type.split(";")[0]
            == {
                "html": "text/html",
                "js": "text/javascript",
                "css": "text/css",
                "svg": "image/svg+xml",
            }[name.rpartition(".")[2]]
        )
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize("target", ["/portal", "/portal/", "/portal/?x=1"])
def test_the_page_itself_is_at_the_directory(web: Web, target: str) -> None:
    answer = ask(web, target)

    assert (answer.status, answer.content_type) == (200, "text/html; charset=utf-8")


def test_a_file_that_the_browser_has_is_not_sent_again(web: Web) -> None:
    tag = dict(ask(web, "/portal/main.js").headers)["ETag"]

    again = ask(web, "/portal/main.js", If_None_Match=f'"other", W/{tag}')
    other = ask(web, "/portal/main.js", If_None_Match='"other"')

    assert (again.status, again.body) == (304, b"")
    assert other.status == 200


@pytest.mark.parametrize(
    "target",
    [
        "/portal/../files.py",
        "/portal/%2e%2e/files.py",
        "/portal/nothing.js",
        "/portal/__init__.py",
        "/portal//etc/passwd",
        "/portal/static/main.js",
    ],
)
def test_no_path_leads_anywhere_else(web: Web, target: str) -> None:
    assert ask(web, target).status == 404


def test_a_queue_may_be_called_portal(web: Web) -> None:
    """Management always sends its api-version."""
    web.loop.run_until_complete(web.namespace.create_queue("portal", web.namespace.new_spec()))

    managed = web.fetch("GET", "/portal?api-version=2021-05")
    sent = web.fetch("POST", "/portal/messages", b"hello")
    page = ask(web, "/portal/")

    assert (managed.status, managed.content_type.split(";")[0]) == (200, "application/atom+xml")
    assert sent.status == 201
    assert page.content_type.startswith("text/html")


def test_no_script_makes_markup_or_code_of_text() -> None:
    """R48: the policy forbids it too; here it is seen before a browser is."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        r"|javascript:|DOMParser|srcdoc|setTimeout\(\s*[\"'`]|sessionStorage|document\.cookie"
    )
    offences = [
        f"{path.name}:{number}"
        for path in STATIC.rglob("*.js")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if forbidden.search(line)
    ]

    assert offences == []


def test_the_page_has_no_code_of_its_own_and_loads_nothing_from_elsewhere() -> None:
    """R44: no build step, no CDN."""
    page = (STATIC / "index.html").read_text("utf-8")
    texts = [
        path.read_text("utf-8") for path in STATIC.rglob("*") if path.suffix in (".js", ".css")
    ]

    assert re.findall(r"<script[^>]*>(?!</script>)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []
    elsewhere = re.compile(
        r"^(?:import|export) .* from \"[^.]|@import |\burl\(\W*http|import\(\W*http", re.M
    )
    assert [found for text in texts for found in elsewhere.findall(text)] == []
    loaded = set(re.findall(r"https?://[\w.]+", "".join([page, *texts])))
    assert loaded <= {"http://www.w3.org", "http://localhost"}


def test_the_portal_keeps_to_its_budget_of_bytes() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < BYTES_MAX

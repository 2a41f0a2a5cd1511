"""The page of /docs: our own, from here alone, and small."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import __version__
from headrace.server.app import ROUTES
from headrace.server.routes import docs
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

PAGES = Path(docs.__file__).parents[1] / "pages" / "docs"
ROOT = Path(__file__).resolve().parents[3]
FILES = {"index.html": "/docs", "app.js": "/docs/app.js", "style.css": "/docs/style.css"}

Start = Callable[..., Running]


def text_of(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "path"), FILES.items())
def test_files_are_served_as_they_are(start: Start, name: str, path: str) -> None:
    reply = start(MockEngine(says("x"))).client.get(path)
    assert reply.status_code == 200
    assert reply.content == (PAGES / name).read_bytes()
    kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
    assert reply.headers["content-type"] == f"{kinds[Path(name).suffix]}; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("name", ["index.html", "x", "..%2Fopenapi.py", "%2e%2e", "app.js%00"])
def test_nothing_else_is(start: Start, name: str) -> None:
    assert start(MockEngine(says("x"))).client.get(f"/docs/{name}").status_code == 404


def test_the_page_takes_nothing_from_elsewhere() -> None:
    for name in FILES:
        text = text_of(name)
        assert not re.search(r"https?://|@import|//cdn", text), name
    assert "url(" not in text_of("style.css")
    page = text_of("index.html")
    assert re.findall(r'<script src="([^"]+)"', page) == ["docs/app.js"]
    assert len(re.findall(r"<script", page)) == 1
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)
    assert "innerHTML" not in text_of("app.js")


def test_what_the_script_looks_for_is_on_the_page() -> None:
    page, script = text_of("index.html"), text_of("app.js")
    wanted = set(re.findall(r'getElementById\("([a-z-]+)"\)', script)) | {"contents", "operations"}
    assert len(wanted) >= 6
    assert wanted <= set(re.findall(r'id="([a-z-]+)"', page))


def test_it_is_small() -> None:
    assert sum((PAGES / name).stat().st_size for name in FILES) < 25_000
    assert {path.name for path in PAGES.iterdir()} == set(FILES)


def test_it_lies_in_the_package() -> None:
    """Wheels have all of src/headrace, and git keeps the pages."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'wheel.packages = ["src/headrace"]' in text
    assert not re.search(r"wheel\.exclude", text)


def test_the_script_parses() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which reads the script")
    done = subprocess.run(
        [node, "--check", str(PAGES / "app.js")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_page_shows_and_sends(start: Start) -> None:
    """The script with a document of few words (`page_dom.js`), against a server."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which runs the script")
    server = start(MockEngine(says("hello wörld")))
    done = subprocess.run(
        [node, str(Path(__file__).with_name("page_dom.js")), str(PAGES / "app.js"), server.url],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    shown = json.loads(done.stdout)
    assert shown["operations"] == len(ROUTES)
    assert not shown["state"]
    assert shown["version"] == __version__
    assert "integer, 1 to 128" in shown["fields"]
    assert shown["status"].startswith("200 OK")
    assert shown["text"] == "hello wörld"
    assert "data: [DONE]" in shown["body"]
    assert shown["command"].startswith("curl -N '")
    assert '-H "Authorization: Bearer $HEADRACE_API_KEY"' in shown["keyed_command"]
    assert "sesame" not in shown["keyed_command"]

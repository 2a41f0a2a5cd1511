"""The chat page's files: our own, from here alone, whole, and the same parts as the gateway's."""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from headrace.config import ServerConfig
from headrace.page.assets import PAGE, SHARED, page_assets
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says
from tests.server.test_paths import BROWSER

Start = Callable[..., Running]
CHAT = page_assets(resources.files("headrace.server") / "pages" / "chat", shared=True)
GATEWAY = page_assets(resources.files("headrace.gateway.admin") / "page", shared=True)
ASSETS = {"chat": CHAT, "gateway": GATEWAY}
FILES = [(page, path) for page, assets in ASSETS.items() for path in assets]
SCRIPTS = [(page, path) for page, path in FILES if path.endswith(".js")]
IMPORT = re.compile(r'^(?:import|export)\b[^;]*?from "([^"]+)";$', re.MULTILINE)
MOST_BYTES = 110_000


def text_of(path: str, page: str = "chat") -> str:
    return ASSETS[page][path].content.decode()


def test_every_file_is_served_as_it_is(start: Start) -> None:
    client = start(MockEngine(says("x"))).client
    for path, asset in CHAT.items():
        reply = client.get("/" if path == PAGE else f"/page/{path}", headers=BROWSER)
        assert (reply.status_code, reply.content) == (200, asset.content), path
        assert reply.headers["content-type"] == asset.media_type
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        policy = reply.headers["content-security-policy"].split("; ")
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in "".join(policy)


@pytest.mark.parametrize(
    "name",
    ["index.html", "x", "shared", "shared/", "../app.py", "%2e%2e/app.py", "app.js%00",
     "shared/..%2fapp.js"],
)  # fmt: skip
def test_nothing_else_is(start: Start, name: str) -> None:
    assert start(MockEngine(says("x"))).client.get(f"/page/{name}").status_code == 404


def test_who_asks_decides_what_the_address_shows(start: Start) -> None:
    client = start(MockEngine(says("x"))).client
    page, line = client.get("/", headers=BROWSER), client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert line.text.startswith("headrace is running.")
    assert page.headers["vary"] == line.headers["vary"] == "accept"


def test_no_docs_is_no_page(start: Start) -> None:
    client = start(MockEngine(says("x")), config=ServerConfig(enable_docs=False)).client
    reply = client.get("/", headers=BROWSER)
    assert reply.text == "headrace is running. The API is at /v1.\n"
    for path in CHAT:
        assert client.get(f"/page/{path}").status_code == 404, path


def test_the_page_opens_without_a_key_and_its_requests_need_one(start: Start) -> None:
    client = start(MockEngine(says("x")), config=ServerConfig(api_key=("sesame",))).client
    for path in CHAT:
        status = client.get("/" if path == PAGE else f"/page/{path}", headers=BROWSER).status_code
        assert status == 200, path
    for path in ("/v1/models", "/metrics", "/page"):
        assert client.get(path, headers=BROWSER).status_code == 401, path


def test_nothing_comes_from_elsewhere() -> None:
    for name, path in FILES:
        # The name of a language of drawings, which nothing loads.
        text = text_of(path, name).replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|\"//", text), path
        assert not (path.endswith(".css") and re.search(r"@import|url\(", text)), path
    page = text_of(PAGE)
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)
    assert len(re.findall(r"<script", page)) == 1
    linked = re.findall(r'(?:href|src)="page/([^"]+)"', page)
    assert len(linked) >= 8
    assert set(linked) <= set(CHAT)
    styles = {path for path in CHAT if path.endswith(".css")}
    assert styles <= set(linked), "each style is used"


@pytest.mark.parametrize(("page", "path"), SCRIPTS)
def test_scripts_set_text_as_text(page: str, path: str) -> None:
    code = re.sub(r"(?m)^\s*//.*$", "", text_of(path, page))
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser",
                "eval(", "new Function", "javascript:", "srcdoc"):  # fmt: skip
        assert way not in code, way


@pytest.mark.parametrize("page", ASSETS)
def test_every_script_is_imported_and_every_import_is_there(page: str) -> None:
    reached, waiting = set(), ["app.js"]
    while waiting:
        path = waiting.pop()
        reached.add(path)
        for name in IMPORT.findall(text_of(path, page)):
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            assert found in ASSETS[page], f"{path} imports {name}"
            if found not in reached:
                waiting.append(found)
    unused = {path for of, path in SCRIPTS if of == page} - reached
    assert unused == set()


NAMES = re.compile(r'^import \{([^}]+)\} from "([^"]+)";$', re.MULTILINE)
EXPORTED = re.compile(
    r"^export (?:(?:async )?(?:const|function\*?|class) (\w+)|\{ ([^}]+) \} from)", re.MULTILINE
)


@pytest.mark.parametrize(("page", "path"), SCRIPTS)
def test_what_a_script_imports_is_exported(page: str, path: str) -> None:
    for names, source in NAMES.findall(text_of(path, page)):
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), source))
        exported = {
            name.strip()
            for own, passed in EXPORTED.findall(text_of(found, page))
            for name in (own or passed).split(",")
        }
        assert {name.strip() for name in names.split(",") if name.strip()} <= exported, source


def test_both_pages_share_their_parts() -> None:
    own = {path for path in CHAT if path.startswith(SHARED)}
    assert own == {path for path in GATEWAY if path.startswith(SHARED)}
    for path in ("answer.js", "event_stream.js", "parameters.js", "base.css"):
        assert SHARED + path in own
    playground = text_of("views/playground.js", "gateway")
    assert set(IMPORT.findall(playground)) >= {"../shared/answer.js", "../shared/parameters.js"}


def test_it_is_small() -> None:
    assert sum(len(asset.content) for asset in CHAT.values()) < MOST_BYTES


def test_the_scripts_parse(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which reads the scripts")
    # As modules: together, each in a scope of its own, so that one process reads all of them.
    whole = tmp_path / "all.mjs"
    bodies = (
        re.sub(r"(?m)^export ", "", IMPORT.sub("", text_of(path, page))) for page, path in SCRIPTS
    )
    whole.write_text("".join(f"async () => {{\n{body}\n}};\n" for body in bodies), encoding="utf-8")
    done = subprocess.run(
        [node, "--check", str(whole)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

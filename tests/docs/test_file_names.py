"""Files that pages and sources name are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_pages import PAGES

ENDINGS = r"(?:py|sh|cpp|h|md|toml|js|svg|txt|service|conf)"
FOLDERS = (
    "src",
    "tests",
    "tools",
    "benchmarks",
    "native",
    "docs",
    "training",
    "deploy",
    "examples",
)
PATHS = re.compile(rf"`([\w.-]+(?:/[\w.-]+)+\.{ENDINGS})`")
BARE = re.compile(r"`(\w+\.(?:py|cpp|h|sh))`")
IN_SOURCES = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./-]+\.{ENDINGS})\b(?!/)")

IN_ROOM = re.compile(r"`([\w-]+(?:/[\w-]+)*(?:/|\.py))`")
"""A file or a folder in a table of the files of one room."""

WITHOUT = {"compatibility.md", "words.md"}
"""Pages that name files of other programs, and files that are no longer there."""
OF_OTHERS = {
    "llama.cpp",
    "gguf_convert_endian.py",
    "my_guards.py",
    "docs/openai.md",
    "docs/gguf.md",
}
"""A program's name, its script, a file of the reader's in an example, pages of Ollama and ggml."""


@cache
def files() -> frozenset[str]:
    """Every file of the repository by its path and by each shorter path it ends in."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
    parts = [path.relative_to(ROOT).parts for path in (*found, *ROOT.glob("*.*"))]
    return frozenset("/".join(path[at:]) for path in parts for at in range(len(path)))


def is_ours(name: str) -> bool:
    """Whether a path begins with two folders of the repository, or with one and is a file there."""
    return (ROOT.joinpath(*name.split("/")[:2])).parent.is_dir() and (
        name.count("/") == 1 or (ROOT.joinpath(*name.split("/")[:2])).is_dir()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {*PATHS.findall(text), *BARE.findall(text)} - OF_OTHERS
    assert page.name in WITHOUT or sorted(named - files()) == []


def tables_of_rooms(text: str) -> dict[str, list[str]]:
    """What the tables under headings like "Inside the server" name, by room."""
    parts = re.split(r"^#+ (.*)\n", text, flags=re.MULTILINE)
    return {
        heading.removeprefix("Inside the "): IN_ROOM.findall(
            "\n".join(line for line in body.splitlines() if line.startswith("|"))
        )
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
        if heading.startswith("Inside the ")
    }


def missing_in(room: Path, names: list[str]) -> list[str]:
    """Names that are not there when read from the room's own folder."""
    return [name for name in names if not (room / name).exists()]


def test_a_table_of_a_room_names_what_is_in_that_room() -> None:
    rooms = tables_of_rooms((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert set(rooms) >= {"server", "gateway"}
    for room, names in rooms.items():
        assert len(names) > 20, room
        assert missing_in(ROOT / "src" / "headrace" / room, names) == [], room


def test_a_name_of_another_room_is_missing_in_this_one() -> None:
    table = "### Inside the server\n| files |\n|---|\n| `run.py`, `routing/`, `router.py` |\n"
    assert tables_of_rooms(table) == {"server": ["run.py", "routing/", "router.py"]}
    server = ROOT / "src" / "headrace" / "server"
    assert missing_in(server, ["run.py", "routing/", "router.py"]) == ["routing/", "router.py"]
    assert "router.py" in files()


def test_files_that_sources_name_are_there() -> None:
    folders = [ROOT / name for name in ("src", "native", "tools", "benchmarks", "training")]
    sources = [
        path
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".h", ".cpp", ".sh")
    ]
    known = files() | OF_OTHERS
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources
        for name in IN_SOURCES.findall(path.read_text(encoding="utf-8"))
        if is_ours(name) and name not in known
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see `server/http1.py`", ["server/http1.py"]),
        ("see `https://x.org/a.py` and `*/x.py`", []),
    ],
)
def test_paths_are_found(text: str, found: list[str]) -> None:
    assert PATHS.findall(text) == found
    assert not any(name in files() for name in found)

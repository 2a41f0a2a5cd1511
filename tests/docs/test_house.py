"""docs/architecture.md and its picture show the house as it stands."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, SOURCE, page, rows
from tools.draw_house import PLACES, lines, picture
from tools.house import FLOORS, SIDEWAYS, rooms, sources, stairs

PAGE = page("architecture.md")


@pytest.fixture(scope="module", autouse=True)
def every_source_is_read() -> None:
    """Once for all tests here: 1.5 s of CPU."""
    sources()


def test_the_picture_is_current() -> None:
    assert (DOCS / "house.svg").read_text(encoding="utf-8") == picture(), "run `make docs`"


def test_the_picture_shows_every_room_and_every_arrow() -> None:
    drawing = ET.fromstring(picture())
    space = "{http://www.w3.org/2000/svg}"
    titles = {text.text for text in drawing.iter(f"{space}text") if text.get("class") == "title"}
    names = {title.removesuffix("/").removesuffix(".py") for title in titles if title}
    assert names == rooms().keys()
    arrows = [path for path in drawing.iter(f"{space}path") if path.get("class") == "line"]
    assert len(arrows) == len(stairs(rooms()))
    assert {(line.upper, line.lower) for line in lines()} == set(stairs(rooms())) - SIDEWAYS


def test_lines_end_at_their_rooms() -> None:
    for line in lines():
        for room, x in ((line.upper, line.x1), (line.lower, line.x2)):
            assert PLACES[room].left < x < PLACES[room].right, line


def test_a_line_that_no_room_needs_is_left_out() -> None:
    house = {"a": frozenset({"b", "c"}), "b": frozenset({"c"}), "c": frozenset[str]()}
    assert stairs(house) == [("a", "b"), ("b", "c")]


def test_the_table_has_every_room_on_its_floor() -> None:
    told: dict[str, int] = {}
    for cells in rows(PAGE):
        if cells[0].isdecimal():
            for name in re.findall(r"`([a-z_/.]+)`", cells[1]):
                told[name.removesuffix("/").removesuffix(".py")] = int(cells[0])
    assert told == {room: FLOORS[room] for room in rooms()}


@pytest.mark.parametrize(
    ("name", "begin", "room"),
    [
        ("architecture.md", "### Inside the server", "server"),
        ("architecture.md", "### Inside the gateway", "gateway"),
        ("engine.md", "# The engine", "engine"),
    ],
)
def test_the_table_of_a_room_has_its_files(name: str, begin: str, room: str) -> None:
    section = page(name).partition(begin)[2].partition("\n## ")[0].partition("\n### ")[0]
    told = [file for cells in rows(section) for file in re.findall(r"`(\w+\.py)`", cells[0])]
    there = {path.name for path in Path(SOURCE / room).glob("*.py")} - {"__init__.py"}
    assert sorted(told) == sorted(there)

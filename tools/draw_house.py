"""Writes docs/house.svg, the rooms on their floors and the imports between them.

Floors and imports come from `tools/house.py`, which reads them from the code. Only where a room
stands on its floor and the words in it are laid down here. An import is drawn where no way through
other rooms says it already.
"""

from __future__ import annotations

import argparse
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

from tools.house import FLOORS, rooms, stairs

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "house.svg"

WIDTH = 1160
FLOOR_HEIGHT = 104
ROOM_HEIGHT = 58
TOP = 20
TRACK = 9
"""Distance of lines that run side by side between two floors."""

MARGIN = 16
"""No line meets a room nearer to its corner."""


class Place(NamedTuple):
    """Where a room stands on its floor, its name, and what it is for."""

    left: int
    right: int
    title: str
    words: str


PLACES = {
    "__main__": Place(480, 700, "__main__.py", "headrace, python -m headrace"),
    "cli": Place(60, 1140, "cli/", "one file per command: parses, calls, prints"),
    "llm": Place(116, 254, "llm.py", "the engine in this process"),
    "async_llm": Place(574, 694, "async_llm.py", "the engine in its own"),
    "server": Place(48, 141, "server/", "engine over HTTP"),
    "gateway": Place(254, 359, "gateway/", "one address for all"),
    "plan": Place(395, 512, "plan/", "what fits, how fast"),
    "offline": Place(568, 740, "offline/", "what LLM and AsyncLLM share"),
    "bench": Place(860, 970, "bench/", "endpoints under load"),
    "eval": Place(986, 1144, "eval/", "how well a model predicts"),
    "engine": Place(598, 850, "engine/", "token ids in, token ids out; a process, watched"),
    "models": Place(558, 778, "models/", "architectures, as declarations over ops"),
    "ops": Place(546, 766, "ops/", "one interface; NumPy, and C++ from native/"),
    "conversation": Place(106, 212, "conversation/", "tools, and answers"),
    "http": Place(50, 138, "http/", "what listens"),
    "text": Place(152, 250, "text/", "people and tokens"),
    "structured": Place(1029, 1132, "structured/", "grammars of answers"),
    "answer_formats": Place(778, 906, "answer_formats/", "calls, reasoning"),
    "weights": Place(566, 794, "weights/", "checkpoints, codecs, and where models lie"),
    "protocol": Place(68, 201, "protocol/", "what goes over the wire"),
    "catalog": Place(360, 498, "catalog/", "dated facts, with sources"),
    "page": Place(510, 638, "page/", "tables, plots, pages"),
    "embedded": Place(663, 750, "embedded/", "a model"),
    "sqlite_file": Place(229, 350, "sqlite_file.py", "databases"),
    "config": Place(922, 1015, "config/", "typed settings"),
    "telemetry": Place(1047, 1136, "telemetry/", "metrics, logs"),
    "errors": Place(60, 774, "errors.py", "errors people are meant to read"),
    "atomic_file": Place(798, 1140, "atomic_file.py", "a file whole or not at all"),
}
WIDE = {"__main__", "cli", "errors"}
"""They take a line wherever it comes from."""

TOP_FLOOR = max(FLOORS.values())


class Line(NamedTuple):
    """An import on paper: down from `x1`, along the gutter under floor `turn`, down at `x2`."""

    upper: str
    lower: str
    x1: float
    x2: float
    turn: int


def _top(floor: int) -> int:
    return TOP + (TOP_FLOOR - floor) * FLOOR_HEIGHT


def _middle(room: str) -> float:
    place = PLACES[room]
    return (place.left + place.right) / 2


def _ports(ends: list[tuple[str, str]], side: str) -> dict[tuple[str, str], float]:
    """x of every line at one side of its room, spread in the order of where the lines lead."""
    mine, other = (0, 1) if side == "bottom" else (1, 0)
    found: dict[tuple[str, str], float] = {}
    for room in PLACES:
        here = sorted((end for end in ends if end[mine] == room), key=lambda e: _middle(e[other]))
        place = PLACES[room]
        room_width = place.right - place.left
        for index, end in enumerate(here):
            found[end] = place.left + room_width * (index + 1) / (len(here) + 1)
    return found


def _straight(x1: float, x2: float, upper: str, lower: str) -> float | None:
    """The best x at which a line can run straight down, if there is one."""
    above, below = PLACES[upper], PLACES[lower]
    left = max(above.left, below.left) + MARGIN
    right = min(above.right, below.right) - MARGIN
    wished = x2 if upper in WIDE else x1 if lower in WIDE else (x1 + x2) / 2
    free = [x for x in range(left, right + 1) if not _in_the_way(x, FLOORS[upper], FLOORS[lower])]
    return min(free, key=lambda x: abs(x - wished), default=None)


def _in_the_way(x: float, top: int, bottom: int) -> bool:
    """Whether a room of the floors strictly between stands where a line wants to go down."""
    return any(
        bottom < FLOORS[room] < top and PLACES[room].left - 6 < x < PLACES[room].right + 6
        for room in PLACES
    )


def lines() -> list[Line]:
    """Every import that is drawn, with its way; ValueError where a room stands in it."""
    house = rooms()
    if house.keys() != PLACES.keys():
        missing = sorted(house.keys() ^ PLACES.keys())
        raise ValueError(f"PLACES in {Path(__file__).name} and the code differ in {missing}")
    ends = [(a, b) for a, b in stairs(house) if FLOORS[a] != FLOORS[b]]
    bottoms, tops = _ports(ends, "bottom"), _ports(ends, "top")
    found = []
    for upper, lower in ends:
        high, low = FLOORS[upper], FLOORS[lower]
        x1, x2 = bottoms[upper, lower], tops[upper, lower]
        straight = _straight(x1, x2, upper, lower)
        if straight is not None:
            x1 = x2 = straight
        # Turn at once and come down above the goal, or go down first and turn above it.
        turns = [
            turn
            for turn in range(high, low, -1)
            if not _in_the_way(x1, high, turn - 1) and not _in_the_way(x2, turn, low)
        ]
        if not turns:
            raise ValueError(f"no way from {upper} to {lower}: give one of them another place")
        found.append(Line(upper, lower, x1, x2, turns[0]))
    return _apart(found)


def _apart(found: list[Line]) -> list[Line]:
    """Lines that would fall on one another stand a little apart."""
    result: list[Line] = []
    for line in found:
        while any(
            abs(line.x2 - other.x2) < TRACK
            and (line.lower, line.x2) != (other.lower, other.x1)
            and min(FLOORS[line.upper], other.turn) > max(FLOORS[line.lower], FLOORS[other.lower])
            and line.x1 != line.x2
            for other in result
        ):
            line = line._replace(x2=line.x2 + TRACK)
        result.append(line)
    return result


def _tracks(found: list[Line]) -> dict[Line, int]:
    """A height of its own for every line along a gutter."""
    heights: dict[Line, int] = {}
    bent = [line for line in found if line.x1 != line.x2]
    for line in sorted(bent, key=lambda one: abs(one.x1 - one.x2)):
        left, right = sorted((line.x1, line.x2))
        taken = {
            heights[other]
            for other in heights
            if other.turn == line.turn
            and min(right, max(other.x1, other.x2)) + TRACK > max(left, min(other.x1, other.x2))
        }
        heights[line] = next(height for height in range(len(bent)) if height not in taken)
    return heights


def _path(line: Line, track: int) -> str:
    top, bottom = _top(FLOORS[line.upper]) + ROOM_HEIGHT, _top(FLOORS[line.lower])
    if line.x1 == line.x2:
        return f"M{line.x1:g} {top}V{bottom - 3}"
    along = _top(line.turn) + ROOM_HEIGHT + 12 + TRACK * track
    return f"M{line.x1:g} {top}V{along}H{line.x2:g}V{bottom - 3}"


def _sideways(upper: str, lower: str) -> str:
    """Between neighbours on one floor."""
    y = _top(FLOORS[upper]) + ROOM_HEIGHT / 2
    left_to_right = PLACES[upper].right < PLACES[lower].left
    start = PLACES[upper].right if left_to_right else PLACES[upper].left
    end = PLACES[lower].left - 3 if left_to_right else PLACES[lower].right + 3
    return f"M{start} {y:g}H{end}"


STYLE = """
  text { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2933; }
  .title { font-size: 15px; font-weight: 600; }
  .words { font-size: 12px; fill: #52606d; }
  .floor { font-size: 13px; fill: #9aa5b1; }
  .band { fill: #f5f7fa; }
  .room { fill: #ffffff; stroke: #7b8794; }
  .line { fill: none; stroke: #3e7cb1; stroke-width: 1.4; marker-end: url(#tip); }
""".rstrip()


def picture() -> str:
    """The whole SVG."""
    found = lines()
    tracks = _tracks(found)
    height = _top(0) + ROOM_HEIGHT + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="name">',
        '<title id="name">The rooms of headrace on their floors, and who imports whom</title>',
        f"<style>{STYLE}\n</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8Z" fill="#3e7cb1"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for floor in range(TOP_FLOOR + 1):
        y = _top(floor)
        parts.append(
            f'<rect class="band" x="0" y="{y - 8}" width="{WIDTH}" height="{ROOM_HEIGHT + 16}"/>'
            f'<text class="floor" x="16" y="{y + ROOM_HEIGHT // 2 + 5}">{floor}</text>'
        )
    parts += [f'<path class="line" d="{_path(line, tracks.get(line, 0))}"/>' for line in found]
    for upper, lower in stairs(rooms()):
        if FLOORS[upper] == FLOORS[lower]:
            parts.append(f'<path class="line" d="{_sideways(upper, lower)}"/>')
    for room, place in PLACES.items():
        y, middle = _top(FLOORS[room]), (place.left + place.right) / 2
        parts.append(
            f'<rect class="room" x="{place.left}" y="{y}" width="{place.right - place.left}" '
            f'height="{ROOM_HEIGHT}" rx="4"/>'
            f'<text class="title" x="{middle:g}" y="{y + 25}" text-anchor="middle">'
            f"{escape(place.title)}</text>"
            f'<text class="words" x="{middle:g}" y="{y + 44}" text-anchor="middle">'
            f"{escape(place.words)}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> int:
    """Write or check the picture; 1 when a checked one is stale."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when stale")
    drawn = picture()
    if not parser.parse_args().check:
        PICTURE.write_text(drawn, encoding="utf-8")
        return 0
    if PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == drawn:
        return 0
    print("docs/house.svg is stale; run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

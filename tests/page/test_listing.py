"""Tables to sort and filter: plain where no script runs, safe whatever the text."""

from __future__ import annotations

from headrace.page.listing import Field, Heading, Line, Listing, listing_markup
from headrace.page.markup import Markup, tag
from tests.page.test_markup import HOSTILE, Parsed

LISTING = Listing(
    "Things",
    (Heading("name"), Heading("size", figure=True, about="in bytes")),
    (
        Line((Field("one", about="a source"), Field("1 kB", 1000.0)), tag("p", "more of it"), "a"),
        Line((Field("two"), Field("", None))),
    ),
    ("a note",),
)


def test_it_is_a_table_with_orders_anchors_and_what_unfolds() -> None:
    parsed = Parsed(listing_markup(LISTING))
    names = [name for name, _ in parsed.tags]
    assert names.count("tr") == 3 and names.count("td") == 4 and "button" not in names
    facts = [facts for name, facts in parsed.tags if name == "td"]
    assert facts[1] == {"class": "n", "data-order": "1000"} and "data-order" not in facts[3]
    assert facts[0] == {"class": "short", "title": "a source"}
    assert [facts.get("id") for name, facts in parsed.tags if name == "tr"] == [None, "a", None]
    assert names.count("details") == 1 and "more of it" in parsed.words
    assert "Things (2)" in parsed.words and "–" in parsed.words and "a note" in parsed.words


def test_no_text_becomes_markup() -> None:
    line = Line((Field(HOSTILE, about=HOSTILE, mark=HOSTILE),), Markup(""), HOSTILE)
    listing = Listing(HOSTILE, (Heading(HOSTILE, about=HOSTILE),), (line,), (HOSTILE,))
    parsed = Parsed(listing_markup(listing))
    assert not any(name in ("script", "svg") for name, _ in parsed.tags)
    assert not [key for _, facts in parsed.tags for key in facts if key.startswith("on")]
    assert parsed.words.count(HOSTILE) == 4


def test_the_greatest_number_keeps_its_digits() -> None:
    line = Line((Field("x", 2.5166e15),))
    assert 'data-order="2.5166e+15"' in listing_markup(Listing("", (Heading("a"),), (line,)))

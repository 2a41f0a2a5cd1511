"""Markup that nobody's text can break out of."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from headrace.page.markup import Markup, join, shortest, tag, text

HOSTILE = '</td><script>alert(\'x\')</script>" onload="x" &amp; <svg/onload=1>'


class Parsed(HTMLParser):
    """The elements, attributes and text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_text_and_attributes_are_escaped() -> None:
    made = tag("p", HOSTILE, title=HOSTILE)
    parsed = Parsed(made)
    assert parsed.tags == [("p", {"title": HOSTILE})]
    assert "".join(parsed.words) == HOSTILE


@given(st.text(), st.text())
def test_whatever_the_text_it_comes_back(content: str, attribute: str) -> None:
    made = tag("p", content, data_x=attribute)
    inner = made[made.index(">") + 1 : -len("</p>")]
    assert unescape(inner) == unescape(text(content)) and "<" not in inner
    assert made.count('"') == 2


def test_markup_is_left_alone_and_nested() -> None:
    assert tag("g", tag("title", "a<b"), "c<d") == "<g><title>a&lt;b</title>c&lt;d</g>"
    assert join(["a&", Markup("<b>")], "<") == "a&amp;&lt;<b>"


def test_names_of_attributes_and_empty_elements() -> None:
    assert tag("line", x1=0, stroke_width=2.25, class_="a", y1=None) == (
        '<line x1="0" stroke-width="2.2" class="a"/>'
    )
    assert tag("svg", viewBox="0 0 1 1") == '<svg viewBox="0 0 1 1"></svg>'


def test_lengths_are_short() -> None:
    assert [shortest(one) for one in (3.0, 3.04, 3.15, -0.5, 100.0)] == [
        "3",
        "3",
        "3.1",
        "-0.5",
        "100",
    ]

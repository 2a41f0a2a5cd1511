"""The reference page: whole, safe, and without a network."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headrace.catalog import Catalog
from headrace.plan.reference.html import reference_page
from headrace.plan.reference.topics import TOPICS
from tests.page.alone import assert_stands_alone
from tests.page.test_markup import HOSTILE, Parsed

DAY = dt.date(2026, 11, 22)


def page_of(known: Catalog, *names: str) -> str:
    wanted = [TOPICS[name] for name in names or TOPICS]
    return reference_page(known, [(one, one.tables(known)) for one in wanted], made_on=DAY)


KNOWN = Catalog.load()
PAGE = page_of(KNOWN)
PARSED = Parsed(PAGE)


def test_every_topic_table_and_plot_is_there() -> None:
    ids = {facts.get("id") for name, facts in PARSED.tags if name == "section"}
    assert ids == set(TOPICS)
    titles = re.findall("<h3>(.*?)</h3>", PAGE)
    for topic in TOPICS.values():
        for table in topic.tables(KNOWN):
            assert f"{table.title} ({len(table.lines)})" in titles
    drawings = re.findall(r"<svg viewBox.*?</svg>", PAGE, flags=re.DOTALL)
    assert len(drawings) == 4
    for drawing in drawings:
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing


def test_every_contradiction_source_and_tree_can_be_led_to() -> None:
    ids = [facts["id"] for _, facts in PARSED.tags if "id" in facts]
    assert len(ids) == len(set(ids))
    assert set(KNOWN.contradictions) <= set(ids)
    assert {f"tree-{row.id}" for row in KNOWN.decisions} <= set(ids)
    links = {facts["href"] for name, facts in PARSED.tags if name == "a"}
    assert links <= {f"#{one}" for one in ids}


def test_trees_unfold_answer_by_answer() -> None:
    names = [facts["name"] for tag, facts in PARSED.tags if tag == "details" and "name" in facts]
    options = sum(len(row.options) for row in KNOWN.decisions)
    assert len(names) == options
    assert "runtime-by-use.app" in names


@pytest.mark.long
def test_the_page_needs_no_network_and_allows_none() -> None:
    assert_stands_alone(PAGE, most_script=6144)
    assert not any(name == "input" for name, _ in PARSED.tags)


def test_a_cell_tells_source_date_confidence_and_dispute() -> None:
    price = KNOWN.hardware["h100-sxm"].fact("price_usd_per_hour.typical-2026")
    title = KNOWN.sources[price.source].title
    told = [facts.get("title") or "" for name, facts in PARSED.tags if name == "td"]
    expected = f"price_usd_per_hour.typical-2026: {title}, {price.as_of}, {price.confidence.value}"
    assert any(expected in one for one in told)


def test_nothing_that_others_wrote_becomes_markup(tmp_path: Path) -> None:
    said = HOSTILE.replace("\\", "\\\\").replace('"', '\\"')
    (tmp_path / "own.toml").write_text(
        f'[[source]]\nid = "mine"\ntitle = "{said}"\ndate = 2026-05-01\nurl = "{said}"\n'
        '[[hardware]]\nid = "box"\nsource = "mine"\nas_of = 2026-05-01\nconfidence = "low"\n'
        f'name = "{said}"\naliases = ["{said} 2"]\nbest_for = "{said}"\n'
        "bandwidth_bytes_per_s = 1e12\ndense_bf16_flops = 1e14\n"
        f'power_w = {{ value = 5, note = "{said}" }}\n'
    )
    parsed = Parsed(page_of(Catalog.load([tmp_path]), "hardware", "sources"))
    assert sum(name == "script" for name, _ in parsed.tags) == 1
    assert not [key for _, facts in parsed.tags for key in facts if key.startswith("on")]
    assert HOSTILE in parsed.words


def test_a_page_of_one_topic_leads_nowhere_else() -> None:
    parsed = Parsed(page_of(KNOWN, "gateways"))
    ids = {facts["id"] for _, facts in parsed.tags if "id" in facts}
    links = {facts["href"] for name, facts in parsed.tags if name == "a"}
    assert links == {"#gateways"} <= {f"#{one}" for one in ids}

"""Topics show what the catalog has: every row where it belongs, each with source and date."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.catalog import Catalog
from headrace.catalog.rows import KINDS
from headrace.errors import CatalogError
from headrace.plan.reference.topics import TOPICS, Topic, topic_named

KNOWN = Catalog.load()


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS)
def test_every_line_has_source_and_date(topic: Topic) -> None:
    tables = topic.tables(KNOWN)
    assert tables and topic.about
    for table in tables:
        for line in table.lines:
            assert line.sources and set(line.sources) <= set(KNOWN.sources), line.id
            assert line.dates[0] <= line.dates[1]
            assert len(line.entries) == len(table.columns)
            assert any(one.text != "–" for one in line.entries), line.id


def test_each_row_of_each_kind_is_in_one_place() -> None:
    places = Counter(
        (part.kind, row.id)
        for topic in TOPICS.values()
        for part in topic.parts
        if not part.view
        for row in part.rows(KNOWN)
    )
    kinds = set(KINDS) - {"decision"}
    wanted = {(kind, row.id) for kind in kinds for row in KNOWN.table(kind)}
    assert set(places) == wanted
    assert [one for one, count in places.items() if count > 1] == []


def test_views_show_rows_that_are_elsewhere_too() -> None:
    experts = next(part for part in TOPICS["moe"].parts if part.kind == "model")
    assert {row.id for row in experts.rows(KNOWN)} == {
        row.id for row in KNOWN.models if row.num_experts
    }
    rented = next(part for part in TOPICS["hardware"].parts if part.view)
    assert {row.id for row in rented.rows(KNOWN)} == {
        row.id for row in KNOWN.hardware if row.price_usd_per_hour
    }


def test_registers_are_whole() -> None:
    (contradictions,) = TOPICS["contradictions"].tables(KNOWN)
    assert [line.id for line in contradictions.lines] == list(KNOWN.contradictions)
    assert len(contradictions.lines) >= 72
    first = KNOWN.contradictions["C01"]
    texts = [one.text for one in contradictions.lines[0].entries]
    assert texts[0] == first.subject and texts[2:4] == [first.used, first.why]
    assert all(one.says in texts[1] for one in first.statements)
    assert "claude-opus-4.6" in texts[4]
    (trees,) = TOPICS["trees"].tables(KNOWN)
    assert [line.id for line in trees.lines] == [row.id for row in KNOWN.decisions]
    (sources,) = TOPICS["sources"].tables(KNOWN)
    assert [line.id for line in sources.lines] == list(KNOWN.sources)


def test_techniques_are_ranked_by_impact() -> None:
    (table,) = TOPICS["techniques"].tables(KNOWN)
    ranks = [line.entries[0].order for line in table.lines]
    ranked = [one for one in ranks if one is not None]
    assert ranked == sorted(ranked) and ranks[: len(ranked)] == ranked
    needs = [one.heading for one in table.columns]
    assert {"needs", "not when", "gains"} <= set(needs)


def test_what_people_add_is_there(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        '[[source]]\nid = "mine"\ntitle = "Mine"\ndate = 2026-05-01\n'
        '[[hardware]]\nid = "h100-sxm"\nsource = "mine"\nas_of = 2026-05-01\n'
        'confidence = "high"\npower_w = 650\n'
    )
    known = Catalog.load([tmp_path])
    line = next(one for one in TOPICS["hardware"].tables(known)[0].lines if one.id == "h100-sxm")
    assert "650 W" in [one.text for one in line.entries] and "mine" in line.sources


def test_an_unknown_topic_names_the_nearest() -> None:
    with pytest.raises(CatalogError, match="did you mean 'hardware'"):
        topic_named("hardwear")
    assert topic_named("MOE").name == "moe"

"""Decision trees walked: every way ends in rows that there are."""

from __future__ import annotations

import pytest

from headrace.catalog import Catalog
from headrace.errors import CatalogError
from headrace.plan.reference.walk import short, walk

KNOWN = Catalog.load()
TREE = KNOWN.decisions["runtime-by-use"]


@pytest.mark.parametrize("tree", KNOWN.decisions, ids=lambda tree: tree.id)
def test_every_way_ends_in_rows_with_source_and_date(tree: object) -> None:
    assert hasattr(tree, "paths")
    for path in tree.paths:
        ended = walk(KNOWN, tree, [short(one) for one in path])  # type: ignore[arg-type]
        assert ended.question is None and ended.takes and ended.because
        assert ended.fact is not None and ended.fact.source in KNOWN.sources
        assert [one.id for one in ended.takes] == list(path[-1].takes)


@pytest.mark.parametrize("choice", ["app", "start.app", "building an application", "2"])
def test_an_option_is_chosen_by_name_id_label_or_number(choice: str) -> None:
    walked = walk(KNOWN, TREE, [choice])
    assert walked.question is not None and walked.question.id == "app"
    assert [short(option) for _, option in walked.steps] == ["app"]


def test_nothing_chosen_is_the_first_question() -> None:
    walked = walk(KNOWN, TREE, [])
    assert walked.question == TREE.root and walked.takes == () and walked.fact is None
    assert walked.as_dict()["options"][0] == {"option": "exploring", "label": "just exploring"}


def test_wrong_and_surplus_answers_are_told() -> None:
    with pytest.raises(CatalogError, match="is not an answer to 'Simple, or for production"):
        walk(KNOWN, TREE, ["app", "edge"])
    with pytest.raises(CatalogError, match="one too many"):
        walk(KNOWN, TREE, ["edge", "edge"])

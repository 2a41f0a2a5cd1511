"""Every keyword of JSON Schema is held, changes nothing, or is refused with its pointer."""

from __future__ import annotations

import pytest

from headrace.structured.json_schema.walk import UNSUPPORTED
from tools.schema_keywords import KEYWORDS, Keyword, status


@pytest.mark.parametrize("keyword", KEYWORDS, ids=lambda keyword: keyword.name)
def test_a_keyword_is_held_or_refused_with_its_pointer_or_an_annotation(keyword: Keyword) -> None:
    found = status(keyword)
    assert found in ("held", "annotation") or found.startswith("refused, with its pointer"), found


def test_every_keyword_that_is_refused_is_on_the_page() -> None:
    named = {name for keyword in KEYWORDS for name in keyword.schema}
    assert named >= UNSUPPORTED - {"else", "minContains"}

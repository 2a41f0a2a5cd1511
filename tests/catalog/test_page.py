"""docs/catalog.md: its example file can be read and its Python gives what it says."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from headrace.catalog import Catalog, Confidence
from headrace.catalog.rows import KINDS
from tests.docs.pages import page

PAGE = page("catalog.md")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(block("toml"), encoding="utf-8")
    known = Catalog.load([tmp_path])
    assert known.hardware["h100"].power_w == 500
    price = known.price("claude-opus-4.6", "anthropic", dt.date(2026, 4, 1))
    assert (price.at(200_000).input, price.at(200_001).input) == (4, 8)


def test_the_prices_in_python() -> None:
    lines = [line for line in block("python").splitlines() if line.startswith("price.at")]
    price = Catalog.load().price("gemini-2.5-pro", "google", dt.date(2026, 8, 1))
    assert [line.split("#")[0].strip() for line in lines] == [
        "price.at(200_000).input",
        "price.at(200_001).output",
    ]
    said = [float(re.findall(r"# ([\d.]+)", line)[0]) for line in lines]
    assert said == [price.at(200_000).input, price.at(200_001).output]


def test_words_are_explained() -> None:
    assert [one for one in Confidence if f"`{one.value}`" not in PAGE] == []
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGE] == []
    assert f"lists {len(Catalog.load().contradictions)} subjects" in PAGE


def test_every_contradiction_is_on_its_page() -> None:
    told = page("contradictions.md")
    for one in Catalog.load().contradictions.values():
        (row,) = [line for line in told.splitlines() if line.startswith(f"| {one.id} |")]
        for text in (one.used, one.why, *(each.says for each in one.statements)):
            assert text.replace("|", "\\|") in row

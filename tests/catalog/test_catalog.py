"""Rows by id and alias, what files of one's own override, prices by day and by length."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.catalog import Catalog, Confidence
from headrace.catalog.difference import differences, price_differences
from headrace.catalog.rows.price import Rates
from headrace.catalog.user_folder import folders, user_folder
from headrace.errors import CatalogError
from tests.catalog.files import catalog, folder


@pytest.fixture(scope="module")
def known() -> Catalog:
    return Catalog.load()


@pytest.mark.parametrize(
    "name", ["qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "QWEN3_30B_A3B", "Qwen3 30B-A3B"]
)
def test_ways_to_write_a_name(known: Catalog, name: str) -> None:
    row = known.models[name]
    assert row.id == "qwen3-30b-a3b"
    assert (row.num_experts, row.experts_per_token, row.moe_intermediate_size) == (128, 8, 768)


def test_a_fact_has_all_that_is_behind_it(known: Catalog) -> None:
    fact = known.models["qwen3-32b"].fact("context_tokens")
    assert (fact.value, fact.unit, fact.source) == (32_768, "tokens", "model-cards")
    assert fact.as_of == dt.date(2025, 5, 14) and fact.confidence is Confidence.HIGH
    assert fact.disputed_by == ("C28",) and fact.origin == "model/qwen.toml"


def test_unknown_names_are_told_the_nearest(known: Catalog) -> None:
    with pytest.raises(CatalogError, match=r"no model 'qwen3-30b' .* 'qwen3-30b-a3b'"):
        known.models["qwen3-30b"]
    with pytest.raises(CatalogError, match="no fact 'bandwidth'; did you mean 'bandwidth_bytes_p"):
        known.hardware["h100"].fact("bandwidth")
    with pytest.raises(CatalogError, match="headrace catalog list --filter"):
        known.find("zzzz")
    with pytest.raises(CatalogError, match="no kind 'modle'; there are: model, hardware"):
        known.table("modle")
    assert "zzzz" not in known.models and known.models.find("zzzz") is None


def test_search_is_for_all_words(known: Catalog) -> None:
    assert [row.id for row in known.models.search("kimi k2.5")] == ["kimi-k2.5"]
    assert known.hardware.search("no such words") == []
    assert len(known.runtimes.search("")) == len(known.runtimes)


def test_a_row_of_ones_own_changes_what_it_names(tmp_path: Path) -> None:
    text = """
[[hardware]]
id = "h100-sxm"
power_w = { value = 500, note = "capped" }
price_usd_per_hour.ours = 1.2

[[hardware]]
id = "our-box"
name = "Our box"
memory_bytes = "512 GiB"
"""
    known = catalog(tmp_path, text)
    row = known.hardware["H100"]
    assert row.power_w == 500 and row.dense_bf16_flops == 989e12
    assert row.fact("power_w").source == "mine"
    assert row.fact("power_w").origin == str(tmp_path / "mine.toml")
    assert set(row.price_usd_per_hour) == {
        "ours", "runpod", "lambda", "typical-2024", "typical-2026",
    }  # fmt: skip
    assert known.hardware["our box"].memory_bytes == 512 * 2**30
    assert Catalog.load().hardware["H100"].power_w == 700


def test_later_folders_win(tmp_path: Path) -> None:
    text = '\n[[hardware]]\nid = "h100-sxm"\npower_w = {}\n'
    first = folder(tmp_path / "a", text.format(1))
    second = folder(tmp_path / "b", text.format(2))
    assert Catalog.load([first, str(second)]).hardware["h100"].power_w == 2
    assert Catalog.load([second, first]).hardware["h100"].power_w == 1


def test_differences_of_files(tmp_path: Path) -> None:
    text = """
[[hardware]]
id = "h100-sxm"
power_w = 500
memory_type = "HBM3"

[[hardware]]
id = "our-box"
name = "Our box"
power_w = 9
"""
    found = differences(Catalog.load(), catalog(tmp_path, text), ["hardware"])
    said = {(one.row, one.field): one for one in found}
    assert set(said) == {
        ("h100-sxm", "power_w"),
        ("h100-sxm", "memory_type"),
        ("our-box", "power_w"),
    }
    changed = said["h100-sxm", "power_w"]
    assert changed.old is not None and changed.new is not None and changed.of_value
    assert (changed.old.value, changed.new.value, changed.of_row) == (700, 500, "both")
    assert not said["h100-sxm", "memory_type"].of_value
    assert said["our-box", "power_w"].of_row == "new"
    back = differences(catalog(tmp_path, text), Catalog.load(), ["hardware"])
    assert {one.of_row for one in back if one.row == "our-box"} == {"gone"}
    assert differences(Catalog.load(), Catalog.load(), ["hardware"]) == []


def test_prices_by_day(known: Catalog) -> None:
    assert known.price("Gemini 2.5 Flash", "google", dt.date(2025, 5, 1)).at(1).output == 0.6
    assert known.price("gemini-2.5-flash", "Gemini", dt.date(2025, 6, 17)).at(1).output == 2.5
    with pytest.raises(CatalogError, match="there are from: 2025-04-17, 2025-06-17"):
        known.price("gemini-2.5-flash", "google", dt.date(2024, 1, 1))
    with pytest.raises(CatalogError, match="it has prices at google"):
        known.price("gemini-2.5-flash", "groq", dt.date(2026, 1, 1))
    with pytest.raises(CatalogError, match="no price of 'nothing'"):
        known.price("nothing", "groq", dt.date(2026, 1, 1))


def test_a_newer_price_of_ones_own_is_used(tmp_path: Path) -> None:
    text = """
[[price]]
id = "opus-soon"
name = "Opus, soon"
provider = "Anthropic"
model = "anthropic/claude-opus-4.6"
effective_from = 2026-09-01
input_usd_per_million_tokens = 4
"""
    known = catalog(tmp_path, text)
    assert known.price("claude-opus-4.6", "anthropic", dt.date(2026, 8, 31)).at(0).input == 5
    assert known.price("claude-opus-4.6", "anthropic", dt.date(2026, 9, 1)).at(0).input == 4
    assert len(known.prices_of("claude-opus-4.6")) == 2
    [change] = [
        one
        for one in price_differences(known, dt.date(2026, 8, 31), dt.date(2026, 9, 1))
        if one.field == "input_usd_per_million_tokens"
    ]
    assert (change.row, change.of_row) == ("anthropic claude-opus-4.6", "both")


def test_what_is_not_in_use_is_not_billed_with(known: Catalog) -> None:
    sources = {price.id: price.in_use for price in known.prices_of("gemini-2.5-pro", "google")}
    assert sources == {"gemini-2.5-pro.google": True, "gemini-2.5-pro.google.portkey": False}
    assert known.price("gemini-2.5-pro", "google", dt.date(2026, 8, 1)).boundaries == (200_000,)


def test_a_prompt_beyond_the_boundary_is_priced_there_as_a_whole(known: Catalog) -> None:
    price = known.price("gemini-2.5-pro", "google", dt.date(2026, 8, 1))
    assert price.at(200_000) == Rates(1.25, 10, 0.125, None, None)
    assert price.at(200_001) == Rates(2.5, 15, 0.25, None, None)


def test_of_several_boundaries_the_highest_that_is_passed(tmp_path: Path) -> None:
    text = """
[[price]]
id = "tiers"
name = "Tiers"
provider = "p"
model = "m"
effective_from = 2026-01-01
input_usd_per_million_tokens = 1
output_usd_per_million_tokens = 10
input_usd_per_million_tokens_above."1000" = 2
input_usd_per_million_tokens_above."20000" = 3
"""
    price = catalog(tmp_path, text).prices["tiers"]
    assert [price.at(n).input for n in (0, 1000, 1001, 20_000, 20_001)] == [1, 1, 2, 2, 3]
    assert price.at(30_000).output == 10
    assert price.boundaries == (1000, 20_000)


def test_differences_of_days(known: Catalog) -> None:
    found = price_differences(known, dt.date(2025, 5, 1), dt.date(2025, 7, 1))
    flash = {one.field: one for one in found if one.row == "google gemini-2.5-flash"}
    output = flash["output_usd_per_million_tokens"]
    assert output.old is not None and output.new is not None
    assert (output.old.value, output.new.value) == (0.6, 2.5)
    assert {one.of_row for one in found if one.row == "google gemini-2.5-pro"} == {"new"}
    assert price_differences(known, dt.date(2026, 3, 1), dt.date(2026, 3, 1)) == []


def test_kinds_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    """A fault in another kind is no fault yet."""
    known = catalog(tmp_path, '\n[[hardware]]\nid = "x"\nname = "X"\npower = 1\n')
    assert known.runtimes["vllm"].name == "vLLM"
    with pytest.raises(CatalogError):
        known.hardware  # noqa: B018


def test_where_ones_own_files_are(tmp_path: Path) -> None:
    assert user_folder({"XDG_CONFIG_HOME": "/c"}) == Path("/c/headrace/catalog")
    assert user_folder({"HOME": "/h"}) == Path("/h/.config/headrace/catalog")
    relative = user_folder({"HOME": "/h", "XDG_CONFIG_HOME": "c"})
    assert relative == Path("/h/.config/headrace/catalog")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert folders(environ, ("a",)) == (Path("a"),)
    own = tmp_path / "headrace" / "catalog"
    own.mkdir(parents=True)
    assert folders(environ, ("a",)) == (own, Path("a"))


def test_importing_headrace_reads_no_facts() -> None:
    code = (
        "import headrace, headrace.catalog, sys\n"
        "print([m for m in sys.modules if m.startswith('headrace.catalog.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr

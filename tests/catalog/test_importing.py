"""Prices of LiteLLM and models.dev: what becomes of each field; nothing is lost silently."""

from __future__ import annotations

import datetime as dt
import io
import json
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.catalog import Catalog, Source
from headrace.catalog.importing.litellm import read_litellm
from headrace.catalog.importing.models_dev import read_models_dev
from headrace.catalog.importing.rows_file import ImportedPrice, ImportedRows, file_text
from headrace.errors import CatalogError

DAY = dt.date(2026, 7, 24)
SOURCE = Source(id="table-2026-07-24", title='A "table"', date=DAY, url="https://example.org")


def litellm(**entry: Any) -> ImportedRows:
    entry = {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2e-6} | entry
    return read_litellm(json.dumps({"sample_spec": {}, "gpt-x": entry}).encode())


def loaded(path: Path, imported: ImportedRows) -> Catalog:
    path.mkdir(exist_ok=True)
    (path / "table.toml").write_text(file_text(imported, SOURCE, DAY), encoding="utf-8")
    return Catalog.load([path])


def test_fields_of_litellm(tmp_path: Path) -> None:
    found = litellm(
        output_cost_per_token=8e-6,
        cache_read_input_token_cost=2e-7,
        cache_creation_input_token_cost=2.5e-6,
        cache_creation_input_token_cost_above_1hr=4e-6,
        input_cost_per_token_above_200k_tokens=4e-6,
        output_cost_per_token_above_200k_tokens=12e-6,
        input_cost_per_token_batches=1e-6,
        output_cost_per_token_batches=4e-6,
        input_cost_per_token_priority=3.5e-6,
        output_cost_per_token_priority=14e-6,
        max_input_tokens=200000.0,
        prompt_cache_min_tokens=1024,
        supports_vision=True,
        search_context_cost_per_query={"search_context_size_low": 0.03},
        cache_read_input_token_cost_above_200k_tokens_priority=1e-6,
    )
    assert set(found.unknown) == {
        "search_context_cost_per_query", "cache_read_input_token_cost_above_200k_tokens_priority",
    }  # fmt: skip
    price = loaded(tmp_path, found).price("gpt-x", "openai", DAY)
    assert (price.input_usd_per_million_tokens, price.output_usd_per_million_tokens) == (2, 8)
    assert price.cache_read_usd_per_million_tokens == 0.2
    assert price.cache_write_5m_usd_per_million_tokens == 2.5
    assert price.cache_write_1h_usd_per_million_tokens == 4
    assert price.at(200_001).input == 4 and price.at(200_001).output == 12
    assert price.batch_factor == 0.5 and price.priority_factor == 1.75
    assert (price.context_tokens, price.cache_minimum_tokens) == (200_000, 1024)
    fact = price.fact("input_usd_per_million_tokens")
    assert (fact.source, fact.as_of) == ("table-2026-07-24", DAY)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"mode": "image_generation"}, "mode 'image_generation'"),
        ({"input_cost_per_token": None}, "no price per token"),
        ({"input_cost_per_token": "cheap"}, "no price per token"),
        ({"input_cost_per_token": -1}, "no price per token"),
        ({"litellm_provider": None}, "no provider"),
    ],
)
def test_what_litellm_says_and_is_no_price(entry: dict[str, Any], reason: str) -> None:
    found = litellm(**entry)
    assert found.rows == [] and found.skipped == {reason: 1}


def test_factors_that_differ_are_told() -> None:
    found = litellm(
        output_cost_per_token=8e-6,
        input_cost_per_token_batches=1e-6,
        output_cost_per_token_batches=2e-6,
    )
    assert found.unknown == {"*_batches (not one factor)": 1}
    assert "batch_factor" not in found.rows[0].prices


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b"\xff", b'{"a": {"mode"'])
def test_no_table_of_litellm(content: bytes) -> None:
    with pytest.raises(CatalogError, match="not LiteLLM's table"):
        read_litellm(content)


MODEL = """
name = "X"
[cost]
input = 1.25
output = 10
cache_read = 0.125
cache_write = 1.5625
reasoning = 12
image = 3
[[cost.tiers]]
tier = { type = "context", size = 200_000 }
input = 2.5
output = 15
[[cost.tiers]]
tier = { type = "batch" }
input = 1
[limit]
context = 1_000_000
output = 64_000
[experimental.modes.fast]
cost = { input = 30 }
"""


def tree(path: Path) -> Path:
    models = path / "providers" / "acme" / "models" / "org"
    models.mkdir(parents=True)
    (models / "x-1.toml").write_text(MODEL, encoding="utf-8")
    (models / "free.toml").write_text('name = "no cost"', encoding="utf-8")
    (path / "providers" / "acme" / "provider.toml").write_text('name = "Acme"', encoding="utf-8")
    return path


def archive(path: Path) -> Path:
    packed = path / "m.tar.gz"
    with tarfile.open(packed, "w:gz") as file:
        file.add(tree(path / "t"), "models.dev")
    return packed


def api(path: Path) -> Path:
    model = tomllib.loads(MODEL)
    file = path / "api.json"
    file.write_text(json.dumps({"acme": {"models": {"org/x-1": model, "f": {}}}}), encoding="utf-8")
    return file


@pytest.mark.parametrize("make", [tree, archive, api])
def test_fields_of_models_dev(tmp_path: Path, make: Any) -> None:
    found = read_models_dev(make(tmp_path / "m" if make is tree else tmp_path))
    assert found.skipped == {"no price per token": 1}
    assert set(found.unknown) == {
        "cost.image", "cost.tiers (without a size)", "experimental (prices of other modes)",
    }  # fmt: skip
    price = loaded(tmp_path / "out", found).price("org/x-1", "acme", DAY)
    assert price.at(1).input == 1.25 and price.at(200_001).output == 15
    assert price.at(200_001).cache_read == 0.125
    assert price.reasoning_usd_per_million_tokens == 12
    assert (price.context_tokens, price.max_output_tokens) == (1_000_000, 64_000)


def test_a_tier_under_its_older_name(tmp_path: Path) -> None:
    cost = {"input": 1, "output": 2, "context_over_200k": {"input": 2, "output": 3, "image": 1}}
    file = tmp_path / "api.json"
    file.write_text(json.dumps({"a": {"models": {"m": {"cost": cost}}}}), encoding="utf-8")
    found = read_models_dev(file)
    assert found.rows[0].above["input_usd_per_million_tokens"] == {200_000: 2}
    assert found.unknown == {"cost.tiers.image": 1}


def test_no_catalogue_of_models_dev(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="no model with a cost"):
        read_models_dev(tmp_path)
    with pytest.raises(CatalogError, match="cannot be read"):
        read_models_dev(tmp_path / "absent")
    (tmp_path / "x.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(CatalogError, match=r"not models.dev's api.json"):
        read_models_dev(tmp_path / "x.json")
    broken = tmp_path / "b" / "providers" / "a" / "models"
    broken.mkdir(parents=True)
    (broken / "m.toml").write_bytes(b"\xff = [")
    with pytest.raises(CatalogError, match="not valid TOML"):
        read_models_dev(tmp_path / "b")


def test_links_of_an_archive_are_not_followed(tmp_path: Path) -> None:
    packed = tmp_path / "m.tar"
    with tarfile.open(packed, "w") as file:
        link = tarfile.TarInfo("providers/a/models/m.toml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        file.addfile(link)
        large = tarfile.TarInfo("providers/a/models/large.toml")
        large.size = 2**19
        file.addfile(large, io.BytesIO(b"#" * large.size))
    with pytest.raises(CatalogError, match="no model with a cost"):
        read_models_dev(packed)


@settings(max_examples=40, deadline=None)
@given(name=st.text(), model=st.text(), price=st.floats(0, 1e6))
def test_any_text_becomes_a_file_that_can_be_read(name: str, model: str, price: float) -> None:
    row = ImportedPrice("i", name, "p", model, {"input_usd_per_million_tokens": price}, {})
    said = tomllib.loads(file_text(ImportedRows([row], {}, {}), SOURCE, DAY))["price"][0]  # type: ignore[arg-type]
    assert (said["name"], said["model"]) == (name, model)
    assert said["input_usd_per_million_tokens"] == price


@pytest.mark.long
def test_the_real_tables(tmp_path: Path, shared_assets: Path) -> None:
    prices = shared_assets / "api-specs" / "prices"
    lite = read_litellm((prices / "litellm-full-2026-07-24.json").read_bytes())
    dev = read_models_dev(prices / "models.dev-tomls.tar.gz")
    assert len(lite.rows) > 2000 and len(dev.rows) > 4000
    few = [row for row in (*lite.rows, *dev.rows) if row.provider in ("anthropic", "openai", "xai")]
    known = loaded(tmp_path, ImportedRows(few, lite.unknown, lite.skipped))
    here = known.price("claude-opus-4-6", "anthropic", DAY)
    assert here.at(1) == known.prices["claude-opus-4.6.anthropic"].at(1)
    grok = known.prices["litellm-xai-grok-4-1-fast"]
    assert grok.at(128_001).output == 1.0 and grok.at(128_000).output == 0.5

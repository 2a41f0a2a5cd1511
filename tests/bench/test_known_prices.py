"""Prices of endpoints that the catalog knows; of others nothing is said."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from headrace.bench.cost import Prices
from headrace.bench.known_prices import endpoint_prices, known_prices
from headrace.catalog import Catalog

DAY = dt.date(2026, 11, 22)

ROWS = """
[[price]]
id = "{model}.openai.mine"
name = "Price of {model}"
source = "general-knowledge"
as_of = 2026-11-01
confidence = "low"
provider = "openai"
model = "{model}"
effective_from = 2026-10-01
input_usd_per_million_tokens = 2
output_usd_per_million_tokens = 8
"""

TIERS = """cache_read_usd_per_million_tokens = 0.5
input_usd_per_million_tokens_above."200000" = 4
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("catalog")
    (folder / "mine.toml").write_text(
        ROWS.format(model="made-up") + TIERS + ROWS.format(model="plain-one")
    )
    return Catalog.load([folder])


def test_host_and_model_that_are_known(catalog: Catalog) -> None:
    got = known_prices(catalog, "https://api.openai.com/v1", "made-up", DAY)
    assert got is not None
    assert (got.input_usd, got.output_usd, got.cached_usd) == (2, 8, 0.5)
    assert got.prompt_tokens_most == 200_000
    assert got.source == "catalog, made-up.openai.mine (general-knowledge, as of 2026-11-01)"
    plain = known_prices(catalog, "https://api.openai.com", "plain-one", DAY)
    assert plain is not None and plain.prompt_tokens_most is None


@pytest.mark.parametrize(
    ("url", "model", "day"),
    [
        ("https://api.openai.com/v1", "made-up", dt.date(2026, 9, 30)),
        ("https://api.openai.com/v1", "no-such-model", DAY),
        ("https://proxy.example.com/v1", "made-up", DAY),
        ("https://api.openai.com.example.org/v1", "made-up", DAY),
        ("http://localhost:4000", "made-up", DAY),
    ],
)
def test_what_is_not_known_stays_unknown(
    catalog: Catalog, url: str, model: str, day: dt.date
) -> None:
    assert known_prices(catalog, url, model, day) is None


def own_catalog(folder: Path, text: str) -> dict[str, str]:
    """The environment of somebody who keeps such a file."""
    (folder / "headrace" / "catalog").mkdir(parents=True)
    (folder / "headrace" / "catalog" / "mine.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(folder)}


def test_what_was_given_wins(tmp_path: Path) -> None:
    environ = own_catalog(tmp_path, ROWS.format(model="made-up"))
    url = "https://api.openai.com/v1"
    given = Prices(input_usd=1.0)
    assert endpoint_prices(given, url, "made-up", environ, DAY) == given
    assert endpoint_prices(Prices(), url, "made-up", environ, DAY).input_usd == 2
    assert endpoint_prices(Prices(), url, "other", environ, DAY) == Prices()


def test_of_a_server_of_ones_own_no_catalog_is_read(tmp_path: Path) -> None:
    environ = own_catalog(tmp_path, "[[")
    for url in ("http://127.0.0.1:8000", "http://localhost:1", "http://gpu-box:8000"):
        assert endpoint_prices(Prices(), url, "made-up", environ, DAY) == Prices()

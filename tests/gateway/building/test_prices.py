"""Prices of targets in whole nano-dollars, of the file or of the catalog on a day."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.catalog import Catalog
from headrace.catalog.rows import Model
from headrace.catalog.rows import Price as PriceRow
from headrace.catalog.table import Table
from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.building.gateway import providers_of
from headrace.gateway.building.prices import CatalogPrices, known_price, stated_price
from headrace.gateway.building.routes import Targets
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.settings.target import PriceSettings
from headrace.gateway.targets.target import Price

CATALOG = Catalog.load(())
TODAY = dt.date(2026, 11, 22)
NUSD = 1_000_000_000

_HEAD = 'source = "general-knowledge"\nas_of = 2026-10-01\nconfidence = "low"\n'


def catalog(folder: Path, *prices: str) -> Catalog:
    """What ships, and price rows of a provider "acme"."""
    text = f'[[provider]]\nid = "acme"\nname = "Acme"\naliases = ["Acme Inc"]\n{_HEAD}'
    text += 'category = "model-api"\n'
    for number, price in enumerate(prices):
        text += f'[[price]]\nid = "acme-{number}"\nname = "Acme {number}"\n{_HEAD}'
        text += f'provider = "acme"\n{price}\n'
    (folder / "acme.toml").write_text(text)
    return Catalog.load([folder])


def row(model: str, since: str, usd_in: str, usd_out: str, more: str = "") -> str:
    return (
        f'model = "{model}"\neffective_from = {since}\n'
        f"input_usd_per_million_tokens = {usd_in}\n"
        f"output_usd_per_million_tokens = {usd_out}\n{more}"
    )


def test_prices_of_the_file_are_exact() -> None:
    settings = PriceSettings(input=0.1, output=0.3, cache_read=0.025, cache_write=0.125,
                             cache_write_1h=0.2)  # fmt: skip
    price = stated_price(settings)
    assert (price.input, price.output) == (100_000_000, 300_000_000)
    assert (price.cache_read, price.cache_write) == (25_000_000, 125_000_000)
    assert price.cache_write_1h == 200_000_000
    assert price.source == "the configuration" and price.above is None
    assert stated_price(PriceSettings(input=0, output=0)).input == 0
    assert stated_price(PriceSettings(input=1, output=1)).cache_read is None


def test_every_row_of_the_catalog_is_a_whole_number_of_nano_dollars() -> None:
    seen = 0
    for one in CATALOG.prices:
        name = one.model_at_provider or one.model
        price = known_price(CATALOG, one.provider, name, max(one.effective_from, TODAY))
        if price is None or not one.in_use:
            continue
        usd = one.input_usd_per_million_tokens
        if one.holds_on(TODAY) and usd is not None and price.as_of:
            seen += 1
        for nusd in (price.input, price.output, price.cache_read, price.cache_write):
            assert nusd is None or (type(nusd) is int and nusd >= 0)
    assert seen > 30


@pytest.mark.parametrize(
    "usd", ["0.0375", "0.1", "0.28", "0.435", "1.75", "2.19", "75", "0.000001"]
)
def test_dollars_as_they_are_written_lose_nothing(tmp_path: Path, usd: str) -> None:
    known = catalog(tmp_path, row("one", "2026-01-01", usd, usd))
    price = known_price(known, "acme", "one", TODAY)
    assert price is not None
    assert Decimal(price.input) == Decimal(usd) * NUSD


def test_what_nobody_knows_is_none() -> None:
    assert known_price(CATALOG, "openai", "no-such-model", TODAY) is None
    assert known_price(CATALOG, "no-such-provider", "gpt-4.1", TODAY) is None
    assert known_price(CATALOG, "openai", "claude-opus-4-6", TODAY) is None
    assert known_price(CATALOG, "openai", "gpt-4.1", dt.date(2019, 1, 1)) is None
    assert known_price(CATALOG, "openai", "", TODAY) is None


def test_half_a_price_is_none(tmp_path: Path) -> None:
    known = catalog(
        tmp_path,
        'model = "half"\neffective_from = 2026-01-01\noutput_usd_per_million_tokens = 1.0\n',
        'model = "other"\neffective_from = 2026-01-01\ninput_usd_per_million_tokens = 1.0\n',
    )
    assert known_price(known, "acme", "half", TODAY) is None
    assert known_price(known, "acme", "other", TODAY) is None


def test_the_row_in_force_that_day(tmp_path: Path) -> None:
    known = catalog(
        tmp_path,
        row("m", "2026-01-01", "1.0", "2.0"),
        row("m", "2026-06-01", "3.0", "4.0", "effective_to = 2026-12-01\n"),
        row("m", "2027-01-01", "5.0", "6.0"),
        row("m", "2026-11-01", "9.0", "9.0", "in_use = false\n"),
    )

    def usd(day: str) -> int | None:
        price = known_price(known, "acme", "m", dt.date.fromisoformat(day))
        return None if price is None else price.input // NUSD

    assert [usd(day) for day in ("2025-12-31", "2026-01-01", "2026-05-31", "2026-06-01")] == [
        None, 1, 1, 3,
    ]  # fmt: skip
    assert [usd(day) for day in ("2026-11-30", "2026-12-01", "2027-01-01")] == [3, 1, 5]


def test_names_of_providers_and_models_as_people_write_them(tmp_path: Path) -> None:
    known = catalog(
        tmp_path, row("acme-large", "2026-01-01", "1.0", "2.0", 'model_at_provider = "vendor/L"\n')
    )
    prices = {
        known_price(known, provider, model, TODAY)
        for provider in ("acme", "Acme Inc", "ACME")
        for model in ("vendor/L", "acme-large")
    }
    assert len(prices) == 1 and None not in prices
    assert known_price(known, "acme", "vendor/l2", TODAY) is None
    # An id or an alias of the catalog's model, where the provider calls it otherwise.
    assert known_price(CATALOG, "Gemini", "gemini-2.5-pro", TODAY) is not None
    assert known_price(CATALOG, "anthropic", "claude-opus-4.6", TODAY) == known_price(
        CATALOG, "anthropic", "claude-opus-4-6", TODAY
    )


def test_tiers_by_the_length_of_the_prompt(tmp_path: Path) -> None:
    tiers = (
        "cache_read_usd_per_million_tokens = 0.1\n"
        "reasoning_usd_per_million_tokens = 7.0\n"
        'input_usd_per_million_tokens_above."200000" = 2.0\n'
        'output_usd_per_million_tokens_above."200000" = 6.0\n'
        'input_usd_per_million_tokens_above."32000" = 1.5\n'
    )
    known = catalog(tmp_path, row("m", "2026-01-01", "1.0", "4.0", tiers))
    price = known_price(known, "acme", "m", TODAY)
    assert price is not None

    def of(tokens: int) -> tuple[int, int, int | None]:
        assert price is not None
        found = price.of_prompt(tokens)
        return found.input, found.output, found.cache_read

    low, middle = (NUSD, 4 * NUSD, NUSD // 10), (3 * NUSD // 2, 4 * NUSD, NUSD // 10)
    high = (2 * NUSD, 6 * NUSD, NUSD // 10)
    assert [of(tokens) for tokens in (0, 32_000, 32_001, 200_000, 200_001, 10**9)] == [
        low, low, middle, middle, high, high,
    ]  # fmt: skip
    for tokens in (1, 50_000, 300_000):
        found = price.of_prompt(tokens)
        assert found.reasoning == 7 * NUSD
        assert found.source == "general-knowledge" and found.as_of == "2026-10-01"


def test_tiers_agree_with_the_row_at_every_length() -> None:
    tiered = 0
    for one in CATALOG.prices:
        name = one.model_at_provider or one.model
        price = known_price(CATALOG, one.provider, name, TODAY)
        if not one.boundaries or price is None or not one.in_use or not one.holds_on(TODAY):
            continue
        tiered += 1
        lengths = {at + by for at in one.boundaries for by in (-1, 0, 1)} | {0, 10**8}
        for tokens in lengths:
            rates, found = one.at(tokens), price.of_prompt(tokens)
            assert rates.input is not None and rates.output is not None
            assert found.input == round(rates.input * NUSD), (one.id, tokens)
            assert found.output == round(rates.output * NUSD), (one.id, tokens)
    assert tiered >= 1


def test_free_is_a_price(tmp_path: Path) -> None:
    known = catalog(tmp_path, row("free", "2026-01-01", "0", "0"))
    price = known_price(known, "acme", "free", TODAY)
    assert isinstance(price, Price) and price.input == price.output == 0


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0, "a lot"])
def test_prices_of_the_file_that_are_none(value: object) -> None:
    target = {"model": "a/m", "price": {"input": value, "output": 1.0}}
    document = Document({"providers": {"a": {}}, "models": {"m": [target]}}, {})
    with pytest.raises(ConfigError, match=r"models\.m\.targets\.0\.price\.input"):
        parse_settings(document, "gateway.yaml")


class Looks(Catalog):
    """Counts how often all prices were gone through, and whether models were read."""

    looks = 0
    read_models = False

    @property
    def prices(self) -> Table[PriceRow]:
        self.looks += 1
        return super().prices

    @property
    def models(self) -> Table[Model]:
        self.read_models = True
        return super().models


def test_all_prices_are_gone_through_once_and_models_are_read_where_names_do_not_say() -> None:
    looks = Looks.load(())
    assert isinstance(looks, Looks)
    prices = CatalogPrices(looks)
    for _ in range(50):
        assert prices.known("openai", "gpt-4.1", TODAY) is not None
        assert prices.known("no-such-provider", "m", TODAY) is None
    assert looks.looks == 1 and not looks.read_models
    assert prices.known("anthropic", "claude-opus-4.6", TODAY) is not None
    assert prices.known("openai", "no-such-model", TODAY) is None
    assert looks.looks == 1 and looks.read_models


def test_service_tiers_are_factors_of_every_line(tmp_path: Path) -> None:
    more = (
        "cache_read_usd_per_million_tokens = 0.1\nflex_factor = 0.5\npriority_factor = 1.75\n"
        'input_usd_per_million_tokens_above."1000" = 2.0\n'
    )
    known = catalog(tmp_path, row("m", "2026-01-01", "1.0", "4.0", more),
                    row("plain", "2026-01-01", "1.0", "4.0"))  # fmt: skip
    price = known_price(known, "acme", "m", TODAY)
    assert price is not None
    flex, priority = price.of_service_tier("flex"), price.of_service_tier("priority")
    assert flex is not None and priority is not None
    assert (flex.input, flex.output, flex.cache_read) == (NUSD // 2, 2 * NUSD, NUSD // 20)
    assert flex.of_prompt(1_001).input == NUSD and flex.of_prompt(1_001).output == 2 * NUSD
    assert (priority.input, priority.output) == (7 * NUSD // 4, 7 * NUSD)
    plain = known_price(known, "acme", "plain", TODAY)
    assert plain is not None and plain.of_service_tier("flex") is None


def test_a_price_that_begins_later_holds_from_its_day_on(tmp_path: Path) -> None:
    known = catalog(
        tmp_path,
        row("m", "2026-01-01", "1.0", "2.0", "effective_to = 2026-12-01\n"),
        row("m", "2026-12-01", "3.0", "4.0", "effective_to = 2027-01-01\n"),
        row("always", "2026-01-01", "1.0", "2.0"),
    )
    settings = parse_settings(
        Document(
            {
                "providers": {"acme": {"base_url": "http://192.0.2.1/v1"}},
                "models": {"m": ["acme/m"], "always": ["acme/always"]},
            },
            {},
        ),
        "gateway.yaml",
    )
    now_s = dt.datetime(2026, 11, 22, 23, 59, tzinfo=dt.UTC).timestamp()
    targets = Targets(
        settings, providers_of(settings, known, Sources({}, Path())), known, lambda: now_s
    )
    target = targets.target(settings.models["m"].targets[0])

    def usd() -> int | None:
        return None if target.price is None else target.price.input // NUSD

    assert usd() == 1
    now_s = dt.datetime(2026, 11, 30, 23, 59, 59, tzinfo=dt.UTC).timestamp()
    assert usd() == 1
    now_s = dt.datetime(2026, 12, 1, tzinfo=dt.UTC).timestamp()
    assert usd() == 3
    now_s = dt.datetime(2027, 1, 1, tzinfo=dt.UTC).timestamp()
    assert usd() is None and not target.is_free
    # Where nothing changes nobody looks at a clock.
    assert targets.target(settings.models["always"].targets[0]).dated_price is None


def test_prices_of_the_file_for_thoughts_sound_and_service_tiers() -> None:
    price = {"input": 1, "output": 2, "reasoning": 3, "input_audio": 10, "output_audio": 20,
             "image": 0.04, "flex_factor": 0.5}  # fmt: skip
    document = Document(
        {
            "providers": {"a": "http://192.0.2.1"},
            "models": {"m": [{"model": "a/m", "price": price}]},
        },
        {},
    )
    own = parse_settings(document, "gateway.yaml").models["m"].targets[0].price
    assert own is not None
    stated = stated_price(own)
    assert (stated.reasoning, stated.input_audio, stated.output_audio) == (
        3 * NUSD, 10 * NUSD, 20 * NUSD,
    )  # fmt: skip
    assert stated.image == 40_000_000 and stated.input_audio_s is None
    assert stated.flex is not None and stated.flex.reasoning == 3 * NUSD // 2
    assert stated.priority is None

"""What tokens cost at a target: the file's prices, else the catalog's of today."""

from __future__ import annotations

import datetime as dt

from headrace.catalog import Catalog
from headrace.catalog.rows.price import Price as PriceRow
from headrace.catalog.rows.price import Rates
from headrace.gateway.settings.target import PriceSettings
from headrace.gateway.targets.target import NUSD_PER_USD, Price


def stated_price(settings: PriceSettings) -> Price:
    """Of the file."""
    return Price(
        input=_nusd(settings.input),
        output=_nusd(settings.output),
        cache_read=_maybe(settings.cache_read),
        cache_write=_maybe(settings.cache_write),
        cache_write_1h=_maybe(settings.cache_write_1h),
        source="the configuration",
    )


def known_price(catalog: Catalog, provider: str, model: str, on: dt.date) -> Price | None:
    """Of the catalog, in force on a day; None where it has none, or none for input or output.

    provider, model: ids or aliases of rows; the model also as requests call it there.
    """
    sold_by = catalog.provider_id(provider)
    found = [
        one
        for one in catalog.prices
        if catalog.provider_id(one.provider) == sold_by
        and one.in_use
        and one.holds_on(on)
        and model in (one.model_at_provider, one.model)
    ] or [one for one in catalog.prices_of(model, provider) if one.in_use and one.holds_on(on)]
    if not found:
        return None
    return _price(max(found, key=lambda one: one.effective_from))


def _price(row: PriceRow) -> Price | None:
    """Tiers from the longest prompts down, each with what holds above it."""
    fact = row.facts.get("input_usd_per_million_tokens")
    if fact is None:
        return None
    boundaries = sorted(row.boundaries)
    above: Price | None = None
    for number in range(len(boundaries), -1, -1):
        prompt = boundaries[number - 1] + 1 if number else 0
        rates = row.at(prompt)
        if rates.input is None or rates.output is None:
            return None
        ends = boundaries[number] if number < len(boundaries) else None
        above = _tier(row, rates, fact.source, fact.as_of.isoformat(), ends, above)
    return above


def _tier(
    row: PriceRow, rates: Rates, source: str, as_of: str, ends: int | None, above: Price | None
) -> Price:
    assert rates.input is not None
    assert rates.output is not None
    return Price(
        input=_nusd(rates.input),
        output=_nusd(rates.output),
        cache_read=_maybe(rates.cache_read),
        cache_write=_maybe(rates.cache_write_5m),
        cache_write_1h=_maybe(rates.cache_write_1h),
        reasoning=_maybe(row.reasoning_usd_per_million_tokens),
        input_audio=_maybe(row.input_audio_usd_per_million_tokens),
        output_audio=_maybe(row.output_audio_usd_per_million_tokens),
        source=source,
        as_of=as_of,
        above_tokens=ends,
        above=above,
    )


def _nusd(usd: float) -> int:
    """Per million tokens; prices have at most six places, which floats hold."""
    return round(usd * NUSD_PER_USD)


def _maybe(usd: float | None) -> int | None:
    return None if usd is None else _nusd(usd)

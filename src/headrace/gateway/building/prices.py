"""The prices of targets: from the file, else the catalog's of each day."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import cached_property

from headrace.catalog import Catalog
from headrace.catalog.rows.price import Price as PriceRow
from headrace.gateway.settings.target import PriceSettings
from headrace.gateway.targets.target import Price
from headrace.protocol.neutral.dollars import NUSD_PER_USD


def stated_price(settings: PriceSettings) -> Price:
    """A price from the file."""
    price = Price(
        input=_nusd(settings.input),
        output=_nusd(settings.output),
        cache_read=_maybe(settings.cache_read),
        cache_write=_maybe(settings.cache_write),
        cache_write_1h=_maybe(settings.cache_write_1h),
        reasoning=_maybe(settings.reasoning),
        input_audio=_maybe(settings.input_audio),
        output_audio=_maybe(settings.output_audio),
        image=_maybe(settings.image),
        input_audio_s=_maybe(settings.input_audio_second),
        source="the configuration",
    )
    flex, priority = settings.flex_factor, settings.priority_factor
    return replace(
        price,
        flex=None if flex is None else price.times(flex),
        priority=None if priority is None else price.times(priority),
    )


class CatalogPrices:
    """Prices of a catalog by provider and model, found without a look at all of them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._by_name: dict[str, dict[str, list[PriceRow]]] = {}
        self._by_id: dict[str, dict[str, list[PriceRow]]] = {}
        # By the row's id.
        self._made: dict[str, Price | None] = {}

    def known(self, provider: str, model: str, on: dt.date) -> Price | None:
        """The price in force on a day; None if there is none, or none for input or output.

        provider, model: ids or aliases of rows; the model also by the name in requests.
        """
        sold_by = self._catalog.provider_id(provider)
        if sold_by not in self._by_provider:
            return None
        found = [one for one in self._named(sold_by).get(model, ()) if one.holds_on(on)]
        if not found:
            of_model = self._of_models(sold_by).get(self._catalog.model_id(model), ())
            found = [one for one in of_model if one.holds_on(on)]
        if not found:
            return None
        row = max(found, key=lambda one: one.effective_from)
        if row.id not in self._made:
            self._made[row.id] = _price(row)
        return self._made[row.id]

    def steps(self, provider: str, model: str, on: dt.date) -> list[tuple[dt.date, Price | None]]:
        """The prices from that day on, one for each later day on which it changes."""
        rows = self._by_provider.get(self._catalog.provider_id(provider), ())
        days = {day for row in rows for day in (row.effective_from, row.effective_to) if day}
        found = [(on, self.known(provider, model, on))]
        for day in sorted(day for day in days if day > on):
            price = self.known(provider, model, day)
            if price != found[-1][1]:
                found.append((day, price))
        return found

    @cached_property
    def _by_provider(self) -> dict[str, list[PriceRow]]:
        found: dict[str, list[PriceRow]] = {}
        for price in self._catalog.prices:
            if price.in_use:
                found.setdefault(self._catalog.provider_id(price.provider), []).append(price)
        return found

    def _named(self, sold_by: str) -> dict[str, list[PriceRow]]:
        """Rows by the names that they have for their model."""
        if sold_by not in self._by_name:
            by_name = self._by_name[sold_by] = {}
            for one in self._by_provider[sold_by]:
                for name in {one.model, one.model_at_provider or one.model}:
                    by_name.setdefault(name, []).append(one)
        return self._by_name[sold_by]

    def _of_models(self, sold_by: str) -> dict[str, list[PriceRow]]:
        """Rows by the model's id. This reads the catalog's models, which rows with names do not
        need."""
        if sold_by not in self._by_id:
            by_id = self._by_id[sold_by] = {}
            for one in self._by_provider[sold_by]:
                by_id.setdefault(self._catalog.model_id(one.model), []).append(one)
        return self._by_id[sold_by]


def known_price(catalog: Catalog, provider: str, model: str, on: dt.date) -> Price | None:
    """See `CatalogPrices.known`; for a single lookup."""
    return CatalogPrices(catalog).known(provider, model, on)


def _price(row: PriceRow) -> Price | None:
    """A row's price with the factors of other service tiers."""
    price = _at(row, 1.0)
    if price is None:
        return None
    flex = None if row.flex_factor is None else _at(row, row.flex_factor)
    priority = None if row.priority_factor is None else _at(row, row.priority_factor)
    return replace(price, flex=flex, priority=priority)


def _at(row: PriceRow, factor: float) -> Price | None:
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
        lines = Price(
            input=_nusd(rates.input),
            output=_nusd(rates.output),
            cache_read=_maybe(rates.cache_read),
            cache_write=_maybe(rates.cache_write_5m),
            cache_write_1h=_maybe(rates.cache_write_1h),
            reasoning=_maybe(row.reasoning_usd_per_million_tokens),
            input_audio=_maybe(row.input_audio_usd_per_million_tokens),
            output_audio=_maybe(row.output_audio_usd_per_million_tokens),
            source=fact.source,
            as_of=fact.as_of.isoformat(),
            above_tokens=ends,
        )
        above = replace(lines.times(factor), above=above)
    return above


def _nusd(usd: float) -> int:
    """Per million tokens; prices have at most six places, which floats hold."""
    return round(usd * NUSD_PER_USD)


def _maybe(usd: float | None) -> int | None:
    return None if usd is None else _nusd(usd)

"""What is known of a model that requests name: prices and cache limits of the catalog or file."""

from __future__ import annotations

import datetime as dt

from headrace.catalog import Catalog
from headrace.catalog.rows.price import Price as PriceRow
from headrace.gateway.building.prices import known_price
from headrace.gateway.prompt_cache.lint import Known
from headrace.gateway.routing.router import Router

_VENDORS = ("openai", "anthropic", "google")
# Providers that sell another vendor's models on that vendor's terms.
_SAME_AS = {
    "azure-openai": "openai",
    "google-vertex": "google",
    "google-vertex-anthropic": "anthropic",
}
_NEED_MARKS = ("anthropic", "google-vertex-anthropic")
_CLAUDE = "claude"


def known_of(model: str, catalog: Catalog, router: Router | None, on: dt.date) -> Known:
    """What is known of the first target of a configured model (router), or of `provider/model`, or
    of the maker of a model of that name."""
    price = None
    route = None if router is None else router.route(model)
    if route is not None and route.targets:
        target = route.targets[0]
        price, model = target.price, f"{target.provider.name}/{target.model}"
    named, _, inner = model.rpartition("/")
    provider = catalog.provider_id(named) if named else _maker(catalog, inner)
    row = _row(catalog, inner, provider, on)
    if price is None and provider is not None:
        price = known_price(catalog, provider, inner, on)
    minimum = None if row is None else row.cache_minimum_tokens
    if minimum is None and provider is not None:
        minimum = _minimum(catalog, _SAME_AS.get(provider, provider))
    needs_marks = provider in _NEED_MARKS or _CLAUDE in inner
    return Known(price, minimum, needs_marks)


def _maker(catalog: Catalog, model: str) -> str | None:
    sellers = [row.provider for row in catalog.prices_of(model) if row.in_use]
    sellers += [row.provider for row in catalog.prices if row.model_at_provider == model]
    return next(
        (vendor for vendor in _VENDORS if vendor in sellers), sellers[0] if sellers else None
    )


def _row(catalog: Catalog, model: str, provider: str | None, on: dt.date) -> PriceRow | None:
    rows = [
        row
        for row in catalog.prices
        if row.in_use and row.holds_on(on) and model in (row.model_at_provider, row.model)
        and (provider is None or catalog.provider_id(row.provider) == provider)
    ]  # fmt: skip
    return max(rows, key=lambda row: row.effective_from, default=None)


def _minimum(catalog: Catalog, vendor: str) -> int | None:
    row = catalog.constants.find(f"prompt-cache-minimum-{vendor}")
    figure = None if row is None else row.figure
    return None if figure is None or figure.low is None else int(figure.low)

"""What is known of a model that requests name: prices and lengths of the catalog or the file."""

from __future__ import annotations

import datetime as dt

from headrace.catalog import Catalog
from headrace.catalog.rows.price import Price as PriceRow
from headrace.gateway.building.prices import known_price
from headrace.gateway.prompt_cache.lint import Known
from headrace.gateway.routing.router import Router

_VENDORS = ("openai", "anthropic", "google")
# Those who sell another vendor's models as that vendor does.
_SAME_AS = {
    "azure-openai": "openai",
    "google-vertex": "google",
    "google-vertex-anthropic": "anthropic",
}
_NEED_MARKS = ("anthropic", "google-vertex-anthropic")
_CLAUDE = "claude"


def known_of(model: str, catalog: Catalog, router: Router | None, on: dt.date) -> Known:
    """Of the first target of a model of the file (router), or of `provider/model`, or of whoever
    makes a model of that name."""
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
    sellers = [one.provider for one in catalog.prices_of(model) if one.in_use]
    sellers += [one.provider for one in catalog.prices if one.model_at_provider == model]
    return next((one for one in _VENDORS if one in sellers), sellers[0] if sellers else None)


def _row(catalog: Catalog, model: str, provider: str | None, on: dt.date) -> PriceRow | None:
    rows = [
        one
        for one in catalog.prices
        if one.in_use and one.holds_on(on) and model in (one.model_at_provider, one.model)
        and (provider is None or catalog.provider_id(one.provider) == provider)
    ]  # fmt: skip
    return max(rows, key=lambda one: one.effective_from, default=None)


def _minimum(catalog: Catalog, vendor: str) -> int | None:
    row = catalog.constants.find(f"prompt-cache-minimum-{vendor}")
    figure = None if row is None else row.figure
    return None if figure is None or figure.low is None else int(figure.low)

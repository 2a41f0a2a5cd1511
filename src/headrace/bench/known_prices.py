"""What an endpoint's tokens cost, where the catalog knows who sells there and the price of a model.

An endpoint is known by its host alone: a proxy, a gateway and a server of one's own have none of
the catalog's prices, whatever they serve.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.bench.cost import Prices
from headrace.catalog import Catalog
from headrace.catalog.user_folder import folders

_OWN = ("localhost", "127.", "::1", "0.0.0.0", "10.", "192.168.")


def is_own(url: str) -> bool:
    """Whether the host is plainly this machine or this network: nobody sells tokens there."""
    host = urlsplit(url).hostname or ""
    return host.startswith(_OWN) or "." not in host


def endpoint_prices(
    given: Prices, url: str, model: str, environ: Mapping[str, str], on: dt.date
) -> Prices:
    """Those that were given; where none were, the catalog's (with the user's own rows); none where
    it has none. Raises CatalogError of a catalog that cannot be read."""
    if given != Prices() or is_own(url):
        return given
    return known_prices(Catalog.load(folders(environ, ())), url, model, on) or given


def known_prices(catalog: Catalog, url: str, model: str, on: dt.date) -> Prices | None:
    """The list prices in force on a day, per million tokens, with their source and its date.

    None where the catalog does not know who sells at that host, or has no price of the model there.
    """
    host = urlsplit(url).hostname
    sellers = [
        one.id
        for one in catalog.providers
        if one.base_url and host and urlsplit(one.base_url).hostname == host
    ]
    if is_own(url) or len(sellers) != 1:
        return None
    found = catalog.prices_of(model, sellers[0])
    now = [one for one in found if one.in_use and one.holds_on(on)]
    if not now:
        return None
    price = max(now, key=lambda one: one.effective_from)
    rates = price.at(0)
    if rates.input is None or rates.output is None:
        return None
    facts = {
        field: price.fact(field)
        for field in ("input_usd_per_million_tokens", "output_usd_per_million_tokens")
    }
    said = dict.fromkeys(f"{fact.source}, as of {fact.as_of}" for fact in facts.values())
    disputed = sorted({one for fact in facts.values() for one in fact.disputed_by})
    return Prices(
        input_usd=rates.input,
        output_usd=rates.output,
        cached_usd=rates.cache_read,
        source=f"catalog, {price.id} ({'; '.join(said)})"
        + (f", disputed in {', '.join(disputed)}" if disputed else ""),
        prompt_tokens_most=min(price.boundaries, default=None),
    )

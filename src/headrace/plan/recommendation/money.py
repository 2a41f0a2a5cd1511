"""What a month costs: of machines rented, bought or there already, and of an API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.catalog import Catalog
from headrace.catalog.rows import Hardware, Price
from headrace.errors import ConfigError
from headrace.plan.cost.cost import HOURS_PER_MONTH, ApiUse, api_cost
from headrace.plan.cost.cost_figures import api_figure
from headrace.plan.cost.cost_terms import CostTerms, owned, rent_of
from headrace.plan.model.renamed import figure_input
from headrace.plan.quantity import Input, Quantity
from headrace.plan.recommendation.option import Paid
from headrace.plan.recommendation.question import Question

SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600


@dataclass(frozen=True, kw_only=True)
class HourPrice:
    """USD an hour of one device, with the band; None where nobody states it."""

    paid: Paid
    low: float
    value: float
    high: float
    inputs: tuple[Input, ...]


def hour_price(catalog: Catalog, row: Hardware | None) -> HourPrice | None:
    """The cheaper of renting and buying one device; this machine (None) is there already."""
    if row is None:
        there = Input("this machine", 0.0, "USD/h", "it is there already; power is not counted",
                      "assumed")  # fmt: skip
        return HourPrice(paid="there already", low=0.0, value=0.0, high=0.0, inputs=(there,))
    found = []
    terms = CostTerms()
    try:
        rent = rent_of(row, terms)
    except ConfigError:
        pass
    else:
        found.append(
            HourPrice(
                paid="rented", low=rent.low, value=rent.value, high=rent.high, inputs=(rent.input,)
            )
        )
    try:
        bought = owned(catalog, row, terms, 1)
    except ConfigError:
        pass
    else:
        low, value, high = (
            one.hour(terms.utilization).usd_per_hour
            for one in (bought.best, bought.value, bought.worst)
        )
        found.append(
            HourPrice(paid="bought", low=low, value=value, high=high, inputs=bought.inputs)
        )
    return min(found, key=lambda one: one.value, default=None)


def month_of_devices(id: str, price: HourPrice, devices: int) -> Quantity:
    """USD a month of so many devices, busy or not."""
    hours = devices * HOURS_PER_MONTH
    many = f"{devices} device{'s' if devices > 1 else ''}"
    return Quantity(
        f"{id}.month", f"a month of {many}, {price.paid}", price.value * hours,
        "USD/month", "O5", (*price.inputs, Input("devices", devices, "", "figure", "given")),
        price.low * hours, price.high * hours,
    )  # fmt: skip


class ApiMonth(NamedTuple):
    """The cost of a month by API."""

    month: Quantity
    """USD."""
    request: Quantity
    tokens: Quantity
    """With `request`: figures that it comes from."""
    batch: bool
    """With the batch discount."""


def month_of_api(id: str, seller: str, price: Price, question: Question) -> ApiMonth:
    """USD a month by the token.

    Raises ConfigError where the price lacks what the request needs.
    """
    batch = question.task == "batch" and price.batch_factor is not None
    use = ApiUse(
        prompt_tokens=question.prompt_tokens, output_tokens=question.output_tokens,
        cache_read_share=question.cached_prompt_share, batch=batch,
    )  # fmt: skip
    cost = api_cost(price, use)
    requests = question.mean_rate * SECONDS_PER_MONTH
    tokens = replace(api_figure(price, seller, cost, use), id=f"{id}.tokens")
    request = Quantity(
        f"{id}.request", f"{tokens.name}, a request", cost.usd_per_request, "USD/request", "P5",
        (
            figure_input(tokens),
            Input("prompt", question.prompt_tokens, "tokens", "--prompt", "given"),
            Input("output", question.output_tokens, "tokens", "--output", "given"),
        ),
    )  # fmt: skip
    month = Quantity(
        f"{id}.month", "a month, by the token", requests * cost.usd_per_request, "USD/month", "O5",
        (
            figure_input(request),
            Input("mean rate", question.mean_rate, "requests/s", "--mean-rate or --rate", "given"),
        ),
    )  # fmt: skip
    return ApiMonth(month, request, tokens, batch)

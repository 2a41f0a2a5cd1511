"""Figures of cost and break-even with what they came from: formula, inputs, sources, band."""

from __future__ import annotations

from headrace.catalog.rows.price import Price
from headrace.plan.cost.break_even import BreakEven
from headrace.plan.cost.cost import ApiCost, ApiUse, TokenCost
from headrace.plan.cost.cost_terms import CostTerms, Owned, Rent, term_input
from headrace.plan.quantity import Input, Quantity, input_of_fact
from headrace.plan.speed.speed import Load, Speed

UNIT = "USD/1M tokens"


def served_tokens_per_s(load: Load, ttft_s: float, tpot_s: float) -> float:
    """Tokens of prompt and output together that a busy replica serves in a second.

    The batch's prompts are prefilled one after another, then its answers decoded together; runtimes
    that mix both in a step reach more.
    """
    seconds = load.batch * ttft_s + (load.output_tokens - 1) * tpot_s
    return load.batch * (load.prompt_tokens + load.output_tokens) / seconds


def served_figure(speed: Speed) -> Quantity:
    """Throughput of prompt and output together under the load of `speed`."""
    load = speed.load
    rates = [
        served_tokens_per_s(load, getattr(speed.ttft, end), getattr(speed.tpot, end))
        for end in ("worst_s", "value_s", "best_s")
    ]
    return Quantity(
        id="cost.served",
        name="tokens served, prompt and output",
        value=rates[1],
        unit="tokens/s",
        formula="T5",
        inputs=(
            Input("TTFT, prefill alone", speed.ttft.value_s, "s", "figure speed.ttft", "given"),
            Input("TPOT", speed.tpot.value_s, "s", "figure speed.tpot", "given"),
            Input("batch", load.batch, "requests", "given", "given"),
            Input("prompt", load.prompt_tokens, "tokens", "given", "given"),
            Input("output", load.output_tokens, "tokens", "given", "given"),
        ),
        low=rates[0],
        high=rates[2],
    )


def measured_served_figure(tokens_per_s: float) -> Quantity:
    """The same where somebody measured it."""
    stated = Input("tokens per second", tokens_per_s, "tokens/s", "--tokens-per-s", "given")
    return Quantity(
        "cost.served", "tokens served, prompt and output", tokens_per_s, "tokens/s", "T5",
        (stated,),
    )  # fmt: skip


def own_figure(
    costs: tuple[TokenCost, TokenCost, TokenCost], owned: Owned, terms: CostTerms, served: Quantity
) -> Quantity:
    """costs: at the least, as planned with, and at the most."""
    beside = "" if terms.operations_usd_per_hour else " (devices and power alone)"
    name = f"own hardware{beside}"
    return _hardware("cost.own", name, "P1", costs, owned.inputs, terms, served)


def rented_figure(
    costs: tuple[TokenCost, TokenCost, TokenCost],
    rent: Rent,
    devices: int,
    terms: CostTerms,
    served: Quantity,
) -> Quantity:
    """costs: at the least, as planned with, and at the most."""
    many = Input("devices", devices, "", "--count", "given")
    overhead = term_input("overhead", terms.rent_overhead, "x", "--rent-overhead")
    name = f"rented ({rent.name})"
    return _hardware("cost.rented", name, "P2", costs, (rent.input, many, overhead), terms, served)


def api_figure(price: Price, provider: str, cost: ApiCost, use: ApiUse) -> Quantity:
    """A million tokens of prompt and output together at `provider`."""
    paths = ["input_usd_per_million_tokens", "output_usd_per_million_tokens"]
    if use.cache_read_share:
        paths.append("cache_read_usd_per_million_tokens")
    if use.batch:
        paths.append("batch_factor")
    above = [
        path for path in price.facts
        if "_above." in path and use.prompt_tokens > int(path.rpartition(".")[2])
    ]  # fmt: skip
    facts = tuple(
        input_of_fact(price, path, price.facts[path])
        for path in (*paths, *above)
        if path in price.facts
    )
    given = (
        Input("prompt", use.prompt_tokens, "tokens", "given", "given"),
        Input("output", use.output_tokens, "tokens", "given", "given"),
        Input("cache hit rate", use.cache_read_share, "share", "--cached", "given"),
    )
    return Quantity(
        f"cost.api.{price.id}", f"API ({provider})", cost.usd_per_million_tokens, UNIT, "P3",
        (*facts, *given),
    )  # fmt: skip


def break_even_figures(
    own: Quantity, api: Quantity, found: BreakEven, usd_per_month: float
) -> tuple[Quantity, ...]:
    """The first volume at which hardware pays and the one from which it always does.

    Neither where it never does.
    """
    month = Input(
        "cost of a replica", usd_per_month, "USD/month", f"figure {own.id}.month", "given"
    )
    price = Input(api.name, api.value, UNIT, f"figure {api.id}", "given")
    way = own.id.rpartition(".")[2]
    ends = (
        ("first", "pays first at", found.first_tokens_per_month),
        ("always", "always pays from", found.always_tokens_per_month),
    )
    return tuple(
        Quantity(
            f"break-even.{way}.{end}", f"{own.name} {says}", volume, "tokens/month", "P4",
            (month, price),
        )
        for end, says, volume in ends
        if volume is not None
    )  # fmt: skip


def _hardware(
    id: str,
    name: str,
    formula: str,
    costs: tuple[TokenCost, TokenCost, TokenCost],
    inputs: tuple[Input, ...],
    terms: CostTerms,
    served: Quantity,
) -> Quantity:
    low, value, high = (one.usd_per_million_tokens for one in costs)
    return Quantity(
        id=id,
        name=name,
        value=value,
        unit=UNIT,
        formula=formula,
        inputs=(
            *inputs,
            term_input("utilisation", terms.utilization, "share", "--utilization"),
            Input(served.name, served.value, served.unit, f"figure {served.id}", "given"),
        ),
        low=low,
        high=high,
    )

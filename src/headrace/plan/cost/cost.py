"""What a million tokens cost: on own hardware, rented, and by API.

    own     (hardware / (years · 8760 h) + kW · PUE · USD/kWh + operations) / tokens of an hour
    rented  USD/h · overhead multiplier / tokens of an hour
    API     prompt · ((1 − hit) · input + hit · cached read + write premium) + output · price

The tokens of an hour are what the hardware yields when it is busy, times its utilisation. Prices
are in US dollars, months have 730 hours.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog.rows.price import Price
from headrace.errors import ConfigError
from headrace.plan.validation import above_zero, not_below, share

LEAST_UTILIZATION = 1e-4
"""Below an hour in a year prices run out of all bounds."""
HOURS_PER_YEAR = 8760.0
HOURS_PER_MONTH = 730.0
_MILLION = 1e6


@dataclass(frozen=True, kw_only=True)
class HourCost:
    """The cost of an hour, busy or idle, in US dollars by part."""

    hardware_usd_per_hour: float = 0.0
    energy_usd_per_hour: float = 0.0
    operations_usd_per_hour: float = 0.0

    @property
    def usd_per_hour(self) -> float:
        return self.hardware_usd_per_hour + self.energy_usd_per_hour + self.operations_usd_per_hour

    @property
    def usd_per_month(self) -> float:
        return self.usd_per_hour * HOURS_PER_MONTH


@dataclass(frozen=True, kw_only=True)
class TokenCost:
    """The cost of a million tokens, in US dollars; the parts add up to `usd_per_million_tokens`."""

    hardware_usd_per_million_tokens: float
    energy_usd_per_million_tokens: float
    operations_usd_per_million_tokens: float
    tokens_per_month: float

    @property
    def usd_per_million_tokens(self) -> float:
        return (
            self.hardware_usd_per_million_tokens
            + self.energy_usd_per_million_tokens
            + self.operations_usd_per_million_tokens
        )


@dataclass(frozen=True, kw_only=True)
class OwnedHardware:
    """Hardware that the user buys and runs."""

    price_usd: float
    """Price of all devices."""
    lifetime_years: float
    """Over which that is written off."""
    power_w: float
    """Power at full load."""
    pue: float
    """Energy of the site over that of the machines, at least 1."""
    usd_per_kwh: float
    """Price of electricity."""
    operations_usd_per_hour: float = 0.0
    """People, racks, network."""
    idle_power_share: float = 1.0
    """Share of `power_w` drawn when idle; 1 if unknown, which is the maximum."""

    def __post_init__(self) -> None:
        not_below("price_usd", self.price_usd, 0, "0 is for what is paid off")
        above_zero("lifetime_years", self.lifetime_years, "servers are written off in 3 to 4")
        not_below("power_w", self.power_w, 0, "take it from the device's data sheet")
        not_below("pue", self.pue, 1, "1 means no cooling at all; 1.3 to 1.5 is usual")
        not_below("usd_per_kwh", self.usd_per_kwh, 0, "see the electricity bill")
        not_below("operations_usd_per_hour", self.operations_usd_per_hour, 0, "0 ignores it")
        share("idle_power_share", self.idle_power_share, "1 draws full power when idle")

    def hour(self, utilization: float) -> HourCost:
        """An average hour, `utilization` of it busy."""
        share("utilization", utilization, "it is the share of hours with work")
        drawn_share = utilization + (1 - utilization) * self.idle_power_share
        kilowatts = self.power_w * drawn_share * self.pue / 1000
        return HourCost(
            hardware_usd_per_hour=self.price_usd / (self.lifetime_years * HOURS_PER_YEAR),
            energy_usd_per_hour=kilowatts * self.usd_per_kwh,
            operations_usd_per_hour=self.operations_usd_per_hour,
        )


def operations_usd_per_hour(price_usd: float, lifetime_years: float, multiplier: float) -> float:
    """What is left for operations where all costs are `multiplier` times the price of hardware.

    The multiplier (1.5 to 2.5 of own fleets) holds energy too: with it, give a power of 0.
    """
    not_below("price_usd", price_usd, 0, "it is the list price")
    above_zero("lifetime_years", lifetime_years, "servers are written off in 3 to 4")
    not_below("multiplier", multiplier, 1, "1 is the hardware alone; 1.5 to 2.5 is usual")
    return (multiplier - 1) * price_usd / (lifetime_years * HOURS_PER_YEAR)


def own_cost(hardware: OwnedHardware, tokens_per_s: float, utilization: float) -> TokenCost:
    """Of tokens made on own hardware; tokens_per_s: when busy. Raises ConfigError."""
    return _token_cost(hardware.hour(utilization), tokens_per_s, utilization)


def rented_cost(
    usd_per_hour: float, tokens_per_s: float, utilization: float, overhead_multiplier: float = 1.0
) -> TokenCost:
    """Of tokens made on rented hardware; overhead_multiplier: of the rent, for what comes with it.

    An H100 at $2.69 an hour and 92.5 tokens/s, always busy: $8.08. Raises ConfigError.
    """
    not_below("usd_per_hour", usd_per_hour, 0, "it is the price of all rented devices together")
    not_below("overhead_multiplier", overhead_multiplier, 1, "1 is the rent alone")
    hour = HourCost(
        hardware_usd_per_hour=usd_per_hour,
        operations_usd_per_hour=usd_per_hour * (overhead_multiplier - 1),
    )
    return _token_cost(hour, tokens_per_s, utilization)


def tokens_per_s_for(usd_per_million_tokens: float, usd_per_hour: float) -> float:
    """Tokens/s, sustained, at which that hour comes to that price."""
    above_zero(
        "usd_per_million_tokens", usd_per_million_tokens, "tokens cannot be free at any speed"
    )
    not_below("usd_per_hour", usd_per_hour, 0, "it is the price of all devices together")
    return usd_per_hour / 3600 / usd_per_million_tokens * _MILLION


def joules_per_token(power_w: float, tokens_per_s: float) -> float:
    """Energy of a token at the plug of the device, in J."""
    not_below("power_w", power_w, 0, "take it from the device's data sheet")
    return power_w / above_zero("tokens_per_s", tokens_per_s, "an idle machine makes no tokens")


def busy_share(utilization: float) -> float:
    """`utilization`, at least LEAST_UTILIZATION and at most 1; raises ConfigError."""
    not_below(
        "utilization", utilization, LEAST_UTILIZATION,
        "it is the share of hours with work, and an hour in a year is 0.0001; the price per "
            "token of a machine that is hardly ever in use is meaningless",
    )  # fmt: skip
    return share("utilization", utilization, "it is the share of hours with work")


def _token_cost(hour: HourCost, tokens_per_s: float, utilization: float) -> TokenCost:
    above_zero("tokens_per_s", tokens_per_s, "an hour without tokens has no price per token")
    busy_share(utilization)
    per_hour = tokens_per_s * 3600 * utilization
    return TokenCost(
        hardware_usd_per_million_tokens=hour.hardware_usd_per_hour / per_hour * _MILLION,
        energy_usd_per_million_tokens=hour.energy_usd_per_hour / per_hour * _MILLION,
        operations_usd_per_million_tokens=hour.operations_usd_per_hour / per_hour * _MILLION,
        tokens_per_month=per_hour * HOURS_PER_MONTH,
    )


@dataclass(frozen=True, kw_only=True)
class ApiUse:
    """The mean request sent to an API."""

    prompt_tokens: int
    output_tokens: int
    cache_read_share: float = 0.0
    cache_write_share: float = 0.0
    """With `cache_read_share`: of the prompt, read from the provider's cache and written to it for
    five minutes; together at most 1."""
    batch: bool = False
    """Use the batch API, if there is one."""

    def __post_init__(self) -> None:
        not_below("prompt_tokens", self.prompt_tokens, 1, "a request has at least one prompt token")
        not_below("output_tokens", self.output_tokens, 0, "0 is a prompt alone")
        share("cache_read_share", self.cache_read_share, "it is a share of the prompt")
        share("cache_write_share", self.cache_write_share, "it is a share of the prompt")
        both = self.cache_read_share + self.cache_write_share
        share("cache_read_share + cache_write_share", both, "a token is read or written")


@dataclass(frozen=True, kw_only=True)
class ApiCost:
    """The cost of using an API, in US dollars."""

    usd_per_request: float
    usd_per_million_tokens: float
    effective_input_usd_per_million_tokens: float
    output_usd_per_million_tokens: float
    assumptions: tuple[str, ...] = ()
    """Values that the price row does not state, and what was used instead."""


def api_cost(price: Price, use: ApiUse) -> ApiCost:
    """Of requests by an API at the tier of their prompt's length.

    usd_per_million_tokens is over prompt and output together. Raises ConfigError where the row has
    no price of input or output, or no discount for the batches that are asked for.
    """
    rates = price.at(use.prompt_tokens)
    if rates.input is None or (rates.output is None and use.output_tokens):
        field = "input" if rates.input is None else "output"
        raise ConfigError(
            f"{field}_usd_per_million_tokens of price {price.id} is not known, and a cost "
            "needs it: add it to your own catalog file"
        )
    assumptions = []
    cache_read, cache_write = rates.cache_read, rates.cache_write_5m
    if cache_read is None:
        cache_read = rates.input
        if use.cache_read_share:
            assumptions.append(
                f"{price.id} has no price for cached reads: the price of input is used"
            )
    if cache_write is None:
        cache_write = rates.input
        if use.cache_write_share:
            assumptions.append(
                f"{price.id} has no price for cache writes: the price of input is used"
            )
    factor = 1.0
    if use.batch:
        if price.batch_factor is None:
            raise ConfigError(
                f"batch is set; price {price.id} has no batch_factor: omit batch, or add the "
                "factor to your own catalog file"
            )
        factor = price.batch_factor
    fresh_share = max(0.0, 1 - use.cache_read_share - use.cache_write_share)
    effective_input = factor * (
        fresh_share * rates.input
        + use.cache_read_share * cache_read
        + use.cache_write_share * cache_write
    )
    output = factor * (rates.output or 0.0)
    request = (use.prompt_tokens * effective_input + use.output_tokens * output) / _MILLION
    return ApiCost(
        usd_per_request=request,
        usd_per_million_tokens=request / (use.prompt_tokens + use.output_tokens) * _MILLION,
        effective_input_usd_per_million_tokens=effective_input,
        output_usd_per_million_tokens=output,
        assumptions=tuple(assumptions),
    )

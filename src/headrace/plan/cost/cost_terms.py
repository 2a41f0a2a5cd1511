"""What own and rented hardware costs: as people say it, else as rows of the catalog do."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog import Catalog
from headrace.catalog.fact import Confidence
from headrace.catalog.rows.hardware import Hardware
from headrace.errors import ConfigError
from headrace.plan.cost.cost import OwnedHardware, busy_share
from headrace.plan.machine.hardware_memory import constant, constant_span
from headrace.plan.quantity import Input, input_of_fact
from headrace.plan.validation import not_below


class Assumed(float):
    """A term that nobody gave: as good as any, and shown as assumed."""


DEFAULT_UTILIZATION = Assumed(0.5)
_NONE_COUNTED = Assumed(0)
_ALL_OF_IT = Assumed(1)


@dataclass(frozen=True, kw_only=True)
class CostTerms:
    """Cost terms that the user gives; None means the catalog's."""

    utilization: float = DEFAULT_UTILIZATION
    rent_usd_per_hour: float | None = None
    vendor: str | None = None
    """Vendor whose rent is used."""
    rent_overhead: float = _ALL_OF_IT
    price_usd: float | None = None
    lifetime_years: float | None = None
    power_w: float | None = None
    """With `rent_usd_per_hour` and `price_usd`: of one device."""
    pue: float | None = None
    usd_per_kwh: float | None = None
    operations_usd_per_hour: float = _NONE_COUNTED
    """Cost of operations for a whole replica. The other terms are as in OwnedHardware and
    rented_cost."""
    idle_power_share: float = _ALL_OF_IT

    def __post_init__(self) -> None:
        busy_share(self.utilization)
        for name in ("rent_usd_per_hour", "price_usd", "power_w"):
            value = getattr(self, name)
            if value is not None:
                not_below(name, value, 0, "it is of one device")
        not_below("rent_overhead", self.rent_overhead, 1, "1 is the rent alone")
        if self.pue is not None:
            not_below("pue", self.pue, 1, "1 means no cooling at all; 1.3 to 1.5 is usual")


@dataclass(frozen=True, kw_only=True)
class Rent:
    """USD an hour of one device, with the ends of a range that is stated."""

    name: str
    low: float
    value: float
    high: float
    input: Input


@dataclass(frozen=True, kw_only=True)
class Owned:
    """The cost of one owned replica: as planned, and with the lowest and highest terms."""

    value: OwnedHardware
    best: OwnedHardware
    worst: OwnedHardware
    inputs: tuple[Input, ...]


def rent_of(row: Hardware | None, terms: CostTerms) -> Rent:
    """The rent of one device: as given, of a vendor, or the lowest of the newest that are stated.

    Raises ConfigError where there is none, naming the vendors that the row has.
    """
    if terms.rent_usd_per_hour is not None:
        usd = terms.rent_usd_per_hour
        return Rent(name="given", low=usd, value=usd, high=usd,
                    input=Input("rent of a device", usd, "USD/h", "--rent", "given"))  # fmt: skip
    name = "this machine" if row is None else row.name
    known = [] if row is None else [one for one in _vendors(row) if one[1] is not None]
    if terms.vendor is not None:
        chosen = [one for one in known if one[0] == terms.vendor]
        if not chosen:
            there = ", ".join(vendor for vendor, _ in known) or "none"
            raise ConfigError(
                f"vendor is {terms.vendor!r}; the catalog has rents of {name} at {there}: "
                "choose one of them, or give --rent"
            )
        known = chosen
    if row is None or not known:
        raise ConfigError(f"the rent of {name} is not known: give --rent in USD an hour")
    newest = max(row.facts[f"price_usd_per_hour.{vendor}"].as_of for vendor, _ in known)
    now = [one for one in known if row.facts[f"price_usd_per_hour.{one[0]}"].as_of == newest]
    vendor, middle = min(now, key=lambda one: one[1] or 0.0)
    span = row.price_usd_per_hour[vendor]
    assert middle is not None
    assert span.low is not None
    assert span.high is not None
    path = f"price_usd_per_hour.{vendor}"
    return Rent(
        name=vendor,
        low=span.low,
        value=middle,
        high=span.high,
        input=input_of_fact(row, path, row.facts[path], middle),
    )


def owned(catalog: Catalog, row: Hardware | None, terms: CostTerms, devices: int) -> Owned:
    """`devices` bought. Raises ConfigError naming what neither terms nor the catalog say."""
    name = "this machine" if row is None else row.name
    price, price_input = _price(row, terms, name)
    power, power_input = _power(row, terms, name)
    pue, pue_input = constant(catalog, "pue")
    years, years_input = constant(catalog, "amortization")
    least_pue, most_pue = constant_span(catalog, "pue")
    least_years, most_years = constant_span(catalog, "amortization")
    if terms.pue is not None:
        pue = least_pue = most_pue = terms.pue
        pue_input = _given("PUE", pue, "x", "--pue")
    kwh, kwh_input = constant(catalog, "electricity-price")
    least_kwh, most_kwh = constant_span(catalog, "electricity-price")
    if terms.usd_per_kwh is not None:
        kwh = least_kwh = most_kwh = terms.usd_per_kwh
        kwh_input = _given("electricity", kwh, "USD/kWh", "--usd-per-kwh")
    if terms.lifetime_years is not None:
        years = least_years = most_years = terms.lifetime_years
        years_input = _given("lifetime", years, "year", "--lifetime")

    def hardware(pue: float, years: float, usd_per_kwh: float) -> OwnedHardware:
        return OwnedHardware(
            price_usd=price * devices,
            lifetime_years=years,
            power_w=power * devices,
            pue=pue,
            usd_per_kwh=usd_per_kwh,
            operations_usd_per_hour=terms.operations_usd_per_hour,
            idle_power_share=terms.idle_power_share,
        )

    return Owned(
        value=hardware(pue, years, kwh),
        best=hardware(least_pue, most_years, least_kwh),
        worst=hardware(most_pue, least_years, most_kwh),
        inputs=(
            price_input, power_input, _given("devices", devices, "", "--count"), pue_input,
            years_input, kwh_input,
            term_input("operations", terms.operations_usd_per_hour, "USD/h", "--operations"),
            term_input("power when idle", terms.idle_power_share, "share", "--idle-power"),
        ),
    )  # fmt: skip


def _vendors(row: Hardware) -> list[tuple[str, float | None]]:
    return [
        (vendor, span.middle)
        for vendor, span in row.price_usd_per_hour.items()
        if row.facts[f"price_usd_per_hour.{vendor}"].confidence is not Confidence.CLAIM
    ]


def _price(row: Hardware | None, terms: CostTerms, name: str) -> tuple[float, Input]:
    if terms.price_usd is not None:
        return terms.price_usd, _given("price of a device", terms.price_usd, "USD", "--price")
    for seller, span in ({} if row is None else row.price_usd).items():
        assert row is not None
        fact = row.facts[f"price_usd.{seller}"]
        if span.middle is not None and fact.confidence is not Confidence.CLAIM:
            return span.middle, input_of_fact(row, f"price_usd.{seller}", fact, span.middle)
    raise ConfigError(f"the price of {name} is not known: give --price in USD")


def _power(row: Hardware | None, terms: CostTerms, name: str) -> tuple[float, Input]:
    if terms.power_w is not None:
        return terms.power_w, _given("power of a device", terms.power_w, "W", "--power")
    if row is None or row.power_w is None:
        raise ConfigError(f"power_w of {name} is not known: give --power in W")
    return row.power_w, input_of_fact(row, "power_w", row.facts["power_w"])


def _given(name: str, value: float, unit: str, option: str) -> Input:
    return Input(name, value, unit, option, "given")


def term_input(name: str, value: float, unit: str, option: str) -> Input:
    """A term as it was given, or as it is assumed where nobody gave it."""
    if isinstance(value, Assumed):
        return Input(name, float(value), unit, f"default of {option}", "assumed")
    return _given(name, value, unit, option)

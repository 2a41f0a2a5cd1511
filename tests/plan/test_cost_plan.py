"""The whole answer of `plan cost`: three ways, their sources and bands, and where they meet."""

from __future__ import annotations

import datetime as dt

import pytest

from headrace.catalog import Catalog
from headrace.errors import CatalogError, ConfigError
from headrace.plan.cost.break_even import break_even
from headrace.plan.cost.cost import ApiUse, OwnedHardware, api_cost, own_cost, rented_cost
from headrace.plan.cost.cost_figures import served_tokens_per_s
from headrace.plan.cost.cost_plan import ApiChoice, CostPlan, cost_plan
from headrace.plan.cost.cost_terms import CostTerms
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.replica import ReplicaChoice, replica_of
from headrace.plan.speed.speed import Load

DAY = dt.date(2026, 11, 22)
LOAD = Load(prompt_tokens=1000, output_tokens=250, batch=16, cached_prompt_share=0.5)
TERMS = CostTerms(utilization=0.4, price_usd=30_000)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def plan(
    catalog: Catalog,
    terms: CostTerms = TERMS,
    apis: ApiChoice | None = None,
    tokens_per_s: float | None = None,
) -> CostPlan:
    kv = kv_kind("F16", catalog)
    replica = replica_of(
        catalog, shape_of_catalog(catalog.models["llama-3.3-70b"]),
        Storage(catalog.quantizations["fp8"], kv, kv), ReplicaChoice(hardware="h100", count=4),
        None,
    )  # fmt: skip
    chosen = apis or ApiChoice(model="llama-3.3-70b", on=DAY)
    return cost_plan(
        catalog, "70B", replica, LOAD, terms, chosen, tokens_per_s=tokens_per_s,
        volumes=(10**9, 10**11),
    )  # fmt: skip


def test_ways_are_those_of_the_library(catalog: Catalog) -> None:
    found = plan(catalog)
    own, rented, *apis = found.ways
    served = found.served
    assert served is not None
    hardware = OwnedHardware(
        price_usd=120_000, lifetime_years=3.5, power_w=2800, pue=1.4, usd_per_kwh=0.15
    )
    cost = own_cost(hardware, served.value, 0.4)
    assert own.cost.value == pytest.approx(cost.usd_per_million_tokens)
    assert sum(own.parts.values()) == pytest.approx(own.cost.value)
    rent = rented_cost(4 * 2.69, served.value, 0.4)
    assert rented.cost.value == pytest.approx(rent.usd_per_million_tokens)
    assert (rented.source, rented.as_of) == ("speed-article", "2026-03-01")
    use = ApiUse(prompt_tokens=1000, output_tokens=250, cache_read_share=0.5)
    for way in apis:
        price = catalog.prices[way.cost.id.removeprefix("cost.api.")]
        assert way.cost.value == api_cost(price, use).usd_per_million_tokens
        assert way.as_of and any(one.source == way.source for one in way.cost.inputs)
    assert apis == sorted(apis, key=lambda way: way.cost.value) and len(apis) > 3


def test_bands_hold_speed_rent_and_terms(catalog: Catalog) -> None:
    own, rented, *_ = plan(catalog).ways
    for way in (own, rented):
        assert way.cost.band[0] < way.cost.value < way.cost.band[1]
    typical = plan(catalog, CostTerms(vendor="typical-2026")).ways[0]
    assert typical.cost.name == "rented (typical-2026)"
    rent = next(one for one in typical.cost.inputs if "price_usd_per_hour" in one.name)
    assert rent.value == 3.175 and rent.disputed_by == ("C43",)


def test_served_is_prompts_one_after_another_and_then_answers() -> None:
    load = Load(prompt_tokens=300, output_tokens=101, batch=10)
    assert served_tokens_per_s(load, ttft_s=0.1, tpot_s=0.02) == pytest.approx(4010 / 3)


def test_break_even_is_that_of_the_library(catalog: Catalog) -> None:
    found = plan(catalog, tokens_per_s=20_000)
    own = found.crossings[0]
    assert own.hardware.fleet is not None
    assert own.curve == break_even(own.hardware.fleet, own.api.cost.value, (10**9, 10**11))
    assert own.api is found.ways[2]
    assert own.figures[0].id == "break-even.own.first" and own.figures[0].formula == "P4"
    assert own.figures[0].value == own.curve.first_tokens_per_month
    # A full replica costs by the month what its tokens cost by the million.
    fleet = own.hardware.fleet
    full = fleet.usd(fleet.capacity_tokens_per_month) / fleet.capacity_tokens_per_month
    assert full * 1e6 == pytest.approx(own.hardware.cost.value)


def test_power_saved_when_idle_is_paid_by_the_token(catalog: Catalog) -> None:
    found = plan(catalog, CostTerms(utilization=0.4, price_usd=30_000, idle_power_share=0.2))
    way = found.ways[0]
    assert way.fleet is not None and way.fleet.marginal_usd_per_million_tokens > 0
    capacity = way.fleet.capacity_tokens_per_month
    assert way.fleet.usd(capacity) / capacity * 1e6 == pytest.approx(way.cost.value)


def test_what_is_not_known_is_said(catalog: Catalog) -> None:
    found = plan(catalog, CostTerms(), ApiChoice(model="my-own", on=DAY))
    assert [way.cost.id for way in found.ways] == ["cost.rented"] and not found.crossings
    assert "give --price" in found.missing[0] and "--api-model" in found.missing[1]


def test_a_model_of_apis_alone(catalog: Catalog) -> None:
    found = cost_plan(
        catalog, "GPT-5", None, LOAD, TERMS, ApiChoice(model="gpt-5", on=DAY)
    )  # fmt: skip
    assert found.served is None and [way.cost.name for way in found.ways] == ["API (OpenAI)"]
    use = ApiUse(prompt_tokens=1000, output_tokens=250, cache_read_share=0.5)
    cost = api_cost(catalog.price("gpt-5", "openai", DAY), use)
    assert found.ways[0].usd_per_request == cost.usd_per_request


def test_ids_are_unique_and_json_is_plain(catalog: Catalog) -> None:
    found = plan(catalog)
    ids = [one.id for one in found.figures]
    assert len(set(ids)) == len(ids)
    told = found.as_dict()
    assert [one["id"] for one in told["ways"]] == [way.cost.id for way in found.ways]
    assert len(told["break_even"]) == 2


@pytest.mark.parametrize(
    ("terms", "apis", "tokens_per_s", "told"),
    [
        ({"vendor": "nobody"}, {}, None, "runpod, lambda"),
        ({"price_usd": -1.0}, {}, None, "price_usd is -1"),
        ({"pue": 0.5, "price_usd": 1.0}, {}, None, "pue is 0.5; it must be at least 1"),
        ({"rent_overhead": 0.5, "vendor": "lambda"}, {}, None, "rent_overhead is 0.5"),
        ({}, {}, 0.0, "tokens_per_s is 0"),
        ({}, {"providers": ("openai",)}, None, "it has prices at"),
    ],
)
def test_what_is_impossible_is_told(
    catalog: Catalog,
    terms: dict[str, object],
    apis: dict[str, object],
    tokens_per_s: float | None,
    told: str,
) -> None:
    chosen = ApiChoice(model="llama-3.3-70b", on=DAY, **apis)  # type: ignore[arg-type]
    with pytest.raises((ConfigError, CatalogError), match=told):
        plan(catalog, CostTerms(**terms), chosen, tokens_per_s)  # type: ignore[arg-type]


@pytest.mark.parametrize("utilization", [0.0, 1.2])
def test_utilization_is_a_share_above_0(utilization: float) -> None:
    with pytest.raises(ConfigError, match="utilization is"):
        CostTerms(utilization=utilization)

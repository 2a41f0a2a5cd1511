"""Pages of recommendations, simulations, cascades: whole, safe, each figure with its details."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

import pytest

from headrace.catalog import Catalog
from headrace.plan import ApiChoice, CostPlan, CostTerms, Load, PlanMetadata, plan_cost, plan_page
from headrace.plan.cost.cascade_plan import cascade_plan
from headrace.plan.recommendation import Recommendation, question_of, recommend
from headrace.plan.simulation.plan import SimulationPlan
from headrace.plan.simulation.settings import AutoscaleSettings, FailureSettings
from headrace.plan.simulation.simulate import FewestReplicas, simulate
from headrace.plan.step.latency_model import LatencyModel
from tests.page.test_markup import HOSTILE, Parsed
from tests.plan.page.test_page import Balanced
from tests.plan.simulation.services import LATENCY, engine, poisson, service
from tests.plan.simulation.test_plan_figures import FOUND, SLO

CATALOG = Catalog.load()
ABOUT = PlanMetadata(plan="recommend", command=f"headrace plan {HOSTILE}", version="1.2.3",
                  made_at="2026-01-02T03:04:05+00:00")  # fmt: skip


def recommended(**words: object) -> Recommendation:
    given = {"models": ("qwen3-32b", "qwen3-8b"), "hardware": ("h100-sxm",), **words}
    question = question_of(CATALOG, "chat", dt.date(2026, 11, 22), **given)  # type: ignore[arg-type]
    return recommend(CATALOG, question, most=4)


def checked(page: str, ids: set[str]) -> list[str]:
    """Titles of the page, which is whole and has the details of each figure."""
    balanced = Balanced()
    balanced.feed(page)
    assert balanced.open == []
    parsed = Parsed(page)
    assert sum(tag == "script" for tag, _ in parsed.tags) == 1
    for tag, attributes in parsed.tags:
        assert not any(name in attributes for name in ("src", "href", "onload")), tag
    assert "url(" not in page and "@import" not in page and HOSTILE not in page
    details = re.findall('<details class="figure" id="figure-(.*?)">', page)
    assert set(details) == ids and len(set(details)) == len(details)
    return re.findall("<h3>(.*?)</h3>", page)


def test_a_recommendation_has_ends_ranks_scatter_commands_and_rules() -> None:
    found = recommended(rate=5.0)
    page = plan_page(CATALOG, ABOUT, recommendation=found)
    titles = checked(page, {one.id for one in found.figures})
    for title in ("Cost against latency", "The first, and the three ends", "Ruled out, by rule",
                  "Ranked, the best of each model and place"):  # fmt: skip
        assert title in titles
    assert any(title.startswith("Why: first") for title in titles)
    assert any(title.startswith("vLLM: ") for title in titles)
    assert "vllm serve Qwen/Qwen3-32B" in page and "<pre>" in page
    assert "<h2>What to run</h2>" in page and found.ranked[0].option.id in page
    drawn = sum(
        one.usd_per_month is not None and one.e2e_s is not None for one in found.options
    )  # fmt: skip
    assert page.count("a month, E2E ") == drawn > 4


@pytest.mark.long
def test_where_nothing_is_left_the_nearest_are_told() -> None:
    found = recommended(private=True, slo="tpot:2")
    page = plan_page(CATALOG, ABOUT, recommendation=found)
    titles = checked(page, set())
    assert "The nearest" in titles and "Nothing here fits; closest is " in page
    assert "--slo &#x27;tpot:" in page and "Cost against latency" not in titles


def test_a_simulation_has_curves_time_and_goodput() -> None:
    page = plan_page(CATALOG, ABOUT, simulation=FOUND)
    titles = checked(page, {one.id for one in FOUND.quantities})
    for title in ("Requests by latency", "Requests by TPOT", "TTFT by priority", "Replicas",
                  "Requests waiting and running", "Batch of a replica", "Latency",
                  "KV cache in use, and time replicas are busy", "Latency, priority 1",
                  "Good requests by replicas", "Goodput, by limit", "The run"):  # fmt: skip
        assert title in titles
    assert "TTFT limit" in page and "2 replicas are the fewest" in page
    assert "h100-sxm.memory_bytes" in page and "95 % by batch means" in page


def test_a_long_service_is_drawn_in_means_and_its_text_is_no_markup() -> None:
    scale = AutoscaleSettings(by="queue", target=2, least=1, most=3, cold_start_s=(1, 2))
    latency: LatencyModel = replace(LATENCY, source=HOSTILE)
    settings = service(
        engine(latency=latency), autoscale=scale, sample_s=0.05,
        failures=FailureSettings(at=((1.0, 0), (2.0, 0)), mttr_s=0.2),
    )  # fmt: skip
    result = simulate(settings, poisson(10, 300, (40,), (1, 4)), conditions=SLO, notes=(HOSTILE,))
    assert len(result.points) > 480
    found = SimulationPlan(result=result, replica=None, context_tokens=50, kv_given=True)
    page = plan_page(CATALOG, ABOUT, simulation=found)
    checked(page, {one.id for one in found.quantities})
    assert re.search(r"the mean of \d samples, one every 0.05 s", page)
    assert "scaled 1 to 3 by queue" in page and "The first of 2 failures is marked" in page


def test_one_request_has_a_page_without_curves() -> None:
    result = simulate(service(), poisson(1, 1, (40,), (1,)))
    few = FewestReplicas(replicas=1, attainment=0.9, tried=((1, True, 1.0),), result=result)
    found = SimulationPlan(
        result=result, replica=None, context_tokens=50, kv_given=True, fewest=few
    )
    titles = checked(
        plan_page(CATALOG, ABOUT, simulation=found), {one.id for one in found.quantities}
    )
    assert "Requests by TPOT" not in titles and "Latency" in titles


def sold(model: str) -> CostPlan:
    apis = ApiChoice(model=model, on=dt.date(2026, 11, 22))
    load = Load(prompt_tokens=1024, output_tokens=256)
    return plan_cost(CATALOG, model, None, load, CostTerms(), apis)


@pytest.mark.parametrize(("share", "said"), [(0.1, "less than"), (0.99, "would pay with at most")])
def test_a_cascade_has_its_curve_and_says_whether_it_pays(share: float, said: str) -> None:
    found = cascade_plan(sold("llama-3.3-70b"), sold("mistral-large-3"), share)
    page = plan_page(CATALOG, ABOUT, cascade=found)
    titles = checked(page, {one.id for one in found.quantities})
    assert "US dollars a request" in titles
    assert any(title.startswith("A request by the share passed on") for title in titles)
    assert said in page and "figure-cascade.api" in page

"""Pages of plans: whole, safe, and with every figure that their tables show."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser

from headrace.catalog import Catalog
from headrace.plan import (
    ApiChoice,
    CostTerms,
    Load,
    PlanMetadata,
    PlanReport,
    ReplicaChoice,
    Storage,
    kv_kind,
    plan_page,
    plan_report,
    replica_of,
    shape_of_catalog,
)
from tests.page.test_markup import HOSTILE, Parsed

CATALOG = Catalog.load()
ABOUT = PlanMetadata(plan="report", command=f"headrace plan report {HOSTILE}", version="1.2.3",
                  made_at="2026-01-02T03:04:05+00:00")  # fmt: skip


def report(name: str = "Llama 3.3 70B", batch: int = 8, count: int = 4) -> PlanReport:
    kv = kv_kind("F16", CATALOG)
    shape = replace(shape_of_catalog(CATALOG.models["llama-3.3-70b"]), name=name)
    storage = Storage(CATALOG.quantizations["fp8"], kv, kv)
    replica = replica_of(CATALOG, shape, storage, ReplicaChoice(hardware="h100", count=count), None)
    apis = ApiChoice(model="llama-3.3-70b", on=date(2026, 11, 22))
    load = Load(prompt_tokens=1024, output_tokens=256, batch=batch)
    return plan_report(CATALOG, replica, load, CostTerms(price_usd=28_000), apis)


def page_of(found: PlanReport) -> str:
    return plan_page(
        CATALOG, ABOUT, fit=found.fit, speed=found.speed, cost=found.cost, refused=found.refused
    )


FOUND = report()
PAGE = page_of(FOUND)


class Balanced(HTMLParser):
    """Fails where an element is not closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_all_plots_and_tables_are_there() -> None:
    titles = re.findall("<h3>(.*?)</h3>", PAGE)
    for title in ("Memory of each device", "Memory as the context grows", "Roofline",
                  "Throughput against latency", "Decoding by batch",
                  "US dollars, prompt and output together", "Where sources disagree"):  # fmt: skip
        assert title in titles
    assert any(re.fullmatch(r"own hardware.* against API \(DeepInfra\), a month", one)
               for one in titles)  # fmt: skip
    for heading in ("Does it fit", "How fast", "At what cost", "Assumptions", "Disputed facts",
                    "Where each figure comes from"):  # fmt: skip
        assert f"<h2>{heading}</h2>" in PAGE
    assert "headrace 1.2.3, 2026-01-02 03:04 UTC" in PAGE
    balanced = Balanced()
    balanced.feed(PAGE)
    assert balanced.open == []


def test_every_id_that_a_table_shows_has_its_details() -> None:
    details = set(re.findall('<details class="figure" id="figure-(.*?)">', PAGE))
    assert details == {one.id for one in FOUND.quantities}
    shown = {one for one in re.findall("<td>[^<]*<small>([a-z0-9._-]+)</small>", PAGE)
             if "." in one or one in ("kv", "needed")}  # fmt: skip
    of_points = {one for one in shown if re.fullmatch(r"speed\.c\d+\.b\d+", one)}
    assert shown - of_points <= details
    assert {f"{one}.tpot" for one in of_points} <= details


def test_no_text_becomes_markup_and_nothing_is_loaded() -> None:
    page = page_of(report(HOSTILE))
    parsed = Parsed(page)
    assert sum(tag == "script" for tag, _ in parsed.tags) == 1
    for tag, attributes in parsed.tags:
        assert "onload" not in attributes
        assert not any(name in attributes for name in ("src", "href")), tag
    assert "url(" not in page and "@import" not in page


def test_a_question_without_an_answer_is_said() -> None:
    found = report(batch=4096, count=1)
    assert found.speed is None and "no plan of speed: batch is 4,096" in found.refused[0]
    page = page_of(found)
    assert "no plan of speed: batch is 4,096" in page and "<h2>How fast</h2>" not in page
    assert "do not fit" in page and "What would make it fit" in page
    ids = {one["id"] for one in found.as_dict()["quantities"]}
    assert {"needed", "missing"} <= ids and found.as_dict()["speed"] is None

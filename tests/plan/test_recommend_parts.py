"""Parts of `plan recommend`: capacity and queue, ranks, trees as advice, prices of a month."""

from __future__ import annotations

import datetime as dt
import math

import pytest

from headrace.catalog import Catalog
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.recommendation.advice import Adviser, Chosen, device_answers, is_server, scale_of
from headrace.plan.recommendation.capacity import (
    Capacity,
    capacity_of,
    latency_at,
    quantile_of,
)
from headrace.plan.recommendation.money import hour_price, month_of_api
from headrace.plan.recommendation.option import Option
from headrace.plan.recommendation.places import sites
from headrace.plan.recommendation.question import question_of
from headrace.plan.recommendation.ranking import alternatives, ranked
from headrace.plan.recommendation.size import Quality
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from headrace.telemetry.nvidia_cards import NvidiaCard

DAY = dt.date(2026, 11, 22)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


@pytest.fixture(scope="module")
def replica(catalog: Catalog) -> Replica:
    f16 = kv_kind("F16", catalog)
    return replica_of(
        catalog,
        shape_of_catalog(catalog.models["qwen3-8b"]),
        Storage(catalog.quantizations["bf16"], f16, f16),
        ReplicaChoice(hardware="h100-sxm"),
        None,
    )


def test_capacity_is_the_largest_batch_that_keeps_the_slo(
    catalog: Catalog, replica: Replica
) -> None:
    model = replica.model
    loose = question_of(catalog, "chat", DAY, slo="")
    tight = question_of(catalog, "chat", DAY, slo="tpot:12")
    most, less = capacity_of(model, loose, 64), capacity_of(model, tight, 64)
    assert most.batch == 64 and 1 < less.batch < 64
    assert most.requests_per_s > less.requests_per_s and not less.missed
    # Each of a batch is prefilled once, then decoded together (T5).
    prefill = model.prefill(1024).seconds
    tpot = model.decode_step(64, 1024 + 127).seconds
    assert most.requests_per_s == pytest.approx(64 / (64 * prefill + 255 * tpot))
    never = capacity_of(model, question_of(catalog, "chat", DAY, slo="tpot:1,ttft:1"), 64)
    assert [limit.metric for limit, _ in never.missed] == ["tpot", "ttft"]
    assert all(seen > limit.seconds for limit, seen in never.missed)


def test_a_limit_on_ttft_excludes_what_prefill_misses_and_decides_no_batch(
    catalog: Catalog, replica: Replica
) -> None:
    """What a served request waits for is not planned, so nothing can be shown to keep the limit."""
    prefill_ms = replica.model.prefill(1024).seconds * 1e3

    def capacity(slo: str) -> Capacity:
        return capacity_of(replica.model, question_of(catalog, "chat", DAY, slo=slo), 64)

    without = capacity("tpot:50")
    assert without.batch > 1
    for limit in ("ttft:", "ttft:p99<"):
        assert capacity(f"tpot:50,{limit}{prefill_ms * 1.01:.4f}") == without
        [(missed, seen_s)] = capacity(f"tpot:50,{limit}{prefill_ms * 0.99:.4f}").missed
        assert missed.metric == "ttft" and seen_s * 1e3 == pytest.approx(prefill_ms)


def test_latency_grows_with_the_rate(catalog: Catalog, replica: Replica) -> None:
    question = question_of(catalog, "chat", DAY, slo="")
    prefill = replica.model.prefill(1024).seconds
    slow, fast = (latency_at(replica.model, question, rate) for rate in (0.01, 8.0))
    assert slow.ttft_s == pytest.approx(prefill, rel=0.01) and slow.batch == 1
    assert fast.ttft_s > slow.ttft_s and fast.tpot_s > slow.tpot_s and fast.batch > 1
    share = 8 * prefill
    assert fast.prefill_share == pytest.approx(share)
    assert fast.ttft_s == pytest.approx(prefill + share * prefill / (2 * (1 - share)))
    assert quantile_of(fast, prefill, 0.5) == prefill  # most find no queue
    late = quantile_of(fast, prefill, 0.99)
    wait = fast.ttft_s - prefill
    assert late == pytest.approx(prefill + wait / share * math.log(share / 0.01))


def test_what_a_month_costs(catalog: Catalog) -> None:
    rented = hour_price(catalog, catalog.hardware["h100-sxm"])
    assert rented is not None and (rented.paid, rented.value) == ("rented", 2.69)
    bought = hour_price(catalog, catalog.hardware["rtx-4090"])
    assert bought is not None and bought.paid == "bought" and 0.05 < bought.value < 0.3
    there = hour_price(catalog, None)
    assert there is not None and (there.paid, there.value) == ("there already", 0)
    assert hour_price(catalog, catalog.hardware["m4-max-48gb"]) is None
    price = catalog.price("gpt-oss-120b", "groq", DAY)
    question = question_of(catalog, "chat", DAY, rate=4, mean_rate=1)
    month, request, tokens, batch = month_of_api("x", "Groq", price, question)
    assert request.value == pytest.approx((1024 * 0.15 + 256 * 0.6) / 1e6) and not batch
    assert month.value == pytest.approx(request.value * 730 * 3600)
    assert [one.id for one in (month, request, tokens)] == ["x.month", "x.request", "x.tokens"]
    assert tokens.value == pytest.approx(request.value / 1280 * 1e6)


def test_trees_agree_or_not(catalog: Catalog) -> None:
    answers = {
        "task": "code", "edge": "no", "private": "no", "scale": "few", "devices": "one",
        "context": "ordinary", "latency": "ordinary",
        **device_answers(catalog.hardware["h100-sxm"]),
    }  # fmt: skip
    assert (answers["device"], answers["class"], answers["architecture"]) == (
        "nvidia", "server", "hopper",
    )  # fmt: skip
    said = Adviser(catalog).advice(answers, Chosen("vllm", "fp8", "h100-sxm"))
    by_tree = {one.decision: one.agrees for one in said}
    assert by_tree["quantization-by-hardware"] and by_tree["runtime-by-use"]
    assert {"quantization-by-task", "quantization-by-scenario"} <= set(by_tree)
    assert by_tree["hardware-by-work"] and "gguf-kind-by-task" not in by_tree  # no GGUF
    of_gguf = Adviser(catalog).advice(answers, Chosen("llama.cpp", "q4-k-m", "h100-sxm"))
    assert {one.decision: one.agrees for one in of_gguf}["gguf-kind-by-task"] is False
    assert "gateway-by-need" not in by_tree and "host-or-api" not in by_tree
    assert device_answers(None)["device"] == "cpu"
    assert device_answers(catalog.hardware["m4-max-48gb"])["device"] == "apple"
    assert is_server(catalog.hardware["l40s"]) and not is_server(catalog.hardware["rtx-4090"])
    assert [scale_of(n, (("few", 2), ("many", 64))) for n in (1, 2, 63, 64)] == [
        "one", "few", "few", "many",
    ]  # fmt: skip


def option(id: str, usd: float | None, e2e: float | None, size: float | None) -> Option:
    from headrace.plan.quantity import Quantity

    month = None if usd is None else Quantity(f"{id}.month", "month", usd, "USD/month", "O5")
    return Option(
        id=id, name=id, model=id, model_name=id, quality=Quality(parameters=size), paid="rented",
        usd_per_month=month, e2e_s=e2e, api=id,
    )  # fmt: skip


def test_ranks_and_ends(catalog: Catalog) -> None:
    options = [
        option("cheap", 10, 9, 1e9),
        option("fast", 1000, 1, 2e9),
        option("large", 1000, 9, 9e10),
        option("bad", 1000, 9, 1e9),
        option("unknown", None, None, None),
    ]
    three = alternatives(options)
    assert three.cheapest is options[0] and three.fastest is options[1]
    assert three.best is options[2]
    for order, first in (("cost", "cheap"), ("latency", "fast"), ("size", "large")):
        assert ranked(catalog, options, order)[0].option.id == first  # type: ignore[arg-type]
    found = ranked(catalog, options, "balance")
    assert [one.place for one in found] == [1, 2, 3, 4, 5] and found[-1].option.id == "bad"
    assert alternatives([options[4]]).cheapest is None


def test_places_of_this_machine(catalog: Catalog) -> None:
    cards = [NvidiaCard("NVIDIA H100 80GB HBM3", 0)] * 3

    def names(*hardware: str, measured: bool = True, there: list[NvidiaCard] = cards) -> list[str]:
        question = question_of(catalog, "chat", DAY, hardware=hardware)
        return [one.name for one in sites(catalog, question, measured, there)[0]]

    assert names("this") == ["this-h100-sxm"] and names("cpu") == ["this"]
    assert names("this", "cpu", "this") == ["this-h100-sxm", "this"]
    assert names("this", "cpu", there=[]) == ["this"]
    assert names("this", there=[NvidiaCard("NVIDIA Graphics Device", 0)]) == ["this"]
    assert names("this", measured=False, there=[]) == []
    assert names()[:2] == ["this-h100-sxm", "this"] and "h100-sxm" in names()
    assert names(measured=False, there=[])[0] not in ("this", "this-h100-sxm")
    question = question_of(catalog, "chat", DAY, hardware=("this",))
    [site] = sites(catalog, question, False, cards)[0]
    assert site.counts == (1, 2) and site.here == 3
    assert site.price is not None and site.price.value == 0
    edge = question_of(catalog, "chat", DAY, hardware=("this",), edge=True)
    assert sites(catalog, edge, False, cards)[1][0].breaches[0].rule == "rule-edge"

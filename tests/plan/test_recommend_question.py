"""What is asked of `plan recommend`: limits as they are written, and what is filled in."""

from __future__ import annotations

import datetime as dt

import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.recommendation import Limit, parse_slo, question_of

DAY = dt.date(2026, 11, 22)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def test_limits() -> None:
    assert parse_slo("ttft:500,tpot:50") == (
        Limit(metric="ttft", seconds=0.5),
        Limit(metric="tpot", seconds=0.05),
    )
    assert parse_slo("TTFT:p95<300ms e2e:5s") == (
        Limit(metric="ttft", seconds=0.3, quantile=0.95),
        Limit(metric="e2e", seconds=5),
    )
    assert parse_slo("") == ()
    for one in (*parse_slo("ttft:p99.9<12.5ms,tpot:mean<50ms"),):
        assert parse_slo(one.text) == (one,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("itl:50", "write METRIC:MS"),
        ("ttft", "write METRIC:MS"),
        ("ttft:0", "above 0"),
        ("ttft:p30<5ms", "from p50 to p99.9"),
        ("ttft:5,ttft:6", "limited twice"),
        ("ttft:-5", "write METRIC:MS"),
    ],
)
def test_what_is_no_limit(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_slo(text)


def test_what_is_left_out_is_the_catalog_s_and_is_said(catalog: Catalog) -> None:
    question = question_of(catalog, "chat", DAY)
    assert (question.prompt_tokens, question.output_tokens) == (1024, 256)
    assert question.context_tokens == 1280 and question.headroom == 0.7
    assert [one.text for one in question.slo] == ["ttft:500ms", "tpot:50ms"]
    assert {one.source for one in question.slo} == {"slo-chat-ttft", "slo-chat-itl"}
    assert any("task-chat-prompt" in one for one in question.assumptions)
    assert any("rule-headroom" in one for one in question.assumptions)
    given = question_of(
        catalog,
        "chat",
        DAY,
        slo="",
        prompt_tokens=10,
        output_tokens=5,
        headroom=0.5,
        mean_rate=1.0,
        least_parameters=0.0,
    )
    assert given.slo == () and given.assumptions == ()
    assert question_of(catalog, "rag", DAY).slo == ()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"rate": 0.0}, "rate is 0"),
        ({"rate": 1.0, "mean_rate": 2.0}, "at most the rate"),
        ({"prompt_tokens": 0}, "prompt is 0"),
        ({"context_tokens": 100}, "at least 1280"),
        ({"headroom": 1.5}, "headroom is 1.5"),
        ({"budget_usd": 0.0}, "budget is 0"),
        ({"least_parameters": -1.0}, "min_quality is -1"),
        ({"max_devices": 0}, "max_devices is 0"),
        ({"cached_prompt_share": 1.0}, "cached is 1"),
    ],
)
def test_bad_input_is_told(catalog: Catalog, words: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        question_of(catalog, "chat", DAY, **words)  # type: ignore[arg-type]

"""Checks of gateways' configs, alone and beside a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from tests.plan.lint.subjects import (
    found,
    gateway,
    lacks,
    outcome,
    readings,
    request,
    run,
    subject,
    values,
)


def config(model: str = "openai/gpt-4o-mini", **sections: Any) -> dict[str, Any]:
    return {
        "model_list": [
            {"model_name": "big", "litellm_params": {"model": model}},
            {"model_name": "small", "litellm_params": {"model": "openai/gpt-4o-mini"}},
        ],
        **sections,
    }


def made(settings: dict[str, Any], **fields: Any) -> Any:
    return subject(gateway=gateway(config(router_settings=settings)), **fields)


def test_retries_times_fallbacks() -> None:
    of = made({"num_retries": 5, "timeout": 60, "fallbacks": [{"big": ["small"]}]})
    told = values(found("L-retry-storm", of))
    assert told["attempts of one request at worst"] == 12
    assert told["longest wait of a client"] == 720
    assert outcome("L-retry-storm", made({"num_retries": 1})) == ()
    assert "num_retries" in lacks("L-retry-storm", made({}))


def test_retries_without_rest_are_an_error() -> None:
    of = made({"num_retries": 1, "disable_cooldowns": True})
    assert found("L-retry-storm", of).severity == "error"


def test_fallbacks_that_lead_back() -> None:
    circle = made({"fallbacks": [{"big": ["small"]}, {"small": ["big"]}]})
    assert "small" in values(found("L-fallback-circle", circle))
    assert outcome("L-fallback-circle", made({"fallbacks": [{"big": ["small"]}]})) == ()


def test_a_timeout_that_cuts_answers_off() -> None:
    slow = run([request(n, end_s=20.0 + n) for n in range(20)])
    told = values(found("L-timeout", made({"timeout": 30, "num_retries": 2}, run=slow)))
    assert told["requests beyond the timeout"] == 9 and float(told["E2E p99"]) > 30
    assert found("L-timeout", made({"timeout": 30, "num_retries": 0}, run=slow)).severity == (
        "warning"
    )
    assert outcome("L-timeout", made({"timeout": 60}, run=slow)) == ()
    assert "run" in lacks("L-timeout", made({"timeout": 30}))
    assert "timeout" in lacks("L-timeout", made({}, run=slow))


def test_eviction_beside_retries() -> None:
    thrown = readings({"preemptions": 0.0}, {"preemptions": 7.0})
    one = found("L-evict", made({"num_retries": 2}, run=run([request(0)], thrown)))
    assert values(one)["preemptions"] == 7
    late = run([request(0, failure="timeout")], thrown)
    assert values(found("L-evict", subject(run=late)))["timeouts"] == 1
    calm = readings({"preemptions": 1.0}, {"preemptions": 1.0})
    assert outcome("L-evict", made({"num_retries": 2}, run=run([request(0)], calm))) == ()
    assert "preemptions" in lacks("L-evict", subject(run=run([request(0)])))


def test_nothing_bounds_what_is_sent() -> None:
    told = values(found("L-gateway-bound", made({})))
    assert told["deployments without rpm and max_parallel_requests"] == 2
    bound = subject(gateway=gateway(config(general_settings={"global_max_parallel_requests": 99})))
    assert outcome("L-gateway-bound", bound) == ()


@pytest.mark.parametrize(
    "model",
    [
        "anthropic/claude-sonnet-4.5",
        "anthropic/claude-sonnet-4-5-20250929",
        "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ],
)
def test_a_tier_of_the_price_is_crossed(model: str) -> None:
    of = gateway(config(model))
    long = run([request(0, prompt_tokens=250_000), request(1)], about={"started": "2026-11-01"})
    told = values(found("L-context-tier", subject(gateway=of, run=long)))
    assert told["boundary"] == 200_000
    extra = float(told["price of input above"]) - float(told["price of input below"])
    assert told["input of these prompts costs more by"] == pytest.approx(extra / 4)
    short = run([request(0)], about={"started": "2026-11-01"})
    assert outcome("L-context-tier", subject(gateway=of, run=short)) == ()
    assert "lengths" in lacks("L-context-tier", subject(gateway=of))
    assert outcome("L-context-tier", subject(gateway=gateway(config()))) == ()


@pytest.mark.parametrize(
    ("loaded", "told"),
    [
        ({"model_list": {}}, "must be a list"),
        ({"model_list": [{"model_name": "x"}]}, "no litellm_params.model"),
        (config(router_settings={"num_retries": "many"}), "must be a number"),
        (config(router_settings={"timeout": -1}), "cannot be below 0"),
        (config(router_settings=[]), None),
        (config(litellm_settings=["x"]), "not a mapping"),
    ],
)
def test_what_is_wrong_in_a_config_is_told(loaded: dict[str, Any], told: str | None) -> None:
    if told is None:
        assert gateway(loaded).retries is None
        return
    with pytest.raises(ConfigError, match=told):
        gateway(loaded)


def test_a_secret_of_the_environment_is_no_number() -> None:
    assert gateway(config(router_settings={"timeout": "os.environ/T"})).timeout_s is None
    assert Path("litellm.yaml").name in gateway(config()).where

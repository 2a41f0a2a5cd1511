"""What a client may say of where its request goes, and who is left out by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.preferences import read_wanted
from headrace.gateway.routing.query import query_from_body
from headrace.gateway.targets.target import Price
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dollars import NUSD_PER_USD
from tests.gateway.routing.parts import (
    A,
    B,
    C,
    asking,
    left_out,
    names,
    provider,
    route,
    router,
    target,
)


def test_provider_order_comes_first_and_the_rest_after() -> None:
    one = router(route("m", A, B, C, strategy="ordered"))
    decision = one.decide(asking(provider={"order": ["c", "B/M"]}), 0.0)
    assert names(decision) == ["c/m", "b/m", "a/m"]
    assert decision.candidates[0].reasons[0] == "number 1 of provider.order"
    decision = one.decide(asking(provider={"order": ["c"], "allow_fallbacks": False}), 0.0)
    assert names(decision) == ["c/m"]
    assert set(left_out(decision)) == {"a/m", "b/m"}
    assert "allow_fallbacks is false" in left_out(decision)["a/m"]
    decision = one.decide(asking(provider={"order": ["nobody"], "allow_fallbacks": False}), 0.0)
    assert names(decision) == []


def test_allow_fallbacks_alone_keeps_the_first() -> None:
    one = router(route("m", A, B, C, strategy="ordered"))
    decision = one.decide(asking(provider={"allow_fallbacks": False}), 0.0)
    assert names(decision) == ["a/m"]
    assert left_out(decision) == dict.fromkeys(("b/m", "c/m"), "allow_fallbacks is false")


@pytest.mark.parametrize(
    ("preferences", "expected", "why"),
    [
        ({"only": ["a", "C"]}, ["a/m", "c/m"], "it is not in provider.only"),
        ({"only": ["b/m"]}, ["b/m"], "it is not in provider.only"),
        ({"ignore": ["b"]}, ["a/m", "c/m"], "it is in provider.ignore"),
        ({"only": ["a", "b"], "ignore": ["a"]}, ["b/m"], "it is in provider.ignore"),
    ],
)
def test_only_and_ignore(preferences: Any, expected: list[str], why: str) -> None:
    one = router(route("m", A, B, C, strategy="ordered"))
    decision = one.decide(asking(provider=preferences), 0.0)
    assert names(decision) == expected
    assert why in left_out(decision).values()


def test_quantizations() -> None:
    one = router(
        route("m", target("a/m", quantization="fp8"), target("b/m", quantization="int4"), C)
    )
    decision = one.decide(asking(provider={"quantizations": ["fp8", "bf16"]}), 0.0)
    assert names(decision) == ["a/m"]
    assert "its weights are int4" in left_out(decision)["b/m"]
    assert "its weights are unknown" in left_out(decision)["c/m"]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        ({"prompt": 2}, ["cheap/m"]),
        ({"prompt": 5}, ["cheap/m", "dear/m"]),
        ({"completion": 3.99}, []),
        ({"completion": 4.0}, ["cheap/m"]),
        ({"request": 0.01}, ["cheap/m"]),
        ({"request": 0.001}, []),
        ({}, ["cheap/m", "dear/m"]),
    ],
)
def test_max_price(most: dict[str, float], expected: list[str]) -> None:
    one = router(
        route("m", target("cheap/m", usd=(1.0, 4.0)), target("dear/m", usd=(5.0, 20.0)),
              target("unknown/m"), strategy="ordered")
    )  # fmt: skip
    ask = asking(provider={"max_price": most}, input_tokens=1000, most_output_tokens=1000)
    decision = one.decide(ask, 0.0)
    assert names(decision) == expected
    assert "its price is unknown" in left_out(decision)["unknown/m"]
    if "dear/m" not in expected and "prompt" in most:
        assert left_out(decision)["dear/m"] == "$5/M prompt tokens are more than max_price's $2"


def test_max_price_looks_at_the_tier_of_the_prompt() -> None:
    price = Price(input=NUSD_PER_USD, output=1, above_tokens=500,
                  above=Price(input=3 * NUSD_PER_USD, output=1))  # fmt: skip
    one = router(route("m", target("a/m", fixed_price=price)))
    asked = {"max_price": {"prompt": 2}}
    assert names(one.decide(asking(provider=asked, input_tokens=500), 0.0)) == ["a/m"]
    assert names(one.decide(asking(provider=asked, input_tokens=501), 0.0)) == []


def test_data_policies_hold_only_where_they_are_known() -> None:
    keeps = target("keeps/m", provider=provider("keeps", keeps_data=True, zero_retention=False))
    silent = target("silent/m")
    good = target("good/m", provider=provider("good", keeps_data=False, zero_retention=True))
    leaves = target("leaves/m", provider=provider("leaves", keeps_data=False))
    one = router(route("m", keeps, silent, good, leaves, strategy="ordered"))
    for ask in (asking(provider={"zdr": True}), asking(no_retention=True)):
        decision = one.decide(ask, 0.0)
        assert names(decision) == ["good/m"]
        assert "zero_retention" in left_out(decision)["silent/m"]
    for ask in (asking(provider={"data_collection": "deny"}), asking(keeps_no_data=True)):
        decision = one.decide(ask, 0.0)
        assert names(decision) == ["good/m", "leaves/m"]
        assert "`providers.keeps.keeps_data` says so" in left_out(decision)["keeps/m"]
        assert "set `providers.silent.keeps_data: false`" in left_out(decision)["silent/m"]
    assert len(names(one.decide(asking(provider={"data_collection": "allow"}), 0.0))) == 4


def test_regions() -> None:
    eu, us = (target(f"{at}/m", provider=provider(at, region=at)) for at in ("eu", "us"))
    one = router(route("m", eu, us, A))
    decision = one.decide(asking(regions=("eu", "ch")), 0.0)
    assert names(decision) == ["eu/m"]
    assert left_out(decision) == {
        "us/m": "its region, us, is not an allowed one",
        "a/m": "its region, unknown, is not an allowed one",
    }
    assert names(one.decide(asking(regions=()), 0.0)) == []


def prompt_of(text: str) -> JsonObject:
    return JsonObject.read(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())


def test_what_is_too_long_by_estimate_goes_last_and_surely_is_left_out() -> None:
    one = router(route("m", target("a/m", context_tokens=4000), B, strategy="ordered"))
    ask = asking(input_tokens=3000, most_output_tokens=1000)
    assert names(one.decide(ask, 0.0)) == ["a/m", "b/m"]
    decision = one.decide(ask._replace(input_tokens=3001), 0.0)
    assert names(decision) == ["b/m", "a/m"] and not decision.left_out
    said = "last, as the request needs about 4,001 tokens and it takes 4,000"
    assert decision.candidates[1].reasons[0] == said
    # The first of the words is behind no blank.
    fits = query_from_body(prompt_of("river " * 4001), "m")
    for most in (None, 1000, 100_000):
        found = one.decide(fits._replace(most_output_tokens=most), 0.0)
        assert names(found) == ["b/m", "a/m"], "its provider knows what it does at its context"
    decision = one.decide(query_from_body(prompt_of("river " * 4002), "m"), 0.0)
    assert names(decision) == ["b/m"]
    assert left_out(decision) == {"a/m": "the prompt has at least 4,001 tokens and it takes 4,000"}


def test_nobody_but_one_that_may_be_too_short_is_asked() -> None:
    one = router(route("m", target("a/m", context_tokens=200_000)))
    assert names(one.decide(query_from_body(prompt_of("river " * 125_000), "m"), 0.0)) == ["a/m"]


def test_suffixes() -> None:
    slow, fast = target("slow/m", usd=(1.0, 1.0)), target("fast/m", usd=(9.0, 9.0))
    free = target("free/m", usd=(0.0, 0.0))
    slow.health.had_rate(10.0, 0.0)
    fast.health.had_rate(300.0, 0.0)
    free.health.had_rate(5.0, 0.0)
    one = router(route("m", slow, fast, free, A, strategy="ordered"))
    assert names(one.decide(asking("m:floor"), 0.0)) == ["free/m", "slow/m", "fast/m", "a/m"]
    assert names(one.decide(asking("m:nitro"), 0.0)) == ["a/m", "fast/m", "slow/m", "free/m"]
    decision = one.decide(asking("m:free"), 0.0)
    assert names(decision) == ["free/m"]
    assert left_out(decision) == dict.fromkeys(
        ("slow/m", "fast/m", "a/m"), "it is not free of charge"
    )
    with pytest.raises(RequestError, match="'m:fast' is not served here"):
        one.decide(asking("m:fast"), 0.0)


def test_free_holds_for_the_fallbacks_too() -> None:
    one = router(
        route("m", target("free/m", usd=(0.0, 0.0))), route("n", target("paid/n", usd=(1.0, 1.0)))
    )
    assert names(one.fallbacks(("n",), asking("m:free"), 0.0)) == []
    assert names(one.fallbacks(("n", "no-such"), asking("m"), 0.0)) == ["paid/n"]
    assert one.fallbacks(("no-such",), asking("m"), 0.0) == Decision((), ())


@pytest.mark.parametrize("sort", ["price", {"by": "price"}, {"by": "price", "partition": "model"}])
def test_sort_goes_before_the_strategy_and_the_suffix(sort: Any) -> None:
    cheap, dear = target("cheap/m", usd=(1.0, 1.0)), target("dear/m", usd=(2.0, 2.0))
    one = router(route("m", dear, cheap, strategy="ordered"))
    assert names(one.decide(asking("m:nitro", provider={"sort": sort}), 0.0))[0] == "cheap/m"


def test_preferred_speeds_put_others_last_and_leave_nobody_out() -> None:
    slow, fast, new = target("slow/m"), target("fast/m"), target("new/m")
    slow.health.had_rate(10.0, 0.0)
    slow.health.had_first_token(2.0, 0.0)
    fast.health.had_rate(90.0, 0.0)
    fast.health.had_first_token(0.2, 0.0)
    one = router(route("m", slow, fast, new, strategy="ordered"))
    for preferences in (
        {"preferred_min_throughput": 50},
        {"preferred_max_latency": 0.5},
        {"preferred_min_throughput": {"p50": 50}},
        {"preferred_max_latency": {"p50": 0.5, "p90": 9.0}},
        {"preferred_max_latency": {"p90": 0.5}},
    ):
        found = names(one.decide(asking(provider=preferences), 0.0))
        assert found == ["fast/m", "new/m", "slow/m"], preferences
    assert names(one.decide(asking(provider={"preferred_max_latency": {}}), 0.0))[0] == "slow/m"


def test_the_route_fallback_tries_targets_in_their_order() -> None:
    for strategy in ("weighted", "least_busy", "price"):
        for seed in range(8):
            one = router(route("m", A, B, C, strategy=strategy), seed=seed)
            decision = one.decide(asking(route="fallback"), 0.0)
            assert names(decision) == ["a/m", "b/m", "c/m"], (strategy, seed)
    assert decision.candidates[0].reasons == ("ordered: number 1 of the list",)


def test_the_route_fallback_goes_before_the_session_and_after_a_sort() -> None:
    cheap = target("cheap/m", usd=(1.0, 1.0))
    dear = target("dear/m", usd=(5.0, 5.0))
    one = router(route("m", dear, cheap, sticky="session"))
    ask = asking(route="fallback", session="s")
    one.served("m", ask, cheap, 0.0)
    assert names(one.decide(asking(session="s"), 0.0)) == ["cheap/m", "dear/m"]
    assert names(one.decide(ask, 0.0)) == ["dear/m", "cheap/m"]
    sorted_ = asking(route="fallback", provider={"sort": "price"})
    assert names(one.decide(sorted_, 0.0)) == ["cheap/m", "dear/m"]


def test_the_route_load_balance_draws_targets_by_their_weights() -> None:
    first = set()
    for seed in range(20):
        one = router(route("m", A, B, strategy="ordered"), seed=seed)
        first.add(names(one.decide(asking(route="load-balance"), 0.0))[0])
    assert first == {"a/m", "b/m"}


def test_the_route_sort_and_the_partition_none_sort_the_targets_of_all_models() -> None:
    one = router(
        route("m", target("x/m", usd=(5.0, 5.0)), target("y/m", usd=(2.0, 2.0))),
        route("n", target("z/n", usd=(3.0, 3.0))),
    )
    both: dict[str, Any] = {"models": ["n"], "provider": {"sort": "price"}}
    in_turn = ["y/m", "x/m", "z/n"]
    assert names(one.decide(asking(**both), 0.0)) == in_turn
    assert names(one.decide(asking(**both, route="fallback"), 0.0)) == in_turn
    assert names(one.decide(asking(**both, route="sort"), 0.0)) == ["y/m", "z/n", "x/m"]
    for partition, expected in (("model", in_turn), ("none", ["y/m", "z/n", "x/m"])):
        sort = {"by": "price", "partition": partition}
        asked = asking(models=["n"], provider={"sort": sort})
        assert names(one.decide(asked, 0.0)) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"provider": {"ordr": []}}, "provider"),
        ({"provider": {"order": "a"}}, "provider.order"),
        ({"provider": {"sort": "best"}}, "provider.sort"),
        ({"provider": {"max_price": {"prompt": -1}}}, "provider.max_price.prompt"),
        ({"provider": []}, "provider"),
        ({"route": "sideways"}, "route"),
        ({"models": "m"}, "models"),
        ({"models": [1]}, "models"),
        ({"models": ["m"] * 17}, "models"),
    ],
)
def test_what_a_client_may_not_say(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_wanted("m", fields)
    assert caught.value.param == param
    assert param.split(".")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"onlyy": ["a"]}, "provider: unknown field 'onlyy'; did you mean 'only'?"),
        ({"zzz": 1}, "provider: unknown field 'zzz'; the fields are order, only, ignore,"),
        (
            {"sort": "prize"},
            "'prize' is not one of price, throughput, latency; did you mean 'price'?",
        ),
        ({"sort": {"by": 1}}, "provider.sort.by: text is expected; quote it: '1'"),
        ({"max_price": {"promt": 1}}, "provider.max_price: unknown field 'promt'; did you mean"),
        ({"max_price": {"prompt": "1"}}, "provider.max_price.prompt: a number is expected; write"),
        ({"only": "a"}, "provider.only: a list is expected"),
        ({"only": [1]}, "provider.only[0]: text is expected; quote it: '1'"),
        ({"zdr": "yes"}, "provider.zdr: true or false is expected"),
        (3, "provider: an object is expected"),
    ],
)
def test_errors_are_in_the_words_of_json(given: Any, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_wanted("m", {"provider": given})
    assert str(caught.value).startswith("provider") and said in str(caught.value)
    assert "`" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"enforce_distillable_text": True}, "enforce_distillable_text"),
        ({"max_price": {"image": 1}}, "image"),
        ({"sort": {"by": "price", "partition": "all"}}, "partition"),
    ],
)
def test_what_is_not_done_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_wanted("m", {"provider": given})
    read_wanted("m", {"provider": {"enforce_distillable_text": False}})

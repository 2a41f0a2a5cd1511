"""In which order the targets of a model are tried."""

from __future__ import annotations

from collections import Counter

from tests.gateway.routing.parts import (
    A,
    B,
    C,
    asking,
    names,
    route,
    router,
    target,
)


def test_weights_are_shares_of_many_draws() -> None:
    targets = (
        target("a/m", weight=1.0), target("b/m", weight=3.0), target("c/m", weight=6.0),
        target("d/m", weight=0.0),
    )  # fmt: skip
    one = router(route("m", *targets), seed=7)
    firsts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    draws = 6000
    for _ in range(draws):
        found = names(one.decide(asking(), 0.0))
        assert len(found) == 4 and found[3] == "d/m"  # weight 0: after all others
        firsts[found[0]] += 1
        seconds[found[1]] += found[0] == "c/m"
    for name, share in (("a/m", 0.1), ("b/m", 0.3), ("c/m", 0.6)):
        # Five standard deviations of a share of so many draws.
        assert abs(firsts[name] / draws - share) < 5 * (share * (1 - share) / draws) ** 0.5
    # Among those left the weights count likewise: b is three times as likely as a.
    assert 2.4 < seconds["b/m"] / seconds["a/m"] < 3.7


def test_the_same_chance_gives_the_same_order() -> None:
    orders = [
        [names(one.decide(asking(), 0.0)) for _ in range(20)]
        for one in (router(route("m", A, B, C), seed=3) for _ in range(2))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(one) for one in orders[0]}) > 2


def test_ordered_is_as_in_the_file() -> None:
    one = router(route("m", C, A, B, strategy="ordered"))
    assert names(one.decide(asking(), 0.0)) == ["c/m", "a/m", "b/m"]


def test_order_of_the_file_goes_before_the_strategy() -> None:
    late, first, second = (
        target("late/m", order=2, weight=99.0), target("first/m"), target("second/m", order=1),
    )  # fmt: skip
    for seed in range(5):
        one = router(route("m", late, second, first), seed=seed)
        decision = one.decide(asking(), 0.0)
        assert names(decision) == ["first/m", "second/m", "late/m"]
    assert decision.candidates[1].reasons[0] == "order 1"


def test_least_busy_counts_requests_for_their_weight() -> None:
    busy, idle, large = target("busy/m"), target("idle/m"), target("large/m", weight=10.0)
    for _ in range(3):
        busy.health.began(0.0)
    for _ in range(4):
        large.health.began(0.0)
    one = router(route("m", busy, idle, large, strategy="least_busy"))
    decision = one.decide(asking(), 0.0)
    assert names(decision) == ["large/m", "idle/m", "busy/m"]
    assert "least_busy: serving 3 requests" in decision.candidates[2].reasons


def test_latency_takes_the_better_of_two_drawn() -> None:
    targets = [target(f"t{n}/m") for n in range(4)]
    for n, one in enumerate(targets):
        one.health.had_first_token(0.1 * (n + 1), 0.0)
    found = router(route("m", *targets, strategy="latency"), seed=5)
    firsts = Counter(names(found.decide(asking(), 0.0))[0] for _ in range(3000))
    # Of 6 pairs the best is in 3, the next the best of 2, then of 1; the worst is never first.
    for name, share in (("t0/m", 3 / 6), ("t1/m", 2 / 6), ("t2/m", 1 / 6)):
        assert abs(firsts[name] / 3000 - share) < 0.05
    assert firsts["t3/m"] == 0


def test_latency_looks_at_load_and_tries_new_ones_once() -> None:
    near, far, new = target("near/m"), target("far/m"), target("new/m")
    near.health.had_first_token(0.2, 0.0)
    far.health.had_first_token(0.5, 0.0)
    one = router(route("m", near, far, strategy="latency"))
    assert names(one.decide(asking(), 0.0))[0] == "near/m"
    for _ in range(3):
        near.health.began(0.0)
    assert names(one.decide(asking(), 0.0))[0] == "far/m"
    one = router(route("m", near, new, strategy="latency"))
    decision = one.decide(asking(), 0.0)
    assert names(decision)[0] == "new/m"
    assert decision.candidates[0].reasons == ("latency: not tried yet, 0 at it",)
    new.health.began(0.0)
    assert names(one.decide(asking(), 0.0))[0] == "near/m"


def test_price_of_this_request() -> None:
    long_prompts = target("in/m", usd=(1.0, 10.0))
    long_answers = target("out/m", usd=(4.0, 4.0))
    unknown = target("unknown/m")
    one = router(route("m", unknown, long_prompts, long_answers, strategy="price"))
    found = one.decide(asking(input_tokens=10_000, most_output_tokens=100), 0.0)
    assert names(found) == ["in/m", "out/m", "unknown/m"]
    assert found.candidates[0].reasons == ("price: about $0.011000",)
    assert found.candidates[0].score == 11_000_000
    assert found.candidates[2].reasons == ("price: price unknown",)
    found = one.decide(asking(input_tokens=100, most_output_tokens=1000), 0.0)
    assert names(found) == ["out/m", "in/m", "unknown/m"]


def test_throughput_of_what_was_seen() -> None:
    slow, fast, new = target("slow/m"), target("fast/m"), target("new/m")
    slow.health.had_rate(20.0, 0.0)
    fast.health.had_rate(200.0, 0.0)
    one = router(route("m", slow, fast, new, strategy="throughput"))
    assert names(one.decide(asking(), 0.0)) == ["new/m", "fast/m", "slow/m"]

"""The breaker, its probes, and means in which what is older counts less."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.settings.reliability import BreakerSettings
from headrace.gateway.targets.health import Health

BREAKER = BreakerSettings(
    share=0.5, window_s=30.0, min_attempts=4, cooldown_s=5.0, cooldown_max_s=18.0
)


def health() -> Health:
    return Health(BREAKER)


def opened(at_s: float = 0.0) -> Health:
    """One that is left alone from `at_s` on."""
    one = health()
    for _ in range(4):
        one.failed(at_s, "502")
    assert one.state(at_s) == "open"
    return one


def probe(one: Health, now_s: float, *, ok: bool) -> None:
    assert one.lets_through(now_s)
    one.began(now_s)
    if ok:
        one.succeeded(now_s)
    else:
        one.failed(now_s, "502")
    one.ended()


def test_it_opens_at_the_share_and_not_before_the_least() -> None:
    one = health()
    for _ in range(3):
        one.failed(0.0, "502")
        assert one.state(0.0) == "closed"
    one.failed(0.0, "503")
    assert one.state(0.0) == "open"
    assert not one.lets_through(4.9)
    assert one.closed_for_s(1.0) == pytest.approx(4.0)
    assert one.last_failure == "503" and one.failures == 4


def test_successes_hold_it_closed() -> None:
    one = health()
    for at in range(20):
        one.succeeded(float(at))
        if at % 2:
            one.failed(float(at), "502")
        assert one.state(float(at)) == "closed" or at > 18
    one = health()
    for at in range(6):
        one.succeeded(0.1 * at)
    for at in range(5):
        one.failed(1.0 + at, "502")
        assert one.state(1.0 + at) == "closed"
    one.failed(6.0, "502")  # 6 of 12
    assert one.state(6.0) == "open"


def test_the_window_forgets() -> None:
    one = health()
    for _ in range(3):
        one.failed(0.0, "502")
    one.failed(31.0, "502")  # alone in its window
    assert one.state(31.0) == "closed"


def test_one_probe_at_a_time_and_it_closes() -> None:
    one = opened()
    assert one.state(5.0) == "probing" and one.lets_through(5.0)
    one.began(5.0)
    assert not one.lets_through(5.1)
    assert one.closed_for_s(5.1) > 0
    one.succeeded(5.2)
    one.ended()
    assert one.state(5.2) == "closed" and one.in_flight == 0
    # What was before is forgotten: one failure does not open it again.
    one.failed(5.3, "502")
    assert one.state(5.3) == "closed"


def test_a_probe_that_fails_doubles_the_wait_up_to_the_most() -> None:
    one, now_s = opened(), 5.0
    for wait_s in (10.0, 18.0, 18.0):
        probe(one, now_s, ok=False)
        assert one.closed_for_s(now_s) == pytest.approx(wait_s)
        assert not one.lets_through(now_s + 0.99 * wait_s)
        now_s += wait_s
    probe(one, now_s, ok=True)
    for _ in range(4):
        one.failed(now_s, "502")
    assert one.closed_for_s(now_s) == pytest.approx(5.0)


def test_a_probe_that_says_nothing_lets_another_follow() -> None:
    one = opened()
    one.began(5.0)
    one.ended()
    one.did_not_count(5.5)
    assert one.state(5.5) == "probing" and one.lets_through(5.5)


def test_a_late_success_from_before_does_not_close_it() -> None:
    one = opened()
    one.succeeded(1.0)
    assert one.state(1.0) == "open" and not one.lets_through(4.9)
    one = health()
    one.failed(0.0, "529", cool_s=12.0)
    one.succeeded(0.5)
    assert one.closed_for_s(0.5) == pytest.approx(11.5)


def test_it_is_left_alone_as_long_as_it_asks() -> None:
    one = health()
    one.failed(0.0, "529", cool_s=12.0)
    assert one.closed_for_s(0.0) == pytest.approx(12.0)
    one = health()
    one.failed(0.0, "529", cool_s=1e9)
    assert one.closed_for_s(0.0) == pytest.approx(BREAKER.cooldown_max_s)
    one = opened()
    one.began(5.0)
    one.failed(5.0, "529", cool_s=1.0)  # of a probe the longer one holds
    assert one.closed_for_s(5.0) == pytest.approx(10.0)


def test_peaks_count_at_once_and_fade() -> None:
    one = health()
    assert one.first_token_s is None
    one.had_first_token(1.0, 0.0)
    assert one.first_token_s == 1.0
    one.had_first_token(4.0, 0.0)
    assert one.first_token_s == 4.0
    one.had_first_token(1.0, 10.0)  # a half-life later
    assert one.first_token_s == pytest.approx(2.5)
    one.had_first_token(1.0, 1000.0)
    assert one.first_token_s == pytest.approx(1.0, abs=1e-6)


def test_many_readings_in_a_moment_each_have_a_say() -> None:
    one = health()
    one.had_first_token(2.0, 0.0)
    for _ in range(50):
        one.had_first_token(1.0, 0.0)
    assert one.first_token_s is not None and one.first_token_s < 1.01
    one.had_first_token(0.9, -5.0)  # a clock that went back does no harm
    assert one.first_token_s > 0.9


def test_rates_are_means_without_peaks() -> None:
    one = health()
    one.had_rate(100.0, 0.0)
    one.had_rate(200.0, 10.0)
    assert one.tokens_per_s == pytest.approx(150.0)


def test_load_is_latency_times_what_is_before() -> None:
    one = health()
    assert one.load_score(0.0) == 0.0  # nobody tried it: first of all
    one.began(0.0)
    untried = one.load_score(0.0)
    one.had_first_token(0.5, 0.0)
    assert untried > 1000 * one.load_score(0.0)  # one request tries it, not all of them
    assert one.load_score(0.0) == pytest.approx(1.0)
    one.ended()
    assert one.load_score(0.0) == pytest.approx(0.5)


def test_a_slow_moment_is_forgotten_though_nobody_asks() -> None:
    slow, fast = health(), health()
    slow.had_first_token(8.0, 0.0)
    for at in range(600):
        fast.had_first_token(1.0, float(at))
        if slow.load_score(float(at)) < fast.load_score(float(at)):
            break
    assert 300 < at < 400


def test_counts() -> None:
    one = health()
    one.began(0.0)
    one.began(0.0)
    assert (one.in_flight, one.requests) == (2, 2)
    one.ended()
    one.ended()
    assert (one.in_flight, one.requests) == (0, 2)


@given(st.lists(st.tuples(st.sampled_from(["ok", "bad", "cool", "void"]), st.integers(0, 80))))
@settings(max_examples=60, deadline=None)
def test_it_always_opens_again_to_a_probe(steps: list[tuple[str, int]]) -> None:
    """Whatever came, after the longest wait something may be sent; never two probes at once."""
    one, now_s = health(), 0.0
    for what, quarters in steps:
        now_s += quarters / 4
        if not one.lets_through(now_s):
            assert 0 < one.closed_for_s(now_s) <= BREAKER.cooldown_max_s
            continue
        assert one.closed_for_s(now_s) == 0.0
        one.began(now_s)
        if one.state(now_s) == "probing":
            assert not one.lets_through(now_s)
        if what == "ok":
            one.succeeded(now_s)
        elif what == "void":
            one.did_not_count(now_s)
        else:
            one.failed(now_s, "502", cool_s=3.0 if what == "cool" else None)
        one.ended()
        assert one.in_flight == 0
    assert one.lets_through(now_s + BREAKER.cooldown_max_s)

"""Distributions of lengths as people write them, and what is drawn from them."""

from __future__ import annotations

import random
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bench.prompts.lengths import (
    MAX_TOKENS,
    Fixed,
    FromPairs,
    Independent,
    InTurn,
    Normal,
    Size,
    Uniform,
    around,
    parse_lengths,
)
from headrace.bench.prompts.think import ThinkTime, parse_think_time
from headrace.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("512", Fixed(512)),
        ("1_024", Fixed(1024)),
        (" 128 .. 1024 ", Uniform(128, 1024)),
        ("normal(512, 64)", Normal(512, 64)),
        ("normal(512,64,16)", Normal(512, 64, 16)),
        ("normal(512,64,16,600)", Normal(512, 64, 16, 600)),
        ("100,200,300", InTurn((100, 200, 300))),
    ],
)
def test_what_is_written(text: str, meant: object) -> None:
    assert parse_lengths(text, "isl") == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a whole number"),
        ("0", "not from 1"),
        ("-3", "not a whole number"),
        ("1.5", "not a whole number"),
        ("9" * 5000, "not from 1"),
        (str(MAX_TOKENS + 1), f"not from 1 to {MAX_TOKENS}"),
        ("20..10", "20 is above 10"),
        ("..10", "not a whole number"),
        ("1,,2", "not a whole number"),
        ("normal(512)", "has 1 numbers"),
        ("normal(1,2,3,4,5)", "has 5 numbers"),
        ("normal(x,2)", "not a number"),
        ("normal(5,2,10,20)", "mean 5 is not from 10 to 20"),
        ("zipf(3)", "not a whole number"),
        ("٣", "not a whole number"),
    ],
)
def test_what_means_nothing(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^isl ") as caught:
        parse_lengths(text, "isl")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


def test_draws() -> None:
    source = random.Random(1)
    uniform = Uniform(10, 12).draw(3000, source)
    assert set(uniform) == {10, 11, 12}
    assert fmean(uniform) == pytest.approx(11, abs=0.1)
    normal = Normal(512, 64).draw(4000, source)
    assert fmean(normal) == pytest.approx(512, rel=0.01)
    assert stdev(normal) == pytest.approx(64, rel=0.05)
    assert InTurn((1, 2, 3)).draw(5, source) == (1, 2, 3, 1, 2)


def test_normal_draws_again_instead_of_piling_up_at_its_limits() -> None:
    drawn = Normal(10, 20, 1, 40).draw(2000, random.Random(2))
    assert min(drawn) >= 1
    assert max(drawn) <= 40
    assert sum(one == 1 for one in drawn) < 100


def test_normal_with_hardly_anything_inside_its_limits() -> None:
    assert Normal(100, 1e9, 100, 100).draw(2, random.Random(3)) == (100, 100)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 50))
def test_equal_seeds_draw_equal_lengths(seed: int, count: int) -> None:
    sizes = Independent(Normal(100, 30), Uniform(1, 9))
    first = sizes.draw(count, random.Random(seed))
    assert first == sizes.draw(count, random.Random(seed))
    assert len(first) == count


def test_answers_do_not_move_prompts() -> None:
    short = Independent(Uniform(1, 99), Fixed(5)).draw(20, random.Random(4))
    long = Independent(Uniform(1, 99), Uniform(5, 50)).draw(20, random.Random(4))
    assert [one.prompt_tokens for one in short] == [one.prompt_tokens for one in long]


def test_pairs_stay_together() -> None:
    pairs = (Size(1, 10), Size(2, 20))
    assert set(FromPairs(pairs).draw(50, random.Random(5))) == set(pairs)
    with pytest.raises(ConfigError, match="no rows"):
        FromPairs(()).draw(1, random.Random(5))


def test_vllms_range_ratio() -> None:
    assert around(1000, 0.2) == Uniform(800, 1200)
    assert around(1000, 0) == Fixed(1000)
    for mean, ratio in ((1000, 1.0), (1000, float("nan")), (0, 0.5)):
        with pytest.raises(ConfigError):
            around(mean, ratio)


def test_think_times() -> None:
    assert parse_think_time("2", "think") == ThinkTime(low_s=2, high_s=2)
    assert parse_think_time("500ms", "think").draw_ns(random.Random(1)) == 500_000_000
    drawn = [parse_think_time("1..3s", "think").draw_ns(random.Random(at)) for at in range(50)]
    assert all(1_000_000_000 <= one <= 3_000_000_000 for one in drawn)
    mean = parse_think_time("exponential(4)", "think")
    source = random.Random(6)
    assert fmean(mean.draw_ns(source) for _ in range(5000)) == pytest.approx(4e9, rel=0.05)


@pytest.mark.parametrize("text", ["", "soon", "3..1", "-1", "1e9", "90000", "exponential()", "1.."])
def test_think_times_that_mean_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^think "):
        parse_think_time(text, "think")

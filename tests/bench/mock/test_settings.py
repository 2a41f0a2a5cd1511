"""The program of a mock: what it may say, and what an error tells."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.mock.settings import MockSettings, parse_error
from headrace.bench.mock.spread import Spread
from headrace.errors import ConfigError


@pytest.mark.parametrize(
    ("given_values", "told"),
    [
        ({"ttft_ms": "soon"}, "ttft_ms: 'soon' is not a distribution; write a number, uniform:"),
        ({"ttft_ms": "normal:5"}, "ttft_ms: 'normal:5' is not a distribution"),
        ({"ttft_ms": -1}, "ttft_ms: -1 in -1 is not in 0 to 3.6e+06"),
        ({"tpot_ms": float("nan")}, "tpot_ms: nan in nan is not in 0 to"),
        ({"tpot_ms": "uniform:9:3"}, "tpot_ms: 'uniform:9:3' ends below its beginning"),
        ({"tpot_ms": "lognormal:9:30"}, "the deviation 30 in 'lognormal:9:30' is not in 0 to 5"),
        ({"tokens_per_chunk": 0}, "tokens_per_chunk: 0 in 0 is not in 1 to 10000"),
        ({"output_tokens": "0"}, "output_tokens: 0 in '0' is not in 1 to"),
        ({"jitter_ms": -1}, "jitter_ms: -1 is not in 0 to"),
        ({"stall_rate": 1.5}, "stall_rate: 1.5 is not in 0 to 1"),
        ({"capacity": 0}, "capacity: 0 is not a whole number in 1 to"),
        ({"max_queued": 3}, "max_queued: 3 needs a capacity"),
        ({"role_chunk": "late"}, "role_chunk: 'late' is not one of at-once, with-first, none"),
        ({"errors": (("418x", 0.1),)}, "errors: '418x' is not a kind of error; write KIND:RATE"),
        ({"errors": (("200", 0.1),)}, "errors: '200' is not a kind of error"),
        ({"errors": (("429", 1.1),)}, "errors: the rate 1.1 of 429 is not in 0 to 1"),
        ({"errors": (("429", 0.6), ("html", 0.6))}, "errors: the rates add up to 1.2"),
    ],
)
def test_errors_name_field_value_and_limit(given_values: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MockSettings(**given_values)  # type: ignore[arg-type]
    assert told in str(caught.value)


def test_errors_are_written_as_kind_and_rate() -> None:
    assert parse_error("429:0.25") == ("429", 0.25)
    assert MockSettings(errors=(parse_error("reset-inside:1"),)).errors == (("reset-inside", 1.0),)
    with pytest.raises(ConfigError, match="rate of 'html:often' is not a number"):
        parse_error("html:often")
    with pytest.raises(ConfigError, match="the rate nan of html"):
        MockSettings(errors=(parse_error("html"),))


def test_the_key_is_not_shown() -> None:
    shown = repr(MockSettings(api_key="sk-very-secret", ttft_ms=3))
    assert "secret" not in shown
    assert "ttft_ms=3" in shown


@given(
    st.sampled_from(["7", "uniform:2:9", "normal:5:20", "lognormal:5:1"]),
    st.integers(),
)
def test_draws_are_repeatable_and_never_negative(text: str, seed: int) -> None:
    spread = Spread.parse(text, field="x", least=0, most=100)
    drawn = [spread.draw(Random(seed)) for _ in range(2)]
    assert drawn[0] == drawn[1] >= 0
    assert spread.draw_whole(Random(seed)) >= 1


def test_draws_have_the_middle_they_are_told() -> None:
    random = Random(1)
    for text, middle in (("normal:50:5", 50), ("lognormal:50:0.5", 50), ("uniform:40:60", 50)):
        spread = Spread.parse(text, field="x", least=0, most=100)
        drawn = sorted(spread.draw(random) for _ in range(4001))
        assert abs(drawn[2000] - middle) < 2
    whole = Spread.parse("uniform:1:3", field="x", least=1, most=9)
    assert {whole.draw_whole(random) for _ in range(100)} == {1, 2, 3}

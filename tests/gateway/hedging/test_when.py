"""When a request is hedged, and how many are."""

from __future__ import annotations

import pytest

from headrace.gateway.routing.hedging import Hedging
from headrace.gateway.routing.side_effects import acts_at_provider
from headrace.gateway.settings.traffic import HedgeSettings
from headrace.protocol.json_object import JsonObject


def test_after_a_fixed_time() -> None:
    assert Hedging(HedgeSettings(after_ms=800)).after_s(stream=True) == pytest.approx(0.8)


def test_after_a_percentile_of_what_was_seen_and_not_before_enough_was() -> None:
    hedging = Hedging(HedgeSettings(after_percentile=95))
    for at in range(1, 20):
        hedging.had_first_token(at / 10, stream=True)
    assert hedging.after_s(stream=True) is None, "19 times have no 95th percentile"
    hedging.had_first_token(2.0, stream=True)
    assert hedging.after_s(stream=True) == pytest.approx(1.9), "by nearest rank"
    assert hedging.after_s(stream=False) is None, "whole answers take longer and count apart"


def test_a_high_percentile_needs_more_times() -> None:
    hedging = Hedging(HedgeSettings(after_percentile=99))
    for at in range(99):
        hedging.had_first_token(at, stream=False)
    assert hedging.after_s(stream=False) is None
    hedging.had_first_token(99, stream=False)
    assert hedging.after_s(stream=False) == 98


def test_old_times_are_forgotten() -> None:
    hedging = Hedging(HedgeSettings(after_percentile=50))
    for _ in range(1000):
        hedging.had_first_token(5.0, stream=True)
    for _ in range(512):
        hedging.had_first_token(0.1, stream=True)
    assert hedging.after_s(stream=True) == pytest.approx(0.1)


def test_no_more_than_their_share_of_the_last_minute() -> None:
    hedging = Hedging(HedgeSettings(after_ms=1, share=0.1))
    for _ in range(25):
        hedging.began(100.0)
    assert [hedging.take(100.5) for _ in range(4)] == [True, True, False, False]
    assert hedging.counts == (2, 0, 2)
    for _ in range(9):
        hedging.began(161.0)
    assert not hedging.take(161.0), "the 25 are over a minute old"
    hedging.began(161.5)
    assert hedging.take(161.5) and not hedging.take(161.5)


@pytest.mark.parametrize(
    ("body", "acts"),
    [
        (b'{"model":"m"}', False),
        (b'{"tools":[{"type":"function","function":{"name":"f"}}]}', False),
        (b'{"tools":[{"name":"f","input_schema":{}}]}', False),
        (b'{"tools":[{"type":"bash_20250124","name":"bash"}]}', False),
        (b'{"tools":[{"type":"custom","name":"x"}],"background":false}', False),
        (b'{"tools":[{"type":"web_search"}]}', True),
        (b'{"tools":[{"type":"function"},{"type":"mcp","server_url":"x"}]}', True),
        (b'{"tools":[{"type":"code_execution_20250825","name":"x"}]}', True),
        (b'{"tools":"all"}', True),
        (b'{"tools":[7]}', True),
        (b'{"background":true}', True),
        (b'{"conversation":"conv_1"}', True),
        (b'{"web_search_options":{}}', True),
        (b'{"mcp_servers":[{"url":"x"}]}', True),
    ],
)
def test_what_providers_do_besides_an_answer_is_not_done_twice(body: bytes, acts: bool) -> None:
    assert acts_at_provider(JsonObject.read(body)) is acts

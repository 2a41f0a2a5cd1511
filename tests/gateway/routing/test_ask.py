"""What of a body is held back for its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.routing.ask import ask_of
from headrace.gateway.routing.decision import Decision
from headrace.gateway.serving.asked import OUTPUT_TOKENS, demand_of
from headrace.protocol.json_object import JsonObject


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, OUTPUT_TOKENS),
        ({"max_tokens": 100}, 100),
        ({"max_completion_tokens": 50, "max_tokens": 100}, 50),
        ({"max_output_tokens": 70}, 70),
        ({"options": {"num_predict": 30}}, 30),
        ({"options": {"num_predict": -1}}, OUTPUT_TOKENS),
        ({"options": "none"}, OUTPUT_TOKENS),
        ({"max_tokens": 100, "n": 3}, 300),
        ({"max_tokens": 100, "n": 2, "best_of": 5}, 500),
        ({"max_tokens": 100, "n": True, "best_of": "x"}, 100),
        ({"max_tokens": 10**30, "n": 10**30}, 2**31),
    ],
)
def test_every_choice_may_be_as_long_as_the_client_allows(body: Any, tokens: int) -> None:
    ask = ask_of(JsonObject.read(json.dumps(body).encode()), "chat")
    assert demand_of(ask, Decision((), ())).most_output_tokens == tokens

"""What of a body is held back for its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.building.dialects import client_side
from headrace.gateway.routing.ask import ask_of
from headrace.gateway.routing.decision import Decision
from headrace.gateway.serving.asked import OUTPUT_TOKENS, asked_of, demand_of
from headrace.gateway.serving.incoming import Incoming
from headrace.protocol.json_object import JsonObject
from tests.gateway.routing.parts import A, route, router


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, OUTPUT_TOKENS),
        ({"max_tokens": 100}, 100),
        ({"max_completion_tokens": 1, "max_tokens": 100_000}, 100_000),
        ({"max_tokens": 7, "options": {"num_predict": 30}}, 30),
        ({"max_output_tokens": 70}, 70),
        ({"options": {"num_predict": 30}}, 30),
        ({"options": {"num_predict": -1}}, OUTPUT_TOKENS),
        ({"options": "none"}, OUTPUT_TOKENS),
        ({"max_tokens": 100, "n": 3}, 300),
        ({"max_tokens": 100, "n": 2, "best_of": 5}, 500),
        ({"prompt": ["a"] * 50, "max_tokens": 100}, 5000),
        ({"prompt": [[1, 2], [3]], "max_tokens": 100, "n": 2}, 400),
        ({"prompt": [1, 2, 3], "max_tokens": 100}, 100),
        ({"prompt": "a", "max_tokens": 100}, 100),
        ({"prompt": [], "max_tokens": 100}, 100),
        ({"max_tokens": 100, "n": True, "best_of": "x"}, 100),
        ({"max_tokens": 10**30, "n": 10**30}, 2**31),
    ],
)
def test_every_choice_may_be_as_long_as_the_client_allows(body: Any, tokens: int) -> None:
    ask = ask_of(JsonObject.read(json.dumps(body).encode()), "chat")
    assert demand_of(ask, Decision((), ())).most_output_tokens == tokens


def test_sessions_of_two_keys_are_two() -> None:
    names = set()
    for key in ("first", "second"):
        incoming = Incoming(
            id="1",
            side=client_side("openai-chat"),
            path="/v1/chat/completions",
            headers={"x-session-id": "s"},
            body=JsonObject.read(b'{"model": "m"}'),
            model="m",
            stream=False,
            received_ns=0,
            caller=Caller(key_id=key),
        )
        names.add(asked_of(incoming, router(route("m", A))).session)
    assert len(names) == 2

"""What makes two requests the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.tenant import tenant_of
from headrace.gateway.cache.key import Around, fields_of, has_state, is_repeatable, key_of

AROUND = Around(
    tenant=("key", "k"),
    namespace="",
    dialect="openai-chat",
    routes=(("chat", "a/m"),),
    headers=(),
    rules=(None, False),
)
BODY: dict[str, Any] = {
    "model": "chat",
    "messages": [{"role": "user", "content": "Hi", "name": "ann"}],
    "temperature": 0,
    "top_p": 0.9,
    "stop": ["x"],
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["model", "messages", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "n", "tools",
     "tool_choice", "max_tokens", "logit_bias", "logprobs", "response_format", "reasoning_effort",
     "presence_penalty", "frequency_penalty", "repetition_penalty", "service_tier", "provider",
     "models", "route", "options", "something_new", "Stream"],
)  # fmt: skip


def key(body: dict[str, Any], around: Around = AROUND, **dump: Any) -> bytes:
    fields = fields_of(json.dumps(body, **dump).encode())
    assert fields is not None
    found = key_of(fields, around)
    assert found is not None and len(found) == 32
    return found


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(name=FIELDS, value=VALUES)
def test_every_change_of_a_field_that_matters_changes_the_key(name: str, value: Any) -> None:
    changed = {**BODY, name: value}
    same = name in BODY and json.dumps(BODY[name]) == json.dumps(value)
    assert (key(changed) == key(BODY)) == same


@settings(max_examples=100, deadline=None)
@given(one=VALUES, other=VALUES)
def test_values_that_differ_have_keys_that_differ(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (key({"x": one}) == key({"x": other})) == same


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(body=st.dictionaries(st.text(max_size=5), VALUES, max_size=6), seed=st.integers())
def test_order_and_white_space_do_not_count(body: dict[str, Any], seed: int) -> None:
    def mixed(value: Any) -> Any:
        if isinstance(value, list):
            return [mixed(one) for one in value]
        if not isinstance(value, dict):
            return value
        items = [(name, mixed(one)) for name, one in value.items()]
        random.Random(seed).shuffle(items)
        return dict(items)

    assert key(body) == key(mixed(body), indent=3) == key(body, ensure_ascii=False)


@pytest.mark.parametrize("name", ["stream", "stream_options", "user", "metadata", "cache"])
def test_what_cannot_change_an_answer_does_not_count(name: str) -> None:
    assert key({**BODY, name: {"a": True}}) == key(BODY)
    deep = {**BODY, "messages": [{"role": "user", "content": "Hi", name: "x"}]}
    assert key(deep) != key(BODY), "below the top it is something else"


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": ("key", "l")},
        {"tenant": ("team", "k")},
        {"namespace": "x"},
        {"dialect": "anthropic"},
        {"routes": (("chat", "a/m", "b/m"),)},
        {"headers": (("anthropic-beta", "x"),)},
        {"rules": (("eu",), False)},
        {"rules": (None, True)},
    ],
)
def test_what_is_around_a_body_counts(change: dict[str, Any]) -> None:
    assert key(BODY, AROUND._replace(**change)) != key(BODY)


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{"content": "a", "content": "b"}]}',
        b"[]",
        b"{",
        b'{"a": "\xff"}',
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"a":' * 200_000,
        b'{"a": "' + b"x" * (8 * 2**20) + b'"}',
    ],
)
def test_what_may_be_read_in_two_ways_has_no_key(body: bytes) -> None:
    assert fields_of(body) is None


def test_a_character_that_is_none_has_no_key() -> None:
    fields = fields_of(b'{"a": "\\ud800"}')
    assert fields is not None and key_of(fields, AROUND) is None


@pytest.mark.parametrize(
    ("fields", "is_so"),
    [
        ({}, False),
        ({"temperature": 0}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": False}, False),
        ({"temperature": "0"}, False),
        ({"temperature": 1}, False),
        ({"temperature": 1, "seed": 7}, True),
        ({"seed": None}, False),
        ({"seed": True}, False),
        ({"options": {"temperature": 0}}, True),
        ({"options": {"seed": 1}}, True),
        ({"options": [0]}, False),
    ],
)
def test_what_is_meant_to_have_the_same_answer(fields: dict[str, Any], is_so: bool) -> None:
    assert is_repeatable(fields) == is_so


def test_what_hangs_on_a_providers_state() -> None:
    assert has_state({"conversation": "conv_1"}) and has_state({"background": True})
    assert not has_state({"conversation": None, "background": False})


def test_who_shares_answers() -> None:
    ann = Caller(key_id="k", organisation="acme", team="red", user="ann")
    alone = Caller(key_id="k")
    assert tenant_of(ann, "key") == tenant_of(alone, "key") == ("key", "k")
    assert tenant_of(ann, "team") == ("team", "acme", "red")
    assert tenant_of(ann, "organisation") == ("organisation", "acme")
    assert tenant_of(alone, "organisation") == tenant_of(alone, "team") == ("key", "k")
    assert tenant_of(Caller(key_id="k", team="red"), "organisation") == ("team", "", "red")
    assert tenant_of(ann, "all") == tenant_of(None, "all") == ("all",)
    assert tenant_of(None, "key") == ("nobody",)

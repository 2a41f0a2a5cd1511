"""The request but for its turns: path, headers, generationConfig, what is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.gemini import PROVIDER, GeminiProvider, VertexAi
from headrace.protocol.neutral.call import ChatCall, OutputFormat, Reasoning
from tests.protocol.dialects.gemini.samples import a_call, dropped, user, written

VERTEX = GeminiProvider(place=VertexAi(project="p-1", location="europe-west4"))


def test_nothing_is_said_that_was_not_asked() -> None:
    assert written(a_call()) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


def test_paths_of_both_places() -> None:
    model = "gemini-2.5-flash"
    wanted = a_call(stream=True)
    assert PROVIDER.write_call(a_call(), model).path == f"/v1beta/models/{model}:generateContent"
    assert (
        PROVIDER.write_call(wanted, model).path
        == f"/v1beta/models/{model}:streamGenerateContent?alt=sse"
    )
    assert (
        VERTEX.write_call(wanted, model).path
        == "/v1/projects/p-1/locations/europe-west4/publishers/"
        f"google/models/{model}:streamGenerateContent?alt=sse"
    )


def test_no_key_is_ever_written() -> None:
    request = PROVIDER.write_call(a_call(), "gemini-2.5-flash")
    assert request.headers == {"content-type": "application/json"}
    assert "key" not in request.path


def test_sampling_has_its_names() -> None:
    call = a_call(
        max_tokens=10,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        choices=2,
        stop=("a", "b"),
        seed=7,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        logprobs=True,
        top_logprobs=3,
        modalities=("text", "image"),
    )
    assert written(call)["generationConfig"] == {
        "maxOutputTokens": 10,
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40,
        "candidateCount": 2,
        "stopSequences": ["a", "b"],
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "responseLogprobs": True,
        "logprobs": 3,
        "responseModalities": ["TEXT", "IMAGE"],
    }
    assert dropped(call) == ()


def test_what_is_out_of_range_becomes_the_nearest() -> None:
    call = a_call(temperature=3, presence_penalty=2.0, frequency_penalty=-9, top_logprobs=50)
    assert written(call)["generationConfig"] == {
        "temperature": 2,
        "presencePenalty": 1.99,
        "frequencyPenalty": -2,
        "logprobs": 20,
    }
    assert dropped(call) == (
        "temperature",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
    )


@pytest.mark.parametrize(
    ("seed", "sent"), [(7, 7), (-7, -7), (2**31 - 1, 2**31 - 1), (2**31 + 5, 5), (-(2**40) + 3, 3)]
)
def test_a_seed_has_31_bits(seed: int, sent: int) -> None:
    assert written(a_call(seed=seed))["generationConfig"] == {"seed": sent}
    assert dropped(a_call(seed=seed)) == ()


def test_zero_is_said() -> None:
    assert written(a_call(temperature=0.0, seed=0))["generationConfig"] == {
        "temperature": 0.0,
        "seed": 0,
    }


def test_what_gemini_has_no_word_for_is_told() -> None:
    call = a_call(
        min_p=0.1,
        repetition_penalty=1.1,
        logit_bias={"5": 1.0},
        user="u",
        metadata={"a": "b"},
        service_tier="scale",
        extra={"top_a": 1},
    )
    assert dropped(call) == (
        "min_p",
        "repetition_penalty",
        "logit_bias",
        "user",
        "metadata",
        "service_tier",
        "extra.top_a",
    )
    assert set(written(call)) == {"contents"}


def test_a_gemini_clients_own_fields_are_put_back() -> None:
    own: dict[str, Any] = {
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "cachedContent": "cachedContents/1",
        "labels": {"team": "a"},
        "generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW"},
    }
    call = a_call(dialect="gemini", extra=own)
    assert {name: written(call)[name] for name in own} == own
    assert dropped(call) == ()
    more = a_call(dialect="gemini", extra=own, seed=1)
    assert written(more)["generationConfig"] == {**own["generationConfig"], "seed": 1}


def test_json_and_schemas_of_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    plain = a_call(output=OutputFormat(kind="json"))
    assert written(plain)["generationConfig"] == {"responseMimeType": "application/json"}
    asked = OutputFormat(kind="schema", schema=schema, name="n", description="d", strict=True)
    assert written(a_call(output=asked))["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {**schema, "description": "d"},
    }
    assert "generationConfig" not in written(a_call(output=OutputFormat(kind="text")))
    odd = OutputFormat(kind="schema", schema={"type": "object", "patternProperties": {}})
    assert dropped(a_call(output=odd)) == ("output.schema.patternProperties",)


@pytest.mark.parametrize(
    ("tier", "field", "header", "told"),
    [
        (None, None, None, ()),
        ("auto", None, None, ()),
        ("default", "standard", None, ()),
        ("flex", "flex", "flex", ()),
        ("priority", "priority", "priority", ()),
        ("scale", None, None, ("service_tier",)),
    ],
)
def test_the_tier_is_a_field_or_a_header(
    tier: str | None, field: str | None, header: str | None, told: tuple[str, ...]
) -> None:
    call = a_call(service_tier=tier)
    assert written(call).get("serviceTier") == field
    request = VERTEX.write_call(call, "gemini-2.5-flash")
    assert request.headers.get("x-vertex-ai-llm-shared-request-type") == header
    assert b"serviceTier" not in request.body
    assert request.dropped == told


BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576}
FLASH_LEVELS = ("minimal", "minimal", "low", "medium", "high", "high")
PRO_LEVELS = ("low", "low", "low", "medium", "high", "high")
FIRST_PRO_LEVELS = ("low", "low", "low", "high", "high", "high")


def thinking(model: str, **asked: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    call: ChatCall = a_call(reasoning=Reasoning(**asked))
    config = written(call, model).get("generationConfig", {})
    return config.get("thinkingConfig", {}), dropped(call, model)


@pytest.mark.parametrize("effort", list(BUDGETS))
def test_effort_as_budget_or_level(effort: Any) -> None:
    at = list(BUDGETS).index(effort)
    off = ("reasoning.effort",) if effort == "none" else ()
    budget = BUDGETS[effort]
    assert thinking("gemini-2.5-flash", effort=effort) == ({"thinkingBudget": budget}, ())
    pro = {"none": 128, "xhigh": 32768}.get(effort, budget)
    assert thinking("gemini-2.5-pro", effort=effort) == ({"thinkingBudget": pro}, off)
    for model, levels in (
        ("gemini-3-flash-preview", FLASH_LEVELS),
        ("gemini-3.1-pro-preview", PRO_LEVELS),
        ("gemini-3-pro-preview", FIRST_PRO_LEVELS),
    ):
        assert thinking(model, effort=effort) == ({"thinkingLevel": levels[at]}, off), model
    told = () if effort == "none" else ("reasoning",)
    assert thinking("gemini-2.0-flash", effort=effort) == ({}, told)


def test_a_budget_is_said_as_such_and_goes_before_effort() -> None:
    for model in ("gemini-2.5-flash", "gemini-3-flash"):
        found = thinking(model, budget_tokens=500, effort="high", shown=True)
        assert found == ({"thinkingBudget": 500, "includeThoughts": True}, ())
    assert thinking("gemini-2.5-flash", budget_tokens=0) == ({"thinkingBudget": 0}, ())
    assert thinking("gemini-2.5-pro", budget_tokens=0) == (
        {"thinkingBudget": 128},
        ("reasoning.budget_tokens",),
    )
    assert thinking("gemini-3-flash", budget_tokens=0) == (
        {"thinkingLevel": "minimal"},
        ("reasoning.budget_tokens",),
    )


def test_thoughts_are_shown_if_asked_for() -> None:
    assert thinking("gemini-2.5-flash", shown=False) == ({"includeThoughts": False}, ())
    assert thinking("gemini-2.5-flash", summary="auto") == ({"includeThoughts": True}, ())
    assert thinking("gemini-2.5-flash", adaptive=True) == ({"thinkingBudget": -1}, ())
    assert thinking("gemini-3-flash", adaptive=True) == ({}, ())
    assert thinking("gemini-2.0-flash", shown=False) == ({}, ())
    assert written(a_call(user("a"), reasoning=Reasoning()))["contents"]

"""From bytes to a request: every field is honoured, refused by name, or reported as ignored."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from headrace.engine.params import MODEL_DEFAULTS
from headrace.errors import RequestError
from headrace.protocol.openai.chat import ROLES
from headrace.protocol.openai.completions import MAX_PROMPTS, prompts_of
from headrace.protocol.openai.fields import (
    APPLY_TEMPLATE,
    CHAT,
    COMPLETIONS,
    DETOKENIZE,
    ENDPOINTS,
    TOKENIZE,
)
from headrace.protocol.openai.sampling import MAX_BAD_WORDS, MAX_CHOICES, MAX_STOP_STRINGS
from headrace.protocol.request import Endpoint, parse_request

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
BASE: dict[str, dict[str, Any]] = {
    CHAT.path: HELLO,
    COMPLETIONS.path: {"prompt": "hello"},
    TOKENIZE.path: {"prompt": "hello"},
    DETOKENIZE.path: {"tokens": [1]},
    APPLY_TEMPLATE.path: HELLO,
}


def parse(endpoint: Endpoint[Any], **fields: Any) -> Any:
    return parse_request(json.dumps({**BASE[endpoint.path], **fields}).encode(), endpoint)


def refusal(endpoint: Endpoint[Any], **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(endpoint, **fields)
    return caught.value


# Names of the fields in OpenAI's openapi.yaml of August 2026.
OPENAI_FIELDS = {
    CHAT: "audio frequency_penalty function_call functions logit_bias logprobs "
    "max_completion_tokens max_tokens messages metadata modalities model moderation n "
    "parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options "
    "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier "
    "stop store stream stream_options temperature tool_choice tools top_logprobs top_p user "
    "verbosity web_search_options",
    COMPLETIONS: "best_of echo frequency_penalty logit_bias logprobs max_tokens model n "
    "presence_penalty prompt seed stop stream stream_options suffix temperature top_p user",
}
# Fields of vLLM's that a client may send, beside those in its snapshot among the shared assets.
VLLM_FIELDS = (
    "structured_outputs allowed_token_ids bad_words priority request_id cache_salt "
    "kv_transfer_params vllm_xargs return_tokens_as_token_ids return_token_ids"
)


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS], ids=lambda endpoint: endpoint.path)
def test_fields_of_openai_and_vllm_are_honoured_or_known(endpoint: Endpoint[Any]) -> None:
    fields = set(OPENAI_FIELDS[endpoint].split()) | set(VLLM_FIELDS.split())
    assert fields <= set(endpoint.honoured) | set(endpoint.known)


def test_fields_of_a_vllm_server_are_honoured_or_known(shared_assets: Any) -> None:
    spec = json.loads((shared_assets / "api-specs" / "vllm" / "api_spec.json").read_text())
    schemas = spec["components"]["schemas"]
    for endpoint, names in {
        CHAT: ["ChatCompletionRequest"],
        COMPLETIONS: ["CompletionRequest"],
        TOKENIZE: ["TokenizeCompletionRequest", "TokenizeChatRequest"],
        DETOKENIZE: ["DetokenizeRequest"],
    }.items():
        fields = {field for name in names for field in schemas[name]["properties"]}
        assert fields
        assert fields <= set(endpoint.honoured) | set(endpoint.known), endpoint.path


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_no_field_is_both_honoured_and_known(endpoint: Endpoint[Any]) -> None:
    assert not set(endpoint.honoured) & set(endpoint.known)


KNOWN = [(e, row) for e in ENDPOINTS for row in e.known.values()]
SAMPLES = {str: ["x", ""], bool: [True, False], dict: [{}, {"a": "b"}], list: [[], [1]]}


def samples(values: Any) -> list[Any]:
    return SAMPLES[values] if isinstance(values, type) else list(values)


def is_among(value: Any, values: Any) -> bool:
    if isinstance(values, type):
        return type(value) is values
    return value in values and (not isinstance(value, bool) or value in [0, 1])


@pytest.mark.parametrize(
    ("endpoint", "row"), KNOWN, ids=[f"{e.path} {row.name}" for e, row in KNOWN]
)
def test_known_fields_accept_what_changes_nothing_and_hints_and_refuse_the_rest(
    endpoint: Endpoint[Any], row: Any
) -> None:
    for value in [*samples(row.accepts), None]:
        assert parse(endpoint, **{row.name: value}).ignored == ()
    for value in samples(row.hints):
        assert parse(endpoint, **{row.name: value}).ignored == (row.name,)
    for value in (0.25, 12345, "surprise", True, False, ["x"], {"x": 1}, [{"x": 1}]):
        if is_among(value, row.accepts) or is_among(value, row.hints):
            continue
        error = refusal(endpoint, **{row.name: value})
        assert error.param == row.name
        assert row.name in str(error)
        shown = json.dumps(value, separators=(",", ":"))
        assert shown in str(error)
        assert "accepted: " in str(error) or "omit it" in str(error)


def test_hints_of_style_and_service_are_accepted_and_named() -> None:
    hints = {
        "verbosity": "low", "service_tier": "flex", "store": True,
        "prediction": {"type": "content", "content": "x"},
    }  # fmt: skip
    assert parse(CHAT, **hints).ignored == tuple(sorted(hints))
    padded = parse(CHAT, stream=True, stream_options={"include_obfuscation": True})
    assert padded.ignored == ("stream_options.include_obfuscation",)
    labels = {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s"}
    cached = {"prompt_cache_key": "k", "prompt_cache_retention": "24h"}
    assert parse(CHAT, **labels, **cached).ignored == ()


def test_a_boolean_is_no_number() -> None:
    assert refusal(CHAT, n=True).param == "n"
    assert refusal(CHAT, frequency_penalty=False).param == "frequency_penalty"
    assert refusal(CHAT, store=0).param == "store"
    assert parse(CHAT, best_of=1.0, length_penalty=1.0, frequency_penalty=0).ignored == ()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_null_is_absent(endpoint: Endpoint[Any]) -> None:
    base = set(BASE[endpoint.path])
    names = [name for name in (*endpoint.honoured, *endpoint.known) if name not in base]
    with_nulls = parse(endpoint, **dict.fromkeys(names))
    assert with_nulls == parse(endpoint)
    assert with_nulls.ignored == ()


def test_unknown_fields_are_accepted_and_named() -> None:
    options = {"include_usage": True, "extra": 1}
    parsed = parse(CHAT, zeta=1, alpha=None, stream=True, stream_options=options)
    assert parsed.ignored == ("alpha", "stream_options.extra", "zeta")
    assert parsed.request.include_usage


def test_unknown_keys_within_messages_are_named_once() -> None:
    part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    message = {"role": "user", "content": [part, part], "weight": 1, "name": "ann"}
    parsed = parse(CHAT, messages=[message, message])
    assert parsed.ignored == ("messages[].content[].cache_control", "messages[].weight")


def test_messages_of_another_server_can_be_sent_back() -> None:
    """What the openai package gives for a reply's message, nulls and all."""
    message = {
        "role": "assistant", "content": "hi", "refusal": None, "annotations": [], "audio": None,
        "function_call": None, "tool_calls": None,
    }  # fmt: skip
    assert parse(CHAT, messages=[message]).ignored == ()


def test_a_message_of_the_assistants_may_be_without_content() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for said in ({"tool_calls": [call]}, {"reasoning": "hm"}, {}):
        for content in ({}, {"content": None}):
            message = {"role": "assistant", **said, **content}
            assert parse(CHAT, messages=[message]).request.messages[0].content is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("audio", {"id": "a"}), ("function_call", {"name": "f"})],
)
def test_message_fields_that_cannot_be_honoured(key: str, value: Any) -> None:
    error = refusal(CHAT, messages=[{"role": "assistant", "content": "x", key: value}])
    assert error.param == f"messages[0].{key}"


WRONG = [
    (CHAT, {"temperature": "hot"}, "temperature", '"hot"'),
    (CHAT, {"top_k": 1.5}, "top_k", "1.5"),
    (CHAT, {"seed": "1"}, "seed", '"1"'),
    (CHAT, {"max_tokens": 0}, "max_tokens", "0"),
    (CHAT, {"max_completion_tokens": -1}, "max_completion_tokens", "-1"),
    (CHAT, {"stream": "yes"}, "stream", '"yes"'),
    (CHAT, {"stream_options": 1}, "stream_options", "1"),
    (CHAT, {"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "1"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options", "`stream` is true"),
    (COMPLETIONS, {"stream_options": {}, "stream": False}, "stream_options", "`stream` is true"),
    (CHAT, {"logprobs": 3}, "logprobs", "3"),
    (CHAT, {"top_logprobs": -1, "logprobs": True}, "top_logprobs", "-1"),
    (CHAT, {"top_logprobs": 2}, "top_logprobs", "logprobs: true"),
    (CHAT, {"stop": ["a", 5]}, "stop[1]", "5"),
    (CHAT, {"stop": ["x"] * (MAX_STOP_STRINGS + 1)}, "stop", str(MAX_STOP_STRINGS)),
    (CHAT, {"stop": "x" * 2000}, "stop", "2000"),
    (CHAT, {"stop_token_ids": [1, -1]}, "stop_token_ids[1]", "-1"),
    (CHAT, {"stop_token_ids": [True]}, "stop_token_ids[0]", "true"),
    (CHAT, {"cache_salt": ""}, "cache_salt", '""'),
    (CHAT, {"chat_template_kwargs": []}, "chat_template_kwargs", "[]"),
    (CHAT, {"reasoning_effort": "much"}, "reasoning_effort", "xhigh"),
    (CHAT, {"messages": []}, "messages", "[]"),
    (CHAT, {"messages": "hello"}, "messages", '"hello"'),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "5"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role", "required"),
    *((CHAT, {"messages": [{"role": role, **content}]}, "messages[0].content", "required")
      for role in ("system", "developer", "user", "tool") for content in ({}, {"content": None})),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "assistant"),
    (CHAT, {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
     "messages[0].content[0].type", "required"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
     "messages[0].content[0].text", "string"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "refusal", "text": "x"}]}]},
     "messages[0].content[0].refusal", "string"),
    (CHAT, {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "x"}}]}]},
     "messages[0].content[1].type", "image_url"),
    (CHAT, {"add_generation_prompt": True, "continue_final_message": True},
     "continue_final_message", "exclude"),
    (CHAT, {"tools": [{"type": "mcp", "function": {"name": "f"}}]}, "tools[0].type", "function"),
    (CHAT, {"tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]},
     "tools[1].function.name", "earlier"),
    (CHAT, {"tools": [{"function": {"name": "no name"}}]}, "tools[0].function.name", "no name"),
    (CHAT, {"tool_choice": "required"}, "tool_choice", "tools"),
    (CHAT, {"tools": [{"function": {"name": "f"}}], "tool_choice": "all"}, "tool_choice", "auto"),
    (CHAT, {"tools": [{"function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}}},
     "tool_choice.function.name", "f"),
    (CHAT, {"tools": [{"function": {"name": "f"}}],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}},
     "tool_choice.allowed_tools.tools", "list"),
    (CHAT, {"response_format": "json"}, "response_format", "json"),
    (CHAT, {"thinking_token_budget": -2}, "thinking_token_budget", "-1"),
    (CHAT, {"service_tier": "fastest"}, "service_tier", "flex"),
    (CHAT, {"verbosity": 3}, "verbosity", "medium"),
    (CHAT, {"prediction": "x"}, "prediction", "object"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities", "text"),
    (CHAT, {"stream_options": {"continuous_usage_stats": 1}, "stream": True},
     "stream_options.continuous_usage_stats", "1"),
    (CHAT, {"stream_options": {"continuous_usage_stats": True}}, "stream_options",
     "`stream` is true"),
    (CHAT, {"n": 0}, "n", "0"),
    (CHAT, {"n": MAX_CHOICES + 1}, "n", str(MAX_CHOICES)),
    (CHAT, {"n": "2"}, "n", '"2"'),
    (CHAT, {"best_of": 2}, "best_of", "1"),
    (CHAT, {"echo": True}, "echo", "false"),
    (CHAT, {"repetition_penalty": "1"}, "repetition_penalty", '"1"'),
    (CHAT, {"frequency_penalty": []}, "frequency_penalty", "[]"),
    (CHAT, {"presence_penalty": True}, "presence_penalty", "true"),
    (CHAT, {"logit_bias": [1]}, "logit_bias", "[1]"),
    (CHAT, {"logit_bias": {"5": "1"}}, "logit_bias[...]", '`float`'),
    (CHAT, {"allowed_token_ids": []}, "allowed_token_ids", "at least one"),
    (CHAT, {"allowed_token_ids": [-1]}, "allowed_token_ids[0]", "-1"),
    (CHAT, {"allowed_token_ids": 5}, "allowed_token_ids", "5"),
    (CHAT, {"bad_words": "word"}, "bad_words", '"word"'),
    (CHAT, {"bad_words": ["a", 5]}, "bad_words[1]", "5"),
    (CHAT, {"bad_words": ["x" * 300]}, "bad_words[0]", "256"),
    (CHAT, {"bad_words": ["x"] * (MAX_BAD_WORDS + 1)}, "bad_words", str(MAX_BAD_WORDS)),
    (CHAT, {"samplers": "top_k"}, "samplers", '"top_k"'),
    (CHAT, {"samplers": [1]}, "samplers[0]", "1"),
    (CHAT, {"min_tokens": 1.5}, "min_tokens", "1.5"),
    (CHAT, {"min_tokens": 5, "max_tokens": 4}, "min_tokens", "max_tokens"),
    (CHAT, {"min_tokens": 5, "max_completion_tokens": 4}, "min_tokens", "max_completion_tokens"),
    (COMPLETIONS, {"min_tokens": 17}, "min_tokens", "16"),
    (CHAT, {"prompt_logprobs": -1}, "prompt_logprobs", "-1"),
    (CHAT, {"prompt_logprobs": True}, "prompt_logprobs", "true"),
    (CHAT, {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "-1"),
    (CHAT, {"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "-2"),
    (CHAT, {"truncate_prompt_tokens": "all"}, "truncate_prompt_tokens", '"all"'),
    (CHAT, {"priority": 0.5}, "priority", "0.5"),
    (CHAT, {"timeout_s": "1 s"}, "timeout_s", '"1 s"'),
    (CHAT, {"request_id": ""}, "request_id", '""'),
    (CHAT, {"request_id": "a b"}, "request_id", '"a b"'),
    (CHAT, {"request_id": "ab\n"}, "request_id", "ab"),
    (CHAT, {"request_id": "x" * 129}, "request_id", "128"),
    (CHAT, {"request_id": 7}, "request_id", "7"),
    (CHAT, {"return_tokens_as_token_ids": "yes"}, "return_tokens_as_token_ids", '"yes"'),
    (CHAT, {"return_metrics": 1}, "return_metrics", "1"),
    (CHAT, {"spaces_between_special_tokens": False}, "spaces_between_special_tokens", "true"),
    (COMPLETIONS, {"prompt": []}, "prompt", "empty"),
    (COMPLETIONS, {"prompt": 5}, "prompt", "5"),
    (COMPLETIONS, {"prompt": [1, -5]}, "prompt[1]", "-5"),
    (COMPLETIONS, {"prompt": [[1], [2, "x"]]}, "prompt[1][1]", '"x"'),
    (COMPLETIONS, {"logprobs": True}, "logprobs", "true"),
    (COMPLETIONS, {"echo": 1}, "echo", "1"),
    (COMPLETIONS, {"max_tokens": 0}, "max_tokens", "echo"),
    (COMPLETIONS, {"max_tokens": -1, "echo": True}, "max_tokens", "-1"),
    (COMPLETIONS, {"suffix": "}"}, "suffix", '"}"'),
    (COMPLETIONS, {"best_of": 2, "n": 3}, "best_of", "3"),
    (COMPLETIONS, {"best_of": 2, "stream": True}, "best_of", "stream"),
    (COMPLETIONS, {"best_of": 0}, "best_of", "0"),
    (COMPLETIONS, {"best_of": MAX_CHOICES + 1}, "best_of", str(MAX_CHOICES)),
    (TOKENIZE, {"messages": HELLO["messages"]}, "messages", "one of them"),
    (TOKENIZE, {"prompt": None}, "prompt", "required"),
    (DETOKENIZE, {"tokens": None}, "tokens", "required"),
    (DETOKENIZE, {"tokens": [0, 1.5]}, "tokens[1]", "1.5"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("endpoint", "fields", "param", "said"), WRONG, ids=[json.dumps(w[1])[:60] for w in WRONG]
)
def test_what_is_wrong_is_named(
    endpoint: Endpoint[Any], fields: dict[str, Any], param: str, said: str
) -> None:
    error = refusal(endpoint, **fields)
    assert error.param == param
    assert param.rpartition(".")[2] in str(error)
    assert said in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b"[]", b'"text"', b"null", b"3", b'{"prompt": "a",}',
        b'{"prompt": "a"} x', b'{"prompt": "\xff\xfe"}', b'{"prompt": "\\ud800"}',
        b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "a", "temperature": 1e999}',
        b"[" * 200_000, b'{"a":' * 200_000, b'{"prompt": "a", "zeta": ' + b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:30]),
)  # fmt: skip
def test_bodies_that_are_no_requests(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(body, COMPLETIONS)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "lone"),
    [
        (rb"\ud800", rb"\ud800 (byte 12)"),
        (rb"\ud800 and more", rb"\ud800 (byte 12)"),
        (rb"\ud83d\ude00\\ud800 \uDE00", rb"\uDE00 (byte 32)"),
        (rb"\ud83d\n", rb"\ud83d (byte 12)"),
    ],
)
def test_half_a_surrogate_pair_is_named(text: bytes, lone: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(b'{"prompt": "' + text + b'"}', COMPLETIONS)
    assert f"{lone.decode()} is half of a surrogate pair" in str(caught.value)
    with pytest.raises(RequestError, match="not valid JSON: Input data was truncated"):
        parse_request(rb'{"prompt": "\\ud800', COMPLETIONS)


def test_the_last_of_duplicate_keys_counts() -> None:
    body = b'{"prompt": "first", "prompt": "last", "n": 5, "n": 1}'
    assert parse_request(body, COMPLETIONS).request.prompt == "last"


def test_long_values_are_cut_in_messages() -> None:
    error = refusal(COMPLETIONS, suffix="x" * 10_000)
    assert len(str(error)) < 250


@pytest.mark.parametrize("role", ROLES)
def test_roles(role: str) -> None:
    message = {"role": role, "content": "x"}
    assert parse(CHAT, messages=[message]).request.messages[0].role == role


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ([[]], [[]]),
        ("", [""]),
    ],
)
def test_the_four_kinds_of_prompt(prompt: Any, prompts: list[Any]) -> None:
    assert prompts_of(parse(COMPLETIONS, prompt=prompt).request) == prompts


@pytest.mark.parametrize("prompt", [[1, "a"], ["a", 1], ["a", [1]], [[1], "a"], [[1], 1]])
def test_kinds_of_prompt_cannot_be_mixed(prompt: Any) -> None:
    assert "mixed" in str(refusal(COMPLETIONS, prompt=prompt))


def test_the_number_of_prompts_is_bounded() -> None:
    assert len(prompts_of(parse(COMPLETIONS, prompt=["a"] * MAX_PROMPTS).request)) == MAX_PROMPTS
    assert str(MAX_PROMPTS) in str(refusal(COMPLETIONS, prompt=["a"] * (MAX_PROMPTS + 1)))
    # A long list of ids is one prompt.
    assert len(prompts_of(parse(COMPLETIONS, prompt=[1] * 5000).request)) == 1


def test_what_a_request_leaves_out_is_the_models() -> None:
    request = parse(CHAT).request
    assert [getattr(request, name) for name in MODEL_DEFAULTS] == [None] * len(MODEL_DEFAULTS)
    assert request.wanted_tokens is None
    assert request.stop_strings == ()
    assert request.opens_turn
    assert not parse(CHAT, continue_final_message=True).request.opens_turn
    assert not parse(CHAT, add_generation_prompt=False).request.opens_turn


def test_one_of_one_is_no_ranking_and_may_be_streamed() -> None:
    assert not parse(COMPLETIONS, best_of=1, stream=True).request.ranks
    assert parse(COMPLETIONS, best_of=2, n=2).request.ranks
    assert parse(COMPLETIONS, n=3).request.candidates == 3
    assert parse(COMPLETIONS, n=3, best_of=5).request.candidates == 5


@pytest.mark.parametrize("fields", [{"echo": True}, {"prompt_logprobs": 0}])
def test_a_prompt_may_be_read_only(fields: dict[str, Any]) -> None:
    assert parse(COMPLETIONS, max_tokens=0, **fields).request.max_tokens == 0


def test_max_completion_tokens_goes_before_max_tokens() -> None:
    assert parse(CHAT, max_tokens=5).request.wanted_tokens == 5
    assert parse(CHAT, max_tokens=5, max_completion_tokens=7).request.wanted_tokens == 7


def test_stop_as_string_and_as_list() -> None:
    assert parse(CHAT, stop="END").request.stop_strings == ("END",)
    assert parse(CHAT, stop=["a", "b"]).request.stop_strings == ("a", "b")
    assert parse(CHAT, stop=[]).request.stop_strings == ()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_every_honoured_field_has_a_description(endpoint: Endpoint[Any]) -> None:
    hints = msgspec.inspect.type_info(endpoint.struct)
    assert isinstance(hints, msgspec.inspect.StructType)
    for field in hints.fields:
        assert isinstance(field.type, msgspec.inspect.Metadata), field.name
        assert (field.type.extra_json_schema or {}).get("description"), field.name


def test_an_empty_body_is_called_empty() -> None:
    with pytest.raises(RequestError, match="not valid JSON: it is empty"):
        parse_request(b"", ENDPOINTS[0])

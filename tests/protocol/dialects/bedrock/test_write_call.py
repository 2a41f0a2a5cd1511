"""Requests to Converse: fields, addresses, tools, output, what is dropped or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from headrace.errors import RequestError
from headrace.protocol.dialects.bedrock import EMBEDDINGS, PROVIDER, BedrockProvider
from headrace.protocol.neutral.call import HostedTool, OutputFormat, Reasoning, Tool, ToolChoice
from headrace.protocol.neutral.dialect import ProviderSide
from headrace.protocol.neutral.embedding import EmbeddingProvider
from headrace.protocol.neutral.part import CacheMark, Text, ToolCall, ToolResult
from tests.protocol.dialects.bedrock.calls import (
    CLAUDE,
    LLAMA,
    NEW_CLAUDE,
    NOVA,
    PROFILE,
    call,
    said,
    written,
)

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = Tool(name="f", description="does it", parameters=SCHEMA)
SPEC = {"name": "f", "inputSchema": {"json": SCHEMA}, "description": "does it"}
TOOLED = (
    said("user", "Hi"),
    said("assistant", ToolCall(id="t", name="f", arguments="{}")),
    said("tool", ToolResult(call_id="t", content=(Text(text="1"),))),
)


def test_the_least_there_is() -> None:
    request = PROVIDER.write_call(call(), "amazon.nova-micro-v1:0")
    assert request.path == "/model/amazon.nova-micro-v1%3A0/converse"
    assert request.headers == {"content-type": "application/json"}
    assert json.loads(request.body) == {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
    assert request.dropped == ()


def test_addresses() -> None:
    assert PROVIDER.write_call(call(stream=True), PROFILE).path == (
        "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3A"
        "application-inference-profile%2Fmi1dadi0g15f/converse-stream"
    )
    assert PROVIDER.write_call(call(), "a/../b?c#d").path == "/model/a%2F..%2Fb%3Fc%23d/converse"


def test_everything_that_has_a_field() -> None:
    body, dropped = written(
        call(
            instructions=(Text(text="Be kind."), Text(text=" "), Text(text="Be short.")),
            max_tokens=5,
            temperature=0.0,
            top_p=1.0,
            stop=("a", "b"),
            tools=(TOOL,),
            metadata={"team": "x"},
            service_tier="flex",
            output=OutputFormat(kind="schema", schema=SCHEMA, name="n", description="d"),
        ),
        NOVA,
    )
    schema = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"].pop("schema")
    assert json.loads(schema) == SCHEMA
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "system": [{"text": "Be kind."}, {"text": "Be short."}],
        "inferenceConfig": {
            "maxTokens": 5,
            "temperature": 0.0,
            "topP": 1.0,
            "stopSequences": ["a", "b"],
        },
        "toolConfig": {"tools": [{"toolSpec": SPEC}]},
        "outputConfig": {
            "textFormat": {
                "type": "json_schema",
                "structure": {"jsonSchema": {"name": "n", "description": "d"}},
            }
        },
        "requestMetadata": {"team": "x"},
        "serviceTier": {"type": "flex"},
    }
    assert dropped == ()


def test_what_has_no_field_is_dropped_and_told() -> None:
    wanted = call(
        min_p=0.1,
        frequency_penalty=0.1,
        presence_penalty=0.5,
        repetition_penalty=1.1,
        logit_bias={"1": 2.0},
        seed=0,
        choices=2,
        logprobs=True,
        top_logprobs=3,
        output=OutputFormat(kind="json"),
        modalities=("text", "audio"),
        user="u",
        metadata={"bad key!": "x"},
        service_tier="scale",
        parallel_tool_calls=False,
        tools=(TOOL, HostedTool("anthropic", {"type": "web_search"})),
        top_k=5,
        extra={"store": True},
    )
    body, dropped = written(wanted, LLAMA)
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "toolConfig": {"tools": [{"toolSpec": SPEC}]},
    }
    assert set(dropped) == {
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "seed",
        "choices",
        "logprobs",
        "top_logprobs",
        "output",
        "modalities",
        "user",
        "metadata",
        "service_tier",
        "parallel_tool_calls",
        "tools[1].web_search",
        "top_k",
        "extra.store",
    }


def test_what_says_nothing_is_neither_written_nor_dropped() -> None:
    body, dropped = written(
        call(
            choices=1,
            frequency_penalty=0.0,
            top_logprobs=0,
            logprobs=False,
            logit_bias={},
            metadata={},
            service_tier="auto",
            parallel_tool_calls=True,
            modalities=("text",),
            output=OutputFormat(kind="text"),
            tool_choice=ToolChoice("auto"),
            stream_usage=True,
        )
    )
    assert set(body) == {"messages"}
    assert dropped == ()


def test_an_answer_of_no_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match="at least 1") as raised:
        written(call(max_tokens=0))
    assert raised.value.param == "max_tokens"


def test_values_that_are_hard_to_write() -> None:
    huge = {"type": "object", "maxProperties": 2**70}
    body, _ = written(call(tools=(Tool(name="f", parameters=huge),)))
    assert body["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"] == huge
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(RequestError, match="deeply"):
        PROVIDER.write_call(call(tools=(Tool(name="f", parameters=deep),)), CLAUDE)


def test_betas_of_anthropics_header_are_passed_on_as_far_as_bedrock_knows_them() -> None:
    betas = ["interleaved-thinking-2025-05-14", "claude-code-20250219"]
    body, dropped = written(call(extra={"betas": betas}))
    assert body["additionalModelRequestFields"] == {"anthropic_beta": betas[:1]}
    assert dropped == ("extra.betas",)
    body, dropped = written(call(extra={"betas": betas}), NOVA)
    assert "additionalModelRequestFields" not in body


@pytest.mark.parametrize("metadata", [{str(n): "" for n in range(17)}, {"a": "x" * 257}, {"": "a"}])
def test_metadata_that_does_not_fit_is_dropped(metadata: dict[str, str]) -> None:
    body, dropped = written(call(metadata=metadata))
    assert "requestMetadata" not in body
    assert dropped == ("metadata",)


def test_tools_of_every_form() -> None:
    hosted = HostedTool("bedrock", {"systemTool": {"name": "nova_grounding"}})
    body, dropped = written(
        call(tools=(Tool(name="g"), Tool(name="h", parameters={"properties": {}}), hosted)), NOVA
    )
    empty = {"type": "object", "properties": {}}
    assert body["toolConfig"]["tools"] == [
        {"toolSpec": {"name": "g", "inputSchema": {"json": empty}}},
        {"toolSpec": {"name": "h", "inputSchema": {"json": empty}}},
        hosted.value,
    ]
    assert dropped == ()


def test_strict_where_it_is_known() -> None:
    strict = Tool(name="f", parameters=SCHEMA, strict=True)
    body, dropped = written(call(tools=(strict,)), CLAUDE)
    assert body["toolConfig"]["tools"][0]["toolSpec"]["strict"] is True
    body, dropped = written(call(tools=(strict,)), NOVA)
    assert "strict" not in body["toolConfig"]["tools"][0]["toolSpec"]
    assert dropped == ("tools[0].strict",)


def test_schemas_within_the_limits_of_bedrock() -> None:
    wide = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}}
    wanted = call(
        tools=(Tool(name="f", parameters=wide, strict=True), Tool(name="g", parameters=wide)),
        output=OutputFormat(kind="schema", schema=wide),
    )
    body, dropped = written(wanted)
    assert set(dropped) == {"tools[0].parameters.maxLength", "output.schema.maxLength"}
    strict, free = (one["toolSpec"]["inputSchema"]["json"] for one in body["toolConfig"]["tools"])
    assert free == wide
    assert strict["additionalProperties"] is False
    definition = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert json.loads(definition["schema"]) == strict


def test_stop_sequences_that_are_refused_are_dropped() -> None:
    wanted = call(stop=("\n", "", "a"))
    body, dropped = written(wanted)
    assert body["inferenceConfig"]["stopSequences"] == ["a"]
    assert dropped == ("stop",)
    body, dropped = written(wanted, NOVA)
    assert body["inferenceConfig"]["stopSequences"] == ["\n", "a"]
    body, dropped = written(call(stop=("\n",)))
    assert set(body) == {"messages"}


@pytest.mark.parametrize("name", ["", "a.b", "x" * 65, "ü"])
def test_names_that_no_tool_may_have(name: str) -> None:
    with pytest.raises(RequestError, match="letters") as raised:
        written(call(tools=(TOOL, Tool(name=name))))
    assert raised.value.param == "tools[1].name"


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (ToolChoice("auto"), None),
        (ToolChoice("required"), {"any": {}}),
        (ToolChoice("one", "f"), {"tool": {"name": "f"}}),
    ],
)
def test_tool_choices(choice: ToolChoice, wanted: dict[str, Any] | None) -> None:
    body, dropped = written(call(tools=(TOOL,), tool_choice=choice))
    assert body["toolConfig"].get("toolChoice") == wanted
    assert dropped == ()


def test_no_tools_are_what_the_choice_none_is() -> None:
    body, dropped = written(call(tools=(TOOL,), tool_choice=ToolChoice("none")))
    assert "toolConfig" not in body
    assert dropped == ()


def test_the_choice_none_cannot_be_said_once_tools_were_called() -> None:
    wanted = call(*TOOLED, tools=(TOOL,), tool_choice=ToolChoice("none"))
    body, dropped = written(wanted)
    assert body["toolConfig"] == {"tools": [{"toolSpec": SPEC}]}
    assert dropped == ("tool_choice",)


def test_tools_that_were_called_are_declared() -> None:
    body, dropped = written(call(*TOOLED))
    empty = {"type": "object", "properties": {}}
    spec = {"name": "f", "inputSchema": {"json": empty}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": spec}]}
    assert dropped == ()
    body, _ = written(call(said("tool", ToolResult(call_id="t", content=()))))
    assert body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "tool"


def test_a_choice_without_tools_is_dropped() -> None:
    body, dropped = written(call(tool_choice=ToolChoice("required")))
    assert "toolConfig" not in body
    assert dropped == ("tool_choice",)


def test_cache_marks_of_instructions_and_tools() -> None:
    marked = call(
        instructions=(Text(text="a", cache=CacheMark("5m")), Text(text="b", cache=CacheMark("1h"))),
        tools=(Tool(name="f", cache=CacheMark()), Tool(name="g")),
    )
    point, hour = (
        {"cachePoint": {"type": "default"}},
        {"cachePoint": {"type": "default", "ttl": "1h"}},
    )
    body, dropped = written(marked, CLAUDE)
    assert body["system"] == [{"text": "a"}, point, {"text": "b"}, hour]
    assert [next(iter(one)) for one in body["toolConfig"]["tools"]] == [
        "toolSpec",
        "cachePoint",
        "toolSpec",
    ]
    assert dropped == ()
    body, dropped = written(marked, NOVA)
    assert point in body["system"]
    assert point not in body["toolConfig"]["tools"]
    assert dropped == ("tools[0].cache",)
    body, dropped = written(marked, LLAMA)
    assert "cachePoint" not in json.dumps(body)
    assert set(dropped) == {"instructions[0].cache", "instructions[1].cache", "tools[0].cache"}


def test_fields_by_bedrocks_own_names_are_passed_on() -> None:
    guardrail = {"guardrailIdentifier": "abc", "guardrailVersion": "DRAFT", "trace": "enabled"}
    body, dropped = written(
        call(
            top_k=5,
            metadata={"a": "b"},
            stop=("x",),
            extra={
                "guardrailConfig": guardrail,
                "performanceConfig": {"latency": "optimized"},
                "requestMetadata": {"c": "d"},
                "additionalModelRequestFields": {"top_k": 7, "more": 1},
                "additionalModelResponseFieldPaths": ["/stop_sequence", "/other"],
                "anthropic_beta": ["context-1m"],
            },
        )
    )
    assert body["guardrailConfig"] == guardrail
    assert body["performanceConfig"] == {"latency": "optimized"}
    assert body["requestMetadata"] == {"a": "b", "c": "d"}
    assert body["additionalModelRequestFields"] == {
        "top_k": 7,
        "more": 1,
        "anthropic_beta": ["context-1m"],
    }
    assert body["additionalModelResponseFieldPaths"] == ["/stop_sequence", "/other"]
    assert dropped == ()
    body, dropped = written(call(extra={"anthropic_beta": ["x"]}), NOVA)
    assert dropped == ("extra.anthropic_beta",)


def test_more_of_thinking_by_anthropics_own_names() -> None:
    wanted = structs.replace(
        call(reasoning=Reasoning(adaptive=True), extra={"output_config": {"effort": "max"}}),
        dialect="anthropic",
    )
    body, dropped = written(wanted, NEW_CLAUDE)
    assert body["additionalModelRequestFields"] == {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "max"},
    }
    assert dropped == ()
    assert written(wanted, LLAMA)[1] == ("reasoning.adaptive", "extra.output_config")


def test_fields_by_bedrocks_own_names_of_another_form_are_refused() -> None:
    for name in ("guardrailConfig", "additionalModelResponseFieldPaths"):
        with pytest.raises(RequestError) as raised:
            written(call(extra={name: "x"}))
        assert raised.value.param == name


def test_claude_is_asked_which_stop_sequence_it_met() -> None:
    body, _ = written(call(stop=("x",)))
    assert body["additionalModelResponseFieldPaths"] == ["/stop_sequence"]
    body, _ = written(call(stop=("x",)), NOVA)
    assert "additionalModelResponseFieldPaths" not in body


def test_whose_model_an_arn_is_can_be_told() -> None:
    wanted = call(top_k=5)
    assert written(wanted, PROFILE)[1] == ("top_k",)
    request = BedrockProvider(vendor="anthropic").write_call(wanted, PROFILE)
    assert json.loads(request.body)["additionalModelRequestFields"] == {"top_k": 5}
    assert request.dropped == ()


def test_both_sides_are_what_a_gateway_wants() -> None:
    """Checked by mypy."""
    side: ProviderSide = PROVIDER
    embeddings: EmbeddingProvider = EMBEDDINGS
    assert side.name == embeddings.name == "bedrock"

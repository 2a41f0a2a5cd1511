"""Written requests name only fields that Google's protocol buffers have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.protocol.dialects.gemini.reply import finish
from headrace.protocol.neutral.call import HostedTool, OutputFormat, Reasoning, Tool, ToolChoice
from headrace.protocol.neutral.part import Media, Signature, Text, Thinking, ToolCall, ToolResult
from tests.protocol.dialects.gemini.samples import a_call, assistant, tool, user, written

FOLDER = Path(__file__).parents[5] / "shared" / "assets" / "api-specs" / "gemini"

# Newer than the description: in Google's documentation, and in recorded requests but for the tier.
NEWER = frozenset(
    (
        ("GenerateContentRequest", "serviceTier"),
        ("ThinkingConfig", "thinkingLevel"),
        ("ToolConfig", "includeServerSideToolInvocations"),
    )
)
FREE = frozenset(("Struct", "Value"))


def described() -> dict[str, dict[str, str]]:
    """Messages by name, with the type of each field by its name in JSON."""
    if not FOLDER.exists():
        pytest.skip("needs api-specs/gemini of the shared test assets")
    messages: dict[str, dict[str, str]] = {}
    for name in ("content.proto", "generative_service.proto", "safety.proto"):
        within: list[str] = []
        for line in (FOLDER / name).read_text().splitlines():
            code = line.partition("//")[0]
            opened = re.search(r"\bmessage (\w+)", code)
            field = re.match(r"\s+(?:optional |repeated )?([\w.]+) (\w+) = \d+", code)
            if field and any(within):
                owner = next(one for one in reversed(within) if one)
                messages[owner][_json_name(field[2])] = field[1].rpartition(".")[2]
            within += [opened[1] if opened else ""] * code.count("{")
            if opened:
                messages.setdefault(opened[1], {})
            for _ in range(code.count("}")):
                within.pop()
    return messages


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(one.capitalize() for one in rest)


def check(messages: dict[str, dict[str, str]], kind: str, value: Any, at: str) -> None:
    if isinstance(value, list):
        for number, one in enumerate(value):
            check(messages, kind, one, f"{at}[{number}]")
    elif isinstance(value, dict) and kind not in FREE:
        assert kind in messages, f"{at}: no message {kind}"
        for name, held in value.items():
            if (kind, name) in NEWER:
                continue
            assert name in messages[kind], f"{at}.{name} is no field of {kind}"
            check(messages, messages[kind][name], held, f"{at}.{name}")


SIGNED = Signature("gemini", "c2ln")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3-flash-preview"])
def test_a_request_with_everything_is_as_described(model: str) -> None:
    picture = Media(kind="image", mime="image/png", data="QUJD", signature=SIGNED)
    call = a_call(
        user("a", picture, Media(kind="video", url="https://youtu.be/a")),
        assistant(
            Thinking(text="t", signature=SIGNED),
            Text(text="b", signature=SIGNED),
            ToolCall(id="c1", name="f", arguments='{"x": {"y": 1}}', signature=SIGNED),
            ToolCall(id="c2", name="f", arguments=""),
        ),
        tool(
            ToolResult(call_id="c1", content=(Text(text="d"), picture)),
            ToolResult(call_id="c2", content=(Text(text="e"),), is_error=True),
        ),
        instructions=(Text(text="i"),),
        tools=(
            Tool(name="f", description="d", parameters=SCHEMA),
            HostedTool("gemini", {"googleSearch": {}}),
            HostedTool("gemini", {"codeExecution": {}}),
        ),
        tool_choice=ToolChoice("one", "f"),
        max_tokens=1,
        temperature=0.1,
        top_p=0.1,
        top_k=1,
        choices=1,
        seed=1,
        stop=("a",),
        presence_penalty=0.1,
        frequency_penalty=0.1,
        logprobs=True,
        top_logprobs=1,
        modalities=("text",),
        output=OutputFormat(kind="schema", schema=SCHEMA),
        reasoning=Reasoning(effort="low", shown=True),
        service_tier="flex",
    )
    messages = described()
    assert messages["GenerationConfig"]["maxOutputTokens"] == "int32"
    check(messages, "GenerateContentRequest", written(call, model), "request")


def test_finish_reasons_of_the_description_are_all_known() -> None:
    if not FOLDER.exists():
        pytest.skip("needs api-specs/gemini of the shared test assets")
    text = (FOLDER / "generative_service.proto").read_text()
    (body,) = re.findall(r"enum FinishReason \{(.*?)\n  \}", text, re.DOTALL)
    names = re.findall(r"^\s+([A-Z_]+) = \d+", body, re.MULTILINE)
    assert len(names) >= 17
    documented = finish.__doc__ or ""
    assert [one for one in names if one not in documented] == []

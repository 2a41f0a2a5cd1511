"""Requests of real clients, read into a neutral call here: they are written as they were sent."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from headrace.protocol.dialects.gemini import GeminiProvider, VertexAi
from headrace.protocol.dialects.gemini.request.contents import NO_SIGNATURE
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    Message,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.gemini.recorded import requests
from tests.protocol.neutral.cassettes import Exchange

pytestmark = pytest.mark.usefixtures("recordings")

JSON = dict[str, Any]

# Below these are names of the client's own, which are not to be changed.
_OWN = frozenset(
    (
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseJsonSchema",
        "responseSchema",
    )
)
_KINDS = {"image": "image", "audio": "audio", "video": "video"}
_SAMPLING = {
    "maxOutputTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "candidateCount": "choices",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "responseLogprobs": "logprobs",
    "logprobs": "top_logprobs",
}
_OTHER_TOP = frozenset(("safetySettings", "cachedContent", "labels", "modelArmorConfig"))


def camel(value: Any) -> Any:
    """Names as the JSON of protocol buffers has them; Google's own client mixes both kinds."""
    if isinstance(value, list):
        return [camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for name, held in value.items():
        first, *rest = name.split("_")
        changed = first + "".join(one.capitalize() for one in rest)
        made[changed] = held if changed in _OWN else camel(held)
    return made


def neutral(request: JSON, exchange: Exchange) -> ChatCall:
    """The call that a reader of Gemini's dialect would give."""
    config = request.get("generationConfig", {})
    fields = {field: config[name] for name, field in _SAMPLING.items() if name in config}
    if "responseMimeType" in config:
        schema = config.get("responseJsonSchema", config.get("responseSchema"))
        kind: Any = "json" if schema is None else "schema"
        fields["output"] = OutputFormat(kind=kind, schema=schema)
    if "thinkingConfig" in config:
        told = config["thinkingConfig"]
        fields["reasoning"] = Reasoning(
            effort=str(told["thinkingLevel"]).lower() if "thinkingLevel" in told else None,  # type: ignore[arg-type]
            budget_tokens=told.get("thinkingBudget"),
            shown=told.get("includeThoughts"),
        )
    return ChatCall(
        dialect="gemini",
        model="",
        messages=tuple(_message(one) for one in request["contents"]),
        instructions=tuple(
            Text(text=one["text"]) for one in request.get("systemInstruction", {}).get("parts", ())
        ),
        tools=tuple(_tools(_entries(request))),
        tool_choice=_choice(request),
        stop=tuple(config.get("stopSequences", ())),
        modalities=tuple(one.lower() for one in config.get("responseModalities", ())),
        stream="streamGenerate" in exchange.path,
        extra={name: request[name] for name in _OTHER_TOP & request.keys()},
        **fields,
    )


def _message(content: JSON) -> Message:
    parts = tuple(_part(one) for one in content["parts"])
    role: Any = "assistant" if content.get("role") == "model" else "user"
    return Message(role=role, parts=parts)


def _part(part: JSON) -> Part:
    value = part.get("thoughtSignature")
    signature = Signature("gemini", value) if value else None
    if set(part) - {"thoughtSignature", "thought"} == {"text"}:
        if part.get("thought"):
            return Thinking(text=part["text"], signature=signature)
        return Text(text=part["text"], signature=signature)
    if "functionCall" in part:
        call = part["functionCall"]
        arguments = json.dumps(call.get("args", {}))
        return ToolCall(
            id=call.get("id", ""), name=call["name"], arguments=arguments, signature=signature
        )
    if "functionResponse" in part and "parts" not in part["functionResponse"]:
        told = part["functionResponse"]
        text = Text(text=json.dumps(told["response"]))
        return ToolResult(call_id=told.get("id", ""), name=told["name"], content=(text,))
    if set(part) == {"inlineData"} or set(part) == {"fileData"}:
        held = part.get("inlineData") or part["fileData"]
        mime = held.get("mimeType", "")
        kind: Any = _KINDS.get(mime.partition("/")[0], "document")
        return Media(kind=kind, mime=mime, data=held.get("data"), url=held.get("fileUri"))
    return Opaque("gemini", part)


def _entries(request: JSON) -> list[JSON]:
    """The tools: the first clients sent one entry without a list around it."""
    entries = request.get("tools", [])
    return entries if isinstance(entries, list) else [entries]


def _tools(entries: list[JSON]) -> list[Tool | HostedTool]:
    found: list[Tool | HostedTool] = []
    for entry in entries:
        found += [
            Tool(
                name=one["name"],
                description=one.get("description"),
                parameters=one.get("parametersJsonSchema", one.get("parameters", {})),
            )
            for one in entry.get("functionDeclarations", ())
        ]
        hosted = {name: held for name, held in entry.items() if name != "functionDeclarations"}
        if hosted:
            found.append(HostedTool("gemini", hosted))
    return found


def _choice(request: JSON) -> ToolChoice | None:
    config = request.get("toolConfig", {}).get("functionCallingConfig")
    if config is None or config["mode"] == "VALIDATED":
        return None
    names = config.get("allowedFunctionNames", [])
    if len(names) == 1:
        return ToolChoice("one", names[0])
    return ToolChoice({"AUTO": "auto", "NONE": "none", "ANY": "required"}[config["mode"]])  # type: ignore[arg-type]


def _sent(exchange: Exchange, request: JSON) -> JSON:
    model = exchange.path.rpartition("/")[2].partition(":")[0]
    if "aiplatform" in exchange.host:
        pieces = exchange.path.split("/")
        place = VertexAi(project=pieces[3], location=pieces[5], version=pieces[1])
        provider = GeminiProvider(place=place)
    else:
        provider = GeminiProvider()
    written = provider.write_call(neutral(request, exchange), model)
    assert written.path == exchange.path, exchange.at
    assert {one.partition(".")[0] for one in written.dropped} <= {"tools", "output", "reasoning"}
    body: JSON = json.loads(written.body)
    return body


def _flat(contents: list[JSON]) -> list[tuple[str, JSON]]:
    """Roles and parts in order, but for what is left out on purpose."""
    return [
        (content.get("role", "user"), _comparable(part))
        for content in contents
        for part in content["parts"]
        if not (part.get("thought") and "thoughtSignature" not in part)
    ]


def _comparable(part: JSON) -> JSON:
    made = {name: held for name, held in part.items() if held != NO_SIGNATURE}
    if "functionCall" in made:
        made["functionCall"] = {"args": {}, **made["functionCall"]}
    return made


def test_contents_are_written_as_they_were_sent() -> None:
    for exchange, raw in requests():
        request = camel(raw)
        sent = _sent(exchange, request)
        assert _flat(sent["contents"]) == _flat(request["contents"]), exchange.at


def test_roles_alternate_but_for_results_of_functions() -> None:
    for exchange, raw in requests():
        contents = _sent(exchange, camel(raw))["contents"]
        for one, after in pairwise(contents):
            results = ["functionResponse" in turn["parts"][0] for turn in (one, after)]
            assert one["role"] != after["role"] or results[0] != results[1], exchange.at
        for turn in contents:
            results = ["functionResponse" in part for part in turn["parts"]]
            assert all(results) or not any(results), exchange.at


def test_everything_else_is_written_as_it_was_sent() -> None:
    for exchange, raw in requests():
        request = camel(raw)
        sent = _sent(exchange, request)
        assert _config(sent) == _config(request), exchange.at
        told = request.get("systemInstruction", {}).get("parts")
        assert sent.get("systemInstruction", {}).get("parts") == told, exchange.at
        assert {name: sent.get(name) for name in _OTHER_TOP} == {
            name: request.get(name) for name in _OTHER_TOP
        }, exchange.at
        assert _tool_names(sent) == _tool_names(request), exchange.at


def _config(request: JSON) -> JSON:
    config = dict(request.get("generationConfig", {}))
    thinking = config.get("thinkingConfig", {})
    if "thinkingLevel" in thinking:
        config["thinkingConfig"] = {**thinking, "thinkingLevel": thinking["thinkingLevel"].lower()}
    return {name: held for name, held in config.items() if not name.endswith("Schema")}


def _tool_names(request: JSON) -> Any:
    declared = [
        (one["name"], one.get("description") or "")
        for entry in _entries(request)
        for one in entry.get("functionDeclarations", ())
    ]
    hosted = [entry for entry in _entries(request) if "functionDeclarations" not in entry]
    config = dict(request.get("toolConfig", {}).get("functionCallingConfig", {}))
    if config.get("mode") == "VALIDATED":
        config = {}
    if len(config.get("allowedFunctionNames", ())) > 1:
        del config["allowedFunctionNames"]
    return declared, hosted, config


def test_schemas_are_written_as_they_were_sent() -> None:
    same = 0
    for exchange, raw in requests():
        request = camel(raw)
        sent = _sent(exchange, request)
        for theirs, ours in zip(_schemas(request), _schemas(sent), strict=True):
            assert set(_keywords(ours)) <= set(_keywords(theirs)) | {"anyOf", "$defs"}, exchange.at
            same += theirs == ours
    assert same > 100


def _schemas(request: JSON) -> list[JSON]:
    found = [
        one.get("parametersJsonSchema", one.get("parameters"))
        for entry in _entries(request)
        for one in entry.get("functionDeclarations", ())
    ]
    config = request.get("generationConfig", {})
    found.append(config.get("responseJsonSchema", config.get("responseSchema")))
    return [one for one in found if one]


def _keywords(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for one in schema for name in _keywords(one)]
    if not isinstance(schema, dict):
        return []
    return [*schema, *(name for one in schema.values() for name in _keywords(one))]

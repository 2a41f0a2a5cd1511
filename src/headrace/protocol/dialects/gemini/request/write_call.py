"""A neutral call as a request of generateContent.

What Gemini has no word for is dropped and said so: min_p, repetition_penalty, logit_bias, user,
metadata, the reserve of `extra`, marks for caching (Gemini caches by itself), detail of pictures.
Calls read from a Gemini client keep `extra` as top-level fields (safetySettings, cachedContent,
labels). A service tier is a field of the Gemini API and a header of Vertex AI. A value outside of
its range becomes the nearest one, and is reported; a seed keeps its lowest 31 bits.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.gemini.place import GeminiApi, Place
from headrace.protocol.dialects.gemini.request.contents import ContentsWriter
from headrace.protocol.dialects.gemini.request.schema import json_schema
from headrace.protocol.dialects.gemini.request.thinking import thinking_config
from headrace.protocol.dialects.gemini.request.tools import write_tools
from headrace.protocol.dialects.gemini.values import DIALECT
from headrace.protocol.dialects.json_values import encoded
from headrace.protocol.dialects.sampling_range import nearest
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

_TIER_HEADER = "x-vertex-ai-llm-shared-request-type"
_TIERS = {"default": "standard", "standard": "standard", "flex": "flex", "priority": "priority"}

_SAMPLING = (
    ("maxOutputTokens", "max_tokens"),
    ("temperature", "temperature"),
    ("topP", "top_p"),
    ("topK", "top_k"),
    ("candidateCount", "choices"),
    ("seed", "seed"),
    ("presencePenalty", "presence_penalty"),
    ("frequencyPenalty", "frequency_penalty"),
    ("responseLogprobs", "logprobs"),
    ("logprobs", "top_logprobs"),
)
# Penalties are below 2. Sources: generative_service.proto, and Vertex AI's reference of the model.
_RANGES = {
    "temperature": (0.0, 2.0),
    "presence_penalty": (-2.0, 1.99),
    "frequency_penalty": (-2.0, 1.99),
    "top_logprobs": (0, 20),
}
_MOST_SEED = 2**31 - 1
_UNSUPPORTED = ("min_p", "repetition_penalty", "logit_bias", "user", "metadata")


def write_call(call: ChatCall, model: str, place: Place) -> EncodedRequest:
    """The request; raises RequestError for what cannot be said at all."""
    path = place.path(model, "streamGenerateContent" if call.stream else "generateContent")
    if call.stream:
        path += "?alt=sse"
    turns = ContentsWriter(model, place)
    body: dict[str, Any] = {"contents": turns.contents(call)}
    dropped = [name for name in _UNSUPPORTED if getattr(call, name) is not None]
    dropped += turns.dropped
    if call.instructions:
        body["systemInstruction"] = {
            "parts": [{"text": instruction.text} for instruction in call.instructions]
        }
        if any(system_text.cache is not None for system_text in call.instructions):
            dropped.append("cache")
    fields, lost = write_tools(call, model, place)
    body.update(fields)
    dropped += lost
    config, lost = _generation_config(call, model)
    if config:
        body["generationConfig"] = config
    dropped += lost
    headers = {"content-type": "application/json"}
    dropped += _write_tier(call, place, body, headers)
    if call.dialect == DIALECT:
        body = _with_own(call.extra, body)
    else:
        dropped += [f"extra.{name}" for name in call.extra]
    return EncodedRequest(path, headers, encoded(body), tuple(dict.fromkeys(dropped)))


def _with_own(extra: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """The body with further fields of a Gemini client, also of its configs (speechConfig, ...)."""
    made = {**extra, **body}
    for name in ("generationConfig", "toolConfig"):
        own, ours = extra.get(name), body.get(name)
        if isinstance(own, dict) and isinstance(ours, dict):
            made[name] = {**own, **ours}
    return made


def _generation_config(call: ChatCall, model: str) -> tuple[dict[str, Any], list[str]]:
    config: dict[str, Any] = {}
    dropped: dict[str, None] = {}
    for name, field in _SAMPLING:
        value = getattr(call, field)
        if value is not None:
            low, high = _RANGES.get(field, (value, value))
            config[name] = nearest(value, low, high, field, dropped)
    if call.seed is not None and not -_MOST_SEED <= call.seed <= _MOST_SEED:
        config["seed"] = call.seed & _MOST_SEED  # the same for the same seed
    if call.stop:
        config["stopSequences"] = call.stop
    if call.modalities:
        config["responseModalities"] = [modality.upper() for modality in call.modalities]
    if call.output is not None and call.output.kind != "text":
        config["responseMimeType"] = "application/json"
        if call.output.kind == "schema" and call.output.schema is not None:
            schema, lost = json_schema(call.output.schema, "output")
            if call.output.description and "description" not in schema:
                schema["description"] = call.output.description
            config["responseJsonSchema"] = schema
            dropped.update({f"output.schema.{keyword}": None for keyword in lost})
    if call.reasoning is not None:
        thinking, unsaid = thinking_config(call.reasoning, model)
        if thinking:
            config["thinkingConfig"] = thinking
        dropped.update(dict.fromkeys(unsaid))
    return config, list(dropped)


def _write_tier(
    call: ChatCall, place: Place, body: dict[str, Any], headers: dict[str, str]
) -> list[str]:
    if call.service_tier in (None, "auto"):
        return []
    tier = _TIERS.get(call.service_tier or "")
    if tier is None:
        return ["service_tier"]
    if isinstance(place, GeminiApi):
        body["serviceTier"] = tier
    elif tier != "standard":
        headers[_TIER_HEADER] = tier
    return []

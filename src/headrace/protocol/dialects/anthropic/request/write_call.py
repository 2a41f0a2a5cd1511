"""A ChatCall as a request to a provider.

max_tokens is required by the API: a call without it gets default_max_tokens, what its caller knows
of the model, or else 4,096 and the budget of its thoughts.

Fields of `extra` go into the body if the call came in this dialect, its "betas" into the header
anthropic-beta, beside what our own fields need; of a call of another dialect they are dropped.

temperature, top_p and top_k of other dialects are written only as far as the API takes them: from 0
to 1 (a higher temperature is left out, the API's own being 1), not beside thoughts, and on newer
models one of the two or none.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic.request.cache_marks import drop_earliest
from headrace.protocol.dialects.anthropic.request.model_rules import ModelRules
from headrace.protocol.dialects.anthropic.request.schema import supported
from headrace.protocol.dialects.anthropic.request.thinking import write_reasoning
from headrace.protocol.dialects.anthropic.request.tools import write_tool_choice, write_tools
from headrace.protocol.dialects.anthropic.request.write_messages import BlockWriter, write_messages
from headrace.protocol.dialects.anthropic.values import (
    BETAS,
    COUNT_PATH,
    MESSAGES_PATH,
    NAME,
    VERSION,
    encoded,
)
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

# What the API has no words for, with the values that ask for what happens anyway.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "min_p": (None, 0),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "seed": (None,),
    "choices": (None, 1),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "modalities": ((), ("text",)),
    "metadata": (None, {}),
}
_SERVICE_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
# Fields that count_tokens does not know.
_OF_ANSWERS = (
    "max_tokens",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "metadata",
    "service_tier",
)
_LEAST_TOP_P_OF_THOUGHTS = 0.95


def write_call(
    call: ChatCall, model: str, rules: ModelRules, default_max_tokens: int | None
) -> EncodedRequest:
    """A request for an answer; raises RequestError for what cannot be said at all."""
    try:
        body, blocks = _body(call, model, rules, default_max_tokens)
        return _written(MESSAGES_PATH, call, body, blocks)
    except RecursionError:
        raise RequestError("the call is nested too deeply") from None


def write_count(call: ChatCall, model: str, rules: ModelRules) -> EncodedRequest:
    """A request for the number of tokens of the same call."""
    try:
        body, blocks = _body(call, model, rules, None)
        for name in _OF_ANSWERS:
            body.pop(name, None)
            blocks.dropped.pop(name, None)
        return _written(COUNT_PATH, call, body, blocks)
    except RecursionError:
        raise RequestError("the call is nested too deeply") from None


def _written(
    path: str, call: ChatCall, body: dict[str, Any], blocks: BlockWriter
) -> EncodedRequest:
    headers = {"content-type": "application/json", "anthropic-version": VERSION}
    asked = call.extra.get(BETAS, ()) if call.dialect == NAME else ()
    if betas := dict.fromkeys((*asked, *blocks.betas)):
        headers["anthropic-beta"] = ",".join(betas)
    return EncodedRequest(path, headers, encoded(body), tuple(blocks.dropped))


def _body(
    call: ChatCall, model: str, rules: ModelRules, default_max_tokens: int | None
) -> tuple[dict[str, Any], BlockWriter]:
    own = call.dialect == NAME
    blocks = BlockWriter(own=own)
    thought = write_reasoning(call, rules, default_max_tokens)
    inline = rules.inline_system or (own and rules == ModelRules())
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": thought.max_tokens,
        "messages": write_messages(call, blocks, inline_system=inline),
    }
    if system := [one for text in call.instructions if (one := blocks.text(text)) is not None]:
        plain = len(system) == 1 and len(system[0]) == 2
        body["system"] = system[0]["text"] if plain else system
    if tools := write_tools(call, strict_known=rules.strict, dropped=blocks.dropped):
        body["tools"] = tools
    if (choice := write_tool_choice(call)) is not None:
        body["tool_choice"] = choice
    if thought.thinking is not None:
        body["thinking"] = thought.thinking
    blocks.dropped.update(dict.fromkeys(thought.dropped))
    if config := _output_config(call, thought.effort, blocks.dropped):
        body["output_config"] = config
    _write_sampling(call, rules, body, blocks.dropped)
    if call.user is not None:
        body["metadata"] = {"user_id": call.user}
    _write_service_tier(call, body, blocks.dropped)
    if call.stream:
        body["stream"] = True
    for name, harmless in _UNSUPPORTED.items():
        if getattr(call, name) not in harmless:
            blocks.dropped[name] = None
    _write_extra(call, body, blocks.dropped)
    if not own and drop_earliest(body):
        blocks.dropped["cache"] = None
    return body, blocks


def _output_config(call: ChatCall, effort: str | None, dropped: dict[str, None]) -> dict[str, Any]:
    config: dict[str, Any] = {} if effort is None else {"effort": effort}
    output = call.output
    if output is None or output.kind == "text":
        return config
    if output.kind == "json" or output.schema is None:
        # The API knows no JSON without a schema.
        dropped["output"] = None
        return config
    schema = output.schema
    if call.dialect != NAME:
        schema, lost = supported(schema)
        dropped.update({f"output.schema.{word}": None for word in lost})
        if output.description:
            dropped["output.description"] = None
    config["format"] = {"type": "json_schema", "schema": schema}
    return config


def _write_sampling(
    call: ChatCall, rules: ModelRules, body: dict[str, Any], dropped: dict[str, None]
) -> None:
    temperature, top_p, top_k = call.temperature, call.top_p, call.top_k
    if call.dialect != NAME:
        thinks = body.get("thinking", {"type": "disabled"})["type"] != "disabled"
        if temperature is not None and (
            temperature > 1 or ((thinks or not rules.sampling) and temperature != 1)
        ):
            dropped["temperature"] = temperature = None
        if top_p is not None and (
            (thinks and top_p < _LEAST_TOP_P_OF_THOUGHTS)
            or (not rules.sampling and top_p != 1)
            or (not rules.sampling_pair and temperature is not None and top_p != 1)
        ):
            dropped["top_p"] = top_p = None
        if not rules.sampling or (not rules.sampling_pair and temperature is not None):
            # The API's default, or else refused beside the other.
            top_p = None if top_p == 1 else top_p
        if top_k is not None and (thinks or not rules.sampling):
            dropped["top_k"] = top_k = None
    for name, value in (("temperature", temperature), ("top_p", top_p), ("top_k", top_k)):
        if value is not None:
            body[name] = value
    stop = (
        call.stop
        if call.dialect == NAME
        else tuple(sequence for sequence in call.stop if sequence.strip())
    )
    if stop:
        body["stop_sequences"] = list(stop)
    if len(stop) < len(call.stop):
        # The API refuses stop sequences of white space alone.
        dropped["stop"] = None


def _write_service_tier(call: ChatCall, body: dict[str, Any], dropped: dict[str, None]) -> None:
    tier = call.service_tier
    if tier is not None and call.dialect != NAME:
        tier = _SERVICE_TIERS.get(tier)
        if tier is None:
            dropped["service_tier"] = None
    if tier is not None:
        body["service_tier"] = tier


def _write_extra(call: ChatCall, body: dict[str, Any], dropped: dict[str, None]) -> None:
    for name, value in call.extra.items():
        if call.dialect != NAME:
            dropped[f"extra.{name}"] = None
        elif name == BETAS:
            continue
        elif isinstance(value, dict) and isinstance(body.get(name), dict):
            body[name] = body[name] | value
        else:
            body[name] = value

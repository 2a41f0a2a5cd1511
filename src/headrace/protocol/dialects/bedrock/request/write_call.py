"""A request to Converse or ConverseStream, written."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from headrace.errors import RequestError, shown
from headrace.protocol.body_bounds import TOO_COMPLEX
from headrace.protocol.dialects.anthropic.request.schema import supported
from headrace.protocol.dialects.anthropic.values import NAME as CLAUDES
from headrace.protocol.dialects.bedrock.request.family import Family, family_of
from headrace.protocol.dialects.bedrock.request.native_fields import BETAS, native_fields
from headrace.protocol.dialects.bedrock.request.sampling import inference_config
from headrace.protocol.dialects.bedrock.request.write_tools import cache_point, tool_config
from headrace.protocol.dialects.bedrock.request.write_turns import write_turns
from headrace.protocol.dialects.bedrock.values import encoded
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest

HEADERS = {"content-type": "application/json"}

# Fields of a request to Bedrock that callers may give by their own names, as they are.
_PASSED = (
    "guardrailConfig",
    "performanceConfig",
    "requestMetadata",
    "promptVariables",
    "additionalModelRequestFields",
    "additionalModelResponseFieldPaths",
)
_TIERS = ("default", "priority", "flex", "reserved")
_MAX_METADATA = 16
_METADATA_KEY = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}")
_METADATA_VALUE = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}")
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
    "user": (None,),
}


def write_call(call: ChatCall, model: str, vendor: str = "") -> EncodedRequest:
    """`call` for `model`: an id, an inference profile or an ARN. vendor: see `family_of`.

    What the API cannot say is dropped: seed, penalties, log probabilities and others. A JSON schema
    is always kept to (there is no `strict`) as far as Bedrock takes it, within the same limits as
    Anthropic; JSON without a schema cannot be asked for. Anthropic's models are asked which stop
    sequence they met. Raises RequestError for what would be refused, as media by a web address.
    """
    try:
        return _written(call, model, vendor)
    except RecursionError:
        raise RequestError("the request is nested too deeply", code=TOO_COMPLEX) from None


def _written(call: ChatCall, model: str, vendor: str) -> EncodedRequest:
    family = family_of(model, vendor)
    dropped = [
        name for name, harmless in _UNSUPPORTED.items() if getattr(call, name) not in harmless
    ]
    if call.parallel_tool_calls is False and call.tools:
        dropped.append("parallel_tool_calls")
    body: dict[str, Any] = {"messages": write_turns(call.messages, family, dropped)}
    native = native_fields(call, family, model, dropped)
    fields = _present(
        system=_system(call, family, dropped),
        inferenceConfig=inference_config(call, family, model, native, dropped),
        toolConfig=tool_config(call, family, dropped),
        outputConfig=_output(call, dropped),
        requestMetadata=_metadata(call, dropped),
        serviceTier=_tier(call, dropped),
        additionalModelRequestFields=native,
    )
    body |= fields
    if "stopSequences" in body.get("inferenceConfig", {}) and family.vendor == "anthropic":
        body["additionalModelResponseFieldPaths"] = ["/stop_sequence"]
    _pass_on(call, family, body, dropped)
    operation = "converse-stream" if call.stream else "converse"
    return EncodedRequest(
        path=f"/model/{quote(model, safe='')}/{operation}",
        headers=HEADERS,
        body=encoded(body),
        dropped=tuple(dict.fromkeys(dropped)),
    )


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _system(call: ChatCall, family: Family, dropped: list[str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for number, text in enumerate(call.instructions):
        dropped += [f"instructions[{number}].{name}" for name in text.extra]
        if text.text.strip():
            blocks.append({"text": text.text})
        if text.cache is not None and blocks:
            if family.cache_points:
                blocks.append(cache_point(text.cache))
            else:
                dropped.append(f"instructions[{number}].cache")
    return blocks


def _output(call: ChatCall, dropped: list[str]) -> dict[str, Any] | None:
    output = call.output
    if output is None or output.kind == "text":
        return None
    if output.kind == "json" or output.schema is None:
        dropped.append("output")
        return None
    schema = output.schema
    if call.dialect != CLAUDES:
        schema, lost = supported(schema)
        dropped += [f"output.schema.{word}" for word in lost]
    definition = {"schema": encoded(schema).decode()}
    definition |= _present(name=output.name, description=output.description)
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}


def _metadata(call: ChatCall, dropped: list[str]) -> dict[str, str] | None:
    metadata = call.metadata
    if not metadata:
        return None
    fits = len(metadata) <= _MAX_METADATA and all(
        _METADATA_KEY.fullmatch(key) and _METADATA_VALUE.fullmatch(value)
        for key, value in metadata.items()
    )
    if not fits:
        dropped.append("metadata")
        return None
    return metadata


def _tier(call: ChatCall, dropped: list[str]) -> dict[str, str] | None:
    if call.service_tier is None or call.service_tier == "auto":
        return None
    if call.service_tier not in _TIERS:
        dropped.append("service_tier")
        return None
    return {"type": call.service_tier}


def _pass_on(call: ChatCall, family: Family, body: dict[str, Any], dropped: list[str]) -> None:
    """Fields that the caller gave by Bedrock's own names, or to Claude by Anthropic's."""
    own = family.vendor == "anthropic" and call.dialect == CLAUDES
    for name, value in call.extra.items():
        if family.vendor == "anthropic" and name in ("anthropic_beta", "betas"):
            _pass_betas(name, value, body, dropped)
        elif own and name in ("thinking", "output_config") and isinstance(value, dict):
            fields = body.setdefault("additionalModelRequestFields", {})
            fields[name] = {**fields.get(name, {}), **value}
        elif name not in _PASSED:
            dropped.append(f"extra.{name}")
        elif not isinstance(value, list if name.endswith("Paths") else dict):
            raise RequestError(
                f"{name}: {shown(value)} does not have the form that Bedrock's API requires",
                param=name,
                code="invalid_type",
            )
        elif isinstance(value, dict):
            body[name] = {**body.get(name, {}), **value}
        else:
            body[name] = list(dict.fromkeys([*body.get(name, []), *map(str, value)]))


def _pass_betas(name: str, value: Any, body: dict[str, Any], dropped: list[str]) -> None:
    """Pass on those of Anthropic's header ("betas") that Bedrock knows."""
    asked = value if isinstance(value, list) else [value]
    known = [beta for beta in asked if name != "betas" or beta in BETAS]
    if len(known) < len(asked):
        dropped.append(f"extra.{name}")
    if known:
        fields = body.setdefault("additionalModelRequestFields", {})
        fields["anthropic_beta"] = [*fields.get("anthropic_beta", []), *known]

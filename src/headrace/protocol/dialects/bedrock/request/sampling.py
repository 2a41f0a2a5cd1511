"""inferenceConfig: the sampling parameters that every model of Converse has.

temperature and top_p go from 0 to 1; a value beyond is written as the nearest one and reported as
dropped. Anthropic's models accept less: only the defaults with thoughts and since Claude 4.7, and
since 4.1 only one of the two. Values they would refuse are omitted and reported.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.anthropic.request.model_rules import rules_of
from headrace.protocol.dialects.bedrock.request.family import Family
from headrace.protocol.neutral.call import ChatCall

_LEAST_TOP_P_OF_THOUGHTS = 0.95


def inference_config(
    call: ChatCall, family: Family, model: str, native: dict[str, Any], dropped: list[str]
) -> dict[str, Any]:
    """native: the additionalModelRequestFields, of which what may not stand beside it is taken out.

    Raises RequestError for a limit of no tokens.
    """
    if call.max_tokens is not None and call.max_tokens < 1:
        raise RequestError(
            f"max_tokens: Bedrock does not accept {shown(call.max_tokens)}; send at least 1",
            param="max_tokens",
            code="invalid_value",
        )
    config: dict[str, Any] = {
        "maxTokens": call.max_tokens,
        "temperature": _within("temperature", call.temperature, dropped),
        "topP": _within("top_p", call.top_p, dropped),
        "stopSequences": _stop(call, family, dropped) or None,
    }
    if family.vendor == "anthropic":
        _keep_to_claude(config, model, native, dropped)
    return {name: value for name, value in config.items() if value is not None}


def _stop(call: ChatCall, family: Family, dropped: list[str]) -> list[str]:
    """Without empty ones, and for Anthropic's models those of white space: they are refused."""
    claude = family.vendor == "anthropic"
    stop = [sequence for sequence in call.stop if (sequence.strip() if claude else sequence)]
    if len(stop) < len(call.stop):
        dropped.append("stop")
    return stop


def _within(name: str, value: float | None, dropped: list[str]) -> float | None:
    if value is None or 0 <= value <= 1:
        return value
    dropped.append(name)
    return 0 if value < 0 else 1


def _keep_to_claude(
    config: dict[str, Any], model: str, native: dict[str, Any], dropped: list[str]
) -> None:
    rules = rules_of(model)
    thinks = native.get("thinking", {"type": "disabled"})["type"] != "disabled"
    plain = thinks or not rules.sampling
    temperature, top_p = config["temperature"], config["topP"]
    if plain and temperature not in (None, 1):
        config["temperature"] = temperature = None
        dropped.append("temperature")
    if top_p is not None and top_p != 1:
        refused = (
            (thinks and top_p < _LEAST_TOP_P_OF_THOUGHTS)
            or not rules.sampling
            or (not rules.sampling_pair and temperature is not None)
        )
        if refused:
            config["topP"] = None
            dropped.append("top_p")
    elif top_p == 1 and (not rules.sampling or temperature is not None):
        # The default, which is refused beside the other one.
        config["topP"] = None
    if plain and native.pop("top_k", None) is not None:
        dropped.append("top_k")

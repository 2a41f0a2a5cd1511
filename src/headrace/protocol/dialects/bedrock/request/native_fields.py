"""Features of a model that Converse has no fields for: additionalModelRequestFields.

Bedrock answers 400 to a key that the model does not know, so only what is known is written: top_k
of Anthropic's and Nova's models, and how much to think:

    Anthropic  thinking and output_config as Anthropic's own API has them, by the same rules
    Nova 2     reasoningConfig {"type": "enabled", "maxReasoningEffort"}: low, medium, high
    gpt-oss    reasoning_effort: low, medium, high
    Qwen       reasoning_config: low, high

An effort between or beyond a model's own becomes the nearest one (of two, the higher).
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.anthropic.request.model_rules import rules_of
from headrace.protocol.dialects.anthropic.request.thinking import write_reasoning
from headrace.protocol.dialects.bedrock.request.family import Family
from headrace.protocol.dialects.effort import effort_of
from headrace.protocol.neutral.call import ChatCall, Effort, Reasoning

BETAS = frozenset(
    (
        "computer-use-2024-10-22",
        "computer-use-2025-01-24",
        "token-efficient-tools-2025-02-19",
        "interleaved-thinking-2025-05-14",
        "output-128k-2025-02-19",
        "dev-full-thinking-2025-05-14",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "effort-2025-11-24",
        "tool-search-tool-2025-10-19",
        "tool-examples-2025-10-29",
    )
)
"""Values of Anthropic's header anthropic-beta that Bedrock knows; it refuses requests with others.

Source: https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages-request-response.html
"""

# The models have no limit of their own as long as a call does not say one.
_NO_LIMIT_TOKENS = 2**31
_THREE: dict[str, str] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
}
_TWO = {**_THREE, "medium": "high"}


def native_fields(call: ChatCall, family: Family, model: str, dropped: list[str]) -> dict[str, Any]:
    """The fields for `model`; what cannot be said is appended to `dropped`."""
    fields: dict[str, Any] = {}
    if family.vendor == "anthropic":
        return _claude(call, model, dropped)
    if call.top_k is not None:
        if family.vendor == "nova":
            fields["inferenceConfig"] = {"topK": call.top_k}
        else:
            dropped.append("top_k")
    if call.reasoning is not None:
        fields |= _thinking(call.reasoning, family.vendor, model, dropped)
    return fields


def _claude(call: ChatCall, model: str, dropped: list[str]) -> dict[str, Any]:
    thought = write_reasoning(call, rules_of(model), _NO_LIMIT_TOKENS)
    dropped += thought.dropped
    fields: dict[str, Any] = {}
    if call.top_k is not None:
        fields["top_k"] = call.top_k
    if thought.thinking is not None:
        fields["thinking"] = thought.thinking
    if thought.effort is not None:
        fields["output_config"] = {"effort": thought.effort}
    return fields


def _thinking(wanted: Reasoning, vendor: str, model: str, dropped: list[str]) -> dict[str, Any]:
    for name in ("summary", "shown"):
        if getattr(wanted, name) is not None:
            dropped.append(f"reasoning.{name}")
    if wanted.adaptive:
        dropped.append("reasoning.adaptive")
    effort: Effort | None = wanted.effort
    if wanted.budget_tokens == 0 or (effort is None and wanted.budget_tokens is not None):
        effort = effort_of(wanted.budget_tokens)
    if effort is None:
        return {}
    if "nova-2" in model:
        off = {"type": "disabled"}
        on = {"type": "enabled", "maxReasoningEffort": _THREE.get(effort)}
        return {"reasoningConfig": off if effort == "none" else on}
    if effort != "none" and vendor == "openai":
        return {"reasoning_effort": _THREE[effort]}
    if effort != "none" and vendor == "qwen":
        return {"reasoning_config": _TWO[effort]}
    dropped.append("reasoning.effort" if wanted.effort else "reasoning.budget_tokens")
    return {}

"""Parameters that some targets of a model support and others do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import RequestError
from headrace.gateway.routing.route import Route
from headrace.gateway.settings.reliability import Unsupported
from headrace.gateway.targets.target import Target
from headrace.protocol.neutral.call import (
    ChatCall,
    Message,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.losses import Losses, losses
from headrace.protocol.neutral.part import Text

_MESSAGES = (Message(role="user", parts=(Text(text="Hi"),)),)
_TOOLS = (Tool(name="f", parameters={"type": "object", "properties": {}}),)
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
# A request for each, by the parameter's name in OpenAI's chat completions.
_REQUESTS: dict[str, dict[str, Any]] = {
    "n": {"choices": 2},
    "logit_bias": {"logit_bias": {"1": 1.0}},
    "logprobs": {"logprobs": True},
    "response_format": {"output": OutputFormat(kind="schema", schema=_SCHEMA)},
    "stop": {"stop": ("END",)},
    "tools": {"tools": _TOOLS},
    "tool_choice": {"tools": _TOOLS, "tool_choice": ToolChoice("required")},
    "parallel_tool_calls": {"tools": _TOOLS, "parallel_tool_calls": False},
    "seed": {"seed": 1},
    "frequency_penalty": {"frequency_penalty": 0.5},
    "presence_penalty": {"presence_penalty": 0.5},
    "top_k": {"top_k": 10},
    "reasoning_effort": {"reasoning": Reasoning(effort="high")},
    "metadata": {"metadata": {"a": "b"}},
    "user": {"user": "a"},
}


def parameter_warnings(routes: Mapping[str, Route], policy: Unsupported) -> list[str]:
    """A line for each model whose targets do not support the same parameters."""
    if policy == "drop":
        return []
    warnings = []
    for name, route in routes.items():
        lost = {target.name: _unsupported(target) for target in route.targets}
        skipped_by_all = _common(losses.meaning for losses in lost.values())
        lost_by_all = _common(losses.all for losses in lost.values())
        told = [
            words
            for target, losses in lost.items()
            if (words := _words(target, losses, skipped_by_all, lost_by_all, policy))
        ]
        if told:
            warnings.append(
                f"models.{name}: its targets do not support the same parameters: {'; '.join(told)}"
            )
    return warnings


def _common(names: Iterable[tuple[str, ...]]) -> frozenset[str]:
    sets = [frozenset(each) for each in names]
    return frozenset.intersection(*sets) if sets else frozenset()


def _words(
    target: str,
    lost: Losses,
    skipped_by_all: frozenset[str],
    lost_by_all: frozenset[str],
    policy: Unsupported,
) -> str:
    """What becomes of requests at one target that others would serve; "" for nothing."""
    skipped = [name for name in lost.meaning if name not in skipped_by_all]
    ignored = [name for name in lost.hints if name not in lost_by_all]
    if policy == "refuse":
        skipped, ignored = skipped + ignored, []
    words = []
    if skipped:
        words.append(f"is skipped for {', '.join(skipped)}")
    if ignored:
        words.append(f"is tried after the others for {', '.join(ignored)}")
    return f"{target} {' and '.join(words)}" if words else ""


def _unsupported(target: Target) -> Losses:
    """The parameters that a target does not support, among those of `_REQUESTS`."""
    meaning, hints = [], []
    for name, fields in _REQUESTS.items():
        call = ChatCall(dialect="", model=target.model, messages=_MESSAGES, **fields)
        try:
            written = target.provider.side.write_call(call, target.model)
        except RequestError:
            meaning.append(name)
            continue
        lost = losses(call, written.dropped, {}, lambda _: False)
        if lost.meaning:
            meaning.append(name)
        elif lost.hints:
            hints.append(name)
    return Losses(tuple(meaning), tuple(hints))

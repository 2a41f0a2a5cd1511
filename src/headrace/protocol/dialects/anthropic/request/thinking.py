"""`thinking` and `output_config.effort` in both directions.

A call that came in this dialect goes out as it was said. Others are put into what the model takes:

- Models with adaptive thinking get {"type": "adaptive"} and the effort.
- Older ones get a budget. Where the call names an effort alone it is BUDGETS of it: low, medium and
  high are pydantic-ai's (2026), minimal and xhigh our choice beside them.
- A budget is at least 1,024 tokens and leaves at least a fifth of max_tokens for the answer; where
  max_tokens has no room for that there is no thinking. If nobody says how long the answer may be,
  the budget is added to MAX_TOKENS.
- A budget is not written where the API refuses it: with a tool that must be called, or in the
  midst of a tool's turn whose thoughts were another vendor's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic.request.fields import (
    Json,
    want_count,
    want_object,
    want_one_of,
)
from headrace.protocol.dialects.anthropic.request.model_rules import ModelRules
from headrace.protocol.dialects.anthropic.values import BETAS, NAME, rest
from headrace.protocol.neutral.call import ChatCall, Effort, Reasoning
from headrace.protocol.neutral.part import Thinking, ToolCall

BUDGETS: dict[str, int] = {
    "minimal": 1024,
    "low": 1024,
    "medium": 4096,
    "high": 16384,
    "xhigh": 32768,
}
LEAST_BUDGET = 1024
"""Of the API's own models; what a client may say is less here, as small models think in less."""

MAX_TOKENS = 4096
"""max_tokens, which the API requires, where neither the call nor the caller says it."""

_EFFORTS: dict[str, Effort] = {
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "xhigh",
}
_KNOWN = frozenset({"type", "budget_tokens", "display"})
_CONFIG = frozenset({"effort", "format"})
_INTERLEAVED = "interleaved-thinking-"


class Thought(NamedTuple):
    """The thinking settings of a request."""

    thinking: dict[str, Any] | None = None
    effort: str | None = None
    max_tokens: int | None = None
    """As in the call, or raised for the budget."""
    dropped: tuple[str, ...] = ()


def read_reasoning(value: object, config: Json, extra: Json) -> Reasoning | None:
    """The thinking that a client requests; fields without a neutral form go into `extra`."""
    effort: Effort | None = None
    more = rest(config, _CONFIG)
    if (word := config.get("effort")) is not None:
        effort = _EFFORTS[want_one_of(word, "output_config.effort", tuple(_EFFORTS))]
        if word != effort:
            more["effort"] = word
    if more:
        extra["output_config"] = more
    if value is None:
        return None if effort is None else Reasoning(effort=effort)
    thinking = want_object(value, "thinking")
    kind = want_one_of(thinking.get("type"), "thinking.type", ("enabled", "adaptive", "disabled"))
    if unknown := rest(thinking, _KNOWN):
        extra["thinking"] = unknown
    shown: bool | None = None
    if (display := thinking.get("display")) is not None:
        words = ("summarized", "omitted")
        shown = want_one_of(display, "thinking.display", words) == "summarized"
    if kind == "disabled":
        return Reasoning(effort=effort, budget_tokens=0, shown=shown)
    if kind == "adaptive":
        return Reasoning(effort=effort, adaptive=True, shown=shown)
    budget = want_count(thinking.get("budget_tokens"), "thinking.budget_tokens", least=1)
    return Reasoning(effort=effort, budget_tokens=budget, shown=shown)


def check_budget(call: ChatCall) -> None:
    """Raise RequestError for a budget of thoughts that leaves nothing of max_tokens for the answer.

    Between calls of tools, where that is requested, the budget is of all of a turn's requests, and
    may be more than one of them writes.
    """
    budget = call.reasoning.budget_tokens if call.reasoning is not None else None
    if budget is None or call.max_tokens is None or budget < max(call.max_tokens, 1):
        return
    betas = call.extra.get(BETAS, ())
    if call.tools and any(beta.startswith(_INTERLEAVED) for beta in betas):
        return
    path = "thinking.budget_tokens"
    raise RequestError(
        f"{path}: {budget} is not less than max_tokens, {call.max_tokens}, which has to have room "
        "for the answer behind the thoughts; raise max_tokens or lower the budget",
        param=path,
        code="invalid_value",
    )


def write_reasoning(call: ChatCall, rules: ModelRules, default_max_tokens: int | None) -> Thought:
    """default_max_tokens: the most the model writes, None if it is not known."""
    known = default_max_tokens if call.max_tokens is None else call.max_tokens
    most = MAX_TOKENS if known is None else known
    reasoning = call.reasoning
    if reasoning is None:
        return Thought(max_tokens=most)
    off = reasoning.effort == "none" or reasoning.budget_tokens == 0
    if call.dialect == NAME:
        thinking = _as_given(reasoning, off=off)
        if thinking and thinking["type"] == "enabled" and _in_midst_of_tools(call):
            return Thought(None, _word(reasoning.effort), most, ("reasoning",))
        return Thought(thinking, _word(reasoning.effort), most)
    if off:
        # Models without adaptive thinking do not think unless asked to.
        return Thought({"type": "disabled"} if rules.adaptive else None, max_tokens=most)
    if not (reasoning.effort or reasoning.budget_tokens or reasoning.adaptive):
        return Thought(max_tokens=most)
    if rules.adaptive and not (rules.budgets and reasoning.budget_tokens):
        return _adaptive(reasoning, rules, most)
    return _budget(call, reasoning, most, may_grow=known is None)


def _as_given(reasoning: Reasoning, *, off: bool) -> dict[str, Any] | None:
    thinking: dict[str, Any]
    if off:
        thinking = {"type": "disabled"}
    elif reasoning.adaptive:
        thinking = {"type": "adaptive"}
    elif reasoning.budget_tokens is not None:
        thinking = {"type": "enabled", "budget_tokens": reasoning.budget_tokens}
    else:
        return None
    if reasoning.shown is not None:
        thinking["display"] = "summarized" if reasoning.shown else "omitted"
    return thinking


def _word(effort: Effort | None) -> str | None:
    if effort is None or effort == "none":
        return None
    return "low" if effort == "minimal" else effort


def _adaptive(reasoning: Reasoning, rules: ModelRules, most: int) -> Thought:
    dropped = []
    effort = _word(reasoning.effort)
    if reasoning.budget_tokens:
        effort = effort or _nearest(reasoning.budget_tokens)
    if effort == "xhigh" and not rules.xhigh:
        dropped.append("reasoning.effort")
        effort = "high"
    thinking: dict[str, Any] = {"type": "adaptive"}
    if reasoning.shown is not None or reasoning.summary is not None:
        thinking["display"] = "omitted" if reasoning.shown is False else "summarized"
    return Thought(thinking, effort, most, tuple(dropped))


def _nearest(budget_tokens: int) -> str:
    """The lowest effort whose budget is not below."""
    words = ("low", "medium", "high", "xhigh")
    return next((word for word in words if BUDGETS[word] >= budget_tokens), "xhigh")


def _budget(call: ChatCall, reasoning: Reasoning, most: int, *, may_grow: bool) -> Thought:
    forced = call.tool_choice is not None and call.tool_choice.kind in ("required", "one")
    if forced or _in_midst_of_tools(call):
        return Thought(max_tokens=most, dropped=("reasoning",))
    asked = reasoning.budget_tokens
    budget = max(asked or BUDGETS[reasoning.effort or "medium"], LEAST_BUDGET)
    if may_grow:
        most += budget
    else:
        budget = min(budget, max(LEAST_BUDGET, most * 4 // 5))
    if budget >= most:
        return Thought(max_tokens=most, dropped=("reasoning",))
    dropped = ["reasoning.shown"] if reasoning.shown is False else []
    if asked is not None and asked != budget:
        dropped.append("reasoning.budget_tokens")
    thinking = {"type": "enabled", "budget_tokens": budget}
    return Thought(thinking, max_tokens=most, dropped=tuple(dropped))


def _in_midst_of_tools(call: ChatCall) -> bool:
    """Whether the last turn is a tool's, after a call whose thoughts cannot be given back.

    A client of this dialect may leave its own thoughts out, but others' are left out here.
    """
    if not call.messages or call.messages[-1].role != "tool":
        return False
    asking = next(
        (message for message in reversed(call.messages) if message.role == "assistant"), None
    )
    if asking is None or not any(isinstance(part, ToolCall) for part in asking.parts):
        return False
    signatures = [part.signature for part in asking.parts if isinstance(part, Thinking)]
    if call.dialect == NAME and not signatures:
        return False
    return not any(signature is not None and signature.origin == NAME for signature in signatures)

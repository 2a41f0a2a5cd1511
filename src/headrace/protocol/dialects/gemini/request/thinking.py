"""How much to think: neutral `Reasoning` as Gemini's thinkingConfig.

    effort      Gemini 2.5 thinkingBudget   Gemini 3 thinkingLevel
    none        0; pro: 128, the least      minimal; pro: low, the least
    minimal     1,024                       minimal; pro: low
    low         1,024                       low
    medium      8,192                       medium; gemini-3-pro: high
    high        24,576                      high
    xhigh       24,576; pro: 32,768         high, the most

It is Google's own table for OpenAI's reasoning_effort (ai.google.dev/gemini-api/docs/openai) with
"xhigh" as the most that a model takes. A budget of tokens is said as such, which Gemini 3 takes
as well; both at once it refuses. "None" where a model cannot stop thinking becomes the least and
is reported as dropped. Models before 2.5 do not think: anything but "none" is dropped.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.gemini.request.model_name import generation, is_pro, thinking_kind
from headrace.protocol.neutral.call import Reasoning

_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576}
_PRO_LEAST, _PRO_MOST = 128, 32768
_LEVELS = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}


def thinking_config(reasoning: Reasoning, model: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config, {} for none, and the names of what it does not say."""
    kind = thinking_kind(model)
    off = _is_off(reasoning)
    if kind == "none":
        return {}, () if off or reasoning == Reasoning(shown=False) else ("reasoning",)
    config: dict[str, Any] = {}
    dropped: tuple[str, ...] = ()
    pro = is_pro(model)
    if off:
        if kind == "level":
            config["thinkingLevel"] = "low" if pro else "minimal"
        else:
            config["thinkingBudget"] = _PRO_LEAST if pro else 0
        if config != {"thinkingBudget": 0}:
            asked = "effort" if reasoning.budget_tokens is None else "budget_tokens"
            dropped = (f"reasoning.{asked}",)
    elif reasoning.budget_tokens is not None:
        config["thinkingBudget"] = reasoning.budget_tokens
    elif reasoning.effort is not None:
        if kind == "level":
            config["thinkingLevel"] = _level(reasoning.effort, model)
        else:
            most = pro and reasoning.effort == "xhigh"
            config["thinkingBudget"] = _PRO_MOST if most else _BUDGETS[reasoning.effort]
    elif reasoning.adaptive and kind == "budget":
        config["thinkingBudget"] = -1
    shown = reasoning.shown
    if shown is None and reasoning.summary is not None:
        shown = True  # what Gemini shows of its thoughts is always a summary
    if shown is not None:
        config["includeThoughts"] = shown
    return config, dropped


def _is_off(reasoning: Reasoning) -> bool:
    if reasoning.budget_tokens is not None:
        return reasoning.budget_tokens == 0
    return reasoning.effort == "none"


def _level(effort: str, model: str) -> str:
    if is_pro(model):
        if effort == "minimal":
            return "low"
        if effort == "medium" and generation(model) == (3, 0):
            return "high"
    return _LEVELS[effort]

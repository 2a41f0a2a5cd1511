"""The amount of thinking: OpenAI's field, and the objects of other services.

Read are `reasoning_effort` (OpenAI), `reasoning` {effort, max_tokens, exclude, enabled}
(OpenRouter) and `thinking` {type, budget_tokens} (DeepSeek, Z.ai). Written is the one form that the
variant has. Where it has words alone a number of tokens becomes the word for it (`effort.py`);
where thinking can only be switched on or off, the number is reported as dropped.
"""

from __future__ import annotations

from typing import Any, get_args

from headrace.protocol.dialects.effort import effort_of
from headrace.protocol.dialects.openai_chat.request.fields import Fields, refuse
from headrace.protocol.dialects.openai_chat.values import whole
from headrace.protocol.dialects.openai_chat.variant import Variant
from headrace.protocol.neutral.call import Effort, Reasoning

EFFORTS: tuple[Effort, ...] = get_args(Effort)


def read_reasoning(fields: Fields) -> Reasoning | None:
    """The request's thinking. Fields without a neutral form stay in `fields.left`."""
    said: dict[str, Any] = {}
    thinking = fields.take("thinking")
    if thinking is not None:
        rest = _read_thinking(thinking, said)
        if rest:
            fields.left["thinking"] = rest
    asked = fields.object("reasoning")
    if asked is not None:
        rest = _read_object(asked, said)
        if rest:
            fields.left["reasoning"] = rest
    word = fields.string("reasoning_effort")
    if word == "max":
        # More than the neutral form has a word for: its own dialect gets it as it was.
        said["effort"] = "xhigh"
        fields.left["reasoning_effort"] = word
    elif word is not None:
        effort = _effort(word)
        if effort is None:
            fields.left["reasoning_effort"] = word  # Groq's "default"
        else:
            said["effort"] = effort
    return Reasoning(**said) if said else None


def _effort(word: Any) -> Effort | None:
    return next((effort for effort in EFFORTS if word == effort), None)


def _read_thinking(thinking: Any, said: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(thinking, dict):
        raise refuse("thinking", thinking, "an object")
    rest = dict(thinking)
    kind = rest.get("type")
    if kind == "disabled":
        said["effort"] = "none"
        del rest["type"]
    elif kind == "adaptive":
        said["adaptive"] = True
        del rest["type"]
    budget = rest.get("budget_tokens")
    if budget is not None:
        said["budget_tokens"] = _budget(rest.pop("budget_tokens"), "thinking.budget_tokens")
        rest.pop("type", None)
    return rest


def _read_object(asked: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in asked.items() if value is not None}
    effort = _effort(rest.get("effort"))
    if effort is not None:
        said["effort"] = effort
        del rest["effort"]
    if "max_tokens" in rest:
        said["budget_tokens"] = _budget(rest.pop("max_tokens"), "reasoning.max_tokens")
    if isinstance(rest.get("exclude"), bool):
        said["shown"] = not rest.pop("exclude")
    if isinstance(rest.get("summary"), str):
        said["summary"] = rest.pop("summary")
    if rest.get("enabled") is False:
        said["effort"] = "none"
        del rest["enabled"]
    return rest


def _budget(value: Any, param: str) -> int:
    tokens = whole(value)
    if tokens is None or tokens < 0:
        raise refuse(param, value, "a number of tokens, 0 or more")
    return tokens


def write_reasoning(asked: Reasoning, variant: Variant, dropped: list[str]) -> dict[str, Any]:
    """The fields that say it; appends to `dropped` what they do not."""
    style = variant.effort_style
    off = asked.effort == "none" or (asked.effort is None and asked.budget_tokens == 0)
    if asked.adaptive is not None:
        dropped.append("reasoning.adaptive")
    if style == "reasoning":
        return _write_object(asked, variant, dropped)
    if asked.shown is not None:
        dropped.append("reasoning.shown")
    if asked.summary is not None:
        dropped.append("reasoning.summary")
    if asked.effort is None and asked.budget_tokens is None:
        return {}
    if style == "none":
        dropped.append("reasoning.effort" if asked.effort else "reasoning.budget_tokens")
        return {}
    if style == "thinking":
        if asked.budget_tokens:
            dropped.append("reasoning.budget_tokens")
        if asked.effort not in (None, "none"):
            dropped.append("reasoning.effort")
        return {"thinking": {"type": "disabled" if off else "enabled"}}
    effort = _nearest("none" if off else _effort_of(asked), variant, dropped)
    if style == "reasoning_effort":
        return {"reasoning_effort": effort}
    kwargs: dict[str, Any] = {"enable_thinking": not off}
    if off:
        return {"chat_template_kwargs": kwargs}
    # Templates read the one (llama.cpp), vLLM's parser of Harmony the other.
    kwargs["reasoning_effort"] = effort
    return {"chat_template_kwargs": kwargs, "reasoning_effort": effort}


def _write_object(asked: Reasoning, variant: Variant, dropped: list[str]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if asked.effort is not None:
        written["effort"] = _nearest(asked.effort, variant, dropped)
    elif asked.budget_tokens is not None and variant.effort_takes_budget:
        written["max_tokens"] = asked.budget_tokens
    elif asked.budget_tokens is not None:
        written["effort"] = _nearest(_effort_of(asked), variant, dropped)
    if asked.shown is not None:
        written["exclude"] = not asked.shown
    if asked.summary is not None:
        written["summary"] = asked.summary
    return {"reasoning": written} if written else {}


def _effort_of(asked: Reasoning) -> Effort:
    if asked.effort is not None:
        return asked.effort
    return effort_of(asked.budget_tokens or 0)


def _nearest(effort: Effort, variant: Variant, dropped: list[str]) -> Effort:
    """The variant's word that is least far from `effort`; the greater of two as near."""
    if effort in variant.efforts or not variant.efforts:
        return effort
    dropped.append("reasoning.effort")
    at = EFFORTS.index(effort)
    return min(
        variant.efforts, key=lambda known: (abs(EFFORTS.index(known) - at), -EFFORTS.index(known))
    )

"""How much of an answer may be reasoning, as a caller in Python says it: a number of tokens.

Where an answer's reasoning begins and ends is known by `conversation.thinking`.
"""

from __future__ import annotations

import msgspec

from headrace.conversation.thinking import ReasoningStart
from headrace.engine.params import RANGES, Range, SamplingParams, ThinkingBudget
from headrace.errors import RequestError
from headrace.offline.values import integer

_FIELD = "thinking_token_budget"
_NO_LIMIT = -1
BUDGET_RANGE = Range(_NO_LIMIT, RANGES["max_tokens"].high)
"""Of `thinking_token_budget`."""


def budget_tokens(value: object, thinking: object, prefix: str = "") -> int | None:
    """The number of tokens that `thinking_token_budget` names; None where it bounds nothing.

    thinking: the field of that name, of which one of the two may be given. prefix: put before the
    names of fields in errors. Raises RequestError naming the field.
    """
    if value is None:
        return None
    param = prefix + _FIELD
    count = integer(value, param, "an integer or None")
    if count not in BUDGET_RANGE:
        value_shown = str(count) if count.bit_length() <= 128 else "too large"
        raise RequestError(
            f"{param} is {value_shown}; it must be {BUDGET_RANGE}, where -1 sets no limit",
            param=param,
            code="invalid_value",
        )
    if thinking is not None:
        raise RequestError(
            f"{param}, {prefix}thinking: reasoning has one budget; give one of them",
            param=param,
            code="invalid_value",
        )
    return None if count == _NO_LIMIT else count


def bounded(
    params: SamplingParams, max_tokens: int | None, start: ReasoningStart | None
) -> SamplingParams:
    """The parameters with at most so many tokens of reasoning; as they are where max_tokens is None
    or the model does not reason, as on the server."""
    if max_tokens is None or start is None:
        return params
    thinking = ThinkingBudget.between(*start.marks, max_tokens=max_tokens, is_open=start.is_open)
    return msgspec.structs.replace(params, thinking=thinking)

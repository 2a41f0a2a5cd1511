"""How much of an answer may be reasoning, as a caller in Python says it: a number of tokens.

The engine bounds reasoning between ids (`engine.params.ThinkingBudget`); which ids those are is
known from the model's format, and whether an answer begins within reasoning from its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.conversation.reading import ReasoningMarks
from headrace.engine.params import RANGES, Range, SamplingParams, ThinkingBudget
from headrace.errors import RequestError
from headrace.offline.values import integer

_FIELD = "thinking_token_budget"
_NO_LIMIT = -1
_RANGE = Range(_NO_LIMIT, RANGES["max_tokens"].high)


def budget_tokens(value: object, thinking: object, prefix: str = "") -> int | None:
    """The number of tokens that `thinking_token_budget` names; None where it bounds nothing.

    thinking: the field of that name, of which one of the two may be given. prefix: put before the
    names of fields in errors. Raises RequestError naming the field.
    """
    if value is None:
        return None
    param = prefix + _FIELD
    count = integer(value, param, "an integer or None")
    if count not in _RANGE:
        value_shown = str(count) if count.bit_length() <= 128 else "too large"
        raise RequestError(
            f"{param} is {value_shown}; it must be {_RANGE}, where -1 sets no limit",
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
    params: SamplingParams, max_tokens: int | None, marks: ReasoningMarks | None, *, is_open: bool
) -> SamplingParams:
    """The parameters with at most so many tokens of reasoning; as they are where max_tokens is None
    or the model has no marks of reasoning, as on the server.

    is_open: whether the prompt has begun the reasoning.
    """
    if max_tokens is None or marks is None:
        return params
    thinking = ThinkingBudget.between(*marks, max_tokens=max_tokens, is_open=is_open)
    return msgspec.structs.replace(params, thinking=thinking)


def ends_in_reasoning(token_ids: Sequence[int], marks: ReasoningMarks) -> bool:
    """Whether a prompt ends within reasoning: its last mark is one that begins it."""
    ends = (marks.end_ids, *marks.other_end_ids)
    return _last(token_ids, marks.begin_ids) > max(_last(token_ids, ids) for ids in ends)


def _last(token_ids: Sequence[int], sought: tuple[int, ...]) -> int:
    """Where `sought` comes last; -1 where it does not."""
    size = len(sought)
    places = range(len(token_ids) - size, -1, -1)
    return next((at for at in places if tuple(token_ids[at : at + size]) == sought), -1)

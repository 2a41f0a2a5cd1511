"""SamplingParams as a caller in Python writes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from headrace.engine.limits import check_ranges
from headrace.engine.params import RequestParams
from headrace.offline.structured import StructuredOutputsParams, grammar_of
from headrace.offline.thinking import budget_tokens
from headrace.offline.values import CONVERTERS


class SamplingParams(RequestParams, frozen=True, kw_only=True):
    """The parameters of one request as a caller gives them. None, the default of the fields below,
    stands for the model's own value (`LLM.sampling_defaults`), or the neutral one where the model
    names none."""

    temperature: float | None = None
    """0 is greedy. Neutral: 1."""
    top_k: int | None = None
    """0 and -1 keep all. Neutral: 0."""
    top_p: float | None = None
    """0 keeps the likeliest token alone. Neutral: 1."""
    min_p: float | None = None
    """Neutral: 0."""
    repetition_penalty: float | None = None
    """As in engine/params.py. Neutral: 1."""
    structured_outputs: StructuredOutputsParams | Mapping[str, Any] | None = None
    """What the answer is held to, as a JSON schema, an expression, choices or a grammar; `grammar`
    is another way to say so, and one of the two may be given."""
    thinking_token_budget: int | None = None
    """Most tokens of reasoning: it is closed there, and the answer follows. -1 sets no
    limit, and a model that does not reason has nothing to bound. `thinking` is another way to say
    so, with ids."""

    def __post_init__(self) -> None:
        """Raises RequestError for a value of another type or out of range. What depends on the
        model or on several fields is checked with the request."""
        typed = {name: convert(getattr(self, name), name) for name, convert in FIELDS.items()}
        check_ranges(SimpleNamespace(**typed))
        grammar_of(self.structured_outputs, self.grammar)
        budget_tokens(self.thinking_token_budget, self.thinking)


FIELDS = {
    field.name: CONVERTERS[field.type]
    for field in msgspec.structs.fields(SamplingParams)
    if field.name not in ("structured_outputs", "thinking_token_budget")
}
"""What makes a field its declared type, or raises RequestError; of the fields that the engine has
too."""

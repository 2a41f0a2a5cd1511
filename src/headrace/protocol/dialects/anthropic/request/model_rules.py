"""The features that a model's requests may use, as far as its name shows.

Read from Anthropic's migration pages of 2026: Claude 4.6 brought adaptive thinking; Opus 4.7
refuses budgets of thinking and any sampling parameter that is not the default, and brought effort
"xhigh"; Opus 4.8 brought system messages between turns; since 4.1 temperature and top_p are not
taken together, and schemas (structured output, strict tools) are. Later models are taken to be like
the last ones named. A caller who knows better hands in rules of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")


class ModelRules(NamedTuple):
    """The features that a model's requests may use."""

    adaptive: bool = False
    """Thinking "adaptive" and an effort."""
    budgets: bool = True
    """budget_tokens."""
    sampling: bool = True
    """temperature, top_p and top_k."""
    sampling_pair: bool = True
    """temperature and top_p at once."""
    xhigh: bool = False
    """That effort."""
    strict: bool = False
    """Strict tools."""
    inline_system: bool = False
    """System messages between turns."""


def rules_of(model: str) -> ModelRules:
    """The rules of a model by its name, whatever a cloud writes around it.

    A name without a version of Claude in it gets the oldest rules, which other servers of this
    dialect are most likely to follow.
    """
    found = _VERSION.search(model)
    if found is None:
        return ModelRules()
    version = (int(found[1]), int(found[2] or 0))
    return ModelRules(
        adaptive=version >= (4, 6),
        budgets=version < (4, 7),
        sampling=version < (4, 7),
        sampling_pair=version < (4, 1),
        xhigh=version >= (4, 7),
        strict=version >= (4, 1),
        inline_system=version >= (4, 8),
    )

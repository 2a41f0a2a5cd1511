"""Rules on a request: the conditions under which a model is chosen."""

from __future__ import annotations

import functools

from headrace.gateway.pii.expression import Expression, expression_of
from headrace.gateway.routing.complexity.view import View, has_code, part_of, tokens_of
from headrace.gateway.settings.complexity import ConditionSettings


def why(condition: ConditionSettings, view: View) -> str | None:
    """The conditions met, in a few words; None if one is not met."""
    part = condition.of or "last_turn"
    tokens = tokens_of(view, condition.of or "conversation")
    facts_met: list[str] = []
    code = condition.code
    facts = (
        ("code", code, code is not None and has_code(part_of(view, part))),
        ("tools", condition.tools, view.has_tools),
        ("images", condition.images, view.has_images),
        ("json", condition.json, view.wants_json),
    )
    for name, wanted, value in facts:
        if wanted is not None:
            if value is not wanted:
                return None
            facts_met.append(name if wanted else f"no {name}")
    over, under, turns = condition.tokens_over, condition.tokens_under, condition.turns_over
    if over is not None:
        if tokens <= over:
            return None
        facts_met.append(f"{tokens} tokens > {over}")
    if under is not None:
        if tokens >= under:
            return None
        facts_met.append(f"{tokens} tokens < {under}")
    if turns is not None:
        if view.turns <= turns:
            return None
        facts_met.append(f"{view.turns} turns > {turns}")
    if condition.matches is not None:
        if next(_compiled(condition.matches).finditer(part_of(view, part), 0), None) is None:
            return None
        facts_met.append("matches")
    return ", ".join(facts_met)


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Expression:
    """The compiled form of a pattern from the configuration, which has some ten."""
    return expression_of(pattern)

"""Rules on a request: what must hold for a model to be chosen."""

from __future__ import annotations

import functools

from headrace.gateway.pii.expression import Expression, expression_of
from headrace.gateway.routing.complexity.view import View, has_code, part_of, tokens_of
from headrace.gateway.settings.complexity import ConditionSettings


def why(condition: ConditionSettings, view: View) -> str | None:
    """What holds of it, in a few words; None if not all of it does."""
    part = condition.of or "last_turn"
    tokens = tokens_of(view, condition.of or "conversation")
    said: list[str] = []
    code = condition.code
    facts = (
        ("code", code, code is not None and has_code(part_of(view, part))),
        ("tools", condition.tools, view.has_tools),
        ("images", condition.images, view.has_images),
        ("json", condition.json, view.wants_json),
    )
    for name, wanted, found in facts:
        if wanted is not None:
            if found is not wanted:
                return None
            said.append(name if wanted else f"no {name}")
    over, under, turns = condition.tokens_over, condition.tokens_under, condition.turns_over
    if over is not None:
        if tokens <= over:
            return None
        said.append(f"{tokens} tokens > {over}")
    if under is not None:
        if tokens >= under:
            return None
        said.append(f"{tokens} tokens < {under}")
    if turns is not None:
        if view.turns <= turns:
            return None
        said.append(f"{view.turns} turns > {turns}")
    if condition.matches is not None:
        if next(_compiled(condition.matches).finditer(part_of(view, part), 0), None) is None:
            return None
        said.append("matches")
    return ", ".join(said)


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Expression:
    """Of the file, which has some ten."""
    return expression_of(pattern)

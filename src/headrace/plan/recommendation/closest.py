"""The sentence where nothing is left: what came closest, and what would make it fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.plan.recommendation.breach import RuledOutBy

if TYPE_CHECKING:
    from headrace.plan.recommendation.recommendation import Miss

# A place that breaks one of these is out with every model; the rules of models come after them.
_OF_PLACES = ("rule-hardware-known", "rule-backend")


def nothing_fits(nearest: Sequence[Miss], ruled_out: Sequence[RuledOutBy]) -> str:
    """nearest: from the closest; ruled_out: from the rule that excluded most."""
    if nearest:
        closest = nearest[0]
        text = f"nothing here fits; closest is {closest.name}: {_texts(closest)}"
        if closest.options:
            return f"{text}; it fits with {' '.join(closest.options)}"
        return f"{text}; what would help: {'; '.join(closest.remedies)}"
    rule = _decisive(ruled_out)
    if rule is None:
        return "nothing here fits: no model and no place was left to plan; name others"
    return f"nothing here fits, and no other figure would change that: {_example(rule)}"


def _texts(miss: Miss) -> str:
    return " and ".join(breach.text for breach in miss.breaches)


def _decisive(ruled_out: Sequence[RuledOutBy]) -> RuledOutBy | None:
    by_rule = {rule.rule: rule for rule in ruled_out}
    for rule in _OF_PLACES:
        if rule in by_rule:
            return by_rule[rule]
    # That prompts stay here was asked for; it says nothing of the places that were named.
    others = [rule for rule in ruled_out if rule.rule != "rule-private"]
    return next(iter([*others, *ruled_out]), None)


def _example(rule: RuledOutBy) -> str:
    """What broke it, with its remedy where the breach does not name one."""
    text = rule.examples[0] if rule.examples else rule.says
    return text if "`" in text else f"{text}; what would help: {rule.remedy}"

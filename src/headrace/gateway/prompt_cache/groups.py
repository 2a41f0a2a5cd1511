"""Requests of one application: of the same model, and with system prompts that are much alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.gateway.prompt_cache.prompt import Prompt

_WORD = re.compile(r"[^\W\d_]{2,}")
# A prompt's beginning says whose it is; of a long one the rest may be what was looked up for it.
_LOOKED_AT_CHARS = 4000
_ALIKE = 0.6
_MOST_GROUPS = 500
# More of the same say nothing new.
_MOST_OF_GROUP = 200


class Group:
    """count: of all requests in it; prompts: the first of them."""

    def __init__(self, model: str, key: str, words: frozenset[str]) -> None:
        self.model = model
        self.key = key
        self.words = words
        self.prompts: list[Prompt] = []
        self.count = 0

    @property
    def name(self) -> str:
        """How people tell it from others: the beginning of its system prompt."""
        fixed = self.prompts[0].fixed
        told = next((one.text for one in fixed if one.kind == "system"), "")
        flat = " ".join(told.split())
        return (flat[:47] + "..." if len(flat) > 50 else flat) or "no system prompt"


def groups_of(prompts: Iterable[tuple[Prompt, str]]) -> list[Group]:
    """Of prompts and the keys they came with ("" where nobody knows); the largest group first."""
    groups: list[Group] = []
    for prompt, key in prompts:
        words = _words(prompt)
        group = next((one for one in groups if _belongs(one, prompt.model, key, words)), None)
        if group is None:
            if len(groups) >= _MOST_GROUPS:
                continue
            group = Group(prompt.model, key, words)
            groups.append(group)
        group.count += 1
        if len(group.prompts) < _MOST_OF_GROUP:
            group.prompts.append(prompt)
    return sorted(groups, key=lambda one: -one.count)


def _belongs(group: Group, model: str, key: str, words: frozenset[str]) -> bool:
    if (group.model, group.key) != (model, key):
        return False
    either = len(group.words | words)
    return not either or len(group.words & words) >= _ALIKE * either


def _words(prompt: Prompt) -> frozenset[str]:
    text = "".join(one.text for one in prompt.fixed if one.kind == "system")
    if not text:  # applications without a system prompt are told apart by their tools
        text = "".join(one.text for one in prompt.fixed)
    return frozenset(one.casefold() for one in _WORD.findall(text[:_LOOKED_AT_CHARS]))

"""Groups requests by application: the same model, and system prompts that are much alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.gateway.prompt_cache.prompt import Prompt

_WORD = re.compile(r"[^\W\d_]{2,}")
# A prompt's beginning shows the application; the rest may be what was retrieved for the request.
_LOOKED_AT_CHARS = 4000
_ALIKE = 0.6
_MOST_GROUPS = 500
# Further prompts of the same group add nothing.
_MOST_OF_GROUP = 200


class Group:
    """Requests of one application. `count` is of all of them; `prompts` holds the first ones."""

    def __init__(self, model: str, key: str, words: frozenset[str]) -> None:
        self.model = model
        self.key = key
        self.words = words
        self.prompts: list[Prompt] = []
        self.count = 0

    @property
    def name(self) -> str:
        """A name for people to read: the beginning of its system prompt."""
        fixed = self.prompts[0].fixed
        text = next((segment.text for segment in fixed if segment.kind == "system"), "")
        flat = " ".join(text.split())
        return (flat[:47] + "..." if len(flat) > 50 else flat) or "no system prompt"


def groups_of(prompts: Iterable[tuple[Prompt, str]]) -> list[Group]:
    """Group prompts with the keys they came with ("" if unknown); the largest group comes first."""
    groups: list[Group] = []
    for prompt, key in prompts:
        words = _words(prompt)
        group = next((known for known in groups if _belongs(known, prompt.model, key, words)), None)
        if group is None:
            if len(groups) >= _MOST_GROUPS:
                continue
            group = Group(prompt.model, key, words)
            groups.append(group)
        group.count += 1
        if len(group.prompts) < _MOST_OF_GROUP:
            group.prompts.append(prompt)
    return sorted(groups, key=lambda group: -group.count)


def _belongs(group: Group, model: str, key: str, words: frozenset[str]) -> bool:
    if (group.model, group.key) != (model, key):
        return False
    either = len(group.words | words)
    return not either or len(group.words & words) >= _ALIKE * either


def _words(prompt: Prompt) -> frozenset[str]:
    text = "".join(segment.text for segment in prompt.fixed if segment.kind == "system")
    if not text:  # applications without a system prompt differ by their tools
        text = "".join(segment.text for segment in prompt.fixed)
    return frozenset(word.casefold() for word in _WORD.findall(text[:_LOOKED_AT_CHARS]))

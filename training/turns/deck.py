"""The order in which facts are asked about: shuffled decks that hold the best known ones often."""

from __future__ import annotations

import random

from training.data.corpus import STANDARD_LIBRARY
from training.turns.facts import Fact
from training.turns.running import FAMOUS
from training.turns.tables import words

# How often a fact lies in the deck that questions are dealt from.
FAMOUS_WEIGHT, COMMON_WEIGHT = 8, 2
COMMON_MODULES = frozenset(words("common modules"))


class Deck:
    """Facts dealt in a random order, again and again; famous ones lie in it several times."""

    def __init__(self, facts: list[Fact], draw: random.Random) -> None:
        self._facts = [fact for fact in facts for _ in range(_weight(fact))]
        self._draw = draw
        self._left: list[Fact] = []

    def deal(self) -> Fact:
        if not self._left:
            self._left = list(self._facts)
            self._draw.shuffle(self._left)
        return self._left.pop()

    def __len__(self) -> int:
        return len(self._facts)


def _weight(fact: Fact) -> int:
    if fact.package != STANDARD_LIBRARY:
        return 1
    if fact.full_name in FAMOUS:
        return FAMOUS_WEIGHT
    return COMMON_WEIGHT if fact.module.split(".")[0] in COMMON_MODULES else 1

"""How often a text's output has each token, and which tokens its prompt has: for penalties.

What `of` gives is a function of the list of tokens it is handed. What it keeps is only a shortcut:
a list that goes on where the last one ended costs its new tokens, one that was cut or that goes on
otherwise (a draft that was not accepted) costs what is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]


class Counts(NamedTuple):
    """Token ids with how often each occurs."""

    ids: I32
    """Int32[M], distinct."""
    counts: I32
    """Int32[M], of each in the output. Views, until the next."""


class TokenCounts:
    """Counts over texts that begin with `prompt`; the prompt's tokens are listed with count 0.

    Ids are in the order of their first coming, those of the prompt ascending before all others.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        first = np.unique(np.array(prompt, np.int32))
        self._ids: I32 = np.zeros(max(64, 2 * len(first)), np.int32)
        self._ids[: len(first)] = first
        self._counts: I32 = np.zeros(len(self._ids), np.int32)
        self._places = dict(zip(first.tolist(), range(len(first)), strict=True))
        self._of_prompt = len(first)
        self._output: list[int] = []

    def of(self, output: list[int]) -> Counts:
        """Those of a text whose tokens after the prompt are `output`."""
        kept = self._output
        if output[: len(kept)] != kept:
            same = 0
            for mine, theirs in zip(kept, output, strict=False):
                if mine != theirs:
                    break
                same += 1
            while len(kept) > same:
                self._take_back(kept.pop())
        for token_id in output[len(kept) :]:
            self._add(token_id)
        kept += output[len(kept) :]
        size = len(self._places)
        return Counts(self._ids[:size], self._counts[:size])

    def _add(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[place] = token_id
        self._counts[place] += 1

    def _take_back(self, token_id: int) -> None:
        """Undo the last `_add`: a token that came then for the first time has the last place."""
        place = self._places[token_id]
        self._counts[place] -= 1
        if self._counts[place] == 0 and place >= self._of_prompt:
            del self._places[token_id]

"""How much a request may think: where its reasoning begins and ends, and the ids that close it.

A function of the request's tokens, so it does not depend on steps, drafts or preemption. Reasoning
is what comes behind its beginning (the prompt's end, or the first `begin_ids`) and before the first
`end_ids` after that, or behind the first of `other_end_ids`. Where it has as many tokens as the
budget allows, the ids that are missing of `end_ids` come next, whatever the logits are, unless one
of `other_end_ids` has begun within the budget: nothing may come within the head of a call, so the
ids are due with the first token that it does not have. What comes after the end is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from headrace.engine.params import ThinkingBudget


class Thinking:
    """The budget of one request. What it keeps is how far it has read, so that a token costs itself
    alone; tokens are never taken back."""

    def __init__(self, budget: ThinkingBudget, num_prompt: int) -> None:
        self._most = budget.max_tokens
        self._begin = list(budget.begin_ids)
        self._end = list(budget.end_ids)
        self._others: dict[int, list[tuple[int, ...]]] = {}
        """The other sequences that end it, by their first id."""
        for ids in budget.other_end_ids:
            self._others.setdefault(ids[0], []).append(ids)
        self._num_prompt = num_prompt
        self._num_read = num_prompt
        self._start = num_prompt if budget.is_open else -1
        """Of the reasoning, among all tokens; -1 before it."""
        self._begun: list[tuple[int, list[tuple[int, ...]]]] = []
        """How many tokens have come of other sequences that end it, and which these may become."""
        self._is_closed = False
        self._was_closed_by_force = False

    def left(self, token_ids: Sequence[int]) -> int | None:
        """How many tokens may come before it has to be closed; 0 where that is due, None where it
        is over. Before it, how many come until then at least.
        """
        self._read(token_ids)
        if self._is_closed:
            return None
        if self._start < 0:
            begun = _overlap(token_ids, self._num_prompt, self._begin)
            return len(self._begin) - begun + self._most
        left = self._most - (len(token_ids) - self._start)
        return max(left, 1 if self._begun else 0)

    def closing(self, token_ids: Sequence[int]) -> list[int]:
        """What of `end_ids` has not come yet, of a text at whose end it is due."""
        return self._end[_overlap(token_ids, self._start, self._end) :]

    def was_closed_by_force(self, token_ids: Sequence[int]) -> bool:
        """Whether the budget ended the reasoning within a text: the request's tokens, and drafts
        that may be taken back."""
        if self._is_closed or len(token_ids) == self._num_read:
            return self._was_closed_by_force
        ahead = copy(self)
        ahead._read(token_ids)
        return ahead._was_closed_by_force

    def _read(self, token_ids: Sequence[int]) -> None:
        while self._num_read < len(token_ids) and not self._is_closed:
            self._num_read = stop = self._num_read + 1
            if self._start < 0:
                first = stop - len(self._begin)
                if first >= self._num_prompt and token_ids[first:stop] == self._begin:
                    self._start = stop
                continue
            first = stop - len(self._end)
            if first >= self._start and token_ids[first:stop] == self._end:
                self._is_closed = True
                # The model's own is within the budget, which it does not wait for.
                self._was_closed_by_force = stop - self._start > self._most
            else:
                within = stop - self._start <= self._most
                self._is_closed = self._ends_otherwise(token_ids[stop - 1], within=within)

    def _ends_otherwise(self, token_id: int, *, within: bool) -> bool:
        """Whether one of the other sequences is whole with a token, which is read. within: the
        token is within the budget; one beyond it begins none, so that the budget holds."""
        begun = [(0, self._others[token_id])] if within and token_id in self._others else []
        for count, sequences in self._begun:
            going_on = [ids for ids in sequences if ids[count] == token_id]
            if going_on:
                begun.append((count, going_on))
        self._begun = [(count + 1, sequences) for count, sequences in begun]
        return any(len(ids) == count for count, sequences in self._begun for ids in sequences)


def _overlap(token_ids: Sequence[int], start: int, sought: list[int]) -> int:
    """How many of the last ids, from `start` on, are the beginning of `sought`, and not all."""
    most = min(len(sought) - 1, len(token_ids) - start)
    return next((count for count in range(most, 0, -1) if token_ids[-count:] == sought[:count]), 0)

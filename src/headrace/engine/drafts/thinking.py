"""How much a request may think: where its reasoning begins and ends, and the ids that close it.

A function of the request's tokens, so it does not depend on steps, drafts or preemption. Reasoning
is what comes behind its beginning (the prompt's end, or the first `begin_ids`) and before the first
`end_ids` after that, or the first of `other_end_ids`. Where it has as many tokens as the budget
allows, the ids that are missing of `end_ids` come next, whatever the logits are. What comes after
its end is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.params import ThinkingBudget


class Thinking:
    """The budget of one request. What it keeps is how far it has read, so that a token costs itself
    alone; tokens are never taken back."""

    def __init__(self, budget: ThinkingBudget, num_prompt: int) -> None:
        self._most = budget.max_tokens
        self._begin = list(budget.begin_ids)
        self._end = list(budget.end_ids)
        self._ends = [self._end, *map(list, budget.other_end_ids)]
        self._num_prompt = num_prompt
        self._num_read = num_prompt
        self._start = num_prompt if budget.is_open else -1
        """Of the reasoning, among all tokens; -1 before it."""
        self._is_closed = False

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
        return max(0, self._most - (len(token_ids) - self._start))

    def closing(self, token_ids: Sequence[int]) -> list[int]:
        """What of `end_ids` has not come yet, of a text at whose end it is due."""
        return self._end[_overlap(token_ids, self._start, self._end) :]

    def _read(self, token_ids: Sequence[int]) -> None:
        while self._num_read < len(token_ids) and not self._is_closed:
            self._num_read = stop = self._num_read + 1
            if self._start < 0:
                first = stop - len(self._begin)
                if first >= self._num_prompt and token_ids[first:stop] == self._begin:
                    self._start = stop
            else:
                firsts = ((stop - len(end), end) for end in self._ends)
                self._is_closed = any(
                    first >= self._start and token_ids[first:stop] == end for first, end in firsts
                )


def _overlap(token_ids: Sequence[int], start: int, sought: list[int]) -> int:
    """How many of the last ids, from `start` on, are the beginning of `sought`, and not all."""
    most = min(len(sought) - 1, len(token_ids) - start)
    return next((count for count in range(most, 0, -1) if token_ids[-count:] == sought[:count]), 0)

"""A request as it comes, and its token ids."""

from __future__ import annotations

from typing import NamedTuple


class Arrival(NamedTuple):
    """The arrival of a request, in seconds from the start, and its lengths in tokens."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    """Lower comes first."""
    shared: tuple[int, ...] = ()
    """An id for each block of `shared_tokens` at the beginning of the prompt; prompts are equal for
    as long as their ids are, and nowhere else."""
    shared_tokens: int = 0


class PromptWriter:
    """A writer of made-up token ids, equal where prompts share a beginning and unique elsewhere."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def prompt(self, arrival: Arrival, number: int) -> list[int]:
        """The prompt of request `number`, counted from 0."""
        tokens: list[int] = []
        for one in arrival.shared:
            numbered = self._numbers.setdefault(one, len(self._numbers))
            tokens += [numbered] * arrival.shared_tokens
        del tokens[arrival.prompt_tokens :]
        tokens += [own_token(number)] * (arrival.prompt_tokens - len(tokens))
        return tokens


def own_token(number: int) -> int:
    """The id that only request `number` has; shared ids are 0 or more."""
    return -1 - number

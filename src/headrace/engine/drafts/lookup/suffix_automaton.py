"""A suffix automaton of several texts: all pieces of them, how many texts have each, what follows.

A state stands for the pieces that end at the same places; its longest has `length` tokens, and its
link is the state of the longest piece at its end that ends at more places. Texts grow a token at a
time, each at an amortised constant cost, and a reader that goes through another text knows the
longest of its ends that is in here, at the same cost. (Blumer et al., 1985.)

How many texts have a piece is counted and not how often it comes, so that one text that repeats
itself does not outvote the others; a token more costs its states that this text has not been in.
"""

from __future__ import annotations

from collections.abc import Sequence

_ROOT = 0


class SuffixAutomaton:
    """The pieces of the texts that were added."""

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._links = [-1]
        self._lengths = [0]
        self._counts = [0]
        """Texts that have the pieces of a state."""
        self._latest = [0]
        """The last of those."""
        self._num_texts = 0
        self._end = _ROOT

    def begin(self) -> None:
        """What is added from now on is another text."""
        self._num_texts += 1
        self._end = _ROOT

    def add(self, token_ids: Sequence[int]) -> None:
        """Add tokens to the end of the text that was begun last."""
        for token_id in token_ids:
            self._end = self._extended(self._end, token_id)
            state, text = self._end, self._num_texts
            while state and self._latest[state] != text:
                self._latest[state] = text
                self._counts[state] += 1
                state = self._links[state]

    def _extended(self, end: int, token_id: int) -> int:
        """The state of the text one token longer."""
        known = self._next[end].get(token_id)
        if known is not None:
            return self._of_length(end, token_id, known)
        new = self._made(self._lengths[end] + 1, {}, 0, 0)
        state = end
        while state >= 0 and token_id not in self._next[state]:
            self._next[state][token_id] = new
            state = self._links[state]
        if state < 0:
            self._links[new] = _ROOT
        else:
            self._links[new] = self._of_length(state, token_id, self._next[state][token_id])
        return new

    def _of_length(self, state: int, token_id: int, following: int) -> int:
        """The state of the longest piece of `state` and a token more: `following`, or, where that
        has longer pieces too, those up to this one split off from it."""
        length = self._lengths[state] + 1
        if self._lengths[following] == length:
            return following
        split = self._made(
            length, dict(self._next[following]), self._counts[following], self._latest[following]
        )
        self._links[split] = self._links[following]
        self._links[following] = split
        while state >= 0 and self._next[state].get(token_id) == following:
            self._next[state][token_id] = split
            state = self._links[state]
        return split

    def _made(self, length: int, following: dict[int, int], count: int, latest: int) -> int:
        self._next.append(following)
        self._links.append(-1)
        self._lengths.append(length)
        self._counts.append(count)
        self._latest.append(latest)
        return len(self._next) - 1


class Reader:
    """The place of another text in an automaton: the longest of its ends that is in there.

    It stays a place where texts are added meanwhile, and is the longest again when it has read as
    many tokens as that has.
    """

    def __init__(self, automaton: SuffixAutomaton) -> None:
        self._automaton = automaton
        self._state = _ROOT
        self.match_tokens = 0
        """Of the end."""

    def read(self, token_ids: Sequence[int]) -> None:
        """Go on with tokens."""
        automaton = self._automaton
        following, links, lengths = automaton._next, automaton._links, automaton._lengths
        state, match = self._state, self.match_tokens
        for token_id in token_ids:
            while state and match <= lengths[links[state]]:
                state = links[state]  # it was split
            while state and token_id not in following[state]:
                state = links[state]
                match = lengths[state]
            if token_id in following[state]:
                state = following[state][token_id]
                match += 1
        self._state, self.match_tokens = state, match

    def guess(self, least_match: int, most: int) -> tuple[list[int], int]:
        """What follows the longest end that anything follows, and how long that is: at each place
        the token that most texts go on with; of equals the one that came last, then the lower id.

        Empty where that end is shorter than least_match.
        """
        automaton = self._automaton
        following, links, lengths = automaton._next, automaton._links, automaton._lengths
        state, match = self._state, self.match_tokens
        while state and match <= lengths[links[state]]:
            state = links[state]
        while state and not following[state]:
            state = links[state]
            match = lengths[state]
        if match < least_match:
            return [], match
        counts, latest, guess = automaton._counts, automaton._latest, list[int]()
        while len(guess) < most and (choices := following[state]):
            if len(choices) == 1:
                ((token_id, state),) = choices.items()
            else:
                token_id, state = max(
                    choices.items(), key=lambda it: (counts[it[1]], latest[it[1]], -it[0])
                )
            guess.append(token_id)
        return guess, match

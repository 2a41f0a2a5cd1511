"""Where the matcher of one request stands: behind which of its tokens, and behind which drafts.

The state of a matcher is a function of the tokens that it has read, in whatever portions: it reads
those that it has not read and takes back those that it has read and that did not come (drafts that
were not accepted), so it may be dropped at any time (as a preempted request's is) and is made again
from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.structured.limits import error_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from headrace.structured.compile import CompiledGrammar


class RefusedError(Exception):
    """A token that the grammar does not take, in the matcher's words."""


class MatcherReader:
    """A matcher behind a request's output so far, and behind drafts that may not come."""

    def __init__(self, grammar: CompiledGrammar, *, num_prompt: int, num_words: int) -> None:
        """num_words: in a row of llguidance's masks."""
        self.grammar = grammar
        grammar.num_answers += 1
        self.is_apart = False
        """Whether that is of this request alone, since the one it had was full."""
        self.consume: Callable[[LLMatcher, int], bool] | None = None
        """What a thread that has it reads a token with, so that others run meanwhile."""
        self._num_prompt = num_prompt
        self._num_words = num_words
        self._matcher: LLMatcher | None = None
        self._num_read = 0
        """Output tokens that the matcher has read; they are never taken back."""
        self._ahead: list[int] = []
        """What it has read behind them, which were drafts."""

    def at(self, token_ids: Sequence[int], drafts: Sequence[int] = ()) -> LLMatcher:
        """The matcher behind a text, the prompt's ids among it, and drafts. RefusedError where the
        grammar refuses it."""
        ahead, matcher = self._ahead, self._matcher
        num_output = len(token_ids) - self._num_prompt
        if matcher is not None and not ahead and not drafts:
            if num_output == self._num_read:
                return matcher
            if num_output == self._num_read + 1:
                self._num_read = num_output
                if not self._consume(matcher, token_ids[-1]):
                    raise RefusedError(error_of(matcher))
                return matcher
        wanted = [*token_ids[self._num_prompt + self._num_read :], *drafts]
        pairs = enumerate(zip(ahead, wanted, strict=False))
        same = next(
            (at for at, (mine, theirs) in pairs if mine != theirs), min(len(ahead), len(wanted))
        )
        if matcher is None or (same < len(ahead) and not matcher.rollback(len(ahead) - same)):
            matcher = self._matcher = self.grammar.matcher()
            wanted, same = [*token_ids[self._num_prompt :], *drafts], 0
        new = wanted[same:]
        self._num_read = num_output
        self._ahead = list(drafts)
        if new and not self._read(matcher, new):
            raise RefusedError(error_of(matcher))
        return matcher

    def note_draft(self, token_id: int) -> None:
        """The matcher that `at` gave was made to read a draft behind all that it had read."""
        self._ahead.append(token_id)

    def has_more_than(self, token_ids: Sequence[int]) -> bool:
        """Whether a text is what the matcher has read up to one of its drafts, with others behind;
        they are its own tokens from then on."""
        if not self._ahead:
            return False
        new = token_ids[self._num_prompt + self._num_read :]
        if len(new) >= len(self._ahead) or self._ahead[: len(new)] != new:
            return False
        self._num_read += len(new)
        del self._ahead[: len(new)]
        return True

    def rewind(self) -> None:
        """Drop what can be made again from the output. Copies of a matcher share the states that
        its expressions came to, so that reading again what was read makes none, and no limit of
        a token is met though all are read at once."""
        self._matcher = None
        self._num_read = 0
        self._ahead = []

    @property
    def is_alone(self) -> bool:
        """Whether the grammar has read nothing but this text."""
        return self.grammar.num_answers == 1 and not self.grammar.has_read_guesses

    def is_certain(self) -> bool:
        """Whether this text meets a limit of its own where the matcher meets one, and nowhere
        else: nobody else has read with its grammar, or too little to have spared it one. True
        only behind a mask; a guess of the request itself is read by somebody else."""
        if self.is_apart or self.is_alone or self._matcher is None:
            return True
        return self.grammar.is_certain(self._matcher)

    def go_apart(self) -> None:
        """Take a grammar of the request's own, with no states in it yet."""
        self.is_apart = True
        self.grammar = self.grammar.anew()

    def _consume(self, matcher: LLMatcher, token_id: int) -> bool:
        if self.consume is None:
            return matcher.consume_token(token_id)
        return self.consume(matcher, token_id)

    def _read(self, matcher: LLMatcher, new: list[int]) -> bool:
        """Whether a matcher takes these tokens. One of a grammar of its own meets their states for
        the first time: what it may take is counted from one mask to the next, so that it makes
        them, and comes to the states to which it would have come alone."""
        if not self.is_apart:
            if self.consume is None:
                return matcher.consume_tokens(new)
            return all(self.consume(matcher, token_id) for token_id in new)
        words = np.zeros(self._num_words, np.uint32)
        for token_id in new:
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if not self._consume(matcher, token_id):
                return False
        return True

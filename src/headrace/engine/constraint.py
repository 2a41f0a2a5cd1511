"""What the grammar of one request lets its next token be.

A state of the grammar is a function of the request's output tokens and of nothing else: the matcher
reads those that it has not read, so it may be dropped at any time (as a preempted request's is) and
is made again from all of them. So bits do not depend on the batch, on preemption or on chunks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from headrace.structured.compile import CompiledGrammar

U32 = npt.NDArray[np.uint32]

Verdict = Literal["open", "ended", "failed"]
"""Whether a token may follow, only the end can, or the matcher has given up."""


class Constraint:
    """The grammar of a request at the end of its output so far. One thread at a time."""

    def __init__(
        self,
        grammar: CompiledGrammar,
        *,
        num_prompt: int,
        grammar_end_id: int,
        vocab_size: int,
        end_ids: Collection[int],
    ) -> None:
        """grammar_end_id: for the end of the grammar, behind those of tokens. vocab_size: the width
        of logits. end_ids: of the request, which are allowed where the grammar may end.
        """
        self.verdict: Verdict = "open"
        """By the last `look` or `take`."""
        self.error = ""
        """Why it "failed"."""
        self._grammar = grammar
        self._num_prompt = num_prompt
        self._matcher: LLMatcher | None = None
        self._num_read = 0
        self._words = np.zeros(grammar_end_id // 32 + 1, np.uint32)
        self._grammar_end = grammar_end_id // 32, ~np.uint32(1 << grammar_end_id % 32)
        self._bits: U32 = np.zeros((vocab_size + 31) // 32, np.uint32)
        self._end_bits: U32 = np.zeros_like(self._bits)
        for token_id in end_ids:
            self._end_bits[token_id // 32] |= np.uint32(1 << token_id % 32)

    @property
    def bits(self) -> U32 | None:
        """The ids that may come next, as of LogitsEdit; None where the verdict is not "open"."""
        return self._bits if self.verdict == "open" else None

    def look(self, token_ids: Sequence[int]) -> None:
        """Find what may follow a text of these ids, the prompt's among them; never raises."""
        try:
            self._look(token_ids)
        except BaseException as error:  # a panic of Rust code is not an Exception
            self.fail(f"{type(error).__name__}: {error}")

    def _look(self, token_ids: Sequence[int]) -> None:
        matcher = self._read(token_ids)
        if matcher is None:
            return
        words = self._words
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():
            self.fail(matcher.get_error())
            return
        word, but_the_end = self._grammar_end
        words[word] &= but_the_end
        shared = min(len(words), len(self._bits))
        self._bits[:shared] = words[:shared]
        may_go_on = bool(self._bits.any())
        if matcher.is_accepting():
            # Where nothing but the end can follow there is nothing to draw.
            self.verdict = "open" if may_go_on else "ended"
            self._bits |= self._end_bits
        elif not may_go_on:
            self.fail("no token of the model can follow")

    def take(self, token_ids: Sequence[int]) -> Verdict:
        """Read the tokens that have come; whether anything but the end can follow. Never raises."""
        try:
            matcher = self._read(token_ids)
            if matcher is not None and matcher.is_stopped():
                self.verdict = "ended"
        except BaseException as error:  # a panic of Rust code is not an Exception
            self.fail(f"{type(error).__name__}: {error}")
        return self.verdict

    def rewind(self) -> None:
        """Drop what can be made again from the output."""
        self._matcher = None
        self._num_read = 0

    def _read(self, token_ids: Sequence[int]) -> LLMatcher | None:
        """The matcher at the end of a text; None where the verdict is no longer "open"."""
        if self.verdict != "open":
            return None
        matcher = self._matcher
        if matcher is None:
            matcher = self._matcher = self._grammar.matcher()
        new = list(token_ids[self._num_prompt + self._num_read :])
        self._num_read += len(new)
        if new and not matcher.consume_tokens(new):
            self.fail(matcher.get_error())
            return None
        return matcher

    def fail(self, reason: str) -> None:
        """Give up; `error` says why from then on."""
        first = reason.strip().splitlines()[0] if reason.strip() else "for no stated reason"
        self.verdict = "failed"
        self.error = f"the grammar cannot be followed: {first[:400]}"
        self.rewind()

"""What the grammar of one request lets its next token be.

A state of the grammar is a function of the request's output tokens and of nothing else
(matcher_reader.py), so bits do not depend on the batch, on preemption, on chunks or on drafts. Nor
do they have it meet a limit: where the answers of a grammar, and guesses of them, together came to
as many states as one may, or one of them took more than a token may, a request goes on with a
grammar of its own, which reads its own tokens and no guess.

Where the grammar leaves one token, llguidance's mask has that bit alone: the token by which the
model's tokenizer writes the text that has to follow. `forced` gives those tokens one after another,
each asked for where the mask would be, so that it says what the masks of single steps would.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.grammars.matcher_reader import MatcherReader, RefusedError
from headrace.engine.grammars.pace import Pace
from headrace.structured.limits import (
    GRAMMAR_TOO_LARGE,
    INVALID_GRAMMAR,
    NO_TEXT,
    TAKEN_TOGETHER,
    error_of,
    is_beyond_a_limit,
    is_of_all_answers,
    is_without_text,
)

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from headrace.structured.compile import CompiledGrammar

U32 = npt.NDArray[np.uint32]

Verdict = Literal["open", "ended", "failed", "unknown"]
"""Whether a token may follow, only the end can, the matcher has given up, or it is not known."""


class Look(NamedTuple):
    """The ids that may come at one place. bits: a row of SamplingRows.masks, right until the next
    look; None where the verdict is not "open". error: why it "failed"."""

    verdict: Verdict
    bits: U32 | None = None
    error: str = ""
    error_code: str | None = None


MAX_IDS_SEEN = 8192
"""Ids that the search for one span may come by: each of its tokens is found with all that are
forced behind it, as far as they are cut at once: 300 ids for each of them at a long text."""

UNKNOWN = Look("unknown")
"""Of a place behind a guess that the grammar does not take, which no answer reaches, or at which it
met a limit: whether the answer meets it too is found when the guess has become the answer's own."""


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
        pace: Pace | None = None,
    ) -> None:
        """grammar_end_id: for the end of the grammar, behind those of tokens. vocab_size: the width
        of logits. end_ids: of the request, which are allowed where the grammar may end. pace: of
        the grammar, for all requests that have it.
        """
        self.verdict: Verdict = "open"
        """Of the request's own tokens, by the last `look` or `take`."""
        self.error = ""
        """Why it "failed"."""
        self.error_code: str | None = None
        """Of a RequestError where it "failed" by what the request asks for."""
        self.pace = Pace() if pace is None else pace
        self.is_lent = False
        """Whether another thread has it, so that no other may use it."""
        self.takes_guesses = True
        """Whether drafts that are not certain may be read: not where one met a limit."""
        self._kept: tuple[int, Look] | None = None
        """What may follow a text of so many ids, found beside the steps."""
        self._num_bits = (vocab_size + 31) // 32
        self._num_words = grammar_end_id // 32 + 1
        self.reader = MatcherReader(grammar, num_prompt=num_prompt, num_words=self._num_words)
        """The matcher, at what it has read."""
        self._words: list[tuple[U32, int, Look]] = []
        """A row of words for each place, as long as what llguidance writes and what logits take;
        its address; and a look at those of logits."""
        self._grammar_end = grammar_end_id // 32, ~np.uint32(1 << grammar_end_id % 32)
        self._end_bits: U32 = np.zeros(self._num_bits, np.uint32)
        for token_id in end_ids:
            self._end_bits[token_id // 32] |= np.uint32(1 << token_id % 32)

    def sits_out(self, num_tokens: int) -> bool:
        """Whether what may follow a text of so many ids has to be found beside the steps."""
        return self.is_lent or (self.pace.is_slow and self.kept(num_tokens) is None)

    def keep(self, look: Look, num_tokens: int) -> None:
        """What was found beside the steps, of a text of so many ids."""
        self._kept = num_tokens, look

    def kept(self, num_tokens: int) -> Look | None:
        """The same, if it is of that text; right until the next look."""
        kept = self._kept
        return kept[1] if kept is not None and kept[0] == num_tokens else None

    def look(self, token_ids: Sequence[int]) -> Look:
        """What may follow a text of these ids, the prompt's among them; never raises."""
        return self.look_after(token_ids, ())

    def look_after(self, token_ids: Sequence[int], drafts: Sequence[int]) -> Look:
        """What may follow a text and drafts that are certain; never raises."""
        while self.verdict == "open":
            try:
                look = self._look(self.reader.at(token_ids, drafts), 0, is_own=True)
                self._want_certain()
            except BaseException as error:  # a panic of Rust code is not an Exception
                look = self._fail_by(error)
            if look.verdict != "failed" or not self._goes_apart():
                return look
        return self._own()

    def look_along(self, token_ids: Sequence[int], drafts: Sequence[int]) -> list[Look]:
        """What may follow a text, and after each of the drafts, which are guesses; never raises."""
        looks = [self.look(token_ids)]
        if self.verdict == "open" and self.takes_guesses and drafts:
            self.reader.grammar.has_read_guesses = True
            try:
                self._look_along(self.reader.at(token_ids), drafts, looks)
                self._want_certain()
            except BaseException as error:  # a panic of Rust code is not an Exception
                self._fail_by(error)
                if self._goes_apart():
                    return self.look_along(token_ids, drafts)
        return looks + [UNKNOWN] * (1 + len(drafts) - len(looks))

    def look_ahead(self, token_ids: Sequence[int], guesses: Sequence[int]) -> Look:
        """What may follow a text and guesses, of which the same ones or fewer are looked at next
        time, or others; never raises, and where that does not come to a look the request's own
        tokens are not the worse for it."""
        if not guesses:
            return self.look(token_ids)
        if self.verdict != "open":
            return self._own()
        if not self.takes_guesses:
            return UNKNOWN
        self.reader.grammar.has_read_guesses = True
        try:
            return self._look(self.reader.at(token_ids, guesses), 0, is_own=False)
        except BaseException:  # a panic of Rust code is not an Exception
            self.rewind()
            self.takes_guesses = False
        return UNKNOWN

    def _want_certain(self) -> None:
        """Raises RefusedError, after which the request goes apart, where others have read so much
        with its grammar that it could miss a limit of its own."""
        if not self.reader.is_certain():
            raise RefusedError(TAKEN_TOGETHER)

    def _look_along(self, matcher: LLMatcher, drafts: Sequence[int], looks: list[Look]) -> None:
        for row, token_id in enumerate(drafts, 1):
            if looks[-1].verdict != "open":
                return
            if not matcher.try_consume_tokens([token_id]):
                if matcher.is_error():
                    self._failed(error_of(matcher), is_own=False)
                return
            self.reader.note_draft(token_id)
            looks.append(self._look(matcher, row, is_own=False))

    def _look(self, matcher: LLMatcher, row: int, *, is_own: bool) -> Look:
        if row == len(self._words):
            made = np.zeros(max(self._num_words, self._num_bits), np.uint32)
            self._words.append((made, made.ctypes.data, Look("open", made[: self._num_bits])))
        words, address, look = self._words[row]
        matcher.unsafe_compute_mask_ptr(address, 4 * self._num_words)
        if matcher.is_error():
            return self._failed(error_of(matcher), is_own=is_own)
        if not matcher.is_accepting():
            return look
        word, but_the_end = self._grammar_end
        words[word] &= but_the_end
        bits = look.bits
        assert bits is not None, "it is open"
        if bits.any():
            bits |= self._end_bits
            return look
        # Where nothing but the end can follow there is nothing to draw.
        self.verdict = "ended" if is_own else self.verdict
        return Look("ended")

    def take(self, token_ids: Sequence[int]) -> Verdict:
        """Read the tokens that have come; whether anything but the end can follow. Of a grammar
        that is slow that is found beside the steps, and open until then. Never raises."""
        if self.pace.is_slow:
            return "open"
        begun_s = self.pace.begin()
        verdict = self.take_now(token_ids)
        self.pace.end(begun_s)
        return verdict

    def take_now(self, token_ids: Sequence[int]) -> Verdict:
        """The same, however long that takes."""
        if self.verdict == "open":
            try:
                if self.reader.has_more_than(token_ids):
                    return "open"  # a draft could follow
                if self.reader.at(token_ids).is_stopped():
                    self.verdict = "ended"
            except BaseException as error:  # a panic of Rust code is not an Exception
                self._fail_by(error)
                if self._goes_apart():
                    return self.take_now(token_ids)
        return self.verdict

    def forced(self, token_ids: Sequence[int], most: int) -> tuple[list[int], bool]:
        """The tokens, at most so many, that come next whatever the logits are, and whether nothing
        can follow them; none of a grammar that is slow. Never raises."""
        if self.verdict != "open" or self.pace.is_slow:
            return [], False
        begun_s = self.pace.begin()
        span = self._forced(token_ids, most)
        self.pace.end(begun_s)
        return span

    def _forced(self, token_ids: Sequence[int], most: int) -> tuple[list[int], bool]:
        span: list[int] = []
        try:
            matcher = self.reader.at(token_ids)
            seen = 0
            while len(span) < most and seen < MAX_IDS_SEEN and not matcher.is_stopped():
                following = matcher.compute_ff_tokens()
                seen += len(following)
                if not following:
                    return span, False
                if not matcher.consume_token(following[0]):
                    break  # the masks of single steps will say what is wrong
                self.reader.note_draft(following[0])
                span.append(following[0])
            return span, bool(span) and matcher.is_stopped() and not matcher.is_error()
        except BaseException as error:  # a panic of Rust code is not an Exception
            self._fail_by(error)
            self._goes_apart()
        return [], False

    def rewind(self) -> None:
        """Drop what can be made again from the output."""
        self.reader.rewind()

    def fail(self, reason: str) -> None:
        """Give up; `error` says why from then on."""
        first = reason.strip().splitlines()[0] if reason.strip() else "for no stated reason"
        self.verdict = "failed"
        is_full = is_beyond_a_limit(first)
        self.error_code = GRAMMAR_TOO_LARGE if is_full else None
        if is_without_text(first):
            first, self.error_code = f"{NO_TEXT} from here on", INVALID_GRAMMAR
        self.error = f"the grammar cannot be followed: {first[:400]}"
        # What met a limit is shared by all matchers of the grammar: the next would fail at once.
        self.reader.grammar.is_full |= is_full
        self.rewind()

    def _goes_apart(self) -> bool:
        """Where the last failure may be that of other answers of the grammar, or of a guess: open
        again, with a grammar of its own. Once, so that a request fails where its own answer meets
        the limit, whatever others met."""
        if self.reader.is_apart or self.reader.is_alone or not is_of_all_answers(self.error):
            return False
        self.takes_guesses = False
        try:
            self.reader.go_apart()
        except BaseException:  # a panic of Rust code is not an Exception
            return False  # it stays failed, for the reason it has
        self.verdict, self.error, self.error_code = "open", "", None
        return True

    def _own(self) -> Look:
        """Of the request's own tokens, whose verdict is not "open"."""
        return Look(self.verdict, error=self.error, error_code=self.error_code)

    def _failed(self, reason: str, *, is_own: bool) -> Look:
        if not is_own:
            if is_of_all_answers(reason) and not self.reader.is_apart:
                raise RefusedError(reason)
            self.rewind()  # a matcher that met a limit at a guess takes nothing any more
            self.takes_guesses = False
            return UNKNOWN
        self.fail(reason)
        return self._own()

    def _fail_by(self, error: BaseException) -> Look:
        is_refusal = isinstance(error, RefusedError)
        self.fail(str(error) if is_refusal else f"{type(error).__name__}: {error}")
        return self._own()

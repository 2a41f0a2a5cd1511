"""What the grammar of one request lets its next token be.

A state of the grammar is a function of the request's output tokens and of nothing else: the matcher
reads those that it has not read and takes back those that it has read and that did not come (drafts
that were not accepted), so it may be dropped at any time (as a preempted request's is) and is made
again from all of them. So bits do not depend on the batch, on preemption, on chunks or on drafts.
Nor does it depend on them whether a limit is met: where the answers of a grammar, and guesses of
them, together came to as many states as one may, a request goes on with a grammar of its own, which
reads its own tokens and no guess.

Where the grammar leaves one token, llguidance's mask has that bit alone: the token by which the
model's tokenizer writes the text that has to follow. `forced` gives those tokens one after another,
each asked for where the mask would be, so that it says what the masks of single steps would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.grammars.pace import Pace
from headrace.structured.limits import (
    GRAMMAR_TOO_LARGE,
    INVALID_GRAMMAR,
    NO_TEXT,
    is_beyond_a_limit,
    is_of_states,
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


class _RefusedError(Exception):
    """A token that the grammar does not take, in the matcher's words."""


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
        self.consume: Callable[[LLMatcher, int], bool] | None = None
        """What a thread that has it reads a token with, so that others run meanwhile."""
        self.takes_guesses = True
        """Whether drafts that are not certain may be read: not where one met a limit."""
        self._kept: tuple[int, Look] | None = None
        """What may follow a text of so many ids, found beside the steps."""
        self._grammar = grammar
        self._is_apart = False
        """Whether that is of this request alone, since the one it had was full."""
        self._num_prompt = num_prompt
        self._matcher: LLMatcher | None = None
        self._num_read = 0
        """Output tokens that the matcher has read; they are never taken back."""
        self._ahead: list[int] = []
        """What it has read behind them, which were drafts."""
        self._num_bits = (vocab_size + 31) // 32
        self._num_words = grammar_end_id // 32 + 1
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
                matcher = self._matcher_at(token_ids, drafts)
                look = self._look(matcher, 0, is_own=True)
            except BaseException as error:  # a panic of Rust code is not an Exception
                look = self._fail_by(error)
            if look.verdict != "failed" or not self._goes_apart():
                return look
        return self._own()

    def look_along(self, token_ids: Sequence[int], drafts: Sequence[int]) -> list[Look]:
        """What may follow a text, and after each of the drafts, which are guesses; never raises."""
        looks = [self.look(token_ids)]
        if self.verdict == "open" and self.takes_guesses:
            try:
                self._look_along(drafts, looks)
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
        try:
            return self._look(self._matcher_at(token_ids, guesses), 0, is_own=False)
        except BaseException:  # a panic of Rust code is not an Exception
            self.rewind()
            self.takes_guesses = False
        return UNKNOWN

    def _look_along(self, drafts: Sequence[int], looks: list[Look]) -> None:
        matcher = self._matcher
        assert matcher is not None, "it has looked at the place before"
        for row, token_id in enumerate(drafts, 1):
            if looks[-1].verdict != "open":
                return
            if not matcher.try_consume_tokens([token_id]):
                if matcher.is_error():
                    self._failed(matcher.get_error(), is_own=False)
                return
            self._ahead.append(token_id)
            looks.append(self._look(matcher, row, is_own=False))

    def _look(self, matcher: LLMatcher, row: int, *, is_own: bool) -> Look:
        if row == len(self._words):
            made = np.zeros(max(self._num_words, self._num_bits), np.uint32)
            self._words.append((made, made.ctypes.data, Look("open", made[: self._num_bits])))
        words, address, look = self._words[row]
        matcher.unsafe_compute_mask_ptr(address, 4 * self._num_words)
        if matcher.is_error():
            return self._failed(matcher.get_error(), is_own=is_own)
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
                if self._ahead:
                    new = token_ids[self._num_prompt + self._num_read :]
                    if len(new) < len(self._ahead) and self._ahead[: len(new)] == new:
                        self._num_read += len(new)
                        del self._ahead[: len(new)]
                        return "open"  # a draft could follow
                if self._matcher_at(token_ids).is_stopped():
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
            matcher = self._matcher_at(token_ids)
            seen = 0
            while len(span) < most and seen < MAX_IDS_SEEN and not matcher.is_stopped():
                following = matcher.compute_ff_tokens()
                seen += len(following)
                if not following:
                    return span, False
                if not matcher.consume_token(following[0]):
                    break  # the masks of single steps will say what is wrong
                self._ahead.append(following[0])
                span.append(following[0])
            return span, bool(span) and matcher.is_stopped() and not matcher.is_error()
        except BaseException as error:  # a panic of Rust code is not an Exception
            self._fail_by(error)
            self._goes_apart()
        return [], False

    def rewind(self) -> None:
        """Drop what can be made again from the output. Copies of a matcher share the states that
        its expressions came to, so that reading again what was read makes none, and no limit of
        a token is met though all are read at once."""
        self._matcher = None
        self._num_read = 0
        self._ahead = []

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
        self._grammar.is_full |= is_full
        self.rewind()

    def _goes_apart(self) -> bool:
        """Where the last failure was that the answers of the grammar came to as many states as one
        may: open again, with a grammar of its own. Once, so that a request fails where its own
        answer comes to so many, whatever others came to."""
        if self._is_apart or not is_of_states(self.error):
            return False
        self._is_apart, self.takes_guesses = True, False
        try:
            self._grammar = self._grammar.anew()
        except BaseException:  # a panic of Rust code is not an Exception
            return False  # it stays failed, for the reason it has
        self.verdict, self.error, self.error_code = "open", "", None
        return True

    def _own(self) -> Look:
        """Of the request's own tokens, whose verdict is not "open"."""
        return Look(self.verdict, error=self.error, error_code=self.error_code)

    def _failed(self, reason: str, *, is_own: bool) -> Look:
        if not is_own:
            if is_of_states(reason) and not self._is_apart:
                raise _RefusedError(reason)
            self.rewind()  # a matcher that met a limit at a guess takes nothing any more
            self.takes_guesses = False
            return UNKNOWN
        self.fail(reason)
        return self._own()

    def _fail_by(self, error: BaseException) -> Look:
        is_refusal = isinstance(error, _RefusedError)
        self.fail(str(error) if is_refusal else f"{type(error).__name__}: {error}")
        return self._own()

    def _matcher_at(self, token_ids: Sequence[int], drafts: Sequence[int] = ()) -> LLMatcher:
        """The matcher behind a text and drafts. _RefusedError where the grammar refuses it."""
        ahead, matcher = self._ahead, self._matcher
        num_output = len(token_ids) - self._num_prompt
        if matcher is not None and not ahead and not drafts:
            if num_output == self._num_read:
                return matcher
            if num_output == self._num_read + 1:
                self._num_read = num_output
                if not self._consume(matcher, token_ids[-1]):
                    raise _RefusedError(matcher.get_error())
                return matcher
        wanted = [*token_ids[self._num_prompt + self._num_read :], *drafts]
        pairs = enumerate(zip(ahead, wanted, strict=False))
        same = next(
            (at for at, (mine, theirs) in pairs if mine != theirs), min(len(ahead), len(wanted))
        )
        if matcher is None or (same < len(ahead) and not matcher.rollback(len(ahead) - same)):
            matcher = self._matcher = self._grammar.matcher()
            wanted, same = [*token_ids[self._num_prompt :], *drafts], 0
        new = wanted[same:]
        self._num_read = num_output
        self._ahead = list(drafts)
        if new and not self._read(matcher, new):
            raise _RefusedError(matcher.get_error())
        return matcher

    def _consume(self, matcher: LLMatcher, token_id: int) -> bool:
        if self.consume is None:
            return matcher.consume_token(token_id)
        return self.consume(matcher, token_id)

    def _read(self, matcher: LLMatcher, new: list[int]) -> bool:
        """Whether a matcher takes these tokens. One of a grammar of its own meets their states for
        the first time: what it may take is counted from one mask to the next, so that it makes
        them, and comes to the states to which it would have come alone."""
        if not self._is_apart:
            if self.consume is None:
                return matcher.consume_tokens(new)
            return all(self.consume(matcher, token_id) for token_id in new)
        words = np.zeros(self._num_words, np.uint32)
        for token_id in new:
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if not self._consume(matcher, token_id):
                return False
        return True
